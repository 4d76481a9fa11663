"""What agents did through MCP, and how much of their limits they used. Files below the folder `mcp`.

`ledger.jsonl` has a line for each call, also for those that were refused; the older half is in
`ledger.jsonl.1`. `used/` has a file for each tree of agents and day, with one byte for each message, and one
that ends with `.tokens`, with a line for each pool request: when, and how many output tokens.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from remuda.digest import sha256
from remuda.durable import open_regular
from remuda.errors import NotSafe
from remuda.lockfile import lock, try_lock
from remuda.paths import home, private_folder
from remuda.untrusted import BadJson, dump_json, parse_object

DAY = 86_400.0
LEDGER_BYTES = 4 << 20
_LONGEST_TEXT = 300
_BLOCK_BYTES = 1 << 16
_START_TIMEOUT = 120.0
_LOCK_INTERVAL = 0.02


def mcp_folder() -> Path:
    return private_folder(home() / "mcp")


def record_call(who: str, tool: str, outcome: str, **facts: Any) -> None:
    """Add a line to the ledger. `outcome` is `ok`, or the code of the error."""
    line = {"at": round(time.time(), 3), "who": who, "tool": tool, "outcome": outcome}
    line |= {name: _short(value) for name, value in facts.items() if value is not None}
    path = mcp_folder() / "ledger.jsonl"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, dump_json(line).encode() + b"\n")
        if os.fstat(fd).st_size > LEDGER_BYTES:
            with suppress(FileNotFoundError):  # another server was first
                os.replace(path, path.with_name("ledger.jsonl.1"))
    finally:
        os.close(fd)


def _short(value: object) -> str:
    """Return a fact that a client chose, and that may be anything."""
    return value[:_LONGEST_TEXT] if isinstance(value, str) else f"({type(value).__name__})"


def read_ledger(count: int) -> list[dict[str, Any]]:
    """Return the last lines, the oldest first. Lines that cannot be read are left out."""
    found: list[dict[str, Any]] = []
    for name in ("ledger.jsonl", "ledger.jsonl.1"):
        if len(found) >= count:
            break
        try:
            fd = open_regular(home() / "mcp" / name, own=True)
        except OSError:
            continue
        with open(fd, "rb") as file:
            for line in _lines_from_the_end(file):
                if len(found) >= count:
                    break
                with suppress(BadJson):
                    found.append(parse_object(line))
    return found[::-1]


def _lines_from_the_end(file: BinaryIO) -> Iterator[bytes]:
    """Yield the last line first, without reading more than is asked for."""
    at, rest = file.seek(0, os.SEEK_END), b""
    while at:
        begin = max(0, at - _BLOCK_BYTES)
        file.seek(begin)
        rest, *lines = (file.read(at - begin) + rest).split(b"\n")
        at = begin
        yield from reversed(lines)
    yield rest


# ── limits ──


@contextmanager
def only_one(check: Callable[[], None], timeout: float = _START_TIMEOUT) -> Iterator[None]:
    """Keep other servers from starting sessions at the same time: they count what runs first.

    Raises `NotSafe` if one has it for too long, such as a process that is stopped, and what `check` raises.
    """
    deadline = time.monotonic() + timeout
    fd = os.open(mcp_folder() / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while not try_lock(fd):
            check()
            if time.monotonic() > deadline:
                raise NotSafe(
                    f"another agent has been starting a session for {timeout:g} s", hint="try later"
                )
            time.sleep(_LOCK_INTERVAL)
        yield
    finally:
        os.close(fd)


def used_messages(root: str) -> int:
    """Return how many messages the tree of this agent has sent today."""
    try:
        return _used_file(root).stat().st_size
    except FileNotFoundError:
        return 0


def count_message(root: str, most: int) -> int:
    """Count one message more, unless `most` are counted. Return how many were counted before.

    Before the message is sent, and under a lock: calls that run at once would all find room for one more.
    """
    path = _used_file(root)
    private_folder(path.parent)
    is_new = not path.exists()
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        lock(fd)
        used = os.fstat(fd).st_size
        if used < most:
            os.write(fd, b".")
    finally:
        os.close(fd)
    if is_new:
        yesterday = _day(time.time() - DAY)
        for old in path.parent.iterdir():
            if old.name.partition("-")[0] < yesterday:
                old.unlink(missing_ok=True)
    return used


def count_tokens(root: str, output_tokens: int) -> None:
    """Count what a pool request of this tree used. The boss does not know whose request it was."""
    path = _token_file(root, time.time())
    private_folder(path.parent)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, f"{time.time():.3f} {output_tokens}\n".encode())
    finally:
        os.close(fd)


def used_tokens(root: str) -> int | None:
    """Return how many output tokens pool requests of this tree used in a day; None if none is known."""
    now, found = time.time(), []
    for at in (now - DAY, now):
        with suppress(FileNotFoundError):
            for line in _token_file(root, at).read_text(errors="replace").splitlines():
                with suppress(ValueError):  # the disk was full
                    then, count = line.split()
                    found += [int(count)] if float(then) > now - DAY else []
    return sum(found) if found else None


def _token_file(root: str, at: float) -> Path:
    return _used_file(root, at).with_suffix(".tokens")


def _used_file(root: str, at: float | None = None) -> Path:
    tree = sha256(root.encode("utf-8", "surrogatepass"))[:32]
    return home() / "mcp" / "used" / f"{_day(time.time() if at is None else at)}-{tree}"


def _day(at: float) -> str:
    return time.strftime("%Y%m%d", time.localtime(at))
