"""What `remuda pool serve` and its peers say to each other. Pure: bytes in, messages out; no I/O, no clock.

A frame is four bytes of length, the most significant first, and so many bytes of JSON: an object with a
`type`.
A field that nobody knows is passed over; a type that is unknown, or that does not belong where it came, is an
error, and so is everything that is not such a frame.

    peer                                              server
    hello {version}                                   hello {version, server_version, pid, backend, pool_size}
    run {prompt, options, stream, raw, permissions,   token, tool_use, tool_result, permission, raw …
        requires}
    decision {id, behavior, …}                        alive           when there was nothing else to say
    cancel                                            done {result, more}, then usage where more is to come
    status, metrics, prewarm, shutdown                status, metrics, prewarmed, stopping
                                                      error {code, message, hint, detail, begun}

One request a connection. The peer may send it right behind its hello. Whoever closes the connection, or only
ends his sending, has cancelled his request.

No dataclass and no import that a short command would have to pay for.
"""

from __future__ import annotations

import json

from remuda.errors import LocalProtocolError, RemoteProtocolError
from remuda.untrusted import BadJson, parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Final

    Message = dict[str, Any]
else:
    Message = dict

PROTOCOL: Final = "remuda-pool"
VERSION: Final = 1
MAX_PROMPT_BYTES: Final = 10 << 20
MAX_FRAME_BYTES: Final = 64 << 20
"""The largest prompt fits, also when every byte of it needs six in JSON, with an environment beside it."""
MAX_GREETING_BYTES: Final = 64 << 10
_LENGTH_BYTES: Final = 4

# What may come, by where the conversation stands, and where it stands then.
_TO_SERVER: Final[dict[tuple[str, str], str]] = {
    ("new", "hello"): "greeted",
    ("greeted", "run"): "running",
    ("greeted", "prewarm"): "running",
    ("greeted", "status"): "asked",
    ("greeted", "metrics"): "asked",
    ("greeted", "shutdown"): "asked",
    ("running", "decision"): "running",
    ("running", "cancel"): "cancelled",
    ("cancelled", "decision"): "cancelled",  # it had been sent before
    ("cancelled", "cancel"): "cancelled",
}
_TO_PEER: Final[dict[tuple[str, str], str]] = {
    ("new", "hello"): "greeted",
    ("new", "error"): "ended",
    **{("greeted", kind): "greeted" for kind in ("alive", "token", "tool_use", "tool_result")},
    **{("greeted", kind): "greeted" for kind in ("permission", "raw")},
    ("greeted", "done"): "done",
    ("done", "alive"): "done",
    ("done", "usage"): "ended",
    **{("greeted", kind): "ended" for kind in ("error", "status", "metrics", "prewarmed", "stopping")},
}
_FIELDS: Final[dict[str, dict[str, tuple[type, ...]]]] = {
    "hello": {"version": (int,)},
    "run": {"prompt": (str,)},
    "decision": {"id": (str,), "behavior": (str,)},
    "token": {"text": (str,)},
    "tool_use": {"id": (str,), "name": (str,), "input": (dict,)},
    "tool_result": {"id": (str,)},
    "permission": {"id": (str,), "tool": (str,), "input": (dict,)},
    "raw": {"message": (dict,)},
    "done": {"result": (dict,)},
    "error": {"code": (str,), "message": (str,)},
}
_MAY_HAVE: Final[dict[str, dict[str, tuple[type, ...]]]] = {
    "run": {
        "options": (dict,),
        "stream": (bool,),
        "raw": (bool,),
        "permissions": (str,),
        "requires": (dict,),
    },
    "prewarm": {"options": (dict,), "count": (int,), "permissions": (str,), "requires": (dict,)},
    "decision": {"input": (dict,), "always": (bool,), "message": (str,), "interrupt": (bool,)},
    "tool_result": {"is_error": (bool,)},
    "permission": {"suggestions": (list,)},
    "done": {"more": (bool,)},
    "usage": {"usage": (dict,)},
    "error": {"hint": (str,), "detail": (str,), "begun": (bool,)},
}
"""Where they are null they are as good as absent."""


def encode(message: Mapping[str, Any], max_bytes: int = MAX_FRAME_BYTES) -> bytes:
    """One frame. Raises `LocalProtocolError` for what no peer would take."""
    try:
        # A lone surrogate stands for a byte of an environment that is no text; it comes out as it went in.
        body = json.dumps(message, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise LocalProtocolError(f"the message cannot be written as JSON: {error}") from error
    if len(body) > max_bytes:
        raise LocalProtocolError(f"a frame of {len(body)} bytes exceeds the limit of {max_bytes}")
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def hello(**facts: Any) -> Message:
    return {"type": "hello", "protocol": PROTOCOL, "version": VERSION, **facts}


class Conversation:
    """One end of a connection: what the other end says, message by message, as far as it may say that now."""

    def __init__(self, *, server: bool, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._table = _TO_SERVER if server else _TO_PEER
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self.state = "new"

    @property
    def is_over(self) -> bool:
        """Whether nothing may follow."""
        return self.state == "ended"

    @property
    def in_frame(self) -> bool:
        """Whether one has begun and is not whole. At the end of a stream it never will be."""
        return bool(self._buffer)

    def receive(self, data: bytes) -> Iterator[Message]:
        """Every message that is whole now. Raises `RemoteProtocolError`, behind those that were right."""
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= _LENGTH_BYTES:
                length = int.from_bytes(self._buffer[start : start + _LENGTH_BYTES], "big")
                self._check_length(length)
                end = start + _LENGTH_BYTES + length
                if len(self._buffer) < end:
                    break
                body = bytes(self._buffer[start + _LENGTH_BYTES : end])
                start = end
                yield self._take(_parse(body))
        finally:
            del self._buffer[:start]

    def _check_length(self, length: int) -> None:
        limit = MAX_GREETING_BYTES if self.state == "new" else self._max_bytes
        if length > limit:
            raise RemoteProtocolError(f"a frame of {length} bytes exceeds the limit of {limit}")

    def _take(self, message: Message) -> Message:
        kind = message.get("type")
        if not isinstance(kind, str):
            raise RemoteProtocolError("the message has no type")
        state = self._table.get((self.state, kind))
        if state is None:
            known = any(kind == other for _, other in self._table)
            why = f"unexpected message '{kind}'" if known else f"unknown message '{kind[:40]}'"
            raise RemoteProtocolError(why)
        _check_fields(kind, message)
        if self.state == "new" and kind == "hello":
            _check_hello(message)
        if kind == "done" and not isinstance(message["result"].get("text"), str):
            raise RemoteProtocolError("the result has no text")
        self.state = state
        return message


def _parse(body: bytes) -> Message:
    try:
        message = parse_json(body, keep_surrogates=True)
    except BadJson as error:
        raise RemoteProtocolError(f"the frame is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise RemoteProtocolError("the frame is not a JSON object")
    return message


def _check_fields(kind: str, message: Message) -> None:
    for name, types in _FIELDS.get(kind, {}).items():
        if not _is_one(message.get(name), types):
            raise RemoteProtocolError(f"message '{kind}' needs a valid '{name}'")
    for name, types in _MAY_HAVE.get(kind, {}).items():
        if message.get(name) is not None and not _is_one(message[name], types):
            raise RemoteProtocolError(f"message '{kind}' has an invalid '{name}'")


def _is_one(value: object, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


def _check_hello(message: Message) -> None:
    if message.get("protocol", PROTOCOL) != PROTOCOL:
        raise RemoteProtocolError(f"the other end does not speak {PROTOCOL}")
    if message["version"] != VERSION:
        raise RemoteProtocolError(
            f"the other end speaks version {message['version']} of the pool protocol, this end {VERSION}",
            hint="run the same version of remuda at both ends; 'remuda pool stop' stops the server",
        )
