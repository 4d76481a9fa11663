"""A boss with its page, and those who look at it: a bare WebSocket client, and a real Chromium."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.scene import Scene

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize
from websockets.client import ClientProtocol
from websockets.datastructures import Headers
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from remuda.boss.client import BossClient
from remuda.boss.detach import start_detached
from remuda.boss.folder import BossFolder
from support.browser import CHROMIUM, WIDE, open_browser

__all__ = ["CHROMIUM", "PageBoss", "PageSocket", "open_boss", "open_browser", "peak_bytes", "reset_peak"]

_READ_BYTES = 1 << 18
_TIMEOUT = 60.0


class PageBoss:
    """A running boss whose page can be opened."""

    def __init__(self, folder: BossFolder, started: dict[str, Any]) -> None:
        self.client = BossClient(folder)
        self.pid: int = started["pid"]
        self.port: int = started["port"]
        self.address = f"http://127.0.0.1:{self.port}"
        self.token = folder.token.read_text().strip()

    def context(self, browser: Browser, size: ViewportSize = WIDE) -> BrowserContext:
        """A browser that is logged in, and has nothing in its cache."""
        link = self.client.post("logins", "links", body={})["path"]
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT)
        connection.request("POST", link, headers={"Origin": self.address, "Sec-Fetch-Site": "same-origin"})
        name, _, value = str(connection.getresponse().headers["Set-Cookie"]).partition(";")[0].partition("=")
        connection.close()
        context = browser.new_context(viewport=size)
        context.set_default_timeout(_TIMEOUT * 1000)
        context.add_cookies([{"name": name, "value": value, "url": self.address}])
        return context

    def show(self, page: Page, view: str) -> None:
        page.goto(f"{self.address}/#/{view}")
        page.wait_for_selector(".connection.live")

    def session_id(self, name: str) -> str:
        """Waits until the boss knows it."""
        deadline = time.monotonic() + _TIMEOUT
        while time.monotonic() < deadline:
            for one in self.client.get("sessions")["sessions"]:
                if one["name"] == name:
                    return str(one["id"])
            time.sleep(0.05)
        raise TimeoutError(f"the boss does not know session {name}")


@contextlib.contextmanager
def open_boss(scene: Scene, sources: tuple[str, ...] | None = None) -> Iterator[PageBoss]:
    """One of its own, that knows the sessions of the scene; with all sources of events, or those named."""
    folder = BossFolder(scene.folder / scene.name("boss"))
    before = dict(os.environ)
    os.environ.update(scene.env, CLAUDE_CONFIG_DIR=str(scene.folder / "claude"))
    try:
        started = start_detached(folder, 0, sources=sources)
    finally:
        os.environ.clear()
        os.environ.update(before)
    yield PageBoss(folder, started)
    scene.end(started["pid"])


class PageSocket:
    """A terminal of the page, without a browser: reads what comes, and acknowledges it as the page does."""

    def __init__(self, boss: PageBoss, name: str) -> None:
        address = parse_uri(f"ws://127.0.0.1:{boss.port}/v1/sessions/{name}/terminal")
        self._sock = socket.create_connection(("127.0.0.1", boss.port), timeout=_TIMEOUT)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._protocol = ClientProtocol(address, max_size=None)
        request = self._protocol.connect()
        request.headers.update(Headers(Authorization=f"Bearer {boss.token}"))
        self._protocol.send_request(request)
        self._flush()
        while not self._events():
            self._receive()
        self._waiting: list[Frame] = []

    def close(self) -> None:
        """Also ends a `read` in another thread."""
        self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _flush(self) -> None:
        self._sock.sendall(b"".join(self._protocol.data_to_send()))

    def _receive(self) -> None:
        data = self._sock.recv(_READ_BYTES)
        if not data:
            raise EOFError("the boss closed the terminal")
        self._protocol.receive_data(data)

    def _events(self) -> list[Any]:
        return self._protocol.events_received()

    def say(self, kind: str, **fields: Any) -> None:
        self._protocol.send_text(json.dumps({"type": kind, **fields}).encode())
        self._flush()

    def type(self, data: bytes) -> None:
        self._protocol.send_binary(data)
        self._flush()

    def frame(self) -> Frame:
        while not self._waiting:
            self._waiting = [one for one in self._events() if isinstance(one, Frame)]
            if not self._waiting:
                self._receive()
        return self._waiting.pop(0)

    def read(self, *, acks: bool = True) -> bytes:
        """The next output."""
        while (frame := self.frame()).opcode is not Opcode.BINARY:
            pass
        data = bytes(frame.data)
        if acks:
            self.say("ack", bytes=len(data))
        return data

    def until_said(self, kind: str) -> None:
        while (frame := self.frame()).opcode is not Opcode.TEXT or json.loads(bytes(frame.data))[
            "type"
        ] != kind:
            pass


# ── memory ──


def reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    """The most memory that it had since `reset_peak`."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
