"""Garbage at the socket: the keeper lives, stays small, and nobody else notices."""

from __future__ import annotations

import json
import random
import select
import socket
import struct
from collections.abc import Iterator

import pytest

import counts
from heimdall_client import STATUS, HeimdallClient, frame
from keeping import Kept, Start

CAT = ["sh", "-c", "stty raw -echo; printf READY; exec cat >/dev/null"]
GROWTH_KB = 12 * 1024
"""What a keeper may grow by: buffers of a frame and a screen, never what was sent."""

SEEDS = [
    frame(0x01, b"ls -l\r"),
    frame(0x02),
    frame(0x03),
    frame(0x04, struct.pack(">HH", 80, 24)),
    frame(0x10, json.dumps({"version": 1, "client": "fuzz", "window": 1000}).encode()),
    frame(0x11, json.dumps({"id": 1, "op": "status", "args": {"explain": True}}).encode()),
    frame(0x11, json.dumps({"id": 2, "op": "screen", "args": {"styled": True}}).encode()),
    frame(0x11, json.dumps({"id": 3, "op": "resize", "args": {"cols": 90, "rows": 20}}).encode()),
    frame(0x11, json.dumps({"id": 4, "op": "hook", "args": {"payload": {}}}).encode()),
    frame(0x11, json.dumps({"id": 5, "op": "watch", "args": {}}).encode()),
    frame(0x12, struct.pack(">I", 4096)),
]


def mutated(rng: random.Random) -> bytes:
    data = bytearray(rng.choice(SEEDS))
    for _ in range(rng.randint(1, 4)):
        how, at = rng.randrange(5), rng.randrange(len(data))
        if how == 0:
            data[at] = rng.randrange(256)
        elif how == 1:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 2 and len(data) > 1:
            del data[at]
        elif how == 3:
            data.insert(at, rng.randrange(256))
        else:
            data += data[at:]
    # A mutation must not become the one word that may end the session, nor a screen of a hundred megabytes.
    if data[0] in (0x04, 0x05) or b"kill" in data or b"size" in data:
        data[0] = 0x7E
    return bytes(data)


class Stream:
    """A connection that sends without ever blocking on answers, and opens anew when it is dropped."""

    def __init__(self, kept: Kept) -> None:
        self._path = str(kept.paths.socket)
        self._sock = self._open()
        self.dropped = 0

    def _open(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(self._path)
        sock.setblocking(False)
        return sock

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            readable, writable, _ = select.select([self._sock], [self._sock], [], 30)
            assert readable or writable, "the keeper neither reads nor answers"
            try:
                if readable and not self._sock.recv(1 << 16):
                    raise ConnectionResetError
                if writable:
                    view = view[self._sock.send(view) :]
            except (ConnectionResetError, BrokenPipeError):
                self._again()
                return

    def _again(self) -> None:
        self._sock.close()
        self._sock = self._open()
        self.dropped += 1

    def close(self) -> None:
        self._sock.close()


@pytest.fixture
def kept(start: Start) -> Iterator[Kept]:
    made = start("s", CAT, cols=80, rows=24)
    made.subscriber().read_until(b"READY")
    yield made
    # Whatever a test sent: somebody else is served, and nothing is held for those who left.
    assert made.client().status().alive == 1


def warmed(kept: Kept) -> tuple[int, int]:
    """Memory and descriptors after a first taste of everything."""
    stream, rng = Stream(kept), random.Random(0)
    for _ in range(300):
        stream.send(mutated(rng))
        stream.send(rng.randbytes(100))
    stream.close()
    kept.client().status()
    return kept.rss_kb(), kept.descriptor_count()


@pytest.mark.soak
def test_random_bytes_keeper_lives_and_its_memory_is_flat(kept: Kept) -> None:
    rss, descriptors = warmed(kept)
    bystander, stream, rng = kept.client(), Stream(kept), random.Random(7)
    for _ in range(counts.FUZZ_BYTES // 1000):
        stream.send(rng.randbytes(1000))
    stream.close()
    assert stream.dropped > 0
    assert bystander.status().alive == 1
    assert kept.rss_kb() < rss + GROWTH_KB
    assert kept.descriptor_count() <= descriptors + 2


@pytest.mark.soak
def test_mutated_frames_keeper_lives_and_its_memory_is_flat(kept: Kept) -> None:
    rss, descriptors = warmed(kept)
    bystander, stream, rng = kept.client(), Stream(kept), random.Random(8)
    for number in range(counts.MUTATED_FRAMES):
        stream.send(mutated(rng))
        if number % 1000 == 0:
            assert bystander.status().alive == 1
    stream.close()
    assert stream.dropped > 0
    assert kept.rss_kb() < rss + GROWTH_KB
    assert kept.descriptor_count() <= descriptors + 2


def test_half_frames_of_many_clients_harm_nobody(kept: Kept) -> None:
    halves = [kept.client() for _ in range(50)]
    for number, client in enumerate(halves):
        client.sock.sendall(SEEDS[number % len(SEEDS)][: 1 + number % 5])
    assert kept.client().status().alive == 1
    for client in halves:
        client.close()


def test_announced_and_never_sent_a_large_frame_costs_nothing(kept: Kept) -> None:
    rss = kept.rss_kb()
    for _ in range(100):
        kept.client().sock.sendall(struct.pack(">BI", 0x01, 1 << 20))
    assert kept.client().status().alive == 1
    assert kept.rss_kb() < rss + GROWTH_KB


@pytest.mark.parametrize("length", [(1 << 20) + 1, 1 << 24, 0xFFFFFFFF])
def test_oversized_frame_is_dropped_at_once(kept: Kept, length: int) -> None:
    client = kept.client()
    client.sock.sendall(struct.pack(">BI", 0x03, length))
    assert client.at_end()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[1]",
        b"{",
        b"\xff\xfe",
        b'{"version":1e999}',
        b"[" * 100_000,
        b'{"version":' + b"9" * 10_000 + b"}",
        b'{"version":1,"client":"' + b"\\ud800" * 100 + b'"',
    ],
)
def test_hello_that_cannot_be_read_is_dropped(kept: Kept, payload: bytes) -> None:
    client = kept.client()
    client.send(0x10, payload)
    assert client.at_end()


def ask_for_ever(client: HeimdallClient) -> None:
    asking = frame(STATUS) * 1000
    while True:
        client.sock.sendall(asking)


def test_client_that_asks_for_ever_and_never_reads_is_let_go(kept: Kept) -> None:
    bystander = kept.client()
    greedy = kept.client(receive_buffer_bytes=4096)
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        ask_for_ever(greedy)
    assert bystander.status().alive == 1


def test_connections_opened_and_left_at_once_leave_nothing(kept: Kept) -> None:
    kept.client().status()
    before = kept.descriptor_count()
    for _ in range(300):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(kept.paths.socket))
    last = kept.client()
    last.status()
    assert kept.descriptor_count() <= before + 1
