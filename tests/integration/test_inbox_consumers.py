"""A second consumer of one inbox is refused while the first lives, and takes over when it is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.errors import InboxBusy
from remuda.inbox.locks import ConsumerLock, find_consumer
from support.hooks import PATIENCE, Box

HOLD = (
    "import sys\n"
    "from remuda.inbox.locks import ConsumerLock\n"
    "held = ConsumerLock.take(sys.argv[1], 'the keeper of session x')\n"
    "print('held', flush=True)\n"
    "sys.stdin.read()\n"
)


@pytest.fixture
def keeper(box: Box) -> subprocess.Popen[str]:
    """A consumer in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(box.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    box.running.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_take_second_consumer_is_refused_and_learns_who_is_there(
    box: Box, keeper: subprocess.Popen[str]
) -> None:
    with pytest.raises(InboxBusy) as refused:
        ConsumerLock.take(box.folder, "me")
    assert refused.value.code == "INBOX_BUSY"
    assert f"the keeper of session x (pid {keeper.pid})" in str(refused.value)
    assert find_consumer(box.folder) == f"the keeper of session x (pid {keeper.pid})"


def test_take_after_the_first_was_killed_takes_over(box: Box, keeper: subprocess.Popen[str]) -> None:
    keeper.kill()
    keeper.wait(PATIENCE)
    assert find_consumer(box.folder) is None
    with ConsumerLock.take(box.folder, "me"):
        assert find_consumer(box.folder) == f"me (pid {os.getpid()})"
    assert find_consumer(box.folder) is None


def test_take_is_not_inherited_by_a_program_that_is_started(box: Box) -> None:
    argv = [sys.executable, "-c", "print(flush=True); input()"]
    with ConsumerLock.take(box.folder, "me"):
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False)
    try:
        assert child.stdout is not None
        child.stdout.readline()  # it runs: everything that exec closes is closed
        assert find_consumer(box.folder) is None
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_take_over_a_file_of_any_content(box: Box, content: str) -> None:
    box.path(".inbox-consumer").write_text(content)
    with ConsumerLock.take(box.folder, "me"):
        box.path(".inbox-consumer").write_text(content)
        assert find_consumer(box.folder) == "another consumer"


@pytest.mark.parametrize("mode", ["drain", "persist"])
def test_tick_beside_a_live_consumer_hands_nothing_out(
    box: Box, keeper: subprocess.Popen[str], mode: str
) -> None:
    """At once in both modes: the session may be the one that the keeper wants idle, to type into it."""
    box.put("alpha\n")
    before = _all_files(box.folder)
    ran = box.run("--mode", mode)
    assert (ran.code, ran.out) == (0, "")
    assert f"the keeper of session x (pid {keeper.pid}) delivers this inbox" in ran.err
    assert _all_files(box.folder) == before
    keeper.kill()
    keeper.wait(PATIENCE)
    assert box.drain() == ["alpha"]


def _all_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_tick_beside_a_live_consumer_reports_no_end_to_a_launcher_while_there_is_work(
    box: Box, keeper: subprocess.Popen[str]
) -> None:
    signal = box.path("signal")
    box.put("alpha\n")
    assert box.run("--signal-file", str(signal)).out == ""
    assert not signal.exists()
    box.path(".inbox-offset").write_text("6")
    assert box.run("--signal-file", str(signal)).out == ""
    assert signal.exists()


def test_recover_beside_a_live_consumer_is_refused(box: Box, keeper: subprocess.Popen[str]) -> None:
    box.put("alpha\n")
    box.path(".in-flight").write_text('{"start_offset": 0, "end_offset": 6, "raw_line": "alpha"}')
    ran = box.run("recover", "--on-orphan", "drop")
    assert (ran.code, ran.out) == (1, "")
    assert f"(pid {keeper.pid})" in ran.err
    assert box.path(".in-flight").exists()
    keeper.kill()
    keeper.wait(PATIENCE)
    assert box.recover("drop") == "Dropped"
