"""One end of a tunnel: order and window of what it takes, and what passes for one who only watches."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest

from remuda.errors import HostUnreachable
from remuda.fleet.tunnel import ACK, DATA, END, WINDOW_BYTES, ReadOnlyFilter, TunnelEnd, end_packet
from remuda.wire.connection import ClientConnection, HelloReceived, KeeperConnection, RequestReceived

HELLO = ClientConnection.hello("x", read_only=False, window_bytes=7)


def test_only_what_a_watcher_may_send_passes_wherever_it_is_split() -> None:
    ask = ClientConnection.request(1, "screen")
    sent = (
        ClientConnection.request(0, "screen")  # before HELLO
        + ClientConnection.input(b"x")
        + HELLO
        + ClientConnection.input(b"typed")
        + ClientConnection.resize(1, 1)
        + ClientConnection.kill()
        + ask
        + ClientConnection.request(2, "hook", {"payload": {}})
        + ClientConnection.subscribe()
    )
    for at in range(len(sent)):
        check = ReadOnlyFilter()
        passed = check(sent[:at]) + check(sent[at:])
        hello, request, _ = KeeperConnection().receive(passed)
        assert isinstance(hello, HelloReceived)
        assert (hello.read_only, hello.window_bytes) == (True, 7)
        assert isinstance(request, RequestReceived)
        assert request.op == "screen"


def run_end(packets: list[bytes], then: Callable[[socket.socket], None] = socket.socket.close) -> TunnelEnd:
    """Let an end hear packets, and run it until it has ended."""

    async def scenario() -> TunnelEnd:
        published: list[bytes] = []

        async def publish(packet: bytes, _asks: bool) -> None:
            published.append(packet)

        end = TunnelEnd(publish, "build7")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: end, sock=ours)
        for packet in packets:
            end.hear(packet)
        then(theirs)
        await asyncio.wait_for(end.run(), 30)
        assert published[-1][:1] == END
        theirs.close()
        return end

    return asyncio.run(scenario())


def data(position: int, some: bytes) -> bytes:
    return DATA + struct.pack(">Q", position) + some


@pytest.mark.parametrize(
    ("packets", "why"),
    [
        ([data(0, b"ab"), data(3, b"d")], "were lost on the way"),
        ([data(0, b"x" * (WINDOW_BYTES + 1))], "more than was acknowledged"),
        ([ACK + struct.pack(">Q", 1)], "acknowledged what was not sent"),
        ([DATA + b"short"], "cannot be read"),
        ([b"{}"], "cannot be read"),
        ([end_packet(HostUnreachable("it is gone"))], "it is gone"),
    ],
)
def test_a_packet_that_breaks_the_rules_ends_the_tunnel(packets: list[bytes], why: str) -> None:
    reason = run_end(packets, lambda _: None).reason
    assert reason is not None
    assert why in reason.message


def test_a_socket_that_is_closed_ends_the_tunnel_without_a_reason() -> None:
    assert run_end([data(0, b"ab"), data(2, b"c")]).reason is None
