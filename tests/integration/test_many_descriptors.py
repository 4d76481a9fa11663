"""Programs that have more files open than `select` can count, and limits that are too low for a session."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.inbox.consumer import Consumer
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import follow
from remuda.keeper.spec import LEAST_DESCRIPTORS
from support.commands import Commands
from support.keeper import Start

PATIENCE = 30.0
MANY = 1100


@pytest.fixture
def crowded() -> Iterator[None]:
    """Every descriptor that is opened from now on has a number beyond 1023."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(MANY)]
    yield
    for fd in taken:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("crowded")
def test_session_is_started_and_asked(start: Start) -> None:
    client = start("s", ["sh", "-c", "printf READY; exec cat"]).hello()
    assert client.fileno() > 1023
    assert client.status().alive == 1
    assert client.describe()["name"] == "s"


@pytest.mark.usefixtures("crowded")
def test_message_is_followed(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        message = inbox.put("hello").id
    consumer = Consumer(tmp_path, "a test")
    consumer.open()
    try:
        following = follow(tmp_path, message, PATIENCE)
        assert next(following).stage == "accepted"
        assert consumer.lease("test") is not None
        assert next(following).stage == "written"
    finally:
        consumer.close()


def limited(count: int) -> list[str]:
    return ["sh", "-c", f'ulimit -n {count}; exec "$@"', "sh"]


@pytest.mark.parametrize("count", [12, 16, LEAST_DESCRIPTORS - 1])
def test_start_with_too_few_descriptors_is_refused_and_says_what_to_do(remuda: Commands, count: int) -> None:
    said = remuda.refused(
        "start", "s", "--detach", "--agent", "demo", code=1, prefix=limited(count), cwd=remuda.home
    )
    assert f"the limit is {count} open files" in said
    assert "ulimit -n 1024" in said
    assert not list(remuda.sessions.glob("s.*"))


def test_start_with_just_enough_descriptors_delivers(remuda: Commands) -> None:
    remuda("start", "s", "--detach", "--agent", "demo", prefix=limited(LEAST_DESCRIPTORS))
    assert "REPLY#1 to: hello" in remuda("send", "s", "--wait", "hello").out
    remuda("kill", "s")
