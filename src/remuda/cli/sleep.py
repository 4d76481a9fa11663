"""remuda sleep and remuda wake"""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from remuda.agents.state import State
from remuda.errors import SessionDead, SpawnFailed, WaitTimeout
from remuda.keeper.client import KeeperClient

from .common import connect_to, folder_option, json_option, session_argument
from .output import echo, print_json
from .redraw import ProgressLine

# Added to the grace between TERM and KILL.
_MARGIN = 15.0
_WAKE_TIMEOUT = 60.0


@click.command("sleep")
@session_argument
@folder_option
@json_option
def command(name: str, folder: Path | None, as_json: bool) -> None:
    """End the agent of an idle session until it is needed again.

    The session stays, with its last screen, its history and its inbox. A message, 'attach', a key in the page
    or 'remuda wake' starts its agent again, with the same conversation, model, permission mode and folder.

    If something could not be brought back, such as a shell in the background, nothing is done, and the error
    says what it is. 'start --sleep-after 30m' does this by itself. HOST/NAME is a session on another machine
    of your fleet.

    \b
    Examples:
      remuda sleep work
      remuda wake work
    """
    with connect_to(name, folder) as client:
        client.request("watch")
        client.request("sleep")
        with ProgressLine(after=1.0) as progress:
            progress.say(f"waiting until the agent of '{client.name}' has ended")
            _until_phase(client, ("asleep", "waking", "awake"), _MARGIN + 60.0)
        document = client.describe()
    _print(document, f"{client.name} is {document['state']}", as_json=as_json)


@click.command("wake")
@session_argument
@folder_option
@json_option
def wake_command(name: str, folder: Path | None, as_json: bool) -> None:
    """Start the agent of a session that is asleep, with its conversation.

    Returns when the agent is ready. A session that is awake stays as it is.

    \b
    Example:
      remuda wake work
    """
    with connect_to(name, folder) as client:
        before = client.request("watch")
        document = before
        if before["state"] == State.ASLEEP:
            tries = (before.get("sleep") or {}).get("wake_tries", 0)
            client.request("wake")
            with ProgressLine(after=1.0) as progress:
                progress.say(f"waking '{client.name}'")
                document = _until_awake(client, tries)
    _print(document, f"{client.name} is {document['state']}", as_json=as_json)


def _print(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json({key: document.get(key) for key in ("name", "state", "sleep")})
    else:
        echo(text)


def _until_phase(client: KeeperClient, phases: Collection[str], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while (client.describe().get("sleep") or {}).get("phase") not in phases:
        _wait(client, deadline, "has not fallen asleep")


def _until_awake(client: KeeperClient, tries: int) -> dict[str, Any]:
    """Return the status when the agent is ready. Raises why it could not be started."""
    deadline = time.monotonic() + _WAKE_TIMEOUT
    while True:
        document = client.describe()
        sleep = document.get("sleep") or {}
        if sleep.get("phase") == "awake":
            return document
        if sleep.get("wake_tries", 0) > tries:
            raise SpawnFailed(
                f"session '{client.name}' could not be woken: {sleep.get('wake_error')}",
                hint=f"it stays asleep with its messages; 'remuda logs {client.name} --keeper' says more",
            )
        _wait(client, deadline, "has not woken")


def _wait(client: KeeperClient, deadline: float, what: str) -> None:
    """Wait for the next event of the session."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise WaitTimeout(f"session '{client.name}' {what}")
    try:
        list(client.receive(min(left, 1.0)))
    except EOFError:
        raise SessionDead(f"session '{client.name}' has ended") from None
