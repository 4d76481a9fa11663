"""remuda popup"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Self

import click

from remuda.boss.client import BossClient, ChangeStream
from remuda.boss.navigator import Item, QueueNavigator, labels, own_command, reason
from remuda.duration import show_duration
from remuda.errors import NotATerminal, NoTmuxClient, RemudaError, TmuxTooOld
from remuda.tmux.bindings import popup_words

from .output import echo, ours, unstyled
from .permission_request import ANSWER_TIMEOUT, Approval, hidden_reason, open_approvals, request_lines
from .picker import Picker, PickerRow
from .queue import what, where
from .queue_keys import PUT_OFF
from .queue_steps import attach_to, is_kept
from .waiting import make_guide

_LOOK_INTERVAL = 2.0
"""Seconds between redraws, for the times that are shown, and between attempts to reach an ended boss."""
_SHORTEST = 0.5
"""Seconds that a picture stays unless a key is pressed: every hook of every agent is a change."""
_DECIDABLE = ("permission", "plan")
"""Reasons to wait that need only a yes or a no."""
_ANSWERS = {"allow": "allowed", "deny": "denied"}


@click.command("popup")
@click.option("--client", metavar="NAME", help="tmux client to show it on.  [default: yours]")
@click.option("--inside", is_flag=True, help="Show the list in this terminal.")
def command(client: str | None, inside: bool) -> int | None:
    """Choose from the queue in a popup over your tmux client: go to an agent, or answer at once.

    A permission request is shown from its beginning. 'n' then 'y' denies it. 'a' then 'y' allows it, if
    the complete request fits on the screen.

    Needs tmux 3.2; an older tmux opens a window instead of a popup. Outside tmux, shows the list in this
    terminal; Enter attaches a session of 'remuda start' here. 'remuda dash' shows more, and can reply.

    \b
    Examples:
      remuda popup
      remuda popup --inside          the same list, in this terminal
    """
    guide = make_guide(client)
    if inside or (client is None and not guide.is_inside):
        return choose(guide)
    open_popup(guide)
    return None


def open_popup(guide: QueueNavigator) -> None:
    """Open a popup, and return when it is closed."""
    view = guide.view(guide.here)
    if view is None:
        raise NoTmuxClient(
            "no tmux server is running that could show a popup", hint="use 'remuda queue -i' instead"
        )
    who = guide.chosen(view)
    program = [*own_command(guide.env), "popup", "--inside", "--client", who.name]
    tmux = guide.tmux(guide.here)
    try:
        words = popup_words(who.name, program, view.snapshot.version, title="waiting for you")
    except TmuxTooOld:
        tmux.command("new-window", "-t", f"{who.session_id}:", "-n", "waiting", "--", *program)
        return
    tmux.command(*words, timeout=None)


# ── inside ──


def choose(guide: QueueNavigator) -> int | None:
    item = _chosen(guide)
    return attach_to(item) if item is not None else None


def _chosen(guide: QueueNavigator) -> Item | None:
    """Show the list until the user leaves it. Return the item to attach to this terminal, if any."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise NotATerminal(
            "the interactive list needs a terminal", hint="in a script use 'remuda queue --json'"
        )
    keys = _Keys()
    with _Changes() as changes:
        picker = Picker(_rows(guide))
        with _raw():
            while True:
                _show(picker)
                key = keys.next(changes)
                if key and picker.asks:  # the terminal may be smaller now; a yes is for what it shows
                    _show(picker)
                done = picker.press(key) if key else "refresh"
                if picker.asks:
                    keys.drop()
                item = picker.marked
                if done == "go" and item is not None and is_kept(item) and not guide.may_move(guide.here):
                    return item
                if done == "quit" or (done and _carry_out(guide, picker, done)):
                    return None


def _rows(guide: QueueNavigator) -> list[PickerRow]:
    items = guide.queue.waiting()
    asks = any(item["reason"] in _DECIDABLE for item in items)
    requests = {one["id"]: one for one in open_approvals(BossClient(), hosts=True)} if asks else {}
    named = zip(labels(items), items, strict=True)
    return [
        _row(item, _line(guide, who, item), requests.get((item.get("detail") or {}).get("ask")))
        for who, item in named
    ]


def _row(item: Item, line: str, request: Approval | None) -> PickerRow:
    if request is None or item["reason"] not in _DECIDABLE:
        return PickerRow(item, line, _body(item))
    body = unstyled("\n".join(request_lines(request, item.get("session"))))
    return PickerRow(item, line, body, str(request["id"]), hidden_reason(request))


def _line(guide: QueueNavigator, who: str, item: Item) -> str:
    since = show_duration(time.time() - item["since"])
    return f"{who:<16.16} {reason(item):<20.20} {since:>6}  {where(guide, item):<12} {what(item)}"


def _body(item: Item) -> str:
    """Return what the agent asks, and its last message."""
    asked = what(item) if item["reason"] != "stopped" else ""
    message = str(item["message"])
    return message if asked in message else f"{message}\n\n{asked}"


def _carry_out(guide: QueueNavigator, picker: Picker, what_to_do: str) -> bool:
    """Carry out an action. Return whether to close the list."""
    item = picker.marked
    try:
        if item is not None and what_to_do == "go":
            guide.go_to(item)
            return True
        if what_to_do in _ANSWERS:
            body = {"by": "popup", "behavior": what_to_do}
            picker.note = "sending the decision …"
            _show(picker)
            BossClient().post("approvals", picker.request, "answer", body=body, timeout=ANSWER_TIMEOUT)
            picker.say(_ANSWERS[what_to_do])
        if item is not None and what_to_do in PUT_OFF:
            BossClient().post("queue", str(item["id"]), what_to_do, body=PUT_OFF[what_to_do])
            picker.note = ""
        guide.look_again()
        picker.replace(_rows(guide))
    except RemudaError as error:
        if what_to_do == "refresh":
            picker.fail("")
            picker.trouble = str(error)
        else:
            picker.fail(str(error))
    return False


def _show(picker: Picker) -> None:
    cols, rows = os.get_terminal_size(sys.stdout.fileno())  # whatever the environment says
    lines = picker.draw(cols, rows)
    drawn = ours("\x1b[H") + ours("\x1b[K\r\n").join(lines) + ours("\x1b[K\x1b[J")
    echo(drawn, nl=False, coloured=True)


class _Changes:
    """Waits for changes of the boss, and reconnects to one that ended."""

    def __init__(self) -> None:
        self._news: ChangeStream | None = None

    def __enter__(self) -> Self:
        self._news = BossClient().changes()
        return self

    def __exit__(self, *_: object) -> None:
        changes, self._news = self._news, None
        if changes is not None:
            changes.__exit__()

    def key_waits(self) -> bool:
        """Wait for a key or a change. Return whether a key was pressed."""
        try:
            if self._news is None:
                self._news = BossClient().changes()
                return _is_readable(sys.stdin, within=0.0)
            ready, _, _ = select.select([sys.stdin, self._news], [], [], _LOOK_INTERVAL)
            # Changes that come together are shown together.
            if sys.stdin not in ready and self._news.wait(0.0):
                return _is_readable(sys.stdin, within=_SHORTEST)
        except RemudaError:
            self.__exit__()
            return _is_readable(sys.stdin, within=_LOOK_INTERVAL)
        return sys.stdin in ready


def _is_readable(file: IO[str], within: float) -> bool:
    return bool(select.select([file], [], [], within)[0])


class _Keys:
    """Splits input into keys: several may come at once, and an arrow is three characters."""

    def __init__(self) -> None:
        self._typed = ""

    def drop(self) -> None:
        """Drop what was typed so far: it was not meant for what is shown next."""
        import termios

        self._typed = ""
        termios.tcflush(sys.stdin, termios.TCIFLUSH)

    def next(self, changes: _Changes) -> str:
        """Return one key, or an empty string if the list changed."""
        if not self._typed:
            if not changes.key_waits():
                return ""
            # A terminal that is gone is left.
            self._typed = os.read(sys.stdin.fileno(), 1024).decode(errors="replace") or "q"
        size = 3 if self._typed.startswith(("\x1b[", "\x1bO")) else 1
        key, self._typed = self._typed[:size], self._typed[size:]
        return key


@contextmanager
def _raw() -> Iterator[None]:
    import termios
    import tty

    saved = termios.tcgetattr(sys.stdin)
    echo(ours("\x1b[?1049h\x1b[?25l"), nl=False)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved)
        echo(ours("\x1b[?25h\x1b[?1049l"), nl=False)
