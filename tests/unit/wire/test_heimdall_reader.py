"""The stream of a Heimdall supervisor, whose last output has no header."""

from __future__ import annotations

import struct

import pytest

from remuda.wire import connection as wire
from remuda.wire.connection import ClientConnection, ClientEvent
from remuda.wire.frames import frame

STATUS = frame(0x82, struct.pack(">IIBBIB", 7, 1, 1, 0, 2, 0))
EXIT = frame(0x83, struct.pack(">i", 5))
TAILS = [
    b"E",
    b"\r\n",
    b"END\r\n",
    b"x" * 5000,
    "ende – 中文".encode(),
    b"\x81",
    b"a\x81\x00",
    b"\x1b[31mlast\x1b[0m\r\n$ \x83",
    bytes(range(0x20, 0x80)),
]


def heard(*pieces: bytes) -> tuple[bytes, list[ClientEvent]]:
    """All output, and the other events."""
    connection = ClientConnection()
    connection.expect_heimdall()
    events = [event for piece in pieces for event in connection.receive(piece)] + list(connection.end())
    output = b"".join(event.data for event in events if isinstance(event, wire.OutputReceived))
    return output, [event for event in events if not isinstance(event, wire.OutputReceived)]


@pytest.mark.parametrize("tail", TAILS, ids=range(len(TAILS)))
def test_unframed_tail_is_output_and_the_exit_code_follows(tail: bytes) -> None:
    stream = b"\x00" + STATUS + frame(0x81, b"first\r\n") + tail + EXIT
    cuts = range(1, len(stream)) if len(stream) < 300 else range(1, len(stream), 97)
    for at in cuts:
        output, others = heard(stream[:at], stream[at:])
        assert output == b"first\r\n" + tail
        assert [type(one) for one in others] == [wire.StatusReceived, wire.ExitReceived]
        assert others[-1] == wire.ExitReceived(5)


def test_tail_between_frames_after_the_exit_and_before_a_sudden_end_is_output() -> None:
    assert heard(b"\x00" + b"raw" + frame(0x81, b"framed") + b"more" + EXIT)[0] == b"rawframedmore"
    assert heard(b"\x00" + EXIT + b"late\r\n") == (b"late\r\n", [wire.ExitReceived(5)])
    assert heard(b"\x00" + frame(0x81, b"whole") + frame(0x81, b"cut off")[:-3]) == (b"wholecut ", [])
    assert heard(b"\x00" + b"abc") == (b"abc", [])


def test_frames_of_a_sound_stream_are_what_they_were() -> None:
    large = bytes(1 << 20)
    output, others = heard(b"\x00" + frame(0x81, large) + frame(0x81) + STATUS + frame(0x81, EXIT) + EXIT)
    assert output == large + EXIT
    assert len(others) == 2
