"""Free disk space: of acknowledged messages in the inbox, and of old records in our own files.

Foreign writers hold `inbox.jsonl` open for append, so it is never renamed and never truncated. Its
acknowledged part becomes a hole in place: the bytes read as NUL, which every reader ignores, and no offset
changes. Our own files are written only by us, under the lock, and are replaced by new ones.

The Stop hook runs this once in many megabytes, so nothing here imports more than it needs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from remuda.frozen import frozen
from remuda.lockfile import FileLock

from . import stop_hook
from .stop_hook import FINAL, FINGERPRINT, Files, Lock, Reader, decode_json, number

KEEP_SECONDS = 7 * 24 * 3600.0
"""Receipts and answers of messages that ended are kept for this many seconds …"""
KEEP_BYTES = 16 << 20
"""… and if a file is larger than this, the oldest are removed down to half of it …"""
KEEP_ALWAYS = 3600.0
"""… but none younger than this: someone may still wait for it."""
DEDUP_WINDOW = 24 * 3600.0
SMALL = 1 << 20
"""A file of ours below this size stays unchanged."""
SMALLEST_HOLE = 64 << 10
WRITER_LOCK = ".inbox-writer"
DEDUP_FILE = ".inbox-dedup.jsonl"
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
_CHUNK = 65536


@frozen
class Reclaimed:
    """Bytes of disk space that were freed, by file. `note` says why the inbox itself was not, if so."""

    inbox: int = 0
    receipts: int = 0
    outbox: int = 0
    dedup: int = 0
    note: str = ""


def compact(folder: str, now: float | None = None, *, small: int = SMALL) -> Reclaimed:
    """Free what can be freed. Other processes may use the inbox at the same time. Raises OSError."""
    now = time.time() if now is None else now
    files = Files(os.path.join(folder, "inbox.jsonl"))
    with Lock(files):
        inbox = stop_hook.HookInbox(files)
        try:
            inbox.open()
            freed, note = _punch(inbox) if inbox.reader is not None else (0, "")
            # The outbox first: the receipts say which messages are open.
            kept = _Receipts(files.receipts, _unpassed(inbox))
            outbox = _rewrite(files, files.outbox, small, lambda lines: _kept_answers(lines, kept.open, now))
            receipts = _rewrite(files, files.receipts, small, lambda lines: kept.kept(lines, now, inbox))
            cursor = inbox.queue.cursor
            with FileLock(f"{files.folder}/{WRITER_LOCK}", stop_hook.open_file):
                path = f"{files.folder}/{DEDUP_FILE}"
                dedup = _rewrite(files, path, small, lambda lines: _kept_keys(lines, cursor, now))
        finally:
            inbox.close()
    return Reclaimed(freed, receipts, outbox, dedup, note)


# ── our own files ──


def json_lines(path: str) -> Iterator[dict[str, Any]]:
    for _, document in parsed_lines(stop_hook.read_file(path) or b""):
        yield document


def parsed_lines(data: bytes) -> Iterator[tuple[bytes, dict[str, Any]]]:
    for line in data.split(b"\n"):
        try:
            document = decode_json(line) if line else None
        except ValueError:  # torn by a crash; the writer ends such a line before the next
            continue
        if isinstance(document, dict):
            yield line, document


Lines = list[tuple[bytes, dict[str, Any]]]


def _rewrite(files: Files, path: str, small: int, choose: Callable[[Lines], Lines]) -> int:
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        return 0
    if size < small:
        return 0
    data = b"".join(line + b"\n" for line, _ in choose(list(parsed_lines(stop_hook.read_file(path) or b""))))
    if len(data) >= size:
        return 0
    files.replace(path, data)
    return size - len(data)


def _unpassed(inbox: stop_hook.HookInbox) -> set[str]:
    """Return the ids of entries between the cursor and the frontier, done or not.

    If the queue's own file is lost, only the receipts say which of them are done.
    """
    ids: set[str] = set()
    position = inbox.queue.cursor
    while inbox.reader is not None and position < inbox.queue.frontier:
        entry, position = inbox.reader.next(position)
        if entry is None:
            break
        ids.add(entry.id)
    return ids


class _Receipts:
    """Which messages have not ended, and when the others did. Those in `unpassed` are kept at any age."""

    def __init__(self, path: str, unpassed: set[str]) -> None:
        self._unpassed = unpassed
        self.ended: dict[str, float] = {}
        self.open: set[str] = set()
        for one in json_lines(path):
            message = str(one.get("id"))
            if one.get("stage") in FINAL:
                self.ended[message] = number(one.get("at"))
                self.open.discard(message)
            elif message not in self.ended or message.startswith("line-"):
                self.ended.pop(message, None)  # a plain line that came again has the id of the earlier one
                self.open.add(message)

    def kept(self, lines: Lines, now: float, inbox: stop_hook.HookInbox) -> Lines:
        """Return the receipts to keep. First saves up to which time messages are forgotten."""
        kept = _youngest(lines, self._ended, now)
        left = {str(one.get("id")) for _, one in kept}
        gone = [self.ended.get(str(one.get("id")), 0.0) for _, one in lines if str(one.get("id")) not in left]
        if gone and max(gone) > inbox.queue.forgotten:
            inbox.queue.forgotten = max(gone)
            inbox.queue.save(inbox.reader)
        return kept

    def _ended(self, one: dict[str, Any]) -> float | None:
        message = str(one.get("id"))
        return None if message in self._unpassed else self.ended.get(message)


def _kept_answers(lines: Lines, still_open: set[str], now: float) -> Lines:
    def ended(one: dict[str, Any]) -> float | None:
        return None if str(one.get("id")) in still_open else _seconds(one.get("at"))

    return _youngest(lines, ended, now)


def _youngest(lines: Lines, ended: Callable[[dict[str, Any]], float | None], now: float) -> Lines:
    """Choose by age, then by size. Lines that have not ended (None) are always kept."""
    when = [ended(one) for _, one in lines]
    kept = [at is None or now - at <= KEEP_SECONDS for at in when]
    size = sum(len(line) + 1 for (line, _), keep in zip(lines, kept, strict=True) if keep)
    if size > KEEP_BYTES:
        oldest = sorted((at, index) for index, at in enumerate(when) if at is not None and kept[index])
        for at, index in oldest:
            if size <= KEEP_BYTES // 2 or now - at <= KEEP_ALWAYS:
                break
            kept[index] = False
            size -= len(lines[index][0]) + 1
    return [line for line, keep in zip(lines, kept, strict=True) if keep]


def _seconds(stamp: object) -> float:
    try:
        import calendar  # slow to load

        return float(calendar.timegm(time.strptime(str(stamp), "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return number(stamp)


def _kept_keys(lines: Lines, cursor: int, now: float) -> Lines:
    """Return the keys of the last day, and those of messages that may still wait."""
    return [
        (line, one)
        for line, one in lines
        if now - number(one.get("at")) <= DEDUP_WINDOW or number(one.get("end")) > cursor
    ]


# ── the inbox itself ──


def _punch(inbox: stop_hook.HookInbox) -> tuple[int, str]:
    """Punch holes before the cursor, which is on the disk.

    The last bytes before it stay: they identify the file.
    """
    fd = stop_hook.open_file(inbox.files.inbox, os.O_RDWR)
    try:
        before = os.fstat(fd).st_blocks
        for start, end in _acknowledged(fd, inbox):
            if end - start >= SMALLEST_HOLE and _first_data(fd, start) <= end - SMALLEST_HOLE:
                _make_hole(fd, start, end - start)
        return max(0, before - os.fstat(fd).st_blocks) * 512, ""
    except OSError as error:
        return 0, f"the disk space of acknowledged messages cannot be freed here: {error.strerror}"
    finally:
        os.close(fd)


def _acknowledged(fd: int, inbox: stop_hook.HookInbox) -> Iterator[tuple[int, int]]:
    """Yield ranges of complete lines: before the cursor, and between delayed ones up to the frontier."""
    reader, queue = inbox.reader, inbox.queue
    assert reader is not None
    yield 0, _line_start(fd, queue.cursor - FINGERPRINT)
    starts = [int(one["start"]) for one in queue.held]
    if starts:
        last = _line_start(fd, queue.frontier - FINGERPRINT)
        for start, end in zip(starts, [*starts[1:], last], strict=True):
            yield _end_of(reader, start), min(end, last)


def _end_of(reader: Reader, start: int) -> int:
    """Return where the line ends now: one without an end may have grown since it was held."""
    entry, after = reader.next(start)
    return after if entry is not None else reader.size


def _line_start(fd: int, position: int) -> int:
    """Return the last beginning of a line at or before `position`; 0 if there is none."""
    while position > 0:
        chunk_start = max(0, position - _CHUNK)
        newline = os.pread(fd, position - chunk_start, chunk_start).rfind(b"\n")
        if newline >= 0:
            return chunk_start + newline + 1
        position = chunk_start
    return 0


def _first_data(fd: int, position: int) -> int:
    """Return the offset of the first byte after `position` that takes disk space."""
    try:
        return os.lseek(fd, position, os.SEEK_DATA)
    except (OSError, AttributeError):
        return position


def _make_hole(fd: int, start: int, length: int) -> None:
    """Make a hole. The kernel frees complete blocks, and fills the rest of the range with NUL."""
    import ctypes

    try:
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate64
    except AttributeError:
        raise OSError(0, "this system does not support holes in files") from None
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, start, length) != 0:
        number_of = ctypes.get_errno()
        raise OSError(number_of, os.strerror(number_of))
