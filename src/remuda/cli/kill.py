"""remuda kill"""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from remuda.errors import (
    InvalidOptions,
    RemudaError,
    SessionDead,
    SessionNotFound,
    SessionUnreachable,
    WaitTimeout,
)
from remuda.keeper.claim import live_names, read_holder
from remuda.keeper.client import KeeperClient
from remuda.paths import SessionPaths
from remuda.wire.connection import ClientConnection

from .common import complain, complete_session, find_folder, folder_option, seconds

# Beyond its grace: for the KILL, the last output, and slow watchers.
_MARGIN = 15.0


@click.command("kill")
@click.argument("names", nargs=-1, shell_complete=complete_session)
@click.option("--all", "everyone", is_flag=True, help="Every session of the folder.")
@click.option(
    "--grace", type=seconds, metavar="SECONDS", help="Time between TERM and KILL.  [default: the session's]"
)
@folder_option
def command(names: tuple[str, ...], everyone: bool, grace: float | None, folder: Path | None) -> int:
    """End sessions: the program and everything it started, for sure.

    TERM first, then, after a grace, KILL to whoever is left. Returns when they are gone. Of several, those
    that can be ended are, whatever is wrong with the others.

    \b
    Examples:
      remuda kill work
      remuda kill --grace 0 stuck
      remuda kill --all
    """
    where = find_folder(folder)
    if not names and not everyone:
        raise InvalidOptions("no session was named", hint="name at least one, or give --all")
    if names and everyone:
        raise InvalidOptions("names and --all together", hint="give one or the other")
    chosen = list(live_names(where)) if everyone else list(dict.fromkeys(names))
    if not chosen:
        click.echo("no sessions")
    return _end_all(chosen, where, grace, gone_is_fine=everyone)


def _end_all(names: list[str], folder: Path, grace: float | None, *, gone_is_fine: bool) -> int:
    """All are told first, then waited for: their graces run side by side."""
    failed: list[RemudaError] = []
    with contextlib.ExitStack() as stack:
        told: list[tuple[KeeperClient, float]] = []
        for name in names:
            try:
                client = stack.enter_context(KeeperClient.connect(name, folder))
                told.append((client, _tell(client, grace)))
            except SessionUnreachable as error:
                failed.append(_with_pid(error, SessionPaths.of(name, folder)))
            except RemudaError as error:
                if not (gone_is_fine and isinstance(error, (SessionDead, SessionNotFound))):
                    failed.append(error)
        for client, patience in told:
            try:
                code = _wait(client, patience)
            except RemudaError as error:
                failed.append(error)
            else:
                click.echo(f"{client.name} ended" + (f" with exit code {code}" if code is not None else ""))
    for one in failed:
        complain(str(one))
    return failed[0].exit_code if failed else 0


def _with_pid(error: SessionUnreachable, paths: SessionPaths) -> SessionUnreachable:
    """What is left to do about a keeper that hangs, or was stopped."""
    holder = read_holder(paths)
    if error.hint or holder is None or not holder.keeper_pid:
        return error
    hint = f"'kill -9 {holder.keeper_pid}' ends it; 'remuda doctor' then shows what is left of the session"
    return SessionUnreachable(error.message, hint=hint)


def _tell(client: KeeperClient, grace: float | None) -> float:
    """Returns how long it may take from now."""
    client.send(ClientConnection.subscribe())
    answer = {}
    if client.speaks_ours:
        answer = client.request("kill", grace=grace)
    else:
        client.send(ClientConnection.kill())
    return float(answer.get("grace", 5.0 if grace is None else grace)) + _MARGIN


def _wait(client: KeeperClient, patience: float) -> int | None:
    """The exit code, or None if its keeper went without telling."""
    try:
        return client.wait_exit(patience)
    except WaitTimeout:
        raise SessionUnreachable(
            f"session '{client.name}' does not end",
            hint=f"see 'remuda logs {client.name}' for the processes that are left",
        ) from None
