"""Putting messages into an inbox, and looking at what waits."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remuda.errors import FolderUnusable, InboxBusy, InboxCorrupt, InputError, MessageNotFound, RemudaError
from remuda.inbox import stop_hook
from remuda.inbox.compaction import WRITER_LOCK
from remuda.inbox.journal import Inbox, Overview
from remuda.inbox.locks import ConsumerLock
from remuda.inbox.message import PutOptions, make_message
from remuda.inbox.stop_hook import Files, open_file
from remuda.inbox.writer import Writer
from remuda.lockfile import FileLock
from support.keeper import until


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path / "inbox")


def texts(inbox: Inbox) -> list[str]:
    return [entry.text for entry in inbox.waiting()]


def take(inbox: Inbox) -> str | None:
    """One stop, as the hook sees it."""
    return stop_hook.tick(Files(str(inbox.folder / "inbox.jsonl")), {}, stop_hook.ticks(), []).text


def test_put_several_wait_in_order_with_ids_of_their_own(inbox: Inbox) -> None:
    ids = [inbox.put(f"message {number}").id for number in range(3)]
    assert texts(inbox) == ["message 0", "message 1", "message 2"]
    assert [entry.id for entry in inbox.waiting()] == ids
    assert len(set(ids)) == 3


def test_put_many_lines_and_all_of_unicode_comes_out_as_it_went_in(inbox: Inbox) -> None:
    prompt = "two\nlines\t\r\n“quoted” \U0001f600 \u2028 {json} \\n"
    inbox.put(prompt)
    assert take(inbox) == prompt


def test_put_files_are_private(inbox: Inbox) -> None:
    inbox.put("x")
    assert (inbox.folder / "inbox.jsonl").stat().st_mode & 0o777 == 0o600
    assert inbox.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("prompt", ["", "  \n ", "a\0b", "\ud800", "x" * 101])
def test_put_what_no_agent_can_be_given_is_refused_and_nothing_is_written(
    tmp_path: Path, prompt: str
) -> None:
    inbox = Inbox(tmp_path / "inbox", max_bytes=100)
    with pytest.raises(InputError):
        inbox.put(prompt)
    assert not inbox.folder.exists()


def test_put_folder_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderUnusable):
        Inbox(tmp_path / "file").put("x")


def test_put_same_dedup_key_is_accepted_once(inbox: Inbox) -> None:
    first = inbox.put("once", dedup="k")
    again = inbox.put("once", dedup="k")
    assert (again.id, again.duplicate) == (first.id, True)
    assert texts(inbox) == ["once"]
    assert [take(inbox), take(inbox)] == ["once", None]
    assert inbox.put("once", dedup="k").duplicate
    assert not inbox.put("other", dedup="l").duplicate


def test_put_dedup_record_lost_in_a_crash_the_waiting_message_still_counts(inbox: Inbox) -> None:
    first = inbox.put("once", dedup="k")
    (inbox.folder / ".inbox-dedup.jsonl").unlink()
    assert inbox.put("once", dedup="k").id == first.id


def test_put_after_a_torn_line_that_no_one_ends_keeps_both_apart(inbox: Inbox) -> None:
    inbox.folder.mkdir(0o700)
    path = inbox.folder / "inbox.jsonl"
    path.write_text("foreign line without an end")
    os.utime(path, (1, 1))
    inbox.put("ours")
    assert texts(inbox) == ["foreign line without an end", "ours"]


def test_put_many_writers_beside_a_foreign_one_nothing_is_lost_or_mixed(inbox: Inbox) -> None:
    inbox.folder.mkdir(0o700)
    path = inbox.folder / "inbox.jsonl"
    code = f"import os\nfd = os.open({str(path)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n"
    code += "for i in range(200): os.write(fd, b'foreign %d\\n' % i)"
    foreign = subprocess.Popen([sys.executable, "-c", code])
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: Inbox(inbox.folder).put(f"ours {number}"), range(200)))
    assert foreign.wait() == 0
    found = texts(inbox)
    assert sorted(found) == sorted([f"ours {n}" for n in range(200)] + [f"foreign {n}" for n in range(200)])


def test_put_on_a_full_disk_raises_and_the_torn_envelope_is_never_handed_out(inbox: Inbox) -> None:
    inbox.put("good")
    line = make_message("cut short").line
    with open(inbox.folder / "inbox.jsonl", "ab") as file:
        file.write(line[: len(line) // 2] + b"\n")
    inbox.put("good too")
    assert [take(inbox), take(inbox), take(inbox)] == ["good", "good too", None]
    assert [one["reason"] for one in inbox.dead_letters()] == ["an envelope that was cut short"]


def test_overview_counts_waiting_delayed_in_flight_and_dead(inbox: Inbox) -> None:
    inbox.put("first")
    inbox.put("later", delay=3600)
    inbox.put("last")
    assert take(inbox) == "first"
    seen = inbox.overview()
    assert (seen.waiting, seen.delayed, seen.dead) == (2, 1, 0)
    assert seen.in_flight is not None
    assert seen.in_flight["attempt"] == 1
    assert seen.oldest_age is not None
    assert seen.oldest_age >= 0


def test_delay_lets_later_ones_pass_and_the_cursor_waits_for_it(inbox: Inbox) -> None:
    inbox.put("later", delay=3600)
    inbox.put("now")
    assert take(inbox) == "now"
    assert take(inbox) is None
    assert (inbox.folder / ".inbox-offset").read_text() == "0"
    assert texts(inbox) == ["later"]


def test_expired_is_bounced_to_its_sender_and_not_handed_out(inbox: Inbox) -> None:
    inbox.put("too late", ttl=1.0, now=time.time() - 10, sender="cron")
    inbox.put("in time")
    assert take(inbox) == "in time"
    (bounce,) = [json.loads(line) for line in (inbox.folder / "outbox.jsonl").read_text().splitlines()][:1]
    assert (bounce["to"], bounce["bounced"]) == ("cron", "expired")


def test_redrive_puts_dead_letters_back_and_empties_the_file(inbox: Inbox) -> None:
    inbox.put("doomed")
    files = Files(str(inbox.folder / "inbox.jsonl"))
    take(inbox)
    assert stop_hook.recover(files, "deadletter", [])[0] == "DeadLettered"
    assert len(list(inbox.dead_letters())) == 1
    assert len(inbox.redrive()) == 1
    assert list(inbox.dead_letters()) == []
    assert texts(inbox) == ["doomed"]


def test_redrive_unknown_letter_is_refused(inbox: Inbox) -> None:
    inbox.put("x")
    with pytest.raises(MessageNotFound):
        inbox.redrive("nobody")


def _dead(inbox: Inbox) -> None:
    assert take(inbox) is not None
    assert stop_hook.recover(Files(str(inbox.folder / "inbox.jsonl")), "deadletter", [])[0] == "DeadLettered"


def test_redrive_keeps_what_its_sender_asked_for_and_says_what_it_was(inbox: Inbox) -> None:
    first = inbox.put("/compact", sender="me", max_attempts=3, command=True, literal=True, ttl=60.0)
    _dead(inbox)
    (again,) = inbox.redrive(first.id)
    (entry,) = inbox.waiting()
    assert entry.id == again != first.id
    asked = {name: entry.fields[name] for name in ("prompt", "from", "max_attempts", "command", "literal")}
    assert list(asked.values()) == ["/compact", "me", 3, True, True]
    assert "expires" not in entry.fields
    last = json.loads((inbox.folder / "receipts.jsonl").read_text().splitlines()[-1])
    assert (last["id"], last["stage"], last["redriven"]) == (again, "accepted", first.id)


@pytest.mark.parametrize("drained", [False, True])
def test_redrive_after_a_crash_before_the_letter_was_taken_away_puts_nothing_twice(
    inbox: Inbox, drained: bool
) -> None:
    inbox.put("doomed")
    _dead(inbox)
    letters = (inbox.folder / ".dead-letter.jsonl").read_bytes()
    first = inbox.redrive()
    (inbox.folder / ".dead-letter.jsonl").write_bytes(letters)
    if drained:
        assert [take(inbox), take(inbox)] == ["doomed", None]
    assert inbox.redrive() == first
    assert list(inbox.dead_letters()) == []
    assert texts(inbox) == ([] if drained else ["doomed"])


def test_redrive_of_an_envelope_that_was_cut_short_is_refused(inbox: Inbox) -> None:
    inbox.put("good")
    with open(inbox.folder / "inbox.jsonl", "a") as file:
        file.write('{"remuda": 1, "prompt": "ha\n')
    assert [take(inbox), take(inbox)] == ["good", None]
    (letter,) = inbox.dead_letters()
    assert inbox.redrive() == []
    with pytest.raises(InputError):
        inbox.redrive(letter["entry_id"])
    assert list(inbox.dead_letters()) == [letter]


def test_put_dedup_beside_redrive_never_waits_forever(inbox: Inbox) -> None:
    """Both want two locks, and take them in one order."""
    inbox.put("seed", dedup="seed")
    with ThreadPoolExecutor(4) as pool:
        puts = [pool.submit(Inbox(inbox.folder).put, "x", dedup=f"k{number % 10}") for number in range(40)]
        redrives = [pool.submit(Inbox(inbox.folder).redrive) for _ in range(40)]
        ids = {one.result(30).id for one in puts}
        assert all(one.result(30) == [] for one in redrives)
    assert len(ids) == 10


def test_priority_is_refused_until_the_owner_allows_it(inbox: Inbox) -> None:
    with pytest.raises(InputError):
        inbox.put("urgent", priority=5)
    inbox.put("first")
    inbox.allow_priority()
    inbox.put("urgent", priority=5)
    inbox.put("low", priority=-1)
    inbox.put("urgent too", priority=5)
    inbox.put("second")
    assert [take(inbox) for _ in range(6)] == ["urgent", "urgent too", "first", "second", "low", None]
    assert (inbox.folder / ".inbox-offset").read_text() == str((inbox.folder / "inbox.jsonl").stat().st_size)


def test_priority_of_a_foreign_writer_counts_for_nothing_while_it_is_off(inbox: Inbox) -> None:
    inbox.put("first")
    with open(inbox.folder / "inbox.jsonl", "a") as file:
        file.write('{"remuda": 1, "prompt": "pushy", "priority": 9}\n')
    assert [take(inbox), take(inbox)] == ["first", "pushy"]


def test_priority_delayed_and_retried_messages_keep_theirs(inbox: Inbox) -> None:
    inbox.allow_priority()
    inbox.put("later", delay=3600, priority=9)
    inbox.put("plain")
    inbox.put("urgent", priority=1)
    assert take(inbox) == "urgent"
    assert stop_hook.recover(Files(str(inbox.folder / "inbox.jsonl")), "retry", [])[0] == "ReQueued"
    assert [take(inbox), take(inbox), take(inbox)] == ["urgent", "plain", None]
    assert texts(inbox) == ["later"]


def test_put_after_the_folder_was_taken_away_makes_it_again(inbox: Inbox) -> None:
    inbox.put("first")
    inbox.folder.rename(inbox.folder.with_name("elsewhere"))
    inbox.put("second")
    assert texts(inbox) == ["second"]
    assert inbox.folder.stat().st_mode & 0o777 == 0o700


# ── a folder or a file that goes while something is put ──


def opened(path: Path) -> int:
    """How often this process has the file at this path open."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
    return links.count(str(path))


@pytest.mark.parametrize("options", [{}, {"dedup": "k"}])
@pytest.mark.parametrize("made_anew", [False, True])
def test_put_into_a_folder_that_is_removed_meanwhile_is_in_the_new_one(
    inbox: Inbox, options: PutOptions, made_anew: bool
) -> None:
    inbox.put("before")
    inbox.close()
    with ThreadPoolExecutor(1) as pool:
        with FileLock(str(inbox.folder / WRITER_LOCK), open_file):
            putting = pool.submit(Inbox(inbox.folder).put, "after", **options)
            until(lambda: opened(inbox.folder / WRITER_LOCK) == 2, "the put waits for the lock")
            inbox.folder.rename(inbox.folder.with_name("removed"))
            if made_anew:
                Inbox(inbox.folder).put("another")
        accepted = putting.result(30)
    assert not accepted.duplicate
    assert texts(inbox) == (["another"] if made_anew else []) + ["after"]
    assert inbox.waiting()[-1].id == accepted.id


def test_lock_whose_file_was_removed_meanwhile_is_that_of_the_new_one(inbox: Inbox) -> None:
    inbox.folder.mkdir(mode=0o700)
    path = inbox.folder / WRITER_LOCK
    first, second, waiting = (
        FileLock(str(path), open_file),
        FileLock(str(path), open_file),
        FileLock(str(path), open_file),
    )
    with ThreadPoolExecutor(1) as pool:
        with first:
            entering = pool.submit(waiting.__enter__)
            until(lambda: opened(path) == 2, "the other waits for the lock")
            path.unlink()
            second.__enter__()
        until(lambda: opened(path) == 2, "the other waits for the new one")
        assert not entering.done()
        second.__exit__()
        entering.result(30)
        waiting.__exit__()


@pytest.mark.parametrize("way", ["replaced", "removed"])
def test_put_into_a_file_that_goes_meanwhile_is_written_again(inbox: Inbox, way: str) -> None:
    inbox.folder.mkdir(mode=0o700)
    path, kept = inbox.folder / "inbox.jsonl", inbox.folder / "kept"
    path.write_text("a line without its end")  # which the put waits for, with the file open
    os.link(path, kept)
    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(inbox.put, "mine")
        until(lambda: opened(path) == 1, "the put has opened the file")
        path.unlink()
        if way == "replaced":
            path.write_text("theirs\n")
        os.utime(kept, (1, 1))
        accepted = putting.result(30)
    assert texts(inbox) == (["theirs"] if way == "replaced" else []) + ["mine"]
    assert inbox.waiting()[-1].id == accepted.id


def test_put_into_a_file_that_an_editor_saves_with_the_message_in_it_is_there_once(inbox: Inbox) -> None:
    """The editor read the message, and put its own file in place, before the put had looked."""
    inbox.put("one")
    saved = inbox.folder / "saved"
    message = make_message("two")
    saved.write_bytes((inbox.folder / "inbox.jsonl").read_bytes() + message.line)
    (inbox.folder / "inbox.jsonl").rename(inbox.folder / "old")
    saved.rename(inbox.folder / "inbox.jsonl")
    writer = Writer(Files(str(inbox.folder / "inbox.jsonl")))
    assert writer.is_in_place(message.line)
    assert not writer.is_in_place(make_message("two").line)


# ── what is wrong with the files, as our errors ──


def test_folder_that_is_not_there_yet_holds_nothing_and_is_not_made_by_a_look(inbox: Inbox) -> None:
    assert inbox.waiting() == []
    assert inbox.overview() == Overview(0, 0, None, 0, None, 0)
    assert list(inbox.dead_letters()) == []
    assert not inbox.folder.exists()
    for doing in (inbox.compact, inbox.redrive, lambda: inbox.recover("drop"), lambda: inbox.expire("x")):
        with pytest.raises(FolderUnusable):
            doing()
    with pytest.raises(FolderUnusable), inbox.quiet():
        pass
    assert not inbox.folder.exists()


def test_folder_that_is_a_file_is_reported_by_our_error_whatever_is_asked(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    inbox = Inbox(tmp_path / "file")
    doings: list[Callable[[], object]] = [
        inbox.waiting,
        inbox.overview,
        lambda: list(inbox.dead_letters()),
        inbox.compact,
        inbox.redrive,
        lambda: inbox.recover("drop"),
        lambda: inbox.expire("x"),
    ]
    for doing in doings:
        with pytest.raises(FolderUnusable, match=r"the inbox .*/file: Not a directory"):
            doing()


def test_quiet_an_error_of_the_caller_is_raised(inbox: Inbox) -> None:
    inbox.put("x")
    with pytest.raises(OSError, match="mine"), inbox.quiet():
        raise OSError("mine")


def test_corrupt_inbox_raises_our_error_with_a_code(inbox: Inbox) -> None:
    inbox.put("x", dedup="k", now=time.time() - 3 * 86400)
    (inbox.folder / ".inbox-offset").write_text("rubbish")
    doings: list[Callable[[], object]] = [
        inbox.overview,
        inbox.waiting,
        inbox.compact,
        lambda: inbox.put("y", dedup="k"),
        lambda: inbox.expire("x"),
    ]
    for doing in doings:
        with pytest.raises(RemudaError) as raised:
            doing()
        assert isinstance(raised.value, InboxCorrupt)
        assert raised.value.code == "INBOX_CORRUPT"
        assert "corrupt offset file" in str(raised.value)


def test_redrive_of_a_corrupt_inbox_raises_our_error(inbox: Inbox) -> None:
    inbox.put("x")
    _dead(inbox)
    (inbox.folder / ".inbox-offset").write_text("rubbish")
    (inbox.folder / ".inbox-queue.json").unlink()
    with pytest.raises(InboxCorrupt):
        inbox.redrive()


def test_inbox_that_cannot_be_read_raises_our_error(inbox: Inbox) -> None:
    (inbox.folder / "inbox.jsonl").mkdir(parents=True)
    with pytest.raises(FolderUnusable):
        inbox.put("x")


def test_recover_beside_a_consumer_raises_our_error_and_else_decides(inbox: Inbox) -> None:
    inbox.put("x")
    take(inbox)
    with ConsumerLock.take(inbox.folder, "a test"), pytest.raises(InboxBusy):
        inbox.recover("drop")
    assert inbox.recover("drop").outcome == "Dropped"


# ── expiring ──


def test_expire_bounces_a_message_past_its_time_at_any_position(inbox: Inbox) -> None:
    inbox.put("in time", ttl=3600)
    late = inbox.put("too late", ttl=1.0, now=time.time() - 10, sender="cron").id
    inbox.put("another")
    assert inbox.expire(late)
    assert not inbox.expire(late)
    assert texts(inbox) == ["in time", "another"]
    [bounce] = [json.loads(line) for line in (inbox.folder / "outbox.jsonl").read_text().splitlines()]
    assert (bounce["id"], bounce["bounced"]) == (late, "expired")
    assert [take(inbox), take(inbox), take(inbox)] == ["in time", "another", None]


def test_expire_leaves_what_is_in_time_in_flight_or_anothers_to_hand_out(inbox: Inbox) -> None:
    soon = inbox.put("soon", ttl=3600).id
    assert not inbox.expire(soon)
    assert not inbox.expire("nobody")
    late = inbox.put("late", ttl=1.0, now=time.time() - 10).id
    with ConsumerLock.take(inbox.folder, "a test"):
        assert not inbox.expire(late)
    entry = inbox.waiting()[1]
    flight = {"start_offset": entry.start, "end_offset": entry.end, "raw_line": entry.raw}
    (inbox.folder / ".in-flight").write_text(json.dumps(flight))
    assert not inbox.expire(late)
    assert texts(inbox) == ["soon", "late"]


def test_put_with_a_dedup_key_and_a_sender_that_are_not_unicode_is_accepted_once(inbox: Inbox) -> None:
    first = inbox.put("one", dedup="build-\udcff", sender="\ud800")
    assert inbox.put("two", dedup="build-\udcff") == (first.id, True)
    assert not inbox.put("three", dedup="build-\udcfe").duplicate
    assert "\\ud800" in inbox.waiting()[0].fields["from"]
