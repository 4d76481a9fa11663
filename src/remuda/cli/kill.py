"""remuda kill"""

from __future__ import annotations

from pathlib import Path

import click

from remuda.errors import InvalidOptions, SessionUnreachable, WaitTimeout
from remuda.keeper.claim import live_names
from remuda.keeper.client import KeeperClient
from remuda.wire.connection import ClientConnection

from .common import complete_session, find_folder, folder_option

# Beyond its grace: for the KILL, the last output, and slow watchers.
_MARGIN = 15.0


@click.command("kill")
@click.argument("names", nargs=-1, shell_complete=complete_session)
@click.option("--all", "everyone", is_flag=True, help="Every session of the folder.")
@click.option(
    "--grace", type=float, metavar="SECONDS", help="Time between TERM and KILL.  [default: the session's]"
)
@folder_option
def command(names: tuple[str, ...], everyone: bool, grace: float | None, folder: Path | None) -> None:
    """End sessions: the program and everything it started, for sure.

    TERM first, then, after a grace, KILL to whoever is left. Returns when they are gone.

    \b
    Examples:
      remuda kill work
      remuda kill --grace 0 stuck
      remuda kill --all
    """
    where = find_folder(folder)
    chosen = list(live_names(where)) if everyone else list(names)
    if not chosen and not everyone:
        raise InvalidOptions("which session?", hint="name one or more, or give --all")
    for name in chosen:
        code = kill_session(name, where, grace)
        click.echo(f"{name} ended" + (f" with exit code {code}" if code is not None else ""))


def kill_session(name: str, folder: Path, grace: float | None = None) -> int | None:
    """End one and wait for it. The exit code, or None if its keeper went without telling."""
    with KeeperClient.connect(name, folder) as client:
        client.send(ClientConnection.subscribe())
        if client.speaks_ours:
            client.request("kill", grace=grace)
        else:
            client.send(ClientConnection.kill())
        try:
            return client.wait_exit((5.0 if grace is None else grace) + _MARGIN)
        except WaitTimeout:
            raise SessionUnreachable(
                f"session '{name}' does not end",
                hint=f"see 'remuda logs {name}' for the processes that are left",
            ) from None
