"""The protocol between `remuda pool serve` and its peers. Pure: bytes in, messages out; no I/O, no clock.

A frame is a length of four bytes, big-endian, and that many bytes of JSON: an object with a `type`. Unknown
fields are ignored. An unknown type, a type that is not allowed at this point, and everything that is not such
a frame are errors.

It is not `wire`, whose frames are limited to 1 MiB: a prompt may have 10 MiB here. And since both ends must
still speak version 1, a second framing would only add code.

    peer                                              server
    hello {version}                                   hello {version, server_version, pid, backend, pool_size}
    run {prompt, options, stream, raw, permissions,   token, tool_use, tool_result, permission, raw …
        requires}
    decision {id, behavior, …}                        alive           when nothing else was sent for a while
    cancel                                            done {result, more}; then usage, if more is true
    status, metrics, prewarm, shutdown                status, metrics, prewarmed, stopping
                                                      error {code, message, hint, detail, begun}

A connection carries one request. The peer may send it together with its hello. Closing the connection, or
only its sending side, cancels the request.

This module has no dataclass and few imports, since short commands load it.
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
"""The largest prompt fits, also if each byte of it needs six in JSON, together with an environment."""
MAX_GREETING_BYTES: Final = 64 << 10
_LENGTH_BYTES: Final = 4

# (state, type of a received message) → next state.
_TO_SERVER: Final[dict[tuple[str, str], str]] = {
    ("new", "hello"): "greeted",
    ("greeted", "run"): "running",
    ("greeted", "prewarm"): "running",
    ("greeted", "status"): "asked",
    ("greeted", "metrics"): "asked",
    ("greeted", "shutdown"): "asked",
    ("running", "decision"): "running",
    ("running", "cancel"): "cancelled",
    ("cancelled", "decision"): "cancelled",  # sent before the cancel arrived
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
        "inherit_env": (bool,),
    },
    "prewarm": {"options": (dict,), "count": (int,), "permissions": (str,), "requires": (dict,)},
    "decision": {"input": (dict,), "always": (bool,), "message": (str,), "interrupt": (bool,)},
    "tool_result": {"is_error": (bool,)},
    "permission": {"suggestions": (list,)},
    "done": {"more": (bool,)},
    "usage": {"usage": (dict,)},
    "error": {"hint": (str,), "detail": (str,), "begun": (bool,)},
}
"""Optional; null is the same as absent."""


def encode(message: Mapping[str, Any], max_bytes: int = MAX_FRAME_BYTES) -> bytes:
    """Return one frame. Raises `LocalProtocolError` for a message that no peer would accept."""
    try:
        # A lone surrogate represents a byte of an environment that is not UTF-8; it arrives unchanged.
        body = json.dumps(message, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise LocalProtocolError(f"the message cannot be written as JSON: {error}") from error
    if len(body) > max_bytes:
        raise LocalProtocolError(f"a frame of {len(body)} bytes exceeds the limit of {max_bytes}")
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def hello(**facts: Any) -> Message:
    return {"type": "hello", "protocol": PROTOCOL, "version": VERSION, **facts}


class PoolProtocol:
    """One end of a connection: takes bytes, returns messages, and checks that each is allowed now."""

    def __init__(self, *, server: bool, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._table = _TO_SERVER if server else _TO_PEER
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self.state = "new"

    @property
    def is_over(self) -> bool:
        """Whether no message may follow."""
        return self.state == "ended"

    def receive(self, data: bytes) -> Iterator[Message]:
        """Yield every complete message. Raises `RemoteProtocolError` after the valid ones."""
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
                yield self._check(_parse(body))
        finally:
            del self._buffer[:start]

    def _check_length(self, length: int) -> None:
        limit = MAX_GREETING_BYTES if self.state == "new" else self._max_bytes
        if length > limit:
            raise RemoteProtocolError(f"a frame of {length} bytes exceeds the limit of {limit}")

    def _check(self, message: Message) -> Message:
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


def is_event(message: Message) -> bool:
    """Return whether a message that came another way is a valid one of a request, and not its end."""
    kind = message.get("type")
    if not isinstance(kind, str) or _TO_PEER.get(("greeted", kind)) != "greeted":
        return False
    try:
        _check_fields(kind, message)
    except RemoteProtocolError:
        return False
    return True


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
