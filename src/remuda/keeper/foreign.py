"""End a session of a supervisor that is not ours: Heimdall's `hm`, which sends a TERM and no more."""

from __future__ import annotations

import os
import time

from remuda.errors import SessionUnreachable
from remuda.paths import SessionPaths
from remuda.process_table import Process, ProcessEntry, read_table
from remuda.wire import connection as wire
from remuda.wire.connection import ClientConnection

from .claim import read_holder
from .client import KeeperClient
from .survivors import KILL_LIMIT, LOOK_INTERVAL, signal_all, with_kin


class ForeignEnd:
    """Ends a foreign session, from its creation on: TERM, then HUP, then KILL after `grace` seconds.

    The signals go to the program and its kin. The program is the child that its supervisor names, on the
    socket and in the locked pid file. No other process is ended. All are identified by pid and start time.
    """

    def __init__(self, client: KeeperClient, paths: SessionPaths, grace: float) -> None:
        self._client = client
        self._grace = grace
        self._kin = _kin_of(*_program(client.status().pid, paths))
        self._sent: dict[Process, int] = {}
        self._code: int | None = None
        self._begun = time.monotonic()
        client.send(ClientConnection.subscribe() + ClientConnection.kill())
        signal_all(self._kin, 0.0, grace, self._sent)

    def wait(self) -> int | None:
        """Return the exit code when all have ended; None when the supervisor did not report it.

        Raises `SessionUnreachable` for processes that even a KILL does not end.
        """
        hung_up = False
        while (now := time.monotonic() - self._begun) < self._grace + KILL_LIMIT:
            if hung_up:
                time.sleep(LOOK_INTERVAL)
            else:
                hung_up = self._listen()
            table = read_table()
            pids = {
                one.pid for one in self._kin if one.pid in table and table[one.pid].started == one.started
            }
            self._kin = _kin_of(pids, table)
            if not self._kin and (hung_up or self._code is not None):
                return self._code
            signal_all(self._kin, now, self._grace, self._sent)
        if self._kin:
            left = ", ".join(str(one.pid) for one in sorted(self._kin, key=lambda one: one.pid))
            raise SessionUnreachable(
                f"processes of session '{self._client.name}' are still running: {left}",
                hint="'ps' shows what they wait for",
            )
        return self._code

    def _listen(self) -> bool:
        """Read from the supervisor for a moment. Returns whether it has hung up."""
        try:
            for event in self._client.receive(LOOK_INTERVAL):
                if isinstance(event, wire.ExitReceived):
                    self._code = event.code
        except EOFError:
            return True
        return False


def _program(pid: int, paths: SessionPaths) -> tuple[set[int], dict[int, ProcessEntry]]:
    """Return the program, if the supervisor is its parent, and the table of all processes."""
    holder, table = read_holder(paths), read_table()
    entry = table.get(pid)
    if holder is None or entry is None or (pid, entry.parent) != (holder.child_pid, holder.keeper_pid):
        return set(), table
    return {pid}, table


def _kin_of(pids: set[int], table: dict[int, ProcessEntry]) -> set[Process]:
    kin = with_kin(pids, table) - {os.getpid()}
    return {Process(pid, table[pid].started) for pid in kin}
