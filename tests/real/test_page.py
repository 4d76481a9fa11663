"""The page on the real Claude Code: a permission, its diff, edited input, the end of the receipt."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import expect

from remuda.testing.real_cli import RealCli
from support.browser import CHROMIUM, NO_BROWSER, NOT_TESTED, PageBench, open_browser, ready
from support.keeper import Start, event_named
from support.messages import Post
from support.real_sessions import keep

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.environ.get(NO_BROWSER) == "1", reason=NOT_TESTED),
]


def test_edit_is_shown_as_a_diff_allowed_as_edited_and_its_receipt_ends(
    cli: RealCli, start: Start, home: Path, tmp_path: Path
) -> None:
    assert CHROMIUM is not None, f"chromium is missing; {NO_BROWSER}=1 skips this"
    path = cli.project / "cart.py"
    path.write_text("one\ntwo\nthree\n")
    with ExitStack() as stack:
        browser = stack.enter_context(open_browser())
        bench = PageBench(start, home, tmp_path, browser)
        stack.callback(bench.boss.close)
        bench.boss.start()
        post = Post(keep(start, cli, "--permission-mode", "default", asks=True))
        post.client.request("watch")
        if not post.client.request("ready")["ready"]:
            event_named(post.client, "ready")
        page = bench.open()
        read = {"name": "Read", "input": {"file_path": str(path)}}
        post.send(f"TOOL {json.dumps(read)}")
        given = {"file_path": str(path), "old_string": "one\ntwo", "new_string": "one\n2"}
        message = post.put(f"TOOL {json.dumps({'name': 'Edit', 'input': given})}")
        item = page.locator(".item")
        expect(item.locator("h2")).to_contain_text("Edit")
        expect(item.locator(".diff .del")).to_contain_text("two")
        expect(item.locator(".diff .add")).to_contain_text("2")
        page.keyboard.press("e")
        page.get_by_label("new_string").fill("one\nzwei")
        ready(page)
        page.get_by_role("button", name="Allow as edited").click()
        trace = post.ended(message)
        assert path.read_text() == "one\nzwei\nthree\n"
        assert trace.stage == "acked"
        page.goto(f"{bench.address}/#/session/c/messages")
        chain = page.locator(".message-box", has_text="new_string").locator(".chain")
        expect(chain).to_contain_text("acked")
        page.get_by_role("tab", name="Conversation").click()
        expect(page.locator(".talk .call").last.locator("summary")).to_contain_text("Edit")
        bench.close()
