"""remuda receipt"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import click

from remuda.duration import show_duration
from remuda.errors import MessageDead, RemudaError
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import Trace, find, follow
from remuda.inbox.stop_hook import number
from remuda.keeper.claim import read_holder
from remuda.oneshot.output import without_halves

from .common import find_folder, folder_option, json_option, print_json
from .inbox_target import find_target, session_of, shown
from .progress import Progress

_COLOURS = {"acked": "green", "dead": "red", "expired": "red", "dropped": "red", "nacked": "yellow"}
_TOLD = ("id", "stage", "at", "attempt", "reported", "reported_characters", "usage", "due", "expires")


@click.command("receipt")
@click.argument("message_id", metavar="ID")
@click.option(
    "--inbox", "path", type=click.Path(path_type=Path), help="Look in this inbox, not in the sessions'."
)
@folder_option
@json_option
def command(message_id: str, path: Path | None, folder: Path | None, as_json: bool) -> None:
    """Say what became of a message: every step it took, and the answer.

    accepted (on the disk) → written (typed, or given as argument) → submitted (the agent said so) → recorded
    (in its transcript) → ended → acked; or nacked and tried again, or dead with the reason.

    \b
    Examples:
      remuda receipt m19a8c27f3b1-0d4be1f6a2
      remuda receipt m19a8c27f3b1-0d4be1f6a2 --json | jq -r .answer.text
    """
    found = find(message_id, inbox_folders(path, folder))
    if as_json:
        print_json(found.document())
        return
    show_trace(found)


def inbox_folders(path: Path | None, folder: Path | None) -> list[Path]:
    """The inbox that was named, or those of all sessions."""
    if path is not None:
        return [find_target(None, path, folder).folder]
    return sorted(find_folder(folder).glob("*.inbox"))


def show_trace(found: Trace) -> None:
    for step in found.steps:
        stage = str(step["stage"])
        at = number(step.get("at"))
        age = f"{show_duration(time.time() - at):>7} ago" if at else " " * 11
        click.echo(
            f"{click.style(f'{stage:<10}', fg=_COLOURS.get(stage))} {age}  {shown(_facts(step))}".rstrip()
        )
    if found.answer is not None and found.answer.get("text"):
        click.echo(f"\n{shown(str(found.answer['text']))}")


def _facts(step: dict[str, Any]) -> str:
    facts = [f"attempt {step['attempt']}"] if number(step.get("attempt")) > 1 else []
    if due := number(step.get("due")):
        facts.append(f"again in {show_duration(max(0.0, due - time.time()))}")
    facts += [f"{key}={value}" for key, value in step.items() if key not in _TOLD and value not in (None, "")]
    return ", ".join(facts)


def held(name: str) -> str:
    return f"it is held: '{name}' has ended; 'remuda start {name} --resume' brings it back"


class _Attendant:
    """While somebody waits for what nobody delivers: says so, and bounces it when its time is up."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self._folder = folder
        self._progress = progress
        self._session = session_of(folder)
        self._said = False

    def __call__(self, found: Trace) -> None:
        if self._session is not None:
            gone = read_holder(self._session) is None
            if gone and not self._said:
                self._progress.tell(held(self._session.name))
            self._said = gone  # said again when it came back and ended once more
        expires = number(found.steps[0].get("expires"))
        if expires and time.time() >= expires:
            with contextlib.suppress(OSError, RemudaError):  # it may not be ours to change
                Inbox(self._folder).expire(found.id)


def wait_for_end(message: str, folders: list[Path], timeout: float | None, *, as_json: bool) -> int:
    """Follow a message to its end and print the answer. Raises `MessageDead` and `WaitTimeout`."""
    found = find(message, folders)
    folder = found.folder
    with Progress() as progress:
        for found in follow(folder, message, timeout, _Attendant(folder, progress)):
            progress.say(f"{message}: {found.stage}")
    if as_json:
        print_json(found.document())
    if found.stage != "acked":
        raise MessageDead(
            f"message {message} was not answered: {found.stage}, {shown(found.reason) or 'no reason given'}",
            hint=f"'remuda receipt {message}' shows its way",
        )
    if not as_json:
        _show_answer(str((found.answer or {}).get("text") or ""))
    return 0


def _show_answer(text: str) -> None:
    """As `print` does: whole to a file or a pipe, and nothing that drives a terminal to a terminal."""
    if sys.stdout is not None and sys.stdout.isatty():
        from remuda.oneshot.emit import without_control

        text = without_control(text)
    click.echo(without_halves(text).encode())  # of a text it would leave something out
