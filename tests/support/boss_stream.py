"""The stream of changes of a boss, read as a client reads it."""

from __future__ import annotations

import json
import socket
from typing import Any, NamedTuple

from support.boss import RunningBoss


class Told(NamedTuple):
    id: str
    kind: str
    document: Any

    @property
    def number(self) -> int:
        return int(self.id.rpartition("-")[2])


class Stream:
    """`buffer` bytes are what the system takes in for a reader that does not read."""

    def __init__(self, boss: RunningBoss, after: str | None = None, buffer: int = 0, query: str = "") -> None:
        self._sock = socket.socket(socket.AF_INET)
        if buffer:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self._sock.settimeout(30)
        self._sock.connect(("127.0.0.1", boss.port))
        more = f"Last-Event-ID: {after}\r\n" if after else ""
        self._sock.sendall(
            f"GET /v1/events{query} HTTP/1.1\r\nHost: 127.0.0.1:{boss.port}\r\n"
            f"Authorization: Bearer {boss.token}\r\n{more}\r\n".encode()
        )
        self._file = self._sock.makefile("rb")

    def next(self) -> Told:
        found: dict[str, str] = {}
        for line in self._file:
            name, colon, value = line.decode().rstrip("\r\n").partition(": ")
            if colon and name in ("id", "event", "data"):
                found[name] = value
            if len(found) == 3:
                return Told(found["id"], found["event"], json.loads(found["data"]))
        raise EOFError

    def until(self, kind: str) -> Told:
        while (told := self.next()).kind != kind:
            pass
        return told

    def through(self, session: str) -> list[Told]:
        """All up to what that session waits for."""
        told = [self.next()]
        while told[-1].kind != "item" or told[-1].document["session_id"] != session:
            told.append(self.next())
        return told

    def close(self) -> None:
        self._file.close()
        self._sock.close()
