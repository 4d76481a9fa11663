"""Agents, a session with its terminal, usage and statistics in the page."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from support.boss import event
from support.browser import PHONE, WIDE, PageBench, live, take_control
from support.keeper import until, until_equal
from support.messages import phase, put_to_sleep

# Prints what is typed, as numbers.
_ECHO = """
import os, tty
tty.setraw(0)
os.write(1, b"ready ")
while data := os.read(0, 99):
    os.write(1, data.hex(" ").encode() + b" ")
"""
SIZES = pytest.mark.parametrize(
    "size", [WIDE, pytest.param(PHONE, marks=pytest.mark.soak(only=True))], ids=["wide", "phone"]
)


def session_id(bench: PageBench, name: str) -> str:
    def look() -> str:
        sessions = bench.boss.client.get("sessions")["sessions"]
        return next((str(one["id"]) for one in sessions if one["name"] == name), "")

    return until(look, f"session {name} at the boss")


def go(bench: PageBench, page: Page, *parts: str) -> None:
    page.goto(f"{bench.address}/#/{'/'.join(parts)}")
    live(page)


@SIZES
def test_agents_show_state_evidence_and_last_message(bench: PageBench, size: ViewportSize) -> None:
    bench.agent("alpha").send("hello")
    bench.agent("other")
    page = bench.open(size, where="agents")
    row = page.locator(".agent", has_text="alpha")
    expect(row.locator(".state").first).to_contain_text("idle")
    expect(row).to_contain_text("REPLY#1 to: hello")
    expect(row.get_by_role("img")).to_have_accessible_name(re.compile("Last .*: .*idle"))
    row.get_by_role("button").click()
    expect(row.locator(".evidence")).to_contain_text("decides")
    expect(row.locator(".evidence")).to_contain_text("process")
    bench.agent("asks").put("RUNBASH touch made")
    asks = page.locator(".agent", has_text="asks")
    expect(asks.locator(".state").first).to_have_text("waiting_permission")  # as in `ls`
    page.get_by_label("Filter agents").fill("waiting_permission")
    expect(page.locator(".agent .name")).to_have_text("asks")
    page.get_by_label("Filter agents").fill("other")
    expect(page.locator(".agent .name")).to_have_text("other")
    page.get_by_label("Group by").select_option("host")
    expect(page.locator(".group h2")).to_contain_text("this machine")


def test_very_many_agents_are_drawn_in_parts_and_none_that_waits_is_hidden_silently(bench: PageBench) -> None:
    """One drawing of 10,000 rows kept the page busy for more than 30 s."""
    count = 450
    names = [f"s{number:04}" for number in range(count)]
    kinds = ["prompted" if number < 200 else "stopped" for number in range(count)]
    bench.boss.tell(
        *(
            event(kind, 1e9, session=name, cwd=f"/tmp/{name[-1]}/{name}")
            for kind, name in zip(kinds, names, strict=True)
        )
    )
    page = bench.open(where="agents")
    rows = page.locator(".agent")
    expect(page.get_by_role("heading", name="450 agents")).to_be_visible()
    expect(rows).to_have_count(200)
    waiting = [name for name in sorted(names, key=lambda one: (one[-1], one))[200:] if name >= "s0200"]
    note = page.locator("main").get_by_role("note")
    expect(note).to_contain_text(f"250 agents not shown, of which {len(waiting)} wait for you")
    page.get_by_label("Filter agents").fill("s0449")  # the last one is found as well
    expect(rows).to_have_count(1)
    expect(note).to_have_count(0)
    page.get_by_label("Filter agents").fill("")
    page.get_by_role("button", name="Show more: 250 rows left").click()
    expect(rows).to_have_count(400)
    rows.last.get_by_role("link").first.focus()
    page.keyboard.press("j")  # goes on where the drawn rows end
    expect(rows).to_have_count(count)
    expect(rows.nth(400).locator(".c-name")).to_be_focused()
    expect(note).to_have_count(0)
    page.goto(f"{bench.address}/#/queue")
    expect(page.locator(".list .row")).to_have_count(200)
    page.get_by_role("button", name="Show more: 50 rows left").click()
    expect(page.locator(".list .row")).to_have_count(250)


@SIZES
def test_terminal_is_read_only_until_control_is_taken(bench: PageBench, size: ViewportSize) -> None:
    post = bench.agent("work")
    page = bench.open(size)
    go(bench, page, "session", session_id(bench, "work"), *(["terminal"] if size is PHONE else []))
    expect(page.locator(".xterm-rows")).to_contain_text("Scripted agent")
    expect(page.locator(".terminal .state")).to_have_text("read-only")
    page.locator(".xterm-screen").click()
    page.keyboard.type("no")
    take_control(page)
    page.keyboard.type("RUNBASH echo ran")
    page.get_by_role("toolbar", name="Keys").get_by_role("button", name="Enter").click()
    post.watcher.until_shows("REPLY#2 to: tool_result ran")
    expect(page.locator(".xterm-rows")).to_contain_text("tool_result ran")
    assert not any("noRUNBASH" in line for line in post.lines())
    page.get_by_role("button", name="Release control").click()
    expect(page.locator(".terminal .state")).to_have_text("read-only")
    page.get_by_role("button", name="Earlier output").click()
    expect(page.locator(".back-log")).to_contain_text("Scripted agent")
    expect(page.locator(".back-log")).not_to_contain_text("\\u001b")  # its colours are not text


def test_bar_of_a_phone_has_the_keys_that_it_lacks(bench: PageBench) -> None:
    bench.keep("raw", [sys.executable, "-c", _ECHO])
    page = bench.open(PHONE, permissions=["clipboard-read", "clipboard-write"])
    page.evaluate("navigator.clipboard.writeText('Zz')")
    go(bench, page, "session", "kept:raw", "terminal")
    expect(page.locator(".xterm-rows")).to_contain_text("ready")
    bar = page.get_by_role("toolbar", name="Keys")
    expect(bar).to_have_count(0)
    page.get_by_role("button", name="Take control").tap()
    sent = {
        "Esc": "1b",
        "Shift Tab": "1b 5b 5a",
        "Up": "1b 5b 41",
        "Down": "1b 5b 42",
        "Right": "1b 5b 43",
        "Left": "1b 5b 44",
        "Tab": "09",
        "Enter": "0d",
        "Paste": "5a 7a",
    }
    for name, code in sent.items():
        bar.get_by_role("button", name=name, exact=True).tap()
        expect(page.locator(".xterm-rows")).to_contain_text(re.compile(f"{code}\\s*$"))
    bar.get_by_role("button", name="Ctrl").tap()
    page.keyboard.press("c")
    expect(page.locator(".xterm-rows")).to_contain_text(re.compile(r"03\s*$"))
    page.keyboard.press("c")  # it counts once
    expect(page.locator(".xterm-rows")).to_contain_text(re.compile(r"03 63\s*$"))


def test_prompt_is_sent_and_its_receipt_grows_to_acked(bench: PageBench) -> None:
    bench.agent("work")
    page = bench.open()
    go(bench, page, "session", session_id(bench, "work"))
    page.get_by_label("Prompt for the agent").fill("hello **there**")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".composer .chain")).to_contain_text("acked")
    expect(page.locator(".talk .prompt")).to_contain_text("hello **there**")
    expect(page.locator(".talk .answer strong")).to_have_text("there")
    page.get_by_role("tab", name="Messages").click()
    expect(page.locator(".message-box .chain li.done")).to_have_count(6)


def test_tool_calls_and_diffs_are_folded_in_the_conversation(bench: PageBench) -> None:
    post = bench.agent("work", "--permission-mode", "acceptEdits")
    post.send('TOOL {"name": "Bash", "input": {"command": "echo shown"}}')
    page = bench.open()
    go(bench, page, "session", session_id(bench, "work"))
    call = page.locator(".talk .call")
    expect(call.locator("summary")).to_contain_text("done")
    expect(call.locator("pre").last).not_to_be_visible()
    call.locator("summary").click()
    expect(call.locator("pre").last).to_contain_text("shown")


@SIZES
def test_waiting_message_is_cancelled_and_a_turn_is_interrupted(bench: PageBench, size: ViewportSize) -> None:
    post = bench.agent("work")
    running, waiting = post.put("SLOW 100"), post.put("later")
    page = bench.open(size)
    go(bench, page, "session", session_id(bench, "work"), "messages")
    box = page.locator(".message-box", has_text="later")
    box.get_by_role("button", name="Cancel").click()
    post.ended(waiting)
    page.get_by_role("button", name="Interrupt").click()
    post.ended(running)
    expect(page.locator(".steps .note")).to_contain_text("interrupted")


def test_session_is_ended_and_resumed(bench: PageBench) -> None:
    post = bench.agent("work")
    post.send("hello")
    page = bench.open()
    go(bench, page, "session", session_id(bench, "work"))
    page.get_by_role("button", name="End …").click()
    page.get_by_role("button", name="End", exact=True).click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    expect(page.locator(".terminal .state")).to_contain_text("ended")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".steps .note")).to_contain_text("Resumed")
    try:
        until(lambda: bench.boss.client.get("sessions", "work")["session"]["ended"] is None, "it runs again")
        expect(page.locator(".terminal .state")).to_have_text("read-only")
    finally:
        bench.boss.client.post("sessions", "work", "end", body={})


def test_key_in_the_terminal_of_a_session_that_is_asleep_wakes_it_and_reaches_it(bench: PageBench) -> None:
    post = bench.agent("work")
    post.send("hello")
    put_to_sleep(post)
    page = bench.open()
    go(bench, page, "session", session_id(bench, "work"))
    expect(page.locator(".who .state").first).to_have_text("asleep")
    expect(page.locator(".xterm-rows")).to_contain_text("REPLY#1")  # its last screen
    take_control(page)
    assert phase(post) == "asleep"  # looking at it does not wake it
    page.locator(".xterm-screen").click()
    page.keyboard.type("typed in the page")
    until_equal(post.draft, "typed in the page", "the keys")
    page.keyboard.press("Enter")
    post.watcher.until_shows("to: typed in the page")
    expect(page.locator(".who .state").first).to_have_text("idle")


@SIZES
def test_changes_in_git_are_shown(bench: PageBench, size: ViewportSize) -> None:
    for words in ("init -q -b main", "-c user.name=a -c user.email=a@b commit -q --allow-empty -m first"):
        subprocess.run(["git", *words.split()], cwd=bench.project, check=True)
    bench.agent("work")
    (bench.project / "new.txt").write_text("fresh line\n")
    page = bench.open(size)
    go(bench, page, "session", session_id(bench, "work"), "changes")
    expect(page.locator(".file-change")).to_contain_text("new.txt")
    expect(page.locator(".file-change .add")).to_contain_text("fresh line")


@SIZES
def test_usage_and_statistics_show_what_was_used_and_decided(bench: PageBench, size: ViewportSize) -> None:
    post = bench.agent("work")
    message = post.put("RUNBASH touch made")
    until(lambda: bench.boss.client.get("approvals", state="open")["approvals"], "the request")
    (one,) = bench.boss.client.get("approvals", state="open")["approvals"]
    bench.boss.client.post("approvals", one["id"], "answer", body={"behavior": "allow"})
    post.ended(message)
    until(lambda: bench.boss.client.get("usage", by="session")["rows"], "usage at the boss")
    page = bench.open(size, where="usage")
    expect(page.locator(".usage tbody tr")).to_contain_text("work")
    expect(page.locator(".usage tbody")).to_contain_text("unknown")  # the cost
    for by in ("folder", "model", "account", "day"):
        page.get_by_label("Group by").select_option(by)
        expect(page.locator(".usage thead")).to_contain_text(by)
    page.get_by_label("Group by").select_option("session")
    page.get_by_role("button", name="work").click()
    expect(page.locator(".usage thead")).to_contain_text("turn")
    go(bench, page, "statistics")
    expect(page.get_by_label("Permissions by tool").last).to_contain_text("Bash")
    expect(page.get_by_role("img", name="Agents by state over time")).to_be_visible()
    page.get_by_role("button", name="week").click()
    expect(page.get_by_role("button", name="week")).to_have_attribute("aria-pressed", "true")
    page.locator(".as-table summary").first.click()
    expect(page.locator(".as-table table").first).to_be_visible()
