"""Text that would command a terminal, and commands run on a terminal that finds out."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Mapping
from typing import Self

from support.commands import COMMAND, Commands

PATIENCE = 60.0
MARK = "evil"
"""Stands in every hostile text: what shows it has shown the text."""
HOSTILE = (
    f"{MARK}\x1b]52;c;UFdORUQ=\x07\x1b]0;owned\x07\x1b]8;;http://x.example\x1b\\link\x1b]8;;\x1b\\"
    "\x1b[2J\x1b[8mhidden\x1b[31m\x9b2J\x9d0;owned\x9c\x07\x08\r\x0b\x85\x7f\u202e\u2066\u2028\ue000\U000e0041"
    "\nforged  line\t#(touch PWNED) #{pid} #[fg=red] %H"
)
"""OSC 52, 0 and 8, ED, SGR, C1, BEL, BS, CR, VT, NEL, bidi, a line separator, private use, tags, tmux."""
IN_JSON = HOSTILE + "\0\ud800"
"""The same with what a file name or an argument cannot hold."""
IN_PATH = HOSTILE.replace("/", "")
IN_ARGUMENT = HOSTILE + "\udcff"

_OURS = re.compile(r"\x1b\[(?:|0|1|2|7|(?:1;)?3[12356])m")
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_DRAWING = re.compile(r"\x1b\[(?:[HJK]|\?(?:1049|25|7)[hl])|\r(?=\x1b\[K)")


def offences(output: bytes, *, picture: bool = False, drawn: bool = False) -> list[str]:
    """What of `output` is neither printable, nor the end of a line, nor a sequence that we make.

    `picture`: colours of any kind are fine. `drawn`: so are moves of a complete screen.
    """
    text = (_COLOURS if picture else _OURS).sub("", output.decode("utf-8", "surrogateescape"))
    if drawn:
        text = _DRAWING.sub("", text)
    text = text.replace("\r\n", "\n")
    at = [number for number, one in enumerate(text) if not one.isprintable() and one not in "\n\t"]
    return [repr(text[max(0, number - 20) : number + 20]) for number in at]


_AGAIN = 1.0


class Terminal:
    """A command on a terminal."""

    def __init__(
        self, remuda: Commands, *words: str, env: Mapping[str, str] | None = None, cols: int = 200
    ) -> None:
        self._master, slave = os.openpty()
        termios.tcsetwinsize(slave, (50, cols))
        self._process = subprocess.Popen(
            [*COMMAND, *map(os.fsencode, words)],
            env={**remuda.env, "TERM": "xterm-256color", **(env or {})},
            cwd=remuda.cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.seen = b""

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def until(self, wanted: bytes = b"") -> bytes:
        """What it showed until it showed `wanted`, or until its end."""
        deadline = time.monotonic() + PATIENCE
        try:
            while not wanted or wanted not in self.seen:
                left = deadline - time.monotonic()
                assert select.select([self._master], [], [], max(0.0, left))[0], self.seen
                if not (piece := os.read(self._master, 1 << 16)):
                    break
                self.seen += piece
        except OSError:  # its last writer is gone
            pass
        return self.seen

    def interrupt(self) -> None:
        """Interrupt it, again if need be: what comes just before a blocking read is seen only after that."""
        deadline = time.monotonic() + PATIENCE
        self._process.send_signal(signal.SIGINT)
        while not select.select([self._master], [], [], _AGAIN)[0]:
            assert time.monotonic() < deadline, self.seen
            self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Wait for its end; returns the exit code."""
        self.until()
        return self._process.wait(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)


def shown_by(
    remuda: Commands, *words: str, env: Mapping[str, str] | None = None, cols: int = 200
) -> tuple[int, bytes]:
    """Run a command to its end: its exit code, and everything that it printed."""
    with Terminal(remuda, *words, env=env, cols=cols) as terminal:
        return terminal.end(), terminal.seen
