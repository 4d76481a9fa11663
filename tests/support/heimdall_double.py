"""A small Heimdall supervisor, from its document and its known defects. It shares no code with Remuda.

    python heimdall_double.py FOLDER ID [--hold-back TEXT | --claim-pid PID] -- COMMAND…

As Heimdall 1.0.0: output that is still queued when the program ends is written without a frame, in front of
EXIT; KILL sends a TERM to the program's process group and nothing else. `--hold-back` makes the first
certain: output from TEXT on is queued until the program has ended. With `--claim-pid` STATUS names another
process as the program.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import socket
import struct
import sys
import termios
import time

INPUT, SUBSCRIBE, STATUS, RESIZE, KILL = 0x01, 0x02, 0x03, 0x04, 0x05
OUTPUT, STATUS_RESP, EXIT = 0x81, 0x82, 0x83
CHUNK = 4096
DRAIN = 0.1


def frame(kind: int, payload: bytes = b"") -> bytes:
    return struct.pack(">BI", kind, len(payload)) + payload


class Supervisor:
    def __init__(
        self, folder: str, name: str, hold_back: bytes, claimed_pid: int | None, command: list[str]
    ) -> None:
        os.makedirs(folder, exist_ok=True)
        self._socket, self._pid_file = f"{folder}/{name}.sock", f"{folder}/{name}.pid"
        self._lock = os.open(self._pid_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._child, self._master = pty.fork()
        if self._child == 0:
            os.environ["HEIMDALL_SESSION_ID"] = name
            os.execvp(command[0], command)
        os.write(self._lock, f"{os.getpid()}\n{self._child}".encode())
        self._size(220, 50)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._socket)
        self._listener.listen()
        self._hold_back = hold_back
        self._told_pid = self._child if claimed_pid is None else claimed_pid
        self._queued = b""
        self._scrollback = b""
        self._buffers: dict[socket.socket, bytearray] = {}
        self._subscribed: set[socket.socket] = set()
        self._last_output = time.monotonic()

    def _size(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def run(self) -> int:
        while (code := self._exit_code()) is None:
            sockets = [self._listener, *self._buffers]
            ready, _, _ = select.select([self._master, *(one.fileno() for one in sockets)], [], [], 0.02)
            if self._master in ready:
                self._output(self._read())
            for one in sockets:
                if one.fileno() not in ready:
                    continue
                if one is self._listener:
                    peer, _ = self._listener.accept()
                    peer.sendall(b"\x00")
                    self._buffers[peer] = bytearray()
                else:
                    self._hear(one)
        return self._end(code)

    def _exit_code(self) -> int | None:
        pid, status = os.waitpid(self._child, os.WNOHANG)
        if pid == 0:
            return None
        return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def _read(self) -> bytes:
        try:
            return os.read(self._master, CHUNK)
        except OSError:
            time.sleep(0.01)  # the program has closed its terminal, and is about to end
            return b""

    def _output(self, data: bytes) -> None:
        self._last_output = time.monotonic()
        self._queued += data
        held = self._queued.find(self._hold_back) if self._hold_back else -1
        free, self._queued = (self._queued, b"") if held < 0 else (self._queued[:held], self._queued[held:])
        self._scrollback = (self._scrollback + free)[-65536:]
        if free:
            self._tell(frame(OUTPUT, free))

    def _tell(self, data: bytes) -> None:
        for peer in list(self._subscribed):
            try:
                peer.sendall(data)
            except OSError:
                self._drop(peer)

    def _drop(self, peer: socket.socket) -> None:
        self._subscribed.discard(peer)
        self._buffers.pop(peer, None)
        peer.close()

    def _hear(self, peer: socket.socket) -> None:
        try:
            data = peer.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._drop(peer)
            return
        buffer = self._buffers[peer]
        buffer += data
        while len(buffer) >= 5:
            kind, length = struct.unpack_from(">BI", buffer)
            if len(buffer) < 5 + length:
                return
            payload = bytes(buffer[5 : 5 + length])
            del buffer[: 5 + length]
            self._obey(peer, kind, payload)

    def _obey(self, peer: socket.socket, kind: int, payload: bytes) -> None:
        if kind == INPUT:
            os.write(self._master, payload)
        elif kind == SUBSCRIBE:
            if self._scrollback:
                peer.sendall(frame(OUTPUT, self._scrollback))
            self._subscribed.add(peer)
        elif kind == STATUS:
            idle = int((time.monotonic() - self._last_output) * 1000)
            peer.sendall(frame(STATUS_RESP, struct.pack(">IIBBIB", self._told_pid, idle, 1, 0, idle, 0)))
        elif kind == RESIZE:
            self._size(*struct.unpack(">HH", payload))
        elif kind == KILL:
            os.killpg(self._child, signal.SIGTERM)

    def _end(self, code: int) -> int:
        os.set_blocking(self._master, False)
        while True:
            try:
                data = os.read(self._master, CHUNK)
            except OSError:
                break
            if not data:
                break
            self._queued += data
        self._tell(self._queued)  # the defect: no frame
        self._tell(frame(EXIT, struct.pack(">i", code)))
        time.sleep(DRAIN)
        for path in (self._socket, self._pid_file):
            os.unlink(path)
        return code


if __name__ == "__main__":
    at = sys.argv.index("--")
    folder, name, *more = sys.argv[1:at]
    options = dict(zip(more[::2], more[1::2], strict=True))
    claimed = options.get("--claim-pid")
    made = Supervisor(
        folder,
        name,
        options.get("--hold-back", "").encode(),
        int(claimed) if claimed else None,
        sys.argv[at + 1 :],
    )
    sys.exit(made.run())
