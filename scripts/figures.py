"""Write the figures of a run of the benchmarks into docs/why/benchmarks.md, its curves into docs/pictures.

    python benchmarks/run.py --json run.json
    python scripts/figures.py run.json

docs/data/benchmarks.json keeps the run, without its single measurements: a test compares the page with it.

All figures between the two marks of the page are replaced; the rest of the page stays. A benchmark that was
measured again with `--only` says when.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.curves import Curve  # noqa: E402
from benchmarks.report import readable  # noqa: E402

DOCS = ROOT / "docs"
PAGE, DATA, PICTURES = "why/benchmarks.md", "data/benchmarks.json", "pictures"
_UNITS = {"x": "×", "us": "µs"}
BEGIN, END = "<!-- figures: written by scripts/figures.py -->\n", "<!-- end of figures -->\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="what 'benchmarks/run.py --json' wrote")
    write(json.loads(parser.parse_args().run.read_text()))


def write(run: dict[str, Any], docs: Path = DOCS) -> None:
    """Write the page, the data that it is made of, and a picture of each curve."""
    for part in run["benchmarks"].values():
        part.pop("measurements", None)
    page, data = docs / PAGE, docs / DATA
    page.write_text(with_figures(page.read_text(), run))
    data.parent.mkdir(exist_ok=True)
    data.write_text(json.dumps(run, indent=1) + "\n")
    for name, picture in pictures(run).items():
        (docs / PICTURES / name).write_text(picture)


def pictures(run: dict[str, Any]) -> dict[str, str]:
    """Return the curves as SVG, by the name of their file."""
    return {f"growth-{curve['name']}.svg": Curve(**curve).svg() for curve in _curves(run)}


def with_figures(page: str, run: dict[str, Any]) -> str:
    """Return the page with the figures of this run between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE} has no place for figures: it needs the lines {BEGIN!r} and {END!r}")
    return "".join([before, begin, "\n", *(f"{line}\n" for line in figures(run)), end, after])


def figures(run: dict[str, Any]) -> list[str]:
    machine, benchmarks = run["machine"], run["benchmarks"]
    with_target = [one for part in benchmarks.values() for one in part["figures"] if one["target"]]
    met = sum(one["verdict"] == "PASS" for one in with_target)
    (main_run, _), *_ = Counter(part["run"] for part in benchmarks.values() if part["run"]).most_common(1)
    lines = [
        f"{_when(main_run)}, {machine['cores']} cores of {machine['processor']}, {machine['system']}, "
        f"Python {machine['python']}: {met} of {len(with_target)} targets met. "
        f"{_loads([part for part in benchmarks.values() if part['run'] == main_run])} "
        "The same [as JSON](../data/benchmarks.json).",
        "",
        *_missed(with_target),
    ]
    for name, part in benchmarks.items():
        lines += _benchmark(name, part, is_other_run=part["run"] not in ("", main_run))
    for curve in _curves(run):
        lines += [f"![{curve['title']}](../pictures/growth-{curve['name']}.svg)", ""]
    return lines


def _loads(parts: list[dict[str, Any]]) -> str:
    loads = [part["load"] for part in parts]
    least, most = readable(min(loads)), readable(max(loads))
    minutes = sum(part.get("seconds", 0.0) for part in parts) / 60
    return (
        f"It took {minutes:.0f} minutes. The load average was {least} to {most} when a benchmark began; "
        "it remembers the one before."
    )


def _missed(with_target: list[dict[str, Any]]) -> list[str]:
    rows = [_row(one) for one in with_target if one["verdict"] == "MISS"]
    if not rows:
        return []
    columns = ["missed", "value", "target", "instead you would use"]
    table = [_line(columns), _line(["---"] * len(columns))]
    return [*table, *(_line([*row[:3], row[5]]) for row in rows), ""]


def _benchmark(name: str, part: dict[str, Any], *, is_other_run: bool) -> list[str]:
    lines = [f"### {name}", ""]
    if is_other_run:
        lines += [f"Measured in another run: {_when(part['at'])}, load {readable(part['load'])}.", ""]
    if part["noise"]:
        lines += [f"Not quiet: {'; '.join(part['noise'])}.", ""]
    sections: dict[str, list[dict[str, Any]]] = {}
    for one in part["figures"]:
        sections.setdefault(one["section"], []).append(one)
    for section, found in sections.items():
        lines += _table(section, found)
    for what, why in part["missing"]:
        subject = f"{_cell(what[:1].upper() + what[1:])}" if what else "This"
        lines += [f"{subject} was not measured: {_cell(why)}.", ""]
    return lines


def _table(section: str, found: list[dict[str, Any]]) -> list[str]:
    """One sentence if the same thing takes the place of all figures, else a column."""
    instead = {one["instead"]: None for one in found}
    heading, columns = f"**{section}.**", ["figure", "value", "target", "", "spread"]
    if len(instead) == 1:
        heading += f" Instead you would use: {next(iter(instead))}."
    else:
        columns.append("instead you would use")
    rows = [_row(one)[: len(columns)] for one in found]
    return [heading, "", _line(columns), _line(["---"] * len(columns)), *map(_line, rows), ""]


def _row(one: dict[str, Any]) -> list[str]:
    target = f"{one['target']['relation']} {readable(one['target']['limit'])}" if one["target"] else ""
    value = f"{readable(one['value'])} {_UNITS.get(one['unit'], one['unit'])}".strip()
    return [*map(_cell, (one["name"], value, target, one["verdict"], one["note"], one["instead"]))]


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("<=", "≤").replace(">=", "≥").replace("<", "&lt;")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _when(at: str) -> str:
    return f"{at[:10]} {at[11:16]} UTC"


def _curves(run: dict[str, Any]) -> list[dict[str, Any]]:
    return [curve for part in run["benchmarks"].values() for curve in part["curves"]]


if __name__ == "__main__":
    main()
