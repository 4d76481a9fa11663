"""What is too large for a frame is named, and fetched in pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remuda.errors import InvalidOptions
from remuda.keeper.fanout import MAX_EVENT_BYTES, LargeEvents


def fetch(events: LargeEvents, told: dict[str, Any]) -> dict[str, Any]:
    data, offset = "", 0
    while True:
        piece = events.piece(told["parcel"]["id"], offset)
        data += piece["data"]
        if piece["next"] is None:
            break
        offset = piece["next"]
    assert len(data) == told["parcel"]["bytes"]
    found: dict[str, Any] = json.loads(data)
    return found


def test_short_document_is_reported_as_it_is() -> None:
    document = {"event": "tool", "input": {"a": "ü" * 100}}
    assert LargeEvents().shorten(document) is document


@pytest.mark.parametrize("size", [MAX_EVENT_BYTES, 3_000_000])
def test_long_document_is_fetched_whole(size: int) -> None:
    events = LargeEvents()
    document = {"event": "tool", "id": "t1", "input": {"text": "ü\x00\n" * (size // 4), "half": "\ud83d"}}
    told = events.shorten(document)
    assert {key for key in told if key != "parcel"} == {"event", "id"}
    assert len(json.dumps(told)) < MAX_EVENT_BYTES
    assert fetch(events, told) == document


def test_old_events_make_room_for_new_ones() -> None:
    events = LargeEvents()
    first, *_, last = [events.shorten({"event": "x", "text": "y" * (8 << 20)}) for _ in range(12)]
    with pytest.raises(InvalidOptions):
        events.piece(first["parcel"]["id"], 0)
    assert fetch(events, last)["event"] == "x"


@pytest.mark.parametrize(("name", "offset"), [("p9", 0), (None, 0), ("p1", -1), ("p1", "0"), ("p1", True)])
def test_piece_of_nothing_is_refused(name: object, offset: object) -> None:
    events = LargeEvents()
    events.shorten({"text": "y" * MAX_EVENT_BYTES})
    with pytest.raises(InvalidOptions):
        events.piece(name, offset)
