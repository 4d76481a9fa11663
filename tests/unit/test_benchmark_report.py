"""What a run of the benchmarks keeps: figures, reasons, and the parts of an earlier run. And its limits."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.report import NOT_REACHED, Report, readable
from benchmarks.scene import await_quiet, bounded


def read(path: Path) -> dict[str, Any]:
    benchmarks: dict[str, Any] = json.loads(path.read_text())["benchmarks"]
    return benchmarks


def measure(report: Report, name: str, value: float, failure: str = "") -> None:
    report.begin(name, "tmux", 3)
    report.title("A section")
    report.add("a figure", value, "ms")
    report.end(failure)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (30_020, "30,020"),
        (1_234_567.8, "1,234,568"),
        (31.234, "31.23"),
        (3.0, "3"),
        (200, "200"),
        (0.08321, "0.08321"),
        (-4.1, "-4.1"),
        (0.0, "0"),
        (0.00001234, "0.00001234"),
    ],
)
def test_numbers_are_written_as_people_read_them(value: float, text: str) -> None:
    assert readable(value) == text


def test_each_benchmark_is_kept_at_once_and_those_to_come_are_named(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    report = Report(["one", "two"], path)
    report.save()
    assert [one["missing"] for one in read(path).values()] == [[["", NOT_REACHED]]] * 2
    measure(report, "one", 1.0, "it broke\nin two lines")
    found = read(path)
    assert found["one"]["missing"] == [["the rest of A section", "it broke in two lines"]]
    assert [one["value"] for one in found["one"]["figures"]] == [1.0]
    assert found["two"]["missing"] == [["", NOT_REACHED]]


def test_benchmark_measured_again_replaces_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    whole = Report(["one", "two"], path)
    measure(whole, "one", 1.0)
    measure(whole, "two", 2.0)
    before = read(path)
    again = Report(["two"], path, merge=True)
    again.save()
    assert read(path) == before
    measure(again, "two", 3.0)
    found = read(path)
    assert list(found) == ["one", "two"]
    assert found["one"] == before["one"]
    assert [one["value"] for one in found["two"]["figures"]] == [3.0]


def test_sections_have_their_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(["one"], tmp_path / "run.json")
    report.begin("one", "tmux", 3)
    report.title("First")
    report.title("Second")
    report.end()
    assert list(read(tmp_path / "run.json")["one"]["sections"]) == ["First", "Second"]
    assert capsys.readouterr().out.count("  in ") == 2


def test_other_work_is_noted_and_not_waited_for_beyond_the_limit() -> None:
    with subprocess.Popen(["yes"], stdout=subprocess.DEVNULL) as other:
        try:
            assert await_quiet(0.1).startswith("other work ran, load ")
        finally:
            other.kill()


def test_figures_of_another_machine_are_not_mixed_with_ours(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"machine": {"cores": 1000}, "benchmarks": {}}))
    with pytest.raises(SystemExit, match="another machine"):
        Report(["one"], path, merge=True)
    Report(["one"], path).save()
    assert list(read(path)) == ["one"]


@pytest.mark.parametrize("inner", [0.9, 30.0])
def test_limit_around_another_still_ends_what_hangs(inner: float) -> None:
    def hang() -> None:
        with bounded(inner, "the inner one"):
            pass
        time.sleep(10)

    with bounded(1.0, "the outer one"), pytest.raises(TimeoutError, match="the outer one"):
        hang()
