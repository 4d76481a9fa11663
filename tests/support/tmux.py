"""A real terminal for tests: a tmux server of its own, driven and watched through its control mode.

The control client hears of every byte that a pane gets, so a wait ends with the event it waits for.
"""

from __future__ import annotations

import itertools
import os
import select
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from support.heimdall_client import PATIENCE

_numbers = itertools.count()
SHELL = "exec bash --norc --noprofile"
# Its prompt is known, and it keeps no history.
SURROUNDINGS = {
    "PS1": "$ ",
    "HISTFILE": "",
    "LC_ALL": "C.UTF-8",
    "TERM": "xterm-256color",
    "SHELL": "/bin/sh",
}


class Tmux:
    """One server on its own socket, with no configuration. Use as a context manager."""

    def __init__(self, env: Mapping[str, str], cwd: Path, cols: int = 80, rows: int = 24) -> None:
        self._name = f"remuda-test-{os.getpid()}-{next(_numbers)}"
        self._env = {**env, **SURROUNDINGS}
        self._cwd = cwd
        self._control: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._size = (cols, rows)

    def __enter__(self) -> Tmux:
        try:
            self._run("new-session", "-d", "-x", str(self._size[0]), "-y", str(self._size[1]), SHELL)
            for option in ("status off", "remain-on-exit off", "escape-time 0"):
                self._run("set-option", "-g", *option.split())
            self._control = subprocess.Popen(
                ["tmux", "-L", self._name, "-C", "attach"],
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            self.resize("%0", *self._size)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Never raises: a test's own failure is the one to be seen."""
        command = ["tmux", "-L", self._name, "kill-server"]
        try:
            subprocess.run(command, env=self._env, capture_output=True, timeout=PATIENCE, check=False)
        except (OSError, subprocess.SubprocessError):
            pass
        if self._control is not None:
            self._control.kill()
            self._control.communicate()
        folder = Path(self._env.get("TMUX_TMPDIR", "/tmp"), f"tmux-{os.getuid()}")
        try:
            (folder / self._name).unlink(missing_ok=True)
        except OSError:
            pass

    def _run(self, *words: str) -> None:
        command = ["tmux", "-f", "/dev/null", "-u", "-L", self._name, *words]
        subprocess.run(
            command, env=self._env, cwd=self._cwd, capture_output=True, timeout=PATIENCE, check=True
        )

    # ── the control client ──

    def command(self, *words: str) -> list[str]:
        """What a tmux command answers, line by line."""
        assert self._control is not None
        assert self._control.stdin is not None
        self._control.stdin.write(shlex.join(words).encode() + b"\n")
        self._control.stdin.flush()
        deadline = time.monotonic() + PATIENCE
        answer: list[str] | None = None
        while True:
            line = self._line(deadline)
            kind, *rest = line.split(" ")
            if kind == "%begin" and rest[-1] == "1":  # 0: not asked for by us
                answer = []
            elif answer is not None and kind in ("%end", "%error"):
                assert kind == "%end", (words, answer)
                return answer
            elif answer is not None:
                answer.append(line)

    def _line(self, deadline: float) -> str:
        while b"\n" not in self._buffer:
            assert self._hear(deadline), "tmux is silent"
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace")

    def _hear(self, deadline: float) -> bool:
        """Wait for anything that tmux tells: most often, that a pane got output."""
        assert self._control is not None
        assert self._control.stdout is not None
        fd = self._control.stdout.fileno()
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        data = os.read(fd, 1 << 16) if ready else b""
        self._buffer += data
        return bool(data)

    # ── panes ──

    def first(self) -> Pane:
        return Pane(self, "%0")

    def another(self, cols: int, rows: int) -> Pane:
        (number,) = self.command("new-window", "-d", "-P", "-F", "#{pane_id}", "-c", str(self._cwd), SHELL)
        self.resize(number, cols, rows)
        return Pane(self, number)

    def resize(self, pane: str, cols: int, rows: int) -> None:
        # It makes the window's size its own. To say `window-size manual` for all would end tmux 3.3a at
        # the next new window.
        self.command("resize-window", "-t", pane, "-x", str(cols), "-y", str(rows))

    def until(self, is_so: Callable[[], bool], describe: Callable[[], object]) -> None:
        """Look, with one command, and look again whenever a pane got output, until it is so."""
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            # What tmux told before its answer is in what was seen; what it told behind it is not.
            assert self._buffer or self._hear(deadline), f"never came; there is: {describe()}"
            self._buffer = self._buffer[self._buffer.rfind(b"\n") + 1 :]


class Pane:
    """One terminal with a shell in it."""

    def __init__(self, tmux: Tmux, number: str) -> None:
        self._tmux = tmux
        self._number = number

    def send(self, data: bytes) -> None:
        """These bytes, as a keyboard would send them, at once."""
        self._tmux.command("send-keys", "-t", self._number, "-H", *(f"{byte:02x}" for byte in data))

    def type(self, text: str) -> None:
        self.send(text.encode())

    def enter(self, line: str) -> None:
        self.send(line.encode() + b"\r")

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._tmux.command("capture-pane", "-p", "-t", self._number)]

    def ask(self, *names: str) -> list[str]:
        """Formats of tmux: `alternate_on`, `cursor_flag`, `pane_title` …"""
        wanted = "\t".join(f"#{{{name}}}" for name in names)
        (answer,) = self._tmux.command("display-message", "-p", "-t", self._number, wanted)
        return answer.split("\t")

    def until(self, is_so: Callable[[list[str]], bool]) -> list[str]:
        """Wait until what it shows is so; returns what it shows then."""
        seen: list[list[str]] = []

        def look() -> bool:
            seen[:] = [self.lines()]
            return is_so(seen[0])

        self._tmux.until(look, lambda: "\n".join(seen[0]))
        return seen[0]

    def until_shows(self, text: str) -> list[str]:
        return self.until(lambda lines: any(text in line for line in lines))

    def until_asked(self, **wanted: str) -> None:
        """Wait until formats of tmux have these values."""
        names = tuple(wanted)
        self._tmux.until(lambda: self.ask(*names) == list(wanted.values()), lambda: (names, self.ask(*names)))

    def resize(self, cols: int, rows: int) -> None:
        self._tmux.resize(self._number, cols, rows)
