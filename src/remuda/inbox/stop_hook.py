"""The Stop hook: after each answer of an agent, the next message of an inbox. One file, run alone.

    python -I -S stop_hook.py --inbox DIR/inbox.jsonl [--mode drain|persist] …
    python -I -S stop_hook.py recover --inbox DIR/inbox.jsonl [--on-orphan retry|deadletter|drop]

It is started for every stop of every session, so it imports nothing of ours and nothing slow: builtin and
extension modules only. The rest of the inbox imports *it*: how an entry is read, leased and acknowledged is
written here once.

Files lie as heartbeat-rs lays them, and a launcher written for it runs unchanged:

    inbox.jsonl         appended to by anyone: a plain line, a JSON string, or our envelope
    .inbox-offset       everything before this byte is acknowledged
    .in-flight          the entry that was handed out and not acknowledged
    .responded          the next tick may acknowledge it
    .dead-letter.jsonl  entries that were given up

Ours beside them: .inbox-lock (one tick at a time), .inbox-consumer (held by a keeper for life),
.inbox-queue.json (what was passed over and when it is due, and how the file is recognised),
.inbox-lease.json (who got the entry in flight, and on which attempt), receipts.jsonl and outbox.jsonl.

A tick takes the lock, acknowledges what was answered, hands out the next entry, and prints its decision.
Every write is a temporary file, fsync, rename, in an order that leaves the entry in the inbox or in flight at
every instant; the folder is synced before anyone is told.
"""

import posix
import sys
import time
from errno import EACCES, EPIPE, EROFS
from posix import O_APPEND, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, NoReturn

    Json = dict[str, Any]
    Policy = Literal["retry", "deadletter", "drop"]
    ReadClock = Callable[[], "Clock"]

IDLE_TICK = "--- IDLE TICK ---"
TORN_GRACE = 2.0
"""A last line without its end is held back for so long after the last write to the file."""
DEFAULT_WAIT = 540.0
"""Below the CLI's own limit of 600 s for a hook."""
MAX_ATTEMPTS = 10
LOOK_AHEAD = 1000
"""Among so many the most urgent goes first, in an inbox whose owner wants that."""
FINAL = ("acked", "dead", "dropped", "expired")
"""The stages in which a message ends."""
ORPHANED = "its session ended before it was acknowledged"
TOO_LATE = ("its time to live ran out", "expired")
_LOOK_AT_OTHERS = 5.0
"""So often a session that waits asks whether the one that has the entry is still there."""
_CHUNK = 65536
_BLANK = b" \t\r\n\x0b\x0c\0"  # NUL: where an acknowledged part was given back to the disk
FINGERPRINT = 4096
"""So many bytes before the cursor tell whether the file is still the one that was read; never given back."""
GROWTH = 8 << 20
"""A file that grew by so much, or a cursor that moved so far, is a reason to give space back."""
_STAMP = len('"2026-01-01T00:00:00Z"}\n')


class InboxError(Exception):
    """Base of all that can be wrong with the files. The hook fails open; others handle them by type."""


class InboxRead(InboxError):
    pass


class OffsetCorrupt(InboxError):
    pass


class InFlightCorrupt(InboxError):
    pass


class InconsistentState(InboxError):
    pass


class ConsumerAlive(InboxError):
    pass


# ── JSON, without importing json: it costs more than the whole tick ──────────────────────────────────────


class _ScannerRules:
    strict = False
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = {"NaN": None, "Infinity": None, "-Infinity": None}.get


def decode_json(text: str) -> "Any":
    """The document in `text`. Raises ValueError."""
    try:
        from _json import make_scanner
    except ImportError:
        import json

        return json.loads(text)
    try:
        document, end = make_scanner(_ScannerRules)(  # type: ignore[arg-type]  # any object with these attributes will do
            text, len(text) - len(text.lstrip(" \t\r\n"))
        )
    except (StopIteration, RecursionError, SystemError) as error:
        # SystemError: the scanner of 3.11 takes json's exception from sys.modules, and sets none without it.
        raise ValueError("not JSON") from error
    if text[end:].strip(" \t\r\n"):
        raise ValueError("something follows the JSON")
    return document


def encode_json(value: "Any") -> str:
    try:
        from _json import encode_basestring_ascii as quoted
    except ImportError:
        import json

        return json.dumps(value)
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return str(quoted(value))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)}: {encode_json(value[key])}" for key in value) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(encode_json(one) for one in value) + "]"
    return repr(value)


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────


def read_file(path: str) -> "bytes | None":
    """All of it; None when there is none."""
    try:
        fd = posix.open(path, O_RDONLY | O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return read_all(fd)
    finally:
        posix.close(fd)


def read_all(fd: int) -> bytes:
    pieces = []
    while piece := posix.read(fd, 1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[posix.write(fd, data) :]


def sync_folder(folder: str) -> None:
    fd = posix.open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try:
        posix.fsync(fd)
    finally:
        posix.close(fd)


def remove_file(path: str) -> None:
    try:
        posix.unlink(path)
    except FileNotFoundError:
        pass


class Files:
    """The files of one inbox. One that is not `durable` is gone with its owner, and waits for no disk."""

    def __init__(self, inbox: str, *, durable: bool = True) -> None:
        self.inbox = inbox
        self.durable = durable
        self.folder = inbox.rpartition("/")[0] or ("/" if inbox.startswith("/") else ".")
        self.offset = self._beside(".inbox-offset")
        self.in_flight = self._beside(".in-flight")
        self.responded = self._beside(".responded")
        self.dead_letters = self._beside(".dead-letter.jsonl")
        self.lock = self._beside(".inbox-lock")
        self.queue = self._beside(".inbox-queue.json")
        self.lease = self._beside(".inbox-lease.json")
        self.consumer = self._beside(".inbox-consumer")
        self.options = self._beside(".inbox-options.json")
        self.receipts = self._beside("receipts.jsonl")
        self.outbox = self._beside("outbox.jsonl")
        self.grown = False
        """Whether it is time to give space back to the disk (see `compaction`)."""

    def _beside(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def crossed(self, before: int, after: int) -> None:
        """A size, or the cursor, went from one to the other."""
        self.grown = self.grown or before // GROWTH != after // GROWTH

    def replace(self, path: str, data: bytes) -> None:
        """Whole or not at all, and on the disk when this returns."""
        self.put_in_place(path, data)
        self.sync()

    def sync(self) -> None:
        """What was made, moved and removed here is so on the disk."""
        if self.durable:
            sync_folder(self.folder)

    def put_in_place(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """As `replace`, but the caller syncs the folder: once, behind all that it changes there.

        Without `sync` a loss of power may leave it empty: for what can be made out from another file.
        """
        temporary = f"{path}.tmp"
        fd = posix.open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        try:
            write_all(fd, data)
            if sync and self.durable:
                posix.fsync(fd)
        finally:
            posix.close(fd)
        posix.rename(temporary, path)

    def append(self, path: str, document: "Json", *, once: bool = False) -> None:
        """One JSON line, on the disk when this returns; a line that a crash cut short is ended first.

        With `once` not again when it is the last one there, but for its time, which ends it.
        """
        line = encode_json(document).encode() + b"\n"
        fd = posix.open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        try:
            size = posix.fstat(fd).st_size
            wanted = len(line) if once else 1
            last = posix.pread(fd, wanted, max(0, size - wanted))
            if not (once and len(last) == len(line) and last[:-_STAMP] == line[:-_STAMP]):
                write_all(fd, (b"\n" if last and last[-1:] != b"\n" else b"") + line)
            if self.durable:
                posix.fsync(fd)
        finally:
            posix.close(fd)
        if not size:
            self.sync()
        self.crossed(size, size + len(line))

    def last_line(self, path: str) -> "Json | None":
        """The last whole line, as JSON; None when there is none, or it is longer than any of ours."""
        try:
            fd = posix.open(path, O_RDONLY | O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            size = posix.fstat(fd).st_size
            lines = posix.pread(fd, _CHUNK, max(0, size - _CHUNK)).rstrip(b"\n").split(b"\n")
            document = decode_json(lines[-1].decode("utf-8", "replace"))
        except ValueError:
            return None
        finally:
            posix.close(fd)
        return document if isinstance(document, dict) else None

    def by_priority(self) -> bool:
        """Whether the owner of this inbox gave up that messages go in the order in which they came."""
        try:
            return (self.read_json(self.options) or {}).get("priority") is True
        except ValueError:
            return False

    def read_json(self, path: str) -> "Json | None":
        """None when there is none. Raises ValueError when it cannot be read."""
        data = read_file(path)
        if data is None:
            return None
        document = decode_json(data.decode("utf-8", "replace"))
        if not isinstance(document, dict):
            raise ValueError("not an object")
        return document


class Lock:
    """One tick at a time. Held by the kernel for the process: it is gone with whoever held it."""

    def __init__(self, files: Files) -> None:
        self._path = files.lock
        self._fd = -1

    def __enter__(self) -> "Lock":
        from fcntl import LOCK_EX, flock

        try:
            self._fd = posix.open(self._path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (EROFS, EACCES):
                raise
            self._fd = posix.open(self._path, O_RDONLY | O_CLOEXEC)  # enough to look
        flock(self._fd, LOCK_EX)
        return self

    def __exit__(self, *exc: object) -> None:
        posix.close(self._fd)


def consumer_of(files: Files) -> "str | None":
    """Who holds the inbox for life (see `consumer_lock`), None when nobody alive does. Under the lock."""
    try:
        fd = posix.open(files.consumer, O_RDONLY | O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        from fcntl import LOCK_NB, LOCK_SH, flock

        try:
            flock(fd, LOCK_SH | LOCK_NB)
        except BlockingIOError:
            return _holder(posix.pread(fd, 4096, 0))
        return None
    finally:
        posix.close(fd)


def _holder(data: bytes) -> str:
    try:
        known = decode_json(data.decode("utf-8", "replace"))
        return f"{known['who']} (pid {known['pid']})"
    except (ValueError, KeyError, TypeError):  # it has not written it yet
        return "another consumer"


# ── clocks ───────────────────────────────────────────────────────────────────────────────────────────────


def ticks() -> int:
    """Nanoseconds on a clock that nobody sets. It begins anew with the machine."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


_boot: "list[str]" = []


def this_boot() -> str:
    """Names the run of the machine, "" where it has no name."""
    if not _boot:
        try:
            _boot.append((read_file("/proc/sys/kernel/random/boot_id") or b"").decode("ascii", "replace")[:8])
        except OSError:
            _boot.append("")
    return _boot[0]


class Clock:
    """An instant on both clocks: the wall's, which jumps, and the machine's, which begins anew with it."""

    __slots__ = ("boot", "ticks", "wall")

    def __init__(self, wall: float, ticks: float, boot: str) -> None:
        self.wall = wall
        self.ticks = ticks
        self.boot = boot

    def stamp(self) -> "list[Any]":
        return [round(self.ticks, 3), self.boot]

    def since(self, wall: float, stamp: object) -> float:
        """Seconds since the instant with this wall time and `stamp`; never less than none.

        Within one run of the machine the clock that nobody sets tells. Over a restart, or without a stamp,
        it is the wall's: then a clock that was set back counts as no time.
        """
        if isinstance(stamp, list) and len(stamp) == 2 and self.boot and stamp[1] == self.boot:
            return max(0.0, self.ticks - number(stamp[0]))
        return max(0.0, self.wall - wall)


def read_clock() -> Clock:
    return Clock(time.time(), ticks() / 1e9, this_boot())


# ── entries ──────────────────────────────────────────────────────────────────────────────────────────────


class Entry:
    """One message of the inbox: where it stands, the line as it was written, and what it says."""

    __slots__ = ("broken", "end", "fields", "raw", "start", "text")

    def __init__(self, start: int, end: int, raw: str) -> None:
        self.start = start
        self.end = end
        self.raw = raw
        self.fields: Json = {}
        self.broken = False
        """An envelope of ours that was cut short: its sender was never told that it is accepted."""
        self.text = self._unwrapped(raw)

    def _unwrapped(self, raw: str) -> str:
        try:
            if raw[:1] == '"':
                text = decode_json(raw)
                return text if isinstance(text, str) else raw
            if raw[:1] == "{" and '"remuda"' in raw:
                document = decode_json(raw)
                if isinstance(document.get("remuda"), int) and isinstance(document.get("prompt"), str):
                    self.fields = document
                    return str(document["prompt"])
        except (ValueError, AttributeError):
            self.broken = raw.startswith('{"remuda"')
        return raw  # a foreign object is delivered as it stands

    @property
    def id(self) -> str:
        given = self.fields.get("id")
        return given if isinstance(given, str) else f"line-{self.start}-{digest(self.raw)[:12]}"

    def wait(self, clock: "ReadClock") -> float:
        """Seconds until it may be handed out, as its sender asked. Never more than were asked for."""
        return self._left("not_before", clock)

    def expired(self, clock: "ReadClock") -> bool:
        return "expires" in self.fields and self._left("expires", clock) <= 0

    def _left(self, name: str, clock: "ReadClock") -> float:
        until = number(self.fields.get(name))
        if not until:
            return 0.0 if name == "not_before" else 1.0
        now = clock()
        at = number(self.fields.get("at"))
        if not at:
            return until - now.wall
        return until - at - now.since(at, self.fields.get("clock"))

    def max_attempts(self) -> int:
        return int(number(self.fields.get("max_attempts"))) or MAX_ATTEMPTS


def number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def digest(text: "str | bytes") -> str:
    try:
        from _sha2 import sha256  # 3.12 and later
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return str(sha256(data).hexdigest())


class Reader:
    """Reads entries of an open inbox, from any byte on, at a cost that does not depend on its length."""

    def __init__(self, fd: int, grace: float = TORN_GRACE) -> None:
        self._fd = fd
        found = posix.fstat(fd)
        self.size = found.st_size
        self._settled = time.time() - found.st_mtime >= grace or found.st_mtime > time.time() + grace
        self.torn = False
        """Whether a last line without its end is being held back."""

    def next(self, position: int) -> "tuple[Entry | None, int]":
        """The first entry at or after `position`, and where to go on reading behind it."""
        while (start := self._skip_blank(position)) < self.size:
            end = self._line_end(start)
            if end is None:
                self.torn = True
                return None, start
            line = posix.pread(self._fd, end - start, start).decode("utf-8", "replace").strip()
            if line:
                return Entry(start, end, line), end
            position = end
        return None, start

    def _skip_blank(self, position: int) -> int:
        """The beginning of the first line that holds more than white space."""
        line_start = position
        while position < self.size:
            chunk = posix.pread(self._fd, min(_CHUNK, self.size - position), position)
            if not chunk:
                break
            rest = chunk.lstrip(_BLANK)
            skipped = chunk[: len(chunk) - len(rest)]
            if (newline := max(skipped.rfind(b"\n"), skipped.rfind(b"\0"))) >= 0:
                line_start = position + newline + 1
            if rest:
                return line_start
            position += len(chunk)
        return self.size

    def _line_end(self, start: int) -> "int | None":
        position = start
        while position < self.size:
            chunk = posix.pread(self._fd, min(_CHUNK, self.size - position), position)
            if not chunk:
                break
            if (newline := chunk.find(b"\n")) >= 0:
                return position + newline + 1
            position += len(chunk)
        return self.size if self._settled else None

    def text(self, start: int, end: int) -> str:
        return posix.pread(self._fd, max(0, end - start), start).decode("utf-8", "replace").strip()

    def fingerprint(self, position: int) -> str:
        """Of the last bytes before `position`: what tells a file that was cut and grew again."""
        start = max(0, position - FINGERPRINT)
        return digest(posix.pread(self._fd, position - start, start)) if position <= self.size else ""


# ── what was passed over, and where reading goes on ──────────────────────────────────────────────────────


class Queue:
    """The cursor, and the entries before the frontier that are not acknowledged yet.

    Everything before `frontier` is acknowledged but what is `held`: entries that are due later. The cursor
    that others see is the first byte that is not acknowledged.
    """

    def __init__(self, files: Files, clock: "ReadClock" = read_clock) -> None:
        self._files = files
        self.clock = clock
        self.frontier = 0
        self.held: list[Json] = []
        self._reader: Reader | None = None
        self._known: Json = {}
        self._stored = 0
        self._corrupt = False
        self.notice = ""
        self.replaced = False
        self.changed = False
        """Whether `load` had to mend something that is to be saved."""

    @property
    def cursor(self) -> int:
        return min([int(one["start"]) for one in self.held] + [self.frontier])

    def load(self, reader: "Reader | None") -> None:
        self.frontier = self._stored = self._read_offset()
        known = self._read_own()
        if known is not None and reader is not None and self.frontier > reader.size:
            # The offset is no place in the inbox; whether ours is one of this file is looked at below.
            self.notice = f"{self._files.offset} was beyond the inbox; restored from .inbox-queue.json"
            self.frontier, self.changed = int(known["cursor"]), True
        if known is not None and int(known.get("cursor", -1)) == self.frontier:
            self.frontier, self.held = int(known["frontier"]), list(known["held"])
        elif known is not None:
            # The offset was written and the queue was not: all before it is acknowledged, and behind it
            # all up to the frontier but what is held. An offset that somebody set back is read from again.
            offset = self.frontier
            if offset > int(known.get("cursor", -1)):
                self.frontier = max(offset, int(known["frontier"]))
                self.held = [one for one in known["held"] if int(one["start"]) >= offset]
        self._known, self._reader = known or {}, reader
        if reader is not None:
            self._recognise(reader)
            if self._corrupt and not self.replaced:
                self._rebuild(reader)
        self._set_clocks()

    def _rebuild(self, reader: Reader) -> None:
        """Our own file is corrupt: the receipts tell what behind the cursor is done, or was given back.

        Not of the first, which the cursor says is not done: a plain line may have the id of an earlier one.
        """
        self.notice = f"{self._files.queue} was corrupt; made anew from the receipts"
        self.changed = True
        last = self._last_receipts()
        first = position = self.frontier
        passed: list[Json] = []
        while True:
            entry, position = reader.next(position)
            if entry is None:
                return
            receipt = last.get(entry.id, {})
            done = receipt.get("stage") in FINAL and entry.start != first
            if not done:
                passed.append(self._as_given_back(entry, receipt))
            if done or receipt.get("stage") == "nacked":
                self.held += passed
                self.frontier, passed = entry.end, []

    def _as_given_back(self, entry: Entry, receipt: "Json") -> "Json":
        left, tries = entry.wait(self.clock), 0
        if receipt.get("stage") == "nacked":
            tries = int(number(receipt.get("attempt")))
            left = number(receipt.get("due")) - self.clock().wall
        # Which of its tries counted is not known: none did.
        one: Json = {"start": entry.start, "end": entry.end, "due": 0.0, "attempt": tries + 1}
        if tries:
            one["uncounted"] = tries
        if priority := number(entry.fields.get("priority")):
            one["priority"] = priority
        return one if left <= 0 else self._anchored(one, left)

    def _last_receipts(self) -> "dict[str, Json]":
        last: dict[str, Json] = {}
        for line in (read_file(self._files.receipts) or b"").split(b"\n"):
            try:
                receipt = decode_json(line.decode("utf-8", "replace"))
                last[str(receipt["id"])] = receipt
            except (ValueError, KeyError, TypeError):  # torn by a crash, or not ours
                continue
        return last

    def _recognise(self, reader: Reader) -> None:
        """Begin anew with a file that is not the one we read so far, however it came there.

        Its content decides: an editor that saves gives the same lines a new inode, and `>` gives other lines
        the old one.
        """
        if self.frontier > reader.size or not self._same(reader, "mark", self.cursor):
            self.notice = "the inbox was truncated or replaced; reading it from its beginning"
            self.frontier, self.held, self.replaced = 0, [], True
        elif self.held and not self._same(reader, "tail", self.frontier):
            self.notice = "the inbox was changed behind the cursor; reading it from there"
            self.frontier, self.held, self.changed = self.cursor, [], True

    def _same(self, reader: Reader, name: str, before: int) -> bool:
        """Whether the bytes before the place where this mark was made are those of then."""
        mark, at = self._known.get(name), self._known.get(f"{name}_at")
        if not isinstance(mark, str) or not isinstance(at, int) or at > before:
            return True
        return mark == reader.fingerprint(at)

    def _set_clocks(self) -> None:
        """What was held before the machine was started anew has its delay on the clock of now."""
        if not self.held:
            return
        now = self.clock()
        for one in self.held:
            stamp = one.get("clock")
            if isinstance(stamp, list) and (stamp[1:] != [now.boot] or now.wall < number(one.get("since"))):
                one.update(self._anchored(one, self.wait(one, now)))
                self.changed = True

    @staticmethod
    def wait(one: "Json", now: Clock) -> float:
        """Seconds until a held entry is due, whatever was done to the clock meanwhile."""
        due = number(one.get("due"))
        if not due or "since" not in one:
            return due - now.wall
        return due - number(one["since"]) - now.since(number(one["since"]), one.get("clock"))

    def _read_offset(self) -> int:
        data = read_file(self._files.offset)
        text = (b"0" if data is None else data).decode("utf-8", "replace").strip()
        if not text.isdigit():
            return self._offset_from_evidence(text)
        return int(text)

    def _offset_from_evidence(self, text: str) -> int:
        """The cursor file is corrupt; our own file and the entry in flight may still tell."""
        known = self._read_own()
        if known is not None and isinstance(known.get("cursor"), int):
            self.notice = f"{self._files.offset} was corrupt ({text[:40]!r}); restored from .inbox-queue.json"
            return int(known["cursor"])
        raise OffsetCorrupt(
            f"corrupt offset file {self._files.offset}: {text[:40]!r}; write the right byte offset into it, "
            "or remove it to begin at the start of the inbox"
        )

    def _read_own(self) -> "Json | None":
        try:
            known = self._files.read_json(self._files.queue)
        except ValueError:
            known = {}
        self._corrupt = known is not None and not _is_queue(known)
        return None if self._corrupt else known

    def save(self, reader: "Reader | None") -> None:
        """On the disk when this returns."""
        self.write(reader)
        self._files.sync()

    def write(self, reader: "Reader | None") -> None:
        """The offset first: an older queue file tells `load` what is acknowledged, a newer one does not."""
        cursor = self.cursor
        document = {"cursor": cursor, "frontier": self.frontier, "held": self.held}
        if reader is not None:
            document |= {"mark": reader.fingerprint(cursor), "mark_at": cursor}
            if self.held:
                document |= {"tail": reader.fingerprint(self.frontier), "tail_at": self.frontier}
        # Once there is a queue file, it tells what an offset that was lost with the power was.
        self._files.put_in_place(self._files.offset, str(cursor).encode(), sync=not self._known)
        self._files.put_in_place(self._files.queue, encode_json(document).encode())
        self._files.crossed(self._stored, cursor)
        self._known, self._stored = document, cursor
        self.changed = False

    def take(self, reader: Reader) -> "tuple[Entry, int] | None":
        """The entry to hand out now and its attempt: the first held one that is due, else the next one."""
        if self._files.by_priority():
            self._look_ahead(reader)
        for one in self._due():
            entry, _ = reader.next(int(one["start"]))
            if entry is not None:
                return entry, int(one.get("attempt", 1))
        return self._take_new(reader)

    def _due(self) -> "list[Json]":
        if not self.held:
            return []
        now = self.clock()
        due = [one for one in self.held if self.wait(one, now) <= 0]
        return sorted(due, key=lambda one: -number(one.get("priority")))

    def _look_ahead(self, reader: Reader) -> None:
        """Hold the next ones too, so that the most urgent of them can go first."""
        while len(self.held) < LOOK_AHEAD:
            entry, after = reader.next(self.frontier)
            if entry is None:
                return
            self._pass_over(entry, entry.wait(self.clock), after)

    def _take_new(self, reader: Reader) -> "tuple[Entry, int] | None":
        while True:
            entry, after = reader.next(self.frontier)
            if entry is None:
                self.frontier = max(self.frontier, min(after, reader.size)) if not reader.torn else after
                return None
            if (left := entry.wait(self.clock)) <= 0:
                return entry, 1
            self._pass_over(entry, left, entry.end)

    def hold(self, start: int, end: int, due: float, attempt: int, **facts: "Any") -> None:
        """Not now: those behind it may pass. `due` is a wall time, 0 for at once. What is known is kept."""
        self._reach(start)
        before = self.find(start) or {}
        self.drop(start)
        one: Json = {**before, "start": start, "end": end, "due": due, "attempt": attempt, **facts}
        self.held.append(self._anchored(one, due - self.clock().wall) if due else one)
        self.held.sort(key=lambda one: int(one["start"]))
        self.frontier = max(self.frontier, end)

    def _reach(self, start: int) -> None:
        """Entries between the frontier and this one are not skipped: there are some where it was set back."""
        while self._reader is not None and self.frontier < start:
            entry, after = self._reader.next(self.frontier)
            if entry is None or entry.start >= start:
                return
            self._pass_over(entry, entry.wait(self.clock), after)

    def _pass_over(self, entry: Entry, left: float, after: int) -> None:
        one: Json = {"start": entry.start, "end": entry.end, "due": 0.0, "attempt": 1}
        if priority := number(entry.fields.get("priority")):
            one["priority"] = priority
        self.held.append(one if left <= 0 else self._anchored(one, left))
        self.frontier = after

    def _anchored(self, one: "Json", left: float) -> "Json":
        now = self.clock()
        return {**one, "due": now.wall + left, "since": now.wall, "clock": now.stamp()}

    def find(self, start: int) -> "Json | None":
        for one in self.held:
            if int(one["start"]) == start:
                return one
        return None

    def drop(self, start: int) -> None:
        self.held = [one for one in self.held if int(one["start"]) != start]

    def done(self, start: int, end: int) -> None:
        """Acknowledged, or given up: it will not be handed out again."""
        self._reach(start)
        self.drop(start)
        self.frontier = max(self.frontier, end)

    def next_due(self) -> "float | None":
        """The wall time at which the first of the held ones is due."""
        if not self.held:
            return None
        now = self.clock()
        return now.wall + min(self.wait(one, now) for one in self.held)


def _is_queue(known: "Json") -> bool:
    """Whether it is one that we wrote: else nothing in it is believed."""
    if not _is_place(known.get("cursor")) or not _is_place(known.get("frontier")):
        return False
    held = known.get("held")
    return isinstance(held, list) and all(
        isinstance(one, dict)
        and _is_place(one.get("start"))
        and _is_place(one.get("end"))
        and _is_place(one.get("attempt"))
        for one in held
    )


def _is_place(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# ── one tick ─────────────────────────────────────────────────────────────────────────────────────────────


class Decision:
    """What the hook says: `block` with a text, or nothing. `empty` means that nothing could be handed out."""

    __slots__ = ("empty", "goes_on", "text", "wake_at")

    def __init__(
        self,
        text: "str | None",
        *,
        empty: bool = False,
        wake_at: "float | None" = None,
        goes_on: bool = False,
    ) -> None:
        self.text = text
        self.empty = empty
        self.wake_at = wake_at
        self.goes_on = goes_on
        """There is work yet, here or in another session: who watches the signal file is told of no end."""


class Inbox:
    """One consumer's view of an inbox. Every method but the constructor wants the lock held."""

    def __init__(self, files: Files, transport: str = "stop-hook", clock: "ReadClock" = read_clock) -> None:
        self.files = files
        self.transport = transport
        self.queue = Queue(files, clock)
        self.notices: list[str] = []
        self._fd = -1
        self.reader: Reader | None = None

    def open(self) -> None:
        try:
            self._fd = posix.open(self.files.inbox, O_RDONLY | O_CLOEXEC)
            self.reader = Reader(self._fd)
        except FileNotFoundError:
            self.reader = None
        except OSError as error:
            raise InboxRead(f"cannot read {self.files.inbox}: {error.strerror}") from error
        self.queue.load(self.reader)
        if self.queue.notice:
            self.notices.append(self.queue.notice)
        if self.queue.replaced:
            self.queue.save(self.reader)

    def close(self) -> None:
        if self._fd >= 0:
            posix.close(self._fd)
            self._fd = -1

    # ── in flight ──

    def in_flight(self) -> "Json | None":
        """The entry that was handed out, from heartbeat's file or, if that is corrupt, from ours."""
        try:
            flight = self.files.read_json(self.files.in_flight)
        except ValueError:
            flight = {}
        if flight is None:
            return None
        if not _is_flight(flight):
            flight = (self.lease() or {}).get("flight")
            if not _is_flight(flight):
                raise InFlightCorrupt(
                    f"corrupt in-flight file {self.files.in_flight}; look at it, remove it, and run recover"
                )
            self.notices.append(f"{self.files.in_flight} was corrupt; restored from .inbox-lease.json")
        return flight

    def lease(self) -> "Json | None":
        try:
            return self.files.read_json(self.files.lease)
        except ValueError:
            return None

    def deliver(self, entry: Entry, attempt: int, *, until_stop: bool = False, **who: "Any") -> None:
        """Lease it: from here on it is in flight until it is acknowledged, or recovered.

        `until_stop`: the next stop of its session acknowledges it.
        """
        flight = _flight(entry, iso_time())
        lease = {
            "id": entry.id,
            "attempt": attempt,
            "at": time.time(),
            "ticked": ticks(),
            "boot": this_boot(),
            "flight": flight,
            **who,
        }
        try:
            self.files.put_in_place(self.files.lease, encode_json(lease).encode())
            # What a loss of power takes of this one is in the lease.
            self.files.put_in_place(self.files.in_flight, encode_json(flight).encode(), sync=False)
            self.receipt(entry.id, "written", attempt=attempt, transport=self.transport)
            if until_stop:
                _touch(self.files.responded)
            self.files.sync()
        except OSError:
            self.forget()  # nobody gets it: that was no attempt
            raise

    def acknowledge(self, flight: "Json", outcome: str = "acked", **facts: "Any") -> None:
        """It was answered, or given up: the cursor moves, and nothing of it is in flight any more."""
        lease = self.lease() or {}
        message = str(lease.get("id") or "")
        if message:
            self.receipt(message, outcome, attempt=int(number(lease.get("attempt"))) or 1, **facts)
        self._let_go(flight)

    def _let_go(self, flight: "Json") -> None:
        if self.is_of_this_file(flight):
            self.queue.done(int(flight["start_offset"]), int(flight["end_offset"]))
        self.queue.write(self.reader)
        self.forget()

    def finish(self, flight: "Json") -> bool:
        """Complete the end of what is in flight, if a crash cut that short: a receipt or a letter tells."""
        lease = self.lease() or {}
        if self._has_letter(flight):
            self.give_up(flight, "a dead letter already")
            return True
        last = self.files.last_line(self.files.receipts)
        if (
            last is None
            or last.get("stage") not in FINAL
            or last.get("id") != lease.get("id")
            or last.get("attempt") != lease.get("attempt")
        ):
            return False
        self._let_go(flight)
        return True

    def nack(
        self, flight: "Json", delay: float, reason: str, *, count_attempt: bool = True, **facts: "Any"
    ) -> str:
        """Not answered: due again in `delay` seconds, or a dead letter when its attempts are used up.

        An attempt that is not counted, of a rate limit say, is no step towards that. The stage it is in now:
        `nacked` or `dead`.
        """
        lease = self.lease() or {}
        entry = Entry(int(flight["start_offset"]), int(flight["end_offset"]), str(flight.get("raw_line")))
        attempt = int(number(lease.get("attempt"))) or 1
        free = int(number((self.queue.find(entry.start) or {}).get("uncounted"))) + (not count_attempt)
        if attempt - free >= entry.max_attempts() or not self.is_of_this_file(flight):
            self.give_up(flight, reason, **facts)
            return "dead"
        due = self.queue.clock().wall + max(0.0, delay)
        returned = {"uncounted": free, "returned": lease.get("ticked")}
        self.queue.hold(entry.start, entry.end, due, attempt + 1, **returned)
        self.queue.write(self.reader)
        message = str(lease.get("id") or entry.id)
        self.receipt(message, "nacked", attempt=attempt, reason=reason, due=due, **facts)
        self.forget()
        return "nacked"

    def is_of_this_file(self, flight: "Json") -> bool:
        """Whether it still stands where it was read: else its end is no place in the inbox of now."""
        raw, start, end = flight.get("raw_line"), int(flight["start_offset"]), int(flight["end_offset"])
        if self.reader is None or not isinstance(raw, str):
            return True
        if not self.queue.replaced and self.reader.text(start, end) == raw:
            return True
        if not self.queue.replaced:
            self.notices.append("the inbox was truncated or replaced while an entry of it was in flight")
        return False

    def forget(self) -> None:
        """The marks of the entry in flight, in the order in which each state between is a lawful one."""
        remove_file(self.files.in_flight)
        remove_file(self.files.responded)
        remove_file(self.files.lease)
        self.files.sync()

    def receipt(self, message: str, stage: str, **facts: "Any") -> None:
        self.files.append(self.files.receipts, {"id": message, "stage": stage, "at": time.time(), **facts})

    def answer(self, message: str, payload: "Json") -> None:
        """What the agent said to it, for whoever waits. Written once, also when a crash repeats this tick."""
        said = {
            "id": message,
            "session_id": payload.get("session_id"),
            "text": payload.get("last_assistant_message"),
        }
        if payload.get("usage"):
            said["usage"] = payload["usage"]
        said["at"] = iso_time()
        self.files.append(self.files.outbox, said, once=True)

    # ── giving up ──

    def dead_letter(self, flight: "Json", reason: str, *, fresh: bool = False) -> None:
        """Heartbeat's five fields in the order of their names, and why.

        Not again when it is there already, left by a crash before the entry was done; `fresh` says that it
        cannot be.
        """
        if fresh or not self._has_letter(flight):
            letter = {key: flight.get(key) for key in sorted(_LETTER)}
            self.files.append(self.files.dead_letters, letter | {"reason": reason})

    def _has_letter(self, flight: "Json") -> bool:
        letter = {key: flight.get(key) for key in sorted(_LETTER)}
        start = encode_json(letter).encode().removesuffix(b"}") + b", "
        return b"\n" + start in b"\n" + (read_file(self.files.dead_letters) or b"")

    def give_up(self, flight: "Json", reason: str, **facts: "Any") -> None:
        """The entry in flight becomes a dead letter."""
        entry = Entry(int(flight["start_offset"]), int(flight["end_offset"]), str(flight.get("raw_line")))
        self.dead_letter(flight, reason)
        self._bounce(entry, reason, "dead")
        self.acknowledge(flight, "dead", reason=reason, **facts)

    def bury(self, entry: Entry, reason: str, stage: str) -> None:
        """An entry that will not be handed out (again)."""
        if stage == "dead":
            self._bury_once(entry, reason)
        self.receipt(entry.id, stage, reason=reason)
        self._bounce(entry, reason, stage)
        self.queue.done(entry.start, entry.end)
        self.queue.save(self.reader)

    def _bury_once(self, entry: Entry, reason: str) -> None:
        """The time of the letter is saved first: with it a crash before `done` finds its own letter again."""
        held = self.queue.find(entry.start) or {}
        if fresh := "buried" not in held:
            attempt = int(held.get("attempt", 1))
            self.queue.hold(entry.start, entry.end, 0.0, attempt, buried=iso_time())
            self.queue.save(self.reader)
            held = self.queue.find(entry.start) or {}
        self.dead_letter(_flight(entry, str(held["buried"])), reason, fresh=fresh)

    def _bounce(self, entry: Entry, reason: str, stage: str) -> None:
        if sender := entry.fields.get("from"):
            bounce = {"id": entry.id, "to": sender, "bounced": stage, "reason": reason, "at": iso_time()}
            self.files.append(self.files.outbox, bounce, once=True)

    # ── handing out ──

    def next_entry(self) -> "tuple[Entry, int] | None":
        """The entry to hand out now, with its attempt; what is past its time or tries is buried first."""
        if self.reader is None:
            return None
        before = (self.queue.frontier, len(self.queue.held))
        while (taken := self.queue.take(self.reader)) is not None:
            entry, attempt = taken
            attempt = max(attempt, self._attempts_so_far(entry) + 1)
            if (verdict := self._verdict(entry, attempt)) is not None:
                self.bury(entry, *verdict)
                continue
            if self.queue.changed or len(self.queue.held) != before[1]:
                self.queue.save(self.reader)  # the acknowledgement of this one moves past those
            return entry, attempt
        if self.queue.changed or before != (self.queue.frontier, len(self.queue.held)):
            self.queue.save(self.reader)
        return None

    def _verdict(self, entry: Entry, attempt: int) -> "tuple[str, str] | None":
        """Why it is not handed out, and the stage it ends in; None for an entry in order."""
        held = self.queue.find(entry.start) or {}
        tried = attempt - 1 - int(number(held.get("uncounted")))
        if entry.broken:
            return "an envelope that was cut short", "dead"
        if "buried" in held or tried >= entry.max_attempts():
            return f"{tried} attempts", "dead"
        if entry.expired(self.queue.clock):
            return TOO_LATE
        return None

    def has_work(self) -> bool:
        """Whether anything waits, is delayed or is in flight. Changes nothing."""
        if self.queue.held or exists(self.files.in_flight):
            return True
        if self.reader is None:
            return False
        return self.reader.next(self.queue.frontier)[0] is not None or self.reader.torn

    def _attempts_so_far(self, entry: Entry) -> int:
        lease = self.lease()
        return int(number(lease.get("attempt"))) if lease and lease.get("id") == entry.id else 0


def _is_flight(flight: object) -> bool:
    return (
        isinstance(flight, dict)
        and _is_place(flight.get("start_offset"))
        and _is_place(flight.get("end_offset"))
        and isinstance(flight.get("raw_line"), str)
    )


_LETTER = ("delivered_at", "end_offset", "entry_id", "raw_line", "start_offset")


def _flight(entry: Entry, at: str) -> "Json":
    """An entry as heartbeat-rs writes it down."""
    return {
        "delivered_at": at,
        "end_offset": entry.end,
        "entry_id": digest(entry.raw),
        "raw_line": entry.raw,
        "start_offset": entry.start,
    }


def iso_time() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def tick(files: Files, payload: "Json", began: int, notices: "list[str]") -> Decision:
    """One stop: acknowledge what was answered, hand out what is next."""
    with Lock(files):
        inbox = Inbox(files)
        try:
            inbox.open()
            if (consumer := consumer_of(files)) is not None:
                notices.append(f"{consumer} delivers this inbox; nothing is handed out here")
                return Decision(None, goes_on=inbox.has_work())
            if exists(files.responded) and (early := _settle(inbox, payload, began)) is not None:
                return early
            taken = inbox.next_entry()
            if taken is None:
                soon = time.time() + TORN_GRACE if inbox.reader is not None and inbox.reader.torn else None
                dues = [due for due in (soon, inbox.queue.next_due()) if due is not None]
                return Decision(None, empty=True, wake_at=min(dues, default=None))
            entry, attempt = taken
            who = {"session_id": payload.get("session_id"), "holder": this_agent()}
            inbox.deliver(entry, attempt, until_stop=True, **who)
            return Decision(entry.text)
        finally:
            notices += inbox.notices
            inbox.close()


def _settle(inbox: Inbox, payload: "Json", began: int) -> "Decision | None":
    """What was in flight when this stop came. A decision if it ends here, None to go on to the next."""
    flight = inbox.in_flight()
    if flight is None:
        raise InconsistentState(
            f"inconsistent state in {inbox.files.folder}: .responded without .in-flight; run recover"
        )
    lease = inbox.lease() or {}
    ours, theirs = payload.get("session_id"), lease.get("session_id")
    is_other = bool(ours and theirs and ours != theirs) and not _is_this_agent(lease)
    if is_other and _is_over(inbox, flight, lease):
        return None
    is_new = _handed_out_since(lease, began)
    if is_new and ours is not None and ours == theirs:
        return Decision(None, goes_on=True)  # another hook of this very stop was quicker
    if is_new or is_other:
        # What this session said is no answer to it. Nothing tells of the other one's death.
        look_at = time.time() + _LOOK_AT_OTHERS
        return Decision(IDLE_TICK if is_new else None, empty=True, goes_on=True, wake_at=look_at)
    if _is_at_work(payload):
        return Decision(None, goes_on=True)  # the agent goes on by itself; this is no end
    message = str(
        lease.get("id") or f"line-{flight['start_offset']}-{digest(str(flight.get('raw_line')))[:12]}"
    )
    inbox.answer(message, payload)
    inbox.acknowledge(flight, session_id=ours, prompt_id=payload.get("prompt_id"))
    return None


def _is_over(inbox: Inbox, flight: "Json", lease: "Json") -> bool:
    """Whether the session that has it is done with it, or gone; then it is no longer in flight."""
    if inbox.finish(flight):
        return True
    if not _is_gone(lease):
        return False
    inbox.notices.append(f"session {lease['session_id']} ended with an entry in flight: a dead letter now")
    inbox.give_up(flight, ORPHANED)
    return True


def _is_at_work(payload: "Json") -> bool:
    """Whether its tasks in the background will wake the agent. A shell, a server say, may run for ever."""
    tasks = payload.get("background_tasks")
    if not isinstance(tasks, list):
        return False
    kinds = [str(one.get("type", "")) for one in tasks if isinstance(one, dict)]
    return any("shell" not in kind and "bash" not in kind for kind in kinds)


# Which agent has an entry: its session may get another id, and its number may be another's one day.


def this_agent() -> "Json | None":
    """The agent whose hook this is, for a lease; None when it does not say."""
    pid = posix.environ.get(b"CLAUDE_PID", b"").decode("ascii", "replace")
    if not pid.isdecimal():
        return None
    return {"pid": int(pid), "born": _born(pid), "host": posix.uname().nodename, "space": _pid_space()}


def _is_this_agent(lease: "Json") -> bool:
    """Also behind a /clear, which gives it another session."""
    holder = lease.get("holder")
    return holder is not None and lease.get("boot") == this_boot() and holder == this_agent()


def _is_gone(lease: "Json") -> bool:
    """Whether that agent has ended for certain. Of other machines and containers nothing is known."""
    holder = lease.get("holder")
    if not isinstance(holder, dict) or holder.get("host") != posix.uname().nodename:
        return False
    if lease.get("boot") != this_boot():
        return True
    if holder.get("space") != _pid_space():
        return False
    try:
        posix.kill(int(number(holder.get("pid"))), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return bool(holder.get("born")) and holder["born"] != _born(str(holder.get("pid")))


def _born(pid: str) -> str:
    """When it was started, in the kernel's words; "" where nothing tells, and for one that is gone."""
    try:
        stat = (read_file(f"/proc/{pid}/stat") or b"").decode("ascii", "replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""


def _pid_space() -> str:
    try:
        return posix.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _handed_out_since(lease: "Json", began: int) -> bool:
    ticked, boot = lease.get("ticked"), lease.get("boot")
    if not isinstance(ticked, int) or ticked <= began or boot != this_boot():
        return False
    # Without a name of the boot: the clock may have begun anew with the machine.
    return bool(boot) or abs(time.time() - number(lease.get("at"))) < 60.0


def exists(path: str) -> bool:
    try:
        posix.stat(path)
    except FileNotFoundError:
        return False
    return True


def _touch(path: str) -> None:
    posix.close(posix.open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600))


# ── recovery ─────────────────────────────────────────────────────────────────────────────────────────────


def recover(files: Files, policy: "Policy", notices: "list[str]") -> str:
    """Decide on an entry that was in flight when its session died. The outcome's name.

    Raises `ConsumerAlive` while a keeper has the inbox: what is in flight there is not dead.
    """
    with Lock(files):
        inbox = Inbox(files)
        try:
            if (consumer := consumer_of(files)) is not None:
                raise ConsumerAlive(f"{consumer} delivers this inbox and recovers it by itself")
            remove_file(f"{files.dead_letters}.tmp")
            inbox.open()
            flight = inbox.in_flight()
            if flight is None:
                remove_file(files.responded)
                files.sync()
                return "NothingToRecover"
            start, end = int(flight["start_offset"]), int(flight["end_offset"])
            held = inbox.queue.find(start)
            if inbox.queue.frontier >= end and held is None:
                inbox.forget()
                return "StaleOrphanDeleted"
            if inbox.finish(flight):
                return "StaleOrphanDeleted"
            if held is not None and _given_back(held, inbox.lease() or {}):
                inbox.forget()  # with its delay; only this was left to do
                return "ReQueued"
            return _apply(inbox, flight, policy)
        finally:
            notices += inbox.notices
            inbox.close()


def _given_back(held: "Json", lease: "Json") -> bool:
    return held.get("returned") is not None and held["returned"] == lease.get("ticked")


def _apply(inbox: Inbox, flight: "Json", policy: "Policy") -> str:
    lease = inbox.lease() or {}
    message, attempt = str(lease.get("id") or ""), int(number(lease.get("attempt"))) or 1
    if policy == "retry" and not inbox.is_of_this_file(flight):
        inbox.give_up(flight, "the inbox was replaced while it was in flight")
        return "DeadLettered"
    if policy == "retry":
        # Due at once, with its attempts: the lease is lost when another one goes first.
        inbox.queue.hold(int(flight["start_offset"]), int(flight["end_offset"]), 0.0, attempt + 1)
        inbox.queue.write(inbox.reader)
        if message:
            inbox.receipt(message, "requeued", attempt=attempt)
        # The lease stays: it holds how often this was tried.
        remove_file(inbox.files.in_flight)
        remove_file(inbox.files.responded)
        inbox.files.sync()
        return "ReQueued"
    if policy == "deadletter":
        inbox.give_up(flight, ORPHANED)
        return "DeadLettered"
    inbox.acknowledge(flight, "dropped", reason=ORPHANED)
    return "Dropped"


# ── waiting ──────────────────────────────────────────────────────────────────────────────────────────────


class FolderWatch:
    """Wakes when anything in a folder is written, by anyone; else looks twice a second."""

    _LOOK = 0.5

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._fd = -1
        self._signal = 0

    def __enter__(self) -> "FolderWatch":
        try:
            import _signal
            import fcntl

            self._signal = int(_signal.SIGRTMIN) + 1
            # SIGIO comes instead when too many are queued, and would end us.
            _signal.pthread_sigmask(_signal.SIG_BLOCK, [self._signal, _signal.SIGIO])
            self._fd = posix.open(self._folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            fcntl.fcntl(self._fd, fcntl.F_SETSIG, self._signal)
            wanted = fcntl.DN_MODIFY | fcntl.DN_CREATE | fcntl.DN_RENAME | fcntl.DN_MULTISHOT
            fcntl.fcntl(self._fd, fcntl.F_NOTIFY, wanted)
        except (ImportError, AttributeError, OSError):
            self._signal = 0
        return self

    def wait(self, seconds: float) -> None:
        if not self._signal:
            time.sleep(min(seconds, self._LOOK))
            return
        import _signal

        _signal.sigtimedwait([self._signal, _signal.SIGIO], seconds)

    def __exit__(self, *exc: object) -> None:
        if self._fd >= 0:
            posix.close(self._fd)


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────


class Options:
    def __init__(self) -> None:
        self.command = "tick"
        self.inbox: str | None = None
        self.mode = "drain"
        self.idle_interval = 2.0
        self.signal_file: str | None = None
        self.wait = DEFAULT_WAIT
        self.idle_tick = False
        self.on_orphan: Policy = "deadletter"


def fail(message: str, code: int) -> "NoReturn":
    sys.stderr.write(f"{program()}: {message}\n")
    raise SystemExit(code)


def program() -> str:
    return sys.argv[0].rpartition("/")[2].removesuffix(".py").replace("stop_hook", "remuda stop-hook")


def parse_options(words: "list[str]") -> Options:
    options = Options()
    given = iter(words)
    for word in given:
        flag, equals, value = word.partition("=")
        if flag == "recover" and options.command == "tick":
            options.command = "recover"
        elif flag == "--idle-tick" and not equals:
            options.idle_tick = True
        elif flag in _VALUES:
            value = value if equals else next(given, "")
            _VALUES[flag](options, value)
        else:
            fail(f"unexpected argument '{word}'", 2)
    return options


def _choice(name: str, *choices: str) -> "Any":
    def take(options: Options, value: str) -> None:
        if value not in choices:
            fail(f"invalid value '{value}' for --{name}: use one of {', '.join(choices)}", 2)
        setattr(options, name.replace("-", "_"), value)

    return take


def _seconds(name: str) -> "Any":
    def take(options: Options, value: str) -> None:
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < 1e9:
            fail(f"invalid value '{value}' for --{name}: a number of seconds", 2)
        setattr(options, name.replace("-", "_"), seconds)

    return take


def _text(name: str) -> "Any":
    return lambda options, value: setattr(options, name.replace("-", "_"), value)


_VALUES: "dict[str, Any]" = {
    "--inbox": _text("inbox"),
    "--signal-file": _text("signal-file"),
    "--mode": _choice("mode", "drain", "persist"),
    "--on-orphan": _choice("on-orphan", "retry", "deadletter", "drop"),
    "--idle-interval": _seconds("idle-interval"),
    "--wait": _seconds("wait"),
}


def read_payload() -> "Json":
    """What the CLI tells on standard input; empty when it tells nothing, or a person started us."""
    try:
        if posix.isatty(0):
            return {}
        pieces = []
        while piece := posix.read(0, 1 << 20):
            pieces.append(piece)
        payload = decode_json(b"".join(pieces).decode("utf-8", "replace"))
    except (OSError, ValueError):
        return {}
    return payload if isinstance(payload, dict) else {}


def run_tick(options: Options, files: Files, began: int) -> Decision:
    """A tick, and in persist mode the wait for the next message."""
    notices: list[str] = []
    payload = read_payload()
    try:
        decision = tick(files, payload, began, notices)
        if options.mode == "persist" and decision.empty:
            decision = _idle(options, files, payload, decision, began, notices)
    finally:
        for notice in notices:
            sys.stderr.write(f"{program()}: {notice}\n")
    return decision


def _idle(
    options: Options, files: Files, payload: "Json", decision: Decision, began: int, notices: "list[str]"
) -> Decision:
    if options.idle_tick:
        if options.idle_interval:
            sys.stderr.write(
                f"idle sleep {options.idle_interval:g}s — ensure hook timeout > {options.idle_interval:g}s\n"
            )
            time.sleep(options.idle_interval)
        return Decision(IDLE_TICK)
    deadline = time.monotonic() + options.wait
    with FolderWatch(files.folder) as watch:
        while decision.empty:
            left = deadline - time.monotonic()
            if left <= 0:
                return Decision(IDLE_TICK)
            # Looked at after the watch began, so that nothing comes unseen between the two. What others were
            # handed during the wait is not this session's: hence the time of the stop.
            decision = tick(files, payload, began, notices)
            if decision.empty:
                due = left if decision.wake_at is None else max(0.01, decision.wake_at - time.time())
                watch.wait(min(left, due))
    return decision


def say(decision: Decision, options: Options) -> int:
    """Print it. Nothing means that the stop is approved."""
    if decision.text is None:
        if options.signal_file and not decision.goes_on:
            try:
                _touch(options.signal_file)
            except OSError as error:
                sys.stderr.write(f"{program()}: cannot touch {options.signal_file}: {error.strerror}\n")
        return 0
    said = f'{{"decision":"block","reason":{encode_json(decision.text)}}}'
    try:
        write_all(1, said.encode())
    except OSError as error:
        return 0 if error.errno == EPIPE else 1
    return 0


def main() -> None:
    began = ticks()
    options = parse_options(sys.argv[1:])
    if not options.inbox:
        fail("--inbox is required", 1)
    files = Files(options.inbox)
    if options.command == "recover":
        notices: list[str] = []
        try:
            outcome = recover(files, options.on_orphan, notices)
        except (InboxError, OSError) as error:
            fail(f"recover: {error}", 1)
        for line in [*notices, f"recover: {outcome}"]:
            sys.stderr.write(f"{program()} {line}\n")
        raise SystemExit(0)
    try:
        decision = run_tick(options, files, began)
    except Exception as error:  # noqa: BLE001  # what it may be is not known, and what to do is
        sys.stderr.write(f"{program()}: error: {error}\n")
        decision = Decision(None)  # fail open: an agent never hangs for the sake of its inbox
    code = say(decision, options)
    if files.grown:
        give_back(files)
    raise SystemExit(code)


def give_back(files: Files) -> None:
    """Once in many megabytes, behind the answer: here alone something of ours is imported."""
    try:
        sys.path.append(__file__.rpartition("/remuda/inbox/")[0])
        from remuda.inbox.compaction import compact

        if note := compact(files.folder).note:
            sys.stderr.write(f"{program()}: {note}\n")
    except Exception as error:  # noqa: BLE001  # whatever is wrong, the session has its answer
        sys.stderr.write(f"{program()}: no space was given back: {error}\n")


if __name__ == "__main__":
    main()
