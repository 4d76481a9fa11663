"""The Stop hook: after each answer of an agent, hand out the next message of an inbox. One file, run alone.

    python -I -S stop_hook.py --inbox DIR/inbox.jsonl [--mode drain|persist] …
    python -I -S stop_hook.py recover --inbox DIR/inbox.jsonl [--on-orphan retry|deadletter|drop]

It is started for every stop of every session, so it imports nothing of ours and nothing slow: builtin and
extension modules only. The rest of the inbox imports *it*: the code that reads, leases and acknowledges an
entry exists once, here.

The files are those of heartbeat-rs, and a launcher written for it runs unchanged:

    inbox.jsonl         appended to by anyone: a plain line, a JSON string, or an envelope of our writers
    .inbox-offset       everything before this byte is acknowledged
    .in-flight          the entry that was handed out and not acknowledged
    .responded          the next tick may acknowledge it
    .dead-letter.jsonl  entries that were given up

Our own files: .inbox-lock (one tick at a time), .inbox-consumer (locked by a keeper for its lifetime),
.inbox-queue.json (what was passed over and when it is due, and how the file is recognised), .inbox-lease.json
(who got the entry in flight, and on which attempt), receipts.jsonl and outbox.jsonl, and .inbox-key: the
secret by which our writers mark their envelopes. Only a marked envelope has options (`command`, delays,
attempts, priority); any other is delivered as the prompt that it holds.

A tick takes the lock, acknowledges what was answered, hands out the next entry, and prints its decision.
Every write is a temporary file, fsync, rename, in an order that leaves the entry in the inbox or in flight at
every instant; the folder is synced before anyone is notified.
"""

import posix
import sys
import time
from errno import EACCES, EBADF, EINVAL, EISDIR, ELOOP, ENXIO, EPIPE, EROFS
from posix import (
    O_APPEND,
    O_CLOEXEC,
    O_CREAT,
    O_DIRECTORY,
    O_EXCL,
    O_NOFOLLOW,
    O_NONBLOCK,
    O_RDONLY,
    O_RDWR,
    O_WRONLY,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, NoReturn

    Json = dict[str, Any]
    Policy = Literal["retry", "deadletter", "drop"]
    ReadClock = Callable[[], "Clock"]

IDLE_TICK = "--- IDLE TICK ---"
TORN_GRACE = 2.0
"""A last line without its end is ignored for this many seconds after the last write to the file."""
TORN_LIMIT = 20.0
"""A stop waits at most this long for the end of a last line: below the 30 s that many give their hooks."""
DEFAULT_WAIT = 540.0
"""Below the CLI's own limit of 600 s for a hook."""
DEFAULT_INTERVAL = 2.0
"""Seconds between idle ticks, as heartbeat-stop has them."""
STDIN_PATIENCE = 5.0
"""Standard input that stays open is read until nothing came for this long. The CLI closes it at once."""
MAX_PAYLOAD = 64 << 20
"""Maximum bytes of a payload: a longer one does not come from the CLI."""
MAX_ATTEMPTS = 10
MOST_ATTEMPTS = 1_000_000
"""More mean 'forever'."""
MOST_URGENT = 1_000_000_000
"""The bound of a priority, up and down."""
LONGEST = 1e9
"""Thirty years, as in `remuda.duration`: no delay is longer."""
MAX_DEPTH = 500
"""Levels of nesting in JSON, as in `remuda.untrusted`."""
LOOK_AHEAD = 1000
"""How many waiting entries are compared for priority, in an inbox that allows priorities."""
BATCH = 128
"""At most this many entries are given up at once; then the lock is free for others."""
FINAL = ("acked", "dead", "dropped", "expired")
"""The stages in which a message ends."""
ORPHANED = "its session ended before it was acknowledged"
TOO_LATE = ("its time to live ran out", "expired")
UNWANTED = "taken back"
NOT_TAKEN = "the agent did not take it: it ended the Stop hook"
UNCERTAIN = "it is unknown whether this copy of an old message was delivered before"
_LOOK_AT_OTHERS = 5.0
"""Seconds between checks, in a waiting session, whether the session that has the entry is still there."""
_CHUNK = 65536
_BLANK = b" \t\r\n\x0b\x0c\0"  # NUL: where the disk space of an acknowledged part was freed
FINGERPRINT = 4096
"""How many bytes before the cursor identify the file; they are never freed."""
GROWTH = 8 << 20
"""Space is freed when a file grew by this much, or the cursor moved this far."""
_LEASE_TRIES = 6000
"""Waits of 10 ms for the end of another program's lease. The kernel ends it after 45 s by itself."""
_STAMP = len('"2026-01-01T00:00:00Z"}\n')


class InboxError(Exception):
    """Base of all errors in the files. The hook fails open; others handle them by type."""


class InboxRead(InboxError):
    pass


class NotOurFile(InboxRead, OSError):
    """A file of the inbox is not a regular file of this user. It was not used."""

    def __init__(self, path: str, what: str) -> None:
        text = f"{path} {what}; an inbox can only have regular files of its user: remove it"
        super().__init__(EINVAL, text)

    def __str__(self) -> str:
        return str(self.strerror)


class OffsetCorrupt(InboxError):
    pass


class InFlightCorrupt(InboxError):
    pass


class InconsistentState(InboxError):
    pass


class ConsumerAlive(InboxError):
    pass


# ── JSON, without importing json: it costs more than a complete tick ──────────────────────────────────────


_INTEGER_DIGITS = 18
"""Every integer of this many digits fits into 64 bits."""


def _float(digits: str) -> float:
    number = float(digits)
    if number - number != 0:
        raise ValueError(f"the number {digits[:20]}… is too large")
    return number


def _integer(digits: str) -> "int | float":
    if len(digits) <= _INTEGER_DIGITS:
        return int(digits)
    number = _float(digits)
    return int(digits) if abs(number) <= 2**63 and -(2**63) <= int(digits) < 2**63 else number


def _constant(name: str) -> "NoReturn":
    raise ValueError(f"{name} is not JSON")


class _ScannerRules:
    strict = False
    object_hook = object_pairs_hook = None
    parse_float = staticmethod(_float)
    parse_int = staticmethod(_integer)
    parse_constant = staticmethod(_constant)


def decode_json(data: "str | bytes") -> "Any":
    """Return the document in `data`, by the rules of `remuda.untrusted.parse_json`. Raises ValueError.

    Bytes that are not UTF-8 become U+FFFD.
    """
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(text)
    try:
        document, end = _scanner()(text, len(text) - len(text.lstrip(" \t\r\n")))
    except (StopIteration, RecursionError, SystemError) as error:
        # SystemError: the scanner of 3.11 takes json's exception from sys.modules, and sets none without it.
        raise ValueError("not JSON") from error
    if text[end:].strip(" \t\r\n"):
        raise ValueError("something follows the JSON")
    return _whole(document) if "\\ud" in text or "\\uD" in text or _has_surrogate(text) else document


def _scanner() -> "Any":
    try:
        from _json import make_scanner
    except ImportError:
        import json

        rules = _ScannerRules
        return json.JSONDecoder(
            parse_float=rules.parse_float,
            parse_int=rules.parse_int,
            parse_constant=rules.parse_constant,
            strict=rules.strict,
        ).scan_once  # type: ignore[attr-defined]
    return make_scanner(_ScannerRules)  # type: ignore[arg-type]  # any object with these attributes will do


def _check_depth(text: str) -> None:
    import re  # slow to load, and such a document is rare

    depth = 0
    # A string without an end goes to the end of the text: else each quote in it would begin another search.
    for bracket in re.finditer(r'"(?:[^"\\]|\\.)*+"?|[][{}]', text, re.DOTALL):
        depth += (bracket[0] in "[{") - (bracket[0] in "]}")
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")


def _has_surrogate(text: str) -> bool:
    try:
        return not text.isascii() and not text.encode()
    except UnicodeEncodeError:
        return True


def _whole(value: "Any") -> "Any":
    """Replace each half of a surrogate pair by U+FFFD: no terminal and no file takes one."""
    if isinstance(value, str) and _has_surrogate(value):
        return "".join("\ufffd" if "\ud800" <= one <= "\udfff" else one for one in value)
    if isinstance(value, list):
        return [_whole(one) for one in value]
    if isinstance(value, dict):
        return {_whole(key): _whole(one) for key, one in value.items()}
    return value


def encode_json(value: "Any") -> str:
    """Encode as JSON. Raises ValueError for a number that JSON does not have, TypeError for other values."""
    try:
        from _json import encode_basestring_ascii, make_encoder
    except ImportError:
        import json

        return json.dumps(value, allow_nan=False)
    encode = make_encoder(None, _not_json, encode_basestring_ascii, None, ": ", ", ", False, False, False)
    return "".join(encode(value, 0))


def _not_json(value: object) -> "NoReturn":
    raise TypeError(f"{type(value).__name__} is not JSON")


def _finite(value: "Any") -> "Any":
    """Replace each number that JSON does not have by null."""
    if isinstance(value, float) and value - value != 0:
        return None
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return value


def number(value: object) -> float:
    """Return a number from a file; 0 for everything that is not a finite number."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return 0.0
    try:
        result = float(value)
    except OverflowError:
        return 0.0
    return result if result - result == 0 else 0.0


def seconds(value: object) -> float:
    """Return a duration that can be waited: 0 to `LONGEST`, as `remuda.duration.clamp_seconds` does."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= LONGEST:
        return LONGEST
    return max(0.0, number(value))


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────


def open_file(path: str, flags: int) -> int:
    """Open a file of an inbox, never through a symbolic link and without waiting for a pipe.

    It must be a regular file of this user, or of root if it is only read: a clone can bring anything else.
    Raises `NotOurFile`, which names it, and OSError.
    """
    try:
        fd = _open_without_lease(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
    except OSError as error:
        if error.errno == ELOOP:
            raise NotOurFile(path, "is a symbolic link") from error
        if error.errno in (ENXIO, EISDIR):
            raise NotOurFile(path, "is not a regular file") from error
        raise
    status = posix.fstat(fd)
    wrong = ""
    if status.st_mode & 0o170000 != 0o100000:
        wrong = "is not a regular file"
    elif status.st_uid != posix.geteuid() and (status.st_uid or flags & (O_WRONLY | O_RDWR)):
        wrong = "belongs to another user"
    if wrong:
        posix.close(fd)
        raise NotOurFile(path, wrong)
    return fd


def _open_without_lease(path: str, flags: int) -> int:
    """Open a file.

    O_NONBLOCK fails while another program has a lease (see `writer.has_writer`): wait for its end.
    """
    for _ in range(_LEASE_TRIES):
        try:
            return posix.open(path, flags, 0o600)
        except BlockingIOError:
            time.sleep(0.01)
    return posix.open(path, flags, 0o600)


def open_new(path: str) -> int:
    """Open a new file for writing. An older file with this name, left by a crash or put there, is removed."""
    flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC
    try:
        return posix.open(path, flags, 0o600)
    except FileExistsError:
        remove_file(path)
        return posix.open(path, flags, 0o600)


def read_file(path: str) -> "bytes | None":
    """Return the content of a file of an inbox; None if it does not exist. Raises as `open_file` does."""
    try:
        fd = open_file(path, O_RDONLY)
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


def _read_kernel(path: str) -> bytes:
    """Return the content of a file of the kernel, which may belong to any user."""
    fd = posix.open(path, O_RDONLY | O_CLOEXEC)
    try:
        return read_all(fd)
    finally:
        posix.close(fd)


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
    """The files of one inbox.

    One that is not `durable` is gone with its owner, and never waits for the disk.
    """

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
        self.key = self._beside(".inbox-key")
        self.receipts = self._beside("receipts.jsonl")
        self.outbox = self._beside("outbox.jsonl")
        self.grown = False
        """Whether it is time to free disk space (see `compaction`)."""

    def _beside(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def crossed(self, before: int, after: int) -> None:
        """Note that a size, or the cursor, went from one value to the other."""
        self.grown = self.grown or before // GROWTH != after // GROWTH

    def replace(self, path: str, data: bytes) -> None:
        """Replace a file atomically. It is on the disk when this returns."""
        self.put_in_place(path, data)
        self.sync()

    def sync(self) -> None:
        """Sync the folder: files that were created, moved and removed here are so on the disk."""
        if self.durable:
            sync_folder(self.folder)

    def put_in_place(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replace as `replace` does, but the caller syncs the folder: once, after all its changes there.

        Without `sync` a loss of power may leave it empty: for files that can be made again from another file.
        """
        temporary = f"{path}.tmp"
        fd = open_new(temporary)
        try:
            write_all(fd, data)
            if sync and self.durable:
                posix.fsync(fd)
        finally:
            posix.close(fd)
        posix.rename(temporary, path)

    def append(self, path: str, document: "Json", *, once: bool = False) -> None:
        """Append one JSON line, on the disk when this returns; a line that a crash cut short is ended first.

        With `once`, not if it is the last one there. Its time, which ends the line, does not count.
        """
        self.append_all(path, [document], once=once)

    def append_all(self, path: str, documents: "list[Json]", *, once: bool = False) -> None:
        """Append many lines at the cost of one."""
        if not documents:
            return
        line = b"".join(_line(document) for document in documents)
        fd = open_file(path, O_RDWR | O_CREAT | O_APPEND)
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
        """Return the last complete line, as JSON; None if there is none, or it is longer than any of ours."""
        try:
            fd = open_file(path, O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            size = posix.fstat(fd).st_size
            lines = posix.pread(fd, _CHUNK, max(0, size - _CHUNK)).rstrip(b"\n").split(b"\n")
            document = decode_json(lines[-1])
        except ValueError:
            return None
        finally:
            posix.close(fd)
        return document if isinstance(document, dict) else None

    def by_priority(self) -> bool:
        """Return whether the owner of this inbox allows priorities, which change the order of messages."""
        try:
            return (self.read_json(self.options) or {}).get("priority") is True
        except ValueError:
            return False

    def read_json(self, path: str) -> "Json | None":
        """Read a JSON file. Returns None if it does not exist. Raises ValueError when it cannot be read."""
        data = read_file(path)
        if data is None:
            return None
        document = decode_json(data)
        if not isinstance(document, dict):
            raise ValueError("not an object")
        return document


def _line(document: "Json") -> bytes:
    try:
        text = encode_json(document)
    except ValueError:  # what an agent reports may hold anything; its receipt is not lost for that
        text = encode_json(_finite(document))
    return text.encode() + b"\n"


class Lock:
    """The lock for one tick at a time. The kernel releases it when its process ends."""

    def __init__(self, files: Files) -> None:
        self._path = files.lock
        self._fd = -1

    def __enter__(self) -> "Lock":
        from fcntl import LOCK_EX, flock

        try:
            self._fd = open_file(self._path, O_RDWR | O_CREAT)
        except OSError as error:
            if error.errno not in (EROFS, EACCES):
                raise
            self._fd = open_file(self._path, O_RDONLY)  # enough to read
        flock(self._fd, LOCK_EX)
        return self

    def __exit__(self, *exc: object) -> None:
        posix.close(self._fd)


def consumer_of(files: Files) -> "str | None":
    """Return who holds the consumer lock (see `locks`); None if no live process does. Under the lock."""
    try:
        fd = open_file(files.consumer, O_RDONLY)
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
        owner = decode_json(data)
        return f"{owner['who']} (pid {owner['pid']})"
    except (ValueError, KeyError, TypeError):  # it has not written it yet
        return "another consumer"


# ── clocks ───────────────────────────────────────────────────────────────────────────────────────────────


def ticks() -> int:
    """Return nanoseconds on the monotonic clock, which starts again with the machine."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


_boot: "list[str]" = []


def this_boot() -> str:
    """Return the id of this run of the machine, "" if it has none."""
    if not _boot:
        try:
            _boot.append(_read_kernel("/proc/sys/kernel/random/boot_id").decode("ascii", "replace")[:8])
        except OSError:
            _boot.append("")
    return _boot[0]


class Clock:
    """An instant on both clocks: the wall clock, which jumps, and the monotonic one, which starts again with
    the machine.
    """

    __slots__ = ("boot", "ticks", "wall")

    def __init__(self, wall: float, ticks: float, boot: str) -> None:
        self.wall = wall
        self.ticks = ticks
        self.boot = boot

    def stamp(self) -> "list[Any]":
        return [round(self.ticks, 3), self.boot]

    def since(self, wall: float, stamp: object) -> float:
        """Return the seconds since the instant with this wall time and `stamp`; never negative.

        Within one run of the machine by the monotonic clock. Over a restart, or without a stamp, by the wall
        clock: then a clock that was set back counts as no time.
        """
        if isinstance(stamp, list) and len(stamp) == 2 and self.boot and stamp[1] == self.boot:
            return max(0.0, self.ticks - number(stamp[0]))
        return max(0.0, self.wall - wall)


def read_clock() -> Clock:
    return Clock(time.time(), ticks() / 1e9, this_boot())


# ── entries ──────────────────────────────────────────────────────────────────────────────────────────────


_make_digest: "list[Any]" = []


def _sha256(data: bytes) -> "Any":
    if not _make_digest:  # once: a missing module is searched each time, at 50 us
        try:
            from _sha2 import sha256  # 3.12 and later
        except ImportError:
            try:
                from _sha256 import sha256
            except ImportError:
                from hashlib import sha256
        _make_digest.append(sha256)
    return _make_digest[0](data)


def digest(text: "str | bytes") -> str:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return str(_sha256(data).hexdigest())


_MARK = ', "mark": "'
_MARK_DIGITS = 32
_MARK_LENGTH = len(_MARK) + _MARK_DIGITS + len('"}')
_HEX = "0123456789abcdef"
_ID_SIGNS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"


def make_mark(secret: bytes, body: bytes) -> str:
    """Return the proof that the writer of this part of a line knows the secret.

    It does not reveal the secret.
    """
    return str(_sha256(secret + _sha256(secret + body).digest()).hexdigest())[:_MARK_DIGITS]


def marked_line(secret: bytes, line: bytes, place: int) -> bytes:
    """Return an envelope with its mark.

    `place` is where it is about to be written: a copy is always after that.
    """
    body = b'%b, "place": %d' % (line.rstrip(b"\n").removesuffix(b"}"), place)
    return b'%b%b%b"}\n' % (body, _MARK.encode(), make_mark(secret, body).encode())


class InboxKey:
    """The secret of one inbox: it separates the envelopes of our own writers from all other lines.

    Its file holds 64 hexadecimal digits, and how long the inbox was when it was made. It is read once, at the
    first envelope, and made by the first writer (see `writer`).
    """

    __slots__ = ("_path", "_secret", "no_older", "problem", "since")

    def __init__(self, path: str) -> None:
        self._path = path
        self._secret: bytes | None = None
        self.since: int | None = None
        """The length of the inbox at that time; None without a key."""
        self.problem = ""
        self.no_older = False
        """Note that the inbox was replaced: its old length says nothing about the current lines."""

    @property
    def secret(self) -> bytes:
        """The secret; empty if there is none, and `problem` says why."""
        if self._secret is None:
            self._secret = b""
            try:
                self._parse(read_file(self._path))
            except NotOurFile:
                self._secret = None
                raise
            except OSError as error:
                self.problem = f"{self._path} cannot be read: {error.strerror}"
        return self._secret

    def _parse(self, data: "bytes | None") -> None:
        words = (data or b"").decode("ascii", "replace").split()
        if data is None:
            self.problem = f"{self._path} is missing"
        elif len(words) == 2 and len(words[0]) == 64 and _is_made_of(words[0], _HEX) and _is_count(words[1]):
            self._secret, self.since = bytes.fromhex(words[0]), int(words[1])
        else:
            self.problem = f"{self._path} is not a key"

    def distrusts(self, raw: str) -> str:
        """Return why this line is not taken for one of our writers; empty for one that is theirs."""
        mark = raw[-_MARK_LENGTH:]
        if not (mark.startswith(_MARK) and mark.endswith('"}') and raw.isascii()):
            return "it has no mark"
        if not self.secret:
            return self.problem
        from _operator import _compare_digest

        right = make_mark(self.secret, raw[:-_MARK_LENGTH].encode())
        return "" if _compare_digest(right, mark[len(_MARK) : -2]) else "its mark is not of this inbox"

    def is_older(self, start: int) -> bool:
        """Return whether the line was written before this inbox had a key: by an earlier version."""
        return not self.secret or (self.since is not None and start < self.since and not self.no_older)


def _is_made_of(text: str, signs: str) -> bool:
    return all(one in signs for one in text)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _INTEGER_DIGITS


def is_id(name: object) -> bool:
    """Return whether a message may have this id.

    It is shown on terminals, and is never that of a plain line.
    """
    return (
        isinstance(name, str)
        and 0 < len(name) <= 128
        and _is_made_of(name, _ID_SIGNS)
        and not name.startswith("line-")
    )


def _is_new_id(name: object) -> bool:
    """Return whether it has the form that `message.new_id` uses: what an unmarked envelope may have."""
    head, _, tail = name.partition("-") if isinstance(name, str) else ("", "", "")
    return head[:1] == "m" and 1 < len(head) <= 16 and len(tail) == 10 and _is_made_of(head[1:] + tail, _HEX)


class Entry:
    """A message in an inbox: its `id`, its `text` and `fields`, and its line (`raw`, from `start` to `end`).

    `fields` are the options of the sender: "not_before", "expires", "max_attempts" and so on.
    """

    __slots__ = (
        "_id", "broken", "claim", "distrust", "end", "fields", "is_older", "place", "raw", "start", "text"
    )  # fmt: skip

    def __init__(self, start: int, end: int, raw: str, key: "InboxKey | None" = None) -> None:
        self.start = start
        self.end = end
        self.raw = raw
        self.fields: Json = {}
        """What its sender requested: only of envelopes with the mark of this inbox."""
        self._id = ""
        self.place: int | None = None
        """The offset for which a marked envelope was written: its start, or less if another writer was
        quicker.
        """
        self.claim: Json = {}
        """An envelope without the mark of this inbox, if its id has the form of ours."""
        self.is_older = False
        """Whether an envelope without the mark is from a time when this inbox had no key."""
        self.distrust = ""
        """Why the fields of an envelope were left out."""
        self.broken = ""
        """Why an envelope cannot be read. One that was cut short was never accepted."""
        self.text = self._unwrapped(raw, key)

    def _unwrapped(self, raw: str, key: "InboxKey | None") -> str:
        try:
            if raw[:1] == '"':
                text = decode_json(raw)
                return text if isinstance(text, str) else raw
            if raw[:1] == "{" and '"remuda"' in raw:
                document = decode_json(raw)
                if _is_place(document.get("remuda")) and isinstance(document.get("prompt"), str):
                    self._take(document, key or InboxKey(""))
                    return str(document["prompt"])
        except ValueError as error:
            if raw.startswith('{"remuda"'):
                cut = not raw.endswith("}")
                self.broken = f"an envelope that {'was cut short' if cut else f'cannot be read: {error}'}"
        return raw  # a foreign object is delivered as text

    def _take(self, document: "Json", key: InboxKey) -> None:
        """Trust what our own writers wrote. A foreign id is used if it cannot be mistaken for one of ours."""
        name = document.get("id")
        self.distrust = key.distrusts(self.raw)
        if not self.distrust:
            self.fields = document
            self.place = int(number(document.get("place")))
            self._id = str(name) if is_id(name) else ""
        elif _is_new_id(name):
            self.claim = document
            self.is_older = key.is_older(self.start)
            # Version 0.1 writes neither place nor mark. It may still be in use, and waits for its own ids.
            self._id = str(name) if self.is_older or "place" not in document else ""

    @property
    def has_id(self) -> bool:
        """Whether its writer gave it an id."""
        return bool(self._id)

    @property
    def id(self) -> str:
        return self._id or line_id(self.start, self.raw)

    def wait(self, clock: "ReadClock") -> float:
        """Return the seconds until it may be handed out. Never more than its sender requested."""
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
            return min(until - now.wall, LONGEST)
        return min(until - at - now.since(at, self.fields.get("clock")), LONGEST)

    def max_attempts(self) -> int:
        asked = number(self.fields.get("max_attempts"))
        return int(min(max(1.0, asked), MOST_ATTEMPTS)) if asked else MAX_ATTEMPTS

    def priority(self) -> float:
        return max(-MOST_URGENT, min(number(self.fields.get("priority")), MOST_URGENT))


def line_id(start: int, raw: str) -> str:
    """Return the id of an entry that has none: made of its place and its text."""
    return f"line-{start}-{digest(raw)[:12]}"


class Reader:
    """Reads entries of an open inbox, from any byte on, at a cost that does not depend on its length."""

    def __init__(self, fd: int, key: "InboxKey | None" = None, grace: float = TORN_GRACE) -> None:
        self._fd = fd
        self._key = key
        status = posix.fstat(fd)
        self.size = status.st_size
        self._settled = time.time() - status.st_mtime >= grace or status.st_mtime > time.time() + grace
        self.settles_at = status.st_mtime + grace
        """The wall time at which a last line without its end counts as complete, if no more is written."""
        self.torn = False
        """Whether a last line without its end is being ignored."""

    def next(self, position: int) -> "tuple[Entry | None, int]":
        """Return the first entry at or after `position`, and where to continue after it."""
        while (start := self._skip_blank(position)) < self.size:
            end = self._line_end(start)
            if end is None:
                self.torn = True
                return None, start
            line = posix.pread(self._fd, end - start, start).decode("utf-8", "replace").strip()
            if line:
                return Entry(start, end, line, self._key), end
            position = end
        return None, start

    def _skip_blank(self, position: int) -> int:
        """Return the beginning of the first line that holds more than white space."""
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
        length = max(0, min(end, self.size) - start)
        return posix.pread(self._fd, length, start).decode("utf-8", "replace").strip()

    def fingerprint(self, position: int) -> str:
        """Digest the last bytes before `position`, to detect a file that was cut and grew again."""
        start = max(0, position - FINGERPRINT)
        return digest(posix.pread(self._fd, position - start, start)) if position <= self.size else ""


# ── what was passed over, and where reading goes on ──────────────────────────────────────────────────────


class Queue:
    """The cursor, and the entries before the frontier that are not acknowledged yet.

    Everything before `frontier` is acknowledged except what is `held`: entries that are due later. The cursor
    that others see is the first byte that is not acknowledged.

    A message is handed out once, also when its line is copied to the end of the file. A marked line says for
    which place it was written, and each is written after the ones before it: one whose place is before the
    end of another that was passed (`marked`) is odd. So is every line of a file that was replaced. An odd
    line is looked up by its id in the receipts; if it is older than they are, nothing is certain.
    """

    def __init__(self, files: Files, clock: "ReadClock" = read_clock) -> None:
        self._files = files
        self.clock = clock
        self.frontier = 0
        self.held: list[Json] = []
        self.marked: int | None = None
        """The end of the last marked line before the frontier; None if unknown."""
        self.forgotten = 0.0
        """Receipts of messages that ended before this time are gone."""
        self._replaced_size, self.replaced_at = 0, 0.0
        """How long the file was when it was found replaced, and when that was."""
        self._receipts: dict[str, Json] | None = None
        self.copies: list[str] = []
        """Ids of copies that were passed."""
        self.buried: set[int] = set()
        """Offsets of held entries that are being given up: they are not handed out."""
        self._reader: Reader | None = None
        self._known: Json = {}
        self._stored = 0
        self._lost = ""
        """What is wrong with our own file: `corrupt` or `missing`."""
        self._offset_lost = False
        self._no_cursor = False
        """Whether the place of the cursor is unknown: the offset is missing, too."""
        self.notice = ""
        self.replaced = False
        self.changed = False
        """Whether `load` had to repair something that must be saved."""

    @property
    def cursor(self) -> int:
        return min([int(one["start"]) for one in self.held] + [self.frontier])

    def load(self, reader: "Reader | None") -> None:
        saved = self._read_own()
        needed = reader is not None or exists(self._files.in_flight)
        self.frontier = self._stored = self._read_offset(saved, needed=needed)
        if saved is not None and reader is not None and self.frontier > reader.size:
            # The offset is not a place in the inbox; whether ours belongs to this file is checked below.
            self.notice = f"{self._files.offset} was beyond the inbox; restored from .inbox-queue.json"
            self.frontier, self.changed = int(saved["cursor"]), True
        if saved is not None and int(saved.get("cursor", -1)) == self.frontier:
            self.frontier, self.held = int(saved["frontier"]), list(saved["held"])
            self.marked = int(saved["marked"]) if _is_place(saved.get("marked")) else None
        elif saved is not None:
            # The offset was written and the queue was not: everything before it is acknowledged, and after it
            # everything up to the frontier except what is held. An offset that was set back is read from
            # again.
            offset = self.frontier
            if offset > int(saved.get("cursor", -1)):
                self.frontier = max(offset, int(saved["frontier"]))
                self.held = [one for one in saved["held"] if int(one["start"]) >= offset]
        self._known, self._reader = saved or {}, reader
        self.forgotten = number(self._known.get("forgotten"))
        self._replaced_size = int(number(self._known.get("replaced_size")))
        self.replaced_at = number(self._known.get("replaced_at"))
        if reader is not None:
            self._recognise(reader)
            if self._lost and not self.replaced:
                self._mend(reader)
            if self._offset_lost and (self._no_cursor or self.replaced):
                self._reach_flight(reader)
        self._set_clocks()

    def _mend(self, reader: Reader) -> None:
        """Make our own file again, if there was one: it is first written when a message has ended."""
        if self._lost == "missing":
            ended = sum(one.get("stage") in FINAL for one in self._last_receipts().values())
            if ended <= exists(self._files.in_flight):  # a crash came between that end and the file
                return
        before = self.frontier
        self._rebuild(reader)
        if self._lost == "corrupt" or self.frontier != before:
            self.changed = True
            self.notice = f"{self._files.queue} was {self._lost}; rebuilt from the receipts"

    def _rebuild(self, reader: Reader) -> None:
        """Read from the receipts which entries after the cursor are done, or were put back.

        Not of the first, which the cursor says is not done: a plain line may have the id of an earlier one.
        """
        last = self._last_receipts()
        position = self.frontier
        first = None if self._no_cursor else position
        passed: list[Json] = []
        seen: set[str] = set()
        while True:
            entry, position = reader.next(position)
            if entry is None:
                return
            receipt = last.get(entry.id, {})
            done = entry.id in seen or (receipt.get("stage") in FINAL and entry.start != first)
            seen.add(entry.id)
            if not done:
                passed.append(self._as_given_back(entry, receipt))
                if self._no_cursor and not receipt and self._was_passed(entry):
                    passed[-1]["uncertain"] = True
            if done or receipt.get("stage") == "nacked":
                self.held += passed
                self.frontier, passed = entry.end, []

    def _reach_flight(self, reader: Reader) -> None:
        """Without a cursor, or with that of another file: entries before the one in flight are done.

        Except those that were put back or may be overtaken, and those of our writers: their end is in the
        receipts.
        """
        try:
            flight = self._files.read_json(self._files.in_flight)
        except ValueError:
            return
        if flight is None or not _is_flight(flight):
            return
        start = int(flight["start_offset"])
        if reader.text(start, int(flight["end_offset"])) != flight["raw_line"]:
            return
        self.changed, self.replaced = self.changed or self.replaced, False
        while True:
            entry, after = reader.next(self.frontier)
            if entry is None or entry.start >= start:
                break
            receipt = self._last_receipts().get(entry.id, {})
            may_wait = bool(receipt) or entry.place is not None or self._files.by_priority()
            if may_wait and receipt.get("stage") not in FINAL:
                self.held.append(self._as_given_back(entry, receipt))
            self._note_mark(entry)
            self.frontier, self.changed = after, True
            self.notice = f"{self._files.offset} was missing; restored from .in-flight"

    def _was_passed(self, entry: Entry) -> bool:
        """Return whether a later one was handed out only after this one, whose receipts are gone by age."""
        return entry.place is not None and "not_before" not in entry.fields and not self._files.by_priority()

    def _as_given_back(self, entry: Entry, receipt: "Json") -> "Json":
        left, tries = entry.wait(self.clock), 0.0
        if receipt.get("stage") == "nacked":
            tries = seconds(receipt.get("attempt"))
            left = number(receipt.get("due")) - self.clock().wall
        # Which of its attempts counted is unknown: none did.
        one: Json = {"start": entry.start, "end": entry.end, "due": 0.0, "attempt": int(tries) + 1}
        if tries:
            one["uncounted"] = int(tries)
        if priority := entry.priority():
            one["priority"] = priority
        return one if left <= 0 else self._anchored(one, left)

    def _last_receipts(self) -> "dict[str, Json]":
        if self._receipts is None:
            self._receipts = {}
            try:
                data = read_file(self._files.receipts) or b""
            except OSError:  # then none can be written, and nothing is handed out
                data = b""
            for line in data.split(b"\n"):
                try:
                    receipt = decode_json(line)
                    self._receipts[str(receipt["id"])] = receipt
                except (ValueError, KeyError, TypeError):  # torn by a crash, or not ours
                    continue
        return self._receipts

    def has_ended(self, message: str) -> bool:
        return self._last_receipts().get(message, {}).get("stage") in FINAL

    def note_receipt(self, receipt: "Json") -> None:
        """Note that this one has just been written."""
        if self._receipts is not None:
            self._receipts[str(receipt["id"])] = receipt

    def _recognise(self, reader: Reader) -> None:
        """Start again with a file that is not the one we read so far, however it came there.

        Its content decides: an editor that saves gives the same lines a new inode, and `>` gives other lines
        the old one.
        """
        if self.frontier > reader.size or not self._same(reader, "mark", self.cursor):
            self.notice = "the inbox was truncated or replaced; reading it from its beginning"
            self.frontier, self.held, self.marked, self.replaced = 0, [], None, True
            self._replaced_size, self.replaced_at = reader.size, self.clock().wall
        elif self.held and not self._same(reader, "tail", self.frontier):
            self.notice = "the inbox was changed after the cursor; reading it from there"
            self.frontier, self.held, self.marked, self.changed = self.cursor, [], None, True
            self._rebuild(reader)

    def _same(self, reader: Reader, name: str, before: int) -> bool:
        """Return whether the bytes before the place where this mark was made are unchanged."""
        mark, at = self._known.get(name), self._known.get(f"{name}_at")
        if not isinstance(mark, str) or not isinstance(at, int) or at > before:
            return True
        return mark == reader.fingerprint(at)

    def _set_clocks(self) -> None:
        """Convert the delays of entries held before a restart of the machine to the current clock."""
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
        """Return the seconds until a held entry is due, whatever was done to the clock."""
        due = number(one.get("due"))
        if not due or "since" not in one:
            return due - now.wall
        return due - number(one["since"]) - now.since(number(one["since"]), one.get("clock"))

    def _read_offset(self, saved: "Json | None", *, needed: bool = True) -> int:
        """Read the offset.

        Raises `OffsetCorrupt`, if it is `needed`: an inbox without a file has nothing to hand out.
        """
        data = read_file(self._files.offset)
        self._offset_lost = data is None
        text = (data or b"").decode("utf-8", "replace").strip()
        if _is_count(text):
            return int(text)
        if saved is not None:
            what = "missing" if data is None else f"corrupt ({text[:40]!r})"
            self.notice = f"{self._files.offset} was {what}; restored from .inbox-queue.json"
            self.changed = True
            return int(saved["cursor"])
        if data is None or not needed:
            self._no_cursor = data is None
            return 0
        raise OffsetCorrupt(
            f"corrupt offset file {self._files.offset}: {text[:40]!r}; write the right byte offset into it, "
            "or remove it to rebuild it from the receipts"
        )

    def _read_own(self) -> "Json | None":
        try:
            saved = self._files.read_json(self._files.queue)
        except ValueError:
            saved = self._as_before()
        self._lost = "missing" if saved is None else "" if _is_queue(saved) else "corrupt"
        return None if self._lost else saved

    def _as_before(self) -> "Json":
        """Read a number as an earlier version may have written it: an unlimited delay as `inf`, which is not
        JSON.
        """
        data = read_file(self._files.queue) or b""
        try:
            saved = decode_json(data.replace(b": inf,", b": 0.0,").replace(b": nan,", b": 0.0,"))
        except ValueError:
            return {}
        return saved if isinstance(saved, dict) else {}

    def save(self, reader: "Reader | None") -> None:
        """Save it. It is on the disk when this returns."""
        self.write(reader)
        self._files.sync()

    def write(self, reader: "Reader | None") -> None:
        """Write the offset first: with an older queue file `load` knows what is acknowledged, with a newer
        one not.
        """
        cursor = self.cursor
        document: Json = {"cursor": cursor, "frontier": self.frontier, "held": self.held}
        if self.marked is not None:
            document["marked"] = self.marked
        if self.forgotten:
            document["forgotten"] = self.forgotten
        if self.replaced_at:
            document |= {"replaced_size": self._replaced_size, "replaced_at": self.replaced_at}
        if reader is not None:
            document |= {"mark": reader.fingerprint(cursor), "mark_at": cursor}
            if self.held:
                document |= {"tail": reader.fingerprint(self.frontier), "tail_at": self.frontier}
        # Once there is a queue file, it has the offset that was lost with the power.
        self._files.put_in_place(self._files.offset, str(cursor).encode(), sync=not self._known)
        self._files.put_in_place(self._files.queue, encode_json(document).encode())
        self._files.crossed(self._stored, cursor)
        self._known, self._stored = document, cursor
        self.changed = False

    def take(self, reader: Reader) -> "tuple[Entry, int] | None":
        """Return the entry to hand out now and its attempt: the first held one that is due, else the next
        one.
        """
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
        due = [one for one in self.held if one["start"] not in self.buried and self.wait(one, now) <= 0]
        return sorted(due, key=lambda one: -number(one.get("priority")))

    def _look_ahead(self, reader: Reader) -> None:
        """Hold the next ones too, so that the most urgent of them can go first."""
        while len(self.held) < LOOK_AHEAD:
            entry, after = reader.next(self.frontier)
            if entry is None:
                return
            self._pass_over(entry, after)

    def _take_new(self, reader: Reader) -> "tuple[Entry, int] | None":
        while True:
            entry, after = reader.next(self.frontier)
            if entry is None:
                self.frontier = max(self.frontier, min(after, reader.size)) if not reader.torn else after
                return None
            if entry.wait(self.clock) <= 0 and not self._is_copy(entry):
                return entry, 1
            self._pass_over(entry, entry.end)

    def hold(self, start: int, end: int, due: float, attempt: int, **facts: "Any") -> None:
        """Hold it for later: entries after it may pass.

        `due` is a wall time, 0 for at once. Known facts are kept.
        """
        self._reach(start)
        self._pass(start)
        before = self.find(start) or {}
        self.drop(start)
        one: Json = {**before, "start": start, "end": end, "due": due, "attempt": attempt, **facts}
        self.held.append(self._anchored(one, due - self.clock().wall) if due else one)
        self.held.sort(key=lambda one: int(one["start"]))
        self.frontier = max(self.frontier, end)

    def _reach(self, start: int) -> None:
        """Do not skip entries between the frontier and this one: there are some where it was set back."""
        while self._reader is not None and self.frontier < start:
            entry, after = self._reader.next(self.frontier)
            if entry is None or entry.start >= start:
                return
            self._pass_over(entry, after)

    def _pass_over(self, entry: Entry, after: int) -> None:
        """Hold it; a copy of another entry is passed and gone."""
        if self._is_copy(entry):
            self.copies.append(entry.id)
            self.frontier, self.changed = after, True
            return
        left = entry.wait(self.clock)
        one: Json = {"start": entry.start, "end": entry.end, "due": 0.0, "attempt": 1}
        if priority := entry.priority():
            one["priority"] = priority
        if self.is_uncertain(entry):
            one["uncertain"] = True
        self.held.append(one if left <= 0 else self._anchored(one, left))
        self._note_mark(entry)
        self.frontier = after

    def _pass(self, start: int) -> None:
        """Move what is known of marked lines past the entry at the frontier, which ends now, or is held."""
        if self._reader is not None and self.frontier <= start:
            entry, _ = self._reader.next(start)
            if entry is not None and entry.start == start:
                self._note_mark(entry)

    def _note_mark(self, entry: Entry) -> None:
        if entry.place is not None and not self._is_odd(entry):
            self.marked = entry.end

    def _is_odd(self, entry: Entry) -> bool:
        """Return whether it may be a copy, or have been handed out before the file was replaced."""
        if entry.start < self._replaced_size:
            return entry.has_id or bool(entry.claim)
        if entry.place is None:
            moved = entry.claim.get("place", entry.start) != entry.start
            return bool(entry.claim) and (moved or not entry.is_older)
        if self.replaced_at and number(entry.fields.get("at")) <= self.replaced_at:
            return True
        return entry.place != entry.start if self.marked is None else entry.place < self.marked

    def _is_copy(self, entry: Entry) -> bool:
        """Return whether a message with its id has ended, or waits in another place.

        Also for an id that it only claims: claiming the id of a message that ended delays no other.
        """
        if not self._is_odd(entry):
            return False
        last = self._last_receipts()
        if any(last.get(str(one), {}).get("stage") in FINAL for one in (entry.id, entry.claim.get("id"))):
            return True
        waiting = [self._reader.next(int(one["start"]))[0] for one in self.held] if self._reader else []
        return any(one is not None and one.id == entry.id for one in waiting)

    def is_uncertain(self, entry: Entry) -> bool:
        """Return whether it is so old that its receipts may be gone. False for an entry that was passed."""
        at = number((entry.fields or entry.claim).get("at"))
        return at <= self.forgotten and entry.start >= self.frontier and bool(at) and self._is_odd(entry)

    def _anchored(self, one: "Json", left: float) -> "Json":
        now, left = self.clock(), min(left, LONGEST)
        return {**one, "due": now.wall + left, "since": now.wall, "clock": now.stamp()}

    def find(self, start: int) -> "Json | None":
        for one in self.held:
            if int(one["start"]) == start:
                return one
        return None

    def drop(self, start: int) -> None:
        self.held = [one for one in self.held if int(one["start"]) != start]

    def done(self, start: int, end: int) -> None:
        """Note that it is acknowledged, or given up: it will not be handed out again."""
        self._reach(start)
        self._pass(start)
        self.drop(start)
        self.frontier = max(self.frontier, end)

    def next_due(self) -> "float | None":
        """Return the wall time at which the first of the held ones is due."""
        if not self.held:
            return None
        now = self.clock()
        return now.wall + min(self.wait(one, now) for one in self.held)


def _is_queue(document: "Json") -> bool:
    """Return whether our code wrote it: else nothing in it is trusted."""
    if not _is_place(document.get("cursor")) or not _is_place(document.get("frontier")):
        return False
    held = document.get("held")
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
    """What the hook prints: `block` with a text, or nothing.

    `empty` means that nothing could be handed out.
    """

    __slots__ = ("empty", "goes_on", "text", "torn", "wake_at")

    def __init__(
        self,
        text: "str | None",
        *,
        empty: bool = False,
        torn: bool = False,
        wake_at: "float | None" = None,
        goes_on: bool = False,
    ) -> None:
        self.text = text
        self.empty = empty
        self.torn = torn
        """A message is being written: its line has no end yet."""
        self.wake_at = wake_at
        self.goes_on = goes_on
        """There is more work, here or in another session: watchers of the signal file see no end."""


class HookInbox:
    """One consumer's view of an inbox. The caller holds the lock for every method except the constructor."""

    def __init__(self, files: Files, transport: str = "stop-hook", clock: "ReadClock" = read_clock) -> None:
        self.files = files
        self.transport = transport
        self.queue = Queue(files, clock)
        self.notices: list[str] = []
        self.key = InboxKey(files.key)
        self._fd = -1
        self._taken_back: Entry | None = None
        self.reader: Reader | None = None
        self.unfinished = False
        """Whether `next_entry` gave up a batch of bad entries, and there may be more to do."""

    def open(self) -> None:
        try:
            self._fd = open_file(self.files.inbox, O_RDONLY)
            self.reader = Reader(self._fd, self.key)
        except FileNotFoundError:
            self.reader = None
        except OSError as error:
            raise InboxRead(f"cannot read {self.files.inbox}: {error.strerror}") from error
        self.queue.load(self.reader)
        self.key.no_older = bool(self.queue.replaced_at)
        if self.queue.notice:
            self.notices.append(self.queue.notice)
        if self.queue.replaced:
            self.queue.save(self.reader)

    def close(self) -> None:
        if self._fd >= 0:
            posix.close(self._fd)
            self._fd = -1

    def entry_of(self, flight: "Json") -> Entry:
        start, end = int(flight["start_offset"]), int(flight["end_offset"])
        return Entry(start, end, str(flight.get("raw_line")), self.key)

    # ── in flight ──

    def in_flight(self) -> "Json | None":
        """Return the entry that was handed out, from heartbeat's file or, if that is corrupt, from ours."""
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
        """Lease an entry: from here on it is in flight until it is acknowledged, or recovered.

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
            # What a loss of power destroys of this file is in the lease.
            self.files.put_in_place(self.files.in_flight, encode_json(flight).encode(), sync=False)
            facts: dict[str, Any] = {"options_ignored": entry.distrust} if entry.distrust else {}
            if who.get("woken"):  # its session was asleep
                facts["woken"] = True
            self.receipt(entry.id, "written", attempt=attempt, transport=self.transport, **facts)
            if until_stop:
                _touch(self.files.responded)
            self.files.sync()
        except OSError:
            self.forget()  # no agent gets it: that was not an attempt
            raise

    def release(self, began: int, reason: str) -> bool:
        """Put back the entry that this process has leased: it reached no agent. Return whether it is back."""
        if not self.is_leased_here(began) or (flight := self.in_flight()) is None:
            return False
        # First: without this file no stop acknowledges it. A full disk may refuse everything after it.
        remove_file(self.files.responded)
        return self.nack(flight, 0.0, reason, count_attempt=False) == "nacked"

    def is_leased_here(self, began: int) -> bool:
        """Return whether this process has leased an entry since it `began`: a pid comes again."""
        lease = self.lease() or {}
        return lease.get("hook") == posix.getpid() and _handed_out_since(lease, began)

    def acknowledge(self, flight: "Json", outcome: str = "acked", **facts: "Any") -> None:
        """Acknowledge the entry in flight, answered or given up: move the cursor, clear the flight."""
        lease = self.lease() or {}
        message = str(lease.get("id") or "")
        if message:
            attempt = int(number(lease.get("attempt"))) or 1
            self.receipt(message, outcome, attempt=attempt, lease=lease.get("ticked"), **facts)
        self._let_go(flight)

    def _let_go(self, flight: "Json") -> None:
        if self.is_of_this_file(flight):
            self.queue.done(int(flight["start_offset"]), int(flight["end_offset"]))
        self.queue.write(self.reader)
        self.forget()

    def finish(self, flight: "Json") -> bool:
        """Complete an end that a crash cut short, if a receipt or a dead letter shows it. Return whether."""
        lease = self.lease() or {}
        if self._has_letter(flight):
            self.give_up(flight, "a dead letter already")
            return True
        last = self.files.last_line(self.files.receipts)
        if last is None or last.get("stage") not in FINAL or not _is_of_lease(last, lease):
            return False
        self._let_go(flight)
        return True

    def nack(
        self, flight: "Json", delay: float, reason: str, *, count_attempt: bool = True, **facts: "Any"
    ) -> str:
        """Put it back, not answered: due again in `delay` seconds, or a dead letter after its last attempt.

        An attempt that does not count (a rate limit) is not one of those. Return the new stage: `nacked` or
        `dead`.
        """
        lease = self.lease() or {}
        entry = self.entry_of(flight)
        attempt = int(number(lease.get("attempt"))) or 1
        free = int(number((self.queue.find(entry.start) or {}).get("uncounted"))) + (not count_attempt)
        if attempt - free >= entry.max_attempts() or not self.is_of_this_file(flight):
            self.give_up(flight, reason, **facts)
            return "dead"
        due = self.queue.clock().wall + seconds(delay)
        returned = {"uncounted": free, "returned": lease.get("ticked")}
        self.queue.hold(entry.start, entry.end, due, attempt + 1, **returned)
        self.queue.write(self.reader)
        message = str(lease.get("id") or entry.id)
        self.receipt(message, "nacked", attempt=attempt, reason=reason, due=due, **facts)
        self.forget()
        return "nacked"

    def is_of_this_file(self, flight: "Json") -> bool:
        """Return whether the file still has it at this offset; if not, its end offset means nothing."""
        raw, start, end = flight.get("raw_line"), int(flight["start_offset"]), int(flight["end_offset"])
        if self.reader is None or not isinstance(raw, str):
            return True
        if not self.queue.replaced and self.reader.text(start, end) == raw:
            return True
        if not self.queue.replaced:
            self.notices.append("the inbox was truncated or replaced while an entry of it was in flight")
        return False

    def forget(self) -> None:
        """Remove the marks of the entry in flight, in an order in which each state between is valid."""
        remove_file(self.files.in_flight)
        remove_file(self.files.responded)
        remove_file(self.files.lease)
        self.files.sync()

    def receipt(self, message: str, stage: str, **facts: "Any") -> None:
        self._write_receipts([{"id": message, "stage": stage, "at": time.time(), **facts}])

    def _write_receipts(self, receipts: "list[Json]") -> None:
        self.files.append_all(self.files.receipts, receipts)
        for one in receipts:
            self.queue.note_receipt(one)

    def answer(self, message: str, payload: "Json") -> None:
        """Write the agent's answer to the outbox; once, also if a crash repeats this tick."""
        record = {
            "id": message,
            "session_id": payload.get("session_id"),
            "text": payload.get("last_assistant_message"),
        }
        if payload.get("usage"):
            record["usage"] = payload["usage"]
        record["at"] = iso_time()
        self.files.append(self.files.outbox, record, once=True)

    # ── giving up ──

    def _has_letter(self, flight: "Json") -> bool:
        """Return whether it is there already, left by a crash before the entry was done."""
        return _is_letter_in(b"\n" + (read_file(self.files.dead_letters) or b""), flight)

    def give_up(self, flight: "Json", reason: str, **facts: "Any") -> None:
        """Make the entry in flight a dead letter."""
        entry = self.entry_of(flight)
        if not self._has_letter(flight):
            self.files.append(self.files.dead_letters, _letter(flight) | {"reason": reason})
        self._bounce(entry, reason, "dead")
        self.acknowledge(flight, "dead", reason=reason, **facts)

    def bury(self, entry: Entry, reason: str, stage: str) -> None:
        """Give up an entry: it will not be handed out (again)."""
        self._set_aside(entry, reason, stage)
        self._bury([(entry, reason, stage)])

    def take_back(self, entry: Entry, reason: str) -> None:
        """Drop a waiting entry. That is saved before its receipt, so no crash hands it out after all."""
        held = self.queue.find(entry.start) or {}
        attempt = int(held.get("attempt", 1))
        self.queue.hold(entry.start, entry.end, 0.0, attempt, why=reason, stage="dropped")
        self.queue.save(self.reader)
        self._taken_back = entry
        self.bury(entry, reason, "dropped")

    def _set_aside(self, entry: Entry, reason: str, stage: str) -> None:
        """Hold it to be given up, with the time of its letter if it gets one."""
        held = self.queue.find(entry.start) or {}
        if "buried" not in held:
            letter = {"buried": iso_time(), "why": reason, "fresh": True} if stage == "dead" else {}
            self.queue.hold(entry.start, entry.end, 0.0, int(held.get("attempt", 1)), **letter)
        self.queue.buried.add(entry.start)

    def _bury(self, some: "list[tuple[Entry, str, str]]") -> None:
        """Give up those that were set aside. Many cost no more writes to the disk than one."""
        self._write_letters([(entry, reason) for entry, reason, stage in some if stage == "dead"])
        at = time.time()
        self._write_receipts(
            [
                {"id": entry.id, "stage": stage, "at": at, "reason": why}
                for entry, why, stage in some
                if not self._is_dropped(entry)
            ]
        )
        for entry, reason, stage in some:
            self._bounce(entry, reason, stage)
            self.queue.done(entry.start, entry.end)
            self.queue.buried.discard(entry.start)
        self.queue.save(self.reader)

    def _is_dropped(self, entry: Entry) -> bool:
        """Return whether a crash came between the receipt of a cancelled entry and its end in the queue."""
        held = self.queue.find(entry.start) or {}
        return (
            held.get("stage") == "dropped"
            and entry is not self._taken_back
            and self.queue.has_ended(entry.id)
        )

    def _write_letters(self, dead: "list[tuple[Entry, str]]") -> None:
        """Save the times of letters first: with them a crash before `done` finds its letters again."""
        held = [self.queue.find(entry.start) or {} for entry, _ in dead]
        fresh = [bool(one.pop("fresh", False)) for one in held]
        if any(fresh):
            self.queue.save(self.reader)
        there = b"" if all(fresh) else b"\n" + (read_file(self.files.dead_letters) or b"")
        letters = []
        for (entry, reason), one, is_fresh in zip(dead, held, fresh, strict=True):
            flight = _flight(entry, str(one["buried"]))
            if is_fresh or not _is_letter_in(there, flight):
                letters.append(_letter(flight) | {"reason": reason})
        self.files.append_all(self.files.dead_letters, letters)

    def _bounce(self, entry: Entry, reason: str, stage: str) -> None:
        if sender := entry.fields.get("from"):
            bounce = {"id": entry.id, "to": sender, "bounced": stage, "reason": reason, "at": iso_time()}
            self.files.append(self.files.outbox, bounce, once=True)

    # ── handing out ──

    def next_entry(self) -> "tuple[Entry, int] | None":
        """Return the entry to hand out now, with its attempt; first gives up those past their time or
        attempts.

        None also when it is `unfinished`: the caller lets others have the lock, and calls again.
        """
        self.unfinished = False
        taken = self._next_entry()
        for one in self.queue.copies:
            self.notices.append(f"skipped a copy of message {one}: a message is delivered once")
        self.queue.copies.clear()
        return taken

    def _next_entry(self) -> "tuple[Entry, int] | None":
        if self.reader is None:
            return None
        before = (self.queue.frontier, len(self.queue.held))
        taken, bad = self._take_good(self.reader)
        if bad:
            self._bury(bad)
            before = (self.queue.frontier, len(self.queue.held))
        if self.queue.changed or len(self.queue.held) != before[1]:
            self.queue.save(self.reader)  # the acknowledgement of this one moves past those
        elif taken is None and self.queue.frontier != before[0]:
            self.queue.save(self.reader)
        return taken

    def _take_good(self, reader: Reader) -> "tuple[tuple[Entry, int] | None, list[tuple[Entry, str, str]]]":
        """Return the next entry in order with its attempt, and those before it that must be given up."""
        bad: list[tuple[Entry, str, str]] = []
        while (taken := self.queue.take(reader)) is not None:
            entry, attempt = taken
            attempt = max(attempt, self._attempts_so_far(entry) + 1)
            if (verdict := self.verdict(entry, attempt)) is None:
                return (entry, attempt), bad
            self._set_aside(entry, *verdict)
            bad.append((entry, *verdict))
            # One with a sender ends its batch: a crash then repeats no bounce except the last.
            if len(bad) == BATCH or entry.fields.get("from"):
                self.unfinished = True
                break
        return None, bad

    def verdict(self, entry: Entry, attempt: int) -> "tuple[str, str] | None":
        """Return why it is not handed out, and the stage it ends in; None for a valid entry."""
        held = self.queue.find(entry.start) or {}
        tried = attempt - 1 - int(number(held.get("uncounted")))
        if why := entry.broken or held.get("why"):
            return str(why), "dropped" if held.get("stage") == "dropped" else "dead"
        if not entry.text.strip():
            return "its prompt is empty", "dead"
        if "uncertain" in held or self.queue.is_uncertain(entry):
            return UNCERTAIN, "dead"
        if "buried" in held or tried >= entry.max_attempts():
            return f"{tried} attempts", "dead"
        if entry.expired(self.queue.clock):
            return TOO_LATE
        return None

    def has_work(self) -> bool:
        """Return whether anything waits, is delayed or is in flight. Changes nothing."""
        if self.queue.held or exists(self.files.in_flight):
            return True
        if self.reader is None:
            return False
        return self.reader.next(self.queue.frontier)[0] is not None or self.reader.torn

    def _attempts_so_far(self, entry: Entry) -> int:
        lease = self.lease()
        return int(number(lease.get("attempt"))) if lease and lease.get("id") == entry.id else 0


def _is_of_lease(receipt: "Json", lease: "Json") -> bool:
    """Compare more than the id: in an emptied inbox a plain line that comes again has the same one."""
    if any(receipt.get(name) != lease.get(name) for name in ("id", "attempt")):
        return False
    if "lease" in receipt:
        return bool(receipt["lease"] == lease.get("ticked"))
    return number(receipt.get("at")) >= number(lease.get("at"))  # as the version before wrote it


def _is_flight(flight: object) -> bool:
    return (
        isinstance(flight, dict)
        and _is_place(flight.get("start_offset"))
        and _is_place(flight.get("end_offset"))
        and isinstance(flight.get("raw_line"), str)
    )


_LETTER = ("delivered_at", "end_offset", "entry_id", "raw_line", "start_offset")


def _letter(flight: "Json") -> "Json":
    """Return heartbeat's five fields in the order of their names."""
    return {key: flight.get(key) for key in sorted(_LETTER)}


def _is_letter_in(letters: bytes, flight: "Json") -> bool:
    """Return whether these lines, each after a line end, have the letter of this entry."""
    return b"\n" + encode_json(_letter(flight)).encode().removesuffix(b"}") + b", " in letters


def _flight(entry: Entry, at: str) -> "Json":
    """Return an entry as heartbeat-rs writes it."""
    return {
        "delivered_at": at,
        "end_offset": entry.end,
        "entry_id": digest(entry.raw),
        "raw_line": entry.raw,
        "start_offset": entry.start,
    }


def iso_time() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def tick(files: Files, payload: "Json | None", began: int, notices: "list[str]") -> Decision:
    """Handle one stop: acknowledge what was answered, hand out what is next.

    `payload` is None when it cannot be read: then its session is unknown, and it acknowledges nothing. A
    folder that does not exist is an empty inbox.
    """
    if not exists(files.folder):
        return Decision(None, empty=True)
    while (decision := _tick(files, payload, began, notices)) is None:
        let_others_in()
    return decision


def let_others_in() -> None:
    """Pause between two times that this process takes the lock.

    It would be first each time without a pause.
    """
    time.sleep(0.001)


def _tick(files: Files, payload: "Json | None", began: int, notices: "list[str]") -> "Decision | None":
    """Do one tick under the lock. Returns None when there were bad entries, and there is more to do."""
    with Lock(files):
        inbox = HookInbox(files)
        try:
            inbox.open()
            if (consumer := consumer_of(files)) is not None:
                notices.append(f"{consumer} delivers this inbox; nothing is handed out here")
                return Decision(None, goes_on=inbox.has_work())
            if exists(files.responded) and (early := _settle(inbox, payload, began)) is not None:
                return early
            taken = inbox.next_entry()
            if inbox.unfinished:
                return None
            if taken is None:
                torn = inbox.reader is not None and inbox.reader.torn
                soon = inbox.reader.settles_at if inbox.reader is not None and torn else None
                dues = [due for due in (soon, inbox.queue.next_due()) if due is not None]
                return Decision(None, empty=True, torn=torn, wake_at=min(dues, default=None))
            entry, attempt = taken
            session = (payload or {}).get("session_id")
            who = {"session_id": session, "holder": this_agent(), "hook": posix.getpid()}
            who["transcript"] = _transcript_place(payload or {})
            inbox.deliver(entry, attempt, until_stop=True, **who)
            return Decision(entry.text)
        finally:
            notices += inbox.notices
            inbox.close()


def _release(files: Files, began: int, reason: str) -> None:
    """Put the message back that this hook leased and no agent got, if it has one."""
    inbox = HookInbox(files)
    try:
        if not inbox.is_leased_here(began):
            return
        with Lock(files):
            inbox.open()
            if inbox.release(began, reason):
                tell(f"{program()}: the message stays in the inbox for the next stop")
    except (InboxError, OSError) as error:
        tell(f"{program()}: error: {error}")
    finally:
        inbox.close()


def _settle(inbox: HookInbox, payload: "Json | None", began: int) -> "Decision | None":
    """Handle what was in flight at this stop.

    Returns a decision if it ends here, None to go on to the next.
    """
    flight = inbox.in_flight()
    if flight is None:
        raise InconsistentState(
            f"inconsistent state in {inbox.files.folder}: .responded without .in-flight; run recover"
        )
    if payload is None:
        return Decision(None, goes_on=True)
    lease = inbox.lease() or {}
    ours, theirs = payload.get("session_id"), lease.get("session_id")
    is_other = bool(ours and theirs and ours != theirs) and not _is_this_agent(lease)
    if is_other and _is_over(inbox, flight, lease):
        return None
    is_new = _handed_out_since(lease, began)
    if is_new and ours is not None and ours == theirs:
        return Decision(None, goes_on=True)  # another hook of the same stop was quicker
    if is_new or is_other:
        # The answer of this session does not belong to it. Nothing proves that the other one is dead.
        look_at = time.time() + _LOOK_AT_OTHERS
        return Decision(IDLE_TICK if is_new else None, empty=True, goes_on=True, wake_at=look_at)
    if _is_at_work(payload):
        return Decision(None, goes_on=True)  # the agent goes on by itself; this is not an end
    if _was_not_taken(payload, lease):
        remove_file(inbox.files.responded)
        is_back = inbox.nack(flight, 0.0, NOT_TAKEN) == "nacked"
        inbox.notices.append(f"{NOT_TAKEN}; it is {'handed out again' if is_back else 'a dead letter'}")
        return None
    message = str(lease.get("id") or line_id(flight["start_offset"], str(flight.get("raw_line"))))
    inbox.answer(message, payload)
    inbox.acknowledge(flight, session_id=ours, prompt_id=payload.get("prompt_id"))
    return None


_KNOWN_END = 4096


def _transcript_place(payload: "Json") -> "list[Any] | None":
    """Return the path and size of Claude's transcript, and what it ends with, for a lease.

    What follows there is about its message. That of a subagent is in another file. The hooks of another
    agent that Claude has started have `CLAUDE_PID` too: only Claude's transcript has the name of the session.
    """
    path = payload.get("transcript_path")
    if payload.get("hook_event_name") != "Stop" or not isinstance(path, str):
        return None
    if not path.endswith(f"/{payload.get('session_id')}.jsonl"):
        return None
    try:
        fd = open_file(path, O_RDONLY)
        try:
            size = posix.fstat(fd).st_size
            return [path, size, _end_before(fd, size)]
        finally:
            posix.close(fd)
    except (OSError, ValueError):
        return None


def _end_before(fd: int, size: int) -> str:
    start = max(0, size - _KNOWN_END)
    return digest(posix.pread(fd, size - start, start))


_FEEDBACK = b"Stop hook feedback:"


def _was_not_taken(payload: "Json", lease: "Json") -> bool:
    """Return whether it is proven that the agent ended the hook that had printed the message.

    It ends one after a timeout, or when its user presses Esc, and ignores what that printed. Then its next
    stop is not one that a Stop hook caused, and its transcript has no feedback of a hook (2.1.325).
    """
    place = lease.get("transcript")
    if payload.get("hook_event_name") != "Stop" or payload.get("stop_hook_active") is not False:
        return False
    if not _is_this_agent(lease) or not isinstance(place, list) or len(place) != 3:
        return False
    path, size, end = place
    if path != payload.get("transcript_path") or not isinstance(path, str) or not _is_place(size):
        return False
    return _grew_without(_FEEDBACK, path, size, end)


def _grew_without(words: bytes, path: str, size: int, known: object) -> bool:
    """Return whether a file has grown since it had `size`, and these words are not in what was added.

    Nothing is known of a file whose end at that time is not at that place now: it was rewritten.
    """
    try:
        fd = open_file(path, O_RDONLY)
    except (OSError, ValueError):
        return False
    try:
        if _end_before(fd, size) != known:
            return False
        posix.lseek(fd, size, 0)
        end, has_grown = b"", False
        while piece := posix.read(fd, 1 << 20):
            if words in (piece := end + piece):
                return False
            end, has_grown = piece[-len(words) :], True
        return has_grown
    finally:
        posix.close(fd)


def _is_over(inbox: HookInbox, flight: "Json", lease: "Json") -> bool:
    """Return whether the session that has it is done with it, or gone; then it is no longer in flight."""
    if inbox.finish(flight):
        return True
    if not _is_gone(lease):
        return False
    inbox.notices.append(
        f"session {lease['session_id']} ended with an entry in flight: it is now a dead letter"
    )
    inbox.give_up(flight, ORPHANED)
    return True


def _is_at_work(payload: "Json") -> bool:
    """Return whether its background tasks will wake the agent. A shell (a server, say) may never end."""
    tasks = payload.get("background_tasks")
    if not isinstance(tasks, list):
        return False
    kinds = [str(one.get("type", "")) for one in tasks if isinstance(one, dict)]
    return any("shell" not in kind and "bash" not in kind for kind in kinds)


# Which agent has an entry: its session may get another id, and its pid may be reused.


_PID_DIGITS = 9


def this_agent() -> "Json | None":
    """Return the agent of this hook, for a lease; None if it is unknown."""
    pid = posix.environ.get(b"CLAUDE_PID", b"").decode("ascii", "replace")
    if not pid.isdecimal() or len(pid) > _PID_DIGITS:
        return None
    return {"pid": int(pid), "born": _born(pid), "host": posix.uname().nodename, "space": _pid_space()}


def _is_this_agent(lease: "Json") -> bool:
    """Compare agents: it is the same one also after a /clear, which gives it another session."""
    holder = lease.get("holder")
    return holder is not None and lease.get("boot") == this_boot() and holder == this_agent()


def _is_gone(lease: "Json") -> bool:
    """Return whether that agent has certainly ended. Other machines and containers are unknown."""
    holder = lease.get("holder")
    if not isinstance(holder, dict) or holder.get("host") != posix.uname().nodename:
        return False
    if lease.get("boot") != this_boot():
        return True
    if holder.get("space") != _pid_space():
        return False
    try:
        posix.kill(int(number(holder.get("pid"))), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    return bool(holder.get("born")) and holder["born"] != _born(str(holder.get("pid")))


def _born(pid: str) -> str:
    """Return when it was started, as the kernel writes it; "" if unknown, and for one that is gone."""
    try:
        stat = _read_kernel(f"/proc/{pid}/stat").decode("ascii", "replace")
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
    # Without an id of the boot: the clock may have started again with the machine.
    return bool(boot) or abs(time.time() - number(lease.get("at"))) < 60.0


def exists(path: str) -> bool:
    try:
        posix.stat(path)
    except FileNotFoundError:
        return False
    return True


def _touch(path: str) -> None:
    posix.close(open_file(path, O_WRONLY | O_CREAT))


# ── recovery ─────────────────────────────────────────────────────────────────────────────────────────────


NOTHING_TO_RECOVER = "NothingToRecover"
_ID_SHOWN = 128


def recover(files: Files, policy: "Policy", notices: "list[str]") -> "tuple[str, str]":
    """Decide on an entry that was in flight when its session died. Return the outcome and the entry's id.

    Raises `ConsumerAlive` while a keeper has the inbox: what is in flight there is not dead.
    """
    with Lock(files):
        inbox = HookInbox(files)
        try:
            if (consumer := consumer_of(files)) is not None:
                raise ConsumerAlive(f"{consumer} delivers this inbox and recovers it by itself")
            remove_file(f"{files.dead_letters}.tmp")
            flight = inbox.in_flight()
            if flight is None:
                remove_file(files.responded)
                files.sync()
                return NOTHING_TO_RECOVER, ""
            inbox.open()
            return _settle_orphan(inbox, flight, policy), str(flight.get("entry_id") or "")[:_ID_SHOWN]
        finally:
            notices += inbox.notices
            inbox.close()


def _settle_orphan(inbox: HookInbox, flight: "Json", policy: "Policy") -> str:
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


def _given_back(held: "Json", lease: "Json") -> bool:
    return held.get("returned") is not None and held["returned"] == lease.get("ticked")


def _apply(inbox: HookInbox, flight: "Json", policy: "Policy") -> str:
    lease = inbox.lease() or {}
    message, attempt = str(lease.get("id") or ""), int(number(lease.get("attempt"))) or 1
    if policy == "retry" and lease.get("unwanted"):
        inbox.give_up(flight, UNWANTED)
        return "DeadLettered"
    if policy == "retry" and not inbox.is_of_this_file(flight):
        inbox.give_up(flight, "the inbox was replaced while it was in flight")
        return "DeadLettered"
    if policy == "retry":
        # Due at once, with its attempts: the lease is lost when another one goes first.
        inbox.queue.hold(int(flight["start_offset"]), int(flight["end_offset"]), 0.0, attempt + 1)
        inbox.queue.write(inbox.reader)
        if message:
            inbox.receipt(message, "requeued", attempt=attempt)
        # The lease stays: it holds the count of attempts.
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
    """Wakes when any process writes to a file in a folder; without inotify, polls twice a second."""

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
            events = fcntl.DN_MODIFY | fcntl.DN_CREATE | fcntl.DN_RENAME | fcntl.DN_MULTISHOT
            fcntl.fcntl(self._fd, fcntl.F_NOTIFY, events)
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


HELP = """Deliver the next message of an inbox. Claude Code runs it after every answer.

Reads the Stop payload from standard input and acknowledges the message in
flight. Then prints {"decision":"block","reason":…} with the next message, or
nothing, which lets the agent stop. Flags, files and exit codes are those of
heartbeat-stop; the command is also installed under that name.

Options:
  --inbox FILE             Path of the inbox; required.
  --mode drain|persist     On an empty inbox, let the agent stop (default), or
                           wait for a message.
  --wait SECONDS           persist: wait for SECONDS, then send an idle tick.
                           [default: 540]
  --idle-interval SECONDS  persist: heartbeat-stop's name for --wait.
                           [default as heartbeat-stop: 2]
  --idle-tick              persist: use --idle-interval, or its default.
  --signal-file FILE       Touch FILE when the agent may stop, for
                           'remuda launch --exit-signal'.
  -h, --help               Show this text.

Commands:
  recover                  Handle the message that a dead session left in
                           flight. Run it before the next session starts.
    --on-orphan POLICY     deadletter (default), retry or drop.

'remuda setup inbox' adds it to the agent's settings in its fastest form.

Examples:
  remuda stop-hook --inbox run/inbox.jsonl < /dev/null
  remuda stop-hook recover --inbox run/inbox.jsonl --on-orphan retry
"""


class Options:
    def __init__(self) -> None:
        self.command = "tick"
        self.inbox: str | None = None
        self.mode = "drain"
        self.idle_interval: float | None = None
        self.signal_file: str | None = None
        self.wait: float | None = None
        self.idle_tick = False
        self.on_orphan: Policy = "deadletter"

    def interval(self) -> "float | None":
        """Return the seconds between idle ticks as heartbeat-stop has them; None where `--wait` decides."""
        old_way = self.idle_tick or (self.wait is None and program() == "heartbeat-stop")
        return DEFAULT_INTERVAL if self.idle_interval is None and old_way else self.idle_interval

    def longest_wait(self) -> float:
        """Return how many seconds persist waits for a message before it gives an idle tick.

        A user who sets an interval has a hook timeout that fits it, so the wait is never longer.
        """
        named = [one for one in (self.wait, self.interval()) if one is not None]
        return min(named, default=DEFAULT_WAIT)


def tell(text: str) -> None:
    """Print one line on standard error. It may quote a sender, whose text must not control the terminal."""
    line = "".join(one if one.isprintable() else "\ufffd" for one in text) + "\n"
    try:
        if sys.stderr is not None:  # Python has none where it was closed
            sys.stderr.write(line)
    except OSError:  # a full disk, or no reader: what this line is about matters more
        pass


def fail(message: str, code: int) -> "NoReturn":
    tell(f"{program()}: {message}")
    raise SystemExit(code)


def program() -> str:
    return sys.argv[0].rpartition("/")[2].removesuffix(".py").replace("stop_hook", "remuda stop-hook")


def show_help() -> "NoReturn":
    raise SystemExit(_print(f"Usage: {program()} [recover] --inbox FILE [OPTIONS]\n\n{HELP}"))


def parse_options(words: "list[str]") -> Options:
    options = Options()
    if words[:1] == ["help"]:
        show_help()
    remaining = iter(words)
    for word in remaining:
        flag, equals, value = word.partition("=")
        if word in ("-h", "--help"):
            show_help()
        elif flag == "recover" and options.command == "tick":
            options.command = "recover"
        elif flag == "--idle-tick" and not equals:
            options.idle_tick = True
        elif flag in _VALUES:
            taken = value if equals else next(remaining, None)
            if taken is None:
                fail(f"{flag} needs a value", 2)
            _VALUES[flag](options, taken)
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
        if not 0 <= seconds < LONGEST:
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


def _read_stdin() -> bytes:
    """Read standard input: to its end, or until nothing came for `STDIN_PATIENCE`.

    heartbeat-stop never reads it, so a script may have left a pipe there that no process writes to.
    """
    from select import POLLIN, poll

    ready, pieces, size = poll(), [], 0
    ready.register(0, POLLIN)
    while size <= MAX_PAYLOAD and ready.poll(STDIN_PATIENCE * 1000) and (piece := posix.read(0, 1 << 20)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def read_payload() -> "Json | None":
    """Return what the CLI writes to standard input: empty when it writes nothing, or a person started us.

    None when it is not a JSON object; then the reason is printed on standard error.
    """
    try:
        data = b"" if posix.isatty(0) else _read_stdin()
    except OSError:
        return {}
    if not data.strip():
        return {}
    try:
        payload, why = decode_json(data), "not an object"
        if len(data) > MAX_PAYLOAD:
            raise ValueError(f"it has more than {MAX_PAYLOAD >> 20} MiB")
    except ValueError as error:
        payload, why = None, str(error)
    if isinstance(payload, dict):
        return payload
    tell(f"{program()}: the payload of this stop is invalid ({why}); no message is acknowledged")
    return None


def run_tick(options: Options, files: Files, began: int) -> Decision:
    """Tick, and wait for a message: in persist mode, or while one is being written."""
    notices: list[str] = []
    payload = read_payload()
    try:
        decision = tick(files, payload, began, notices)
        if options.mode == "persist" and decision.empty:
            return _wait_for_message(options, files, payload, began, notices)
        if decision.torn:
            return _wait_for_line_end(files, payload, began, notices)
    finally:
        for notice in notices:
            tell(f"{program()}: {notice}")
    return decision


def _wait_for_message(
    options: Options, files: Files, payload: "Json | None", began: int, notices: "list[str]"
) -> Decision:
    if interval := options.interval():
        tell(f"{program()}: idle sleep {interval:g}s — ensure hook timeout > {interval:g}s")
    decision = _tick_again(files, payload, began, notices, options.longest_wait(), lambda one: one.empty)
    return decision or Decision(IDLE_TICK)


def _wait_for_line_end(files: Files, payload: "Json | None", began: int, notices: "list[str]") -> Decision:
    """Wait for the line's end. Drain would end the session while a message for it is being written."""
    decision = _tick_again(files, payload, began, notices, TORN_LIMIT, lambda one: one.torn)
    if decision is None:
        notices.append(f"the last line of {files.inbox} is incomplete; a later stop will read it")
    return decision or Decision(None, goes_on=True)


def _tick_again(
    files: Files,
    payload: "Json | None",
    began: int,
    notices: "list[str]",
    limit: float,
    is_awaited: "Callable[[Decision], bool]",
) -> "Decision | None":
    """Tick whenever something is written, until there is a decision; None after `limit` seconds."""
    deadline = time.monotonic() + limit
    with FolderWatch(files.folder) as watch:
        while (left := deadline - time.monotonic()) > 0:
            # After the watch began, so that no message comes unseen between the two. What others were handed
            # during the wait does not belong to this session, so the time of the stop is used.
            decision = tick(files, payload, began, notices)
            if not is_awaited(decision):
                return decision
            due = left if decision.wake_at is None else max(0.01, decision.wake_at - time.time())
            watch.wait(min(left, due))
    return None


def say(decision: Decision, options: Options, files: Files, began: int) -> int:
    """Print the decision. Printing nothing approves the stop.

    A message that cannot be printed goes back into the inbox.
    """
    if decision.text is None:
        if options.signal_file and not decision.goes_on:
            try:
                _touch(options.signal_file)
            except OSError as error:
                tell(f"{program()}: cannot touch {options.signal_file}: {error.strerror}")
        return 0
    failed = _write_out(f'{{"decision":"block","reason":{encode_json(decision.text)}}}')
    if failed is not None:
        _release(files, began, f"the Stop hook could not print it: {failed.strerror}")
    return _exit_code(failed)


def _print(text: str) -> int:
    return _exit_code(_write_out(text))


def _exit_code(failed: "OSError | None") -> int:
    """Return 0 also where no one can read the answer, as heartbeat-stop does for closed streams."""
    return 0 if failed is None or failed.errno in (EBADF, EPIPE) else 1


def _write_out(text: str) -> "OSError | None":
    """Write all of the text to standard output. Return why that failed, None when it did not."""
    data = text.encode()
    while data:
        try:
            data = data[posix.write(1, data) :]
        except BlockingIOError:  # another program made this pipe non-blocking
            from select import POLLOUT, poll

            ready = poll()
            ready.register(1, POLLOUT)
            ready.poll()
        except OSError as error:
            if error.errno != EPIPE:
                tell(f"{program()}: cannot write to standard output: {error.strerror}")
            return error
    return None


def fill_standard_streams() -> None:
    """Open the null device for closed streams: else a file of the inbox would get their number, and our
    answer. It is read-only, so that an answer that no one gets fails.
    """
    while (fd := posix.open("/dev/null", O_RDONLY)) <= 2:
        pass
    posix.close(fd)


def main() -> None:
    began = ticks()
    fill_standard_streams()
    options = parse_options(sys.argv[1:])
    if not options.inbox:
        fail("--inbox is required", 1)
    files = Files(options.inbox)
    if options.command == "recover":
        notices: list[str] = []
        try:
            outcome, entry_id = NOTHING_TO_RECOVER, ""
            if exists(files.folder):
                outcome, entry_id = recover(files, options.on_orphan, notices)
        except (InboxError, OSError) as error:
            fail(f"recover: {error}", 1)
        shown = f'{outcome} {{ entry_id: "{entry_id}" }}' if entry_id else outcome
        for line in [*notices, f"recover: {shown}"]:
            tell(f"{program()} {line}")
        raise SystemExit(0)
    catch_signals()
    try:
        try:
            decision = run_tick(options, files, began)
        except Exception as error:  # noqa: BLE001  # what it may be is not known, and what to do is
            tell(f"{program()}: error: {error}")
            decision = Decision(None)  # fail open: an agent never hangs because of its inbox
        code = say(decision, options, files, began)
    except Ended as signal:
        # The CLI ends a hook after its timeout, and when the user presses Esc. It ignores what that printed.
        _release(files, began, f"the Stop hook was ended by signal {signal.number}")
        raise SystemExit(128 + signal.number) from None
    if files.grown:
        try:
            give_back(files)
        except Ended:  # the answer is printed
            pass
    raise SystemExit(code)


class Ended(BaseException):
    """A signal asks this process to end."""

    def __init__(self, number: int) -> None:
        self.number = number


def catch_signals() -> None:
    """Raise `Ended` at the first signal that asks this process to end. More of them change nothing."""
    import _signal

    def end(number: int, _frame: object) -> "NoReturn":
        for one in caught:
            _signal.signal(one, _signal.SIG_IGN)
        raise Ended(number)

    names = (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGINT)
    caught = [one for one in names if _signal.getsignal(one) is not _signal.SIG_IGN]
    for one in caught:
        _signal.signal(one, end)


def give_back(files: Files) -> None:
    """Free disk space, once in many megabytes, after the answer. Only here something of ours is imported."""
    try:
        sys.path.append(__file__.rpartition("/remuda/inbox/")[0])
        from remuda.inbox.compaction import compact

        if note := compact(files.folder).note:
            tell(f"{program()}: {note}")
    except Exception as error:  # noqa: BLE001  # whatever is wrong, the session has its answer
        tell(f"{program()}: cannot free disk space: {error}")


def run() -> None:
    """Run it, and exit without freeing everything piece by piece, as Python does: 2 ms.

    Nothing waits in a buffer: `tell` ends each line, and standard output is written without one.
    """
    try:
        main()
    except SystemExit as ended:
        if isinstance(ended.code, int):
            posix._exit(ended.code)
        raise


if __name__ == "__main__":
    run()
