"""As much of HTTP/1.1 as an agent's client library speaks to the model."""

from __future__ import annotations

import asyncio
import http
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_HEAD_BYTES = 1 << 20


class ProtocolError(Exception):
    """The client sent what this server does not understand."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as it came off the wire."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Incoming | None:
    """The next request of the connection, or None at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial.strip():
            raise ProtocolError("the connection ended inside a request's head") from error
        return None
    except asyncio.LimitOverrunError as error:
        raise ProtocolError("the request's head is too long") from error
    method, path, headers = _parse_head(head)
    if "transfer-encoding" in headers:
        raise ProtocolError("a request body needs a content-length")
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return Incoming(method, path, headers, await _read_body(reader, headers))


def response(
    status: int, body: bytes = b"", headers: Mapping[str, str] | None = None, *, head_only: bool = False
) -> bytes:
    """A whole answer with its length."""
    fields = {"content-type": "application/json", **(headers or {}), "content-length": str(len(body))}
    return head(status, fields) + (b"" if head_only else body)


def json_response(status: int, value: Any, headers: Mapping[str, str] | None = None) -> bytes:
    return response(status, json.dumps(value).encode(), headers)


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """The status line and the headers."""
    lines = [f"HTTP/1.1 {status} {_phrase(status)}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """A part of a chunked body; without data, its end."""
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    length = headers.get("content-length", "0")
    if not length.isdecimal():
        raise ProtocolError(f"content-length is {length!r}")
    try:
        return await reader.readexactly(int(length))
    except asyncio.IncompleteReadError as error:
        raise ProtocolError("the connection ended inside a request's body") from error


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise ProtocolError(f"not a request: {first[:80]!r}")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ProtocolError(f"not a header: {line[:80]!r}")
        headers[name.strip().lower()] = value.strip()
    return words[0], words[1], headers


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:  # 529 is the API's own
        return "Error"
