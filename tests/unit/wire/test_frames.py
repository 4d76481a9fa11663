"""Cutting a stream into frames: golden bytes, every cut, the bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.errors import LocalProtocolError, RemoteProtocolError
from remuda.wire.frames import (
    HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    SHORT_BYTES,
    Frame,
    FrameReader,
    frame,
    header,
    short_headers,
    split,
)

GOLDEN = {
    "input": (Frame(0x01, b"\xde\xad"), "01 00000002 DEAD"),
    "status": (Frame(0x03, b""), "03 00000000"),
    "resize": (Frame(0x04, b"\x00\x78\x00\x28"), "04 00000004 0078 0028"),
    "exit 137": (Frame(0x83, b"\x00\x00\x00\x89"), "83 00000004 00000089"),
    "exit -1": (Frame(0x83, b"\xff\xff\xff\xff"), "83 00000004 FFFFFFFF"),
    "alive": (
        Frame(0x82, bytes.fromhex("00001234 00000042 01 02 000004D2 00")),
        "82 0000000F 00001234 00000042 01 02 000004D2 00",
    ),
    "dead": (
        Frame(0x82, bytes.fromhex("0000002A 0000270F 00 FF 000001F4 00")),
        "82 0000000F 0000002A 0000270F 00 FF 000001F4 00",
    ),
}
CASES = [(one, bytes.fromhex(text)) for one, text in GOLDEN.values()]
golden = pytest.mark.parametrize(("one", "wire_bytes"), CASES, ids=list(GOLDEN))

frames = st.builds(Frame, st.integers(0, 255), st.binary(max_size=300))


@golden
def test_frame_golden_gives_these_bytes(one: Frame, wire_bytes: bytes) -> None:
    assert frame(one.type, one.payload) == wire_bytes


@golden
def test_feed_golden_cut_at_every_index_gives_the_frame_once(one: Frame, wire_bytes: bytes) -> None:
    for cut in range(len(wire_bytes) + 1):
        reader = FrameReader()
        assert [*reader.feed(wire_bytes[:cut]), *reader.feed(wire_bytes[cut:])] == [one]
        assert reader.pending_bytes == 0


def test_feed_all_golden_byte_by_byte_gives_all_in_order() -> None:
    reader = FrameReader()
    stream = b"".join(wire_bytes for _, wire_bytes in CASES)
    got = [one for byte in stream for one in reader.feed(bytes((byte,)))]
    assert got == [one for one, _ in CASES]


@given(st.lists(frames, max_size=8), st.lists(st.integers(1, 700), max_size=12))
def test_feed_any_frames_cut_anywhere_gives_them_again(sent: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(frame(one.type, one.payload) for one in sent)
    reader = FrameReader()
    got: list[Frame] = []
    for size in [*cuts, len(stream) + 1]:
        got += reader.feed(stream[:size])
        stream = stream[size:]
    assert got == sent
    assert reader.pending_bytes == 0


@given(st.binary(max_size=200))
def test_feed_any_bytes_gives_frames_or_the_peers_error(data: bytes) -> None:
    reader = FrameReader()
    try:
        got = list(reader.feed(data))
    except RemoteProtocolError:
        return
    assert sum(HEADER_BYTES + len(one.payload) for one in got) + reader.pending_bytes == len(data)


def test_feed_payload_of_the_bound_is_taken() -> None:
    payload = bytes(MAX_PAYLOAD_BYTES)
    assert MAX_PAYLOAD_BYTES == 1_048_576
    assert list(FrameReader().feed(frame(1, payload))) == [Frame(1, payload)]


def test_feed_header_beyond_the_bound_is_refused_before_its_payload() -> None:
    reader = FrameReader()
    with pytest.raises(RemoteProtocolError):
        list(reader.feed(b"\x01" + (MAX_PAYLOAD_BYTES + 1).to_bytes(4, "big")))
    with pytest.raises(RemoteProtocolError):
        list(reader.feed(frame(3)))


@pytest.mark.parametrize("cut", range(1, 7))
def test_pending_bytes_stream_ends_within_a_frame_is_not_zero(cut: int) -> None:
    reader = FrameReader()
    assert list(reader.feed(bytes.fromhex("01 00000002 DEAD")[:cut])) == []
    assert reader.pending_bytes == cut


def test_header_beyond_the_bound_is_our_own_error() -> None:
    assert header(0x81, MAX_PAYLOAD_BYTES) == b"\x81\x00\x10\x00\x00"
    with pytest.raises(LocalProtocolError):
        header(0x81, MAX_PAYLOAD_BYTES + 1)


@given(st.binary(max_size=500), st.integers(1, 100))
def test_split_any_data_carries_all_of_it_within_the_chunk(data: bytes, chunk: int) -> None:
    got = list(FrameReader().feed(b"".join(split(0x81, data, chunk))))
    assert b"".join(one.payload for one in got) == data
    assert all(one.type == 0x81 and 0 < len(one.payload) <= chunk for one in got)


def test_short_headers_are_those_of_the_frames_of_each_length() -> None:
    heads = short_headers(0x81)
    assert len(heads) == SHORT_BYTES
    for size, head in enumerate(heads):
        assert head + b"x" * size == frame(0x81, b"x" * size)
