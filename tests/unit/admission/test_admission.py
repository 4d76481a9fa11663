"""Which connections a server keeps, without any socket; and what the kernel says of a peer."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.admission.credentials import NO_ONE, is_own_peer, tcp_peer_uid
from remuda.admission.rule import RESERVED_DESCRIPTORS, STRANGER_STAY, Admission, Limits, fit
from support.heimdall_client import PATIENCE


class Rule(Admission[int]):
    """Connections come one after the other, each a good while after the one before."""

    now = 0.0

    def __init__(self, pending: int, trusted: int, own: set[int]) -> None:
        super().__init__(Limits(pending, trusted), own.__contains__)

    def come(self, one: int) -> int | None:
        self.now += 2 * STRANGER_STAY
        return self.enter(one, self.now)


def test_pending_over_the_limit_drops_the_oldest() -> None:
    rule = Rule(2, 1, set())
    assert [rule.come(one) for one in range(5)] == [None, None, 0, 1, 2]


def test_pending_over_the_limit_drops_strangers_before_our_own() -> None:
    rule = Rule(2, 1, {0, 1, 4})
    assert [rule.come(one) for one in range(4)] == [None, None, 2, 3]
    assert rule.come(4) == 0, "where all are ours, the oldest of them"


def test_stranger_in_a_burst_is_dropped_itself_and_our_own_is_not() -> None:
    rule = Rule(2, 1, {9})
    now = 1.0
    assert [rule.enter(one, now) for one in range(4)] == [None, None, 2, 3]
    assert rule.enter(9, now) == 0
    assert rule.enter(4, now + STRANGER_STAY) == 1


def test_unknown_peer_in_a_burst_drops_the_oldest() -> None:
    rule: Admission[int] = Admission(Limits(2, 1), lambda _: None)
    assert [rule.enter(one, 1.0) for one in range(4)] == [None, None, 0, 1]


def test_trusted_connection_is_not_dropped_and_not_counted_as_pending() -> None:
    rule = Rule(1, 2, set())
    assert rule.come(0) is None
    assert rule.trust(0)
    assert rule.trust(0), "again"
    assert [rule.come(one) for one in (1, 2, 3)] == [None, 1, 2]


def test_trusted_over_the_limit_is_refused_until_another_leaves() -> None:
    rule = Rule(2, 1, set())
    rule.come(0)
    rule.come(1)
    assert (rule.trust(0), rule.trust(1)) == (True, False)
    rule.leave(0)
    rule.leave(0)
    assert rule.trust(1)


def test_dropped_connection_cannot_become_trusted() -> None:
    rule = Rule(1, 1, set())
    rule.come(0)
    assert rule.come(1) == 0
    assert not rule.trust(0)


def test_peer_is_looked_up_once_and_only_at_the_limit() -> None:
    asked: Counter[int] = Counter()

    def is_own(one: int) -> bool:
        asked[one] += 1
        return one % 3 == 0

    rule: Admission[int] = Admission(Limits(8, 8), is_own)
    for one in range(8):
        rule.enter(one, one)
    assert not asked
    for one in range(8, 500):
        rule.enter(one, one)
    assert max(asked.values()) == 1


@given(
    st.lists(st.tuples(st.sampled_from(["enter", "trust", "leave"]), st.integers(0, 30))),
    st.sets(st.integers(0, 30)),
)
def test_limits_hold_whatever_happens(steps: list[tuple[str, int]], own: set[int]) -> None:
    rule = Rule(4, 3, own)
    pending: set[int] = set()
    trusted: set[int] = set()
    for step, one in steps:
        if step == "enter" and one not in pending | trusted:
            pending.add(one)
            dropped = rule.come(one)
            if dropped is not None:
                assert dropped in pending
                assert dropped not in own or not pending - own, "ours, while a stranger stays"
                pending.discard(dropped)
        elif step == "trust" and rule.trust(one):
            pending.discard(one)
            trusted.add(one)
        elif step == "leave":
            rule.leave(one)
            pending.discard(one)
            trusted.discard(one)
        assert len(pending) <= 4
        assert len(trusted) <= 3


def test_limits_leave_a_reserve_of_descriptors() -> None:
    wanted = (Limits(64, 192), Limits(128, 384))
    assert fit(wanted, 1024) == wanted
    for descriptors in (256, 300, 512, 800):
        total = sum(sum(one) for one in fit(wanted, descriptors))
        assert total <= descriptors - RESERVED_DESCRIPTORS
    assert all(min(one) > 0 for one in fit(wanted, 16)), "few, and never none"


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["ipv4", "ipv6"]
)
@pytest.mark.parametrize("end", ["close", "reset", "shutdown"])
def test_peer_of_our_own_is_known_until_it_closes(family: int, address: str, end: str) -> None:
    with socket.create_server((address, 0), family=family) as listener:
        peer = socket.create_connection(listener.getsockname()[:2])
        accepted, _ = listener.accept()
        with accepted:
            assert tcp_peer_uid(accepted) == os.getuid()
            assert is_own_peer(accepted)
            if end == "reset":
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if end == "shutdown":
                peer.shutdown(socket.SHUT_WR)
            else:
                peer.close()
            assert tcp_peer_uid(accepted) == NO_ONE, "the kernel lists a closed one as root's"
            assert is_own_peer(accepted) is False
            peer.close()


# ── without descriptors ──

_CROWDED = """
import asyncio, os, resource, socket, sys
from remuda.admission.acceptor import Acceptor, stream_protocol
from remuda.admission.rule import Limits
from remuda.tasks import TaskSet


async def serve(connection, reader, writer):
    if await reader.read(1):
        writer.write(b"served")
    writer.close()


async def main():
    listener = socket.create_server(("127.0.0.1", 0))
    Acceptor(listener, Limits(64, 64), stream_protocol(serve, 100, TaskSet())).open()
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    taken = []
    while True:
        try:
            taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            break
    os.close(taken.pop())
    print(listener.getsockname()[1], flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
"""


def test_server_without_descriptors_drops_a_silent_connection_and_serves_the_next() -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", _CROWDED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        address = ("127.0.0.1", int(server.stdout.readline()))
        with socket.create_connection(address, PATIENCE) as silent:
            with socket.create_connection(address, PATIENCE) as asking:
                asking.sendall(b"?")
                assert asking.recv(100) == b"served"
            with contextlib.suppress(ConnectionResetError):
                assert silent.recv(100) == b"", "it was not dropped"
    finally:
        server.kill()
        _, complaints = server.communicate()
    assert complaints.count("cannot accept") < 10, "it asked again and again, without a pause"
