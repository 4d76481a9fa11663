"""The ring: complete pieces, oldest forgotten first, never more than its bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remuda.terminal.history_format import PIECE_BYTES, Ring


def test_append_beyond_the_bound_forgets_the_oldest_piece() -> None:
    ring = Ring(10)
    for data in (b"hello", b"world", b"!"):
        ring.append(data)
    assert (len(ring), ring.size_bytes, ring.snapshot()) == (2, 6, b"world!")


def test_append_bound_zero_keeps_nothing() -> None:
    ring = Ring(0)
    ring.append(b"hello")
    ring.append(bytes(3 * PIECE_BYTES))
    assert (len(ring), ring.size_bytes, ring.snapshot()) == (0, 0, b"")


def test_append_piece_larger_than_the_bound_keeps_nothing() -> None:
    ring = Ring(5)
    ring.append(b"twelve bytes")
    assert ring.snapshot() == b""


def test_snapshot_twice_is_the_same() -> None:
    ring = Ring(100)
    ring.append(b"a")
    ring.append(b"b")
    assert ring.snapshot() == ring.snapshot() == b"ab"


def test_append_one_long_read_keeps_its_end() -> None:
    ring = Ring(2 * PIECE_BYTES)
    data = bytes(index % 251 for index in range(10 * PIECE_BYTES))
    ring.append(data)
    assert ring.snapshot() == data[-2 * PIECE_BYTES :]


@given(st.integers(0, 12_000), st.lists(st.integers(0, 30_000), max_size=8))
def test_append_anything_snapshot_is_the_end_and_within_the_bound(bound: int, sizes: list[int]) -> None:
    ring = Ring(bound)
    everything = b""
    for number, size in enumerate(sizes):
        data = bytes((number * 31 + index) % 256 for index in range(size))
        everything += data
        ring.append(data)
        kept = ring.snapshot()
        assert len(kept) == ring.size_bytes <= bound
        assert everything.endswith(kept)


@given(st.integers(PIECE_BYTES, 12_000), st.lists(st.integers(1, 30_000), min_size=1, max_size=8))
def test_append_more_than_the_bound_loses_at_most_one_piece_more(bound: int, sizes: list[int]) -> None:
    ring = Ring(bound)
    for size in sizes:
        ring.append(bytes(size))
    assert ring.size_bytes > min(sum(sizes), bound) - PIECE_BYTES
