"""What a pool's server and its peers may say: golden bytes, every cut, the bounds, what is out of place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.errors import LocalProtocolError, RemoteProtocolError
from remuda.pool.protocol import (
    MAX_FRAME_BYTES,
    MAX_GREETING_BYTES,
    MAX_PROMPT_BYTES,
    VERSION,
    PoolProtocol,
    encode,
    hello,
)

HELLO = {"type": "hello", "version": VERSION}
RUN = {"type": "run", "prompt": "grüße\n", "options": {"cwd": "/tmp"}}
DONE = {"type": "done", "result": {"text": "x"}, "more": True}
ERROR = {"type": "error", "code": "TIMEOUT", "message": "late"}


def server() -> PoolProtocol:
    return PoolProtocol(server=True)


def peer() -> PoolProtocol:
    return PoolProtocol(server=False)


def heard(conversation: PoolProtocol, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    return [got for one in messages for got in conversation.receive(encode(one))]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def test_encode_golden_gives_length_and_json() -> None:
    assert encode({"type": "cancel"}) == b'\x00\x00\x00\x12{"type": "cancel"}'


def test_receive_cut_at_every_index_gives_each_message_once() -> None:
    stream = encode(HELLO) + encode(RUN) + encode({"type": "cancel"})
    for cut in range(len(stream) + 1):
        one = server()
        got = [*one.receive(stream[:cut]), *one.receive(stream[cut:])]
        assert got == [HELLO, RUN, {"type": "cancel"}]


def test_receive_byte_by_byte_gives_all_in_order() -> None:
    one = peer()
    stream = encode(HELLO) + encode({"type": "token", "text": "a"}) + encode(DONE) + encode({"type": "usage"})
    got = [message for byte in stream for message in one.receive(bytes([byte]))]
    assert [message["type"] for message in got] == ["hello", "token", "done", "usage"]
    assert one.is_over


@given(st.text(alphabet=st.characters(), max_size=50), st.dictionaries(st.text(max_size=9), st.text()))
def test_encode_any_text_comes_out_as_it_went_in(prompt: str, env: dict[str, str]) -> None:
    message = {"type": "run", "prompt": prompt, "options": {"env": env}}
    assert heard(server(), HELLO, message)[1] == message


def test_encode_a_byte_that_is_not_utf8_arrives_unchanged() -> None:
    odd = b"\xff\xfe/x".decode("utf-8", "surrogateescape")
    (_, got) = heard(server(), HELLO, {**RUN, "options": {"env": {"P": odd}}})
    assert got["options"]["env"]["P"].encode("utf-8", "surrogateescape") == b"\xff\xfe/x"


def test_encode_the_largest_prompt_at_its_worst_fits() -> None:
    assert len(encode({"type": "run", "prompt": "\x01" * MAX_PROMPT_BYTES})) < MAX_FRAME_BYTES


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"bytes"])
def test_encode_what_json_cannot_say_is_our_own_error(value: object) -> None:
    with pytest.raises(LocalProtocolError):
        encode({"type": "token", "text": value})


def test_encode_more_than_a_frame_may_have_is_our_own_error() -> None:
    with pytest.raises(LocalProtocolError):
        encode({"type": "run", "prompt": "x" * 100}, max_bytes=50)


def test_receive_ignores_unknown_fields() -> None:
    message = {**RUN, "colour": "red"}
    assert heard(server(), {**HELLO, "mood": 3}, message)[1] == message


def test_receive_a_field_that_is_null_is_as_good_as_absent() -> None:
    message = {**RUN, "options": None, "stream": None}
    assert heard(server(), HELLO, message)[1] == message


@pytest.mark.parametrize(
    "bad",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        framed(b""),
        framed(b"nonsense"),
        framed(b"[1]"),
        framed(b"\xff\xff"),
        framed(b'{"type": "hello", "version": NaN}'),
        framed(b'{"type": 5}'),
        framed(b"{}"),
        framed(b'{"type": "hello"}'),
        framed(b'{"type": "hello", "version": true}'),
        framed(b'{"type": "hello", "version": "1"}'),
        framed(b'{"type": "hello", "version": 1, "protocol": "other"}'),
        framed(b"[" * 50_000),
        framed(b'{"type": "hello", "version": ' + b"1" * 5000 + b"}"),
        encode(RUN),
        encode({"type": "sing"}),
    ],
)
def test_receive_what_no_peer_may_say_first_is_the_peers_error(bad: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        list(server().receive(bad))


@pytest.mark.parametrize(
    "bad",
    [
        HELLO,
        {"type": "cancel"},
        {"type": "decision", "id": "1", "behavior": "allow"},
        {"type": "token", "text": "x"},
        {"type": "run"},
        {"type": "run", "prompt": 5},
        {**RUN, "options": []},
        {**RUN, "stream": "yes"},
        {**RUN, "stream": 1},
        {**RUN, "permissions": {}},
        {"type": "prewarm", "count": "3"},
    ],
)
def test_receive_what_is_out_of_place_or_of_another_type_is_the_peers_error(bad: dict[str, Any]) -> None:
    one = server()
    heard(one, HELLO)
    with pytest.raises(RemoteProtocolError):
        heard(one, bad)


def test_receive_a_second_request_is_the_peers_error() -> None:
    one = server()
    heard(one, HELLO, RUN)
    with pytest.raises(RemoteProtocolError):
        heard(one, RUN)


@pytest.mark.parametrize("bad", [{"type": "run", "prompt": "x"}, {"type": "done"}, {"type": "sing"}])
def test_receive_from_the_server_what_it_may_not_say_is_its_error(bad: dict[str, Any]) -> None:
    one = peer()
    heard(one, HELLO)
    with pytest.raises(RemoteProtocolError):
        heard(one, bad)


def test_receive_an_event_after_the_end_is_the_servers_error() -> None:
    one = peer()
    heard(one, HELLO, DONE)
    with pytest.raises(RemoteProtocolError):
        heard(one, {"type": "token", "text": "late"})


def test_receive_an_error_in_place_of_the_greeting_is_heard() -> None:
    one = peer()
    assert heard(one, ERROR) == [ERROR]
    assert one.is_over


def test_receive_another_version_is_reported_as_that() -> None:
    with pytest.raises(RemoteProtocolError, match="version 2"):
        heard(peer(), {**HELLO, "version": 2})


def test_receive_a_long_greeting_is_refused_by_its_length_alone() -> None:
    with pytest.raises(RemoteProtocolError):
        list(server().receive((MAX_GREETING_BYTES + 1).to_bytes(4, "big")))


def test_receive_a_frame_beyond_the_servers_bound_is_refused_by_its_length_alone() -> None:
    one = PoolProtocol(server=True, max_bytes=1000)
    heard(one, HELLO)
    list(one.receive((1000).to_bytes(4, "big")))
    other = PoolProtocol(server=True, max_bytes=1000)
    heard(other, HELLO)
    with pytest.raises(RemoteProtocolError):
        list(other.receive((1001).to_bytes(4, "big")))


def test_receive_what_was_right_before_an_error_is_still_heard() -> None:
    messages = server().receive(encode(HELLO) + framed(b"x"))
    assert next(messages) == HELLO
    with pytest.raises(RemoteProtocolError):
        next(messages)


@given(st.binary(max_size=200))
def test_receive_any_bytes_give_messages_or_the_peers_error(data: bytes) -> None:
    for one in (server(), peer()):
        try:
            for message in one.receive(data):
                assert isinstance(message["type"], str)
        except RemoteProtocolError:
            pass


def test_hello_says_protocol_and_version() -> None:
    assert json.loads(encode(hello(pid=5))[4:]) == {
        "type": "hello",
        "protocol": "remuda-pool",
        "version": VERSION,
        "pid": 5,
    }
