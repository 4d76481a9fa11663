"""Run benchmarks of two commits in turns on this machine, and compare their medians.

    python -m remuda.testing.offline -- python scripts/alternate.py 76f0a55 --only pool --only boss

In turns, because a machine is slower at one time than at another: the ratios of two runs, one after the
other, compare the times as well. Each commit runs from a folder of its own, with the dependencies of this
environment. A turn takes as long as `benchmarks/run.py` with the same words.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.report import readable  # noqa: E402

from support.old_version import make_environment  # noqa: E402

Medians = Mapping[str, tuple[float, str]]
"""Value and unit of each figure, by its name."""


def unpack(commit: str, folder: Path) -> Path:
    """Put the files of a commit into a folder. Returns the interpreter that has its `remuda`."""
    source = folder / "source"
    archive = subprocess.run(["git", "-C", ROOT, "archive", commit], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(source, filter="data")
    # As it is where pip installed it: without that every start would compile all it loads.
    subprocess.run([sys.executable, "-m", "compileall", "-q", source / "src"], check=True)
    return make_environment(folder / "venv", source / "src")


def run(folder: Path, python: Path, words: Iterable[str], result: Path) -> Any:
    command = [python, "benchmarks/run.py", *words, "--json", result]
    subprocess.run(command, cwd=folder / "source", check=True)
    return json.loads(result.read_text())


def medians(runs: Iterable[Mapping[str, Any]]) -> Medians:
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in runs:
        # Before version 0.2 a run had one list of all figures.
        parts = one["benchmarks"].values() if "benchmarks" in one else [one]
        for figure in (figure for part in parts for figure in part["figures"]):
            values[figure["name"], figure["unit"]].append(figure["value"])
    return {name: (statistics.median(found), unit) for (name, unit), found in values.items()}


def table(old: Medians, new: Medians) -> Iterator[str]:
    """Yield the lines of a table. A figure whose name only one commit has comes last, without a ratio."""
    yield "| figure | old | new | new / old |"
    yield "| --- | --- | --- | --- |"
    for name in sorted(dict.fromkeys([*old, *new]), key=lambda name: name not in old or name not in new):
        values = [f"{readable(one[name][0])} {one[name][1]}" if name in one else "" for one in (old, new)]
        both = name in old and name in new and old[name][0]
        ratio = f"{new[name][0] / old[name][0]:.2f}" if both else ""
        yield f"| {name} | {values[0]} | {values[1]} | {ratio} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", help="the commit to compare with")
    parser.add_argument("new", nargs="?", default="HEAD", help="the other commit (default HEAD)")
    parser.add_argument("--only", action="append", required=True, help="a benchmark of both; may be repeated")
    parser.add_argument("--times", type=int, default=3, help="turns of each commit (default 3)")
    parser.add_argument(
        "--rounds", type=int, default=1, help="rounds of a benchmark in each turn (default 1)"
    )
    options = parser.parse_args()
    words = [*(word for name in options.only for word in ("--only", name)), "--rounds", str(options.rounds)]
    with tempfile.TemporaryDirectory(prefix="two-", dir="/tmp") as made:  # short: sockets are in there
        folders = [Path(made, side) for side in ("old", "new")]
        pythons = [
            unpack(one, folder) for one, folder in zip((options.old, options.new), folders, strict=True)
        ]
        runs: list[list[Any]] = [[], []]
        for turn in range(options.times):
            for side, (folder, python) in enumerate(zip(folders, pythons, strict=True)):
                print(f"\n== turn {turn + 1}, {folder.name}", flush=True)
                runs[side].append(run(folder, python, words, Path(made, "result.json")))
    print(f"\n{options.old} and {options.new}, {options.times} turns, --rounds {options.rounds}; medians\n")
    print("\n".join(table(medians(runs[0]), medians(runs[1]))))


if __name__ == "__main__":
    main()
