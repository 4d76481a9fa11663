"""What frames mean: golden payloads, round trips, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.errors import RemoteProtocolError
from remuda.wire import messages
from remuda.wire.frames import FrameReader
from remuda.wire.messages import StateByte, Status, Type

U32 = st.integers(0, 0xFFFFFFFF)
HEIMDALL = {
    "INPUT": 0x01,
    "SUBSCRIBE": 0x02,
    "STATUS": 0x03,
    "RESIZE": 0x04,
    "KILL": 0x05,
    "OUTPUT": 0x81,
    "STATUS_RESP": 0x82,
    "EXIT": 0x83,
}
statuses = st.builds(Status, U32, U32, st.booleans(), st.integers(0, 255), U32)


def test_types_of_heimdall_have_its_bytes_and_ours_are_others() -> None:
    assert {name: Type[name].value for name in HEIMDALL} == HEIMDALL
    ours = {one for one in Type if one.name not in HEIMDALL}
    assert not ours & set(HEIMDALL.values())
    assert len({one.value for one in Type}) == len(Type)


def test_status_golden_alive_and_dead_give_these_bytes() -> None:
    alive = Status(0x1234, 0x42, True, 0x02, 0x4D2)
    dead = Status(42, 9999, False, 0xFF, 500)
    assert alive.to_payload() == bytes.fromhex("00001234 00000042 01 02 000004D2 00")
    assert dead.to_payload() == bytes.fromhex("0000002A 0000270F 00 FF 000001F4 00")


@given(statuses)
def test_status_round_trip_is_the_same_and_its_last_byte_zero(status: Status) -> None:
    payload = status.to_payload()
    assert len(payload) == 15
    assert payload[-1] == 0
    assert Status.from_payload(payload) == status


@given(statuses, st.binary(max_size=8))
def test_status_without_the_reserved_byte_or_with_more_is_understood(status: Status, more: bytes) -> None:
    assert Status.from_payload(status.to_payload()[:14]) == status
    assert Status.from_payload(status.to_payload() + more) == status


def test_status_longer_than_32_bits_saturates() -> None:
    status = Status(1, 1 << 40, True, 0, 1 << 40)
    assert Status.from_payload(status.to_payload()) == Status(1, 0xFFFFFFFF, True, 0, 0xFFFFFFFF)


@pytest.mark.parametrize("size", range(14))
def test_status_too_short_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        Status.from_payload(bytes(size))


def test_size_golden_gives_these_bytes() -> None:
    assert messages.size_payload(120, 40) == bytes.fromhex("0078 0028")


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_size_round_trip_is_the_same(cols: int, rows: int) -> None:
    assert messages.parse_size(messages.size_payload(cols, rows)) == (cols, rows)


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_exit_round_trip_is_the_same(code: int) -> None:
    assert messages.parse_exit(messages.exit_payload(code)) == code


@given(U32)
def test_ack_round_trip_is_the_same(count: int) -> None:
    assert messages.parse_ack(messages.ack_payload(count)) == count


@pytest.mark.parametrize("parse", [messages.parse_size, messages.parse_exit, messages.parse_ack])
@pytest.mark.parametrize("size", [0, 1, 3, 5, 100])
def test_parse_not_four_bytes_is_refused(parse: Callable[[bytes], object], size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        parse(bytes(size))


documents = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text(), max_size=5)


@given(documents)
def test_json_round_trip_is_the_same(document: dict[str, object]) -> None:
    (one,) = FrameReader().feed(messages.json_frame(Type.EVENT, document))
    assert one.type == Type.EVENT
    assert messages.parse_json(one.payload) == document


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b'"x"', b"1", b"null", b"\xff", b'{"a":' * 50_000, b"[" * 100_000]
)
def test_parse_json_not_an_object_is_refused(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        messages.parse_json(payload)


@given(st.binary(max_size=64))
def test_parse_json_any_bytes_is_an_object_or_refused(payload: bytes) -> None:
    try:
        assert isinstance(messages.parse_json(payload), dict)
    except RemoteProtocolError:
        pass


@pytest.mark.parametrize(
    ("byte", "name"),
    [
        (0, "idle"),
        (1, "thinking"),
        (2, "streaming"),
        (3, "tool_use"),
        (4, "active"),
        (0xFF, "dead"),
        (5, "unknown"),
        (0xFE, "unknown"),
    ],
)
def test_state_name_of_byte_is_heimdalls(byte: int, name: str) -> None:
    assert StateByte.name_of(byte) == name
