"""The page for everyone: axe-core finds nothing serious, keys reach everything, nothing is cut off."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, ViewportSize, expect

from support.browser import PHONE, WIDE, PageBench, live, ready, tool
from support.keeper import until

VIEWS = ("queue", "agents", "session", "usage", "statistics")


def serious(page: Page) -> list[str]:
    # The terminal draws with its own elements; a screen reader gets it as text from "Earlier output".
    found = Axe().run(page, context={"exclude": [[".xterm"]]})
    return [
        f"{one['id']}: {one['nodes'][0]['target']} {one['nodes'][0]['failureSummary']}"
        for one in found.response["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_axe_finds_nothing_serious_and_nothing_is_cut_off(
    bench: PageBench, size: ViewportSize, scheme: str
) -> None:
    (bench.project / "cart.py").write_text("one\ntwo\n")
    done = bench.agent("done")
    done.send("hello **there** [x](https://example.invalid)")
    bench.agent("edit").put(
        tool("Edit", file_path=str(bench.project / "cart.py"), old_string="two", new_string="2")
    )
    until(lambda: len(bench.boss.waiting()) == 2, "two items")
    page = bench.open(size, color_scheme=scheme)
    session = next(
        one["id"] for one in bench.boss.client.get("sessions")["sessions"] if one["name"] == "done"
    )
    found: list[str] = []
    for view in (*VIEWS, f"session/{session}/messages", f"session/{session}/evidence"):
        where = f"session/{session}" if view == "session" else view
        page.goto(f"{bench.address}/#/{where}")
        live(page)
        expect(page.locator("main")).not_to_contain_text("Loading")
        found += [f"{view}: {one}" for one in serious(page)]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
    page.goto(f"{bench.address}/#/queue")
    rows = page.locator(".list .row")
    rows.last.click()
    ready(page)
    found += [f"request: {one}" for one in serious(page)]
    page.keyboard.press("?")
    found += [f"help: {one}" for one in serious(page)]
    assert not found


def test_everything_is_reached_with_the_keyboard_alone(bench: PageBench) -> None:
    post = bench.agent("work")
    message = post.put("RUNBASH touch made")
    page = bench.open()
    ready(page)
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.textContent.trim().match(/^[A-Za-z]*/)[0]"))
    assert {
        "Queue",
        "Agents",
        "Usage",
        "Statistics",
        "Allow",
        "Deny",
        "Edit",
        "Skip",
        "Snooze",
        "Dismiss",
    } <= seen
    page.locator(".actions").get_by_role("button", name="Allow").focus()
    page.keyboard.press("Enter")
    post.ended(message)
    page.keyboard.press("g")
    page.keyboard.press("2")
    expect(page.locator(".agent")).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab", name="Conversation")).to_be_visible()
    page.get_by_role("tab", name="Conversation").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Messages")).to_be_focused()


def test_a_key_pressed_the_moment_a_view_is_drawn_is_taken(bench: PageBench) -> None:
    bench.agent("work")
    page = bench.open()
    live(page)
    page.evaluate(
        """new MutationObserver((_, watcher) => {
            if (!document.querySelector('.agent')) return;
            watcher.disconnect();
            document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'j', bubbles: true }));
        }).observe(document.getElementById('page'), { childList: true, subtree: true })"""
    )
    page.keyboard.press("g")
    page.keyboard.press("2")
    expect(page.get_by_role("link", name="work")).to_be_focused()


def test_new_item_is_announced(bench: PageBench) -> None:
    post = bench.agent("work")
    page = bench.open()
    expect(page.get_by_text("Nothing waits for you")).to_be_visible()
    post.put("RUNBASH touch made")
    expect(page.locator("p.spoken")).to_contain_text("work waits: permission")
    assert page.title() == "(1) Remuda"


def test_page_can_be_installed(bench: PageBench) -> None:
    page = bench.open()
    manifest = page.evaluate(
        "fetch(document.querySelector('link[rel=manifest]').href).then((one) => one.json())"
    )
    assert manifest["display"] == "standalone"
    for icon in manifest["icons"]:
        assert page.evaluate(f"fetch('{icon['src']}').then((one) => one.ok)")
