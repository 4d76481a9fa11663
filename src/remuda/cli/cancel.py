"""remuda cancel"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from remuda.boss.elsewhere import cancel_sent, find_sent
from remuda.errors import (
    EXIT_CODES,
    BossDown,
    InvalidOptions,
    MessageNotFound,
    NotSafe,
    SessionDead,
)
from remuda.inbox.catalog import Listed, list_messages
from remuda.inbox.receipts import Trace
from remuda.keeper.cancel import DEFAULT_CANCEL_TIMEOUT, Cancelled, Fate, cancel_message, cancel_turn
from remuda.keeper.elsewhere import split_host

from .common import folder_option, json_option, time_span
from .inbox_target import InboxTarget, complete_any, find_what, session_of
from .messages_elsewhere import cancel_elsewhere
from .output import echo, print_json, style
from .redraw import ProgressLine

_WORDS = {
    Fate.TAKEN_BACK: "cancelled before the agent saw it",
    Fate.NOT_RETRIED: "cancelled: it had failed, and will not be tried again",
    Fate.INTERRUPTED: "turn interrupted",
    Fate.ANSWERED: "already answered",
    Fate.ENDED: "already ended",
}
_DONE = (Fate.TAKEN_BACK, Fate.NOT_RETRIED, Fate.INTERRUPTED)
_NAMED = 5


@click.command("cancel")
@click.argument("what", metavar="NAME|ID", shell_complete=complete_any)
@click.option("--all", "everything", is_flag=True, help="With NAME: also cancel all waiting messages.")
@click.option(
    "--timeout",
    type=time_span,
    default=f"{DEFAULT_CANCEL_TIMEOUT:.0f}",
    show_default=True,
    metavar="TIME",
    help="Stop waiting for the end of a turn after TIME.",
)
@click.option("--inbox", "path", type=click.Path(path_type=Path), help="Search this inbox for the message.")
@folder_option
@json_option
def command(
    what: str, everything: bool, timeout: float, path: Path | None, folder: Path | None, as_json: bool
) -> int:
    """Cancel a waiting message, or interrupt the running turn.

    With an ID: drop a message that is waiting; if the agent has it, interrupt its turn with the agent's own
    key. With a NAME: interrupt the session's running turn, also one that was typed at the terminal; if no
    turn is running, cancel the waiting message, if there is only one. The beginning of an ID or a NAME is
    enough.

    Exits with 8 if it was too late, and with 3 if there was nothing to cancel.

    \b
    Examples:
      remuda cancel work
      remuda cancel m19a8c27f3b1
      remuda cancel work --all
      remuda cancel build7/work
    """
    with ProgressLine() as progress:
        progress.say("waiting until the turn has stopped")
        host, what = split_host(what) if path is None and folder is None else (None, what)
        target = None if host is not None else _find(what, path, folder)
        if host is not None:
            done = cancel_elsewhere(host, what, timeout, everything=everything)
        elif isinstance(target, InboxTarget):
            done = _in_session(target, timeout, everything=everything)
        elif everything:
            raise InvalidOptions(f"--all needs the name of a session, and '{what}' is a message")
        elif isinstance(target, dict):
            done = [cancel_sent(target, timeout)]
        else:
            assert isinstance(target, Trace)
            done = [cancel_message(target.folder, target.id, session_of(target.folder), timeout)]
    if as_json:
        print_json([one.document() for one in done] if everything else done[0].document() if done else None)
    else:
        for one in done:
            echo(_line(one))
        if not done:
            echo(f"nothing to cancel in session '{what}'")
    return _exit_code(done)


def _find(what: str, path: Path | None, folder: Path | None) -> InboxTarget | Trace | dict[str, Any]:
    """Return a session or message here, or the receipt of a message that was sent to another host."""
    try:
        return find_what(what, path, folder)
    except MessageNotFound:
        try:
            return find_sent(what)
        except (MessageNotFound, BossDown):
            pass
        raise


def _line(one: Cancelled) -> str:
    words = style(_WORDS[one.fate], fg="green" if one.fate in _DONE else "yellow")
    more = f" ({one.reason})" if one.fate is Fate.ENDED and one.reason else ""
    return f"{one.message}: {words}{more}" if one.message else words


def _exit_code(done: list[Cancelled]) -> int:
    if not done:
        return EXIT_CODES["NO_SESSION"]
    return EXIT_CODES["OK" if any(one.fate in _DONE for one in done) else "REFUSED"]


def _in_session(session: InboxTarget, timeout: float, *, everything: bool) -> list[Cancelled]:
    assert session.session is not None
    paths = session_of(session.folder)
    waiting = [one for one in list_messages(session.folder) if not one.ended]
    if everything:
        # The waiting messages first: else the next would start while the turn is interrupted.
        done = [cancel_message(one.folder, one.id, paths, timeout) for one in reversed(waiting)][::-1]
        stopped = _running(session, timeout, or_else=bool(waiting))
        return [*done, *([stopped] if stopped is not None else [])]
    stopped = _running(session, timeout, or_else=bool(waiting))
    if stopped is not None:
        return [stopped]
    if len(waiting) > 1:
        raise InvalidOptions(
            f"no turn is running, and {len(waiting)} messages are waiting", hint=_which(waiting)
        )
    return [cancel_message(one.folder, one.id, paths, timeout) for one in waiting]


def _running(session: InboxTarget, timeout: float, *, or_else: bool) -> Cancelled | None:
    """Interrupt the running turn. `or_else`: return None if that is not safe; there is more to cancel."""
    assert session.session is not None
    if not session.alive:
        return None
    try:
        return cancel_turn(session.session, session.folder.parent, timeout)
    except SessionDead:
        return None
    except NotSafe:
        if not or_else:
            raise
        return None


def _which(waiting: list[Listed]) -> str:
    names = ", ".join(one.id for one in waiting[:_NAMED]) + (", …" if len(waiting) > _NAMED else "")
    return f"give the id of one, or --all: {names}"
