"""A browser for the tests of the page. Without Chromium they fail, unless they are to be skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from support.boss import lasting_port
from support.browser import CHROMIUM, NO_BROWSER, NOT_TESTED, PageBench, open_browser, shorten
from support.keeper import Start


def pytest_runtest_setup(item: pytest.Item) -> None:
    if os.environ.get(NO_BROWSER) == "1":
        pytest.skip(NOT_TESTED)
    if CHROMIUM is None:
        pytest.fail(
            f"chromium is missing: `make system-packages` installs it; {NO_BROWSER}=1 skips these",
            pytrace=False,
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """Before the report is written."""
    if call.excinfo is not None:
        shorten(call.excinfo.value)


# Not for longer than a module: its loop runs in this thread, and other tests have loops of their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as one:
        yield one


@pytest.fixture
def bench(
    start: Start, home: Path, tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PageBench]:
    one = PageBench(start, home, tmp_path, browser)
    # A session that the boss resumes gets the environment of the boss.
    for name, value in one.environment.items():
        monkeypatch.setenv(name, value)
    one.boss.start(lasting_port())
    yield one
    one.close()
