"""Pages of the docs under test: their commands, and a user's home in which they are run."""

from __future__ import annotations

import fcntl
import os
import re
import select
import shlex
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.commands import COMMAND, Commands
from support.print_calls import PATIENCE, write_program

ROOT = Path(__file__).parents[2]
DETACH = b"\x1c"
ON_A_TERMINAL = {
    "remuda start work --agent demo": (b"? for shortcuts", DETACH),
    "remuda attach work": (b"? for shortcuts", DETACH),
    "remuda approve work": (b"[y/N", b"y\r"),
    "remuda attach build7/work": (b"? for shortcuts", DETACH),
    "remuda approve build7/work": (b"[y/N", b"y\r"),
}
"""Commands that need a terminal: what they show there, and what the reader types then."""
_COLS, _ROWS = 80, 24
_SETTLING = 15.0
"""How long a command may fail because what the line before began is not done yet. People type slowly."""
_PAUSE = 0.5
"""Silence after which the reader types."""
_ID = re.compile(r"\bm[0-9a-f]{8,11}(?:-[0-9a-f]{10})?\b")


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after its fence, its lines, and the text of the page before it."""

    words: list[str]
    lines: list[str]
    line: int
    before: str

    def commands(self) -> Iterator[str]:
        """Each command, without the prompt. A line that ends with a backslash goes on in the next one."""
        text = "\n".join(self.lines).replace("\\\n", " ")
        for line in text.splitlines():
            if self.words[0] == "sh" and line.strip():
                yield line
            elif self.words[0] == "console" and line.startswith("$ "):
                yield line.removeprefix("$ ")


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^```(\w.*)\n((?:.*\n)*?)```$", text, re.MULTILINE):
        number = text.count("\n", 0, found.start()) + 1
        yield Block(found[1].split(), found[2].splitlines(), number, text[: found.start()])


class Reader:
    """Someone who follows a page, in a home of their own with the scripted agent as `claude`."""

    def __init__(self, home: Path) -> None:
        self._commands = Commands(home)
        self.home = home
        self.folder = home / "project"
        self.folder.mkdir()
        self._last_id = ""
        programs = home / ".local/bin"
        programs.mkdir(parents=True)
        write_program(programs / "remuda", f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
        agent = f'exec {sys.executable} -P -m remuda.testing.scripted_agent "$@"\n'
        write_program(programs / "claude", f"#!/bin/sh\n{agent}")
        for name in ("heartbeat-stop", "heartbeat-launch"):
            (programs / name).symlink_to(Path(sys.executable).with_name(name))
        self._write(".config/remuda/remuda.toml", "[boss]\nport = 0\n")  # others use the usual one
        self.env = {name: value for name, value in self._commands.env.items() if name != "REMUDA_HOME"}
        self.env |= {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "TMUX_TMPDIR": str(home),
            "TERM": "xterm-256color",
            "SHELL": "/bin/bash",
        }

    def _write(self, name: str, text: str) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)

    def follow(self, page: Path) -> Iterator[tuple[str, int, str]]:
        """Run the page's commands in order. Yields each with its exit code and its output."""
        for block in blocks(page):
            if block.words[0] == "toml":
                self._save(block)
            for command in block.commands():
                if self._last_id:
                    command = _ID.sub(self._last_id, command)
                code, output = self._run_settled(command)
                self._last_id = (re.findall(r"^accepted (\S+)", output, re.MULTILINE) or [self._last_id])[0]
                yield f"{page.name}:{block.line}: {command}", code, output

    def _save(self, block: Block) -> None:
        """Save a file as the text before it says."""
        name = re.findall(r"`~/(\.config/[\w/.]+\.toml)`", block.before)[-1]
        if not (self.home / name).exists():
            self._write(name, "\n".join(block.lines) + "\n")

    def _run_settled(self, command: str) -> tuple[int, str]:
        deadline = time.monotonic() + _SETTLING
        while True:
            code, output = self.run(command)
            if code == 0 or time.monotonic() > deadline:
                return code, output
            time.sleep(0.2)

    def run(self, command: str) -> tuple[int, str]:
        """Run a command line to its end; returns its exit code and its output."""
        argv = ["bash", "-c", command]
        if keys := ON_A_TERMINAL.get(command.partition(" #")[0].rstrip()):
            return self._run_on_terminal(argv, *keys)
        done = subprocess.run(
            argv,
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode, done.stdout.decode()

    def _run_on_terminal(self, argv: list[str], shown: bytes, keys: bytes) -> tuple[int, str]:
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", _ROWS, _COLS, 0, 0))
        with subprocess.Popen(
            argv,
            env=self.env,
            cwd=self.folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        ) as process:
            os.close(theirs)
            output = b""
            deadline = time.monotonic() + PATIENCE
            while process.poll() is None:
                if select.select([ours], [], [], _PAUSE)[0]:
                    try:
                        output += os.read(ours, 65536)
                    except OSError:  # closed at its other end
                        break
                elif shown in output:  # again if they were dropped: what was typed before a question is
                    os.write(ours, keys)
                elif time.monotonic() > deadline:
                    process.kill()
            code = process.wait(PATIENCE)
        os.close(ours)
        return code or (0 if shown in output else 1), output.decode(errors="replace")

    def close(self) -> None:
        for words in ("pool stop", "boss down --force", "kill --all --yes"):
            self.run(f"remuda {words}")
        subprocess.run(["tmux", "kill-server"], env=self.env, capture_output=True, check=False)
        self._commands.close()
