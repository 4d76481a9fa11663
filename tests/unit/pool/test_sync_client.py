"""The client for programs without a loop. Its loop is a real one, and nothing here waits for a time."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from remuda import (
    Aborted,
    Allow,
    ClientClosed,
    Deny,
    InvalidOptions,
    PermissionRequest,
    SyncClient,
    Token,
    Usage,
)
from remuda.pool.events import RequestError
from remuda.pool.sync import LoopThread
from remuda.pool.types import Answered, Decision, Request, SessionEvent
from remuda.testing.pool import FakeAgent, FakeSession

LONG = 30.0


class Held:
    """Turns that begin, tell so, and never end by themselves."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.agent = FakeAgent(self.answer)

    async def answer(self, session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        yield Token("…")
        self.begun.set()
        await asyncio.Event().wait()


def test_run_and_stream_block_and_answer() -> None:
    with SyncClient(session_factory=FakeAgent()) as client:
        assert client.run("one").text == "REPLY#1 to: one"
        events = list(client.stream("two"))
        assert [event.type for event in events] == ["token", "done"]
        assert client.run("three", request_id="r3").warm
        assert client.stats()["spawns"] == 1
        assert "remuda_pool_spawns_total 1" in client.metrics()


def test_prewarm_complete_and_events() -> None:
    async def tell(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        yield Answered("done")

    agent = FakeAgent(tell)
    agent.late_usage = Usage(1, 2)
    heard: list[object] = []
    with SyncClient(session_factory=agent, pool_size=2) as client:
        client.on("session.spawned", heard.append)
        client.prewarm()
        client.off("session.spawned", heard.append)
        assert client.complete(client.run("x")).usage == Usage(1, 2)
    assert len(heard) == 2
    assert agent.alive == []


def test_many_threads_share_one_client() -> None:
    agent = FakeAgent()
    with SyncClient(session_factory=agent, pool_size=3) as client, ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda number: client.run(f"p{number}"), range(40)))
    assert sorted(result.text.partition(": ")[2] for result in results) == sorted(f"p{n}" for n in range(40))
    assert agent.peak <= 3


def test_errors_are_raised_where_they_are_waited_for() -> None:
    with SyncClient(session_factory=FakeAgent()) as client:
        with pytest.raises(InvalidOptions):
            client.run("")
        with pytest.raises(InvalidOptions):
            client.stream("x", timeout=-1)
        with pytest.raises(InvalidOptions):
            client.run("x", signal=asyncio.Event(), nonsense=1)  # type: ignore[call-arg]


def test_abort_from_another_thread() -> None:
    held = Held()
    with SyncClient(session_factory=held.agent) as client, ThreadPoolExecutor(1) as threads:
        call = threads.submit(client.run, "x", request_id="r1")
        assert held.begun.wait(LONG)
        assert client.abort("r1")
        with pytest.raises(Aborted):
            call.result(LONG)


def test_stream_that_is_closed_early_is_aborted() -> None:
    held = Held()
    codes: list[str] = []
    with SyncClient(session_factory=held.agent) as client:
        client.on("request.error", lambda event: codes.append(event.code))
        events = client.stream("x")
        assert next(events) == Token("…")
        events.close()
    assert codes == ["ABORTED"]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT means what it means to a program, whatever the test runner made of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_while_it_waits_aborts_the_request(interruptible: None) -> None:
    held = Held()
    codes: list[str] = []
    ended = threading.Event()

    def hear(event: RequestError) -> None:
        codes.append(event.code)
        ended.set()

    def interrupt() -> None:
        held.begun.wait(LONG)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with SyncClient(session_factory=held.agent) as client, ThreadPoolExecutor(1) as threads:
        client.on("request.error", hear)
        threads.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.run("x")
        assert ended.wait(LONG)
    assert codes == ["ABORTED"]


def test_work_that_runs_when_the_thread_stops_raises() -> None:
    thread, begun = LoopThread(), threading.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(thread.do, work)
        assert begun.wait(LONG)
        thread.stop()
        with pytest.raises(ClientClosed):
            call.result(LONG)


def test_close_while_others_wait_ends_them() -> None:
    held = Held()
    client = SyncClient(session_factory=held.agent, close_timeout=0)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(client.run, "x")
        assert held.begun.wait(LONG)
        client.close()
        with pytest.raises(ClientClosed):
            call.result(LONG)
    assert held.agent.alive == []


def test_close_again_and_from_many_threads_is_one_end() -> None:
    agent = FakeAgent()
    client = SyncClient(session_factory=agent)
    client.run("x")
    with ThreadPoolExecutor(4) as threads:
        for closing in [threads.submit(client.close) for _ in range(4)]:
            closing.result(LONG)
    client.close()
    with pytest.raises(ClientClosed):
        client.run("x")
    assert agent.sessions[0].log.count("close") == 1


def test_close_after_a_stream_that_was_not_read_to_its_end() -> None:
    client = SyncClient(session_factory=FakeAgent())
    events = client.stream("x")
    next(events)
    client.close()
    events.close()


async def ask(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
    yield Answered(repr(await request.decide(PermissionRequest("p", "Bash", {"command": "ls"}))))


def test_permission_handler_may_be_a_plain_function_that_blocks() -> None:
    threads: list[str] = []

    def decide(request: PermissionRequest) -> Decision:
        threads.append(threading.current_thread().name)
        return Allow({"command": "pwd"})

    with SyncClient(session_factory=FakeAgent(ask)) as client:
        assert client.run("x", permissions=decide).text == repr(Allow({"command": "pwd"}))  # type: ignore[arg-type]
        assert threads == ["remuda-permission"]
        assert client.run("x", permissions="allow").text == repr(Allow())


def test_permission_handler_that_fails_has_denied() -> None:
    def decide(request: PermissionRequest) -> Decision:
        raise ZeroDivisionError

    with SyncClient(session_factory=FakeAgent(ask), permissions=decide) as client:  # type: ignore[arg-type]
        assert client.run("x").text.startswith("Deny(")


def test_permission_handler_may_be_a_coroutine_function() -> None:
    async def decide(request: PermissionRequest) -> Decision:
        return Deny("no")

    with SyncClient(session_factory=FakeAgent(ask), permissions=decide) as client:
        assert client.run("x").text == repr(Deny("no"))


def test_listener_that_waits_for_the_client_is_refused_and_not_stuck() -> None:
    refused: list[str] = []

    def listen(event: object) -> None:
        try:
            client.run("again")
        except InvalidOptions as error:
            refused.append(error.code)

    with SyncClient(session_factory=FakeAgent()) as client:
        client.on("request.done", listen)
        client.run("x")
    assert refused == ["INVALID_OPTIONS"]


def test_wrong_options_start_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(InvalidOptions):
        SyncClient(pool_size=0)
    assert threading.active_count() == before


def forget(clients: list[SyncClient], thread: threading.Thread) -> None:
    clients.clear()
    gc.collect()
    thread.join(LONG)  # its last errand may still hold the client


def test_client_without_references_warns_and_ends_workers_and_thread() -> None:
    agent = FakeAgent()
    clients = [SyncClient(session_factory=agent)]
    clients[0].run("x")
    (thread,) = [one for one in threading.enumerate() if one.name == "remuda-pool"]
    with pytest.warns(ResourceWarning, match="not closed"):
        forget(clients, thread)
    assert not thread.is_alive()
    assert agent.alive == []
