"""Run the self-test of an agent on a list of versions, and write the table in docs/reference/versions.md.

    python scripts/canary.py                      every version of Claude Code that can be fetched
    python scripts/canary.py 2.1.300 2.1.325      these versions; the others stay as they were
    python scripts/canary.py --write              only write the table again

The binaries are those of `python -m remuda.testing.real_cli fetch VERSION…`. Results: tests/data/canary.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from remuda.self_test.promises import PROMISES, Verdict
from remuda.testing.real_cli import OLDER, PINNED, binary_path

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "tests" / "data" / "canary.json"
PAGE = ROOT / "docs" / "reference" / "versions.md"
BEGIN, END = "<!-- made by scripts/canary.py -->\n", "<!-- end of the self-test -->\n"
_TIMEOUT = 120
_CELLS = {Verdict.HOLDS: "yes", Verdict.FAILS: "no", Verdict.UNKNOWN: "not known"}

Recorded = dict[str, dict[str, Any]]
"""Of each version, its result, as `remuda doctor --agent claude --json` prints it."""


def load() -> Recorded:
    found: Recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    return found


def try_version(version: str) -> dict[str, Any]:
    """Return the result of one version, without what is true of this machine only."""
    words = ["doctor", "--agent", "claude", "--json", "--timeout", str(_TIMEOUT)]
    with tempfile.TemporaryDirectory(prefix="remuda-canary-") as home:
        done = subprocess.run(
            [sys.executable, "-m", "remuda", *words, "--binary", str(binary_path(version))],
            env={**os.environ, "REMUDA_HOME": home},
            stdout=subprocess.PIPE,
            check=False,
        )
    if done.returncode not in (0, 1) or not done.stdout:
        sys.exit(f"canary: the self-test of {version} failed")
    found = json.loads(done.stdout)
    kept = {key: found[key] for key in ("version", "digest", "offline", "seconds", "words")}
    kept["seconds"] = round(kept["seconds"])
    keys = ("promise", "verdict", "detail")
    return {**kept, "outcomes": [{key: one[key] for key in keys} for one in found["outcomes"]]}


def table(recorded: Recorded) -> str:
    versions = sorted(recorded, key=_number, reverse=True)
    notes: list[str] = []
    rows = [f"| promise | {' | '.join(versions)} |", f"|{' --- |' * (len(versions) + 1)}"]
    for promise in PROMISES:
        cells = [_cell(recorded[version], promise.key, notes) for version in versions]
        rows.append(f"| {promise.what} | {' | '.join(cells)} |")
    listed = [f"{number}. {words}" for number, words in enumerate(notes, 1)]
    return "\n".join([*rows, "", *(listed or ["All hold."])]) + "\n"


def _cell(result: dict[str, Any], key: str, notes: list[str]) -> str:
    for one in result["outcomes"]:
        if one["promise"] == key:
            verdict = Verdict(one["verdict"])
            if verdict is Verdict.HOLDS:
                return _CELLS[verdict]
            if one["detail"] not in notes:
                notes.append(one["detail"])
            return f"{_CELLS[verdict]} ({notes.index(one['detail']) + 1})"
    return "-"


def page(text: str, recorded: Recorded) -> str:
    """Return the page with the table as it should be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(recorded)}{END}{after}"


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def main(arguments: list[str]) -> int:
    versions = [] if arguments == ["--write"] else arguments or [*OLDER, PINNED]
    recorded = load()
    for version in versions:
        if not binary_path(version).exists():
            sys.exit(f"canary: fetch it first: python -m remuda.testing.real_cli fetch {version}")
        recorded[version] = try_version(version)
        ordered = {name: recorded[name] for name in sorted(recorded, key=_number)}
        RECORDED.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
        sys.stderr.write(f"{version}: {recorded[version]['seconds']} s\n")
    PAGE.write_text(page(PAGE.read_text(), recorded))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
