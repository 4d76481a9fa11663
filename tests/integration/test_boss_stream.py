"""Changes as they happen, over HTTP: who may watch, going on where one stopped, and never a silent gap."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from remuda.boss.client import BossClient
from remuda.boss.feed import KEPT
from remuda.errors import BossDown
from support.boss import RunningBoss, event
from support.boss_stream import Stream
from support.keeper import until


def stop(session: str, at: float, message: str = "done") -> Any:
    return event("stopped", at, session=session, message=message)


def watchers(boss: RunningBoss) -> int:
    found = re.search(rb"^remuda_boss_watchers (\d+)$", boss.ask("GET", "/metrics").body, re.MULTILINE)
    assert found is not None
    return int(found[1])


# ── who may watch ──


@pytest.mark.parametrize(
    ("token", "headers", "status"),
    [
        (None, {}, 401),
        ("wrong", {}, 401),
        ("right", {"Host": "evil.example"}, 403),
        ("right", {"Host": "evil.example:{port}"}, 403),
        ("right", {"Origin": "https://evil.example"}, 403),
        ("right", {"Origin": "null"}, 403),
        ("right", {"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_stream_without_a_login_is_refused(
    served: RunningBoss, token: str | None, headers: dict[str, str], status: int
) -> None:
    sent = {name: value.format(port=served.port) for name, value in headers.items()}
    answer = served.ask("GET", "/v1/events", headers=sent, token=token)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert watchers(served) == 0


def test_stream_with_the_token_in_its_path_is_refused(served: RunningBoss) -> None:
    assert served.ask("GET", f"/t/{served.token}/v1/events", token=None).status == 401


# ── going on ──


def test_changes_are_told_as_they_happen_and_a_watcher_goes_on_where_it_stopped(boss: RunningBoss) -> None:
    stream = Stream(boss)
    assert stream.next().kind == "hello"
    boss.tell(stop("a", 10))
    told = stream.until("item")
    assert told.document["session_id"] == "a"
    stream.close()
    boss.tell(stop("b", 20), event("prompted", 30, session="a"))
    stream = Stream(boss, told.id)
    items = [stream.until("item").document for _ in range(2)]
    assert [(one["session_id"], one["resolution"]) for one in items] == [("b", None), ("a", "prompted")]
    stream.close()
    until(lambda: watchers(boss) == 0, "the end of those who left")


def test_hello_and_every_list_have_a_number_to_go_on_from(boss: RunningBoss) -> None:
    stream = Stream(boss)
    hello = stream.next()
    stream.close()
    boss.tell(stop("a", 10))
    listed = boss.client.get("queue")["last_event_id"]
    boss.tell(stop("b", 20))
    for number, wanted in ((hello.id, ["a", "b"]), (listed, ["b"])):
        stream = Stream(boss, number)
        assert [stream.until("item").document["session_id"] for _ in wanted] == wanted
        stream.close()


def test_watcher_with_a_number_of_another_life_is_asked_to_look_anew(boss: RunningBoss) -> None:
    boss.tell(stop("a", 10))
    number = boss.client.get("queue")["last_event_id"]
    boss.restart()
    for after in (number, "deadbeef-5", "nonsense"):
        stream = Stream(boss, after)
        reset = stream.until("reset")
        assert (reset.document, reset.id) == ({}, boss.client.get("queue")["last_event_id"])
        stream.close()


def test_watcher_that_was_away_for_too_long_is_asked_to_look_anew_and_then_all(boss: RunningBoss) -> None:
    boss.tell(stop("a", 10))
    number = boss.client.get("queue")["last_event_id"]
    boss.tell(*(stop(f"s{one}", 20 + one) for one in range(KEPT)))
    stream = Stream(boss, number)
    assert [stream.next().kind, stream.next().kind] == ["hello", "reset"]
    boss.tell(stop("last", 5000))
    assert stream.until("item").document["session_id"] == "last"
    stream.close()


# ── slow ones ──


def test_reader_that_cannot_keep_up_learns_so_and_holds_no_one_up(boss: RunningBoss) -> None:
    slow, quick = Stream(boss, buffer=4096), Stream(boss)
    assert slow.next().kind == quick.next().kind == "hello"
    # More than the system takes in for it, and more than the boss keeps for it.
    for part in range(20):
        boss.tell(*(stop(f"s{part}-{one}", 10 + one, "x" * 2000) for one in range(200)))
        assert "reset" not in {one.kind for one in quick.through(f"s{part}-199")}
    boss.tell(stop("last", 5000))
    told = slow.through("last")
    assert "reset" in {one.kind for one in told}
    for before, after in pairwise(told):
        assert after.kind == "reset" or after.number == before.number + 1, (before.id, after.id)
    assert told[-1].id == boss.client.get("queue")["last_event_id"]
    slow.close()
    quick.close()
    until(lambda: watchers(boss) == 0, "the end of those who left")


def test_reader_that_vanishes_is_forgotten(boss: RunningBoss) -> None:
    streams = [Stream(boss) for _ in range(3)]
    for stream in streams:
        stream.next()
    assert watchers(boss) == 3
    for stream in streams:
        stream.close()
    until(lambda: watchers(boss) == 0, "their end")


def test_stream_ends_when_the_boss_does(boss: RunningBoss) -> None:
    stream = Stream(boss)
    assert stream.next().kind == "hello"
    boss.end()
    with pytest.raises(EOFError):
        stream.next()
    stream.close()
    with pytest.raises(BossDown):
        BossClient(boss.folder).get("queue")
