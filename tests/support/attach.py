"""Attaching in a terminal under test: how a user does it, and what the bar looks like."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from remuda.keeper.client import KeeperClient
from remuda.wire import connection as wire
from remuda.wire.connection import ClientConnection
from support.commands import COMMAND, Commands
from support.heimdall_client import PATIENCE
from support.keeper import Process, until
from support.tmux import Pane, Tmux

COLS, ROWS = 60, 12
REMUDA = " ".join(COMMAND)
DETACH = b"\x1c"
# Prints what it is told to, byte by byte, and no echo of it.
PRINTER = 'stty -echo; echo ready; while read -r line; do printf "$line"; done'


def has_bar(lines: list[str], name: str = "work") -> bool:
    """The last row is the bar, whole, and no other row has it."""
    bar = re.compile(rf" {name} .* \w+ \S+  Ctrl-\\ detaches")
    return bar.fullmatch(lines[-1]) is not None and not any(bar.fullmatch(line) for line in lines[:-1])


def attach(pane: Pane, *options: str, name: str = "work") -> list[str]:
    """Attach and wait for the bar."""
    pane.enter(f"{REMUDA} attach {' '.join(options)} {name}; echo rc=$?")
    return pane.until(lambda lines: has_bar(lines, name))


@contextmanager
def open_shell(remuda: Commands, cols: int = COLS, rows: int = ROWS) -> Iterator[Pane]:
    """A shell of a user, in a terminal of its own."""
    with Tmux(remuda.env, remuda.cwd, cols, rows) as server:
        pane = server.first()
        pane.until_shows("$")
        yield pane


def tell(remuda: Commands, name: str, data: bytes) -> None:
    """Type into a session from elsewhere, without a say in its size."""
    with KeeperClient.connect(name, remuda.sessions) as client:
        client.send(ClientConnection.input(data))
        client.request("status")  # it has been taken


def find_attach(pane: Pane) -> Process:
    """The attach process: the only child of the pane's shell."""
    (shell,) = pane.ask("pane_pid")
    (child,) = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
    return Process(int(child))


def is_restored(pane: Pane) -> bool:
    return pane.ask("alternate_on", "cursor_flag", "mouse_any_flag", "wrap_flag") == ["0", "1", "0", "1"]


def receive_until(client: KeeperClient, text: bytes) -> bytes:
    """Read output until it has `text`; returns all of it."""
    seen = bytearray()

    def look() -> bool:
        for event in client.receive(PATIENCE):
            if isinstance(event, wire.OutputReceived | wire.RepaintReceived):
                seen.extend(event.data)
        return text in seen

    until(look, f"{text!r}")
    return bytes(seen)
