"""A browser, as far as the boss can tell: it logs in with a link, has a cookie, and opens terminals."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from support.boss import Answer, RunningBoss
from support.heimdall_client import PATIENCE


def make_link(boss: RunningBoss, **options: Any) -> str:
    """The path of a login link."""
    path: str = boss.client.post("logins", "links", body=options)["path"]
    return path


class Browser:
    """Logged in from the start, unless `cookie` is given."""

    def __init__(self, boss: RunningBoss, cookie: str | None = None) -> None:
        self.boss = boss
        self.origin = f"http://127.0.0.1:{boss.port}"
        self.cookie = cookie if cookie is not None else self._log_in()

    def _log_in(self) -> str:
        answer = self.boss.ask("POST", make_link(self.boss), headers=self.own(), token=None)
        assert (answer.status, answer.headers["location"]) == (303, "/"), answer
        return answer.headers["set-cookie"].partition(";")[0]

    def own(self) -> dict[str, str]:
        """What a browser adds to a request of its page."""
        return {"Origin": self.origin, "Sec-Fetch-Site": "same-origin", "User-Agent": "Firefox"}

    def get(self, path: str, **headers: str) -> Answer:
        sent = {"Cookie": self.cookie, **_named(headers)}
        return self.boss.ask("GET", path, headers=sent, token=None)

    def post(self, path: str, body: object = None, headers: Mapping[str, str | None] | None = None) -> Answer:
        """With all that a change needs; a header that is None is left out."""
        sent = {"Cookie": self.cookie, "X-Remuda": "1", **self.own(), **(headers or {})}
        given = {name: value for name, value in sent.items() if value is not None}
        return self.boss.ask("POST", path, {} if body is None else body, headers=given, token=None)

    def terminal(self, name: str, **headers: str) -> PageTerminal:
        """Raises `InvalidStatus` if it is refused."""
        sent = {"Origin": self.origin, "Cookie": self.cookie, **_named(headers)}
        return PageTerminal(open_socket(self.boss, f"/v1/sessions/{name}/terminal", sent))


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def open_socket(boss: RunningBoss, path: str, headers: dict[str, str]) -> ClientConnection:
    origin, host = headers.pop("Origin", None), headers.pop("Host", f"127.0.0.1:{boss.port}")
    return connect(
        f"ws://{host}{path}",
        sock=socket.create_connection(("127.0.0.1", boss.port), timeout=PATIENCE),
        origin=Origin(origin) if origin is not None else None,
        additional_headers=headers,
        open_timeout=PATIENCE,
        close_timeout=0.2,  # what was not read stays unread
        proxy=None,
        max_size=None,
        max_queue=1,
        compression=None,
    ).__enter__()


class PageTerminal:
    """Acknowledges what it reads, as the page does."""

    def __init__(self, connection: ClientConnection) -> None:
        self.socket = connection
        self.output = b""
        """Since the last repaint."""
        self.said: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def say(self, kind: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": kind, **fields}))

    def type(self, data: bytes) -> None:
        self.socket.send(data)

    def read(self) -> None:
        """One message. Raises `ConnectionClosed`."""
        message = self.socket.recv(timeout=PATIENCE)
        if isinstance(message, bytes):
            self.output += message
            self.say("ack", bytes=len(message))
            return
        document = json.loads(message)
        self.said.append(document)
        if document["type"] == "repaint":
            self.output = b""

    def until_output(self, wanted: bytes) -> bytes:
        while wanted not in self.output:
            self.read()
        return self.output

    def until_said(self, kind: str) -> dict[str, Any]:
        """The next message of that kind; those before it are forgotten."""
        while True:
            while self.said:
                if (document := self.said.pop(0))["type"] == kind:
                    return document
            self.read()
