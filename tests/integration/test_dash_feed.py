"""What the dashboard follows a session with: a real keeper, and a program that prints when it is told to."""

from __future__ import annotations

from queue import Queue
from threading import Event

import pytest

from remuda.errors import SessionUnreachable
from remuda.keeper.client import KeeperClient
from remuda.tui.feed import ScreenFeed
from remuda.wire.connection import ClientConnection
from support.commands import Commands
from support.heimdall_client import PATIENCE

Seen = Queue[tuple[list[str], str]]
PROGRAM = ("sh", "-c", "read one; echo got-$one; read two; echo bye; exit 3")


def follow(remuda: Commands, seen: Seen, last: list[str] | None = None) -> ScreenFeed:
    def read_last() -> list[str]:
        if last is None:
            raise SessionUnreachable("the boss is gone")
        return last

    return ScreenFeed("ticker", remuda.home / "sessions", lambda *shown: seen.put(shown), read_last)


def shows(seen: Seen, word: str) -> None:
    while word not in "\n".join(seen.get(timeout=PATIENCE)[0]):
        pass


def test_screen_feed_shows_each_change_and_at_the_end_the_last_screen_and_why(remuda: Commands) -> None:
    remuda.start("ticker", "--", *PROGRAM)
    seen: Seen = Queue()
    feed = follow(remuda, seen, ["the last screen"])
    assert seen.get(timeout=PATIENCE)[1] == ""
    with KeeperClient.connect("ticker", remuda.home / "sessions") as client:
        client.send(ClientConnection.input(b"hello\r"))
        shows(seen, "got-hello")
        client.send(ClientConnection.input(b"\r"))
        while not (why := (shown := seen.get(timeout=PATIENCE))[1]):
            pass
    assert (shown[0], why) == (["the last screen"], "the session has ended with exit code 3")
    feed.stop()


def test_screen_feed_that_gets_the_last_output_with_the_end_says_how_it_ended(remuda: Commands) -> None:
    remuda.start("ticker", "--", *PROGRAM)
    seen: Seen = Queue()
    shown, ended = Event(), Event()

    def show(lines: list[str], why: str) -> None:
        seen.put((lines, why))
        if seen.qsize() == 2:  # it has read all that came before
            shown.set()
            ended.wait(PATIENCE)

    feed = ScreenFeed("ticker", remuda.home / "sessions", show, list)
    assert shown.wait(PATIENCE)
    with KeeperClient.connect("ticker", remuda.home / "sessions") as client:
        client.send(ClientConnection.subscribe() + ClientConnection.input(b"hello\r\r"))
        assert client.wait_exit(PATIENCE) == 3
        with pytest.raises(EOFError):  # then all others have been told
            list(client.receive(PATIENCE))
    ended.set()
    while not (why := seen.get(timeout=PATIENCE)[1]):
        pass
    assert why == "the session has ended with exit code 3"
    feed.stop()


def test_screen_feed_of_a_killed_keeper_keeps_what_was_seen_last(remuda: Commands) -> None:
    remuda.start("ticker", "--", "sh", "-c", "echo here; exec cat")
    seen: Seen = Queue()
    feed = follow(remuda, seen)
    shows(seen, "here")
    remuda.kill_keeper("ticker")
    while not (shown := seen.get(timeout=PATIENCE))[1]:
        pass
    assert "here" in "\n".join(shown[0])
    feed.stop()


def test_screen_feed_that_is_stopped_says_nothing_more(remuda: Commands) -> None:
    remuda.start("ticker", "--", *PROGRAM)
    seen: Seen = Queue()
    feed = follow(remuda, seen)
    seen.get(timeout=PATIENCE)
    feed.stop()
    remuda("kill", "ticker")
    assert all(why == "" for _lines, why in seen.queue)
