"""Run the self-test of agents on a list of versions, and write the tables in docs/reference.

    python scripts/canary.py                        every version of every agent that can be fetched
    python scripts/canary.py claude@2.1.300 codex   these; the others stay as they were
    python scripts/canary.py --write                only write the tables again

The binaries are those of `python -m remuda.testing.real_cli fetch NAME…`. Results: tests/data/canary.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from remuda.agents import find_self_test
from remuda.self_test.promises import PROMISES, REFUSED, PromiseVerdict
from remuda.testing.real_cli import OLDER, OTHER_VERSIONS, PINNED, binary_of, binary_path

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "tests" / "data" / "canary.json"
VERSIONS_PAGE = ROOT / "docs" / "reference" / "versions.md"
AGENTS_PAGE = ROOT / "docs" / "reference" / "agents.md"
BEGIN, END = "<!-- made by scripts/canary.py -->\n", "<!-- end of the self-test -->\n"
_TIMEOUT = 900
_CELLS = {
    PromiseVerdict.HOLDS: "yes",
    PromiseVerdict.FAILS: "no",
    PromiseVerdict.SLOW: "too slow here",
    PromiseVerdict.UNKNOWN: "not known",
}

Result = dict[str, Any]
"""As `remuda doctor --agent AGENT --json` prints it, without what is true of this machine only."""
Recorded = dict[str, dict[str, Result]]
"""By agent and version."""


def load() -> Recorded:
    found: Recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    return found


def all_versions() -> list[tuple[str, str]]:
    """Return the agents and versions that can be fetched."""
    return [*(("claude", version) for version in (*OLDER, PINNED)), *OTHER_VERSIONS.items()]


def read_word(word: str) -> tuple[str, str]:
    """Return agent and version of a word such as `codex` or `claude@2.1.300`."""
    agent, _, version = word.partition("@")
    found = (agent, version or {"claude": PINNED, **OTHER_VERSIONS}.get(agent, ""))
    if found not in all_versions():
        sys.exit(f"canary: {word} cannot be fetched; known are {', '.join(map('@'.join, all_versions()))}")
    return found


def try_version(agent: str, version: str) -> Result:
    """Return the result of one version, without what is true of this machine only."""
    binary = binary_path(version) if agent == "claude" else binary_of(agent)
    if not binary.exists():
        name = version if agent == "claude" else agent
        sys.exit(f"canary: fetch it first: python -m remuda.testing.real_cli fetch {name}")
    words = ["doctor", "--agent", agent, "--json", "--timeout", str(_TIMEOUT), "--binary", str(binary)]
    with tempfile.TemporaryDirectory(prefix="remuda-canary-") as home:
        done = subprocess.run(
            [sys.executable, "-m", "remuda", *words],
            env={**os.environ, "REMUDA_HOME": home},
            stdout=subprocess.PIPE,
            check=False,
        )
    if done.returncode not in (0, 1) or not done.stdout:
        sys.exit(f"canary: the self-test of {agent} {version} failed")
    found = json.loads(done.stdout)
    kept = {key: found[key] for key in ("version", "digest", "offline", "seconds", "words")}
    kept["seconds"] = round(kept["seconds"])
    keys = ("promise", "verdict", "detail")
    return {**kept, "outcomes": [{key: one[key] for key in keys} for one in found["outcomes"]]}


# ── the tables ──


def table(columns: dict[str, Result]) -> str:
    """Return a table of all promises. `columns` has results by the words at their top."""
    notes: list[str] = []
    rows = [f"| promise | {' | '.join(columns)} |", f"|{' --- |' * (len(columns) + 1)}"]
    for promise in PROMISES:
        cells = [_cell(result, promise.key, notes) for result in columns.values()]
        if set(cells) != {"-"}:
            rows.append(f"| {promise.what} | {' | '.join(cells)} |")
    times = " | ".join(str(result["seconds"]) for result in columns.values())
    rows.append(f"| seconds that the test took | {times} |")
    listed = [f"{number}. {words}" for number, words in enumerate(notes, 1)]
    return "\n".join([*rows, "", *(listed or ["All hold."])]) + "\n"


def _cell(result: Result, key: str, notes: list[str]) -> str:
    for one in result["outcomes"]:
        if one["promise"] == key:
            verdict = PromiseVerdict(one["verdict"])
            if verdict is PromiseVerdict.HOLDS:
                return "refused" if one["detail"].startswith(REFUSED) else _CELLS[verdict]
            if one["detail"] not in notes:
                notes.append(one["detail"])
            return f"{_CELLS[verdict]} ({notes.index(one['detail']) + 1})"
    return "-"


def versions_table(recorded: Recorded) -> str:
    """Return the table of Claude Code's versions, the newest first."""
    found = recorded.get("claude", {})
    return table({version: found[version] for version in sorted(found, key=_number, reverse=True)})


def agents_table(recorded: Recorded) -> str:
    """Return the table of all agents, each in its newest version."""
    columns = {}
    for agent in [one for one in ("claude", *OTHER_VERSIONS) if one in recorded]:
        found = recorded[agent]
        newest = max(found, key=_number)
        plan = find_self_test(agent)
        columns[f"{plan.program if plan is not None else agent} {newest}"] = found[newest]
    return table(columns)


def page(text: str, made: str) -> str:
    """Return a page with the table as it should be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{made}{END}{after}"


def write_pages(recorded: Recorded) -> None:
    for path, made in pages(recorded).items():
        path.write_text(page(path.read_text(), made))


def pages(recorded: Recorded) -> dict[Path, str]:
    """Return the table of each page."""
    return {VERSIONS_PAGE: versions_table(recorded), AGENTS_PAGE: agents_table(recorded)}


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def main(arguments: list[str]) -> int:
    chosen = [] if arguments == ["--write"] else [read_word(one) for one in arguments] or all_versions()
    recorded = load()
    for agent, version in chosen:
        found = recorded.setdefault(agent, {})
        found[version] = try_version(agent, version)
        recorded[agent] = {name: found[name] for name in sorted(found, key=_number)}
        RECORDED.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n")
        sys.stderr.write(f"{agent} {version}: {found[version]['seconds']} s\n")
    write_pages(recorded)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
