"""Who is attached to a server, and whom of them a command of the user's means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from remuda.errors import NoTmuxClient

from .panes import Pane

FIELDS: Final = (
    "client_name",
    "client_pid",
    "client_control_mode",
    "client_activity",
    "session_id",
    "window_id",
    "pane_id",
    "window_zoomed_flag",
)


class Client(NamedTuple):
    """One terminal that shows the server, and what it shows."""

    name: str
    pid: int
    is_control: bool
    activity: int
    session_id: str
    window_id: str
    pane_id: str
    is_zoomed: bool


def client_of(row: Sequence[str]) -> Client:
    name, pid, control, activity, session, window, pane, zoomed = row
    return Client(
        name, int(pid or 0), control == "1", int(activity or 0), session, window, pane, zoomed == "1"
    )


def choose_client(clients: Sequence[Client], *, name: str | None = None, pane: Pane | None = None) -> Client:
    """The client of that name; else one that shows the pane that the caller runs in; else one that has it in
    its session; else the one that was used last. A control client shows nothing and is never meant.
    """
    humans = [client for client in clients if not client.is_control]
    if name is not None:
        named = [client for client in humans if client.name == name]
        if not named:
            raise NoTmuxClient(f"no client {name} is attached to this tmux server")
        return named[0]
    if not humans:
        raise NoTmuxClient("no client is attached to this tmux server", hint="attach first: tmux attach")
    sessions = {place.session_id for place in pane.places} if pane is not None else set()
    shown = [client for client in humans if pane is not None and client.pane_id == pane.id]
    near = [client for client in humans if client.session_id in sessions]
    return max(shown or near or humans, key=lambda client: client.activity)
