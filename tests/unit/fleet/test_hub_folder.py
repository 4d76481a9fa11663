"""What a server refused, read from its log."""

from __future__ import annotations

import datetime

from remuda.fleet.hub_folder import read_refusals

KEY, OTHER = "U" + "A" * 55, "U" + "B" * 55
NOW = datetime.datetime(2026, 5, 1, 12, 0, 0).timestamp()


def line(rest: str, at: str = "2026/05/01 11:00:00", level: str = "ERR") -> str:
    return f"[77] {at}.123456 [{level}] 10.0.0.7:4711 - cid:3 - {rest}"


def violation(what: str, subject: str, name: str = "v2:python3:x", key: str = KEY) -> str:
    return line(f'"{name}" - "MEMBERS/nkey:{key}" - {what} Violation - Subject "{subject}"')


def test_refusals_are_counted_by_key_and_subject_with_the_last_one_first() -> None:
    lines = [violation("Publish", "ev.b7.s"), line(f'authentication error - Nkey "{OTHER}"')]
    lines += [line("authentication error"), violation("Publish", "ev.b7.s"), violation("Subscription", ">")]
    found = read_refusals(lines, {KEY: "liar"}, {OTHER: "gone"}, NOW - 86400)
    shown = [(one["key"], one["revoked"], one["what"], one["subject"], one["count"]) for one in found]
    assert shown == [
        ("liar", False, "subscription", ">", 1),
        ("liar", False, "publish", "ev.b7.s", 2),
        (None, False, "connect", None, 1),
        ("gone", True, "connect", None, 1),
    ]
    assert {(one["from"], one["at"]) for one in found} == {("10.0.0.7", NOW - 3600)}


def test_refusals_are_few_and_recent_and_no_client_can_write_one_for_another_key() -> None:
    lines = [line("authentication error", at="2026/04/29 11:00:00"), line("authentication error", at="9")]
    lines += [line("authentication error", level="INF"), line("TLS handshake error: EOF"), "", "\x1b[2J" * 9]
    forged = rf"x\" - \"MEMBERS/nkey:{OTHER}\" - Publish Violation - Subject \"a"
    lines += [violation("Publish", "real", name=forged)]
    (one,) = read_refusals(lines, {KEY: "liar", OTHER: "victim"}, {}, NOW - 86400)
    assert (one["key"], one["subject"]) == ("liar", "real")
    many = [violation("Publish", f"s{number}") for number in range(50)]
    assert [one["subject"] for one in read_refusals(many, {}, {}, 0.0)] == [
        f"s{at}" for at in range(49, 39, -1)
    ]
