"""Appending to an inbox: the lock whose file stays open, and what others write in the meantime."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from threading import Event

import pytest

from remuda.inbox import locks
from remuda.inbox.compaction import WRITER_LOCK
from remuda.inbox.journal import Inbox
from remuda.inbox.message import make_message
from remuda.inbox.stop_hook import Entry, Files, open_file
from remuda.inbox.writer import Writer, has_writer
from remuda.lockfile import FileLock
from support.keeper import until


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path / "inbox")


def texts(inbox: Inbox) -> list[str]:
    return [entry.text for entry in inbox.waiting()]


def open_locks(folder: Path) -> int:
    """How many lock files below this folder this process has open."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{fd}")
            found += path.startswith(str(folder)) and WRITER_LOCK in path
    return found


def is_free(path: Path) -> bool:
    fd = os.open(path, os.O_RDWR)
    try:
        flock(fd, LOCK_EX | LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


# ── the lock ──


def test_put_again_and_again_keeps_one_lock_file_open_until_it_is_closed(inbox: Inbox) -> None:
    for number in range(3):
        inbox.put(str(number))
        assert open_locks(inbox.folder) == 1
    assert is_free(inbox.folder / WRITER_LOCK)
    inbox.close()
    assert open_locks(inbox.folder) == 0
    with inbox:
        inbox.put("3")
    assert open_locks(inbox.folder) == 0
    assert texts(inbox) == ["0", "1", "2", "3"]


def test_put_into_many_inboxes_keeps_few_files_open_and_the_last_ones(tmp_path: Path) -> None:
    for number in range(100):
        Inbox(tmp_path / str(number)).put("x")
    assert open_locks(tmp_path) <= 32
    assert open_locks(tmp_path / "99") == 1


def test_two_threads_with_one_inbox_are_kept_apart(inbox: Inbox) -> None:
    inbox.put("x")
    path = str(inbox.folder / WRITER_LOCK)
    file = locks.lock_writer(path)
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(locks.lock_writer, path)
        until(lambda: open_locks(inbox.folder) == 2, "the other has a file of its own")
        assert not is_free(inbox.folder / WRITER_LOCK)
        locks.unlock_writer(path, file)
        other = taking.result(30)
    assert not is_free(inbox.folder / WRITER_LOCK)
    locks.unlock_writer(path, other)
    assert is_free(inbox.folder / WRITER_LOCK)
    assert open_locks(inbox.folder) == 1


def test_many_threads_put_into_one_inbox_all_is_there_and_one_file_stays_open(inbox: Inbox) -> None:
    prompts = [f"{number} " + "x" * (number * 37 % 5000) for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(inbox.put, prompts))
    assert sorted(texts(inbox)) == sorted(prompts)
    assert open_locks(inbox.folder) <= 1


@pytest.mark.parametrize("way", ["the folder", "the lock", "the folder, and another came"])
def test_put_after_the_file_of_the_lock_went_takes_the_one_of_now(inbox: Inbox, way: str) -> None:
    inbox.put("before")
    path = inbox.folder / WRITER_LOCK
    if way == "the lock":
        path.unlink()
    else:
        inbox.folder.rename(inbox.folder.with_name("gone"))
    if way == "the folder, and another came":
        inbox.folder.mkdir(mode=0o700)
        path.touch()
    inbox.put("after")
    with FileLock(str(path), open_file):
        file = locks._open_locks[str(path)]
        assert (file.dev, file.ino) == (path.stat().st_dev, path.stat().st_ino)
        with pytest.raises(BlockingIOError):
            flock(file.fd, LOCK_EX | LOCK_NB)
    assert texts(inbox)[-1] == "after"


def test_put_after_somebody_closed_all_files_opens_the_lock_anew(inbox: Inbox) -> None:
    inbox.put("before")
    os.close(locks._open_locks[str(inbox.folder / WRITER_LOCK)].fd)
    inbox.put("after")
    assert open_locks(inbox.folder) == 1
    assert texts(inbox) == ["before", "after"]


FORKED = """
import os, sys
from fcntl import LOCK_EX, LOCK_NB, flock
from remuda.inbox import locks
from remuda.inbox.compaction import WRITER_LOCK
from remuda.inbox.journal import Inbox
from remuda.inbox.stop_hook import open_file
from remuda.lockfile import FileLock

inbox = Inbox(sys.argv[1])
inbox.put("before")
path = sys.argv[1] + "/" + WRITER_LOCK
to_child, to_parent = os.pipe(), os.pipe()
"""


def run_forked(folder: Path, script: str) -> str:
    words = [sys.executable, "-c", FORKED + script, str(folder)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_forked_process_and_its_parent_are_kept_apart(inbox: Inbox) -> None:
    said = run_forked(
        inbox.folder,
        """
if os.fork() == 0:
    file = locks.lock_writer(path)
    os.write(to_parent[1], b"x")
    os.read(to_child[0], 1)
    locks.unlock_writer(path, file)
    inbox.put("of the child")
    os._exit(0)
os.read(to_parent[0], 1)
try:
    flock(locks._open_locks[path].fd, LOCK_EX | LOCK_NB)
    print("shared")
except BlockingIOError:
    print("apart")
os.write(to_child[1], b"x")
inbox.put("of the parent")
os.wait()
""",
    )
    assert said == "apart"
    assert sorted(texts(inbox)) == ["before", "of the child", "of the parent"]


@pytest.mark.parametrize("how", ["kept", "FileLock"])
def test_process_that_was_forked_while_the_lock_was_held_does_not_hold_it_on(inbox: Inbox, how: str) -> None:
    said = run_forked(
        inbox.folder,
        f"""
lock, file = FileLock(path, open_file), None
if {how!r} == "kept":
    file = locks.lock_writer(path)
else:
    lock.__enter__()
if os.fork() == 0:
    os.read(to_child[0], 1)  # alive, with all that it was born with
    os._exit(0)
if file is not None:
    locks.unlock_writer(path, file)
    inbox.close()
else:
    lock.__exit__()
try:
    flock(os.open(path, os.O_RDWR), LOCK_EX | LOCK_NB)
    print("free")
except BlockingIOError:
    print("held")
os.write(to_child[1], b"x")
os.wait()
""",
    )
    assert said == "free"


# ── the file ──


def test_put_after_a_line_of_its_own_looks_at_what_others_wrote_since(inbox: Inbox) -> None:
    path = inbox.folder / "inbox.jsonl"
    inbox.put("one")
    inbox.put("two")
    left = path.stat()
    with path.open("a") as file:
        file.write("a line without its end")
    os.utime(path, ns=(left.st_atime_ns, left.st_mtime_ns))  # as on a disk whose clock ticks slowly
    inbox.put("three")
    inbox.put("four")
    assert texts(inbox) == ["one", "two", "a line without its end", "three", "four"]


def test_put_into_a_file_of_the_same_length_that_was_changed_in_place_looks_at_its_end(inbox: Inbox) -> None:
    path = inbox.folder / "inbox.jsonl"
    inbox.put("one")
    path.write_text("x" * path.stat().st_size)
    os.utime(path, (1, 1))
    inbox.put("two")
    assert texts(inbox)[1:] == ["two"]


def test_append_beside_a_foreign_writer_knows_where_its_line_ends(inbox: Inbox) -> None:
    inbox.put("one")
    path, over = inbox.folder / "inbox.jsonl", Event()
    writer = Writer(Files(str(path)))

    def write() -> None:
        with path.open("ab", buffering=0) as file:
            while not over.is_set():
                file.write(b"theirs\n")

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            lines = [make_message(str(number)).line for number in range(100)]
            ends = [writer.append(line) for line in lines]
        finally:
            over.set()
        writing.result(30)
    data = path.read_bytes()
    assert all(data[:end].rpartition(b"\n{")[2].endswith(b'"}\n') for end in ends)
    entries = [Entry(0, 0, data[:end].splitlines()[-1].decode()) for end in ends]
    assert [entry.text for entry in entries] == [str(number) for number in range(100)]


def test_has_writer_reports_those_who_write_and_not_those_who_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert not has_writer(str(path))
    path.touch()
    assert not has_writer(str(path))
    with path.open("rb"):
        assert not has_writer(str(path))
    for mode in ("ab", "r+b"):
        with path.open(mode):
            assert has_writer(str(path))
    assert not has_writer(str(path))


def test_has_writer_beside_those_who_open_it_ends_no_one(tmp_path: Path) -> None:
    """Anyone who opens a file under a lease breaks it, and its holder is sent a signal."""
    path, over = tmp_path / "file", Event()
    path.touch()

    def write() -> None:
        while not over.is_set():
            with path.open("ab") as file:
                file.write(b"x\n")

    with ThreadPoolExecutor(2) as pool:
        writing = [pool.submit(write) for _ in range(2)]
        try:
            found = {has_writer(str(path)) for _ in range(2000)}
        finally:
            over.set()
        for one in writing:
            one.result(30)
    assert found <= {True, False}
    assert not has_writer(str(path))


class CountedFiles(Files):
    def __init__(self, inbox: str) -> None:
        super().__init__(inbox)
        self.syncs = 0

    def sync(self) -> None:
        self.syncs += 1
        super().sync()


def test_a_new_file_with_the_number_of_a_removed_one_is_synced_with_its_folder(tmp_path: Path) -> None:
    files = CountedFiles(str(tmp_path / "inbox.jsonl"))
    writer = Writer(files)
    for _ in range(2):
        writer.put(make_message("one").line)
    before = files.syncs
    os.truncate(files.inbox, 0)  # so it looks when the number is used again
    writer.put(make_message("two").line)
    assert files.syncs == before + 1
    writer.close()
