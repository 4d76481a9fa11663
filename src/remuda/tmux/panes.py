"""The panes of a server: list them with one command, find the one of a process, read and paste into one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from remuda.errors import InvalidOptions, RemudaError, TmuxTargetGone

from .address import Address, check_version
from .command import TIMEOUT, Tmux, new_mark

KEPT_OPTION: Final = "@remuda-session"
"""An option of a pane: the kept session that is shown there."""
FIELDS: Final = (
    "pane_id",
    "pane_pid",
    "pane_tty",
    "pane_current_command",
    "pane_title",
    "pane_current_path",
    "session_id",
    "session_name",
    "session_attached",
    "session_activity",
    "window_id",
    "window_index",
    "window_name",
    "window_active",
    "window_activity",
    "window_zoomed_flag",
    "pane_index",
    "pane_active",
    "pane_dead",
    "pane_in_mode",
    "pid",
    "version",
    KEPT_OPTION,
)


class Place(NamedTuple):
    """Where a pane can be seen: a window is in every session that it is linked into."""

    session_id: str
    session_name: str
    window_index: int
    is_current: bool
    """Whether the session shows that window now."""
    is_attached: bool
    session_activity: int


class Pane(NamedTuple):
    """One pane, as it was when it was listed. Its id lasts as long as its server, also across windows.

    `pid` is the program that tmux started in it; when a pane is used again for another one (respawn) it
    changes and the id does not. `command` and `cwd` are those of the process in the foreground.
    """

    id: str
    pid: int
    tty: str
    command: str
    title: str
    cwd: str
    window_id: str
    window_name: str
    number: int
    is_active: bool
    """Whether it is the one of its window that takes keys."""
    is_zoomed: bool
    """Whether its window is zoomed, on whichever pane."""
    is_dead: bool
    in_mode: bool
    """Whether it shows its history (copy mode) and not its program."""
    activity: int
    """When its window last printed anything; tmux keeps no such time for a pane."""
    places: tuple[Place, ...]
    kept: str = ""
    """The kept session that was opened there, if one was."""

    @property
    def address(self) -> str:
        """Return the pane as people write it: `work:1.0`."""
        place = self.places[0]
        return f"{place.session_name}:{place.window_index}.{self.number}"


def check_pane(pane: str) -> str:
    """Return the id of a pane (`%12`). Raises for anything else that tmux would take for a target."""
    if not (pane.startswith("%") and pane[1:].isdecimal() and pane.isascii()):
        raise InvalidOptions(f"{pane!r} is not the id of a tmux pane", hint="write for example %12")
    return pane


class Snapshot(NamedTuple):
    """All panes of a server. `server_pid` distinguishes it from a later server at the same address."""

    address: Address
    server_pid: int
    version: str
    panes: dict[str, Pane]

    def of_process(self, pid: int) -> Pane | None:
        """Return the pane that the process runs in, if any.

        That is the pane of the nearest process, among itself and its ancestors, that tmux started or that
        has the terminal of a pane.
        """
        programs = {pane.pid: pane for pane in self.panes.values() if not pane.is_dead}
        terminals = {_device(pane.tty): pane for pane in self.panes.values() if not pane.is_dead}
        for process, terminal in _ancestry(pid):
            if pane := programs.get(process) or (terminals.get(terminal) if terminal else None):
                return pane
        return None


def take_snapshot(tmux: Tmux) -> Snapshot:
    return snapshot_of(tmux.address, tmux.rows("list-panes", "-a", fields=FIELDS))


def snapshot_of(address: Address, rows: Sequence[Sequence[str]]) -> Snapshot:
    panes: dict[str, Pane] = {}
    named = [dict(zip(FIELDS, row, strict=True)) for row in rows]
    for facts in named:
        place = _place(facts)
        if pane := panes.get(facts["pane_id"]):
            panes[pane.id] = pane._replace(places=(*pane.places, place))
        else:
            panes[facts["pane_id"]] = _pane(facts, place)
    if not named:
        return Snapshot(address, 0, "", panes)
    check_version(named[0]["version"])
    return Snapshot(address, _number(named[0]["pid"]), named[0]["version"], panes)


def _place(facts: dict[str, str]) -> Place:
    return Place(
        session_id=facts["session_id"],
        session_name=facts["session_name"],
        window_index=_number(facts["window_index"]),
        is_current=facts["window_active"] == "1",
        is_attached=_number(facts["session_attached"]) > 0,
        session_activity=_number(facts["session_activity"]),
    )


def _pane(facts: dict[str, str], place: Place) -> Pane:
    return Pane(
        id=facts["pane_id"],
        pid=_number(facts["pane_pid"]),
        tty=facts["pane_tty"],
        command=facts["pane_current_command"],
        title=facts["pane_title"],
        cwd=facts["pane_current_path"],
        window_id=facts["window_id"],
        window_name=facts["window_name"],
        number=_number(facts["pane_index"]),
        is_active=facts["pane_active"] == "1",
        is_zoomed=facts["window_zoomed_flag"] == "1",
        is_dead=facts["pane_dead"] == "1",
        in_mode=_number(facts["pane_in_mode"]) > 0,
        activity=_number(facts["window_activity"]),
        places=(place,),
        kept=facts[KEPT_OPTION],
    )


def _number(text: str) -> int:
    """Read a number. tmux leaves a field empty when it does not know the value."""
    return int(text) if text.isdecimal() else 0


# ── read and paste ──


def capture(tmux: Tmux, pane: str, *, history: int = 0, styled: bool = False) -> list[str]:
    """Return the lines that a pane shows, with `history` lines above them. `styled` keeps colours."""
    words = ["capture-pane", "-p", "-t", pane, "-S", str(-history) if history else "0"]
    output = tmux.output([*words, *(["-e"] if styled else [])])
    return output.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")


def paste(tmux: Tmux, pane: str, data: bytes, *, timeout: float = TIMEOUT) -> None:
    """Paste `data` into the pane (`%12`), bracketed if its program asked for that. No buffer remains.

    The caller decides whether to paste. Line feeds are sent unchanged. The caller strips control bytes:
    `ESC[201~` would end the paste, and the rest would be typed. Raises if the pane is gone or its program
    has ended; nothing was pasted then.
    """
    check_pane(pane)
    if not data:
        return
    mark = new_mark()
    buffer = f"remuda-{mark}"
    # A paste into a dead pane ends the server (3.3a). tmux runs nothing between this check and the paste.
    paste_it = f"paste-buffer -p -r -d -b {buffer} -t {pane}"
    refuse = f"display-message -p {mark} ; delete-buffer -b {buffer}"
    try:
        output = tmux.output(
            ["list-panes", "-t", pane],
            ["load-buffer", "-b", buffer, "-"],
            ["if-shell", "-F", "-t", pane, "#{?pane_dead,0,1}", paste_it, refuse],
            stdin=data,
            timeout=timeout,
        )
    except RemudaError:
        _delete_buffer(tmux, buffer)
        raise
    if mark.encode() in output:
        raise TmuxTargetGone(f"the program in pane {pane} has ended")


def _delete_buffer(tmux: Tmux, buffer: str) -> None:
    try:
        tmux.command("delete-buffer", "-b", buffer)
    except RemudaError:
        pass  # it was never loaded


# ── processes ──


def _device(tty: str) -> int:
    try:
        return os.stat(tty).st_rdev
    except OSError:
        return 0


def _ancestry(pid: int) -> Iterator[tuple[int, int]]:
    """Yield the process and its ancestors, each with the device of its terminal, or 0."""
    read = _read_proc if sys.platform.startswith("linux") else _read_ps
    while pid > 1 and (parent_and_terminal := read(pid)):
        yield pid, parent_and_terminal[1]
        pid = parent_and_terminal[0]


def _read_proc(pid: int) -> tuple[int, int] | None:
    """Return the parent and the device of the terminal."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    # The minor number is split around the major one.
    device = int(fields[4])
    return int(fields[1]), os.makedev(device >> 8 & 0xFFF, device & 0xFF | device >> 12 & 0xFFF00)


def _read_ps(pid: int) -> tuple[int, int] | None:
    import subprocess

    listing = subprocess.run(
        ["ps", "-o", "ppid=,tty=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    columns = listing.stdout.split()
    return (int(columns[0]), _device(f"/dev/{columns[1]}")) if len(columns) == 2 else None
