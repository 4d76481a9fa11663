"""Requests that come one after another on a connection, before the first is answered."""

from __future__ import annotations

import socket

import pytest

from support.boss import RunningBoss
from support.floods import flood
from support.heimdall_client import PATIENCE

LINK = f"GET /v1/answer/{'A' * 32}"
REFUSED = {
    "401": "GET /v1/queue HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n",
    "403": "GET / HTTP/1.1\r\n\r\n",
    "404": "OPTIONS / HTTP/1.1\r\n\r\n",
    "link": LINK + " HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n",
    "link_posted": LINK.replace("GET", "POST")
    + " HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: application/json\r\n"
    + 'Content-Length: 20\r\n\r\n{{"behavior":"allow"}}',
}
MANY = 500
QUESTIONS = 20
each_refused = pytest.mark.parametrize("request_text", REFUSED.values(), ids=REFUSED.keys())


def all_answers(boss: RunningBoss, *data: bytes) -> bytes:
    """What the boss sends on one connection until it ends it."""
    got = b""
    with socket.create_connection(("127.0.0.1", boss.port), PATIENCE) as sock:
        for part in data:
            sock.sendall(part)
        try:
            while part := sock.recv(1 << 16):
                got += part
        except ConnectionResetError:  # it closed with data unread
            pass
    return got


def with_token(boss: RunningBoss, path: str, *more: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", f"Host: localhost:{boss.port}", f"Authorization: Bearer {boss.token}"]
    return "\r\n".join([*lines, *more, "", ""]).encode()


@each_refused
def test_pipeline_without_token_gets_one_answer_and_is_closed(boss: RunningBoss, request_text: str) -> None:
    one = request_text.format(port=boss.port).encode()
    got = all_answers(boss, one * MANY)
    assert got.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in got.lower()


@each_refused
def test_request_without_token_alone_closes_its_connection(boss: RunningBoss, request_text: str) -> None:
    got = all_answers(boss, request_text.format(port=boss.port).encode())
    assert (got.count(b"HTTP/1.1 "), got.lower().count(b"connection: close")) == (1, 1)


def test_pipeline_with_token_is_answered_whole(boss: RunningBoss) -> None:
    one, last = with_token(boss, "/v1/queue"), with_token(boss, "/v1/queue", "Connection: close")
    assert all_answers(boss, one * 9 + last).count(b"HTTP/1.1 200 ") == 10


@pytest.mark.parametrize("path", [LINK.split()[1], "/t/wrong-token-of-some-length/v1/queue"])
def test_pipeline_with_token_ends_at_what_needs_or_shows_none(boss: RunningBoss, path: str) -> None:
    good, bad = with_token(boss, "/v1/queue"), f"GET {path} HTTP/1.1\r\nHost: localhost:{boss.port}\r\n\r\n"
    got = all_answers(boss, good + bad.encode() + good * 9)
    assert (got.count(b"HTTP/1.1 "), got.count(b"HTTP/1.1 200 ")) == (2, 1)


@each_refused
def test_boss_flooded_with_pipelines_answers_on_both_sockets(boss: RunningBoss, request_text: str) -> None:
    with flood(boss.port, 64, request_text.format(port=boss.port) * MANY):
        for _ in range(QUESTIONS):
            assert boss.client.get("queue")["items"] == []
            assert boss.ask("GET", "/v1/queue").status == 200


def test_large_body_with_a_wrong_token_is_answered_with_401(boss: RunningBoss) -> None:
    for _ in range(QUESTIONS):
        assert boss.ask("POST", "/v1/events", b"x" * (8 << 20), token="wrong").status == 401


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01", b"GET / HTTP/1.1\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"]
)
def test_request_that_is_not_http_leaves_no_line_in_the_log(boss: RunningBoss, data: bytes) -> None:
    before = boss.folder.log.read_text()
    for _ in range(QUESTIONS):
        assert all_answers(boss, data)
    assert boss.folder.log.read_text() == before
