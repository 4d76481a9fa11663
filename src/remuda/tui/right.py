"""The right side: what the marked agent asks, its screen, its conversation, its messages, its evidence."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical

from remuda.boss.client import BossClient
from remuda.cli.common import find_folder
from remuda.errors import RemudaError
from remuda.untrusted import one_line

from . import detail
from .feed import AgentFeed, ScreenFeed, ViewFeed
from .model import Dashboard, Document, Row
from .widgets import DetailView, Line

VIEWS = ("request", "screen", "conversation", "messages", "evidence")
_PANE_INTERVAL = 2.0
"""Seconds between two reads of a tmux pane, which reports no changes. Only while its screen is shown."""
_REDRAW_INTERVAL = 5.0
"""Seconds after which a request that has not changed is drawn again, for its age."""
_NO_AGENTS = "Start an agent with 'remuda start NAME --agent claude'."


class RightSide(Vertical):
    """Shows one view of the marked agent, and follows it in a thread if it is not part of the snapshot."""

    def __init__(self, board: Dashboard, soon: Callable[..., None]) -> None:
        """`soon` calls a function in the app's loop, from another thread."""
        super().__init__()
        self.view = "request"
        self.instead: Text | None = None
        """Shown in place of the view: the help, or the question that is being answered."""
        self.hidden = ""
        """Why the request on the screen is not complete."""
        self._board = board
        self._soon = soon
        self._source: tuple[object, ...] = ()
        """What is followed: view, agent, and for a screen the process."""
        self._feed: AgentFeed | None = None

        self._wanted: tuple[object, ...] = ()
        self._drawn: tuple[object, ...] = ()
        self._redraw_at = 0.0
        self._names, self._detail = Line(id="views"), DetailView()

    def compose(self) -> ComposeResult:
        yield self._names
        yield self._detail

    def on_unmount(self) -> None:
        self._follow((), None)

    def turn(self, by: int) -> None:
        """Go to another view."""
        self.view = VIEWS[(VIEWS.index(self.view) + by) % len(VIEWS)]

    def scroll_by(self, lines: int) -> None:
        self._detail.scroll_by(lines)

    def changed(self) -> None:
        """The boss has reported a change of some agent."""
        if self._feed is not None:
            self._feed.changed()

    def draw(self, *, is_old: bool) -> None:
        row = self._board.marked
        view = self.view if row is not None else "request"
        self._names.show(Text(" ").join(Text(one, "reverse" if one == view else "dim") for one in VIEWS))
        if self.instead is not None:
            self._detail.show(self.instead, self.instead)
        elif row is None:
            self._detail.show(Text("" if self._board.filter else _NO_AGENTS, "dim"), None)
        elif view == "request":
            self._draw_request(row, is_old=is_old)
        is_read = self.instead is None and row is not None and view != "request"
        self._follow(_source(row, view) if is_read and row is not None else (), row)

    def _draw_request(self, row: Row, *, is_old: bool) -> None:
        row = row._replace(item=self._board.item)
        request = self._board.request
        self._read_missing()
        subject, drawn = request["id"] if request is not None else row.key, (row, request, is_old)
        # A change of another agent changes nothing here, except the time that has passed.
        if self._detail.subject != subject or drawn != self._drawn or time.monotonic() > self._redraw_at:
            text, self.hidden = detail.request_text(row, request)
            text.stylize("dim" if is_old else "")
            self._detail.show(text, subject)
            self._drawn, self._redraw_at = drawn, time.monotonic() + _REDRAW_INTERVAL
        self._note_read()

    def _read_missing(self) -> None:
        """Read a request that is too long for the list, once for each change of it."""
        missing, wanted = self._board.missing, (self._board.missing, self._board.marked)
        if missing is None or wanted == self._wanted:
            return
        self._wanted = wanted

        def read() -> None:
            with contextlib.suppress(RemudaError):  # the list will say
                self._soon(self._take_whole, BossClient().get(*missing))

        threading.Thread(target=read, name="request", daemon=True).start()

    def _take_whole(self, one: Document) -> None:
        self._board.whole[str(one["id"])] = one
        self._redraw_at = 0.0
        self.draw(is_old=bool(self._drawn and self._drawn[-1]))

    @on(DetailView.Moved)
    def _note_read(self) -> None:
        """Tell the model what of a request is on the screen."""
        is_shown = self.view == "request" and self.instead is None and self._detail.is_laid_out
        if is_shown and self._board.request is not None:
            self._board.drawn(is_complete=self._detail.is_at_end)

    # ── views that are read ──

    def _follow(self, source: tuple[object, ...], row: Row | None) -> None:
        if source == self._source:
            return
        if self._feed is not None:
            self._feed.stop()
        self._source, self._feed = source, None
        if not source or row is None:
            return
        if source[:2] != self._detail.subject:
            self._detail.show(Text("reading …", "dim"), source[:2])
        view, key, is_screen = self.view, row.key, self.view == "screen"
        show = partial(self._show, source)  # one for each feed: a late call of another feed does not set it
        if is_screen and row.session.get("name") and not row.session.get("ended"):
            self._feed = ScreenFeed(
                str(row.session["name"]),
                find_folder(None),
                lambda lines, note: self._soon(show, detail.screen_text(lines, note)),
                lambda: _read_screen(key),
                row.session.get("host"),
            )
        else:
            self._feed = ViewFeed(
                lambda: self._soon(show, _read_view(view, key)), _PANE_INTERVAL if is_screen else None
            )

    def _show(self, source: tuple[object, ...], text: Text) -> None:
        if source == self._source:
            self._detail.show(text, source[:2], follows=self.view in ("screen", "conversation"))


def _source(row: Row, view: str) -> tuple[object, ...]:
    """Return what identifies the shown session; a restarted one has another process."""
    process = (row.session.get("pid"), row.session.get("ended")) if view == "screen" else ()
    return view, row.key, *process


def _read_view(view: str, key: str) -> Text:
    """Read a view of an agent from the boss."""
    boss = BossClient()
    try:
        match view:
            case "screen":
                return detail.screen_text(_read_screen(key))
            case "conversation":
                return detail.conversation_text(boss.get("sessions", key, "conversation", limit=50))
            case "messages":
                return detail.messages_text(boss.get("sessions", key, "messages", limit=20))
        return detail.evidence_text(boss.get("sessions", key))
    except RemudaError as error:
        return Text(one_line(str(error)), "yellow")


def _read_screen(key: str) -> list[str]:
    lines: list[str] = BossClient().get("sessions", key, "screen", styled=True)["lines"]
    return lines
