"""What the dashboard draws, at three sizes. Nothing here asks a boss."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual.events import Key
from textual.pilot import Pilot

from remuda.cli.queue_keys import READ, SeenRequest, key_table
from remuda.errors import BossDown
from remuda.tui.app import DashApp
from remuda.tui.detail import conversation_text, evidence_text, messages_text, row_texts, screen_text
from remuda.tui.model import BossSnapshot, Row
from remuda.tui.widgets import AgentList, DetailView

SNAPSHOTS = Path(__file__).parent / "snapshots"
"""What is drawn, as text. `REMUDA_WRITE_SNAPSHOTS=1` writes them again: look at the difference."""
MINUTE = 60.0


def snapshot(**more: Any) -> BossSnapshot:
    """Two agents, one of which asks. Ages are at the beginning of their minute."""
    now = time.time()
    sessions: list[dict[str, Any]] = [
        {"id": "s1", "cwd": "/src/engine", "first_seen": 1.0, "ended": None},
        {"id": "s2", "cwd": "/src/lathe", "first_seen": 2.0, "ended": None, "since": now - 66 * MINUTE - 1}
        | {"agent_state": "thinking", "last_message": "I am on it"},
    ]
    request = {
        "id": "ask1",
        "session_id": "s1",
        "reason": "permission",
        "tool": "Bash",
        "state": "open",
        "input": {"command": "make release"},
        "asked_at": now - 2 * MINUTE - 1,
        "detail": {},
        "proof": None,
        "answer": None,
        "by": None,
        "delivered_at": None,
        **more,
    }
    item = {
        "id": "i1",
        "session_id": "s1",
        "reason": "permission",
        "since": now - 2 * MINUTE - 1,
        "message": "",
        "detail": {"ask": "ask1", "tool": "Bash"},
        "session": sessions[0],
    }
    return BossSnapshot([item], sessions, {"ask1": request}, now)


Steps = Callable[[DashApp, Pilot[None]], Awaitable[None]]


def play(size: tuple[int, int], steps: Steps, first: BossSnapshot | None = None) -> list[str]:
    """Return the screen as lines of text, after these steps."""

    async def run() -> list[str]:
        app = DashApp()
        async with app.run_test(size=size) as pilot:
            app.take(first or snapshot())
            await pilot.pause()
            await steps(app, pilot)
            await pilot.pause()
            strips = app.screen._compositor.render_strips()
            return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    return asyncio.run(run())


def draw(size: tuple[int, int], *keys: str, first: BossSnapshot | None = None) -> list[str]:
    async def press(_app: DashApp, pilot: Pilot[None]) -> None:
        await pilot.press(*keys)

    return play(size, press, first)


EDIT = {
    "tool": "Edit",
    "input": {"file_path": "/src/engine/main.py"},
    "detail": {"diff": "@@ -1,2 +1,2 @@\n import os\n-print(1)\n+print(2)\n"},
}
NAMES = {
    "list": ((), {}),
    "diff": ((), EDIT),
    "right": (("tab",), {}),
    "help": (("question_mark",), {}),
    "reply": (("R", "g", "o"), {}),
    "filter": (("slash", "l", "a", "t", "enter"), {}),
}


@pytest.mark.parametrize("size", [(50, 16), (80, 24), (120, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", NAMES)
def test_screen_is_as_in_its_snapshot(name: str, size: tuple[int, int]) -> None:
    keys, request = NAMES[name]
    lines = draw(size, *keys, first=snapshot(**request))
    assert len(lines) == size[1]
    assert all(cell_len(line) <= size[0] for line in lines)
    path = SNAPSHOTS / f"{name}-{size[0]}x{size[1]}.txt"
    if os.environ.get("REMUDA_WRITE_SNAPSHOTS"):
        path.write_text("\n".join(lines) + "\n")
    assert lines == path.read_text().splitlines()


def test_help_lists_every_key_of_the_shared_table() -> None:
    text = "\n".join(draw((80, 24), "question_mark"))
    for one in key_table():
        if one["action"] != "yes":
            assert one["label"] in text, one


def test_keys_below_fit_80_columns_whatever_is_marked() -> None:
    plain = BossSnapshot([], snapshot().sessions, {}, 1.0)
    for first in (snapshot(), snapshot(reason="question", input={"questions": [{}]}), plain, BossSnapshot()):
        assert draw((80, 24), first=first)[-1].startswith(" ? keys · q quit")
        assert "…" not in draw((80, 24), first=first)[-1]


def test_screen_of_20_by_5_and_back_has_the_whole_list_again() -> None:
    async def resize(_app: DashApp, pilot: Pilot[None]) -> None:
        await pilot.resize_terminal(20, 5)
        await pilot.pause()
        await pilot.resize_terminal(80, 24)

    assert play((80, 24), resize) == draw((80, 24))


def test_list_that_comes_before_the_first_layout_is_drawn_from_its_top() -> None:
    first = snapshot()
    others = [{**first.sessions[1], "id": f"more{number}"} for number in range(40)]

    async def run() -> tuple[float, str]:
        app = DashApp()
        app.board.take(BossSnapshot(first.items, [*first.sessions, *others], first.approvals, first.at))
        app.board.move(3)
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            shown = app.query_one(AgentList)
            return shown.scroll_offset.y, shown.lines[1].plain

    top, line = asyncio.run(run())
    assert (top, line.split()[:2]) == (0, ["1", "engine"])


def test_old_list_says_so_and_nothing_can_be_decided() -> None:
    async def lose(app: DashApp, pilot: Pilot[None]) -> None:
        app.take(BossDown("the boss has ended"))
        await pilot.press("a")

    lines = play((80, 24), lose)
    assert lines[0].startswith(" the boss has ended; what you see is from ")
    assert "nothing can be decided" in lines[-1]


def test_age_of_a_request_grows_while_nothing_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.tui.app._AGES", 0.05)
    monkeypatch.setattr("remuda.tui.right._REDRAW_INTERVAL", 0.0)

    async def wait(app: DashApp, pilot: Pilot[None]) -> None:
        while "1s ago" not in str(app.query_one(DetailView).lines[0]):
            await pilot.pause(0.05)

    lines = play((80, 24), wait, snapshot(asked_at=time.time()))
    assert re.search(r"permission ask1, \d*1s ago", lines[2])


def test_confirmation_that_comes_with_the_key_decides_nothing() -> None:
    async def paste(app: DashApp, pilot: Pilot[None]) -> None:
        app.board.reading = SeenRequest(itertools.count(0.0, READ).__next__)
        app.board.drawn(is_complete=True)
        pasted = Key("y", "y")
        await pilot.press("a")
        app.on_key(pasted)

    assert "nothing was decided: the keys came at once" in play((80, 24), paste)[-1]


def test_confirmation_after_another_note_decides_nothing() -> None:
    async def interrupt(app: DashApp, pilot: Pilot[None]) -> None:
        app.board.reading = SeenRequest(itertools.count(0.0, READ).__next__)
        app.board.drawn(is_complete=True)
        await pilot.press("a")
        app.say("lathe has ended")
        await pilot.press("y")

    assert play((80, 24), interrupt)[-1].startswith(" ? keys")


def test_request_in_a_narrow_terminal_is_shown_before_it_can_be_decided() -> None:
    lines = draw((50, 16), "a")
    assert any("make release" in line for line in lines)
    assert "this request is new" in lines[-1]


def test_long_request_is_cut_and_cannot_be_allowed() -> None:
    async def allow(app: DashApp, pilot: Pilot[None]) -> None:
        app.board.reading = SeenRequest(itertools.count(0.0, READ).__next__)
        app.board.drawn(is_complete=True)
        await pilot.press("a")

    lines = play((120, 40), allow, snapshot(input={"command": "x" * 5_000_000}))
    assert "too long to be shown here" in lines[-1]


def test_agent_that_is_gone_is_named() -> None:
    async def end(app: DashApp, pilot: Pilot[None]) -> None:
        app.take(BossSnapshot([], snapshot().sessions[1:], {}, 1.0))

    lines = play((80, 24), end)
    assert "engine has ended" in lines[-1]
    assert "lathe" in lines[2]


def test_reply_goes_to_the_agent_that_was_marked_when_it_was_begun() -> None:
    async def begin(app: DashApp, pilot: Pilot[None]) -> None:
        await pilot.press("R")
        app.take(BossSnapshot([], snapshot().sessions[1:], {}, 1.0))

    assert any("Reply to engine" in line for line in play((80, 24), begin))


def test_rows_of_wide_and_marked_characters_have_the_width_of_the_list() -> None:
    names = ("日本語" * 9, "e\u0301" * 40, "👩\u200d👩\u200d👧" * 9, "שלום" * 9, "plain")
    rows = [Row(name, name, {"agent_state": "idle"}) for name in names]
    assert {cell_len(text.plain) for text in row_texts(rows, 31)} == {31}


def test_long_names_keep_their_end_by_which_they_differ() -> None:
    names = [f"a-project-with-a-long-name {number:04}" for number in (1, 2)]
    rows = [Row(name, name, {"agent_state": "idle"}) for name in names]
    shown = [text.plain for text in row_texts(rows, 31)]
    assert ["0001" in shown[0], "0002" in shown[1]] == [True, True]
    assert {cell_len(text) for text in shown} == {31}


def test_long_note_ends_with_an_ellipsis() -> None:
    async def tell(app: DashApp, pilot: Pilot[None]) -> None:
        app.say(f"this agent runs in another terminal: in /src/{'deep/' * 20}engine")

    assert play((80, 24), tell)[-1].endswith("…")


# ── one agent ──


def test_messages_show_the_chain_and_what_is_missing_of_it() -> None:
    steps = [{"stage": "accepted", "at": 1.0}, {"stage": "written", "at": 2.0}]
    message = {
        "id": "m1",
        "prompt": "go\x1b[2J on",
        "steps": steps,
        "attempt": 2,
        "at": 1.0,
        "reason": "busy",
    }
    text = messages_text({"messages": [message], "held": "account at its limit"})
    assert "\x1b" not in text.plain
    assert "accepted → written → submitted → recorded\n  → ended" in text.plain
    assert "attempt 2" in text.plain
    assert "not delivered now: account at its limit" in text.plain
    colours = {text.plain[span.start : span.end]: str(span.style) for span in text.spans}
    assert (colours["written"], colours["submitted"]) == ("green", "dim")


def test_evidence_marks_the_source_that_decides() -> None:
    row = {"source": "hook", "state": "idle", "age": 3.0, "detail": "Stop", "decides": True, "counts": True}
    assert evidence_text({"evidence": [row]}).plain.startswith("● hook")
    assert "nothing is known" in evidence_text({"evidence": []}).plain


@pytest.mark.parametrize("kind", ["prompt", "answer", "thinking", "error", "notice", "tool_result"])
def test_conversation_of_hostile_text_is_printable_and_bounded(kind: str) -> None:
    entry = {"kind": kind, "text": "\x1b]0;x\x07" + "y" * 5_000_000, "ok": False, "diff": None}
    text = conversation_text({"entries": [entry], "note": None})
    assert not any(one in text.plain for one in "\x1b\x07")
    assert len(text.plain) < 100_000


def test_conversation_shows_a_call_with_its_input() -> None:
    entry = {"kind": "tool_call", "text": "", "tool": "Bash", "input": {"command": "ls"}}
    assert '▸ Bash {"command": "ls"}' in conversation_text({"entries": [entry]}).plain
    assert conversation_text({"entries": [], "note": "no transcript"}).plain == "no transcript"


def test_screen_that_is_the_last_one_says_why() -> None:
    text = screen_text(["bye"], "the session has ended with exit code 3")
    assert "bye" in text.plain
    assert "ended with exit code 3. This" in text.plain.replace("\n", " ")


def test_screen_of_a_hostile_pane_is_printable() -> None:
    text = screen_text(["a\x1b]0;x\x07b\x1b[2Jc\u202ed\te\x9b2J"])
    assert text.plain.isprintable()


def test_screen_keeps_colours_and_drops_blank_lines_at_its_end() -> None:
    text = screen_text(["\x1b[31mred\x1b[0m", "", "  "])
    assert text.plain.rstrip("\n") == "red"
    assert [str(span.style) for span in text.spans] == ["color(1)"]
