"""What is too large for a frame is named, and fetched in pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remuda.errors import InvalidOptions
from remuda.keeper.parcels import TOLD_BYTES, Parcels


def fetch(parcels: Parcels, told: dict[str, Any]) -> dict[str, Any]:
    data, offset = "", 0
    while True:
        piece = parcels.piece(told["parcel"]["id"], offset)
        data += piece["data"]
        if piece["next"] is None:
            break
        offset = piece["next"]
    assert len(data) == told["parcel"]["bytes"]
    found: dict[str, Any] = json.loads(data)
    return found


def test_short_document_is_told_as_it_is() -> None:
    document = {"event": "tool", "input": {"a": "ü" * 100}}
    assert Parcels().told(document) is document


@pytest.mark.parametrize("size", [TOLD_BYTES, 3_000_000])
def test_long_document_is_fetched_whole(size: int) -> None:
    parcels = Parcels()
    document = {"event": "tool", "id": "t1", "input": {"text": "ü\x00\n" * (size // 4), "half": "\ud83d"}}
    told = parcels.told(document)
    assert {key for key in told if key != "parcel"} == {"event", "id"}
    assert len(json.dumps(told)) < TOLD_BYTES
    assert fetch(parcels, told) == document


def test_old_parcels_make_room_for_new_ones() -> None:
    parcels = Parcels()
    first, *_, last = [parcels.told({"event": "x", "text": "y" * (8 << 20)}) for _ in range(12)]
    with pytest.raises(InvalidOptions):
        parcels.piece(first["parcel"]["id"], 0)
    assert fetch(parcels, last)["event"] == "x"


@pytest.mark.parametrize(("name", "offset"), [("p9", 0), (None, 0), ("p1", -1), ("p1", "0"), ("p1", True)])
def test_piece_of_nothing_is_refused(name: object, offset: object) -> None:
    parcels = Parcels()
    parcels.told({"text": "y" * TOLD_BYTES})
    with pytest.raises(InvalidOptions):
        parcels.piece(name, offset)
