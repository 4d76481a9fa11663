"""What holds on which version of Claude Code: recorded from test runs, shown in docs/reference/versions.md.

python tests/support/version_table.py record results.xml…   take over a run (`pytest --junitxml`)
python tests/support/version_table.py write                 write the table into docs/reference/versions.md
"""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TypedDict

from remuda.testing.real_cli import VERSION

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "data" / "versions.json"
PAGE = ROOT / "docs" / "reference" / "versions.md"
BEGIN, END = "<!-- made by tests/support/version_table.py -->\n", "<!-- end -->\n"
HOLDS, FAILS = "holds", "does not hold"


class Run(TypedDict):
    """The last run on one version: its day, the commit of Remuda, and for each promise whether it holds."""

    date: str
    commit: str
    results: dict[str, str]


Recorded = dict[str, Run]
"""By version of Claude Code."""


def load() -> Recorded:
    found: Recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    return found


def record(version: str, *results: Path) -> None:
    """Take over the results of a run, in one file or several. What that version had is replaced."""
    suites = [suite for path in results for suite in ET.parse(path).iter("testsuite")]
    cases = [case for suite in suites for case in suite.iter("testcase")]
    found = {promise: told for promise, told in map(_read, cases) if promise}
    date = max(suite.attrib["timestamp"][: len("2026-01-31")] for suite in suites)
    run = Run(date=date, commit=_commit(), results=dict(sorted(found.items())))
    everything = {**load(), version: run}
    ordered = {name: everything[name] for name in sorted(everything, key=_number)}
    RECORDED.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")


def _commit() -> str:
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run(
        [*git, "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=True
    )
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "src"], check=False).returncode
    return head.stdout.strip() + ("+" if changed else "")


def _read(case: ET.Element) -> tuple[str, str]:
    area = case.attrib["classname"].rpartition(".")[2].removeprefix("test_").replace("_", " ")
    name = case.attrib["name"].removeprefix("test_").replace("_", " ")
    skipped = case.find("skipped")
    if skipped is not None and skipped.attrib.get("type") == "pytest.xfail":
        return f"{area}: {name}", skipped.attrib.get("message") or FAILS
    if skipped is not None:
        return "", ""
    fails = case.find("failure") is not None or case.find("error") is not None
    return f"{area}: {name}", FAILS if fails else HOLDS


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def table(recorded: Recorded) -> str:
    versions = sorted(recorded, key=_number, reverse=True)
    promises = sorted({promise for run in recorded.values() for promise in run["results"]})
    head = f"| promise | {' | '.join(versions)} |\n|{' --- |' * (len(versions) + 1)}\n"
    told = [recorded[one]["results"] for one in versions]
    total = [f"{sum(word == HOLDS for word in one.values())} of {len(one)}" for one in told]
    notes: list[str] = []
    rows = [f"| **all** | {' | '.join(total)} |\n"]
    for promise in promises:
        cells = [_cell(one.get(promise), notes) for one in told]
        rows.append(f"| {promise.replace('|', '/')} | {' | '.join(cells)} |\n")
    listed = "".join(f"{number}. {words}\n" for number, words in enumerate(notes, 1)) or "All hold.\n"
    return f"{head}{''.join(rows)}\n{listed}\n{_runs(recorded, versions)}"


def _runs(recorded: Recorded, versions: list[str]) -> str:
    """Say when each version was run, and with which commit of Remuda (`+`: and changes after it)."""
    by_run: dict[tuple[str, str], list[str]] = {}
    for one in versions:
        by_run.setdefault((recorded[one]["date"], recorded[one]["commit"]), []).append(one)
    return "".join(
        f"Run on {date} with commit `{commit}`: {', '.join(names)}.\n"
        for (date, commit), names in by_run.items()
    )


def _cell(told: str | None, notes: list[str]) -> str:
    if told is None:
        return "-"
    if told == HOLDS:
        return "yes"
    if told not in notes:
        notes.append(told)
    return f"no ({notes.index(told) + 1})"


def page(text: str, recorded: Recorded) -> str:
    """The page with the table as it should be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(recorded)}{END}{after}"


def main(arguments: list[str]) -> int:
    match arguments:
        case ["record", *results] if results:
            record(VERSION, *map(Path, results))
        case ["write"]:
            PAGE.write_text(page(PAGE.read_text(), load()))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
