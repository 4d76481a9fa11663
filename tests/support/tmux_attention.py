"""A tmux server of a test's own, with people in front of it: real clients on terminals that no one draws."""

from __future__ import annotations

import itertools
import os
import subprocess
import termios
import threading
from collections.abc import Callable
from pathlib import Path

from remuda.tmux.address import Address
from remuda.tmux.command import Tmux
from remuda.tmux.navigate import TmuxClient, take_view
from remuda.tmux.panes import Pane, Snapshot, take_snapshot
from support.heimdall_client import PATIENCE
from support.keeper import Process, until
from support.tmux import SHELL, SURROUNDINGS

_numbers = itertools.count()


class TmuxBench:
    """One server on a socket of its own, with no configuration. `start` it; `close` never raises."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {name: value for name, value in os.environ.items() if name not in ("TMUX", "TMUX_PANE")}
        # Below `folder`, with the name that `tmux` without any option looks for.
        self.env |= {**SURROUNDINGS, "TMUX_TMPDIR": str(folder), "HOME": str(folder)}
        self.address = Address.named(f"bench{next(_numbers)}", self.env)
        Path(self.address.path).parent.mkdir(mode=0o700, exist_ok=True)
        self.tmux = Tmux(self.address, self.env)
        self.people: list[Person] = []
        self.server: Process | None = None

    def run(self, *words: str) -> str:
        """As a user runs it; not through the code under test."""
        done = subprocess.run(
            ["tmux", "-u", "-f", "/dev/null", "-S", self.address.path, *words],
            env=self.env, cwd=self.folder, capture_output=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")

    def start(self, *sessions: str) -> None:
        for name in sessions:
            self.run("new-session", "-d", "-s", name, "-x", "80", "-y", "24", SHELL)
        if self.server is None:
            self.server = Process(int(self.run("display-message", "-p", "#{pid}")))

    def person(self, session: str, cols: int = 80, rows: int = 24) -> Person:
        """Someone who attaches to that session."""
        made = Person(self, session, cols, rows)
        self.people.append(made)
        until(lambda: made.name in self.ask("client_name"), f"a client on {session}")
        return made

    def ask(self, what: str) -> list[str]:
        """A format, for all clients."""
        return self.run("list-clients", "-F", f"#{{{what}}}").split("\n")

    def client(self, person: Person) -> TmuxClient:
        return next(client for client in take_view(self.tmux).clients if client.name == person.name)

    def panes(self) -> Snapshot:
        return take_snapshot(self.tmux)

    def pane(self, target: str) -> Pane:
        return self.panes().panes[self.run("display-message", "-p", "-t", target, "#{pane_id}")]

    def until(self, is_so: Callable[[Snapshot], bool], what: str) -> None:
        until(lambda: is_so(self.panes()), what)

    def stop(self) -> None:
        """End the server, as if it had crashed for everything that its clients know."""
        if self.server is not None:
            self.run("kill-server")
            assert self.server.ended()
            self.server.close()
            self.server = None

    def close(self) -> None:
        try:
            if self.server is not None and self.server.alive:
                self.stop()
        except (OSError, AssertionError, subprocess.SubprocessError):
            pass
        for person in self.people:
            person.close()


class Person:
    """A client of the server on a terminal of its own."""

    def __init__(self, bench: TmuxBench, session: str, cols: int, rows: int) -> None:
        self._master, slave = os.openpty()
        self.name = os.ttyname(slave)
        termios.tcsetwinsize(slave, (rows, cols))
        self._process = subprocess.Popen(
            ["tmux", "-u", "-S", bench.address.path, "attach-session", "-t", f"={session}"],
            env=bench.env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.seen = bytearray()
        # Someone has to take what is drawn, or tmux holds it back.
        self._eyes = threading.Thread(target=self._look, daemon=True)
        self._eyes.start()

    def _look(self) -> None:
        try:
            while data := os.read(self._master, 1 << 16):
                self.seen += data
        except OSError:  # the terminal is gone
            pass

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._eyes.join(PATIENCE)
        os.close(self._master)
