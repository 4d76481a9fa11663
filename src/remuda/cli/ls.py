"""remuda ls"""

from __future__ import annotations

import select
import time
from pathlib import Path
from typing import Any

import click

from remuda.duration import show_duration
from remuda.errors import RemudaError
from remuda.keeper.claim import live_names
from remuda.keeper.client import KeeperClient
from remuda.keeper.listing import list_sessions

from .common import (
    coloured_state,
    find_folder,
    folder_option,
    json_option,
    print_json,
    short_path,
    table_lines,
)
from .whole_screen import WholeScreen

_HEAD = ("NAME", "STATE", "SINCE", "AGENT", "CWD", "CLIENTS", "LAST LINE")
# Sessions tell when they change; that one has come is seen by looking.
_RESCAN_INTERVAL = 1.0


@click.command("ls")
@click.option("-a", "--all", "include_dead", is_flag=True, help="Also sessions that have ended.")
@click.option("-w", "--watch", is_flag=True, help="Keep the list on the screen, up to date.")
@folder_option
@json_option
def command(include_dead: bool, watch: bool, folder: Path | None, as_json: bool) -> None:
    """List the sessions: what each is doing, since when, and the last line it shows.

    \b
    Examples:
      remuda ls
      remuda ls --json | jq -r '.[] | select(.state == "waiting_permission") | .name'
      remuda ls --watch
    """
    where = find_folder(folder)
    if watch and not as_json:
        _watch(where, include_dead)
        return
    sessions = list_sessions(where, include_dead=include_dead)
    if as_json:
        print_json(sessions)
    else:
        click.echo("\n".join(_lines(sessions, include_dead=include_dead)))


def _lines(sessions: list[dict[str, Any]], *, include_dead: bool) -> list[str]:
    if not sessions:
        return [
            "no sessions" if include_dead else "no sessions; start one with: remuda start NAME -- COMMAND"
        ]
    return table_lines(_HEAD, [_row(session) for session in sessions])


def _row(session: dict[str, Any]) -> tuple[str, ...]:
    age = session.get("age")
    if age is None and session.get("since"):
        age = time.time() - session["since"]
    last = session.get("last_line") or ""
    if session.get("alive") is False:
        code = session.get("exit_code")
        last = f"{session.get('detail')}" + (f", exit code {code}" if code is not None else "")
    return (
        str(session["name"]),
        coloured_state(str(session["state"])),
        show_duration(age) if age is not None else "-",
        str(session.get("agent", "-")),
        short_path(str(session.get("cwd", "-"))),
        str(session.get("clients", "-")),
        str(last).strip() or str(session.get("detail") or ""),
    )


def _watch(folder: Path, include_dead: bool) -> None:
    clients: dict[str, KeeperClient] = {}
    with WholeScreen() as screen:
        try:
            while True:
                _keep_connected(folder, clients)
                screen.draw(
                    _lines(list_sessions(folder, include_dead=include_dead), include_dead=include_dead)
                )
                _wait_for_news(clients)
        finally:
            for client in clients.values():
                client.close()


def _keep_connected(folder: Path, clients: dict[str, KeeperClient]) -> None:
    for name in set(live_names(folder)) - set(clients):
        try:
            client = KeeperClient.connect(name, folder, read_only=True)
            if client.speaks_ours:
                client.request("watch")
            clients[name] = client
        except (RemudaError, EOFError, OSError):
            continue


def _wait_for_news(clients: dict[str, KeeperClient]) -> None:
    ready, _, _ = select.select(list(clients.values()), [], [], _RESCAN_INTERVAL)
    for client in ready:
        try:
            list(client.receive())
        except (EOFError, RemudaError, OSError):
            client.close()
            clients.pop(client.name)
