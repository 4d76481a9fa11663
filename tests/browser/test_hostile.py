"""A hostile agent: nothing of what it says runs, hides, or breaks the page."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error, Page, Route, ViewportSize, WebSocketRoute, expect

from support.boss import event
from support.browser import PHONE, WIDE, PageBench, requesting, shorten, take_control
from support.keeper import until
from support.watcher import Watcher

SIZES = pytest.mark.parametrize(
    "size", [WIDE, pytest.param(PHONE, marks=pytest.mark.soak(only=True))], ids=["wide", "phone"]
)
_SCRIPT = "<script>window.harm.push('ran')</script><img src=x onerror=\"window.harm.push('ran')\">"
_TEXT = "\n".join(
    (
        _SCRIPT,
        "[click](javascript:window.harm.push('link')) ![x](http://example.invalid/x.png)",
        "[data](data:text/html,<script>1</script>) <javascript:alert(1)> [ok](https://example.invalid/ok)",
        "\x1b[31mred\x1b]0;title\x07 \u202egnp.exe\u202c \u2066hidden\u2069 zero\u200bwidth",
        "| a |\n|---|\n| <svg onload=alert(1)> |",
        "```html\n" + _SCRIPT + "\n```",
        "W" * 3000,
        "**" * 4000 + "[" * 2000 + "`" * 3001 + "> " * 500 + "- " * 500,
    )
)
_SAFE = """() => [...document.querySelectorAll('script, iframe, object, embed, [onerror], [onload], a')]
  .filter((one) => !(one.tagName === 'SCRIPT' && one.src.startsWith(location.origin)))
  .filter((one) => !(one.tagName === 'A' && /^(https?:|#)/.test(one.getAttribute('href'))))
  .map((one) => one.outerHTML.slice(0, 200))"""

_TOO_WIDE = """() => [...document.querySelectorAll('.list, .body, .agents, .talk')]
  .filter((one) => one.scrollWidth > one.clientWidth + 1).length"""


def check(page: Page) -> None:
    """Nothing ran, nothing dangerous is in the document, and nothing is wider than the screen."""
    assert page.evaluate("window.harm") == []
    assert page.evaluate(_SAFE) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(_TOO_WIDE) == 0


def test_failure_at_a_long_page_has_a_short_text(bench: PageBench) -> None:
    """The log of a run must stay readable: see `pytest_runtest_makereport`."""
    page = bench.open(log_in=False)
    page.set_content("<button>one of many</button>" * 5000)
    with pytest.raises(AssertionError) as caught:
        expect(page.locator("body")).to_have_text("another", timeout=1)
    assert len(str(caught.value)) > 50_000
    shorten(caught.value)
    assert len(str(caught.value)) < 4_000
    assert str(caught.value).startswith("Locator expected to have text 'another'")


@SIZES
def test_text_of_a_hostile_agent_is_only_text(bench: PageBench, size: ViewportSize) -> None:
    facts: dict[str, Any] = {"cwd": f"/tmp/{_SCRIPT}/\u202efdp", "title": _TEXT[:2000], "agent": "demo"}
    bench.boss.tell(event("prompted", 1e9, session="s1", **facts))
    bench.boss.tell(event("stopped", 1e9 + 1, session="s1", message=_TEXT, **facts))
    page = bench.open(size)
    if size is PHONE:
        page.locator(".list .row").first.tap()
    body = page.locator(".item .body")
    expect(body).to_contain_text("<script>")
    expect(body).to_contain_text("\\u202egnp.exe")
    expect(body).to_contain_text("\\u001b[31mred")
    expect(body.get_by_role("link")).to_have_count(2)
    expect(body.get_by_role("link").last).to_have_attribute("rel", "noopener noreferrer nofollow")
    check(page)
    page.goto(f"{bench.address}/#/agents")
    expect(page.locator(".agent")).to_have_count(1)
    check(page)


@SIZES
def test_hidden_characters_of_a_request_are_shown_by_their_number(
    bench: PageBench, size: ViewportSize
) -> None:
    shapeless = "\u3164\u2800\u034f\U000e0120."
    command = f"\u05d0 echo safe\u202e\u2066 # \u200b\x1b[8m; rm -rf ~\x1b[0m {_SCRIPT} {shapeless}"
    payload = {
        "session_id": "s1",
        "cwd": "/tmp",
        "hook_event_name": "PermissionRequest",
        "tool_name": "Bash<b>",
        "tool_input": {"command": command, "<img src=x>": {"deep": [_SCRIPT]}},
    }
    bench.boss.client.post("hooks", body={"payload": payload})
    page = bench.open(size)
    if size is PHONE:
        page.locator(".list .row").first.tap()
    shown = page.locator(".item .body pre").first
    expect(shown).to_contain_text("safe\\u202e\\u2066 # \\u200b\\u001b[8m; rm -rf ~")
    expect(shown).to_contain_text("\\u3164\\u2800\\u034f\\u{e0120}.")
    assert shown.evaluate("(one) => getComputedStyle(one).direction") == "ltr"
    check(page)


_SLOW = {
    "ticks": "`" * 59_000,
    "heading": "# a" + " " * 58_000 + "x",
    "hashes": "# a" + "#" * 58_000 + "x",
    "fence": "```" + " " * 58_000 + "`",
    "table": "\n".join([f"{' ' * 490}-{' ' * 490}x|"] * 59),
}


@pytest.mark.parametrize("text", _SLOW.values(), ids=_SLOW)
def test_markdown_that_takes_long_to_match_does_not_freeze_the_page(bench: PageBench, text: str) -> None:
    bench.boss.tell(event("prompted", 1e9, session="s1", cwd="/tmp/p"))
    bench.boss.tell(event("stopped", 1e9 + 1, session="s1", cwd="/tmp/p", message=f"{text}\n\nthe end"))
    page = bench.open()
    expect(page.locator(".item .body")).to_contain_text("the end")
    check(page)


def test_plan_shows_everything_that_is_approved(bench: PageBench) -> None:
    plan = "\n".join(
        (
            "```sh hidden-info and more\ncode\n``` hidden-close\n```",
            "| a | b |\n|---|---|\n| 1 | 2 | hidden-cell |",
            '[text](https://example.invalid/x "hidden-title") [other](https://hidden-host.invalid/)',
            "x\n" * 40_000,
            "hidden-end",
        )
    )
    payload = {
        "session_id": "s1",
        "cwd": "/tmp",
        "hook_event_name": "PermissionRequest",
        "tool_name": "ExitPlanMode",
        "tool_input": {"plan": plan},
    }
    bench.boss.client.post("hooks", body={"payload": payload})
    page = bench.open()
    body = page.locator(".item .body")
    for word in ("info", "close", "cell", "title", "host"):
        expect(body).to_contain_text(f"hidden-{word}")
    allow, note = (
        page.locator(".actions").get_by_role("button", name="Approve"),
        page.locator(".actions .note"),
    )

    def refuses() -> bool:
        allow.click(force=True)
        return "Show all of it first" in (note.text_content() or "")

    until(refuses, "that it has to be shown first")
    page.get_by_role("button", name="Show all").click()
    expect(body).to_contain_text("hidden-end")
    expect(allow).to_have_attribute("aria-disabled", "false")


def test_large_message_does_not_freeze_the_page_and_is_shown_on_demand(bench: PageBench) -> None:
    text = "start " + "x" * 5_000_000 + " end"
    bench.boss.tell(event("prompted", 1e9, session="s1", cwd="/tmp/p"))
    bench.boss.tell(event("stopped", 1e9 + 1, session="s1", cwd="/tmp/p", message=text))
    page = bench.open()
    expect(page.locator(".item .body")).to_contain_text("start xxx")
    page.get_by_role("button", name="Show all").click()
    expect(page.locator(".long .part").last).to_contain_text(" end")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    check(page)


def test_request_that_is_not_shown_completely_cannot_be_allowed(bench: PageBench) -> None:
    post = bench.agent("work")
    page = bench.open()
    message = post.put(f"RUNBASH touch made # {'x' * 30_000}")
    expect(page.locator(".item h2")).to_contain_text("permission")
    skip = page.locator(".actions").get_by_role("button", name="Skip")
    expect(skip).to_have_attribute("aria-disabled", "false")  # it was shown long enough
    allow = page.locator(".actions").get_by_role("button", name="Allow")
    allow.click(force=True)
    expect(page.locator(".actions .note")).to_contain_text("Show all of it first")
    page.get_by_role("button", name="Show all").click()
    expect(allow).to_have_attribute("aria-disabled", "false")
    allow.click()
    post.ended(message)


def test_hostile_conversation_and_terminal(bench: PageBench) -> None:
    post = bench.agent("work", env={"MOCK_RESPONSE": _TEXT})
    post.send(f"{_SCRIPT} [x](javascript:alert(1))")
    page = bench.open()
    (session,) = bench.boss.client.get("sessions")["sessions"]
    page.goto(f"{bench.address}/#/session/{session['id']}")
    expect(page.locator(".talk .answer")).to_contain_text("<script>")
    expect(page.locator(".xterm-rows")).to_contain_text("`````")
    check(page)
    for tab in ("messages", "evidence"):
        page.goto(f"{bench.address}/#/session/{session['id']}/{tab}")
        check(page)
    assert json.dumps(page.title()).count("<") == 0


# ── names that mean something in JavaScript ──


def request(bench: PageBench, name: str, given: dict[str, Any]) -> None:
    """A permission request that only the terminal of its agent can decide."""
    bench.boss.client.post("hooks", body=requesting(name, given))


def test_fields_of_any_name_can_be_edited(bench: PageBench) -> None:
    given = {"command": "x", "constructor": "one", "__proto__": "two", "toString": 3, "draft": {"a": []}}
    page = bench.open()
    with bench.boss.holding(requesting("mcp__evil__run", given)) as hook:
        page.locator(".actions").get_by_role("button", name="Edit").click()
        page.get_by_label("__proto__").fill("changed")
        page.get_by_label("toString (JSON)").fill("4")
        expect(page.get_by_label("constructor")).to_have_value("one")
        expect(page.locator(".actions button.primary")).to_have_attribute("aria-disabled", "false")
        page.get_by_role("button", name="Allow as edited").click()
        assert hook.result()["state"] == "answered"
    (one,) = bench.boss.client.get("approvals")["approvals"]
    assert one["answer"]["updated_input"] == {**given, "__proto__": "changed", "toString": 4}


def test_large_numbers_are_shown_and_sent_with_all_their_digits(bench: PageBench) -> None:
    given = {"id": 9007199254740993, "text": "x", "deep": {"ids": [-1234567890123456789, 1.5, 7]}}
    page = bench.open()
    with bench.boss.holding(requesting("mcp__chat__send", given)) as hook:
        for text in ("9007199254740993", "-1234567890123456789"):
            expect(page.locator(".item .body")).to_contain_text(text)
        page.locator(".actions").get_by_role("button", name="Edit").click()
        expect(page.get_by_label("id (JSON)", exact=True)).to_have_value("9007199254740993")
        page.get_by_label("text").fill("changed")
        deep = page.get_by_label("deep (JSON)")
        deep.fill(deep.input_value().replace(" 7", " 8765432109876543210"))
        expect(page.locator(".actions button.primary")).to_have_attribute("aria-disabled", "false")
        page.get_by_role("button", name="Allow as edited").click()
        decision = hook.result()["output"]["hookSpecificOutput"]["decision"]
    ids = [-1234567890123456789, 1.5, 8765432109876543210]
    assert decision["updatedInput"] == {"id": given["id"], "text": "changed", "deep": {"ids": ids}}


def test_request_with_digits_that_a_browser_cannot_show_is_not_allowed_there(bench: PageBench) -> None:
    page = bench.open(log_in=False)
    page.add_init_script("delete JSON.rawJSON")  # a browser from before 2025
    page.goto(bench.address + bench.boss.client.post("logins", "links", body={})["path"])
    page.get_by_role("button", name="Log in").click()
    request(bench, "mcp__chat__send", {"deep": [{"id": 9007199254740993}]})
    expect(page.locator(".item .body")).to_contain_text("This browser cannot show all digits of a number")
    expect(page.locator(".later button").first).to_have_attribute("aria-disabled", "false")
    page.locator(".actions").get_by_role("button", name="Allow").click(force=True)
    expect(page.locator(".actions .note")).to_contain_text("Decide there")
    expect(page.locator(".actions").get_by_role("button", name="Edit")).to_have_count(0)


@pytest.mark.parametrize("word", ["constructor", "__proto__", "toString", "%", "<b>"])
def test_address_with_any_word_shows_the_page(bench: PageBench, word: str) -> None:
    page = bench.open(where=word)
    expect(page.get_by_text("Nothing waits for you")).to_be_visible()
    check(page)


def test_name_of_a_tool_is_bounded_wherever_it_is_shown(bench: PageBench) -> None:
    bench.boss.tell(event("prompted", 1e9, session="s2", cwd="/tmp/p"))
    page = bench.open()
    with bench.boss.holding(requesting("T\u202e\u200b" * 3000, {"a": 1})) as hook:
        bench.boss.tell(event("stopped", 1e9 + 1, session="s2", cwd="/tmp/p", message="next"))
        page.locator(".list .row", has_text="permission").click()
        deny = page.locator(".actions").get_by_role("button", name="Deny")
        expect(deny).to_have_attribute("aria-disabled", "false")
        deny.click()
        page.get_by_role("button", name="Yes").click()
        hook.result()
    expect(page.locator(".actions .note")).to_contain_text("Denied: T")
    page.get_by_text("Decided lately").click()
    assert not page.evaluate("/[\u202e\u200b]/.test(document.body.innerText)")
    assert page.evaluate("document.querySelector('.actions').offsetHeight < 200")
    check(page)


def test_text_that_was_cut_does_not_undo_a_decision_that_came_with_it(bench: PageBench) -> None:
    page = bench.open()
    state = page.evaluate(
        """async () => {
          const isStore = ({ name }) => new URL(name).pathname.endsWith('/store.js');
          const { name } = performance.getEntriesByType('resource').find(isStore);
          const { approvals, take } = await import(name);
          take('approval', { id: 'a', state: 'open', session_id: 's', input: 'cut' });
          take('approval', { id: 'a', state: 'answered', session_id: 's', input: 'cut' });
          take('approval', { id: 'a', input: 'whole', cut: [] });
          while (!approvals.value.has('a')) await new Promise((go) => setTimeout(go, 10));
          const { state, input } = approvals.value.get('a');
          return [state, input];
        }"""
    )
    assert state == ["answered", "whole"]


# ── diffs ──


def test_field_with_the_name_of_the_diff_does_not_stand_for_it(bench: PageBench) -> None:
    path = str(bench.project / "made")
    request(bench, "Write", {"file_path": path, "content": "line\n" * 1000, "diff": "short"})
    page = bench.open()
    expect(page.locator(".later button").first).to_have_attribute("aria-disabled", "false")
    allow = page.locator(".actions").get_by_role("button", name="Allow")
    allow.click(force=True)
    expect(page.locator(".actions .note")).to_contain_text("Show all of it first")
    page.get_by_role("button", name="Show all").click()
    expect(allow).to_have_attribute("aria-disabled", "false")


@SIZES
def test_diff_of_200000_lines_does_not_freeze_the_page(bench: PageBench, size: ViewportSize) -> None:
    text = "".join(f"{number}\n" for number in range(150_000, 280_000)) + "the end\n"
    request(bench, "Write", {"file_path": str(bench.project / "made"), "content": text})
    page = bench.open(size)
    if size is PHONE:
        page.locator(".list .row").first.tap()
    page.get_by_role("button", name="Show all").click()
    expect(page.locator(".diff .part").last).to_contain_text("+the end")
    expect(page.locator(".diff .add").last).to_contain_text("153997")
    expect(page.locator(".diff .part").first).to_contain_text("+153998\n+153999")
    assert page.evaluate("document.querySelectorAll('*').length") < 60_000
    expect(page.locator(".actions").get_by_role("button", name="Allow")).to_have_attribute(
        "aria-disabled", "false"
    )
    check(page)


def test_show_all_waits_for_the_rest_of_the_diff(bench: PageBench) -> None:
    held: list[Route] = []
    page = bench.open()
    page.route("**/v1/approvals/*", lambda route: held.append(route))
    request(bench, "Write", {"file_path": str(bench.project / "made"), "content": "line\n" * 9000})
    expect(page.get_by_text("Reading the rest")).to_be_visible()
    button = page.locator(".diff button", has_text="Show all")
    with pytest.raises(Error, match="Timeout"):  # else it is taken, and forgotten when the rest comes
        button.click(trial=True, timeout=500)
    until(lambda: page.evaluate("1") and held, "that it reads the rest")
    held.pop().continue_()
    expect(page.get_by_text("Reading the rest")).to_have_count(0)
    page.get_by_role("button", name="Show all").click()
    expect(page.locator(".diff .part").last).to_contain_text("+line")


# ── the terminal ──

# Prints what its first argument says, and again for each 'q' that is typed; keeps what comes in a file.
_PROGRAM = """
import os, sys, tty
tty.setraw(0)
first, queries, kept = sys.argv[1:]
os.write(1, bytes.fromhex(first))
while data := os.read(0, 1 << 16):
    with open(kept, "ab") as file:
        file.write(data)
    if data == b"q":
        os.write(1, bytes.fromhex(queries) + b" asked")
"""
_HARM = (
    b"\x1b]52;c;aGFybQ==\x07\x1b]52;c;?\x07"  # the clipboard
    b"\x1b]8;;javascript:window.harm.push(1)\x1b\\script-link\x1b]8;;\x1b\\ "
    b"\x1b]8;;https://example.invalid/\x1b\\web-link\x1b]8;;\x1b\\ "
    b"\x1b]0;harm\x07\x1b]2;harm\x07\x1b[22;0t\x1b[5t\x1b[3;0;0t\x1b[8;9;9t"  # titles and windows
    b"\x1b[?2004h<img src=x onerror=window.harm.push(2)> \xe2\x80\xaertl ready"
)
_QUERIES = (
    b"\x1b[6n\x1b[c\x1b[>c\x1b[5n\x1b]10;?\x07\x1b]11;?\x07\x1bP$qm\x1b\\\x1b[?1$p\x1b[21t\x1b[18t\x1b[>q"
)


def test_program_in_the_terminal_reaches_neither_page_nor_clipboard_nor_keys(
    bench: PageBench, tmp_path: Path
) -> None:
    alone = bench.keep("alone", _raw(tmp_path / "alone"))
    bench.keep("watched", _raw(tmp_path / "watched"))
    page = bench.open(permissions=["clipboard-read", "clipboard-write"])
    page.evaluate("navigator.clipboard.writeText('mine')")
    page.goto(f"{bench.address}/#/session/kept:watched")
    expect(page.locator(".xterm-rows")).to_contain_text("ready")
    for name in ("script-link", "web-link"):
        link = page.locator(".xterm-rows span", has_text=name).first
        link.click(position={"x": 5, "y": 5}, force=True)  # what lies above takes the mouse of all cells
    assert page.evaluate("navigator.clipboard.readText()") == "mine"
    assert (page.title(), len(page.context.pages)) == ("Remuda", 1)
    check(page)
    take_control(page)
    page.keyboard.press("q")
    expect(page.locator(".xterm-rows")).to_contain_text("asked")
    Watcher(alone.hello()).press(b"q")
    until(lambda: _kept(tmp_path / "alone").endswith(b")\x1b\\"), "the answers of the keeper")
    # The page adds none of its own: an agent would take a second answer for keys.
    until(lambda: _kept(tmp_path / "watched").endswith(b")\x1b\\"), "the last answer")
    page.keyboard.press("z")
    until(lambda: _kept(tmp_path / "watched").endswith(b"z"), "the key")
    assert _kinds(_kept(tmp_path / "watched").removesuffix(b"z")) == _kinds(_kept(tmp_path / "alone"))


def _raw(kept: Path) -> list[str]:
    return [sys.executable, "-c", _PROGRAM, _HARM.hex(), _QUERIES.hex(), str(kept)]


def _kept(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _kinds(data: bytes) -> list[bytes]:
    """Each report without its numbers, in order."""
    return sorted(re.sub(rb"[\d;]+", b"", one) for one in data.split(b"\x1b"))


_PASTE = """(text) => {
  const clipboardData = new DataTransfer();
  clipboardData.setData('text/plain', text);
  const event = new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true });
  document.querySelector('.xterm textarea').dispatchEvent(event);
}"""


def test_pasted_text_is_data_also_with_the_end_of_a_paste_in_it(bench: PageBench, tmp_path: Path) -> None:
    bench.keep("work", _raw(tmp_path / "kept"))
    page = bench.open()
    page.goto(f"{bench.address}/#/session/kept:work")
    expect(page.locator(".xterm-rows")).to_contain_text("ready")
    page.evaluate(_PASTE, "not in control")
    take_control(page)
    page.evaluate(_PASTE, "one\x1b[201~\rrm -rf\x03 two")
    until(lambda: _kept(tmp_path / "kept").endswith(b"two\x1b[201~"), "the paste")
    assert _kept(tmp_path / "kept") == b"\x1b[200~one[201~\rrm -rf two\x1b[201~"
    page.evaluate(_PASTE, "\N{EURO SIGN}" * 400_000)
    expect(page.locator(".terminal .note")).to_contain_text("too long to paste")
    expect(page.locator(".terminal .state")).to_have_text("you type here")


def test_paste_during_a_repaint_is_marked_as_one(bench: PageBench, tmp_path: Path) -> None:
    # Else its lines would act as keys: the second one is sent as a prompt of its own.
    bench.keep("work", _raw(tmp_path / "kept"))
    page = bench.open()
    repaints: list[str | bytes] = []
    screens: list[str | bytes] = []

    def pass_on(here: WebSocketRoute) -> None:
        boss = here.connect_to_server()

        def hear(message: str | bytes) -> None:
            if isinstance(message, str) and '"repaint"' in message:
                repaints.append(message)
            if isinstance(message, bytes) and len(repaints) > 1:
                screens.append(message)  # the second repaint does not get its screen
            else:
                here.send(message)

        boss.on_message(hear)

    page.route_web_socket("**/terminal", pass_on)
    page.goto(f"{bench.address}/#/session/kept:work")
    expect(page.locator(".xterm-rows")).to_contain_text("ready")
    page.get_by_role("button", name="Take control").click()
    while not screens:
        page.wait_for_timeout(20)
    page.evaluate(_PASTE, "one\ntwo")
    until(lambda: _kept(tmp_path / "kept").endswith(b"two\x1b[201~"), "the paste")
