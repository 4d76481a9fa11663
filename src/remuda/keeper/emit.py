"""Hands one hook payload from standard input to the keeper: `python -I -S emit.py SOCKET`.

For hooks that an agent runs as a command. The agent takes no prompt before it ends. So it imports nothing
slow and nothing of ours. It never fails the agent: whatever goes wrong, it exits with 0.
"""

import os
import sys
from _socket import AF_UNIX, SOCK_STREAM, socket

_HELLO, _REQUEST, _RESPONSE = 0x10, 0x11, 0x91
_PATIENCE = 2.0


def _frame(kind: int, payload: bytes) -> bytes:
    return bytes((kind,)) + len(payload).to_bytes(4, "big") + payload


def _read_all(fd: int) -> bytes:
    pieces = []
    while piece := os.read(fd, 65536):
        pieces.append(piece)
    return b"".join(pieces)


def _number(text: str) -> bytes:
    return text.encode() if text.isdigit() else b"0"


def _answered(sock: socket) -> None:
    """Wait until the keeper has taken the payload: the agent must not run ahead of what is known of it."""
    got = sock.recv(1)  # the mode byte
    while got:
        head = b""
        while len(head) < 5:
            got = sock.recv(5 - len(head))
            if not got:
                return
            head += got
        left = int.from_bytes(head[1:], "big")
        while left:
            got = sock.recv(min(left, 65536))
            if not got:
                return
            left -= len(got)
        if head[0] == _RESPONSE:
            return


def main() -> None:
    folder, name = os.path.split(sys.argv[1])
    payload = _read_all(0)
    # Agents were started with this command, also by a keeper of 0.1. So it has no other arguments, and the
    # request has these names. `HookChannel.read_emitted` reads it; an agent without the variable sends 0.
    pid = _number(os.environ.get("CLAUDE_PID", ""))
    request = b'{"id":1,"op":"hook","args":{"payload":' + payload + b',"claude_pid":' + pid + b"}}"
    sock = socket(AF_UNIX, SOCK_STREAM)
    sock.settimeout(_PATIENCE)
    os.chdir(folder)  # a socket's path may be longer than an address holds; its name never is
    if os.stat(".").st_uid != os.geteuid():
        return
    sock.connect(name)
    sock.sendall(_frame(_HELLO, b'{"version":1,"client":"hook"}') + _frame(_REQUEST, request))
    _answered(sock)


if __name__ == "__main__":
    try:
        main()
    except Exception:  # noqa: BLE001, S110  # an agent must not notice that its keeper is gone
        pass
