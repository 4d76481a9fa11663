"""Take a client of tmux to a pane, and back to where it was."""

from __future__ import annotations

import os
from binascii import crc32
from collections.abc import Sequence
from typing import Final, NamedTuple

from remuda.errors import NoOrigin, NoTmuxClient, TmuxTargetGone

from .address import Address
from .command import Tmux
from .panes import FIELDS, Pane, Place, Snapshot, snapshot_of

_CLIENT_FIELDS: Final = (
    "client_name",
    "client_pid",
    "client_control_mode",
    "client_activity",
    "session_id",
    "window_id",
    "pane_id",
    "window_zoomed_flag",
)
_FORM: Final = "remuda-trail-1"


class TmuxClient(NamedTuple):
    """A terminal attached to the server, and what it shows."""

    name: str
    pid: int
    is_control: bool
    activity: int
    session_id: str
    window_id: str
    pane_id: str
    is_zoomed: bool


def _client_of(row: Sequence[str]) -> TmuxClient:
    name, pid, control, activity, session, window, pane, zoomed = row
    return TmuxClient(
        name, int(pid or 0), control == "1", int(activity or 0), session, window, pane, zoomed == "1"
    )


def choose_client(
    clients: Sequence[TmuxClient], *, name: str | None = None, pane: Pane | None = None
) -> TmuxClient:
    """Return the client that a command of the user is for.

    That is the client of that name; else one that shows the caller's pane; else one whose session has the
    pane; else the one used last. Control clients show nothing and never count.
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
    showing = [client for client in humans if pane is not None and client.pane_id == pane.id]
    near = [client for client in humans if client.session_id in sessions]
    return max(showing or near or humans, key=lambda client: client.activity)


class ServerView(NamedTuple):
    """A server at one moment: its panes, and which client shows what."""

    snapshot: Snapshot
    clients: list[TmuxClient]


def take_view(tmux: Tmux) -> ServerView:
    panes, clients = tmux.tables((["list-panes", "-a"], FIELDS), (["list-clients"], _CLIENT_FIELDS))
    return ServerView(snapshot_of(tmux.address, panes), [_client_of(row) for row in clients])


class Jump(NamedTuple):
    client: str
    pane: Pane
    place: Place
    has_moved: bool
    """False if the client was there already."""


def jump(
    tmux: Tmux,
    target: str,
    folder: str | os.PathLike[str],
    *,
    client: str | None = None,
    from_pane: str | None = None,
    view: ServerView | None = None,
) -> Jump:
    """Show the pane `target` (`%12`) to a client, and remember in `folder` where that client was.

    The client is the one named, else the one of `from_pane`, else the one used last. A zoomed window stays
    zoomed, on the target. Raises if the pane is gone; nothing has changed then. Pass a recent `view` to save
    a call of tmux.
    """
    view = view or take_view(tmux)
    pane = _pane(view, target)
    who = choose_client(view.clients, name=client, pane=view.snapshot.panes.get(from_pane or ""))
    place = best_place(pane, who.session_id)
    if who.pane_id == pane.id:
        return Jump(who.name, pane, place, has_moved=False)
    file = TrailFile(folder, tmux.address, who.name)
    trail = file.read(view.snapshot.server_pid, who.pid)
    file.write(next_trail(trail, who, view.snapshot.server_pid, pane.id))
    try:
        tmux.output(*steps(who, pane, place, zoom=pane.is_zoomed))
    except BaseException:
        file.write(trail)
        raise
    return Jump(who.name, pane, place, has_moved=True)


def go_back(
    tmux: Tmux, folder: str | os.PathLike[str], *, client: str | None = None, from_pane: str | None = None
) -> Jump:
    """Take a client back to where its trail began, zoomed as it was.

    If that pane is gone: to its window, else to its session. This ends the trail, also when all are gone.
    """
    view = take_view(tmux)
    who = choose_client(view.clients, name=client, pane=view.snapshot.panes.get(from_pane or ""))
    file = TrailFile(folder, tmux.address, who.name)
    trail = file.read(view.snapshot.server_pid, who.pid)
    if trail is None:
        raise NoOrigin("no pane to return to", hint="'remuda next' remembers the pane it leaves")
    pane = _nearest_left(view.snapshot, trail)
    if pane is None:
        file.write(None)
        raise TmuxTargetGone("the pane to return to is gone", hint="its window and session have ended too")
    place = best_place(pane, trail.session_id)
    has_moved = who.pane_id != pane.id or who.session_id != place.session_id
    tmux.output(*steps(who, pane, place, zoom=trail.is_zoomed and pane.id == trail.pane_id))
    file.write(None)
    return Jump(who.name, pane, place, has_moved)


def _pane(view: ServerView, target: str) -> Pane:
    pane = view.snapshot.panes.get(target)
    if pane is None:
        raise TmuxTargetGone(f"pane {target} no longer exists on this tmux server")
    return pane


def best_place(pane: Pane, session_id: str) -> Place:
    """Choose a session that has the pane's window: this one, else one that shows it, else the last used."""
    return max(
        pane.places,
        key=lambda place: (place.session_id == session_id, place.is_current, place.session_activity),
    )


def _nearest_left(snapshot: Snapshot, trail: Trail) -> Pane | None:
    everything = snapshot.panes.values()
    in_window = [pane for pane in everything if pane.window_id == trail.window_id and pane.is_active]
    in_session = [
        pane
        for pane in everything
        for place in pane.places
        if pane.is_active and place.is_current and place.session_id == trail.session_id
    ]
    exact = snapshot.panes.get(trail.pane_id)
    return next((pane for pane in (exact, *in_window, *in_session) if pane is not None), None)


def steps(who: TmuxClient, pane: Pane, place: Place, *, zoom: bool) -> list[list[str]]:
    """Return the commands that show a pane to a client. The first only fails if the pane is gone.

    `zoom`: zoom the window, because selecting another pane of it ends the zoom.
    """
    commands = [["list-panes", "-t", pane.id]]
    if who.session_id != place.session_id:
        commands.append(["switch-client", "-c", who.name, "-t", place.session_id])
    commands.append(["select-window", "-t", f"{place.session_id}:{pane.window_id}"])
    if not pane.is_active:
        commands.append(["select-pane", "-t", pane.id])
    if zoom:
        again = f"resize-pane -Z -t {pane.id}"
        commands.append(["if-shell", "-F", "-t", pane.id, "#{?window_zoomed_flag,,1}", again])
    return commands


# ── where a client was ──


class Trail(NamedTuple):
    """Where a client was before it was taken elsewhere.

    A trail begins where the client was at the first jump. It keeps that origin while each jump starts where
    the last one ended. When the user has gone elsewhere by hand, the next jump begins a new trail. So one
    `return` leads back to the interrupted work, however many panes were visited. `target` is the pane of the
    last jump, all other fields are the origin.
    """

    server_pid: int
    client_pid: int
    session_id: str
    window_id: str
    pane_id: str
    is_zoomed: bool
    target: str


def next_trail(trail: Trail | None, client: TmuxClient, server_pid: int, target: str) -> Trail:
    if trail is not None and client.pane_id == trail.target:
        return trail._replace(target=target)
    return Trail(
        server_pid, client.pid, client.session_id, client.window_id, client.pane_id, client.is_zoomed, target
    )


class TrailFile:
    """The file with the trail of one client. The caller creates its folder."""

    def __init__(self, folder: str | os.PathLike[str], address: Address, client: str) -> None:
        safe = "".join(c if c.isascii() and c.isalnum() else "-" for c in client).strip("-")[-60:]
        checksum = crc32(f"{address.path}\0{client}".encode("utf-8", "surrogateescape"))
        self._path = os.path.join(folder, f"{safe}.{checksum:08x}")

    def read(self, server_pid: int, client_pid: int) -> Trail | None:
        """Return the trail, or None; also None if it is of an earlier server or client of the same name."""
        try:
            with open(self._path, encoding="utf-8") as file:
                form, *lines = file.read(4096).split("\n")
        except (OSError, ValueError):
            return None
        if form != _FORM or len(lines) != 8 or lines[-1]:  # torn, or foreign
            return None
        trail = Trail(_int(lines[0]), _int(lines[1]), lines[2], lines[3], lines[4], lines[5] == "1", lines[6])
        return trail if (trail.server_pid, trail.client_pid) == (server_pid, client_pid) else None

    def write(self, trail: Trail | None) -> None:
        """Save the trail. None deletes it."""
        if trail is None:
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                pass
            return
        values = [str(int(value)) if isinstance(value, int) else value for value in trail]
        temporary = f"{self._path}.{os.getpid()}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, "\n".join([_FORM, *values, ""]).encode())
        finally:
            os.close(fd)
        os.replace(temporary, self._path)


def _int(text: str) -> int:
    return int(text) if text.isdecimal() else -1
