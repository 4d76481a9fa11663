"""Servers of a pool beside the test: one with made-up agents, and such that are none."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from remuda.pool.protocol import VERSION, encode, hello
from support.commands import Commands
from support.heimdall_client import PATIENCE


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


Speak = Callable[[socket.socket], object]


def hang(connection: socket.socket) -> None:
    connection.recv(1)
    connection.settimeout(PATIENCE)
    while connection.recv(65536):
        pass


def say(*pieces: bytes) -> Speak:
    def speak(connection: socket.socket) -> None:
        connection.recv(1)
        for piece in pieces:
            connection.sendall(piece)

    return speak


HELLO = encode(hello())


def _go_silent(connection: socket.socket) -> None:
    say(HELLO)(connection)
    hang(connection)


SERVERS: dict[str, Speak] = {
    "hangs up at once": socket.socket.close,
    "hangs up before it says anything": say(),
    "says nothing": hang,
    "garbage": say(b"SSH-2.0-OpenSSH_9.6\r\n" * 10),
    "another version": say(encode({**hello(), "version": VERSION + 1})),
    "another protocol": say(encode({**hello(), "protocol": "other"})),
    "half a hello": say(HELLO[:9]),
    "hangs up in the middle": say(HELLO, encode({"type": "token", "text": "x"})),
    "hangs up in a frame": say(HELLO, encode({"type": "token", "text": "x"})[:9]),
    "garbage in the middle": say(HELLO, framed(b"nonsense")),
    "unknown type": say(HELLO, encode({"type": "sing"})),
    "a result of another kind": say(HELLO, encode({"type": "done", "result": {"text": 5}})),
    "goes silent in the middle": _go_silent,
    "huge": say(HELLO, b"\xff\xff\xff\xff"),
}


@contextlib.contextmanager
def bad_server(path: Path, speak: Speak) -> Iterator[None]:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    open_ones: list[socket.socket] = []

    def serve_all() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                open_ones.append(connection)
                with contextlib.suppress(OSError):
                    speak(connection)
                connection.close()

    thread = threading.Thread(target=serve_all)
    thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in open_ones:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE)


@contextlib.contextmanager
def fake_pool(remuda: Commands, backend: str = "terminal") -> Iterator[Path]:
    """Where it is served; see fake_pool.py for what its agents do."""
    path = remuda.home / "pool.sock"
    program = Path(__file__).with_name("fake_pool.py")
    process = subprocess.Popen(
        [sys.executable, str(program), str(path), backend], env=remuda.env, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "serving\n"
        yield path
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert not path.exists()
