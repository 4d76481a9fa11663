"""A session's terminal over a WebSocket: the screen first, then live output, and keys of a client in control.

Bytes of the terminal are binary messages, all else is JSON; see docs/reference/http.md. Output waits nowhere
but in the keeper: the client acknowledges what it has drawn, and the boss passes that on. A client that does
not read or draw is sent the screen when it does again. So neither the agent nor the boss waits for it.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from remuda.boss.ports import BossParts
from remuda.errors import InvalidOptions, NotSafe, PermissionRefused, RemudaError, SessionDead
from remuda.keeper.aclient import AsyncKeeperClient as Keeper
from remuda.keeper.aclient import TerminalEvent
from remuda.keeper.elsewhere import open_tunnel
from remuda.keeper.history_reader import last_lines, last_screen, styled_lines
from remuda.keeper.history_stream import HistoryStream
from remuda.keeper.size import check_size
from remuda.names import is_name
from remuda.paths import SessionPaths, sessions_folder
from remuda.tasks import TaskSet, in_thread
from remuda.untrusted import BadJson, dump_json, parse_object
from remuda.wire import connection as wire

from . import elsewhere
from .route import ApiRequest, ApiResponse, Route
from .session_routes import refuse_replaced

WINDOW_BYTES = 512 << 10
"""Output that a client has not acknowledged: xterm.js draws as much in a tenth of a second."""
_QUEUE_BYTES = 1 << 20
"""What waits for the client's socket. Above this nothing is read from the keeper or from the client."""
_INPUT_BYTES = 1 << 20
_MESSAGE_BYTES = 128 << 10
_CLOSE_TIMEOUT = 1.0
"""A client whose login has ended gets the reason, if it reads."""
_MOST_LINES = 20_000
_SCREEN_TIMEOUT = 10.0
_HISTORY_CHARACTERS = 4 << 20
_NOT_TYPED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Pasted text is data: no key and no end of a paste is in it."""

LOGGED_OUT, NOT_FOUND, GONE = 4401, 4404, 4502
"""Codes with which the WebSocket is closed."""

Document = dict[str, Any]
OnEvent = Callable[[Document], None]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


def find_paths(boss: BossParts, word: str) -> SessionPaths:
    """Return the files of a kept session, by its name or as `BossService.session` finds it.

    Raises as that, and `NotSafe` for an agent without a keeper, or whose terminal is another one's by now.
    """
    folder = sessions_folder()
    if is_name(word):
        paths = SessionPaths.of(word, folder)
        if paths.pid.exists() or paths.record.exists():
            return paths
    session = boss.service.session(word)
    if session.name is None:
        raise NotSafe("this agent has no terminal here", hint="only sessions of 'remuda start' have one")
    refuse_replaced(session)
    return SessionPaths.of(session.name, folder)


async def get_terminal(boss: BossParts, request: ApiRequest) -> ApiResponse:
    """Explain what to do: a WebSocket does not come here."""
    find_paths(boss, request.path["session"])
    raise InvalidOptions(
        "this is a WebSocket", hint="see docs/reference/http.md; plain requests have no terminal"
    )


async def serve_terminal(
    boss: BossParts, word: str, login: str | None, receive: Receive, send: Send, abort: Callable[[], None]
) -> None:
    """Serve one WebSocket to its end. `login` is that of its cookie: it ends with it.

    `abort` ends the connection, whether the client reads or not.
    """
    await receive()  # websocket.connect
    await send({"type": "websocket.accept"})
    try:
        place = elsewhere.split(boss, word)
        source = _There(boss, *place) if place is not None else _Here(find_paths(boss, word))
        terminal = _Terminal(source, receive, send, abort)
        await terminal.open()
    except RemudaError as error:
        await send({"type": "websocket.send", "text": dump_json(_error(error))})
        await send({"type": "websocket.close", "code": NOT_FOUND, "reason": error.code})
        return
    forget = boss.logins.on_end(login, terminal.log_out) if boss.logins is not None else terminal.log_out
    try:
        await terminal.run()
    finally:
        forget()
        terminal.close()


class _Here:
    """A session of this machine."""

    may_type = True

    def __init__(self, paths: SessionPaths) -> None:
        self._paths = paths
        self.name = paths.name

    async def connect(self, on_event: OnEvent, on_end: Callable[[], None], **options: Any) -> Keeper:
        return await Keeper.connect(self.name, self._paths.folder, on_event, on_end, **options)

    async def last_screen(self) -> tuple[tuple[int, int] | None, bytes]:
        """Return the size and the bytes that paint it; nothing if there is none."""
        screen = await in_thread(lambda _: last_screen(self._paths))
        if screen is None:
            return None, b""
        size, painted = (screen.cols, screen.rows), screen.paint()
        screen.close()
        return size, painted

    async def lines(self) -> list[str]:
        return await in_thread(lambda _: last_lines(self._paths))


class _There:
    """A session of another host. Only one who may act there may take control."""

    def __init__(self, boss: BossParts, host: str, word: str) -> None:
        self._boss = boss
        self._host = host
        self._word = word
        self.name = f"{host}/{word}"
        self.may_type = True

    async def connect(self, on_event: OnEvent, on_end: Callable[[], None], **options: Any) -> Keeper:
        try:
            tunnel = await in_thread(lambda _: open_tunnel(self._host, self._word, types=True))
        except PermissionRefused:
            self.may_type = False
            tunnel = await in_thread(lambda _: open_tunnel(self._host, self._word))
        self.name = f"{self._host}/{tunnel.session}"
        tunnel.sock.setblocking(False)
        folder = sessions_folder()
        return await Keeper.connect(self.name, folder, on_event, on_end, sock=tunnel.sock, **options)

    async def last_screen(self) -> tuple[tuple[int, int] | None, bytes]:
        assert self._boss.fleet is not None
        path = f"/v1/sessions/{quote(self._word, safe='')}/screen?styled=true"
        found = await self._boss.fleet.request(self._host, "GET", path, None, _SCREEN_TIMEOUT)
        size = (found["cols"], found["rows"]) if found["cols"] and found["rows"] else None
        return size, "\r\n".join(found["lines"]).encode("utf-8", "replace")

    async def lines(self) -> list[str]:
        def read(_check: Callable[[], None]) -> list[str]:
            with HistoryStream(self._host, self._word, last=True) as stream:
                return styled_lines(stream.read())

        return await in_thread(read)


class _Terminal:
    def __init__(
        self, source: _Here | _There, receive: Receive, send: Send, abort: Callable[[], None]
    ) -> None:
        self._source = source
        self._receive = receive
        self._send = send
        self._abort = abort
        self._keeper: Keeper | None = None
        self._waiting: deque[bytes | str] = deque()
        self._waiting_bytes = 0
        self._came = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_paused = False
        self._code: int | None = None
        self._controls = False
        self._has_exited = False
        self._was_refused = False
        self._tasks = TaskSet()
        self._scrolls = False

    async def open(self) -> None:
        """Connect to the keeper, or find the last screen of a session that has ended."""
        try:
            self._keeper = await self._source.connect(
                self._on_event,
                self._on_end,
                on_terminal=self._on_terminal,
                read_only=True,
                window_bytes=WINDOW_BYTES,
                raw=True,
            )
        except SessionDead:
            self._say("hello", session=self._source.name, alive=False, window=WINDOW_BYTES)
            size, painted = await self._source.last_screen()
            if size is not None:
                self._say("size", cols=size[0], rows=size[1])
                self._say("repaint")
                self._put(painted)
            self._say("exit", code=None)
            return
        self._say("hello", session=self._source.name, alive=True, window=WINDOW_BYTES)
        self._keeper.subscribe()

    def close(self) -> None:
        self._tasks.cancel()
        if self._keeper is not None:
            self._keeper.close()

    def log_out(self) -> None:
        self._end(LOGGED_OUT)
        asyncio.get_running_loop().call_later(_CLOSE_TIMEOUT, self._abort)

    async def run(self) -> None:
        """Serve until the client goes, or its login ends, or the keeper is killed."""
        reading = self._tasks.start(self._read())
        writing = self._tasks.start(self._write())
        await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
        for task in (reading, writing):
            if task.done() and not task.cancelled():
                task.result()

    # ── to the client ──

    def _say(self, kind: str, **fields: Any) -> None:
        self._put(dump_json({"type": kind, **fields}))

    def _put(self, message: bytes | str) -> None:
        self._waiting.append(message)
        self._waiting_bytes += len(message)
        self._came.set()
        if self._waiting_bytes > _QUEUE_BYTES:
            self._has_room.clear()
            if not self._is_paused and self._keeper is not None:
                self._is_paused = True
                self._keeper.pause_reading()

    def _end(self, code: int) -> None:
        self._code = code
        self._came.set()

    async def _write(self) -> None:
        while True:
            await self._came.wait()
            if self._code == LOGGED_OUT:
                self._waiting.clear()
            if self._waiting:
                message = self._next()
                kind = "bytes" if isinstance(message, bytes) else "text"
                await self._send({"type": "websocket.send", kind: message})
            elif self._code is not None:
                await self._send({"type": "websocket.close", "code": self._code})
                return
            else:
                self._came.clear()
            if self._waiting_bytes < _QUEUE_BYTES // 2:
                self._has_room.set()
                if self._is_paused and self._keeper is not None:
                    self._is_paused = False
                    self._keeper.resume_reading()

    def _next(self) -> bytes | str:
        """Return the next message. Output that came in pieces goes in one."""
        message = self._waiting.popleft()
        self._waiting_bytes -= len(message)
        while isinstance(message, bytes) and len(message) < _MESSAGE_BYTES and self._waiting:
            piece = self._waiting[0]
            if isinstance(piece, str):
                break
            self._waiting.popleft()
            message += piece
            self._waiting_bytes -= len(piece)
        return message

    # ── from the keeper ──

    def _on_terminal(self, event: TerminalEvent) -> None:
        if isinstance(event, wire.ExitReceived):
            self._has_exited = True
            self._say("exit", code=event.code)
            return
        if isinstance(event, wire.RepaintReceived):
            self._say("repaint")
        self._put(event.data)

    def _on_event(self, document: Document) -> None:
        fields = {key: value for key, value in document.items() if key != "event"}
        match document.get("event"):
            case "resized":
                self._say("size", **fields)
            case "state" | "lagged" as kind:
                self._say(kind, **fields)

    def _on_end(self) -> None:
        """The keeper hung up: after the end of the session, or because it was killed."""
        self._controls = False
        self._keeper = None
        self._say("control", held=False)
        if not self._has_exited:
            self._end(GONE)

    # ── from the client ──

    async def _read(self) -> None:
        while (message := await self._receive())["type"] == "websocket.receive":
            try:
                if message.get("bytes") is not None:
                    self._type(message["bytes"])
                else:
                    self._obey(parse_object(message.get("text") or ""))
            except (BadJson, InvalidOptions) as error:
                self._say("error", code="BAD_MESSAGE", message=str(error))
            except RemudaError as error:
                self._put(dump_json(_error(error)))
            await self._has_room.wait()  # most messages are answered

    def _obey(self, document: Document) -> None:
        kind = document.get("type")
        if kind == "ack":
            self._acknowledge(_integer(document, "bytes", 1 << 31))
        elif kind == "take":
            self._take(True)
        elif kind == "release":
            self._take(False)
        elif kind == "resize":
            self._resize(_integer(document, "cols", 1 << 15), _integer(document, "rows", 1 << 15))
        elif kind == "paste":
            self._paste(document)
        elif kind == "history":
            self._scroll(_integer(document, "lines", _MOST_LINES))
        else:
            raise InvalidOptions(
                f"unknown message type {str(kind)[:40]!r}",
                hint="known: ack history paste release resize take",
            )

    def _acknowledge(self, byte_count: int) -> None:
        if self._keeper is not None:
            self._keeper.acknowledge(byte_count)

    def _take(self, controls: bool) -> None:
        if self._keeper is None:
            raise SessionDead(f"session '{self._source.name}' has ended")
        if controls and not self._source.may_type:
            raise PermissionRefused("the key of this machine may only watch other hosts")
        self._keeper.set_read_only(not controls)
        self._controls, self._was_refused = controls, False
        self._say("control", held=controls)

    def _resize(self, cols: int, rows: int) -> None:
        if self._keeper is not None and self._controls:
            self._keeper.resize(*check_size(cols, rows))

    def _type(self, data: bytes) -> None:
        if self._keeper is None or not self._controls:
            self._refuse("take control first")
        elif self._keeper.unsent_bytes > _INPUT_BYTES:
            self._refuse("the program does not read its input")
        else:
            self._was_refused = False
            self._keeper.type(data)

    def _refuse(self, why: str) -> None:
        """Say it once: a terminal also answers queries of programs that it shows."""
        if not self._was_refused:
            self._was_refused = True
            self._say("refused", what="input", why=why)

    def _paste(self, document: Document) -> None:
        text = document.get("text")
        if not isinstance(text, str):
            raise InvalidOptions("text must be a string")
        typed = _NOT_TYPED.sub("", text.replace("\r\n", "\r").replace("\n", "\r")).encode("utf-8", "replace")
        self._type(b"\x1b[200~" + typed + b"\x1b[201~" if document.get("bracketed") is True else typed)

    # ── scrolling back ──

    def _scroll(self, lines: int) -> None:
        if not self._scrolls:
            self._scrolls = True
            self._tasks.start(self._tell_history(lines))

    async def _tell_history(self, count: int) -> None:
        try:
            if self._keeper is not None:
                await self._keeper.request("history")  # what waits is on disk then
            lines = (await self._source.lines())[-count:]
        except (RemudaError, OSError):
            lines = []
        finally:
            self._scrolls = False
        self._say("history", lines=_bounded(lines))


def _bounded(lines: list[str]) -> list[str]:
    """Return the last lines that fit."""
    size, first = 0, len(lines)
    while first and size + len(lines[first - 1]) <= _HISTORY_CHARACTERS:
        first -= 1
        size += len(lines[first]) + 1
    return lines[first:]


def _integer(document: Document, key: str, most: int) -> int:
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
        raise InvalidOptions(f"{key} must be an integer from 1 to {most}")
    return value


def _error(error: RemudaError) -> Document:
    return {"type": "error", "code": error.code, "message": error.message, "hint": error.hint}


ROUTES = (
    Route(
        "GET",
        "/v1/sessions/{session}/terminal",
        get_terminal,
        "The terminal of a kept session, as a WebSocket. See docs/reference/http.md for its messages.",
        status=101,
        errors=(400, 404, 409),
    ),
)
