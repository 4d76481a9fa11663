"""What a disk may hold after a loss of power: recorded system calls, less everything that was not synced.

The model is that of a journalling filesystem. Bytes of a file are safe after its fsync; before it they may
be there, be missing, or read as NUL. Names are safe after the fsync of their folder; before it any number of
the first of them is there, in the order in which they were made.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

_WATCHED = "openat,write,pwrite64,fsync,fdatasync,ftruncate,fallocate,rename,unlink,mkdir,close"
_CALL = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
Bytes = Literal["kept", "missing", "nul"]


@dataclass
class File:
    """Its bytes as programs see them, and as they are safe."""

    now: bytearray = field(default_factory=bytearray)
    safe: bytes = b""

    def after(self, how: Bytes) -> bytes:
        if how == "kept" or len(self.now) == len(self.safe):  # nothing new, or a hole in what was there
            return bytes(self.now) if how != "missing" else self.safe
        if how == "missing":
            return self.safe
        common = len(self.safe) if self.now.startswith(self.safe) else 0
        return bytes(self.now[:common]) + bytes(len(self.now) - common)


Names = dict[str, File | None]
"""A path and its file; None for a folder."""


@dataclass(frozen=True)
class Change:
    """Of the names: `new` comes to be at `path`, or nothing; `old` goes."""

    path: str
    new: File | None = None
    folder: bool = False
    old: str = ""

    def apply(self, names: Names) -> None:
        if self.old:
            names.pop(self.old, None)
        if self.folder:
            names[self.path] = None
        elif self.new is not None:
            names[self.path] = self.new
        else:
            names.pop(self.path, None)


class Disk:
    """Replays calls on what lies below `root`; everything that is there at the beginning is safe."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.safe: Names = {}
        for path in sorted(root.rglob("*")):
            data = b"" if path.is_dir() else path.read_bytes()
            self.safe[str(path)] = None if path.is_dir() else File(bytearray(data), data)
        self.now: Names = dict(self.safe)
        self.pending: list[Change] = []
        self.said = b""
        """What was printed so far."""
        self._open: dict[int, tuple[str, File | None, bool]] = {}

    def states(self) -> Iterator[dict[str, bytes | None]]:
        """All that may be found after a loss of power now."""
        seen: set[str] = set()
        for count in range(len(self.pending) + 1):
            names = dict(self.safe)
            for change in self.pending[:count]:
                change.apply(names)
            hows: tuple[Bytes, ...] = ("missing", "nul", "kept")
            for how in hows:
                found = {path: None if file is None else file.after(how) for path, file in names.items()}
                if (key := repr(found)) not in seen:
                    seen.add(key)
                    yield found

    def step(self, name: str, arguments: str, result: int) -> None:
        if result >= 0:
            texts = [_bytes(text) for text in _TEXT.findall(arguments)]
            getattr(self, f"_{name}")(arguments, texts, result)

    def _change(self, change: Change) -> None:
        change.apply(self.now)
        self.pending.append(change)

    def _inside(self, path: bytes) -> bool:
        return path.decode().startswith(self.root)

    def _openat(self, arguments: str, texts: list[bytes], fd: int) -> None:
        path = texts[0].decode()
        if not self._inside(texts[0]):
            self._open.pop(fd, None)
            return
        file = self.now.get(path)
        if file is None and "O_CREAT" in arguments:
            file = File()
            self._change(Change(path, file))
        if file is not None and "O_TRUNC" in arguments:
            file.now.clear()
        self._open[fd] = (path, file, "O_APPEND" in arguments)

    def _write(self, arguments: str, texts: list[bytes], result: int) -> None:
        fd = int(arguments.split(",")[0])
        if fd == 1:
            self.said += texts[0]
        elif (found := self._open.get(fd)) is not None and found[1] is not None:
            found[1].now += texts[0][:result]  # ours write to the end, or into what they have just emptied

    def _pwrite64(self, arguments: str, texts: list[bytes], result: int) -> None:
        found = self._open.get(int(arguments.split(",")[0]))
        if found is not None and found[1] is not None:
            at = int(arguments.rsplit(",", 1)[1])
            found[1].now[at : at + result] = texts[0][:result]

    def _ftruncate(self, arguments: str, texts: list[bytes], result: int) -> None:
        found = self._open.get(int(arguments.split(",")[0]))
        if found is not None and found[1] is not None:
            del found[1].now[int(arguments.split(",")[1]) :]

    def _fallocate(self, arguments: str, texts: list[bytes], result: int) -> None:
        """A hole: a change of the file's bytes that no one syncs, and that may be there at any time."""
        found = self._open.get(int(arguments.split(",")[0]))
        if found is not None and found[1] is not None:
            start, length = (int(one) for one in arguments.split(",")[-2:])
            found[1].now[start : start + length] = bytes(length)

    def _fsync(self, arguments: str, texts: list[bytes], result: int) -> None:
        found = self._open.get(int(arguments))
        if found is None:
            return
        path, file, _ = found
        if file is not None:
            file.safe = bytes(file.now)
            return
        for change in [one for one in self.pending if one.path.rpartition("/")[0] == path]:
            change.apply(self.safe)
            self.pending.remove(change)

    _fdatasync = _fsync

    def _rename(self, arguments: str, texts: list[bytes], result: int) -> None:
        old, new = (text.decode() for text in texts)
        if self._inside(texts[0]):
            self._change(Change(new, self.now[old], old=old))

    def _unlink(self, arguments: str, texts: list[bytes], result: int) -> None:
        if self._inside(texts[0]):
            self._change(Change(texts[0].decode()))

    def _mkdir(self, arguments: str, texts: list[bytes], result: int) -> None:
        if self._inside(texts[0]):
            self._change(Change(texts[0].decode(), folder=True))

    def _close(self, arguments: str, texts: list[bytes], result: int) -> None:
        self._open.pop(int(arguments), None)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def record(argv: list[str], trace: Path, payload: bytes) -> list[tuple[str, str, int]]:
    """The calls of a program that change something, in their order. Nothing else may write then."""
    strace = ["strace", "-f", "-qq", "-xx", "-s", "1000000", "-e", f"trace={_WATCHED}", "-o", str(trace)]
    subprocess.run([*strace, *argv], input=payload, capture_output=True, check=True)
    found = [_CALL.match(line) for line in trace.read_text().splitlines()]
    return [(call[1], call[2], int(call[3])) for call in found if call is not None]


def lay_out(state: dict[str, bytes | None], old: Path, new: Path) -> None:
    """Make a state real, in another place. What has no folder any more cannot be found."""
    new.mkdir(mode=0o700)
    for path, data in sorted(state.items()):
        there = new / Path(path).relative_to(old)
        if not there.parent.exists():
            continue
        if data is None:
            there.mkdir(mode=0o700)
        else:
            there.write_bytes(data)
