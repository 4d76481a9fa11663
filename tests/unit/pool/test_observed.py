"""What a pool reports about itself: events, counters, document, log; and who is asked for permissions."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remuda import Allow, Client, Deny, InvalidOptions, PermissionRequest, RemudaError, Usage, WaitTimeout
from remuda.pool.events import Metrics, RequestDone, RequestError, SessionEvicted, SessionSpawned
from remuda.pool.types import Answered, Decision, Permissions, Request, SessionEvent
from remuda.testing.pool import USAGE, FakeAgent, FakeSession
from support.pool import Heard, gated, settled, soon, virtual

# ── events ──


@virtual
async def test_events_report_a_worker_and_a_request() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        await client.run("x", request_id="r1")
    (session,) = agent.sessions
    assert heard.events == [
        SessionSpawned(session.id, "terminal", session.profile.key),
        RequestDone("r1", session.id, 0.0, USAGE),
        SessionEvicted(session.id, "closed", None),
    ]


@virtual
async def test_event_of_a_failure_has_its_code() -> None:
    agent, _ = gated()
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        with pytest.raises(WaitTimeout):
            await client.run("x", timeout=1, request_id="r1")
        assert heard.named("request.error") == [RequestError("r1", "TIMEOUT")]


@virtual
async def test_listener_that_raises_is_logged_and_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    def bad(event: object) -> None:
        raise ZeroDivisionError

    async with Client(session_factory=FakeAgent()) as client:
        for name in ("session.spawned", "request.done"):
            client.on(name, bad)
        heard = Heard(client)
        await client.run("x")
        assert len(heard.events) == 2
    assert caplog.text.count("ZeroDivisionError") >= 2


@virtual
async def test_listener_that_was_removed_is_not_called() -> None:
    heard: list[object] = []
    async with Client(session_factory=FakeAgent()) as client:
        client.on("request.done", heard.append)
        await client.run("x")
        client.off("request.done", heard.append)
        client.off("request.done", heard.append)
        await client.run("x")
    assert len(heard) == 1


@virtual
async def test_listener_may_abort_others() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent, pool_size=2) as client:
        client.on("session.spawned", lambda _: client.abort("two"))
        client.on("request.done", lambda _: client.abort("three"))
        calls = [soon(client.run(name, request_id=name)) for name in ("one", "two", "three")]
        await gate.begun("one")
        gate.open("one")
        done = await asyncio.gather(*calls, return_exceptions=True)
    assert [getattr(end, "code", "done") for end in done] == ["done", "ABORTED", "ABORTED"]


@pytest.mark.parametrize("listener", [None, 3, asyncio.sleep])
def test_listener_that_cannot_be_called_is_refused(listener: Any) -> None:
    with pytest.raises(InvalidOptions):
        Client(session_factory=FakeAgent()).on("request.done", listener)


def test_unknown_event_is_refused() -> None:
    with pytest.raises(InvalidOptions):
        Client(session_factory=FakeAgent()).on("request.dnoe", print)  # type: ignore[arg-type]


# ── counters ──


def sample(text: str, name: str) -> float:
    found = re.search(rf"^remuda_pool_{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found, f"no {name} in {text}"
    return float(found[1])


@virtual
async def test_metrics_count_what_happened() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent, max_requests_per_session=3) as client:
        gate.open("a", "b", "c")
        for prompt in "abc":
            await client.run(prompt)
        with pytest.raises(WaitTimeout):
            await client.run("slow", timeout=1)
        call = soon(client.run("dies", request_id="r"))
        await gate.begun("dies")
        waiting = soon(client.run("waits", request_id="w"))
        await settled()
        busy = client.metrics()
        client.abort("w")
        agent.sessions[-1].crash()
        await asyncio.gather(call, waiting, return_exceptions=True)
        await settled()
        text = client.metrics()
    assert (sample(busy, 'sessions{state="busy"}'), sample(busy, "waiting")) == (1, 1)
    assert (sample(text, "waiting"), sample(text, "size")) == (0, 1)
    assert (sample(text, "spawns_total"), sample(text, "reuses_total")) == (2, 3)
    assert (sample(text, "recycles_total"), sample(text, "crashes_total")) == (1, 1)
    assert sample(text, 'evictions_total{reason="max_requests"}') == 1
    assert sample(text, 'evictions_total{reason="crashed"}') == 1
    assert (sample(text, "timeouts_total"), sample(text, "aborts_total")) == (1, 1)
    assert sample(text, 'requests_total{outcome="done"}') == 3
    assert sample(text, 'requests_total{outcome="TIMEOUT"}') == 1
    assert sample(text, 'requests_total{outcome="SESSION_CRASHED"}') == 1
    assert (sample(text, "handovers_total"), sample(text, "warm_hits_total")) == (5, 3)
    assert sample(text, "warm_hit_ratio") == 0.6
    assert sample(text, "queue_wait_seconds_count") == 5
    assert sample(text, "request_duration_seconds_count") == 6
    assert sample(text, 'request_duration_seconds_bucket{le="+Inf"}') == 6


@virtual
async def test_metrics_count_a_start_that_failed() -> None:
    agent = FakeAgent()

    async def opening(session: FakeSession) -> None:
        raise RemudaError("no")

    agent.opening = opening
    async with Client(session_factory=agent) as client:
        with pytest.raises(RemudaError):
            await client.run("x")
        text = client.metrics()
    assert sample(text, 'spawn_failures_total{code="FAILED"}') == 1
    assert sample(text, "spawns_total") == 0


def test_metrics_of_a_client_that_did_nothing_are_whole() -> None:
    text = Client(session_factory=FakeAgent()).metrics()
    assert sample(text, "spawns_total") == 0
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) remuda_pool_\w+ .+|remuda_pool_\w+(\{[^}]+\})? \S+", line)
    assert text.endswith("\n")


def test_metrics_histogram_counts_into_the_right_buckets() -> None:
    metrics = Metrics()
    for seconds in (0.0, 0.005, 0.006, 1000.0):
        metrics.time("queue_wait_seconds", seconds)
    text = metrics.text({}, 0, 1)
    assert sample(text, 'queue_wait_seconds_bucket{le="0.005"}') == 2
    assert sample(text, 'queue_wait_seconds_bucket{le="0.01"}') == 3
    assert sample(text, 'queue_wait_seconds_bucket{le="300.0"}') == 3
    assert sample(text, 'queue_wait_seconds_bucket{le="+Inf"}') == 4
    assert sample(text, "queue_wait_seconds_sum") == 1000.011


def test_metrics_labels_are_escaped() -> None:
    metrics = Metrics()
    metrics.count("requests", outcome='a"b\\c\nd')
    assert r'{outcome="a\"b\\c\nd"} 1' in metrics.text({}, 0, 1)


@virtual
async def test_stats_is_a_document_of_the_present() -> None:
    agent, gate = gated()
    async with Client(session_factory=agent, pool_size=2) as client:
        call = soon(client.run("one", request_id="r1"))
        await gate.begun("one")
        await asyncio.sleep(5)
        stats: dict[str, Any] = client.stats()
        gate.open("one")
        await call
    assert (stats["backend"], stats["pool_size"], stats["waiting"], stats["spawns"]) == ("terminal", 2, 0, 1)
    (session,) = stats["sessions"]
    assert session == {
        "session_id": agent.sessions[0].id,
        "profile": agent.sessions[0].profile.key,
        "request_profile": agent.sessions[0].profile.request_key,
        "backend": "terminal",
        "state": "busy",
        "served": 1,
        "age": 5.0,
        "request_id": "r1",
    }


# ── log ──


@virtual
async def test_log_has_a_line_and_fields_for_everything_and_no_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent, _ = gated()
    with caplog.at_level(logging.DEBUG, logger="remuda.pool"):
        async with Client(session_factory=agent, env={"KEY": "hush"}) as client:
            with pytest.raises(WaitTimeout):
                await client.run("my hush prompt", timeout=1, request_id="r1")
    events = [record.event for record in caplog.records if hasattr(record, "event")]
    assert events == [
        "session.spawned",
        "request.started",
        "request.error",
        "session.evicted",
    ]
    error = next(record for record in caplog.records if getattr(record, "event", "") == "request.error")
    assert error.fields["code"] == "TIMEOUT"  # type: ignore[attr-defined]
    assert "request.error request_id=r1" in error.getMessage()
    assert 'detail="no answer within 1 s' in error.getMessage()
    assert "hush" not in caplog.text


# ── permissions ──

ASKED = PermissionRequest("p1", "Bash", {"command": "ls"})


async def ask(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
    yield ASKED
    decision = await request.decide(ASKED)
    yield Answered(repr(decision))


async def decided(permissions: Permissions, **options: Any) -> str:
    async with Client(session_factory=FakeAgent(ask), permissions=permissions, **options) as client:
        return (await client.run("x")).text


@virtual
async def test_permissions_deny_and_allow_are_said_without_asking_anybody() -> None:
    assert (await decided("deny")).startswith("Deny(")
    assert await decided("allow") == repr(Allow())


@virtual
async def test_permissions_are_asked_of_the_callback_which_may_change_the_input() -> None:
    asked: list[PermissionRequest] = []

    async def decide(request: PermissionRequest) -> Decision:
        asked.append(request)
        return Allow({"command": "ls -l"})

    assert await decided(decide) == repr(Allow({"command": "ls -l"}))
    assert asked == [ASKED]


@virtual
async def test_permissions_callback_that_fails_is_late_or_says_nonsense_has_denied() -> None:
    async def fail(request: PermissionRequest) -> Decision:
        raise ZeroDivisionError

    async def sleep(request: PermissionRequest) -> Decision:
        await asyncio.sleep(1000)
        return Allow()

    async def mumble(request: PermissionRequest) -> Decision:
        return True  # type: ignore[return-value]

    for handler in (fail, sleep, mumble):
        assert (await decided(handler, permission_timeout=5)).startswith("Deny(message='Permission was not")


@virtual
async def test_permissions_callback_of_a_request_wins_over_the_clients() -> None:
    async def decide(request: PermissionRequest) -> Decision:
        return Deny("no", interrupt=True)

    async with Client(session_factory=FakeAgent(ask), permissions="allow") as client:
        result = await client.run("x", permissions=decide)
    assert result.text == repr(Deny("no", interrupt=True))


@virtual
async def test_permission_for_always_ends_the_worker() -> None:
    async def decide(request: PermissionRequest) -> Decision:
        return Allow(always=True)

    agent = FakeAgent(ask)
    async with Client(session_factory=agent) as client:
        heard = Heard(client)
        await client.run("x", permissions=decide)
        await client.run("y", permissions="allow")
        await settled()
        assert heard.evicted == ["dirty"]
    assert [session.prompts for session in agent.sessions] == [["x"], ["y"]]


@virtual
async def test_permissions_request_is_an_event_of_the_stream_and_names_its_request() -> None:
    async with Client(session_factory=FakeAgent(ask)) as client:
        events = [event async for event in client.stream("x", request_id="r1")]
    assert events[0] == PermissionRequest("p1", "Bash", {"command": "ls"}, request_id="r1")


@virtual
async def test_profile_asks_only_with_a_handler() -> None:
    agent = FakeAgent()
    async with Client(session_factory=agent, pool_size=2) as client:
        await client.run("x")
        await client.run("y", permissions="allow")
    assert [session.profile.asks for session in agent.sessions] == [False, True]


# ── a client that is forgotten ──


def forget(clients: list[Client]) -> None:
    clients.clear()
    gc.collect()


@virtual
async def test_client_without_references_warns_and_ends_its_workers() -> None:
    agent = FakeAgent()
    clients = [Client(session_factory=agent)]
    await clients[0].run("x")
    with pytest.warns(ResourceWarning, match="not closed"):
        forget(clients)
    await settled()
    assert agent.alive == []


def test_client_whose_loop_has_ended_says_so() -> None:
    agent = FakeAgent()
    client = Client(session_factory=agent)

    async def use() -> Usage | None:
        return (await client.run("x")).usage

    asyncio.run(use())
    with pytest.raises(RemudaError):
        asyncio.run(use())
    asyncio.run(client.aclose())
