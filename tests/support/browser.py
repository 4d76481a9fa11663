"""A real browser at the page of a real boss, with agents in kept sessions."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserType, Dialog, Page, ViewportSize, expect, sync_playwright

from remuda.boss.ports import SOURCES
from remuda.keeper.environment import session_environment
from support.boss import RunningBoss
from support.heimdall_client import PATIENCE
from support.keeper import Kept, Start, event_named
from support.messages import Post

WIDE = ViewportSize(width=1440, height=900)
PHONE = ViewportSize(width=390, height=844)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NO_BROWSER = "REMUDA_NO_BROWSER"
NOT_TESTED = f"{NO_BROWSER}=1: the page is not tested in a browser, tests/browser is skipped"
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
# Sources that look at the whole machine are left out: other tests run on it too.
OWN_SOURCES = tuple(
    one for one in SOURCES if one.rpartition(":")[2] in ("KeptSessions", "UsageReader", "Messages", "Plans")
)
_COUNT = """
window.harm = [];
document.addEventListener('securitypolicyviolation', (event) =>
  window.harm.push(`${event.violatedDirective} ${event.blockedURI}`));
"""
expect.set_options(timeout=PATIENCE * 1000)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start Debian's Chromium, with a profile of its own that is removed with it."""
    with sync_playwright() as playwright, launched(playwright.chromium) as browser:
        yield browser


@contextmanager
def launched(kind: BrowserType, *flags: str, without: str = "") -> Iterator[Browser]:
    """Start one more, with `flags`; `without` is a flag of Playwright's own that is left out."""
    assert CHROMIUM is not None
    browser = kind.launch(
        executable_path=CHROMIUM,
        headless=True,
        args=[*_FLAGS, *flags],
        ignore_default_args=[without] if without else None,
    )
    try:
        yield browser
    finally:
        browser.close()


_ERROR_START, _ERROR_END = 3000, 500


def shorten(error: BaseException | None) -> None:
    """Cut the text of an error and of what led to it. Playwright puts the complete page into it, twice."""
    while error is not None:
        text = str(error)
        left_out = len(text) - _ERROR_START - _ERROR_END
        if left_out > 0:
            start, end = text[:_ERROR_START], text[-_ERROR_END:]
            error.args = (f"{start}\n… {left_out:,} characters left out …\n{end}",)
        error = error.__cause__ or error.__context__


def take_control(page: Page) -> None:
    """Type into the terminal from here on."""
    page.get_by_role("button", name="Take control").click()
    expect(page.locator(".terminal .state")).to_have_text("you type here")


class PageBench:
    """A boss, its agents, and browsers that are logged in to it. `close` checks that nothing went wrong."""

    def __init__(self, start: Start, home: Path, folder: Path, browser: Browser) -> None:
        self.boss = RunningBoss(home, OWN_SOURCES)
        self.browser = browser
        self.project = folder / "shop"
        self.config = folder / "config"
        self.project.mkdir()
        self.config.mkdir()
        self._start = start
        self.environment = {
            "CLAUDE_CONFIG_DIR": str(self.config),
            "MOCK_TIME_SCALE": "0.01",
            "MOCK_DIALOG_GUARD": "0",
        }
        self.pages: list[Page] = []
        self.troubles: list[str] = []
        self.may_fail = False
        """Whether requests may fail: a test that ends the boss."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.boss.port}"

    def close(self) -> None:
        harm = [one for page in self.pages if not page.is_closed() for one in page.evaluate("window.harm")]
        for context in self.browser.contexts:
            context.close()
        self.boss.close()
        troubles = [one for one in self.troubles if not (self.may_fail and "Failed to load" in one)]
        assert not harm, f"the page broke its policy: {harm}"
        assert not troubles, f"the page complained: {troubles}"

    # ── agents ──

    def agent(self, name: str, *flags: str, env: dict[str, str] | None = None, **more: Any) -> Post:
        """Keep a scripted agent that is ready, and whose permissions can be given from elsewhere."""
        own = {**os.environ, **self.environment, **(env or {})}
        environment = session_environment(own, name, "HEIMDALL", {})
        argv = [sys.executable, "-P", "-m", "remuda.testing.scripted_agent", "--permission-mode", "default"]
        given: dict[str, Any] = {
            "agent": "demo",
            "classifier": "claude",
            "cols": 100,
            "rows": 30,
            "asks": True,
        }
        given |= {"cwd": str(self.project), **more}
        post = Post(self._start(name, [*argv, *flags], env=environment, **given))
        post.client.request("watch")
        if not post.client.request("ready")["ready"]:
            event_named(post.client, "ready")
        return post

    def keep(self, name: str, argv: list[str]) -> Kept:
        """Keep any program."""
        return self._start(name, argv, cwd=str(self.project), cols=100, rows=30)

    # ── browsers ──

    def open(
        self,
        size: ViewportSize = WIDE,
        *,
        where: str = "",
        log_in: bool = True,
        browser: Browser | None = None,
        **more: Any,
    ) -> Page:
        """Open the page in a browser of its own."""
        context = (browser or self.browser).new_context(viewport=size, has_touch=size["width"] < 700, **more)
        context.add_init_script(_COUNT)
        context.set_default_timeout(PATIENCE * 1000)
        page = context.new_page()
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("dialog", self._dismiss)
        page.on("console", self._hear)
        self.pages.append(page)
        if log_in:
            path = self.boss.client.post("logins", "links", body={})["path"]
            page.goto(self.address + path)
            page.get_by_role("button", name="Log in").click()
            live(page)
            if where:
                page.goto(f"{self.address}/#/{where}")
                live(page)
        return page

    def _dismiss(self, dialog: Dialog) -> None:
        self.troubles.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _hear(self, message: Any) -> None:
        if message.type == "error":
            self.troubles.append(message.text)


def tool(name: str, *, say: str = "using tool", **given: Any) -> str:
    """The prompt that makes a scripted agent say this and call this tool."""
    return f"TOOL {json.dumps({'name': name, 'input': given, 'say': say})}"


def requesting(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """What a hook reports that requests permission for a tool."""
    payload = {"session_id": "s1", "cwd": "/tmp", "hook_event_name": "PermissionRequest"}
    return {"payload": {**payload, "tool_name": name, "tool_input": given}}


def live(page: Page) -> None:
    expect(page.locator(".connection")).to_have_class("connection live")


def ready(page: Page) -> None:
    """Wait until the shown item can be answered."""
    expect(page.locator(".actions button.primary")).to_have_attribute("aria-disabled", "false")
