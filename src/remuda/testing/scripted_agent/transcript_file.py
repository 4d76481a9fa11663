"""The files of a conversation: its transcript, and what the process says of itself in the registry."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from . import ENTRYPOINT, VERSION
from .records import Record, Tail, new_id, now

_SLUG_LIMIT = 200
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")


def slug(path: str) -> str:
    """Return the folder's name for a working directory: what is not a plain letter or digit becomes ``-``.

    UTF-16 units are counted, not characters, and a long name ends in a hash of the complete path.
    """
    units = _utf16(path)
    name = "".join(chr(unit) if unit < 128 and chr(unit) in _PLAIN else "-" for unit in units)
    return name if len(name) <= _SLUG_LIMIT else f"{name[:_SLUG_LIMIT]}-{_base36(abs(_hash32(units)))}"


def folder(config: Path, cwd: str) -> Path:
    """Return the folder with the conversations of a working directory."""
    return config / "projects" / slug(cwd)


def newest(config: Path, cwd: str) -> str | None:
    """Return the id of the conversation that was last written there."""
    found = sorted(folder(config, cwd).glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    return found[-1].stem if found else None


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file that are JSON objects."""
    for line in path.read_text("utf-8", "replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


class Transcript:
    """Appends lines, each naming the one before it. The file is made by the first of them."""

    def __init__(self, path: Path, tail: Tail, *, leaf: str | None = None, writes: bool = True) -> None:
        self.path = path
        self.leaf = leaf
        self.messages = 0
        self._tail = tail
        self._writes = writes

    def add(self, record: Record, *, both_ids: bool = True, parent: str | None = None) -> str:
        """Append a line of the conversation, after the newest or after `parent`. Return its id."""
        line_id = new_id()
        chain = {"parentUuid": parent or self.leaf, "isSidechain": False}
        stamp = {"uuid": line_id, "timestamp": now()}
        self.note({**chain, **record, **stamp, **self._tail.fields(both_ids=both_ids)})
        self.leaf = line_id
        self.messages += 1
        return line_id

    def add_all(self, lines: Iterable[Record]) -> None:
        """Append several lines of the conversation."""
        for line in lines:
            self.add(line)

    def helper(self, kind: str, fields: Mapping[str, object]) -> None:
        """Append a line that is not part of the conversation."""
        self.note({"type": kind, **fields, "sessionId": self._tail.session_id})

    def note(self, record: Record) -> None:
        """Append a line as it is."""
        if not self._writes:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
        # One write per line, appended: a reader sees complete lines, also while others write.
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, line.encode("utf-8", "surrogatepass"))
        finally:
            os.close(fd)


def _utf16(text: str) -> list[int]:
    raw = text.encode("utf-16-le", "surrogatepass")
    return [raw[index] | raw[index + 1] << 8 for index in range(0, len(raw), 2)]


def _hash32(units: list[int]) -> int:
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


# ── the registry ──


class Registry:
    """One process's entry. It has no status until the first :meth:`update`."""

    def __init__(self, config: Path, session_id: str, cwd: str, name: str | None) -> None:
        pid = os.getpid()
        self._path = config / "sessions" / f"{pid}.json"
        started = _milliseconds()
        # What belongs to talking with other sessions (socket, peer protocol) is left out: there is none here.
        self._entry: dict[str, object] = {
            "pid": pid,
            "sessionId": session_id,
            "cwd": cwd,
            "startedAt": started,
            "procStart": _process_start(),
            "version": VERSION,
            "kind": "interactive",
            "entrypoint": ENTRYPOINT,
            "name": name or f"{Path(cwd).name}-{os.urandom(1).hex()}",
            "nameSource": "user" if name else "derived",
            "nameSince": started,
        }
        self._write()

    @property
    def status(self) -> object:
        """The status as it was last written."""
        return self._entry.get("status")

    def update(self, status: str, waiting_for: str | None = None, session_id: str | None = None) -> None:
        """Write a new status, unless nothing changed."""
        entry = {key: value for key, value in self._entry.items() if key != "waitingFor"}
        entry["status"] = status
        if session_id is not None:
            entry["sessionId"] = session_id
        if waiting_for is not None:
            entry["waitingFor"] = waiting_for
        if entry != self._entry:
            self._entry = entry | {"updatedAt": _milliseconds(), "statusUpdatedAt": _milliseconds()}
            self._write()

    def remove(self) -> None:
        """The process ends cleanly."""
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._path.with_suffix(".tmp")
        draft.write_text(json.dumps(self._entry, ensure_ascii=False, separators=(",", ":")))
        draft.replace(self._path)


def _milliseconds() -> int:
    return int(time.time() * 1000)


def _process_start() -> str:
    """Return when the system says that this process began, to know it from a reused process id."""
    try:
        status = Path("/proc/self/stat").read_text()
    except OSError:
        words = ["ps", "-o", "lstart=", "-p", str(os.getpid())]
        env = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
        return subprocess.run(words, env=env, capture_output=True, text=True, check=False).stdout.strip()
    # After the program's name, which may hold anything: the 22nd field of the complete line.
    return status.rpartition(")")[2].split()[19]
