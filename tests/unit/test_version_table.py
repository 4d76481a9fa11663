"""The table of versions in the docs is made of the recorded results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support import version_table
from support.version_table import HOLDS, PAGE, load, page, record, table

RESULTS = """<testsuites><testsuite name="pytest" timestamp="2026-11-17T05:52:00.1">
<testcase classname="tests.real.test_some_area" name="test_this_holds" time="1"/>
<testcase classname="tests.real.test_some_area" name="test_this_fails" time="1">
  <failure message="x">y</failure></testcase>
<testcase classname="tests.real.test_some_area" name="test_this_is_known" time="1">
  <skipped type="pytest.xfail" message="the first Enter is lost"/></testcase>
<testcase classname="tests.real.test_some_area" name="test_not_run" time="0">
  <skipped type="pytest.skip" message="z"/></testcase>
</testsuite></testsuites>"""


def test_page_shows_what_was_recorded_last() -> None:
    assert PAGE.read_text() == page(PAGE.read_text(), load()), "python tests/support/version_table.py write"


def test_results_are_recorded_by_version_and_shown_with_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results.xml"
    results.write_text(RESULTS)
    monkeypatch.setattr(version_table, "RECORDED", tmp_path / "recorded.json")
    record("2.1.9", results)
    record("2.1.10", results)
    assert list(load()) == ["2.1.9", "2.1.10"]
    assert load()["2.1.9"]["date"] == "2026-11-17"
    commit = load()["2.1.9"]["commit"]
    assert load()["2.1.9"]["results"] == {
        "some area: this fails": "does not hold",
        "some area: this holds": HOLDS,
        "some area: this is known": "the first Enter is lost",
    }
    shown = table(load()).splitlines()
    assert shown[0] == "| promise | 2.1.10 | 2.1.9 |"
    assert shown[2] == "| **all** | 1 of 3 | 1 of 3 |"
    assert "| some area: this is known | no (2) | no (2) |" in shown
    assert shown[-3] == "2. the first Enter is lost"
    assert shown[-1] == f"Run on 2026-11-17 with commit `{commit}`: 2.1.10, 2.1.9."
    assert re.fullmatch("[0-9a-f]{8,}\\+?", commit)
