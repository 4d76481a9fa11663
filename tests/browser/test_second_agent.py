"""A session of an agent from another package on the page, which has no line about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from support.browser import PageBench, ready, take_control
from support.delivery import answer
from support.keeper import Start
from support.second_agent import Corral, installed


@pytest.fixture
def mustang(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Asked for before the bench: its boss finds the package too."""
    with installed(monkeypatch) as home:
        yield home


def test_session_of_another_package_is_shown_decided_and_typed_into(
    mustang: Path, bench: PageBench, start: Start
) -> None:
    corral = Corral(start, mustang, bench.project, "mustang")
    post = corral.start("work")
    page = bench.open()
    message = post.put("KICK fence")
    expect(page.locator(".item h2")).to_contain_text("permission")
    expect(page.locator(".body")).to_contain_text("fence")
    ready(page)
    page.locator(".actions").get_by_role("button", name="Allow").click()
    assert answer(post.ended(message)) == "kicked fence"
    expect(page.locator(".list .row")).to_contain_text("kicked fence")
    page.goto(f"{bench.address}/#/agents")
    row = page.locator(".group", has=page.locator(".c-name", has_text="work"))
    expect(row).to_contain_text("mustang")
    expect(row.locator(".state").first).to_have_text("idle")
    row.locator(".c-name").click()
    take_control(page)
    page.keyboard.type("hello from the page\n")
    expect(page.locator(".xterm-rows")).to_contain_text("MUSTANG#2 to: hello from the page")
    assert corral.runs() == ["KICK fence", "hello from the page"]
