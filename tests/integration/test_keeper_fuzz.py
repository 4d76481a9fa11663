"""Garbage at the socket: the keeper lives, stays small, and no one else notices."""

from __future__ import annotations

import json
import random
import socket
import struct
from collections.abc import Iterator

import pytest

from support import counts
from support.heimdall_client import STATUS, HeimdallClient, frame
from support.keeper import Kept, Start, until

CAT = ["sh", "-c", "stty raw -echo; printf READY; exec cat >/dev/null"]
GROWTH_KB = 12 * 1024
"""What a keeper may grow by: buffers of a frame and a screen, never what was sent."""

HELLO = frame(0x10, json.dumps({"version": 1, "client": "fuzz", "window": 1000}).encode())
SEEDS = [
    frame(0x01, b"ls -l\r"),
    frame(0x02),
    frame(0x03),
    frame(0x04, struct.pack(">HH", 80, 24)),
    HELLO,
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
    if data[0] == 0x04 or b"size" in data:
        data[0] = 0x7E  # a large screen rightly costs memory
    return spared(data)


def spared(data: bytearray) -> bytes:
    """Never the one word that may rightly end the session, wherever a frame begins."""
    at = 0
    while at < len(data):
        if data[at] == 0x05:
            data[at] = 0x7E
        at += 5 + int.from_bytes(data[at + 1 : at + 5].ljust(4, b"\0"), "big")
    return bytes(data)


def framed_noise(rng: random.Random, size: int) -> bytes:
    """Random payloads in complete frames of types that take any: all are heard, none is refused."""
    kinds = [kind for kind in range(256) if kind not in (0x04, 0x05, 0x10, 0x11, 0x12)]
    noise = b""
    while len(noise) < size:
        kind = rng.choice(kinds) if rng.random() < 0.7 else rng.choice((0x01, 0x02, 0x03))
        noise += frame(kind, rng.randbytes(rng.choice((0, 1, 4, 15, 100))))
    return noise


def pour(kept: Kept, data: bytes) -> None:
    """All of it on a connection of its own, and wait until the keeper has heard it, or has hung up."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(kept.paths.socket))
        sock.settimeout(30)
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass
        except (ConnectionResetError, BrokenPipeError):
            pass


@pytest.fixture
def kept(start: Start) -> Iterator[Kept]:
    made = start("s", CAT, cols=80, rows=24)
    made.subscriber().read_until(b"READY")
    yield made
    # Whatever a test sent: someone else is served, and nothing is held for those who left.
    assert made.client().status().alive == 1


def warmed(kept: Kept) -> tuple[int, int]:
    """Memory and descriptors after a first taste of everything."""
    rng = random.Random(0)
    for _ in range(100):
        pour(kept, HELLO + mutated(rng))
        pour(kept, framed_noise(rng, 1000))
    return kept.rss_kb(), kept.descriptor_count()


def unharmed(kept: Kept, rss_kb: int, descriptors: int) -> None:
    assert kept.client().status().alive == 1
    assert kept.rss_kb() < rss_kb + GROWTH_KB
    until(lambda: kept.descriptor_count() <= descriptors + 2, "the close of all connections that were left")


@pytest.mark.soak
def test_random_bytes_keeper_lives_and_its_memory_is_flat(kept: Kept) -> None:
    before, rng = warmed(kept), random.Random(7)
    bystander = kept.client()
    for _ in range(counts.FUZZ_BYTES // 2000):
        pour(kept, spared(bytearray(rng.randbytes(1000))))
        pour(kept, framed_noise(rng, 1000))
    assert bystander.status().alive == 1
    unharmed(kept, *before)


@pytest.mark.soak
def test_mutated_frames_keeper_lives_and_its_memory_is_flat(kept: Kept) -> None:
    before, rng = warmed(kept), random.Random(8)
    bystander = kept.client()
    for _ in range(counts.MUTATED_FRAMES):
        # One on each connection: a wrong length swallows everything that follows it.
        pour(kept, HELLO + mutated(rng))
    assert bystander.status().alive == 1
    unharmed(kept, *before)


def test_half_frames_of_many_clients_harm_no_one(kept: Kept) -> None:
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


def ask_while_heard(greedy: HeimdallClient, bystander: HeimdallClient) -> None:
    """Ask and never read, until the keeper has hung up or does not listen any more."""
    asking = frame(STATUS) * 1000
    at = unheard = 0
    greedy.sock.setblocking(False)
    while unheard < 50:
        try:
            at = (at + greedy.sock.send(asking[at:])) % len(asking)
            unheard = 0
        except BlockingIOError:
            unheard += 1
            assert bystander.status().alive == 1
        except (BrokenPipeError, ConnectionResetError):
            return


def test_client_that_sends_requests_and_never_reads_costs_little(kept: Kept) -> None:
    bystander, greedy = kept.client(), kept.client(receive_buffer_bytes=4096)
    before = kept.rss_kb()
    ask_while_heard(greedy, bystander)
    assert bystander.status().alive == 1
    assert kept.rss_kb() < before + GROWTH_KB


def test_connections_opened_and_left_at_once_leave_nothing(kept: Kept) -> None:
    kept.client().status()
    before = kept.descriptor_count()
    for _ in range(300):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(kept.paths.socket))
    last = kept.client()
    last.status()
    until(lambda: kept.descriptor_count() <= before + 1, "the close of all connections that were left")
