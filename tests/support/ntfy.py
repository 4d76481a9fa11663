"""A server that speaks as ntfy 2 does, and a phone that has subscribed to it."""

from __future__ import annotations

import http.client
import json
import queue
import re
import sqlite3
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from support.boss import Answer, RunningBoss
from support.heimdall_client import PATIENCE

_TOPIC = re.compile(r"[-_A-Za-z0-9]{1,64}")
_MESSAGE_BYTES = 4096
_FIELDS = {"topic", "title", "message", "actions", "click", "sequence_id"}


class Ntfy:
    """Takes JSON at its root and `PUT /TOPIC/SEQUENCE/clear`; with a token it wants that too."""

    def __init__(self, token: str = "", *, clears: bool = True) -> None:
        self.notices: queue.Queue[dict[str, Any]] = queue.Queue()
        self.cleared: queue.Queue[str] = queue.Queue()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the names are the library's
                self._answer(server._publish(self.path, self._body(), token, dict(self.headers)))

            def do_PUT(self) -> None:
                self._body()
                self._answer(server._clear(self.path) if clears else 404)

            def _body(self) -> bytes:
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))

            def _answer(self, status: int) -> None:
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}"
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def _publish(self, path: str, body: bytes, token: str, headers: dict[str, str]) -> int:
        if token and headers.get("Authorization") != f"Bearer {token}":
            return 403
        if path != "/" or any(name.lower() in ("title", "actions", "click") for name in headers):
            return 400
        found = json.loads(body)
        actions = found.get("actions", [])
        is_known = found.keys() <= _FIELDS and _TOPIC.fullmatch(found["topic"])
        if not is_known or len(actions) > 3 or len(found["message"].encode()) > _MESSAGE_BYTES:
            return 400
        if any(one["action"] not in ("http", "view") or not one["label"] for one in actions):
            return 400
        self.notices.put(found)
        return 200

    def _clear(self, path: str) -> int:
        _, _, sequence, what = path.split("/")
        self.cleared.put(sequence)
        return 200 if what == "clear" else 404

    def next(self) -> dict[str, Any]:
        return self.notices.get(timeout=PATIENCE)

    def next_cleared(self) -> str:
        return self.cleared.get(timeout=PATIENCE)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def is_noted(boss: RunningBoss) -> bool:
    """Whether the boss has written down that it notified about all that waits, for the next boss."""
    with closing(sqlite3.connect(boss.folder.path / "boss.db")) as database:
        rows = database.execute("SELECT value FROM note WHERE name = 'notices'").fetchall()
    told = json.loads(rows[0][0])["told"] if rows else {}
    return {one["id"] for one in boss.waiting()} <= told.keys()


def labels(notice: dict[str, Any]) -> list[str]:
    return [one["label"] for one in notice["actions"]]


def tap(notice: dict[str, Any], label: str, method: str | None = None, body: str | None = None) -> Answer:
    """Do what a phone does when its user taps a button."""
    (action,) = [one for one in notice["actions"] if one["label"] == label]
    address = urlsplit(action["url"])
    connection = http.client.HTTPConnection(address.netloc, timeout=PATIENCE)
    try:
        connection.request(
            method or action["method"],
            address.path,
            (action["body"] if body is None else body) if method is None else None,
            action["headers"],
        )
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()
