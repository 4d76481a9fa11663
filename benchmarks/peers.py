"""The programs we are compared with, each started so that it can be ended by its process id."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.scene import COLS, ROWS, Scene
from benchmarks.watcher import connect

from remuda.terminal.pty import Pty

_PUSH, _ATTACH = 0, 1


def dtach_push(data: bytes) -> bytes:
    """dtach's packet: a type, a length, and room for the eight bytes of a window size."""
    return struct.pack("BB8s", _PUSH, len(data), data)


def dtach_attach() -> bytes:
    return struct.pack("BB8s", _ATTACH, 0, b"")


class Dtach:
    """A program kept by dtach. In the foreground (-N), so that its process is our child."""

    def __init__(self, scene: Scene, argv: list[str]) -> None:
        self._scene = scene
        self.socket = str(scene.folder / scene.name("d"))
        self._process = subprocess.Popen(
            ["dtach", "-N", self.socket, "-r", "none", "-E", "-z", *argv],
            env=scene.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        await_path(self.socket)

    def attach(self) -> Pty:
        return self._scene.on_terminal(["dtach", "-a", self.socket, "-r", "none", "-E", "-z"])

    def end(self) -> None:
        self._scene.end(self._process.pid)
        self._process.wait()


class Relay:
    """`cat` behind the smallest relay that Python can be; see `relay.py`."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.socket = str(scene.folder / scene.name("r"))
        subprocess.Popen(self._command("server"), env=scene.env, stdin=subprocess.DEVNULL)
        await_path(self.socket)

    def _command(self, part: str) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("relay.py")), part, self.socket]

    def attach(self) -> Pty:
        return self._scene.on_terminal(self._command("client"))


class Tmux:
    """A program in a tmux server of its own, without status line: as much terminal as the others have."""

    def __init__(self, scene: Scene, argv: list[str]) -> None:
        self._scene = scene
        self._label = scene.name("t")
        config = scene.folder / "tmux.conf"
        config.write_text(
            "set -g status off\nset -s escape-time 0\nset -g default-terminal screen-256color\n"
        )
        self._words = ["tmux", "-u", "-L", self._label, "-f", str(config)]
        self.run("new-session", "-d", "-x", str(COLS), "-y", str(ROWS), *argv)

    def command(self, *arguments: str) -> list[str]:
        return [*self._words, *arguments]

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            self.command(*arguments), env=self._scene.env, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def attach(self) -> Pty:
        return self._scene.on_terminal(self.command("attach"))

    def end(self) -> None:
        self._scene.end(int(self.run("display-message", "-p", "#{pid}")))


def await_path(path: str, timeout: float = 10.0) -> None:
    """Until someone listens there."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if Path(path).exists():
            try:
                connect(path).close()
                return
            except OSError:
                pass
        time.sleep(0.0005)
    raise TimeoutError(f"nobody listens at {path}")


def read_until(pty: Pty, wanted: bytes) -> bytes:
    """Everything that a terminal shows up to and with these bytes."""
    seen = b""
    while wanted not in seen:
        seen += os.read(pty.fd, 65536)
    return seen
