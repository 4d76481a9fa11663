"""What senders and operators do with an inbox: put, look, read dead letters, redrive, give space back.

Everything durable follows one order: the line is on the disk before anyone is told that it was accepted.
Foreign writers append to the same file without asking; ours never write into the middle of their line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from remuda.errors import FolderUnusable, InboxBusy, InboxCorrupt, InputError
from remuda.paths import private_folder

from . import letters, stop_hook
from .compaction import Given, compact, json_lines
from .dedup import Keys
from .message import DEFAULT_MAX_BYTES, Message, make_message, plain_message
from .stop_hook import Entry, Files, Lock
from .waiting import entries
from .writer import Writer

if TYPE_CHECKING:
    from .stop_hook import Policy

_TRIES = 100
"""So often may a folder be removed under a put before that gives up."""


class Accepted(NamedTuple):
    """`duplicate`: a message with the same dedup key was accepted before, and this is its id."""

    id: str
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Overview:
    """What `inbox status` shows."""

    waiting: int
    delayed: int
    in_flight: dict[str, Any] | None
    dead: int
    oldest_age: float | None
    bytes_waiting: int


class Recovered(NamedTuple):
    """`outcome` is named as heartbeat-rs names it."""

    outcome: str
    notices: list[str]


def clear(error: Exception, what: str = "") -> Exception:
    """What the Stop hook's module says is wrong with the files, as an error of ours: it can import none.

    With `what` cannot be done also what the system says is wrong.
    """
    match error:
        case stop_hook.ConsumerAlive():
            return InboxBusy(str(error))
        case stop_hook.InboxRead():
            return FolderUnusable(str(error))
        case stop_hook.InboxError():
            return InboxCorrupt(str(error))
        case OSError() if what:
            return FolderUnusable(f"{what}: {error.strerror}")
    return error


@contextmanager
def clear_errors(what: str = "") -> Iterator[None]:
    try:
        yield
    except (OSError, stop_hook.InboxError) as error:
        ours = clear(error, what)
        if ours is error:
            raise
        raise ours from error


class Inbox:
    """One inbox folder. Any number of processes and threads may use it at once.

    It keeps one small file open from a put to the next; to `close` it is only needed before an unmount.
    """

    def __init__(
        self, folder: Path | str, *, max_bytes: int = DEFAULT_MAX_BYTES, durable: bool = True
    ) -> None:
        """Without `durable` no disk is waited for: for an inbox that is of no use after a loss of power."""
        self.folder = Path(folder)
        self._max_bytes = max_bytes
        self._files = Files(str(self.folder / "inbox.jsonl"), durable=durable)
        self._writer = Writer(self._files)
        self._unwritable = f"cannot write to the inbox {self.folder}"
        self._unreadable = f"cannot read the inbox {self.folder}"

    def close(self) -> None:
        """Nothing of the folder is kept open any more. An inbox that was closed can be used again."""
        self._writer.close()

    def __enter__(self) -> Inbox:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ── putting ──

    def put(self, prompt: str, **options: Any) -> Accepted:
        """Append a message; it is on the disk when this returns. For the options see `make_message`."""
        if options:
            message = make_message(prompt, max_bytes=self._max_bytes, **options)
        else:
            message = plain_message(prompt, self._max_bytes)
        if message.priority and not self._files.by_priority():
            raise InputError(
                "this inbox keeps the order in which messages come, and has no priorities",
                hint=f'its owner allows them with {{"priority": true}} in {self._files.options}',
            )
        try:  # by hand: a context manager would be a tenth of a put
            accepted = self._accept(message)
        except (OSError, stop_hook.InboxError) as error:
            raise clear(error, self._unwritable) from error
        if self._files.grown:
            self._give_back()
        return accepted

    def allow_priority(self, allowed: bool = True) -> None:
        """Whether urgent messages may pass others. Off, an inbox keeps the order in which messages came."""
        self._make_folder()
        self._files.replace(self._files.options, json.dumps({"priority": allowed}).encode())

    def _accept(self, message: Message) -> Accepted:
        """The folder is made and looked at once, and again when it is gone."""
        tries = 0
        while True:
            try:
                if self._writer.synced is None:
                    self._make_folder()
                if message.dedup is not None:
                    return self._put_once(message)
                self._writer.put(message.line)
                return Accepted(message.id)
            except FileNotFoundError:
                self._writer.synced, tries = None, tries + 1
                if tries == _TRIES:
                    raise

    def _put_once(self, message: Message) -> Accepted:
        assert message.dedup is not None
        keys = Keys(self._files)
        with Lock(self._files), self._writer.lock():
            if (known := keys.find(message.dedup)) is not None:
                return Accepted(known, duplicate=True)
            end = self._writer.append(message.line)
            try:
                keys.add(message, end)
            except OSError:  # it is accepted; without the record the inbox itself is looked through
                pass
        return Accepted(message.id)

    def _make_folder(self) -> None:
        """A folder that is new must be found after a loss of power, as must what is in it."""
        missing = [one for one in (self.folder, *self.folder.parents) if not one.exists()]
        private_folder(self.folder)
        for one in missing:
            stop_hook.sync_folder(str(one.parent))

    # ── giving back ──

    def compact(self) -> Given:
        """Give disk space back: all that is acknowledged, and what is old in our own files.

        Done by itself whenever a file grew by some megabytes; here also when they are few.
        """
        with clear_errors(self._unwritable):
            return compact(str(self.folder), small=0)

    def _give_back(self) -> None:
        self._files.grown = False
        try:
            compact(str(self.folder))
        except (OSError, stop_hook.InboxError):  # the message is accepted; another time, then
            pass

    # ── looking ──

    def overview(self, now: float | None = None) -> Overview:
        """A folder that is not there yet holds nothing."""
        with clear_errors(self._unreadable):
            try:
                with Lock(self._files):
                    return self._overview(time.time() if now is None else now)
            except FileNotFoundError:
                return Overview(0, 0, None, 0, None, 0)

    @contextmanager
    def quiet(self) -> Iterator[Overview]:
        """What is there, and nothing is put or handed out until the context ends."""
        with ExitStack() as held:
            with clear_errors(self._unreadable):
                held.enter_context(Lock(self._files))
                held.enter_context(self._writer.lock())
                overview = self._overview(time.time())
            yield overview

    @contextmanager
    def _opened(self) -> Iterator[stop_hook.Inbox]:
        """As a consumer sees it. The lock is held."""
        inbox = stop_hook.Inbox(self._files)
        with clear_errors():
            try:
                inbox.open()
                yield inbox
            finally:
                inbox.close()

    def _overview(self, now: float) -> Overview:
        with self._opened() as inbox:
            flight, lease = inbox.in_flight(), inbox.lease()
            waiting = [entry for entry in entries(inbox) if not _is_of(entry, flight)]
            delayed = sum(_wait(inbox, entry) > 0 for entry in waiting)
        ages = [now - stop_hook.number(entry.fields["at"]) for entry in waiting if "at" in entry.fields]
        return Overview(
            waiting=len(waiting),
            delayed=delayed,
            in_flight=None if flight is None else {**(lease or {}), "since": flight.get("delivered_at")},
            dead=sum(1 for _ in self.dead_letters()),
            oldest_age=max(ages, default=None),
            bytes_waiting=sum(entry.end - entry.start for entry in waiting),
        )

    def waiting(self) -> list[Entry]:
        """The messages that wait, in order; the one in flight is the first. None without a folder."""
        with clear_errors(self._unreadable):
            try:
                with Lock(self._files), self._opened() as inbox:
                    return list(entries(inbox))
            except FileNotFoundError:
                return []

    # ── what has no consumer ──

    def recover(self, policy: Policy) -> Recovered:
        """Decide on what was in flight when its agent died. Raises `InboxBusy` while a keeper is there."""
        notices: list[str] = []
        with clear_errors(self._unwritable):
            return Recovered(stop_hook.recover(self._files, policy, notices), notices)

    def expire(self, message: str) -> bool:
        """Bounce this one, if its time to live ran out and nobody is there who would: for whoever waits."""
        with clear_errors(self._unwritable), Lock(self._files):
            if stop_hook.consumer_of(self._files) is not None:
                return False
            with self._opened() as inbox:
                flight = inbox.in_flight()
                for entry in entries(inbox):
                    if entry.id == message and entry.expired(inbox.queue.clock) and not _is_of(entry, flight):
                        inbox.bury(entry, *stop_hook.TOO_LATE)
                        return True
        return False

    # ── dead letters ──

    def dead_letters(self) -> Iterator[dict[str, Any]]:
        with clear_errors(self._unreadable):
            yield from json_lines(self._files.dead_letters)

    def redrive(self, choose: str | None = None) -> list[str]:
        """Put dead letters back, all or the one whose entry or message id this is; the ids they have now.

        An envelope that was cut short was never accepted and is no message: it stays a dead letter.
        """
        with clear_errors(self._unwritable), Lock(self._files), self._writer.lock():
            return self._redrive(choose)

    def _redrive(self, choose: str | None) -> list[str]:
        dead = list(self.dead_letters())
        whole = letters.choose(dead, choose)
        messages = [letters.again(one) for one in whole]
        known = self._known({message.id for message in messages})
        for message, letter in zip(messages, whole, strict=True):
            if message.id not in known:  # else a crash ended this before its letters were taken away
                self._writer.append(message.line)
                self._note_redriven(message, letter)
        data = b"".join(json.dumps(one).encode() + b"\n" for one in dead if one not in whole)
        self._files.replace(self._files.dead_letters, data)
        return [message.id for message in messages]

    def _known(self, ids: set[str]) -> set[str]:
        """Those that were put back before: they wait, or have a receipt."""
        with self._opened() as inbox:
            waiting = {entry.id for entry in entries(inbox)} & ids
        return waiting | {str(one.get("id")) for one in json_lines(self._files.receipts)} & ids

    def _note_redriven(self, message: Message, letter: dict[str, Any]) -> None:
        stop_hook.Inbox(self._files).receipt(message.id, "accepted", redriven=letters.entry_of(letter).id)


def _is_of(entry: Entry, flight: dict[str, Any] | None) -> bool:
    return flight is not None and entry.start == int(flight["start_offset"])


def _wait(inbox: stop_hook.Inbox, entry: Entry) -> float:
    held = inbox.queue.find(entry.start)
    return entry.wait(inbox.queue.clock) if held is None else inbox.queue.wait(held, inbox.queue.clock())
