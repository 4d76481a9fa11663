"""Both ends of a connection: what is said at one is heard at the other, however it is cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.errors import LocalProtocolError, RemoteProtocolError
from remuda.wire import connection as wire
from remuda.wire.connection import ClientConnection, KeeperConnection
from remuda.wire.frames import frame
from remuda.wire.messages import MODE_BINARY, PROTOCOL_VERSION, Status, Type, json_frame

CLIENT_SAYS: list[tuple[bytes, wire.KeeperEvent]] = [
    (ClientConnection.input(b"ls\r"), wire.InputReceived(b"ls\r")),
    (ClientConnection.subscribe(), wire.SubscribeAsked()),
    (ClientConnection.ask_status(), wire.StatusAsked()),
    (ClientConnection.resize(120, 40), wire.ResizeAsked(120, 40)),
    (ClientConnection.kill(), wire.KillAsked()),
    (
        ClientConnection.hello("me", read_only=True, window_bytes=9),
        wire.HelloReceived(PROTOCOL_VERSION, "me", True, 9),
    ),
    (
        ClientConnection.request(7, "status", {"explain": True}),
        wire.RequestReceived(7, "status", {"explain": True}),
    ),
    (ClientConnection.ack(4096), wire.OutputAcked(4096)),
    (frame(0xAA, b"future"), wire.UnknownFrame(0xAA)),
    (frame(Type.KILL, b"with a payload"), wire.KillAsked()),
    (frame(Type.STATUS, b"with a payload"), wire.StatusAsked()),
]
STATUS = Status(7, 8, True, 2, 9)


def greeted_keeper() -> KeeperConnection:
    keeper = KeeperConnection()
    list(keeper.receive(ClientConnection.hello("me")))
    return keeper


KEEPER_SAYS: list[tuple[bytes, wire.ClientEvent]] = [
    (frame(Type.OUTPUT, b"\x1b[1mhi"), wire.OutputReceived(b"\x1b[1mhi")),
    (KeeperConnection().status(STATUS), wire.StatusReceived(STATUS)),
    (KeeperConnection().exit(-1), wire.ExitReceived(-1)),
    (
        greeted_keeper().welcome({"name": "w"}),
        wire.WelcomeReceived({"version": PROTOCOL_VERSION, "name": "w"}),
    ),
    (greeted_keeper().response(3, {"ok": True}), wire.ResponseReceived(3, {"id": 3, "ok": True})),
    (greeted_keeper().event({"event": "e"}), wire.EventReceived({"event": "e"})),
    (frame(Type.REPAINT, b"screen"), wire.RepaintReceived(b"screen")),
    (frame(0xEE), wire.UnknownFrame(0xEE)),
]


@pytest.mark.parametrize(("said", "heard"), CLIENT_SAYS, ids=lambda value: type(value).__name__)
def test_keeper_hears_each_word_cut_at_every_index_once(said: bytes, heard: wire.KeeperEvent) -> None:
    for cut in range(len(said) + 1):
        keeper = KeeperConnection()
        assert [*keeper.receive(said[:cut]), *keeper.receive(said[cut:])] == [heard]


@pytest.mark.parametrize(("said", "heard"), KEEPER_SAYS, ids=lambda value: type(value).__name__)
def test_client_hears_each_word_cut_at_every_index_once(said: bytes, heard: wire.ClientEvent) -> None:
    stream = KeeperConnection().greeting() + said
    for cut in range(len(stream) + 1):
        client = ClientConnection()
        assert [*client.receive(stream[:cut]), *client.receive(stream[cut:])] == [heard]


@given(st.lists(st.sampled_from(CLIENT_SAYS), max_size=10), st.integers(1, 40))
def test_keeper_hears_any_talk_in_any_pieces_in_order(
    talk: list[tuple[bytes, wire.KeeperEvent]], size: int
) -> None:
    stream = b"".join(said for said, _ in talk)
    keeper = KeeperConnection()
    heard: list[wire.KeeperEvent] = []
    for start in range(0, len(stream), size):
        heard += keeper.receive(stream[start : start + size])
    assert heard == [event for _, event in talk]


@given(st.binary(max_size=300))
def test_keeper_any_bytes_are_understood_or_refused(data: bytes) -> None:
    try:
        events = list(KeeperConnection().receive(data))
    except RemoteProtocolError:
        return
    assert len(events) <= len(data)


def greeted() -> ClientConnection:
    client = ClientConnection()
    assert list(client.receive(KeeperConnection().greeting())) == []
    return client


@given(st.integers(0, 255), st.binary(max_size=100))
def test_both_ends_any_frame_is_understood_or_refused(kind: int, payload: bytes) -> None:
    for end in (KeeperConnection(), greeted()):
        try:
            assert len(list(end.receive(frame(kind, payload)))) == 1
        except RemoteProtocolError:
            pass


def test_greeting_is_the_binary_mode_byte() -> None:
    assert KeeperConnection().greeting() == b"\x00"


@pytest.mark.parametrize("mode", [b"\x01", b"\x82", b"H"])
def test_client_other_mode_byte_is_refused(mode: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        list(ClientConnection().receive(mode))


@pytest.mark.parametrize("word", ["welcome", "event", "response"])
def test_keeper_additions_without_hello_are_not_said(word: str) -> None:
    keeper = KeeperConnection()
    say: dict[str, Any] = {
        "welcome": lambda: keeper.welcome({}),
        "event": lambda: keeper.event({}),
        "response": lambda: keeper.response(1, {}),
    }
    with pytest.raises(LocalProtocolError):
        say[word]()


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"version": "1"},
        {"version": None},
        {"version": 1, "window": -1},
        {"version": 1, "window": "big"},
        {"version": 1, "window": 1.5},
    ],
)
def test_keeper_malformed_hello_is_refused(document: dict[str, Any]) -> None:
    keeper = KeeperConnection()
    with pytest.raises(RemoteProtocolError):
        list(keeper.receive(json_frame(Type.HELLO, document)))
    assert keeper.hello is None


def test_keeper_hello_read_only_other_than_true_is_not_read_only() -> None:
    keeper = KeeperConnection()
    list(keeper.receive(json_frame(Type.HELLO, {"version": 99, "read_only": "yes", "more": [1]})))
    assert keeper.hello == wire.HelloReceived(99, "", False, 0)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"id": 1},
        {"op": "x"},
        {"id": "1", "op": "x"},
        {"id": 1, "op": 2},
        {"id": 1, "op": "x", "args": []},
    ],
)
def test_keeper_malformed_request_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError):
        list(KeeperConnection().receive(json_frame(Type.REQUEST, document)))


@pytest.mark.parametrize("kind", [Type.RESIZE, Type.ACK, Type.HELLO, Type.REQUEST])
def test_keeper_known_word_with_a_wrong_payload_is_refused(kind: Type) -> None:
    with pytest.raises(RemoteProtocolError):
        list(KeeperConnection().receive(frame(kind, b"\x00\x00\x00")))


@pytest.mark.parametrize("kind", [Type.EXIT, Type.STATUS_RESP, Type.WELCOME, Type.RESPONSE, Type.EVENT])
def test_client_known_word_with_a_wrong_payload_is_refused(kind: Type) -> None:
    with pytest.raises(RemoteProtocolError):
        list(greeted().receive(frame(kind, b"[]x")))


def test_client_is_between_frames_after_the_greeting_and_every_whole_frame() -> None:
    client = ClientConnection()
    between = [client.between_frames]
    for byte in MODE_BINARY + 2 * frame(Type.OUTPUT, b"xyz"):
        list(client.receive(bytes((byte,))))
        between.append(client.between_frames)
    assert between == [False, True] + 2 * ([False] * 7 + [True])
