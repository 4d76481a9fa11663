"""The page of one machine, with an agent on another: it is listed, decided and typed into as one of here."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, expect

from support.browser import WIDE, live, ready, take_control
from support.fleet import FleetBench
from support.heimdall_client import PATIENCE


def test_an_agent_of_another_host_is_shown_decided_and_typed_into(browser: Browser, tmp_path: Path) -> None:
    fleet = FleetBench(tmp_path)
    fleet.hub.start()
    context = browser.new_context(viewport=WIDE)
    context.set_default_timeout(PATIENCE * 1000)
    try:
        desk, build = fleet.desk_and_build()
        page = context.new_page()
        address = f"http://127.0.0.1:{desk.port}"
        page.goto(address + desk.client.post("logins", "links", body={})["path"])
        page.get_by_role("button", name="Log in").click()
        live(page)
        page.goto(f"{address}/#/agents")
        page.get_by_label("Group by").select_option("host")
        group = page.locator(".group", has=page.get_by_role("heading", name="build7"))
        expect(group.locator(".c-name")).to_contain_text("build7/work")
        expect(group.locator(".state").first).to_have_text("idle")
        page.get_by_label("only this machine").check()
        expect(group).to_have_count(0)
        page.get_by_label("only this machine").uncheck()

        message = desk.send("build7/work", "RUNBASH touch from-the-page")
        page.goto(f"{address}/#/queue")
        expect(page.locator("main")).to_contain_text("touch from-the-page")
        page.get_by_label("only this machine").check()
        expect(page.get_by_label("1 waiting")).to_have_count(0)
        page.get_by_label("only this machine").uncheck()
        expect(page.get_by_label("1 waiting")).to_have_count(1)
        ready(page)
        page.locator(".actions button.primary").click()
        desk.until_stage(message, "acked")
        assert (build.remuda.cwd / "from-the-page").exists()

        page.goto(f"{address}/#/agents")
        group.locator(".c-name").click()
        take_control(page)
        page.keyboard.type("typed in the page")
        expect(page.locator(".xterm-rows")).to_contain_text("typed in the page")

        fleet.hub.end()  # what is not heard of is not shown as what it was last
        page.goto(f"{address}/#/agents")
        expect(group.locator(".c-state")).to_have_text(re.compile(r"^unreachable\s*\d"))
    finally:
        context.close()
        fleet.close()
