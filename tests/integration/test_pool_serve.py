"""A pool behind its socket: requests of other processes, their own folder and environment, their end."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import stat
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.cli.pool_serve import command
from remuda.errors import (
    Aborted,
    AgentError,
    FolderUnusable,
    InvalidOptions,
    LocalProtocolError,
    PoolExhausted,
    PoolNotServed,
    SessionCrashed,
    SessionExists,
    WaitTimeout,
)
from remuda.pool.door import Door
from remuda.pool.line import Line, request
from remuda.pool.remote import RemoteClient
from remuda.pool.serve import ServeLimits
from remuda.pool.types import (
    Allow,
    Answered,
    Decision,
    Deny,
    Done,
    Failed,
    PermissionRequest,
    Raw,
    Request,
    SessionEvent,
    Token,
    ToolResult,
    ToolUse,
    Usage,
)
from remuda.testing.pool import FakeAgent, FakeSession
from serving import served, within


class Busy:
    """An agent whose turns end when the test says so."""

    def __init__(self) -> None:
        self.agent = FakeAgent(self._answer)
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.stopped = asyncio.Event()

        async def interrupting(session: FakeSession) -> None:
            self.stopped.set()

        self.agent.interrupting = interrupting

    async def _answer(self, session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        self.begun.set()
        yield Token("…")
        await self.go_on.wait()
        yield Answered("at last", usage=Usage())


def asking(*answers: Decision) -> tuple[FakeAgent, list[Decision]]:
    """An agent that wants a permission for each turn, and what it was told."""
    told: list[Decision] = []

    async def answer(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        asked = PermissionRequest("p1", "Bash", {"command": "ls"}, request.id, ({"type": "x"},))
        yield asked
        told.append(await request.decide(asked))
        yield Answered("done", usage=Usage())

    return FakeAgent(answer), told


# ── requests ──


def test_run_through_the_server_is_as_in_the_same_process(home: Path) -> None:
    async def test() -> None:
        async with served(home) as pool:
            here = await pool.client.run("one", env={}, cwd="/")
            there = await pool.remote.run("one", cwd="/", env=dict.fromkeys(os.environ))
            assert (here.text, there.text) == ("REPLY#1 to: one", "REPLY#2 to: one")
            assert there.session_id == here.session_id
            assert there.usage == here.usage
            assert there.backend == here.backend
            assert there.duration > 0

    within(test())


def test_run_folder_and_environment_are_the_callers_and_nothing_of_the_servers(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        monkeypatch.setenv("ONLY_OF_THE_SERVER", "1")
        async with served(home, pool_size=2) as pool:
            monkeypatch.delenv("ONLY_OF_THE_SERVER")
            monkeypatch.setenv("OF_THE_CALLER", "secret")
            monkeypatch.setenv("SHLVL", "7")
            await pool.remote.run("x", cwd=home, env={"MORE": "1"})
            profile = pool.agent.sessions[0].profile
            assert profile.cwd == str(home)
            assert profile.env["OF_THE_CALLER"] == "secret"
            assert profile.env["MORE"] == "1"
            assert profile.env["PWD"] == str(home)
            assert not {"ONLY_OF_THE_SERVER", "SHLVL"} & profile.env.keys()
            # From another shell, in another terminal: the same session.
            monkeypatch.setenv("SHLVL", "8")
            monkeypatch.setenv("TMUX_PANE", "%9")
            result = await pool.remote.run("x", cwd=home, env={"MORE": "1"})
            assert result.session_id == pool.agent.sessions[0].id

    within(test())


def test_stream_gives_every_event_in_order(home: Path) -> None:
    async def answer(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        yield Token("grü")
        yield ToolUse("t1", "Bash", {"command": "ls"})
        if request.raw:
            yield Raw({"type": "system"})
        yield ToolResult("t1", [{"type": "text", "text": "x"}], is_error=True)
        yield Answered("grüße", usage=Usage(1))

    async def test() -> None:
        async with served(home, FakeAgent(answer)) as pool:
            events = [event async for event in pool.remote.stream("x")]
            assert events[:3] == [
                Token("grü"),
                ToolUse("t1", "Bash", {"command": "ls"}),
                ToolResult("t1", [{"type": "text", "text": "x"}], is_error=True),
            ]
            assert isinstance(events[3], Done)
            assert events[3].result.usage == Usage(1)
            raw = [event async for event in pool.remote.stream("x", raw=True)]
            assert Raw({"type": "system"}) in raw

    within(test())


def test_complete_learns_the_usage_that_comes_behind_the_answer(home: Path) -> None:
    async def answer(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        yield Answered("x")

    async def test() -> None:
        agent = FakeAgent(answer)
        agent.late_usage = Usage(7, 8)
        async with served(home, agent) as pool:
            result = await pool.remote.run("x")
            assert (await pool.remote.complete(result)).usage == Usage(7, 8)
            assert (await pool.remote.complete(result)).usage == Usage(7, 8)

    within(test())


def test_run_many_at_once_each_gets_its_own_answer_and_no_more_sessions_than_the_pool_has(
    home: Path,
) -> None:
    async def test() -> None:
        async with served(home, pool_size=3) as pool:
            results = await asyncio.gather(*(pool.remote.run(f"number {n}") for n in range(40)))
            assert [one.text.partition(": ")[2] for one in results] == [f"number {n}" for n in range(40)]
            assert pool.agent.peak <= 3

    within(test())


def test_run_the_longest_prompt_comes_through(home: Path) -> None:
    async def test() -> None:
        async with served(home) as pool:
            prompt = "\x01ä\n" * (10 * 2**20 // 4)
            result = await pool.remote.run(prompt)
            assert result.text == f"REPLY#1 to: {prompt}"

    within(test())


def test_run_a_pool_that_is_as_required_serves(home: Path) -> None:
    async def test() -> None:
        async with served(home) as pool:
            with pool.talk() as talk:
                await talk.greet()
                options = {"cwd": "/", "env": {}}
                requires = {"backend": "terminal"}
                await talk.say({"type": "run", "prompt": "x", "options": options, "requires": requires})
                assert (await talk.hear())["type"] == "done"

    within(test())


# ── errors ──


@pytest.mark.parametrize(
    "error", [AgentError("API Error: 400"), SessionCrashed("gone", detail="exit:1 -- stderr: boom")]
)
def test_run_what_the_agent_fails_with_is_raised_at_the_caller(home: Path, error: Exception) -> None:
    async def answer(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        yield Token("x")
        raise error

    async def test() -> None:
        async with served(home, FakeAgent(answer)) as pool:
            with pytest.raises(type(error)) as caught:
                await pool.remote.run("x")
            if isinstance(error, SessionCrashed):
                assert isinstance(caught.value, SessionCrashed)
                assert caught.value.detail == error.detail
            stream = pool.remote.stream("x")
            assert isinstance(await anext(stream), Token)
            assert isinstance(await anext(stream), Failed)
            with pytest.raises(type(error)):
                await anext(stream)

    within(test())


@pytest.mark.parametrize(
    "options",
    [{"model": 5}, {"max_turns": 3}, {"extra_args": ["--resume", "x"]}, {"cwd": "/no/such"}, {"timeout": -1}],
)
def test_run_options_that_cannot_be_honoured_are_refused_before_anything_runs(
    home: Path, options: dict[str, object]
) -> None:
    async def test() -> None:
        async with served(home) as pool:
            with pytest.raises(InvalidOptions):
                await pool.remote.run("x", **options)  # type: ignore[arg-type]
            assert not pool.agent.sessions

    within(test())


def test_run_timeout_is_the_requests_own(home: Path) -> None:
    async def test() -> None:
        busy = Busy()
        async with served(home, busy.agent) as pool:
            with pytest.raises(WaitTimeout):
                await pool.remote.run("x", timeout=0.1)
            await busy.stopped.wait()

    within(test())


# ── cancelling ──


def test_run_cancelled_stops_the_turn_and_the_session_serves_on(home: Path) -> None:
    async def test() -> None:
        busy = Busy()
        async with served(home, busy.agent) as pool:
            task = asyncio.create_task(pool.remote.run("x"))
            await busy.begun.wait()
            task.cancel()
            await busy.stopped.wait()
            busy.go_on.set()
            assert (await pool.remote.run("y")).text == "at last"
            assert len(busy.agent.sessions) == 1

    within(test())


def test_run_signal_is_aborted_and_stops_the_turn(home: Path) -> None:
    async def test() -> None:
        busy, signal = Busy(), asyncio.Event()
        async with served(home, busy.agent) as pool:
            task = asyncio.create_task(pool.remote.run("x", signal=signal))
            await busy.begun.wait()
            signal.set()
            with pytest.raises(Aborted):
                await task
            await busy.stopped.wait()

    within(test())


def test_stream_left_early_stops_the_turn(home: Path) -> None:
    async def test() -> None:
        busy = Busy()
        async with served(home, busy.agent) as pool:
            stream = pool.remote.stream("x")
            assert isinstance(await anext(stream), Token)
            await stream.aclose()
            await busy.stopped.wait()

    within(test())


def test_cancel_by_message_is_answered_with_aborted(home: Path) -> None:
    async def test() -> None:
        busy = Busy()
        async with served(home, busy.agent) as pool:
            with pool.talk() as talk:
                await talk.greet()
                await talk.say({"type": "run", "prompt": "x", "options": {"cwd": "/", "env": {}}})
                await busy.begun.wait()
                await talk.say({"type": "cancel"})
                assert [message["code"] for message in await talk.all()] == ["ABORTED"]
            await busy.stopped.wait()

    within(test())


def test_cancel_by_the_end_of_sending_stops_the_turn(home: Path) -> None:
    async def test() -> None:
        busy = Busy()
        async with served(home, busy.agent) as pool:
            with pool.talk() as talk:
                await talk.greet()
                await talk.say({"type": "run", "prompt": "x", "options": {"cwd": "/", "env": {}}})
                await busy.begun.wait()
                talk.end_sending()
                await busy.stopped.wait()

    within(test())


# ── permissions ──


@pytest.mark.parametrize("decision", [Allow({"command": "pwd"}), Deny("not today")])
def test_permission_is_the_peers_to_decide_over_the_same_connection(home: Path, decision: Decision) -> None:
    asked: list[PermissionRequest] = []

    async def decide(request: PermissionRequest) -> Decision:
        asked.append(request)
        return decision

    async def test() -> None:
        agent, told = asking()
        async with served(home, agent) as pool:
            result = await pool.remote.run("x", permissions=decide, request_id="mine")
            assert result.request_id == "mine"
            events = [event async for event in pool.remote.stream("x", permissions=decide)]
        assert told == [decision, decision]
        assert asked[0] == PermissionRequest("p1", "Bash", {"command": "ls"}, "mine", ({"type": "x"},))
        assert sum(isinstance(event, PermissionRequest) for event in events) == 1

    within(test())


@pytest.mark.parametrize(("policy", "kind"), [(None, Allow), ("deny", Deny), ("allow", Allow)])
def test_permission_without_a_peer_who_decides_follows_the_policy(
    home: Path, policy: str | None, kind: type
) -> None:
    async def test() -> None:
        agent, told = asking()
        async with served(home, agent, permissions="allow") as pool:
            await pool.remote.run("x", permissions=policy)  # type: ignore[arg-type]
        assert [type(one) for one in told] == [kind]

    within(test())


def test_permission_of_a_peer_who_hangs_up_is_not_given(home: Path) -> None:
    async def test() -> None:
        agent, told = asking()
        async with served(home, agent) as pool:
            with pool.talk() as talk:
                await talk.greet()
                options = {"cwd": "/", "env": {}}
                await talk.say({"type": "run", "prompt": "x", "options": options, "permissions": "ask"})
                assert (await talk.hear())["decide"] is True
            while not pool.server.status()["pool"]["aborts"]:
                await asyncio.sleep(0.01)
        assert not any(isinstance(one, Allow) for one in told)

    within(test())


# ── what else can be asked ──


def test_stats_and_metrics_tell_of_the_pool(home: Path) -> None:
    async def test() -> None:
        async with served(home, pool_size=2) as pool:
            await pool.remote.run("x")
            stats = await pool.remote.stats()
            assert stats["pool_size"] == 2
            assert stats["pid"] == os.getpid()
            assert stats["served"] == 1
            assert len(stats["pool"]["sessions"]) == 1
            assert "remuda_pool_requests_total" in await pool.remote.metrics()

    within(test())


def test_prewarm_makes_sessions_that_serve_the_same_caller(home: Path) -> None:
    async def test() -> None:
        async with served(home, pool_size=2) as pool:
            await pool.remote.prewarm(2, model="opus")
            assert len(pool.agent.alive) == 2
            assert (await pool.remote.run("x", model="opus")).warm
            with pytest.raises(InvalidOptions):
                await pool.remote.prewarm(9)

    within(test())


def test_prewarm_for_callers_that_decide_on_permissions_serves_them(home: Path) -> None:
    async def decide(request: PermissionRequest) -> Allow:
        return Allow()

    async def test() -> None:
        async with served(home, pool_size=2) as pool:
            await pool.remote.prewarm(1, permissions=decide)
            assert (await pool.remote.run("x", permissions="allow")).warm
            assert not (await pool.remote.run("x")).warm

    within(test())


def test_timeout_that_is_no_number_is_refused(home: Path) -> None:
    async def test() -> None:
        async with served(home) as pool:
            with pytest.raises(InvalidOptions):
                await pool.remote.run("x", timeout="long")  # type: ignore[arg-type]

    within(test())


def test_blocking_question_is_answered(home: Path) -> None:
    async def test() -> None:
        async with served(home) as pool:
            answer = await asyncio.to_thread(request, str(pool.path), {"type": "status"})
            assert answer["status"]["state"] == "serving"

    within(test())


# ── the socket ──


def test_socket_is_for_this_user_alone(home: Path) -> None:
    async def test() -> None:
        before = os.umask(0)
        try:
            async with served(home / "new") as pool:
                assert stat.S_IMODE(pool.path.stat().st_mode) == 0o600
                assert stat.S_IMODE(pool.path.parent.stat().st_mode) == 0o700
        finally:
            os.umask(before)
        assert not os.listdir(home / "new")

    within(test())


def test_socket_of_a_live_server_is_refused_and_a_stale_one_replaced(home: Path) -> None:
    async def test() -> None:
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(home / "pool.sock"))
        async with served(home) as pool:
            with pytest.raises(SessionExists):
                Door(str(pool.path)).open()
            assert (await pool.remote.run("x")).text

    within(test())


def test_socket_of_a_stranger_who_listens_is_left_alone(home: Path) -> None:
    path = home / "pool.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(SessionExists):
            Door(str(path)).open()
        assert path.exists()
    assert os.listdir(home) == ["pool.sock"]


def test_socket_path_of_a_file_is_left_alone(home: Path) -> None:
    (home / "pool.sock").write_text("mine")
    with pytest.raises(FolderUnusable):
        Door(str(home / "pool.sock")).open()
    assert (home / "pool.sock").read_text() == "mine"


def test_socket_of_another_who_came_after_is_not_removed(home: Path) -> None:
    async def test() -> None:
        async with served(home) as pool:
            pool.path.unlink()
            with socket.socket(socket.AF_UNIX) as other:
                other.bind(str(pool.path))
            made = pool.path.stat().st_ino
        assert pool.path.stat().st_ino == made

    within(test())


def test_nobody_there_is_not_served_and_a_file_there_is_no_socket(home: Path) -> None:
    async def test() -> None:
        remote = RemoteClient(home / "pool.sock")
        with pytest.raises(PoolNotServed):
            await remote.run("x")
        (home / "pool.sock").write_text("")
        with pytest.raises(FolderUnusable):
            await remote.run("x")

    within(test())


# ── the end ──


def test_end_lets_what_runs_end_and_refuses_the_rest(home: Path) -> None:
    async def test() -> None:
        busy = Busy()
        ending = asyncio.Event()

        async def serve() -> None:
            async with served(home, busy.agent, close_timeout=20.0) as pool:
                waiting.set_result(pool)
                await ending.wait()

        waiting = asyncio.get_running_loop().create_future()
        server = asyncio.create_task(serve())
        pool = await waiting
        running = asyncio.create_task(pool.remote.run("x"))
        await busy.begun.wait()
        early = pool.talk()  # connected, and has asked nothing yet
        await early.greet()
        ending.set()
        while pool.path.exists():
            await asyncio.sleep(0.01)
        with pytest.raises(PoolNotServed):
            await pool.remote.run("y")
        await early.say({"type": "run", "prompt": "x", "options": {"cwd": "/", "env": {}}})
        assert (await early.hear())["code"] == "CLIENT_CLOSED"
        early.close()
        busy.go_on.set()
        assert (await running).text == "at last"
        await server

    within(test())


def test_shutdown_by_a_peer_is_told_when_all_has_ended(home: Path) -> None:
    async def test() -> None:
        busy = Busy()

        async def serve() -> None:
            async with served(home, busy.agent) as pool:
                await pool.remote.prewarm(1)
                ready.set()
                await pool.server.asked_to_stop.wait()

        ready = asyncio.Event()
        server = asyncio.create_task(serve())
        await ready.wait()

        def stop() -> tuple[str, bool, bool]:
            with Line(str(home / "pool.sock")) as line:
                line.ask({"type": "shutdown"})
                answer = line.next()["type"]
                return answer, line.wait_for_end(20.0), bool(busy.agent.alive)

        assert await asyncio.to_thread(stop) == ("stopping", True, False)
        await server

    within(test())


# ── limits ──


def test_limit_of_connections_is_told_and_holds(home: Path) -> None:
    async def test() -> None:
        async with served(home, limits=ServeLimits(max_connections=2)) as pool:
            with pool.talk() as one, pool.talk() as two:
                await one.greet()
                await two.greet()
                with pytest.raises(PoolExhausted):
                    await pool.remote.run("x")
            while pool.server.status()["connections"]:
                await asyncio.sleep(0.01)
            assert (await pool.remote.run("x")).text

    within(test())


def test_limit_of_waiting_requests_is_told_at_once(home: Path) -> None:
    async def test() -> None:
        busy = Busy()
        async with served(home, busy.agent, limits=ServeLimits(max_queue=1)) as pool:
            tasks = [asyncio.create_task(pool.remote.run("x")) for _ in range(2)]
            while pool.server.status()["requests"] < 2:
                await asyncio.sleep(0.01)
            with pytest.raises(PoolExhausted):
                await pool.remote.run("x")
            busy.go_on.set()
            assert [one.text for one in await asyncio.gather(*tasks)] == ["at last"] * 2

    within(test())


def test_limit_of_a_body_is_told_though_the_peer_still_sends(home: Path) -> None:
    async def test() -> None:
        async with served(home, limits=ServeLimits(max_body_bytes=1 << 20)) as pool:
            with pytest.raises(LocalProtocolError):
                await pool.remote.run("x" * (9 << 20))
            assert (await pool.remote.run("small")).text

    within(test())


# ── the page about it ──


def test_example_of_the_page_runs(home: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/pool.md").read_text()
    [example] = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    body = textwrap.indent(example, "    ")
    program = f"async def main():\n{body}\n    return result"

    async def test() -> None:
        async with served(home):
            found: dict[str, Any] = {}
            exec(compile(program, "docs/pool.md", "exec"), found)
            assert (await found["main"]()).text == "REPLY#1 to: hello"

    within(test())


def test_options_of_the_page_are_those_of_the_command() -> None:
    page = (Path(__file__).parents[2] / "docs/pool.md").read_text()
    named = set(
        re.findall(r"--[a-z-]+", page[page.index("**Options** of `pool serve`") :].partition("\n\n")[0])
    )
    assert named == {flag for param in command.params for flag in param.opts if flag.startswith("--")}
