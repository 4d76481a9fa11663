"""What hosts say to each other: read again as it was written, and nothing else is believed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from remuda.errors import (
    AlreadyAnswered,
    BadName,
    InputError,
    PermissionRefused,
    RemoteProtocolError,
    RemudaError,
)
from remuda.fleet import exchange, subjects

NAME = some.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._@+-]{0,40}", fullmatch=True)
PROMPT = some.text(min_size=1).filter(lambda text: bool(text.strip()) and "\0" not in text)
OPTIONS = some.fixed_dictionaries(
    {},
    optional={
        "delay": some.floats(0.1, 1e6),
        "ttl": some.floats(0.1, 1e6),
        "dedup": some.text(min_size=1, max_size=20),
        "max_attempts": some.integers(1, 100),
        "command": some.just(True),
    },
)


def message(**changed: Any) -> exchange.FleetMessage:
    given: dict[str, Any] = {"host": "b7", "session": "work", "message_id": "m1-2", "sender": "desk"}
    given |= {"prompt": "hello", "options": {}} | changed
    return exchange.make_message(**given)


def received(one: exchange.FleetMessage, host: str = "b7", **headers: str) -> exchange.FleetMessage:
    return exchange.read_message(one.subject, one.data(), {"Nats-Msg-Id": one.id, **headers}, host)


@given(NAME, PROMPT, OPTIONS)
def test_a_message_comes_as_it_was_sent(session: str, prompt: str, options: dict[str, Any]) -> None:
    sent = message(session=session, prompt=prompt, options=options)
    assert received(sent) == sent


def test_a_message_for_another_host_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        received(message(host="other"))
    with pytest.raises(RemoteProtocolError):  # the server was made to copy one for another host
        exchange.read_message(message().subject, message(host="other").data(), {"Nats-Msg-Id": "m1-2"}, "b7")


def test_a_message_that_the_server_copied_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        received(message(), **{"Nats-Subject": "$KV.hosts.b7"})


def test_a_message_without_its_dedup_id_is_refused() -> None:
    one = message()
    with pytest.raises(RemoteProtocolError):
        exchange.read_message(one.subject, one.data(), {}, "b7")


@pytest.mark.parametrize(
    "options",
    [{"env": {}}, {"delay": "1"}, {"ttl": True}, {"command": 1}, {"max_attempts": 1.5}, {"delay": 1e999}],
)
def test_an_option_that_is_not_known_or_has_another_type_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError):
        message(options=options)
    with pytest.raises(RemoteProtocolError):
        exchange.put_options(replace(message(), options=options), 0.0)


def test_a_message_that_is_too_large_for_the_hub_is_refused() -> None:
    with pytest.raises(InputError):
        message(prompt="€" * (subjects.MAX_PAYLOAD_BYTES // 4)).data()
    with pytest.raises(InputError):
        message(prompt="")
    with pytest.raises(BadName):
        message(session="../x")


def test_delay_and_lifetime_count_from_the_time_of_sending() -> None:
    one = message(options={"delay": 10, "ttl": 60})
    assert exchange.put_options(one, 4.0)["delay"] == 6.0
    assert exchange.put_options(one, 4.0)["ttl"] == 56.0
    assert exchange.put_options(one, -3600.0)["ttl"] == 60.0  # a clock that was set
    assert exchange.put_options(one, 30.0)["delay"] == 0.0
    assert exchange.expiry(one, 100.0) == 160.0
    assert exchange.expiry(message(), 100.0) == math.inf
    held_up = message(options={"ttl": 60.0}, now=20.0)
    read = exchange.read_message(held_up.subject, held_up.data(), {"Nats-Msg-Id": held_up.id}, held_up.host)
    assert exchange.expiry(read, 100.0) == 80.0


def test_a_message_without_a_dedup_key_gets_its_own_id_as_one() -> None:
    assert exchange.put_options(message(), 0.0)["dedup"] == "fleet:m1-2"
    assert exchange.put_options(message(options={"dedup": "mail-1"}), 0.0)["dedup"] == "mail-1"


# ── requests ──

SUBJECT = "rq.b7.act.desk"
REPLY = "an.desk.b7.1"


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("GET", "/v1/sessions", "read"),
        ("GET", "/v1/sessions?all=true", "read"),
        ("GET", "/v1/sessions/work/screen?styled=true", "read"),
        ("GET", "/v1/sessions/work/messages/m1", "read"),
        ("GET", "/v1/queue", "read"),
        ("GET", "/v1/approvals/3f", "read"),
        ("POST", "/v1/sessions", "act"),
        ("POST", "/v1/sessions/work/end", "act"),
        ("POST", "/v1/sessions/work/messages/m1/cancel", "act"),
        ("POST", "/v1/queue/7/snooze", "act"),
        ("POST", "/v1/approvals/3f/answer", "decide"),
    ],
)
def test_a_request_needs_the_right_that_fits_it(method: str, path: str, kind: str) -> None:
    assert exchange.kind_of(method, path) == kind


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/events"),
        ("POST", "/v1/hooks"),
        ("POST", "/v1/logins/links"),
        ("GET", "/v1/logins"),
        ("GET", "/v1/health"),
        ("GET", "/v1/fleet/sessions"),
        ("POST", "/v1/fleet/hosts/x/request"),
        ("GET", "/v1/sessions/work/terminal"),
        ("GET", "/v1/sessions/a%2Fterminal"),
        ("GET", "/v1/sessions/a/../../logins"),
        ("POST", "/v1/sessions/a/b/end"),
        ("GET", "/v1/sessions/work\n/screen"),
        ("GET", "/v1/sessions/a b"),
        ("GET", "/v1/sessions/\N{HIRAGANA LETTER A}"),
        ("DELETE", "/v1/sessions/work"),
        ("GET", "/v1/sessions/" + "a" * 5000),
    ],
)
def test_a_request_for_anything_else_is_refused(method: str, path: str) -> None:
    with pytest.raises(PermissionRefused):
        exchange.kind_of(method, path)


def ask(subject: str = SUBJECT, path: str = "/v1/sessions/work/end", **changed: Any) -> exchange.BossRequest:
    given: dict[str, Any] = {"reply": REPLY, "headers": {}, "now": 99.0} | changed
    data = exchange.write_request("POST", path, {}, 100.0)
    return exchange.read_request(subject, data, host="b7", **given)


def test_a_request_in_time_from_its_sender_is_read() -> None:
    assert ask() == exchange.BossRequest("POST", "/v1/sessions/work/end", {}, "desk")


def test_a_request_that_comes_late_is_refused() -> None:
    with pytest.raises(PermissionRefused, match="too late"):
        ask(now=100.1)


@pytest.mark.parametrize(
    "reply", ["", "an.other.b7.1", "an.desk", "_INBOX_desk.1", "$JS.ACK.INBOX.b7.1", "rq.c.act.desk"]
)
def test_a_request_that_its_sender_did_not_publish_is_refused(reply: str) -> None:
    with pytest.raises(PermissionRefused):
        ask(reply=reply)


def test_a_request_that_the_server_copied_is_refused() -> None:
    with pytest.raises(PermissionRefused):
        ask(headers={"Nats-Subject": "$KV.sessions.x.y"})


def test_the_right_to_read_does_not_give_the_right_to_act() -> None:
    with pytest.raises(PermissionRefused):
        ask("rq.b7.read.desk")
    with pytest.raises(PermissionRefused):
        ask("rq.b7.act.desk", path="/v1/approvals/3f/answer")
    with pytest.raises(PermissionRefused):  # the right to decide another one
        ask("ap.b7.4a.desk", path="/v1/approvals/3f/answer")


def test_a_decision_is_signed_with_the_name_of_the_key() -> None:
    assert ask("ap.b7.3f.desk", path="/v1/approvals/3f/answer").body == {"by": "fleet: desk"}


def test_the_error_of_another_host_is_raised_here_with_its_type() -> None:
    data = exchange.write_error("ALREADY_ANSWERED", "alice has already decided\x1b[2J", None)
    with pytest.raises(AlreadyAnswered) as caught:
        exchange.read_answer(data, "b7")
    assert caught.value.message.startswith("b7: alice has already decided")
    assert "\x1b" not in caught.value.message
    with pytest.raises(RemoteProtocolError):
        exchange.read_answer(b"{}", "b7")


@pytest.mark.parametrize(
    ("code", "hint", "expected"),
    [
        (
            "NOT_IN_QUEUE",
            "did you mean 'work'? 'remuda ls' lists all",
            "did you mean 'b7/work'? 'remuda ls' lists all",
        ),
        ("SESSION_NOT_FOUND", "did you mean 'a' or 'c/b'?", "did you mean 'b7/a' or 'c/b'?"),
        ("SESSION_EXISTS", "end it with 'remuda kill work'", "on b7: end it with 'remuda kill work'"),
        ("INVALID_OPTIONS", "did you mean 'cwd'?", "did you mean 'cwd'?"),
        ("FAILED", None, None),
    ],
)
def test_the_hint_of_another_host_names_no_session_of_this_one(
    code: str, hint: str | None, expected: str | None
) -> None:
    with pytest.raises(RemudaError) as caught:
        exchange.read_answer(exchange.write_error(code, "x", hint), "b7")
    assert caught.value.hint == expected


@given(some.binary(max_size=200))
def test_bytes_of_anyone_are_refused_with_an_error_of_ours(data: bytes) -> None:
    readers = (
        lambda: exchange.read_message("in.b7.work.m1.desk", data, {"Nats-Msg-Id": "m1"}, "b7"),
        lambda: exchange.read_request(SUBJECT, data, REPLY, {}, "b7", 0.0),
        lambda: exchange.read_answer(data, "b7"),
        lambda: exchange.read_session(data, 0.0),
        lambda: exchange.read_receipt(data, "b7"),
    )
    for read in readers:
        with pytest.raises(RemudaError):
            read()


# ── sessions ──


def test_times_of_a_host_whose_clock_is_wrong_are_moved() -> None:
    item = {"id": "i", "session_id": "s", "reason": "stopped", "since": 5000.0, "skip_until": None}
    session = {"id": "s", "agent_state": "idle", "since": 4600.0, "ended": None}
    data = subjects.write(exchange.shown_session(session, item))
    found = exchange.read_session(data, ahead=3600.0)
    assert found["session"]["since"] == 1000.0
    assert found["item"]["since"] == 1400.0
    assert found["item"]["skip_until"] is None


def test_a_session_has_every_field_and_no_time_that_cannot_be_printed() -> None:
    item = {"id": "i", "session_id": "s", "reason": "stopped", "since": 1e308}
    session = {"id": "s", "agent_state": "idle", "since": 1.7e308}
    found = exchange.read_session(subjects.write({"session": session, "item": item}), -1.7e308)
    assert found["session"]["since"] == found["item"]["since"] == 0.0
    assert found["item"]["message"] is found["session"]["name"] is None
    for name in item:
        lacking = {**item, name: None}
        with pytest.raises(RemoteProtocolError):
            exchange.read_session(subjects.write({"session": session, "item": lacking}), 0.0)


def test_long_texts_of_an_item_are_cut() -> None:
    detail = {"tool": "Write", "input": {"content": "x" * 100_000}, "ask": "3f"}
    shown = exchange.shown_session(
        {"id": "s", "title": "t" * 9000}, {"message": "m" * 9000, "detail": detail}
    )
    assert len(subjects.write(shown)) < 10_000
    assert shown["item"]["detail"] == {"tool": "Write", "ask": "3f"}


@pytest.mark.parametrize("field", ["name", "since", "cwd", "agent_state", "degraded", "tokens"])
def test_a_session_with_a_field_of_another_kind_is_refused(field: str) -> None:
    session = {"id": "s", "agent_state": "idle", field: True}
    with pytest.raises(RemoteProtocolError):
        exchange.read_session(subjects.write({"session": session, "item": None}), 0.0)


@pytest.mark.parametrize("field", ["id", "since", "message", "detail", "skip_until", "snooze_until"])
def test_an_item_with_a_field_of_another_kind_is_refused(field: str) -> None:
    with pytest.raises(RemoteProtocolError):
        exchange.read_session(subjects.write({"session": {"id": "s"}, "item": {field: False}}), 0.0)


def test_a_receipt_with_a_step_without_a_stage_is_refused() -> None:
    document = {"host": "b7", "stage": "acked", "steps": [{"at": 1.0}]}
    with pytest.raises(RemoteProtocolError):
        exchange.read_receipt(subjects.write(document), "b7")
