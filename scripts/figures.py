"""Write the figures of a run of the benchmarks into docs/why/benchmarks.md, its curves into docs/pictures.

    python benchmarks/run.py --json run.json
    python scripts/figures.py run.json

All figures between the two marks of the page are replaced; the rest of the page stays.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.curves import Curve  # noqa: E402

PAGE = ROOT / "docs" / "why" / "benchmarks.md"
PICTURES = ROOT / "docs" / "pictures"
BEGIN, END = "<!-- figures: written by scripts/figures.py -->\n", "<!-- end of figures -->\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="what 'benchmarks/run.py --json' wrote")
    run = json.loads(parser.parse_args().run.read_text())
    PAGE.write_text(with_figures(PAGE.read_text(), run))
    for curve in run.get("curves", []):
        (PICTURES / f"growth-{curve['name']}.svg").write_text(Curve(**curve).svg())


def with_figures(page: str, run: dict[str, Any]) -> str:
    """Return the page with the figures of this run between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE} has no place for figures: it needs the lines {BEGIN!r} and {END!r}")
    return "".join([before, begin, "\n", *(f"{line}\n" for line in figures(run)), end, after])


def figures(run: dict[str, Any]) -> list[str]:
    machine, found = run["machine"], run["figures"]
    with_target = [one for one in found if one["target"]]
    met = sum(one["verdict"] == "PASS" for one in with_target)
    lines = [
        f"{run['at'][:10]}, {machine['cores']} cores of {machine['processor']}, {machine['system']}, "
        f"Python {machine['python']}: {met} of {len(with_target)} targets met.",
        "",
    ]
    for (section, instead), some in _sections(found).items():
        lines += [f"**{section}.** Instead you would use: {instead}.", ""]
        lines += ["| figure | value | target | | spread |", "| --- | --- | --- | --- | --- |"]
        lines += [*(_row(one) for one in some), ""]
    for curve in run.get("curves", []):
        lines += [f"![{curve['title']}](../pictures/growth-{curve['name']}.svg)", ""]
    return lines


def _sections(found: list[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    sections: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in found:
        sections.setdefault((one["section"], one["instead"]), []).append(one)
    return sections


def _row(one: dict[str, Any]) -> str:
    target = f"{one['target']['relation']} {one['target']['limit']:g}" if one["target"] else ""
    cells = (one["name"], f"{one['value']:.4g} {one['unit']}", target, one["verdict"], one["note"])
    return f"| {' | '.join(cell.replace('|', '/').replace('<=', '≤').replace('>=', '≥') for cell in cells)} |"


if __name__ == "__main__":
    main()
