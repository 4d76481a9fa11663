"""Names on the hub: any text is one token, and no key can use a subject of another."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from remuda.errors import BadName, RemoteProtocolError
from remuda.fleet import subjects
from remuda.fleet.streams import server_config
from remuda.fleet.subjects import KeyRecord, Role

TEXT = some.text(some.characters(codec=None, exclude_categories=()), min_size=1, max_size=80)
HOST = some.from_regex(r"[a-z0-9][a-z0-9-]{0,31}", fullmatch=True).filter(
    lambda name: name not in ("any", "hub")
)
ROLES = some.sets(some.sampled_from(Role), min_size=1)


def matches(pattern: str, subject: str) -> bool:
    """As NATS matches: `*` is one token, `>` one or more at the end."""
    words = pattern.split(".")
    for at, (word, token) in enumerate(zip(words, subject.split("."), strict=False)):
        if word == ">":
            return at == len(words) - 1
        if word not in ("*", token):
            return False
    return len(words) == len(subject.split("."))


def may_publish(name: str, roles: set[Role], subject: str) -> bool:
    return any(matches(one, subject) for one in subjects.rights(name, roles).publish)


def may_subscribe(name: str, roles: set[Role], subject: str) -> bool:
    return any(matches(one, subject) for one in subjects.rights(name, roles).subscribe)


@given(TEXT)
def test_any_text_is_one_token_and_comes_back(text: str) -> None:
    token = subjects.encode(text)
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", token)
    assert subjects.decode(token) == text


@given(TEXT, TEXT)
def test_two_texts_have_two_tokens(one: str, other: str) -> None:
    assert (subjects.encode(one) == subjects.encode(other)) is (one == other)


def test_an_answer_goes_only_where_its_host_has_the_right() -> None:
    for reply, is_right in (
        ("an.desk.build7.0f", True),
        ("an.desk.build8.0f", False),
        ("an.desk.build7.0f.more", False),
        ("an.*.build7.0f", False),
        ("an.desk.build7.", False),
        ("ev.build7.x", False),
        ("", False),
    ):
        assert subjects.is_answer(reply, "build7") is is_right
        assert not is_right or may_publish("build7", {Role.HOST}, reply)


@given(some.text(max_size=60))
def test_a_token_that_no_text_has_is_refused(token: str) -> None:
    try:
        assert subjects.encode(subjects.decode(token)) == token
    except RemoteProtocolError:
        pass


def test_a_name_that_is_longer_than_any_of_ours_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        subjects.decode("a" * 1025)


@pytest.mark.parametrize("name", ["", "any", "hub", "-a", "A", "a.b", "a*", "a/b", "é", "a" * 33, "a\n"])
def test_a_name_that_is_no_token_or_is_reserved_names_no_host(name: str) -> None:
    with pytest.raises(BadName):
        subjects.check_host(name)


@given(HOST, HOST, ROLES, TEXT)
def test_a_key_reports_only_as_its_own_host(name: str, other: str, roles: set[Role], text: str) -> None:
    assume(name != other)
    for host in (name, other):
        own = host == name and Role.HOST in roles
        for subject in (
            subjects.host_subject(host),
            subjects.session_subject(host, text),
            subjects.receipt_subject(host, text),
            f"$JS.API.CONSUMER.MSG.NEXT.INBOX.{host}",
            f"$JS.ACK.INBOX.{host}.1.2.3.4.5",
            subjects.event_subject(host, text),
            subjects.account_subject(host, text),
            subjects.work_subject(other, text, host),
        ):
            assert may_publish(name, roles, subject) is own, subject
        holds = host == name and Role.HOST not in roles
        assert may_publish(name, roles, f"$KV.members.{host}") is holds
        follows = host == name and bool(roles & {Role.OPERATOR, Role.VIEWER})
        for subject in (f"$JS.API.CONSUMER.MSG.NEXT.EVENTS.{host}", f"$JS.ACK.EVENTS.{host}.1.2.3.4.5"):
            assert may_publish(name, roles, subject) is follows, subject
        assert may_subscribe(name, roles, f"rq.{host}.act.{other}") is own
        assert may_subscribe(name, roles, f"ap.{host}.x.{other}") is own


@given(HOST, HOST, ROLES, TEXT)
def test_a_key_acts_only_in_its_own_name(name: str, other: str, roles: set[Role], text: str) -> None:
    assume(name != other)
    for sender in (name, other):
        acts = sender == name and Role.OPERATOR in roles
        assert may_publish(name, roles, subjects.message_subject(other, text, text, sender)) is acts
        assert may_publish(name, roles, subjects.request_subject(other, "act", sender)) is acts
        assert may_publish(name, roles, subjects.decision_subject(other, text, sender)) is acts
        assert may_publish(name, roles, subjects.any_subject(text, text, sender)) is acts
        assert may_subscribe(name, roles, subjects.work_subject(sender, text, other)) is acts
        reads = sender == name and bool(roles & {Role.OPERATOR, Role.VIEWER})
        assert may_publish(name, roles, subjects.request_subject(other, "read", sender)) is reads


@given(HOST, HOST, ROLES)
def test_answers_to_one_key_are_read_by_no_other(name: str, other: str, roles: set[Role]) -> None:
    assume(name != other)
    assert may_subscribe(name, roles, f"{subjects.reply_prefix(name)}.x.y")
    assert not may_subscribe(name, roles, f"{subjects.reply_prefix(other)}.x.y")
    assert not may_subscribe(name, roles, "_INBOX.x.y")
    own, another = (subjects.answer_subject(f"rq.{other}.read.{one}", one, "1") for one in (name, other))
    assert may_subscribe(name, roles, own)
    assert not may_subscribe(name, roles, another)
    assert not may_publish(name, roles, own)


@given(HOST, ROLES)
def test_no_key_may_change_streams_or_make_consumers(name: str, roles: set[Role]) -> None:
    for verb in ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "MSG.GET"):
        for stream in ("INBOX", "RECEIPT", "KV_hosts", "KV_sessions", "EVENTS"):
            assert not may_publish(name, roles, f"$JS.API.STREAM.{verb}.{stream}")
            assert not may_publish(name, roles, f"$JS.API.CONSUMER.CREATE.{stream}")
            assert not may_publish(name, roles, f"$JS.API.CONSUMER.CREATE.{stream}.{name}.in.{name}.>")
            assert not may_publish(name, roles, f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{name}")


@given(HOST, HOST)
def test_a_host_reads_nothing_of_another(name: str, other: str) -> None:
    assume(name != other)
    roles = {Role.HOST}
    for stream in ("INBOX", "RECEIPT", "KV_hosts", "KV_sessions", "EVENTS"):
        assert not may_publish(name, roles, f"$JS.API.DIRECT.GET.{stream}")
        assert not may_publish(name, roles, f"$JS.API.DIRECT.GET.{stream}.$KV.hosts.{other}")
    for subject in (f"$KV.hosts.{other}", f"$KV.sessions.{other}.x", f"rc.{other}.x", f"in.{other}.a.b.c"):
        assert not may_subscribe(name, roles, subject)


def test_the_configuration_has_every_key_once_and_none_next_to_the_streams() -> None:
    keys = [KeyRecord("a", "UA", (Role.HOST,)), KeyRecord("b", "UB", (Role.VIEWER,))]
    config = json.loads(server_config(keys, "UADMIN", {"listen": "127.0.0.1:1"}))
    streams, members = config["accounts"]["FLEET"], config["accounts"]["MEMBERS"]
    assert streams["users"] == [{"nkey": "UADMIN"}]
    assert "jetstream" not in members
    assert [one["nkey"] for one in members["users"]] == ["UA", "UB"]
    assert not any("allow_responses" in one["permissions"] for one in members["users"])
    exported = {one.get("service") or one["stream"] for one in streams["exports"]}
    assert exported == {(one.get("service") or one["stream"])["subject"] for one in members["imports"]}
    assert all(one["accounts"] == ["MEMBERS"] for one in streams["exports"])
    assert config["listen"] == "127.0.0.1:1"
