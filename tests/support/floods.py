"""Another user of this machine, who holds TCP connections to a server of ours and opens them again."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from remuda.readable import is_readable
from support.heimdall_client import PATIENCE

STRANGER = 65534
HELD_OPEN = {
    "silent": "",
    "half_a_head": "POST /hook HTTP/1.1\r\nHost:",
    "refused": "GET /v1/queue HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer no\r\n\r\n",
    "body_without_end": f"POST /v1/answer/{'a' * 32} HTTP/1.1\r\nContent-Length: 900000\r\n\r\nx",
}
"""What a stranger may send, and then hold the connection."""

# The stranger cannot read our library: all is imported before it becomes another user.
_PROGRAM = """
import os, select, socket, sys
port, count, data, uid = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode(), int(sys.argv[4])
if uid != os.getuid():
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
poll, held, opened = select.poll(), {}, 0


def connect():
    global opened
    sock = socket.socket()
    try:
        sock.connect(("127.0.0.1", port))
        sock.sendall(data)
    except OSError:
        sock.close()
        return
    held[sock.fileno()] = sock
    poll.register(sock, select.POLLIN)
    opened += 1
    if opened == count:
        print("full", flush=True)


while True:
    for _ in range(min(64, count - len(held))):
        connect()
    for fd, _ in poll.poll(20):
        poll.unregister(fd)
        held.pop(fd).close()
"""


@contextmanager
def flood(port: int, count: int, data: str = "", *, uid: int = STRANGER) -> Iterator[None]:
    """From when that many connections were opened, and each sent `data`. Those that end are renewed."""
    if uid != os.getuid() and os.getuid() != 0:
        warnings.warn(
            "not root: the flood is our own user's, so only the rule by age is tested", stacklevel=3
        )
        uid = os.getuid()
    words = [str(port), str(count), data, str(uid)]
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", _PROGRAM, *words], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert is_readable(process.stdout.fileno(), PATIENCE), "the flood never came"
        assert process.stdout.readline() == b"full\n"
        yield
        assert process.poll() is None, "the flood has ended"
    finally:
        process.kill()
        process.communicate()
