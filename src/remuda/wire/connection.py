"""Both ends of a connection, without I/O: bytes in, events out; values in, bytes out.

    keeper end                              client end
    ──────────                              ──────────
    greeting()            mode byte  ──▶    (checked by the first receive)
    receive() ◀── INPUT SUBSCRIBE STATUS RESIZE KILL HELLO REQUEST ACK
    OUTPUT STATUS_RESP EXIT WELCOME RESPONSE EVENT REPAINT ──▶ receive()

A keeper tolerates frames that it does not know (`UnknownFrame`), as Heimdall does. A known frame that is
malformed is a `RemoteProtocolError`, and the connection must be closed. Our additions are refused to a peer
that did not say HELLO first (`LocalProtocolError`): an old client never sees a type byte that it does not
know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from remuda.errors import LocalProtocolError, RemoteProtocolError, from_code
from remuda.frozen import frozen

from . import messages
from .frames import Frame, FrameReader, frame
from .messages import MODE_BINARY, PROTOCOL_VERSION, HeimdallReader, Status, Type

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from typing import Any

ANSWER_TIMEOUT = 5.0
"""Seconds in which a keeper answers what it need not wait for."""

# ── what the keeper hears ────────────────────────────────────────────────────────────────────────────


@frozen
class InputReceived:
    data: bytes


@frozen
class SubscribeAsked:
    pass


@frozen
class StatusAsked:
    pass


@frozen
class ResizeAsked:
    cols: int
    rows: int


@frozen
class KillAsked:
    pass


@frozen
class HelloReceived:
    """The peer knows our additions. `window_bytes` 0 means that it does not acknowledge output.

    `raw`: the output goes to a real terminal, which will answer the queries in it.
    """

    version: int
    client: str
    read_only: bool
    window_bytes: int
    raw: bool = False


@frozen
class RequestReceived:
    id: int
    op: str
    args: dict[str, Any]


@frozen
class OutputAcked:
    byte_count: int


@frozen
class UnknownFrame:
    type: int


# ── what the client hears ────────────────────────────────────────────────────────────────────────────


@frozen
class OutputReceived:
    data: bytes


@frozen
class StatusReceived:
    status: Status


@frozen
class ExitReceived:
    code: int


@frozen
class WelcomeReceived:
    document: dict[str, Any]


@frozen
class ResponseReceived:
    id: int
    document: dict[str, Any]


def result_of(document: dict[str, Any]) -> dict[str, Any]:
    """Return the result in the answer to a request. Raises the error that the keeper reports."""
    if not document.get("ok"):
        error = document.get("error") or {}
        raise from_code(error.get("code", ""), error.get("message", "refused"), error.get("hint"))
    result = document.get("result")
    return result if isinstance(result, dict) else {}


@frozen
class EventReceived:
    document: dict[str, Any]


@frozen
class RepaintReceived:
    """The complete screen: forget what was drawn, and feed this to a terminal that was reset."""

    data: bytes


KeeperEvent = (
    InputReceived
    | SubscribeAsked
    | StatusAsked
    | ResizeAsked
    | KillAsked
    | HelloReceived
    | RequestReceived
    | OutputAcked
    | UnknownFrame
)
ClientEvent = (
    OutputReceived
    | StatusReceived
    | ExitReceived
    | WelcomeReceived
    | ResponseReceived
    | EventReceived
    | RepaintReceived
    | UnknownFrame
)


def _parse_hello(payload: bytes) -> HelloReceived:
    document = messages.parse_json(payload)
    version, window = document.get("version"), document.get("window", 0)
    if not isinstance(version, int) or not isinstance(window, int) or window < 0:
        raise RemoteProtocolError("version and window of a HELLO must be integers")
    return HelloReceived(
        version,
        str(document.get("client", "")),
        document.get("read_only") is True,
        window,
        document.get("raw") is True,
    )


def _parse_request(payload: bytes) -> RequestReceived:
    document = messages.parse_json(payload)
    request_id, op, args = document.get("id"), document.get("op"), document.get("args", {})
    if not isinstance(request_id, int) or not isinstance(op, str) or not isinstance(args, dict):
        raise RemoteProtocolError("a REQUEST needs a numeric id, an op, and args that are an object")
    return RequestReceived(request_id, op, args)


def _parse_response(payload: bytes) -> ResponseReceived:
    document = messages.parse_json(payload)
    request_id = document.get("id")
    if not isinstance(request_id, int):
        raise RemoteProtocolError("a RESPONSE needs the id of its request")
    return ResponseReceived(request_id, document)


_KEEPER_HEARS: dict[int, Callable[[bytes], KeeperEvent]] = {
    Type.INPUT: InputReceived,
    Type.SUBSCRIBE: lambda _: SubscribeAsked(),
    Type.STATUS: lambda _: StatusAsked(),
    Type.RESIZE: lambda payload: ResizeAsked(*messages.parse_size(payload)),
    Type.KILL: lambda _: KillAsked(),
    Type.HELLO: _parse_hello,
    Type.REQUEST: _parse_request,
    Type.ACK: lambda payload: OutputAcked(messages.parse_ack(payload)),
}

_CLIENT_HEARS: dict[int, Callable[[bytes], ClientEvent]] = {
    Type.OUTPUT: OutputReceived,
    Type.STATUS_RESP: lambda payload: StatusReceived(Status.from_payload(payload)),
    Type.EXIT: lambda payload: ExitReceived(messages.parse_exit(payload)),
    Type.WELCOME: lambda payload: WelcomeReceived(messages.parse_json(payload)),
    Type.RESPONSE: _parse_response,
    Type.EVENT: lambda payload: EventReceived(messages.parse_json(payload)),
    Type.REPAINT: RepaintReceived,
}


class KeeperConnection:
    """The keeper's end."""

    __slots__ = ("_reader", "hello")

    def __init__(self) -> None:
        self.hello: HelloReceived | None = None
        self._reader = FrameReader()

    @property
    def between_frames(self) -> bool:
        """Whether the next byte is the first of a frame."""
        return not self._reader.buffer

    def greeting(self) -> bytes:
        return MODE_BINARY

    def receive(self, data: bytes) -> Iterator[KeeperEvent]:
        """Yield the events in `data`, in order; those before a broken frame are still valid.

        Read it to its end.
        """
        return map(self._understand, self._reader.feed(data))

    def _understand(self, one: Frame) -> KeeperEvent:
        parse = _KEEPER_HEARS.get(one.type)
        if parse is None:
            return UnknownFrame(one.type)
        event = parse(one.payload)
        if isinstance(event, HelloReceived):
            self.hello = event
        return event

    def status(self, status: Status) -> bytes:
        return frame(Type.STATUS_RESP, status.to_payload())

    def exit(self, code: int) -> bytes:
        return frame(Type.EXIT, messages.exit_payload(code))

    def welcome(self, document: dict[str, Any]) -> bytes:
        return self._ours(Type.WELCOME, {"version": PROTOCOL_VERSION, **document})

    def response(self, request_id: int, document: dict[str, Any]) -> bytes:
        return self._ours(Type.RESPONSE, {"id": request_id, **document})

    def event(self, document: dict[str, Any]) -> bytes:
        return self._ours(Type.EVENT, document)

    def _ours(self, frame_type: Type, document: dict[str, Any]) -> bytes:
        if self.hello is None:
            raise LocalProtocolError(f"{frame_type.name} is only for a peer that sent HELLO")
        return messages.json_frame(frame_type, document)


class ClientConnection:
    """The client's end. The first byte that arrives must be the mode byte."""

    __slots__ = ("_greeted", "_reader")

    def __init__(self) -> None:
        self._greeted = False
        self._reader = FrameReader()

    @property
    def between_frames(self) -> bool:
        """Whether the next byte is the first of a frame."""
        return self._greeted and not self._reader.buffer

    def receive(self, data: bytes) -> Iterator[ClientEvent]:
        """Yield the events in `data`, in order; those before a broken frame are still valid.

        Read it to its end.
        """
        if not self._greeted and data:
            if data[:1] != MODE_BINARY:
                raise RemoteProtocolError(f"the peer speaks mode 0x{data[0]:02x}, not binary framing")
            self._greeted = True
            data = data[1:]
        return map(self._understand, self._reader.feed(data))

    def expect_heimdall(self) -> None:
        """Note that the peer is a Heimdall supervisor, whose last output may have no header."""
        reader = HeimdallReader()
        reader.buffer = self._reader.buffer
        self._reader = reader

    def end(self) -> Iterator[ClientEvent]:
        """Return the events in what is left, at the end of the stream."""
        return map(self._understand, self._reader.rest())

    @staticmethod
    def _understand(one: Frame) -> ClientEvent:
        parse = _CLIENT_HEARS.get(one.type)
        return UnknownFrame(one.type) if parse is None else parse(one.payload)

    @staticmethod
    def input(data: bytes) -> bytes:
        return frame(Type.INPUT, data)

    @staticmethod
    def subscribe() -> bytes:
        return frame(Type.SUBSCRIBE)

    @staticmethod
    def ask_status() -> bytes:
        return frame(Type.STATUS)

    @staticmethod
    def resize(cols: int, rows: int) -> bytes:
        return frame(Type.RESIZE, messages.size_payload(cols, rows))

    @staticmethod
    def kill() -> bytes:
        return frame(Type.KILL)

    @staticmethod
    def hello(client: str, *, read_only: bool = False, window_bytes: int = 0, raw: bool = False) -> bytes:
        document = {
            "version": PROTOCOL_VERSION,
            "client": client,
            "read_only": read_only,
            "window": window_bytes,
            "raw": raw,
        }
        return messages.json_frame(Type.HELLO, document)

    @staticmethod
    def request(request_id: int, op: str, args: dict[str, Any] | None = None) -> bytes:
        return messages.json_frame(Type.REQUEST, {"id": request_id, "op": op, "args": args or {}})

    @staticmethod
    def ack(byte_count: int) -> bytes:
        return frame(Type.ACK, messages.ack_payload(byte_count))
