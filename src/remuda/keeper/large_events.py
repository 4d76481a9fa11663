"""Events that are too large for one frame: the event names the rest, and clients fetch it in pieces.

An event that is not read soon counts against its reader (see `fanout`), and a tool's output can have
megabytes. So only short events are sent complete.
"""

from __future__ import annotations

import itertools
import json
from collections import OrderedDict
from typing import Any

from remuda.errors import InvalidOptions

MAX_EVENT_BYTES = 16 << 10
"""Larger events are sent only on request."""
_PIECE_BYTES = 256 << 10
_KEPT_BYTES = 64 << 20
_SHORT_BYTES = 256


class LargeEvents:
    """Keeps the newest, some megabytes of them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._numbers = itertools.count(1)

    def shorten(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the event to send: complete, or its short fields and the `parcel` with all fields."""
        data = json.dumps(document, separators=(",", ":")).encode()
        if len(data) <= MAX_EVENT_BYTES:
            return document
        name = f"p{next(self._numbers)}"
        self._keep(name, data)
        short = {key: value for key, value in document.items() if len(json.dumps(value)) <= _SHORT_BYTES}
        return {**short, "parcel": {"id": name, "bytes": len(data)}}

    def _keep(self, name: str, data: bytes) -> None:
        self._kept[name] = data
        self._bytes += len(data)
        while self._bytes > _KEPT_BYTES and len(self._kept) > 1:
            self._bytes -= len(self._kept.popitem(last=False)[1])

    def piece(self, name: object, offset: object) -> dict[str, Any]:
        """Return a piece.

        The data is JSON in ASCII, so it may be cut anywhere. `next` is None after the last piece.
        """
        data = self._kept.get(str(name))
        if data is None:
            raise InvalidOptions(f"no parcel {name!r}", hint="it has expired")
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise InvalidOptions(f"offset must be an integer, not {offset!r}")
        end = offset + _PIECE_BYTES
        return {"data": data[offset:end].decode(), "next": end if end < len(data) else None}
