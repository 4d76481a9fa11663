"""The stream that every terminal is given: a long coloured build log, and a line that ends it."""

from __future__ import annotations

import random
from pathlib import Path

END = b"END-OF-STREAM-7f3a91"
"""The last bytes. Without blanks: a multiplexer that redraws may move over those instead of writing them."""
_BLOCK_BYTES = 1 << 21

_VERBS = ("Compiling", "Checking", "Linking", "Building", "Running", "Generating", "Documenting")
_UNITS = ("parser", "session", "terminal", "scheduler", "inbox", "worker", "keeper", "storage", "proto")
_KINDS = (
    "\x1b[1;32m{verb:>12}\x1b[0m {unit}-{n} v0.{a}.{b} (/home/dev/src/{unit}/{a})\r\n",
    "\x1b[36m[{n:>4}/4096]\x1b[0m cc -O2 -Wall -Iinclude -c src/{unit}/{verb}_{n}.c -o obj/{unit}_{n}.o\r\n",
    "\x1b[1;33mwarning\x1b[0m\x1b[1m: unused variable `{unit}_{b}`\x1b[0m\r\n"
    "  \x1b[1;34m-->\x1b[0m src/{unit}/mod_{n}.rs:{a}:{b}\r\n",
    "\x1b[38;5;{b}m●\x1b[0m \x1b[2m12:{a:02}:{b:02}\x1b[0m \x1b[32mPASS\x1b[0m "
    "tests/{unit}/case_{n} ({a} ms)\r\n",
    "{n:>6} {unit}: {verb} with level={a} retries={b} and nothing else of note to say about it\r\n",
)


def make_stream(path: Path, size_bytes: int) -> int:
    """Writes about `size_bytes` of it and returns how many they are."""
    block = _block()
    end = b"\r\n" + END
    with path.open("wb") as file:
        for _ in range(max(1, size_bytes // len(block))):
            file.write(block)
        file.write(end)
        return file.tell()


def _block() -> bytes:
    chance = random.Random(1)
    lines: list[bytes] = []
    size = 0
    while size < _BLOCK_BYTES:
        line = chance.choice(_KINDS).format(
            verb=chance.choice(_VERBS),
            unit=chance.choice(_UNITS),
            n=chance.randrange(4096),
            a=chance.randrange(60),
            b=chance.randrange(60),
        )
        lines.append(line.encode())
        size += len(lines[-1])
    return b"".join(lines)
