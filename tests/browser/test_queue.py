"""The queue in the page: every kind of item, and every answer, by touch and by keys."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, ViewportSize, expect

from support.browser import PHONE, WIDE, PageBench, ready, requesting, tool
from support.keeper import until

SIZES = pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
_QUESTION = {
    "question": "Which index?",
    "header": "Index",
    "multiSelect": False,
    "options": [{"label": "SQLite", "description": "One file"}, {"label": "Tantivy", "description": "Fast"}],
}


def open_first(page: Page, reason: str) -> None:
    """Open the first item, on a phone by a tap."""
    expect(page.locator(".list a.row, .item h2").first).to_contain_text(reason)
    # A wide page opens the first item by itself, a moment after its row is there.
    if page.viewport_size == PHONE and page.locator(".item").count() == 0:
        page.locator(".list a.row").first.tap()
    expect(page.locator(".item h2")).to_contain_text(reason)


def press(page: Page, name: str) -> None:
    # Not waiting until it is enabled: what is refused says why.
    button = page.locator(".actions").get_by_role("button", name=re.compile(rf"^{name}"))
    button.click(force=True)


def approval(bench: PageBench) -> dict[str, Any]:
    found: list[dict[str, Any]] = bench.boss.client.get("approvals")["approvals"]
    return found[0]


@SIZES
def test_edited_command_runs_as_edited_and_the_receipt_ends(bench: PageBench, size: ViewportSize) -> None:
    post = bench.agent("work")
    page = bench.open(size)
    message = post.put("RUNBASH touch asked")
    open_first(page, "permission")
    expect(page.locator(".body")).to_contain_text("touch asked")
    press(page, "Edit")
    page.get_by_label("command").fill("touch edited")
    ready(page)
    press(page, "Allow as edited")
    post.ended(message)
    assert [path.name for path in bench.project.iterdir()] == ["edited"]
    until(lambda: approval(bench)["decision"]["outcome"] == "ran", "the outcome")
    assert approval(bench)["by"].startswith("page: ")


def test_request_offers_only_what_its_agent_can_take(bench: PageBench) -> None:
    given = {"tool": "Bash", "input": {"command": "ls"}}
    for session, more in (("free", {}), ("bound", {"refuses": {"edit": "no edits", "message": "none"}})):
        event = {"kind": "asked", "session_id": session, "facts": {**given, **more}}
        bench.boss.client.post("events", body={"events": [event]})
    page = bench.open()
    later = ["Skip", "Snooze", "Dismiss"]
    for session, offered in (
        ("free", ["Allow", "Deny", "Edit", "Always", *later]),
        ("bound", ["Allow", "Deny", "Always", *later]),
    ):
        page.locator(".list a.row", has_text=session).click()
        expect(page.locator(".item h2")).to_contain_text(session)
        expect(page.locator(".actions").get_by_role("button")).to_contain_text(offered)
    page.keyboard.press("e")
    expect(page.locator(".note")).to_have_text("no edits.")
    ready(page)
    press(page, "Deny")
    expect(page.locator(".ask")).to_have_text("Deny?")
    expect(page.get_by_label("Message to the agent")).to_have_count(0)


@SIZES
def test_request_shows_what_the_agent_said_before_it(bench: PageBench, size: ViewportSize) -> None:
    post = bench.agent("work")
    post.send("hello")
    page = bench.open(size)
    post.put(tool("Bash", say="I **need** a file.", command="touch made"))
    open_first(page, "permission")
    said = page.get_by_role("region", name="Last message")
    expect(said).to_contain_text("I need a file.")
    expect(said.locator("strong")).to_have_text("need")
    expect(page.locator(".body > *").first).to_contain_text("touch made")
    post.watcher.answer(b"1")


def test_long_request_is_read_by_itself_and_allowed_when_all_of_it_was_shown(bench: PageBench) -> None:
    """The list has only its beginning. The end is held back, to look at the page before it comes."""
    command = f"echo start\n{'x' * 30_000}\necho the end"
    page = bench.open()
    held: list[Route] = []
    page.route("**/v1/approvals/*", lambda route: held.append(route))
    given = {"command": command, "description": "two\nlines"}
    with bench.boss.holding(requesting("Bash", given)) as hook:
        open_first(page, "permission")
        expect(page.locator(".item .body")).to_contain_text("Reading the rest")
        expect(page.locator(".item .body")).to_contain_text("echo start")
        press(page, "Allow")
        expect(page.locator(".actions .note")).to_contain_text("This is new")
        page.keyboard.press("e")
        expect(page.locator("form.edit")).to_have_count(0)
        until(lambda: page.evaluate("1") and held, "that it reads the rest")
        held[0].continue_()
        expect(page.locator(".item .body")).not_to_contain_text("Reading the rest")
        page.get_by_role("button", name="Show all").click()
        expect(page.locator(".item .body")).to_contain_text("the end")
        ready(page)
        press(page, "Allow")
        assert hook.result()["output"]["hookSpecificOutput"]["decision"]["behavior"] == "allow"


@SIZES
def test_deny_carries_its_message_to_the_agent(bench: PageBench, size: ViewportSize) -> None:
    post = bench.agent("work")
    page = bench.open(size)
    message = post.put("RUNBASH touch made")
    open_first(page, "permission")
    ready(page)
    press(page, "Deny")
    page.get_by_label("Message to the agent").fill("use mkdir")
    press(page, "Yes")
    assert "use mkdir" in str(post.ended(message).answer)
    assert approval(bench)["answer"] == {"behavior": "deny", "message": "use mkdir"}


def test_always_allows_the_same_again_without_a_question(bench: PageBench) -> None:
    post = bench.agent("work")
    page = bench.open()
    message = post.put("RUNBASH touch made")
    open_first(page, "permission")
    ready(page)
    press(page, "Always")
    expect(page.locator(".ask")).to_contain_text("from now on")
    press(page, "Yes")
    post.ended(message)
    post.send("RUNBASH touch made")
    assert len(bench.boss.client.get("approvals")["approvals"]) == 1


@SIZES
def test_question_is_answered_with_an_option(bench: PageBench, size: ViewportSize) -> None:
    post = bench.agent("work")
    page = bench.open(size)
    message = post.put(tool("AskUserQuestion", questions=[_QUESTION]))
    open_first(page, "question")
    expect(page.locator(".later button").first).to_have_attribute("aria-disabled", "false")
    press(page, "Answer")  # nothing is chosen: refused
    expect(page.locator(".actions .note")).to_contain_text("Answer every question first")
    page.get_by_label("Tantivy").check()
    ready(page)
    press(page, "Answer")
    post.ended(message)
    assert approval(bench)["answer"]["answers"] == {"1": ["Tantivy"]}


@SIZES
def test_plan_is_approved_or_sent_back_with_a_message(bench: PageBench, size: ViewportSize) -> None:
    page = bench.open(size)
    with bench.boss.holding(requesting("ExitPlanMode", {"plan": "# Plan\n\n1. measure\n2. cut"})) as hook:
        open_first(page, "plan")
        expect(page.locator(".plan li").last).to_have_text("cut")
        ready(page)
        press(page, "Send back")
        page.get_by_label("Message to the agent").fill("measure twice")
        press(page, "Yes")
        assert "measure twice" in str(hook.result()["output"])
    assert approval(bench)["answer"] == {"behavior": "deny", "message": "measure twice"}
    if size is PHONE:
        page.goto(f"{bench.address}/#/queue")
    with bench.boss.holding(requesting("ExitPlanMode", {"plan": "measure again"})) as hook:
        expect(page.locator(".list a.row", has_text="measure again")).to_be_visible()
        page.locator(".list a.row", has_text="measure again").click()
        ready(page)
        press(page, "Approve")
        assert "allow" in str(hook.result()["output"])
    assert approval(bench)["answer"] == {"behavior": "allow"}


@SIZES
def test_every_line_of_a_long_diff_can_be_scrolled_to(bench: PageBench, size: ViewportSize) -> None:
    old, new = ("\n".join(f"line {n} {word}" for n in range(150)) for word in ("before", "after"))
    given = {"file_path": "/srv/long.py", "old_string": old, "new_string": new}
    bench.boss.client.post("hooks", body=requesting("Edit", given))
    page = bench.open(size)
    open_first(page, "permission")
    # Then all of it was read: the list has its beginning.
    expect(page.locator(".later button").first).to_have_attribute("aria-disabled", "false")
    diff = page.locator(".item .diff")
    assert diff.evaluate("(one) => one.scrollHeight <= one.clientHeight"), "a part of it is cut off"
    last = diff.locator("td.line.add").last
    last.scroll_into_view_if_needed()
    expect(last).to_contain_text("line 149 after")
    box, footer = last.bounding_box(), page.locator(".actions").bounding_box()
    assert box is not None
    assert footer is not None
    assert box["y"] + box["height"] <= footer["y"] + 1


def test_edit_is_shown_side_by_side_when_wide_and_in_one_column_on_a_phone(bench: PageBench) -> None:
    (bench.project / "cart.py").write_text("one\ntwo\nthree\n")
    post = bench.agent("work")
    wide, phone = bench.open(WIDE), bench.open(PHONE)
    message = post.put(
        tool("Edit", file_path=str(bench.project / "cart.py"), old_string="one\ntwo", new_string="one\n2")
    )
    open_first(wide, "permission")
    open_first(phone, "permission")
    expect(wide.locator(".diff table.split .del")).to_contain_text("two")
    expect(wide.locator(".diff table.split .add")).to_contain_text("2")
    expect(wide.locator(".diff table.split td.line").first).to_contain_text("one")  # context
    expect(phone.locator(".diff table.unified .add")).to_contain_text("2")
    ready(phone)
    press(phone, "Allow")
    post.ended(message)
    assert (bench.project / "cart.py").read_text() == "one\n2\nthree\n"


def test_reply_to_a_stopped_agent_has_a_receipt(bench: PageBench) -> None:
    post = bench.agent("work")
    page = bench.open()
    post.send("hello")
    open_first(page, "stopped")
    expect(page.locator(".body")).to_contain_text("REPLY#1 to: hello")
    page.keyboard.press("R")
    page.keyboard.type("more")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".body")).to_contain_text("REPLY#2 to: more")


@SIZES
def test_snooze_skip_and_dismiss(bench: PageBench, size: ViewportSize) -> None:
    bench.agent("one").send("hello")
    bench.agent("two").send("hello")
    page = bench.open(size)
    open_first(page, "one")
    expect(page.locator(".later button").first).to_be_visible()
    put_off(page, "Snooze")
    expect(page.locator(".item h2")).to_contain_text("two")
    put_off(page, "Skip")
    if size is PHONE:
        page.get_by_role("link", name="Queue").last.tap()
    page.locator(".list details summary").first.click()
    page.get_by_role("button", name="Bring back").first.click()
    until(lambda: bench.boss.waiting(), "an item that is back")
    open_first(page, "stopped")
    put_off(page, "Dismiss")
    until(lambda: len(bench.boss.client.get("queue", hidden=True)["items"]) == 1, "one item left")


def put_off(page: Page, name: str) -> None:
    """By a touch where there is one."""
    button = page.locator(".later").get_by_role("button", name=name)
    expect(button).to_have_attribute("aria-disabled", "false")  # it was shown long enough
    if page.evaluate("navigator.maxTouchPoints > 0"):
        button.tap()
    else:
        button.click()


# ── keys ──


def test_keys_move_allow_and_deny_and_only_y_confirms(bench: PageBench) -> None:
    one, two = bench.agent("one"), bench.agent("two")
    page = bench.open()
    first = one.put("RUNBASH touch made-1")
    until(lambda: len(bench.boss.waiting()) == 1, "the first request")
    second = two.put("RUNBASH touch made-2")
    expect(page.locator(".list a.row")).to_have_count(2)
    page.keyboard.press("j")
    expect(page.locator(".item h2")).to_contain_text("two")
    page.keyboard.press("k")
    expect(page.locator(".item h2")).to_contain_text("one")
    ready(page)
    sent: list[str] = []
    page.on("request", lambda one: sent.append(one.url) if one.method == "POST" else None)
    page.keyboard.press("a")
    expect(page.locator(".ask")).to_contain_text("Allow this?")
    page.keyboard.press("x")  # any other key is no
    expect(page.locator(".ask")).to_have_count(0)
    assert sent == []
    page.keyboard.press("a")
    page.keyboard.press("y")
    one.ended(first)
    expect(page.locator(".item h2")).to_contain_text("two")
    ready(page)
    page.keyboard.press("n")
    page.keyboard.press("y")
    two.ended(second)
    assert [path.name for path in bench.project.iterdir()] == ["made-1"]
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("snooze for 10 minutes")


def test_keys_skip_snooze_and_dismiss(bench: PageBench) -> None:
    bench.agent("one").send("hello")
    bench.agent("two").send("hello")
    page = bench.open()
    for key, name in (("s", "one"), ("z", "two")):
        expect(page.locator(".item h2")).to_contain_text(name)
        expect(page.locator(".later button").first).to_have_attribute("aria-disabled", "false")
        page.keyboard.press(key)
    expect(page.get_by_text("2 items put off")).to_be_visible()
    items = {one["session"]["name"]: one for one in bench.boss.client.get("queue", hidden=True)["items"]}
    assert items["one"]["skip_until"] > items["one"]["since"]
    assert items["two"]["snooze_until"] > items["one"]["skip_until"]
    page.get_by_text("2 items put off").click()
    page.get_by_role("button", name="Bring back").last.click()
    expect(page.locator(".item h2")).to_contain_text("stopped")
    expect(page.locator(".later button").first).to_have_attribute("aria-disabled", "false")
    page.keyboard.press("d")
    until(lambda: len(bench.boss.client.get("queue", hidden=True)["items"]) == 1, "one item left")


def test_keys_edit_the_input_and_wrong_json_is_named(bench: PageBench) -> None:
    post = bench.agent("work")
    page = bench.open()
    message = post.put(tool("Bash", command="touch asked", timeout=5000))
    open_first(page, "permission")
    ready(page)
    page.keyboard.press("e")
    expect(page.get_by_label("command")).to_be_focused()
    page.get_by_label("command").fill("touch edited")
    page.get_by_label("timeout (JSON)").fill("{")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".actions .note")).to_contain_text("timeout is not valid JSON")
    page.get_by_label("timeout (JSON)").fill("6000")
    page.keyboard.press("Control+Enter")
    post.ended(message)
    assert approval(bench)["answer"]["updated_input"] == {"command": "touch edited", "timeout": 6000}
    assert [path.name for path in bench.project.iterdir()] == ["edited"]


def test_reply_is_sent_once_however_often_the_key_repeats(bench: PageBench) -> None:
    post = bench.agent("work")
    page = bench.open()
    post.send("hello")
    open_first(page, "stopped")
    held: list[Route] = []
    page.route("**/v1/sessions/*/reply", lambda route: held.append(route))
    page.keyboard.press("R")
    page.keyboard.type("more")
    for _ in range(3):
        page.keyboard.press("Control+Enter")
    until(lambda: page.evaluate("1") and held, "the request")
    assert len(held) == 1
    held[0].continue_()
    expect(page.locator(".body")).to_contain_text("REPLY#2 to: more")


def test_field_that_goes_away_under_the_fingers_leaves_no_keys_to_others(bench: PageBench) -> None:
    """'okay' is typed for one agent; its 'a' and 'y' would allow the request of another."""
    one, two = bench.agent("one"), bench.agent("two")
    page = bench.open()
    one.send("hello")
    open_first(page, "stopped")
    two.put("RUNBASH touch made")
    expect(page.locator(".list a.row")).to_have_count(2)
    page.keyboard.press("R")
    page.keyboard.type("ok")
    one.send("meanwhile")
    expect(page.locator(".outcome")).to_be_visible()
    page.keyboard.type("ay")
    expect(page.get_by_label("Reply to the agent")).to_have_value("okay")
    page.get_by_label("Reply to the agent").fill("")
    # A message to the agent goes away when the request is decided elsewhere.
    page.locator(".list a.row", has_text="two").click()
    ready(page)
    page.keyboard.press("n")
    page.get_by_label("Message to the agent").focus()
    page.keyboard.type("why")
    bench.boss.client.post("approvals", approval(bench)["id"], "answer", body={"behavior": "deny"})
    expect(page.get_by_label("Message to the agent")).to_have_count(0)
    page.keyboard.type("?")  # alone it would show the keys
    page.evaluate("new Promise((go) => requestAnimationFrame(() => setTimeout(go, 200)))")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.locator(".item .where").click()
    page.keyboard.type("?")
    expect(page.get_by_role("dialog")).to_be_visible()


def test_nothing_can_be_answered_right_after_it_appeared(bench: PageBench) -> None:
    """The clock of the page stands still, so that the item is new for as long as the test wants."""
    post = bench.agent("work")
    page = bench.open()
    page.clock.install()
    page.reload()
    expect(page.get_by_text("Nothing waits for you")).to_be_visible()
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 2)
    message = post.put("RUNBASH touch made")
    until(lambda: bench.boss.waiting(), "the request")

    def look() -> bool:
        page.clock.run_for(50)
        return page.locator(".item").count() > 0

    until(look, "the item in the page")
    open_first(page, "permission")

    def drawn() -> bool:
        page.clock.run_for(20)
        return page.locator(".actions").get_by_role("button", name="Allow").count() > 0

    until(drawn, "its buttons")
    press(page, "Allow")
    expect(page.locator(".actions .note")).to_contain_text("This is new")
    page.keyboard.press("a")
    expect(page.locator(".ask")).to_have_count(0)
    assert approval(bench)["state"] == "open"
    page.clock.run_for(1000)
    press(page, "Allow")
    page.clock.resume()
    post.ended(message)
    assert (bench.project / "made").exists()


# ── who was first ──


def test_second_browser_sees_who_was_first_and_its_item_stays_in_place(bench: PageBench) -> None:
    post = bench.agent("work")
    first, second = bench.open(WIDE), bench.open(PHONE)
    message = post.put("RUNBASH touch made")
    open_first(first, "permission")
    open_first(second, "permission")
    ready(first)
    ready(second)
    press(first, "Allow")
    expect(second.locator(".outcome")).to_contain_text("Allowed in the page on Linux")
    expect(second.locator(".outcome")).to_contain_text("it ran")
    expect(second.locator(".actions").get_by_role("button", name="Allow")).to_have_count(0)
    post.ended(message)


def test_decision_in_the_terminal_is_shown_as_one(bench: PageBench) -> None:
    post = bench.agent("work")
    page = bench.open()
    post.put("RUNBASH touch made")
    open_first(page, "permission")
    post.watcher.answer(b"1")
    expect(page.locator(".outcome")).to_contain_text("in the terminal")
