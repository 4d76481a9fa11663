"""Taking a client to a pane, and back."""

from __future__ import annotations

import os
from typing import NamedTuple

from remuda.errors import NoOrigin, TmuxTargetGone

from . import clients, panes
from .clients import Client, choose_client
from .once import Tmux
from .panes import Pane, Place, Snapshot
from .trail import Trail, TrailFile, next_trail


class View(NamedTuple):
    """All of a server at one moment: its panes, and who looks at what."""

    snapshot: Snapshot
    clients: list[Client]


def look(tmux: Tmux) -> View:
    found = tmux.tables((["list-panes", "-a"], panes.FIELDS), (["list-clients"], clients.FIELDS))
    return View(panes.snapshot_of(tmux.address, found[0]), [clients.client_of(row) for row in found[1]])


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
    view: View | None = None,
) -> Jump:
    """Show the pane `target` (`%12`) to a client, and remember in `folder` where that client was.

    The client is the one named, else the one of `from_pane`, else the one used last. A window that is zoomed
    stays so, on the target. A pane that is gone is an error, and nothing has changed then. `view` is what was
    seen a moment ago, to save a look.
    """
    view = view or look(tmux)
    pane = _pane(view, target)
    who = choose_client(view.clients, name=client, pane=view.snapshot.panes.get(from_pane or ""))
    place = best_place(pane, who.session_id)
    if who.pane_id == pane.id:
        return Jump(who.name, pane, place, has_moved=False)
    file = TrailFile(folder, tmux.address, who.name)
    known = file.read(view.snapshot.server_pid, who.pid)
    file.write(next_trail(known, who, view.snapshot.server_pid, pane.id))
    try:
        tmux.output(*steps(who, pane, place, zoom=pane.is_zoomed))
    except BaseException:
        file.write(known)
        raise
    return Jump(who.name, pane, place, has_moved=True)


def go_back(
    tmux: Tmux, folder: str | os.PathLike[str], *, client: str | None = None, from_pane: str | None = None
) -> Jump:
    """Take a client back to where its trail began, zoomed as it was.

    If that pane is gone: to its window, else to its session. The trail ends with it, also when none is left.
    """
    view = look(tmux)
    who = choose_client(view.clients, name=client, pane=view.snapshot.panes.get(from_pane or ""))
    file = TrailFile(folder, tmux.address, who.name)
    trail = file.read(view.snapshot.server_pid, who.pid)
    if trail is None:
        raise NoOrigin("no pane to return to", hint="'remuda next' remembers the pane it leaves")
    pane = _what_is_left(view.snapshot, trail)
    if pane is None:
        file.write(None)
        raise TmuxTargetGone("the pane to return to is gone", hint="its window and session have ended too")
    place = best_place(pane, trail.session_id)
    has_moved = who.pane_id != pane.id or who.session_id != place.session_id
    tmux.output(*steps(who, pane, place, zoom=trail.is_zoomed and pane.id == trail.pane_id))
    file.write(None)
    return Jump(who.name, pane, place, has_moved)


def _pane(view: View, target: str) -> Pane:
    pane = view.snapshot.panes.get(target)
    if pane is None:
        raise TmuxTargetGone(f"pane {target} no longer exists on this tmux server")
    return pane


def best_place(pane: Pane, session_id: str) -> Place:
    """Of the sessions that have the pane's window: this one, else one that shows it, else the last used."""
    return max(
        pane.places,
        key=lambda place: (place.session_id == session_id, place.is_current, place.session_activity),
    )


def _what_is_left(snapshot: Snapshot, trail: Trail) -> Pane | None:
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


def steps(who: Client, pane: Pane, place: Place, *, zoom: bool) -> list[list[str]]:
    """The commands that show a pane to a client. The first does nothing, and fails if the pane is gone.

    `zoom`: the window shall be zoomed, which choosing another pane of it undoes.
    """
    found = [["list-panes", "-t", pane.id]]
    if who.session_id != place.session_id:
        found.append(["switch-client", "-c", who.name, "-t", place.session_id])
    found.append(["select-window", "-t", f"{place.session_id}:{pane.window_id}"])
    if not pane.is_active:
        found.append(["select-pane", "-t", pane.id])
    if zoom:
        again = f"resize-pane -Z -t {pane.id}"
        found.append(["if-shell", "-F", "-t", pane.id, "#{?window_zoomed_flag,,1}", again])
    return found
