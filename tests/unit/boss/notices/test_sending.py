"""One exchange with a receiver, which another thread ends."""

from __future__ import annotations

import socket
from collections.abc import Callable
from threading import Thread

import pytest

from remuda.boss.notices.notification import FIELDS
from remuda.boss.notices.notify_file import Receiver
from remuda.boss.notices.sending import NoticeExchange, send

WORDS = dict.fromkeys(FIELDS, "x")
BEGINNINGS = {
    "http": {
        "nothing": b"",
        "half_a_head": b"HTTP/1.1 200 OK\r\nX: a",
        "half_a_body": b"HTTP/1.1 200 OK\r\n\r\nx",
    },
    "https": {"nothing": b"", "half_a_greeting": b"\x16\x03\x03"},
}
CASES = [
    pytest.param(scheme, sent, id=f"{scheme}-{name}")
    for scheme, given in BEGINNINGS.items()
    for name, sent in given.items()
]


def receiving(listener: socket.socket, sent: bytes, then: Callable[[], None]) -> Thread:
    """Sends that to the one who comes, then does `then`, and waits until he has gone."""

    def serve() -> None:
        sock, _ = listener.accept()
        with sock:
            sock.recv(1 << 16)
            sock.sendall(sent)
            then()
            while sock.recv(1 << 16):
                pass

    thread = Thread(target=serve)
    thread.start()
    return thread


@pytest.mark.parametrize(("scheme", "sent"), CASES)
def test_exchange_that_is_aborted_raises_a_timeout(scheme: str, sent: bytes) -> None:
    exchange = NoticeExchange()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = receiving(listener, sent, exchange.abort)
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises(TimeoutError, match="no complete answer within 10 s"):
            send(Receiver(url=url), WORDS, exchange)
        thread.join()


def test_exchange_aborted_before_it_connects_raises_a_timeout() -> None:
    exchange = NoticeExchange()
    exchange.abort()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(TimeoutError, match="no complete answer"),
    ):
        send(Receiver(url=f"http://127.0.0.1:{listener.getsockname()[1]}/"), WORDS, exchange)
