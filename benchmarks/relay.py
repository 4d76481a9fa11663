"""The least that a keeper and its client can be in Python: what an echo costs with nothing else on its way.

    python relay.py server SOCKET     keeps `cat` on a terminal
    python relay.py client SOCKET     attaches its own terminal

No screen, no second watcher, no error handling: it is the floor that `remuda attach` is measured against, not
a program to use. It imports nothing of ours.
"""

from __future__ import annotations

import gc
import os
import pty
import select
import socket
import sys
import tty

_HEADER = 5


def server(path: str) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("cat", ["cat"])
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    poll = select.epoll()
    for fd in (terminal, listener.fileno()):
        poll.register(fd, select.EPOLLIN)
    client: socket.socket | None = None
    while True:
        for fd, _ in poll.poll():
            if fd == terminal:
                data = os.read(terminal, 4096)
                if client is not None:
                    client.send(b"\x81" + len(data).to_bytes(4, "big") + data)
            elif fd == listener.fileno():
                client, _ = listener.accept()
                poll.register(client.fileno(), select.EPOLLIN)
            elif client is not None and (data := client.recv(8192)):
                os.write(terminal, data[_HEADER:])
            else:
                poll.unregister(fd)
                client = None


def client(path: str) -> None:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    tty.setraw(0)
    os.write(1, b"ready")
    poll = select.poll()
    for fd in (0, sock.fileno()):
        poll.register(fd, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == 0:
                data = os.read(0, 4096)
                sock.send(b"\x01" + len(data).to_bytes(4, "big") + data)
            elif data := sock.recv(65536):
                os.write(1, data[_HEADER:])
            else:
                return


if __name__ == "__main__":
    gc.disable()
    {"server": server, "client": client}[sys.argv[1]](sys.argv[2])
