"""An invented agent that is one folder and one line: delivery, permissions, print, pool and queue with it.

`mustang` is called through its own server, `pinto` is pasted into. Their composer, keys, dialog, hooks,
files and words are none of Claude Code's.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda import Client
from remuda.agents import agent_names, find_agent, find_headless, find_stream
from remuda.errors import InvalidOptions, NotSafe
from remuda.pool.types import Allow, Decision, PermissionRequest
from support.commands import Commands
from support.delivery import answer, attempts
from support.keeper import Process, Start, event_named, until
from support.messages import CHAIN, Post, stages, step
from support.second_agent import KINDS, TRANSPORT, Corral, draft, installed


@pytest.fixture(autouse=True)
def stable(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with installed(monkeypatch) as home:
        yield home


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def corral(start: Start, stable: Path, tmp_path: Path, kind: str) -> Corral:
    return Corral(start, stable, tmp_path, kind)


@pytest.fixture
def called(start: Start, stable: Path, tmp_path: Path) -> Corral:
    return Corral(start, stable, tmp_path, "mustang")


def type_keys(post: Post, keys: str) -> None:
    post.watcher.press(keys.encode())


# ── the registry ──


def test_agent_of_another_package_is_found_by_its_name(kind: str) -> None:
    assert kind in agent_names()
    prompts = find_agent(kind).prompts
    assert prompts is not None
    assert prompts.transport.kind == TRANSPORT[kind]
    with pytest.raises(InvalidOptions, match="without a terminal"):
        find_stream(kind)
    assert find_headless(kind).program == "mustang"


# ── delivery ──


def test_message_goes_through_the_whole_chain(corral: Corral, kind: str) -> None:
    post = corral.start()
    found = post.send("hello\nand more")
    assert stages(found) == CHAIN
    assert answer(found) == "MUSTANG#1 to: hello\nand more"
    assert step(found, "written")["transport"] == TRANSPORT[kind]
    assert step(found, "submitted")["prompt_id"] == step(found, "ended")["prompt_id"]
    assert step(found, "ended")["usage"] == {"input_tokens": 14, "output_tokens": 1}
    assert "degraded" not in step(found, "ended")
    assert corral.runs() == ["hello\nand more"]


def test_messages_run_in_their_order_and_after_a_humans_turn(corral: Corral) -> None:
    post = corral.start()
    type_keys(post, "WALK 1.5\r")
    post.watcher.until("thinking")
    messages = [post.put(f"number {n}") for n in range(3)]
    assert [answer(post.ended(one)) for one in messages] == [
        f"MUSTANG#{n + 2} to: number {n}" for n in range(3)
    ]
    assert corral.runs() == ["WALK 1.5", "number 0", "number 1", "number 2"]


def test_draft_of_a_human_survives_a_message(corral: Corral) -> None:
    post = corral.start(draft_patience=1.0)
    type_keys(post, "half a thought")
    until(lambda: draft(post) == "half a thought", "the draft")
    assert answer(post.send("hello")) == "MUSTANG#1 to: hello"
    until(lambda: draft(post) == "half a thought", "the draft again")
    assert corral.runs() == ["hello"]


def test_message_waits_while_a_dialog_is_open(corral: Corral) -> None:
    post = corral.start()
    type_keys(post, "KICK fence\r")
    post.watcher.until("waiting_permission")
    message = post.put_held("hello", "a dialog is open")
    type_keys(post, "y")
    assert answer(post.ended(message)) == "MUSTANG#2 to: hello"
    assert corral.runs() == ["KICK fence", "hello"]


def test_turn_that_fails_and_a_command_that_is_none_are_reported(corral: Corral) -> None:
    post = corral.start()
    fell = post.send("STUMBLE over a root")
    assert (step(fell, "ended")["end"], fell.reason) == ("failed", "over a root")
    snorted = post.send("/fly", command=True)
    assert (step(snorted, "ended")["end"], snorted.reason) == ("refused", "the agent has no command /fly")
    assert step(post.send("/graze", command=True), "ended")["end"] == "answered"
    assert post.send("/not a command").reason.startswith("refused: ")


def test_turn_is_interrupted_on_request(corral: Corral) -> None:
    post = corral.start()
    message = post.put_until("WALK 60", "recorded")
    post.client.request("interrupt", id=message)
    found = post.ended(message)
    assert (step(found, "ended")["end"], found.reason) == ("interrupted", "interrupted on request")
    assert answer(post.send("next")) == "MUSTANG#2 to: next"


def test_turn_of_a_human_is_interrupted_by_a_client_on_request(corral: Corral) -> None:
    post = corral.start()
    with pytest.raises(NotSafe):
        post.client.request("interrupt", turn=True)
    type_keys(post, "WALK 60\r")
    post.watcher.until("thinking")
    post.client.request("interrupt", turn=True)
    post.watcher.until("interrupted")


# ── permissions ──


@pytest.mark.parametrize("allow", [True, False])
def test_permission_is_decided_by_a_client(corral: Corral, allow: bool) -> None:
    post = corral.start()
    post.client.request("watch")
    message = post.put("KICK fence")
    ask = event_named(post.client, "ask", tool="hoof")
    assert ask["input"] == {"line": "fence"}
    behavior = {"behavior": "allow"} if allow else {"behavior": "deny", "message": "not that one"}
    post.client.request("answer", id=ask["id"], **behavior)
    assert answer(post.ended(message)) == ("kicked fence" if allow else "held back: not that one")


def test_permission_that_is_decided_at_the_terminal_is_over_for_clients(corral: Corral) -> None:
    post = corral.start()
    post.client.request("watch")
    message = post.put("KICK fence")
    ask = event_named(post.client, "ask", tool="hoof")
    until(lambda: any("may I kick" in line for line in post.lines()), "the dialog")
    type_keys(post, "n")
    assert event_named(post.client, "ask_ended")["id"] == ask["id"]
    assert answer(post.ended(message)) == "held back: no, said the rider"


# ── the server ──


def companion(post: Post) -> Process:
    record = json.loads(post.kept.paths.record.read_text())
    return Process(int(record["companion_pid"]))


def test_server_ends_with_its_session(called: Corral) -> None:
    post = called.start()
    server = companion(post)
    assert server.alive
    post.client.request("kill")
    assert post.kept.keeper.ended()
    server.gone()


def test_server_that_dies_is_started_again_and_its_turn_counts_as_interrupted(called: Corral) -> None:
    post = called.start()
    message = post.put_until("WALK 60", "recorded")
    server = companion(post)
    server.signal(signal.SIGKILL)
    assert step(post.ended(message), "ended")["end"] == "interrupted"
    server.close()
    assert answer(post.send("next")) == "MUSTANG#2 to: next"
    assert called.runs() == ["WALK 60", "next"]


@pytest.mark.parametrize(("moment", "runs"), [("before", ["hello"]), ("after", ["hello"])])
def test_call_that_is_lost_with_the_server_is_searched_before_it_is_tried_again(
    called: Corral, moment: str, runs: list[str]
) -> None:
    post = called.start(on_orphan="deadletter")
    called.hold(moment)
    message = post.put("hello")
    called.holding()
    server = companion(post)
    server.signal(signal.SIGKILL)
    server.close()
    called.hold("")
    found = post.ended(message)
    assert called.runs() == runs
    if moment == "before":  # the trail does not have it: it is called again, and says so
        assert (answer(found), attempts(found)) == ("MUSTANG#1 to: hello", [1, 2])
    else:  # it has run, and was answered before the server died
        assert (answer(found), attempts(found)) == ("MUSTANG#1 to: hello", [1])


def test_wrong_secret_is_not_let_in(called: Corral) -> None:
    called.start()
    (path,) = called.home.glob("*.sock")

    async def knock() -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b'{"knock": "guess"}\n')
        try:
            return await reader.read()
        finally:
            writer.close()

    assert asyncio.run(knock()) == b""


def test_server_that_ends_for_a_reason_that_passes_is_started_again(called: Corral) -> None:
    stuck = called.home / "stuck"
    stuck.touch()
    assert answer(called.start().send("hello")) == "MUSTANG#1 to: hello"
    assert not stuck.exists()


def test_server_that_does_not_start_is_the_error_of_the_start(remuda: Commands) -> None:
    done = remuda("start", "x", "--detach", "--agent", "mustang", env={"MUSTANG_HOME": "/proc/none"}, code=1)
    assert "the agent's server ended while it started: " in done.err


# ── the command line ──


def test_session_is_started_by_name_and_resumed_with_its_conversation(remuda: Commands, kind: str) -> None:
    remuda("start", "work", "--detach", "--agent", kind)
    assert "MUSTANG#1 to: hello" in remuda("send", "work", "hello", "--wait").out
    remuda("kill", "work")
    remuda("start", "work", "--resume", "--detach")
    assert "MUSTANG#2 to: again" in remuda("send", "work", "again", "--wait").out
    assert json.loads(remuda("show", "work", "--json").out)["agent"] == kind
    remuda("kill", "work")


def test_unknown_agent_is_named_with_those_that_there_are(remuda: Commands) -> None:
    done = remuda("start", "x", "--agent", "mule", code=2)
    assert "'mustang'" in done.err
    assert "'claude'" in done.err


def test_print_answers_with_the_agent_that_is_named(remuda: Commands, kind: str) -> None:
    assert remuda("print", "--agent", kind, "hello").out == "MUSTANG#1 to: hello\n"
    result = json.loads(remuda("print", f"--agent={kind}", "--output-format", "json", "hello").out)
    assert result["result"] == "MUSTANG#1 to: hello"
    assert result["usage"] == {"input_tokens": 5}
    assert remuda("ask", "--cold", "--agent", kind, "hello").out == "MUSTANG#1 to: hello\n"


def test_print_denies_permissions_and_reports_a_failed_turn(remuda: Commands, kind: str) -> None:
    assert remuda("print", "--agent", kind, "KICK fence").out.startswith("held back: This needs a permission")
    assert "over a root" in remuda("print", "--agent", kind, "STUMBLE over a root", code=1).out


def test_print_refuses_what_the_agent_does_not_have(remuda: Commands, kind: str) -> None:
    stream = remuda("print", "--agent", kind, "--backend", "stream", "hello", code=2)
    assert f"agent '{kind}' cannot run without a terminal" in stream.err
    assert "unknown option --model" in remuda("print", "--agent", kind, "--model", "x", "hello", code=2).err


# ── the pool ──


def test_pool_serves_many_requests_each_in_a_conversation_of_its_own(
    stable: Path, home: Path, kind: str
) -> None:
    async def work() -> list[tuple[str, str | None]]:
        async with Client(agent=kind, pool_size=1) as client:
            replies = [await client.run(f"number {n}") for n in range(3)]
            return [(reply.text, reply.conversation_id) for reply in replies]

    replies = asyncio.run(work())
    assert [text for text, _ in replies] == [f"MUSTANG#1 to: number {n}" for n in range(3)]
    assert len({conversation for _, conversation in replies}) == 3


@pytest.mark.usefixtures("home")
def test_pool_hands_permissions_to_the_caller(kind: str) -> None:
    asked: list[PermissionRequest] = []

    async def decide(request: PermissionRequest) -> Decision:
        asked.append(request)
        return Allow()

    async def work() -> str:
        async with Client(agent=kind, permissions=decide) as client:
            return (await client.run("KICK fence")).text

    assert asyncio.run(work()) == "kicked fence"
    assert [(one.tool, one.input) for one in asked] == [("hoof", {"line": "fence"})]


@pytest.mark.usefixtures("home")
def test_pool_refuses_a_backend_that_the_agent_does_not_have(kind: str) -> None:
    async def work() -> None:
        async with Client(agent=kind, backend="stream") as client:
            await client.run("hello")

    with pytest.raises(InvalidOptions, match="without a terminal"):
        asyncio.run(work())


def test_ask_uses_a_pool_of_that_agent(remuda: Commands, kind: str) -> None:
    remuda("pool", "serve", "--agent", kind, "--size", "1", "--detach")
    try:
        assert remuda("ask", "--agent", kind, "hello").out == "MUSTANG#1 to: hello\n"
        status = json.loads(remuda("pool", "status", "--json").out)
        assert status["agent"] == kind
    finally:
        remuda("pool", "stop")


# ── the queue ──


def test_queue_shows_who_waits_and_a_permission_is_approved_from_there(remuda: Commands, kind: str) -> None:
    env = {"TMUX_TMPDIR": str(remuda.home)}
    remuda("up", "--detach", "--port", "0", env=env)
    try:
        remuda("start", "work", "--detach", "--agent", kind)
        remuda("send", "work", "hello", "--wait")
        until(lambda: "MUSTANG#1 to: hello" in remuda("queue", "--json").out, "the stopped agent")
        remuda("send", "work", "KICK fence")
        until(lambda: '"permission"' in remuda("queue", "--json").out, "the request")
        (item,) = json.loads(remuda("queue", "--json").out)["items"]
        assert (item["session"]["agent"], item["reason"]) == (kind, "permission")
        assert "fence" in json.dumps(item)
        remuda("approve", "work", "--yes")
        until(lambda: "kicked fence" in remuda("queue", "--json").out, "the answer")
        remuda("kill", "work")
    finally:
        remuda("down", "--force")
        assert not os.path.exists(remuda.home / "boss.sock")
