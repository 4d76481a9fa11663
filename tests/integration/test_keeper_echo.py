"""The short way of a key and its echo says the same as the long one, whatever comes next to it."""

from __future__ import annotations

import pytest

from remuda.keeper.client import KeeperClient
from remuda.wire.connection import ClientConnection
from support.keeper import Kept, Start, output_until

CAT = ["sh", "-c", "printf READY; exec cat"]
RAW_CAT = ["sh", "-c", "stty raw -echo; printf READY; exec cat"]
WORD = "echoing"
FOREVER_MS = 600_000


def attached(kept: Kept, ready: bytes = b"READY") -> KeeperClient:
    client = kept.hello()
    client.send(ClientConnection.subscribe())
    output_until(client, ready)
    return client


def type_slowly(client: KeeperClient, keys: bytes) -> None:
    """Each key is waited for, as a person does."""
    for key in keys:
        client.send(ClientConnection.input(bytes((key,))))
        output_until(client, bytes((key,)))


def test_key_that_was_echoed_is_on_the_screen_at_once(start: Start) -> None:
    client = attached(start("s", CAT))
    for number, key in enumerate(WORD.encode(), 1):
        type_slowly(client, bytes((key,)))
        assert client.request("screen")["lines"][0] == "READY" + WORD[:number]


def test_key_that_was_echoed_is_in_the_history_at_once(start: Start) -> None:
    kept = start("s", CAT)
    type_slowly(attached(kept), WORD.encode())
    assert kept.subscriber().read_until(WORD.encode()) == b"READY" + WORD.encode()


def test_key_that_was_echoed_counts_as_activity_at_once(start: Start) -> None:
    client = attached(start("s", ["cat"], idle_threshold_ms=FOREVER_MS), ready=b"")
    assert client.describe()["state"] == "idle"
    type_slowly(client, b"x")
    assert client.describe()["state"] == "active"


@pytest.mark.parametrize("keys", [b"plain", b"a\x1bb\x1b[Ac", b"\x00\x7f\xff\x80"])
def test_keys_arrive_in_their_order_and_as_they_are(start: Start, keys: bytes) -> None:
    client = attached(start("s", RAW_CAT))
    type_slowly(client, b"0")
    for key in keys:
        client.send(ClientConnection.input(bytes((key,))))
    client.send(ClientConnection.input(b"in one piece") + ClientConnection.input(b"."))
    assert output_until(client, b"in one piece.") == keys + b"in one piece."


def test_what_looks_like_a_key_within_a_frame_is_not_taken_for_one(start: Start) -> None:
    kept = start("s", RAW_CAT)
    client, other = attached(kept), kept.hello()
    type_slowly(client, b"0")
    looks = ClientConnection.input(b"k")
    whole = ClientConnection.input(looks + b"!")
    for piece in (whole[:5], looks, b"!"):
        client.send(piece)
        other.status()  # so that each is read by itself
    assert output_until(client, b"!") == looks + b"!"


def test_key_of_a_client_that_only_watches_is_refused_also_after_it_typed(start: Start) -> None:
    client = attached(start("s", CAT))
    type_slowly(client, b"a")
    for said in (
        ClientConnection.hello("again", read_only=True),
        ClientConnection.input(b"b"),
        ClientConnection.hello("again"),
    ):
        client.send(said)
        client.status()  # so that each is read by itself
    type_slowly(client, b"c")
    assert client.request("screen")["lines"][0] == "READYac"
