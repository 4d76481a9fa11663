"""The figures of a run in the page of the benchmarks, and its curves."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def figure(name: str, value: float, unit: str = "ms", **more: Any) -> dict[str, Any]:
    known = {"target": None, "note": "", "section": "Commands", "instead": "tmux ls", "verdict": ""}
    return {"name": name, "value": value, "unit": unit, **known, **more}


def benchmark(*figures: dict[str, Any], **more: Any) -> dict[str, Any]:
    known = {"run": "2026-11-18T10:00:00Z", "at": "2026-11-18T10:05:00Z", "load": 0.25}
    return {**known, "figures": list(figures), "curves": [], "missing": [], "noise": [], **more}


RUN: dict[str, Any] = {
    "machine": {"cores": 2, "processor": "CPU", "system": "Linux", "python": "3.11.7"},
    "benchmarks": {
        "cli": benchmark(
            figure(
                "remuda ls",
                31.234,
                target={"relation": "<=", "limit": 40.0},
                note="30 to 35",
                verdict="PASS",
            ),
            figure("a|b", 3.0),
        ),
        "growth": benchmark(
            curves=[
                {
                    "name": "sessions",
                    "title": "A & B",
                    "along": "sessions",
                    "unit": "ms",
                    "lines": {"ls": [[1, 30.0], [500, 300.0]], "start": [[1, 20.0], [500, 20.0]]},
                }
            ]
        ),
    },
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures_script", ROOT / "scripts" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_figures_are_written_between_the_marks_alone(script: ModuleType) -> None:
    page = f"before\n{script.BEGIN}old\n{script.END}after\n"
    written = script.with_figures(page, RUN)
    assert written.startswith(f"before\n{script.BEGIN}")
    assert written.endswith(f"{script.END}after\n")
    assert "old" not in written
    assert "1 of 1 targets met" in written
    assert "**Commands.** Instead you would use: tmux ls." in written
    assert "| remuda ls | 31.23 ms | ≤ 40 | PASS | 30 to 35 |" in written
    assert "| a/b | 3 ms |  |  |  |" in written
    assert "![A & B](../pictures/growth-sessions.svg)" in written
    assert script.with_figures(written, RUN) == written


def test_benchmark_that_failed_was_loud_or_is_of_another_run_says_so(script: ModuleType) -> None:
    again = benchmark(figure("x", 30_020.0, "events"), run="2026-11-19T07:00:00Z", at="2026-11-19T07:10:00Z")
    again["noise"] = ["other work ran meanwhile, load 4.2"]
    failed = benchmark(missing=[("", "it took longer than 30 s"), ("the page", "chromium is missing")])
    never = benchmark(run="", at="", missing=[("", "the run ended before it")])
    written = script.figures(
        {**RUN, "benchmarks": {**RUN["benchmarks"], "a": again, "b": failed, "c": never}}
    )
    assert written[0].startswith("2026-11-18 10:00 UTC, 2 cores")
    wanted = ["Measured in another run: 2026-11-19 07:10 UTC, load 0.25.", "| x | 30,020 events |  |  |  |"]
    wanted += [
        "Not quiet: other work ran meanwhile, load 4.2.",
        "This was not measured: it took longer than 30 s.",
    ]
    wanted += ["The page was not measured: chromium is missing."]
    assert [line for line in written if line in wanted] == [wanted[0], wanted[2], wanted[1], *wanted[3:]]
    assert written.count("This was not measured: the run ended before it.") == 1


def test_figures_with_different_substitutes_have_a_column_for_them(script: ModuleType) -> None:
    other = figure("remuda send", 2.0, instead="tmux send-keys")
    part = benchmark(figure("remuda ls", 1.0), other)
    written = script.figures({**RUN, "benchmarks": {"cli": part}})
    assert "**Commands.**" in written
    assert "| remuda ls | 1 ms |  |  |  | tmux ls |" in written
    assert "| remuda send | 2 ms |  |  |  | tmux send-keys |" in written


def test_page_without_marks_is_refused(script: ModuleType) -> None:
    with pytest.raises(SystemExit):
        script.with_figures("nothing\n", RUN)


def test_page_of_the_benchmarks_has_the_marks(script: ModuleType) -> None:
    page = (script.DOCS / script.PAGE).read_text()
    assert (page.count(script.BEGIN), page.count(script.END)) == (1, 1)


def assert_written(script: ModuleType, docs: Path) -> None:
    """The page and the pictures are what the run beside them gives."""
    run, page = json.loads((docs / script.DATA).read_text()), (docs / script.PAGE).read_text()
    assert script.with_figures(page, run) == page
    found = {path.name: path.read_text() for path in (docs / script.PICTURES).glob("growth-*.svg")}
    assert found == script.pictures(run)


def test_page_of_the_benchmarks_is_what_its_run_gives(script: ModuleType) -> None:
    if (script.DOCS / script.DATA).exists():  # not before the first page that was generated
        assert_written(script, script.DOCS)


def test_page_data_and_pictures_are_written_together(script: ModuleType, tmp_path: Path) -> None:
    for name in (script.PAGE, f"{script.PICTURES}/session.svg"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(script.DOCS / name, tmp_path / name)
    measured = benchmark(figure("x", 1.0), measurements={"x": [1.0]})
    script.write({**RUN, "benchmarks": {**RUN["benchmarks"], "a": measured}}, tmp_path)
    assert_written(script, tmp_path)
    assert "measurements" not in (tmp_path / script.DATA).read_text()
    page = tmp_path / script.PAGE
    page.write_text(page.read_text().replace("31.23 ms", "29.99 ms"))
    with pytest.raises(AssertionError):
        assert_written(script, tmp_path)


def test_missed_targets_come_first(script: ModuleType) -> None:
    missed = figure("slow", 50.0, target={"relation": "<=", "limit": 40.0}, verdict="MISS")
    written = script.figures({**RUN, "benchmarks": {**RUN["benchmarks"], "a": benchmark(missed)}})
    assert "1 of 2 targets met" in written[0]
    assert written[4] == "| slow | 50 ms | ≤ 40 | tmux ls |"


def test_curve_is_drawn_on_logarithmic_axes(script: ModuleType) -> None:
    root = ET.fromstring(script.Curve(**RUN["benchmarks"]["growth"]["curves"][0]).svg())
    lines = [one for one in root if one.tag.endswith("polyline")]
    growing, flat = (
        [tuple(map(float, p.split(","))) for p in one.get("points", "").split()] for one in lines
    )
    assert growing[0][0] == flat[0][0] < growing[1][0] == flat[1][0]
    assert growing[0][1] > growing[1][1]  # up is less
    assert flat[0][1] == flat[1][1]
    assert {"A & B", "ls", "start", "sessions", "ms"} <= {"".join(one.itertext()) for one in root}


@pytest.mark.parametrize(
    ("grows", "least", "most"),
    [
        (lambda x: 30 + 0.001 * x * x, 1.6, 2.1),
        (lambda x: 30 + 0.5 * x, 0.8, 1.1),
        (lambda x: 0.1 * x, 1.0, 1.1),
        (lambda x: 30 + (x == 50) * 5, 0.0, 0.0),
    ],
    ids=["square", "linear after a constant", "linear", "noise"],
)
def test_steepest_part_of_a_line_is_found(
    script: ModuleType, grows: Callable[[int], float], least: float, most: float
) -> None:
    steepness = sys.modules[script.Curve.__module__].steepness
    assert least <= steepness([(x, grows(x)) for x in (1, 10, 50, 100, 200, 500)]) <= most
