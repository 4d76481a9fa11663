"""The parts of the boss's HTTP that need no server: who is let in, what is well-formed, and the feed."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.server import ServerState

import remuda
from remuda.boss.feed import KEPT, Change, Feed
from remuda.boss.http import schema
from remuda.boss.http.gate import Arrival, Gate, Passed, Refusal, Site, loopback_sites
from remuda.boss.http.openapi import ROUTES
from remuda.boss.http.queue_routes import get_queue, get_sessions
from remuda.boss.http.route import ApiRequest, ApiResponse, error_document, status_of
from remuda.boss.http.schema import check, read_query, record
from remuda.boss.http.server import _socket_protocol
from remuda.boss.http.terminal import serve_terminal
from remuda.boss.ports import BossParts
from remuda.boss.session_details import SessionDetails
from remuda.errors import (
    AlreadyAnswered,
    BadName,
    InvalidOptions,
    NotInQueue,
    RemudaError,
    StoreFailed,
    TmuxMissing,
)
from remuda.keeper.record import SessionRecord
from remuda.paths import SessionPaths, sessions_folder
from support.boss import event, open_service

TOKEN = "t" * 40
GATE = Gate(TOKEN, loopback_sites(4127), lambda method, path: (method, path) == ("POST", "/event"))


def judge(
    method: str = "GET", path: str = "/v1/queue", *, unix: bool = False, **headers: str
) -> Passed | Refusal:
    given_headers = {"host": "127.0.0.1:4127", "authorization": f"Bearer {TOKEN}"} | headers
    found = [
        (name.replace("_", "-").encode(), value.encode()) for name, value in given_headers.items() if value
    ]
    return GATE.judge(method, path, found, Arrival(unix))


def status(*args: Any, **headers: Any) -> int:
    found = judge(*args, **headers)
    return found.status if isinstance(found, Refusal) else 200


# ── the gate ──


def test_gate_lets_ours_in_and_says_the_path() -> None:
    assert judge() == Passed("/v1/queue", site=loopback_sites(4127)[0])
    assert judge("POST", f"/t/{TOKEN}/event", authorization="") == Passed("/event")
    assert status("POST", f"/t/{TOKEN}/skip", authorization="") == 401
    assert status("GET", f"/t/{TOKEN}/event", authorization="") == 401


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"host": "evil:4127"}, 403),
        ({"host": ""}, 403),
        ({"host": "127.0.0.1:4128"}, 403),
        ({"origin": "http://evil"}, 403),
        ({"origin": "http://localhost:4127"}, 200),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "none"}, 200),
        ({"authorization": ""}, 401),
        ({"authorization": TOKEN}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": f"bearer {TOKEN}"}, 200),
        ({"authorization": f"Bearer {TOKEN}x"}, 401),
    ],
)
def test_gate_judges_by_headers(headers: dict[str, str], wanted: int) -> None:
    assert status(**headers) == wanted


LINK = f"/v1/answer/{'s' * 32}"


@pytest.mark.parametrize(
    ("method", "path", "headers", "wanted"),
    [
        ("GET", LINK, {}, 200),
        ("POST", LINK, {}, 200),
        ("GET", f"{LINK}x", {}, 401),
        ("GET", LINK, {"host": "evil:4127"}, 403),
        # Opened from a chat in a browser, but not shown in a frame of its page.
        ("GET", LINK, {"sec_fetch_site": "cross-site", "sec_fetch_dest": "document"}, 200),
        ("GET", LINK, {"sec_fetch_site": "cross-site", "sec_fetch_dest": "iframe"}, 403),
        ("GET", LINK, {"sec_fetch_site": "cross-site", "sec_fetch_dest": "empty"}, 403),
        ("GET", LINK, {"origin": "http://evil"}, 403),
        ("GET", "/v1/queue", {"sec_fetch_site": "cross-site", "sec_fetch_dest": "document"}, 403),
        # Its own page, which a proxy serves under another name.
        ("POST", LINK, {"origin": "https://boss.example", "sec_fetch_site": "same-origin"}, 200),
        ("POST", LINK, {"origin": "https://boss.example", "sec_fetch_site": "cross-site"}, 403),
        ("POST", LINK, {"origin": "https://boss.example"}, 403),
        ("POST", "/event", {"origin": "https://boss.example", "sec_fetch_site": "same-origin"}, 403),
    ],
)
def test_gate_lets_a_link_in_without_a_token_and_only_from_where_it_is_opened(
    method: str, path: str, headers: dict[str, str], wanted: int
) -> None:
    token = {} if "answer" in path else {"authorization": f"Bearer {TOKEN}"}
    assert status(method, path, **{"authorization": "", **token, **headers}) == wanted


def test_gate_on_the_socket_asks_for_the_token_and_not_for_the_host() -> None:
    assert status(unix=True, host="anything") == 200
    assert status(unix=True, authorization="") == 401


def test_gate_answers_options_as_if_there_were_nothing() -> None:
    assert status("OPTIONS", "/event") == 404


@given(st.text(max_size=60))
def test_gate_lets_no_other_token_in(token: str) -> None:
    if token.strip() != TOKEN:
        encoded = token.encode("utf-8", "replace").decode("latin-1")
        found = [(b"host", b"127.0.0.1:4127"), (b"authorization", f"Bearer {encoded}".encode("latin-1"))]
        assert isinstance(GATE.judge("GET", "/v1/queue", found, Arrival()), Refusal)
        assert isinstance(GATE.judge("POST", f"/t/{token}/event", found[:1], Arrival()), Refusal)


COOKIE = "remuda-4127=" + "c" * 43
PAGE = "http://127.0.0.1:4127"
SECURE = Site("https://boss.example")
COOKIES = Gate(
    TOKEN,
    (*loopback_sites(4127), SECURE),
    lambda method, path: (method, path) == ("POST", "/event"),
    login_of=lambda cookie: "me" if cookie.partition("=")[2] == "c" * 43 else None,
)


def by_cookie(
    method: str, path: str, arrival: Arrival | None = None, **headers: str | None
) -> Passed | Refusal:
    sent = {"host": "127.0.0.1:4127", "cookie": COOKIE} | headers
    found = [(name.replace("_", "-").encode(), value.encode()) for name, value in sent.items() if value]
    return COOKIES.judge(method, path, found, arrival or Arrival())


def cookie_status(method: str, path: str, arrival: Any = None, **headers: Any) -> int:
    found = by_cookie(method, path, arrival, **headers)
    if isinstance(found, Refusal):
        return found.status
    return 200 if found.login == "me" else 0


@pytest.mark.parametrize(
    ("method", "path", "headers", "wanted"),
    [
        ("GET", "/v1/queue", {}, 200),
        ("GET", "/", {}, 200),
        ("GET", "/assets/app.js", {}, 200),
        ("GET", "/", {"cookie": "remuda-4127=wrong"}, 0),
        ("GET", "/assets/app.js", {"cookie": None}, 0),
        ("GET", "/manifest.webmanifest", {"cookie": None}, 0),
        ("GET", "/assets/app.js", {"cookie": None, "sec_fetch_site": "cross-site"}, 403),
        ("POST", "/assets/app.js", {"cookie": None}, 401),
        ("GET", "/assets", {"cookie": None}, 401),
        ("GET", "/v1/queue", {"cookie": "remuda-4127=wrong"}, 401),
        ("GET", "/v1/queue", {"cookie": f"remuda-4127=planted; {COOKIE}"}, 200),
        ("GET", "/v1/queue", {"cookie": f"remuda-4128={'c' * 43}"}, 401),
        ("GET", "/v1/queue", {"cookie": f"__Host-remuda={'c' * 43}"}, 401),
        ("GET", "/v1/queue", {"authorization": "Bearer no"}, 401),
        ("GET", "/v1/queue", {"origin": "http://localhost:4127"}, 403),
        ("GET", "/v1/queue", {"sec_fetch_site": "same-site"}, 403),
        ("POST", "/v1/navigate", {"x_remuda": "1", "origin": PAGE}, 200),
        ("POST", "/v1/navigate", {"x_remuda": "1", "sec_fetch_site": "same-origin"}, 200),
        ("POST", "/v1/navigate", {"x_remuda": "1"}, 403),
        ("POST", "/v1/navigate", {"origin": PAGE}, 403),
        ("DELETE", "/v1/navigate", {"origin": PAGE}, 403),
        ("GET", "/v1/sessions/a/terminal", {"upgrade": "websocket"}, 403),
        ("GET", "/v1/sessions/a/terminal", {"upgrade": "WebSocket", "origin": PAGE}, 200),
        ("GET", "/v1/logins", {}, 403),
        ("POST", "/v1/logins/x/revoke", {"x_remuda": "1", "origin": PAGE}, 403),
        ("POST", f"/t/{'c' * 43}/event", {"x_remuda": "1", "origin": PAGE}, 401),
        ("GET", "/v1/queue", {"host": "boss.example"}, 403),
    ],
)
def test_gate_judges_a_cookie(method: str, path: str, headers: dict[str, str | None], wanted: int) -> None:
    assert cookie_status(method, path, **headers) == wanted


def test_gate_takes_a_secure_site_only_by_tls_or_from_the_proxy() -> None:
    headers = {"host": "boss.example", "cookie": f"__Host-remuda={'c' * 43}"}
    assert cookie_status("GET", "/v1/queue", **headers) == 403
    for arrival in (Arrival(tls=True), Arrival(is_proxy=True, is_own=lambda: False)):
        assert by_cookie("GET", "/v1/queue", arrival, **headers) == Passed(
            "/v1/queue", login="me", site=SECURE
        )


def test_gate_lets_no_other_user_of_the_machine_use_a_login() -> None:
    other = Arrival(is_own=lambda: False)
    assert cookie_status("GET", "/v1/queue", other) == 403
    assert cookie_status("POST", f"/login/{'s' * 32}", other, cookie=None) == 403
    assert cookie_status("POST", LINK, other, cookie=None) == 0
    assert cookie_status("GET", "/v1/queue", Arrival(is_own=lambda: True)) == 200
    assert cookie_status("GET", "/v1/queue", Arrival(unix=True)) == 401


# ── schemas ──

_THING = record(
    {"a": schema.TEXT},
    {"n": {"type": "integer", "minimum": 1, "maximum": 9}, "l": schema.several(schema.TEXT)},
)


@pytest.mark.parametrize(
    "value", [{"a": ""}, {"a": "x", "n": 1}, {"a": "x", "n": 9.0}, {"a": "x", "l": ["y"]}]
)
def test_schema_takes_what_fits(value: object) -> None:
    check(value, _THING)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "needs 'a'"),
        ([], "type object"),
        ({"a": 1}, "'a' must be of type string"),
        ({"a": "", "b": 1}, "unknown field 'b'"),
        ({"a": "", "n": 0}, "'n' must be 1 or more"),
        ({"a": "", "n": True}, "type integer"),
        ({"a": "", "n": 1.5}, "type integer"),
        ({"a": "", "l": [1]}, "entry 0 of 'l'"),
    ],
)
def test_schema_says_what_does_not_fit_and_where(value: object, words: str) -> None:
    with pytest.raises(InvalidOptions, match=words):
        check(value, _THING)


def test_schema_says_whether_a_text_is_too_short_or_too_long() -> None:
    with pytest.raises(InvalidOptions, match="at least 1 characters"):
        check("", schema.ID)
    with pytest.raises(InvalidOptions, match="at most 256 characters"):
        check("x" * 257, schema.ID)


def test_id_may_not_end_with_a_newline() -> None:
    check("abc-%1", schema.ID)
    for bad in ("abc\n", "", "a b", "ü", "x" * 300):
        with pytest.raises(InvalidOptions):
            check(bad, schema.ID)


def test_query_is_read_as_what_it_means() -> None:
    shapes = {"n": schema.LIMIT, "b": schema.BOOLEAN, "t": schema.TEXT}
    assert read_query({"n": "5", "b": "true", "t": "x"}, shapes) == {"n": 5, "b": True, "t": "x"}
    for bad in ({"n": "x"}, {"n": "0"}, {"b": "maybe"}, {"z": "1"}, {"n": "9" * 400}):
        with pytest.raises(InvalidOptions):
            read_query(bad, shapes)


def test_errors_have_the_status_of_the_nearest_kind() -> None:
    expected = {InvalidOptions: 400, BadName: 400, NotInQueue: 404, AlreadyAnswered: 409, StoreFailed: 507}
    for kind, wanted in {**expected, TmuxMissing: 502, RemudaError: 500}.items():
        assert status_of(kind("x")) == wanted
    assert error_document("A", "b") == {"error": {"code": "A", "message": "b"}}


def test_no_two_routes_are_the_same_and_only_events_take_a_token_in_their_path() -> None:
    names = [(route.method, route.path) for route in ROUTES]
    assert len(set(names)) == len(names)
    for route in ROUTES:
        if route.token_in_path:
            assert route.method == "POST"
            assert "event" in route.path or "hook" in route.path


def test_one_module_alone_knows_each_engine() -> None:
    room = Path(remuda.__file__).parent
    for engine, module in {"starlette": "web", "uvicorn": "server", "sqlite3": "database"}.items():
        users = {
            path.relative_to(room).as_posix()
            for path in room.rglob("*.py")
            if re.search(rf"^\s*(?:import|from) {engine}\b", path.read_text(), re.MULTILINE)
        }
        assert users - {"boss/records/store.py"} == {
            f"boss/http/{module}.py" if engine != "sqlite3" else "boss/records/database.py"
        }


# ── the feed ──


def _take(feed: Feed, after: str | None, count: int) -> list[Change]:
    async def some() -> list[Change]:
        watcher = feed.watch(after)
        found = [await anext(watcher) for _ in range(count)]
        watcher.close()
        return found

    return asyncio.run(some())


def test_feed_goes_on_from_any_number_that_it_still_has() -> None:
    feed = Feed("boot")
    for number in range(5):
        feed.publish("item", {"n": number})
    assert [change.value["n"] for change in _take(feed, "boot-3", 2)] == [3, 4]
    assert [change.value["n"] for change in _take(feed, "boot-0", 5)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("after", ["other-1", "boot-99", "boot-x", "", "boot-", "-", f"boot-{'9' * 5000}"])
def test_feed_that_cannot_go_on_says_so(after: str) -> None:
    feed = Feed("boot")
    feed.publish("item", {})
    assert [change.kind for change in _take(feed, after, 1)] == ["reset"]


def test_feed_that_has_forgotten_says_so() -> None:
    feed = Feed("boot")
    for _ in range(KEPT + 5):
        feed.publish("item", {})
    assert [change.kind for change in _take(feed, "boot-2", 1)] == ["reset"]


def test_watcher_that_lags_is_asked_to_look_anew_and_goes_on() -> None:
    async def lag() -> list[str]:
        feed = Feed("boot")
        watcher = feed.watch()
        for _ in range(1001):
            feed.publish("item", {})
        feed.publish("session", {})
        found = [(await anext(watcher)).kind for _ in range(2)]
        feed.close()
        assert [change async for change in watcher] == []
        return found

    assert asyncio.run(lag()) == ["reset", "session"]


# ── a terminal ──


def test_terminal_reads_no_more_from_a_client_that_reads_nothing(home: Path) -> None:
    """Each of its messages is answered, and the answers wait in memory."""
    paths = SessionPaths.of("gone", sessions_folder())
    paths.record.parent.mkdir(parents=True, exist_ok=True)
    SessionRecord("gone", "plain", ["true"], "/", 0.0, exit_code=0).save(paths.record)
    most, count = 200_000, 0

    async def receive() -> dict[str, Any]:
        nonlocal count
        count += 1
        await asyncio.sleep(0)
        return {"type": "websocket.receive" if count < most else "websocket.disconnect", "text": "no JSON"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "websocket.send":
            await asyncio.Event().wait()

    async def serve() -> None:
        parts: Any = SimpleNamespace(logins=None)
        task = asyncio.create_task(serve_terminal(parts, "gone", None, receive, send, lambda: None))
        before, turns = -1, 0
        while turns < 1000 or count < 2:  # until it has read nothing for long
            turns = turns + 1 if count == before else 0
            before = count
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(serve())
    assert 1 < count < most


def test_socket_that_is_over_ends_its_terminal_and_waits_for_no_one() -> None:
    """A message that is too large, and a ping that is not answered."""

    async def end() -> None:
        near, far = socket.socketpair()
        app: Any = serve_terminal
        connection: Any = SimpleNamespace(leave=lambda: None)
        config = Config(app, ws="none", loop="none", lifespan="off", log_config=None)
        make = partial(
            _socket_protocol(), connection, config=config, server_state=ServerState(), app_state={}
        )
        transport, protocol = await asyncio.get_running_loop().create_connection(make, sock=near)
        one: Any = protocol
        one.handshake_complete = one.close_sent = True
        with pytest.raises(ClientDisconnected):
            await one.send({"type": "websocket.send", "text": "x"})
        transport.write(bytes(8 << 20))  # no one reads it
        one.keepalive_timeout()
        assert (await one.receive())["type"] == "websocket.disconnect"
        far.close()

    asyncio.run(end())


# ── long lists ──


@pytest.mark.parametrize("get", [get_queue, get_sessions])
def test_long_list_leaves_the_loop_to_others_and_loses_no_change(
    get: Callable[[BossParts, ApiRequest], Awaitable[ApiResponse]], tmp_path: Path
) -> None:
    """A hook waited 4 s while a page with 10,000 items opened."""

    made = 0

    class Query(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:  # asked for each document
            nonlocal made
            made += name == "cut"
            return super().get(name, default)

    async def run() -> None:
        async with open_service(tmp_path) as service:
            await service.take(*(event("stopped", 1.0, session=f"s{number:04}") for number in range(1000)))
            before = service.feed.last_id
            listing = asyncio.ensure_future(get(BossParts(service), ApiRequest(query=Query(cut=4000))))
            while made < 500:
                await asyncio.sleep(0)
            assert not listing.done()
            service.set_details("s0000", SessionDetails(waiting=7))
            document: Any = (await listing).document
            assert len(document.get("items") or document["sessions"]) == 1000
            assert document["last_event_id"] == before != service.feed.last_id  # the change comes after it

    asyncio.run(run())
