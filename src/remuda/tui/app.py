"""The dashboard's screen: a list on the left, one agent on the right, a line of keys below."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, TypeVar

from rich.text import Text
from textual import events, on
from textual.app import App, ComposeResult
from textual.containers import Horizontal

from remuda.boss.client import BossClient
from remuda.cli.common import configuration, find_folder
from remuda.cli.waiting import make_guide
from remuda.duration import show_moment
from remuda.errors import RemudaError
from remuda.untrusted import one_line

from .answer import Answers
from .feed import BossFeed, read_snapshot
from .keys import ACTIONS, SCROLLS, help_text, hint
from .model import BossSnapshot, Dashboard
from .prompt import Prompt
from .right import RightSide
from .terminal import TerminalDriver, end_without_terminal, is_gone
from .widgets import AgentList, Line

_NARROW, _WIDE = 60, 100
"""Columns below which list and agent are not shown together: never, or not while the right side is used."""
_AGES = 5.0
"""Seconds between redraws of ages."""

Result = TypeVar("Result")


class DashApp(App[None]):
    """Follows the boss with `feed`, and the marked agent with a feed of the view that is shown."""

    TITLE = "remuda"
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    #head { height: 1; padding: 0 1; text-style: reverse; }
    #head.old { background: ansi_red; color: ansi_bright_white; text-style: bold; }
    AgentList { height: 1fr; border-right: solid ansi_bright_black; }
    #views { height: 1; padding: 0 1; }
    DetailView { height: 1fr; padding: 0 0 0 1; }
    RightSide.active #views { text-style: bold; }
    #keys { height: 1; padding: 0 1; text-style: dim; }
    #keys.note { text-style: bold; }
    .right-only AgentList, .list-only RightSide { display: none; }
    .list-only AgentList { border: none; }
    """
    BINDINGS: ClassVar = []

    def __init__(self, feed: BossFeed | None = None) -> None:
        """Without a feed only `take` brings snapshots."""
        super().__init__(ansi_color=True, driver_class=TerminalDriver if feed is not None else None)
        self.board = Dashboard()
        self._feed = feed
        self._answers = Answers(self)
        self._acts = self._handlers()
        self._error: RemudaError | None = None
        self._in_detail = self._is_help = False
        self._columns = 80
        self._lock = threading.Lock()
        self._pending: dict[object, tuple[Any, ...]] = {}
        """Values for functions that the loop has not called yet."""
        self._head, self._keys = Line(id="head"), Line(id="keys")
        self._list = AgentList(self.board)
        self._right = RightSide(self.board, self.soon)
        self._prompt = Prompt()

    def compose(self) -> ComposeResult:
        yield self._head
        yield Horizontal(self._list, self._right)
        yield self._prompt
        yield self._keys

    def on_mount(self) -> None:
        if self._feed is not None:
            self._feed.listen(partial(self.soon, self.take))
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._terminated)
        # After Ctrl-Z and `fg` the terminal is empty.
        self.app_resume_signal.subscribe(self, lambda _app: self.refresh(layout=True))
        self.set_interval(_AGES, self._pass_time)

    def _terminated(self) -> None:
        self.exit(return_code=128 + signal.SIGTERM)

    def _pass_time(self) -> None:
        self._draw()
        if self._feed is not None and is_gone():
            end_without_terminal()

    def soon(self, function: Callable[..., object], *values: Any) -> None:
        """Call a function in the app's loop, from another thread. Nothing happens after the end.

        Values that the loop has not taken yet are replaced: it does not run while a session is attached.
        """
        with self._lock:
            is_first = function not in self._pending
            self._pending[function] = values
        if is_first and self._loop is not None and not self._loop.is_closed():
            # `call_later` runs it as a message of the app: only then Textual knows which app is drawn.
            self._loop.call_soon_threadsafe(self.call_later, self._call, function)

    def _call(self, function: Callable[..., object]) -> None:
        with self._lock:
            values = self._pending.pop(function)
        if self.is_running:
            function(*values)

    # ── what the boss reports ──

    def take(self, what: BossSnapshot | RemudaError) -> None:
        self._error = what if isinstance(what, RemudaError) else None
        if isinstance(what, BossSnapshot):
            request = self.board.request
            gone = self.board.take(what)
            if gone is not None and gone.key not in {str(one["id"]) for one in what.sessions}:
                self.say(f"{gone.label} has ended")
            if request is not None and request["id"] not in what.approvals:
                self._answers.say_who_decided(str(request["id"]))
            self._right.changed()
        self._draw()

    # ── drawing ──

    def on_resize(self, event: events.Resize) -> None:
        self._columns = event.size.width
        self._arrange()

    def _arrange(self) -> None:
        """Decide which sides are shown, and draw them."""
        uses_right, width = self._in_detail or self._right.instead is not None, self._columns
        self.set_class(uses_right and width < _WIDE, "right-only")
        self.set_class(not uses_right and width < _NARROW, "list-only")
        self._list.styles.width = "1fr" if width < _NARROW else max(30, min(48, width * 5 // 12))
        self._right.set_class(self._in_detail, "active")
        self._draw()

    def _draw(self) -> None:
        self._draw_list()
        self._right.draw(is_old=self._error is not None)

    def _draw_list(self) -> None:
        self._list.draw(is_old=self._error is not None)
        self._draw_head()
        if not self._keys.has_class("note"):
            self.say("")

    def _draw_head(self) -> None:
        board, at = self.board, self.board.snapshot.at
        waiting = len({one["session_id"] for one in board.snapshot.items})
        total = len(board.snapshot.sessions)
        text = f"remuda · {waiting} waiting · {total} agent{'s' if total != 1 else ''}"
        if board.filter:
            text += f" · {len(board.rows)} with '{one_line(board.filter)}'"
        if self.has_class("right-only") and board.marked is not None:
            text += f" · {board.marked.label}"
        if self._error is not None:
            old = f"what you see is from {show_moment(at, at)}" if at else "nothing is known"
            text = f"{one_line(str(self._error.message))}; {old}; trying again"
        self._head.set_class(self._error is not None, "old")
        self._head.show(Text(text))

    # ── keys ──

    def on_key(self, event: events.Key) -> None:
        if self._prompt.is_open:
            self._prompt.key(event)
            return
        event.prevent_default()
        event.stop()
        key = event.character if event.character and event.character.isprintable() else event.key
        if self._answers.asks:
            self._answers.confirm(key, event.time)
            return
        self.say("")
        action = ACTIONS.get(key, "")
        if self._is_help and action not in SCROLLS:
            self._show_help(False)
        elif key.isdecimal() and 0 < int(key) <= len(self.board.rows):
            self._mark(int(key) - 1)
            self._go()
        elif action in self._acts:
            self._acts[action]()

    def _handlers(self) -> dict[str, Callable[[], object]]:
        answers = self._answers
        return {
            "down": partial(self._step, 1),
            "up": partial(self._step, -1),
            "page_down": partial(self._step, 10),
            "page_up": partial(self._step, -10),
            "first": lambda: self._mark(0),
            "last": lambda: self._mark(len(self.board.rows) - 1),
            "scroll_down": lambda: self._right.scroll_by(3),
            "scroll_up": lambda: self._right.scroll_by(-3),
            "next_view": partial(self._turn, 1),
            "previous_view": partial(self._turn, -1),
            "focus": lambda: self._set_focus(not self._in_detail),
            "allow": partial(answers.decide, "allow"),
            "deny": partial(answers.decide, "deny"),
            "edit": answers.edit,
            "reply": answers.reply,
            "skip": partial(answers.put_off, "skip"),
            "snooze": partial(answers.put_off, "snooze"),
            "dismiss": partial(answers.put_off, "dismiss"),
            "filter": self._filter,
            "escape": self._escape,
            "go": self._go,
            "refresh": self._refresh,
            "help": partial(self._show_help, True),
            "suspend": self.action_suspend_process,
            "quit": self.exit,
        }

    def _step(self, by: int) -> None:
        if self._in_detail or self._is_help:
            self._right.scroll_by(by)
        else:
            self._mark(self.board.at + by)

    @on(AgentList.Clicked)
    def _clicked(self, event: AgentList.Clicked) -> None:
        self._mark(event.number)

    def _mark(self, number: int) -> None:
        self.board.move(number - self.board.at)
        self._draw()

    def _turn(self, by: int) -> None:
        self._right.turn(by)
        self._draw()

    def show_request(self) -> None:
        """Show what would be decided, wherever the user is."""
        self._right.view = "request"
        self._set_focus(self._in_detail or self.has_class("list-only"))

    def _set_focus(self, in_detail: bool) -> None:
        self._in_detail = in_detail
        self._arrange()

    def _escape(self) -> None:
        self._in_detail = False
        self._search("")
        self._arrange()

    def _show_help(self, is_help: bool) -> None:
        self._is_help, self._right.instead = is_help, help_text() if is_help else None
        self._arrange()

    def _refresh(self) -> None:
        local = self._feed is not None and self._feed.local

        def read() -> None:
            try:
                self.soon(self.take, read_snapshot(BossClient(), local=local))
            except RemudaError as error:
                self.soon(self.take, error)

        threading.Thread(target=read, name="refresh", daemon=True).start()

    def say(self, note: str) -> None:
        """Show a note in place of the keys; the keys again if it is empty. It replaces a question."""
        self._answers.forget()
        self._keys.set_class(bool(note), "note")
        if self._prompt.is_open:
            usual = "Enter: done · Esc: cancel"
        elif self._is_help:
            usual = "j k: scroll · any other key: back"
        else:
            usual = f"q quit · {self._error.hint}" if self._error and self._error.hint else hint(self.board)
        self._keys.show(Text(one_line(note) or usual))

    def why_not(self, behavior: str) -> str:
        """Return why the marked request cannot be decided now; empty if it can."""
        if self._error is not None:
            return "the boss cannot be reached, so nothing can be decided"
        return self.board.why_not(behavior, self._right.hidden)

    # ── typing ──

    def open_line(self, title: str, take: Callable[[str], object], above: Text | None = None) -> None:
        """Let the user type a line; `above` is shown on the right until then. Esc ends it without a call."""
        self._prompt.open(title, take)
        self._right.instead = above
        self._arrange()

    def _filter(self) -> None:
        self._prompt.open("Filter", self._search, self.board.filter, is_live=True)

    @on(Prompt.Closed)
    def _line_closed(self) -> None:
        if not self._prompt.is_open:  # the next question may have opened it again
            self._right.instead = None
            self._arrange()

    def _search(self, text: str) -> None:
        self.board.search(text)
        self._draw()

    # ── going there ──

    def outside(self, function: Callable[[], Result]) -> Result | None:
        """Give the terminal to a function, and come back. Says why it failed, and returns None then."""
        with self.suspend():
            try:
                return function()
            except (RemudaError, OSError) as error:  # here: `suspend` would not come back
                note = str(error)
        self.say(note)
        return None

    def _go(self) -> None:
        row = self.board.marked
        if row is None:
            return
        name = row.session.get("name")
        if name and not row.session.get("ended"):
            from remuda.cli.attach import attach_here  # 11 ms of the first drawing

            config = configuration(strict=False)
            host = row.session.get("host")
            folder = find_folder(None, config) if host is None else None
            self.outside(lambda: attach_here(str(name), folder, config, host=host))
        elif row.session.get("host"):
            self.say(f"its terminal is on {row.session['host']}, and not kept there")
        else:
            try:
                make_guide().go_to({**(row.item or {}), "session_id": row.key, "session": row.session})
            except (RemudaError, OSError) as error:
                self.say(str(error))
        self._refresh()
