"""What the hub stores, and how much of it."""

from __future__ import annotations

import pytest

from remuda.errors import FolderUnusable
from remuda.fleet import streams
from remuda.fleet.subjects import KeyRecord, Role


@pytest.mark.parametrize(("room", "each"), [(128 << 20, 16 << 20), (1 << 30, 128 << 20), (1 << 40, 1 << 30)])
def test_streams_share_three_quarters_of_the_disk_up_to_a_limit(room: int, each: int) -> None:
    assert streams.stream_bytes(room) == each
    assert {one["max_bytes"] for one in streams.streams(1, each)} == {each}


def test_a_disk_that_is_too_small_is_refused_with_what_is_needed() -> None:
    with pytest.raises(FolderUnusable, match="room for 100 MiB, and the hub needs 128"):
        streams.stream_bytes(100 << 20)


def test_messages_and_events_are_announced_to_no_one() -> None:
    announced = {one["name"] for one in streams.streams(1) if "republish" in one}
    assert announced == {"RECEIPT", "KV_hosts", "KV_sessions", "KV_accounts"}
    assert all(one["republish"]["headers_only"] for one in streams.streams(1) if "republish" in one)


def test_each_key_has_the_queues_of_its_roles() -> None:
    keys = [KeyRecord("a", "UA", (Role.HOST,)), KeyRecord("b", "UB", (Role.VIEWER,))]
    found = [(stream, one["name"], one["filter_subject"]) for stream, one in streams.consumers(keys)]
    assert found == [("INBOX", "any", "in.any.>"), ("INBOX", "a", "in.a.>"), ("EVENTS", "b", "ev.*.*")]
