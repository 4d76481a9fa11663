"""What senders and operators do with an inbox: put, inspect, read dead letters, redrive, free space.

Everything durable follows one order: the line is on the disk before anyone learns that it was accepted.
Foreign writers append to the same file without a lock; ours never write into the middle of their line.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from remuda.arguments import check_path
from remuda.errors import FolderUnusable, InboxBusy, InboxCorrupt, InputError
from remuda.frozen import frozen
from remuda.paths import private_folder

from . import stop_hook
from .compaction import Reclaimed, compact, json_lines, parsed_lines
from .message import (
    DEFAULT_MAX_BYTES,
    Message,
    PutOptions,
    TakenBack,
    check_put_options,
    choose_letters,
    entry_of,
    make_message,
    plain_message,
    redriven_message,
    take_back,
    waiting_entries,
)
from .stop_hook import Entry, Files, InboxKey, Lock
from .writer import DedupKeys, Writer

if TYPE_CHECKING:
    from .stop_hook import Policy

_TRIES = 100
"""How many times a folder may be removed during a put before the put fails."""


class Accepted(NamedTuple):
    """The id of an accepted message.

    `duplicate` is True if a message with the same dedup key was accepted before; `id` is the id of that one.
    """

    id: str
    duplicate: bool = False


@frozen
class Overview:
    """The numbers of `Inbox.overview`. `oldest_age` is in seconds, None if nothing waits."""

    waiting: int
    delayed: int
    in_flight: dict[str, Any] | None
    dead: int
    oldest_age: float | None
    bytes_waiting: int


class Recovered(NamedTuple):
    """The result of `Inbox.recover`: the outcome in the words of heartbeat-rs, and notices for a human."""

    outcome: str
    notices: list[str]


def translate_error(error: Exception, what: str = "") -> Exception:
    """Return our error for an error of the Stop hook's module, which can import none of ours.

    With `what` (the action that failed), also translates errors of the system.
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
def translated_errors(what: str = "") -> Iterator[None]:
    try:
        yield
    except (OSError, stop_hook.InboxError) as error:
        ours = translate_error(error, what)
        if ours is error:
            raise
        raise ours from error


class Inbox:
    """Put messages into an inbox folder, look at it, and handle its dead letters.

    Any number of processes and threads may use one folder at once. Every method blocks for as long as the
    disk or a lock takes. One small file stays open between calls: call `close` before an unmount.

        with Inbox("run/inbox") as inbox:
            sent = inbox.put("Summarise the new mail", dedup="mail-42", ttl="8h")

    Every method can raise `FolderUnusable` (the folder cannot be read or written) and `InboxCorrupt` (its
    files contradict each other).
    """

    def __init__(
        self, folder: Path | str, *, max_bytes: int = DEFAULT_MAX_BYTES, durable: bool = True
    ) -> None:
        """Use the inbox in `folder`, which is made by the first `put`.

        `max_bytes` limits the size of a prompt. With `durable=False` nothing waits for the disk: messages may
        be lost if the power fails.
        """
        self.folder = Path(check_path("folder", folder))
        self._max_bytes = max_bytes
        self._files = Files(str(self.folder / "inbox.jsonl"), durable=durable)
        self._writer = Writer(self._files)
        self._unwritable = f"cannot write to the inbox {self.folder}"
        self._unreadable = f"cannot read the inbox {self.folder}"

    def close(self) -> None:
        """Close the file that stays open between calls. The inbox can be used again afterwards."""
        self._writer.close()

    def __enter__(self) -> Inbox:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ── putting ──

    def put(self, prompt: str, **options: Unpack[PutOptions]) -> Accepted:
        """Append a message and return its id. It is on the disk when this returns.

        Options (see `PutOptions`): `delay` delivers it after this TIME (seconds, or "2h30m"), `ttl` bounces
        it if it is not delivered within this TIME. `dedup` accepts one message with this key per day.
        `sender` is named if it bounces. `max_attempts` (10) is how often it is tried before it is
        dead-lettered. `command` runs a command of the agent, such as /compact. `literal` refuses a prompt in
        which the agent would read an @file. `priority`: higher goes first, if `allow_priority` was called.
        `message_id` is the id to use, `now` the time it was sent.

        Raises `InputError` for an empty, oversized or invalid prompt, `InvalidOptions` for an unknown option
        or a bad value, and `FolderUnusable` if it cannot be written.
        """
        if options:
            check_put_options(options)
            message = make_message(prompt, max_bytes=self._max_bytes, **options)
        else:
            message = plain_message(prompt, self._max_bytes)
        if message.priority and not self._files.by_priority():
            raise InputError(
                "this inbox delivers messages in order and does not allow priorities",
                hint=f'to allow them, write {{"priority": true}} into {self._files.options}',
            )
        try:  # without a context manager, which would be a tenth of a put
            accepted = self._accept(message)
        except (OSError, stop_hook.InboxError) as error:
            raise translate_error(error, self._unwritable) from error
        if self._files.grown:
            self._free_space()
        return accepted

    def allow_priority(self, allowed: bool = True) -> None:
        """Allow messages with a higher priority to go first. By default messages are delivered in order."""
        self._make_folder()
        self._files.replace(self._files.options, stop_hook.encode_json({"priority": bool(allowed)}).encode())

    def _accept(self, message: Message) -> Accepted:
        """Put the message. Creates and checks the folder once, and again when it is gone."""
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
        keys = DedupKeys(self._files)
        with Lock(self._files), self._writer.lock():
            if (accepted_id := keys.find(message.dedup)) is not None:
                return Accepted(accepted_id, duplicate=True)
            end = self._writer.append(message.line)
            try:
                keys.add(message, end)
            except OSError:  # it is accepted; without the record, `DedupKeys.find` searches the inbox
                pass
        return Accepted(message.id)

    def _make_folder(self) -> None:
        """Create the folder so that it, and what is in it, survives a loss of power."""
        missing = [one for one in (self.folder, *self.folder.parents) if not one.exists()]
        private_folder(self.folder)
        for one in missing:
            stop_hook.sync_folder(str(one.parent))

    # ── disk space ──

    def compact(self) -> Reclaimed:
        """Free the disk space of acknowledged messages and of old receipts, and return how much that was.

        This also happens by itself when a file has grown by 8 MiB.
        """
        with translated_errors(self._unwritable):
            return compact(str(self.folder), small=0)

    def _free_space(self) -> None:
        self._files.grown = False
        try:
            compact(str(self.folder))
        except (OSError, stop_hook.InboxError):  # the message is accepted; space is freed another time
            pass

    # ── inspecting ──

    def overview(self, now: float | None = None) -> Overview:
        """Return counts: waiting, delayed, in flight, dead. All zero if the folder does not exist yet."""
        with translated_errors(self._unreadable):
            try:
                with Lock(self._files):
                    return self._overview(time.time() if now is None else now)
            except FileNotFoundError:
                return Overview(0, 0, None, 0, None, 0)

    @contextmanager
    def quiet(self) -> Iterator[Overview]:
        """Lock the inbox and yield its overview: nothing is put or delivered until the `with` ends."""
        with ExitStack() as held:
            with translated_errors(self._unreadable):
                held.enter_context(Lock(self._files))
                held.enter_context(self._writer.lock())
                overview = self._overview(time.time())
            yield overview

    @contextmanager
    def _opened(self) -> Iterator[stop_hook.HookInbox]:
        """Open the inbox as a consumer does. The caller holds the lock."""
        inbox = stop_hook.HookInbox(self._files)
        with translated_errors():
            try:
                inbox.open()
                yield inbox
            finally:
                inbox.close()

    def _overview(self, now: float) -> Overview:
        with self._opened() as inbox:
            flight, lease = inbox.in_flight(), inbox.lease()
            waiting = [entry for entry in waiting_entries(inbox) if not _is_of(entry, flight)]
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
        """Return the messages that wait, in order, with the one in flight; empty without a folder."""
        with translated_errors(self._unreadable):
            try:
                with Lock(self._files), self._opened() as inbox:
                    return list(waiting_entries(inbox))
            except FileNotFoundError:
                return []

    # ── what has no consumer ──

    def recover(self, policy: Policy) -> Recovered:
        """Retry, dead-letter or drop the message that was in flight when its agent died.

        `policy` is "retry", "deadletter" or "drop". Raises `InboxBusy` while a keeper runs, which does that
        itself.
        """
        notices: list[str] = []
        with translated_errors(self._unwritable):
            outcome, _ = stop_hook.recover(self._files, policy, notices)
            return Recovered(outcome, notices)

    def expire(self, message: str) -> bool:
        """Bounce a message whose time to live is over, if no consumer runs. Return whether it was bounced."""
        with translated_errors(self._unwritable), Lock(self._files):
            if stop_hook.consumer_of(self._files) is not None:
                return False
            with self._opened() as inbox:
                flight = inbox.in_flight()
                for entry in waiting_entries(inbox):
                    if entry.id == message and entry.expired(inbox.queue.clock) and not _is_of(entry, flight):
                        inbox.bury(entry, *stop_hook.TOO_LATE)
                        return True
        return False

    def take_back(self, message: str) -> TakenBack:
        """Drop a waiting message. Return "dropped", "in flight" or "unknown".

        Raises `InboxBusy` while a keeper runs; `Session.cancel` asks that one.
        """
        with translated_errors(self._unwritable), Lock(self._files):
            if (consumer := stop_hook.consumer_of(self._files)) is not None:
                raise InboxBusy(f"{consumer} delivers this inbox")
            with self._opened() as inbox:
                return take_back(inbox, message, stop_hook.UNWANTED)

    # ── dead letters ──

    def dead_letters(self) -> Iterator[dict[str, Any]]:
        """Yield the dead letters, oldest first, as they are in the file."""
        with translated_errors(self._unreadable):
            yield from json_lines(self._files.dead_letters)

    def redrive(self, choose: str | None = None) -> list[str]:
        """Put dead letters back into the inbox and return their new ids.

        `choose` is the id of one (or its beginning); None takes all. A letter that cannot be read stays. The
        options of the sender go with the message if this inbox wrote it. Raises `MessageNotFound`.
        """
        with translated_errors(self._unwritable), Lock(self._files), self._writer.lock():
            return self._redrive(choose)

    def _redrive(self, choose: str | None) -> list[str]:
        lines = stop_hook.read_file(self._files.dead_letters) or b""
        dead, key = list(self.dead_letters()), InboxKey(self._files.key)
        whole = choose_letters(dead, choose, key)
        messages = [redriven_message(one, key) for one in whole]
        present = self._known({message.id for message in messages})
        for message, letter in zip(messages, whole, strict=True):
            if message.id not in present:  # else a crash ended this before the letters were removed
                self._writer.append(message.line)
                self._note_redriven(message, entry_of(letter, key).id)
        taken = {line for line, one in parsed_lines(lines) if one in whole}
        kept = [line for line in lines.split(b"\n") if line and line not in taken]
        self._files.replace(self._files.dead_letters, b"".join(line + b"\n" for line in kept))
        return [message.id for message in messages]

    def _known(self, ids: set[str]) -> set[str]:
        """Return the ids that were put back before: they wait, or have a receipt."""
        with self._opened() as inbox:
            waiting = {entry.id for entry in waiting_entries(inbox)} & ids
        return waiting | {str(one.get("id")) for one in json_lines(self._files.receipts)} & ids

    def _note_redriven(self, message: Message, letter: str) -> None:
        stop_hook.HookInbox(self._files).receipt(message.id, "accepted", redriven=letter)

    def entry_of(self, letter: dict[str, Any]) -> Entry:
        """Return the message of a dead letter."""
        return entry_of(letter, InboxKey(self._files.key))


def _is_of(entry: Entry, flight: dict[str, Any] | None) -> bool:
    return flight is not None and entry.start == int(flight["start_offset"])


def _wait(inbox: stop_hook.HookInbox, entry: Entry) -> float:
    held = inbox.queue.find(entry.start)
    return entry.wait(inbox.queue.clock) if held is None else inbox.queue.wait(held, inbox.queue.clock())
