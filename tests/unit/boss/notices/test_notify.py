"""Who is told, when, and in which words."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from remuda.boss.answers.permission_policy import load_policy
from remuda.boss.attention.model import BossSession, Item, Reason
from remuda.boss.notices.notification import Schedule, fill, fill_all, is_quiet, words
from remuda.boss.notices.notify_file import (
    NotifySettings,
    Receiver,
    load_settings,
    read_settings,
    trail_boss_settings,
)
from remuda.errors import InvalidOptions


def item(number: str, since: float, session: str = "s", **more: Any) -> Item:
    return Item(number, session, Reason.PERMISSION, since, **more)


ALL = NotifySettings(30, 300, receivers=(Receiver(desktop=True),))


def told(
    schedule: Schedule, items: list[Item], now: float, settings: NotifySettings | None = None
) -> list[str]:
    return [one.id for one in schedule.due(items, settings or ALL, now)]


def at(hour: int, minute: int = 0) -> float:
    return datetime(2026, 3, 4, hour, minute).timestamp()


def test_notice_after_the_threshold_and_once() -> None:
    schedule, items = Schedule(), [item("a", 1000.0)]
    assert told(schedule, items, 1029.0) == []
    assert told(schedule, items, 1030.0) == ["a"]
    assert told(schedule, items, 9999.0) == []


CHAT = {"TELEGRAM_PROXY_URL": "http://bridge:8080/", "TELEGRAM_CHAT_ID": "-42"}


def test_variables_of_trail_boss_name_a_chat_and_when_it_is_notified() -> None:
    settings = trail_boss_settings(CHAT)
    assert (settings.least, settings.threshold, settings.cooldown) == (1, 30.0, 3600.0)
    (receiver,) = settings.receivers
    assert receiver.url == "http://bridge:8080/send"
    assert receiver.json == {"chat_id": "-42", "text": "{title}\n{page}"}
    more = {"TELEGRAM_THREAD_ID": "7", "NOTIFY_THRESHOLD": "2"}
    more |= {"NOTIFY_COOLDOWN_MS": "1500", "NOTIFY_CHECK_INTERVAL_MS": "often"}
    settings = trail_boss_settings(CHAT | more)
    assert settings.receivers[0].json["thread_id"] == "7"
    assert (settings.least, settings.threshold, settings.cooldown) == (2, 30.0, 1.5)
    schedule, first = Schedule(), item("a", 1000.0)
    assert told(schedule, [first], 1040.0, settings) == []
    assert told(schedule, [first, item("b", 1039.0, "other")], 1040.0, settings) == ["a"]


@pytest.mark.parametrize(
    "proxy", ["", "socks5://bridge:1080", "http://me:secret@bridge", "http://b ridge", "http://"]
)
def test_variables_of_another_program_notify_no_one_and_raise_nothing(proxy: str) -> None:
    assert trail_boss_settings(CHAT | {"TELEGRAM_PROXY_URL": proxy}) == NotifySettings()
    assert trail_boss_settings({**CHAT, "TELEGRAM_CHAT_ID": ""}) == NotifySettings()


def test_session_is_notified_again_after_its_cooldown() -> None:
    schedule = Schedule()
    assert told(schedule, [item("a", 1000.0)], 1030.0) == ["a"]
    assert told(schedule, [item("b", 1050.0), item("c", 1050.0, "other")], 1100.0) == ["c"]
    assert told(schedule, [item("b", 1050.0)], 1329.0) == []
    assert told(schedule, [item("b", 1050.0)], 1330.0) == ["b"]


def test_reason_that_no_receiver_wants_keeps_back_nothing_that_one_wants() -> None:
    some = [{"desktop": True, "reasons": ["plan"]}, {"url": "http://x", "reasons": ["permission"]}]
    settings = read_settings({"to": some})
    schedule, stopped = Schedule(), replace(item("a", 1000.0), reason=Reason.STOPPED)
    assert told(schedule, [stopped], 1030.0, settings) == []
    assert told(schedule, [stopped, item("b", 1010.0)], 1040.0, settings) == ["b"]
    # Someone wants to hear of it now: it was told to no one.
    assert told(schedule, [stopped], 1340.0) == ["a"]
    assert told(Schedule(), [item("a", 1.0)], 1340.0, NotifySettings()) == []


def test_notice_that_could_not_be_sent_is_due_again() -> None:
    schedule, items = Schedule(), [item("a", 1000.0), item("b", 1000.0, "other")]
    assert told(schedule, items, 1030.0) == ["a", "b"]
    schedule.put_back(items[0])
    assert told(schedule, items, 1031.0) == ["a"]
    assert told(schedule, items, 1032.0) == []


def test_quiet_hours_put_off_what_still_waits_at_their_end() -> None:
    settings = read_settings({"quiet": ["22:00-07:00", "12:30-13:00"], "to": [{"desktop": True}]})
    assert [is_quiet(settings, at(*time)) for time in ((21, 59), (22,), (3,), (7,), (12, 45), (13,))] == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]
    schedule, waiting = Schedule(), [item("a", at(6))]
    assert told(schedule, waiting, at(6, 30), settings) == []
    assert told(schedule, waiting, at(7), settings) == ["a"]


def test_words_of_a_notice_and_what_a_message_holds_is_no_template() -> None:
    asked = item("a", 1.0, message="say {link} " + "x" * 400, detail={"ask": "p1", "tool": "Bash"})
    found = words(asked, BossSession("s", name="work", cwd="/srv"), "http://l")
    assert (found["title"], found["id"], found["tool"]) == ("work: permission", "p1", "Bash")
    assert len(found["message"]) == 300
    shown = item("b", 1.0, message="", detail={"waiting_for": "trust dialog"})
    assert words(shown, None)["message"] == "trust dialog"
    assert fill("{title}|{message}|{unknown}", found) == f"work: permission|{found['message']}|{{unknown}}"
    assert fill_all({"a": ["{id}", 1, None]}, found) == {"a": ["p1", 1, None]}
    assert words(item("b", 1.0), None)["session"] == "s"


def test_notice_names_a_session_as_the_queue_does() -> None:
    foreign = BossSession("s", cwd="/srv/api", title="api-b5")
    assert words(item("a", 1.0), foreign)["title"] == "api: permission"
    assert words(item("a", 1.0), replace(foreign, repo="/srv"))["session"] == "srv"


@pytest.mark.parametrize(
    "document",
    [
        {"thresholds": 1},
        {"threshold": "1"},
        {"threshold": -1},
        {"cooldown": True},
        {"quiet": "22:00-07:00"},
        {"quiet": ["22-7"]},
        {"quiet": ["25:00-07:00"]},
        {"link_base": "ftp://x"},
        {"to": {}},
        {"to": [{}]},
        {"to": [{"desktop": True, "url": "http://x"}]},
        {"to": [{"url": "file:///etc/passwd"}]},
        {"to": [{"url": "http://x", "method": "GET"}]},
        {"to": [{"url": "http://x", "headers": {"A": 1}}]},
        {"to": [{"url": "http://x", "headers": "A"}]},
        {"to": [{"url": "http://x", "body": "a", "json": {}}]},
        {"to": [{"url": "http://x", "reasons": ["boredom"]}]},
        {"to": [{"url": "http://x", "token": "t"}]},
        {"to": [{"url": "http://x/a b"}]},
        {"to": [{"url": "http://x/\x00"}]},
        {"to": [{"url": "http://x:port/"}]},
        {"to": [{"url": "http:///bot"}]},
        {"to": [{"url": "http://me:SECRET@x/"}]},
        {"to": [{"url": "http://x", "json": {"a": float("inf")}}]},
        {"to": [{"url": "http://x", "json": {"a": [float("nan")]}}]},
        {"threshold": float("nan")},
        {"cooldown": float("inf")},
        {"push": True},
        {"push": {"reason": []}},
        {"push": {"reasons": ["boredom"]}},
        {"push": {"hosts": "localhost"}},
        {"push": {"details": "no"}},
        {"push": {"contact": "me"}},
        {"push": {"contact": "mailto:me@localhost"}},
    ],
)
def test_what_are_no_settings_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions) as refused:
        read_settings(document)
    assert "SECRET" not in str(refused.value)


# ── the file ──


@pytest.mark.parametrize("load", [load_settings, load_policy])
def test_file_of_another_user_is_refused_with_what_to_do(
    load: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "file.toml"
    path.write_text("")
    path.chmod(0o600)
    load(path)
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 65534, 65534)
    with pytest.raises(InvalidOptions, match="belongs to another user; make it yours"):
        load(path)


@pytest.mark.parametrize("load", [load_settings, load_policy])
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_file_that_others_can_write_is_refused_with_what_to_do(
    load: Callable[[Path], object], mode: int, tmp_path: Path
) -> None:
    path = tmp_path / "file.toml"
    path.write_text("")
    path.chmod(mode)
    with pytest.raises(InvalidOptions, match=r"other users can write .*chmod 600"):
        load(path)
