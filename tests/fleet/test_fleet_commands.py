"""HOST/SESSION on the command line: machines with bosses and sessions, and a hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from remuda.keeper.client import KeeperClient
from support.commands import COMMAND
from support.fleet import Pair
from support.keeper import until
from support.messages import why_awake

_NUMBERS = count(1)


@pytest.fixture
def work(pair: Pair) -> Iterator[str]:
    """A session of an agent on the other machine, without messages."""
    name = f"work{next(_NUMBERS)}"
    pair.build.start(name)
    pair.desk.until_session("build7", name)
    yield f"build7/{name}"
    pair.build.remuda("kill", name)
    until(lambda: pair.desk.remuda.json("ls") == [], "the session to be gone")


def test_a_message_has_its_receipt_and_answer_here(pair: Pair, work: str) -> None:
    desk = pair.desk
    assert desk.remuda("send", work, "hello", "--wait").out == "REPLY#1 to: hello\n"
    message = desk.send(work, "again")
    receipt = desk.until_stage(message, "acked")
    assert [one["stage"] for one in receipt["steps"]][:2] == ["sent", "accepted"]
    assert receipt["answer"]["text"] == "REPLY#2 to: again"
    assert receipt["where"] == "build7"
    for words in (("messages", message), ("receipt", message[:-2])):
        assert desk.remuda(*words).out.endswith("REPLY#2 to: again\n")
    assert desk.remuda("wait", message).out == "REPLY#2 to: again\n"
    listed = desk.remuda.json("messages", work)
    assert [(one["prompt"], one["stage"]) for one in listed] == [("hello", "acked"), ("again", "acked")]
    assert message in desk.remuda("messages", work).out
    assert "already answered" in desk.remuda("cancel", message, code=8).out


def test_a_dead_letter_of_the_other_machine_is_seen_with_its_reason(pair: Pair, work: str) -> None:
    desk, build, name, why = pair.desk, pair.build, work.partition("/")[2], "API Error: 400 poisoned"
    refusal = desk.remuda.refused("send", work, "err 400 poisoned", "--wait", code=10)
    (letter,) = desk.remuda.json("messages", work, "--dead")
    message = letter["id"]
    assert refusal.startswith(f"message {message} was not answered: dead, {why}; ")
    assert (letter["stage"], letter["reason"], letter["prompt"]) == ("dead", why, "err 400 poisoned")
    assert desk.remuda("receipt", message).out.endswith(f"reason={why}\n")
    steps = desk.remuda.json("receipt", work)["steps"]
    assert [one["stage"] for one in steps[-2:]] == ["ended", "dead"]
    assert f"({why}) err 400 poisoned" in desk.remuda("messages", work).out
    queue = until(lambda: desk.remuda.json("queue")["items"], "the agent in the queue")
    assert [(one["host"], one["reason"], one["message"]) for one in queue] == [("build7", "api_error", why)]
    # It stays there until it is redriven, which only its own machine does.
    refusal = desk.remuda.refused("inbox", "dead", work, code=2)
    assert f"the inbox of '{work}' is a folder on build7; run this command there" in refusal
    assert f"'remuda messages {work}' lists its messages (--dead)" in refusal
    (there,) = json.loads(build.remuda("inbox", "dead", name, "--json").out)
    assert (there["id"], there["reason"], there["from"]) == (message, why, "fleet: desk")
    assert json.loads(build.remuda("inbox", "dead", f"build7/{name}", "--json").out) == [there]


def test_lists_and_show_have_the_session_of_the_other_machine(pair: Pair, work: str) -> None:
    desk = pair.desk
    desk.remuda("send", work, "hello", "--wait")

    def row() -> dict[str, Any]:
        (found,) = desk.remuda.json("ls")
        return found if found["last_message"] else {}

    found = until(row, "its last message")
    name = work.partition("/")[2]
    assert (found["host"], found["name"], found["kept"], found["reachable"]) == ("build7", name, True, True)
    assert desk.remuda.json("ls", "--local") == []
    assert desk.remuda("ls").out.splitlines()[0].startswith("HOST")
    shown = desk.remuda("show", work).out
    assert work in shown
    assert "❯ hello" in shown
    assert desk.remuda.json("show", work)["screen"]
    queue = until(lambda: desk.remuda.json("queue")["items"], "the agent in the queue")
    assert [(one["host"], one["reason"]) for one in queue] == [("build7", "stopped")]
    assert work in desk.remuda("queue").out
    assert desk.remuda.json("queue", "--local")["items"] == []
    assert f"did you mean '{work}'?" in desk.remuda.refused("send", name, "x", code=3)
    assert pair.build.remuda.json("show", work)["name"] == name  # its own name means itself


def test_a_permission_request_is_decided_from_the_other_machine(pair: Pair, work: str) -> None:
    desk, build = pair.desk, pair.build

    def asked() -> bool:
        return any(one["reason"] == "permission" for one in desk.remuda.json("queue")["items"])

    message = desk.send(work, "RUNBASH touch made")
    until(asked, "the request in the queue")
    assert "touch made" in desk.remuda("approvals", work).out
    desk.remuda("approve", work, "--edit", '{"command": "touch edited"}', "--yes")
    desk.until_stage(message, "acked")
    assert (build.remuda.cwd / "edited").exists()
    assert not (build.remuda.cwd / "made").exists()
    (decided,) = build.client.get("approvals")["approvals"][:1]
    assert decided["by"] == "api: fleet: desk"
    assert "has no open permission request" in desk.remuda.refused("approve", work, "--yes", code=3)

    message = desk.send(work, "RUNBASH touch made")
    until(asked, "the second request in the queue")
    desk.remuda("deny", work, "--message", "not now")
    desk.until_stage(message, "acked")
    assert not (build.remuda.cwd / "made").exists()


def test_a_turn_is_interrupted_and_a_session_ended_from_the_other_machine(pair: Pair, work: str) -> None:
    desk, build = pair.desk, pair.build
    message = desk.send(work, "SLOW 600")
    until(lambda: desk.receipt(message)["stage"] in ("submitted", "recorded"), "the turn to run")
    waiting = desk.send(work, "never")
    desk.until_stage(waiting, "accepted")
    assert "cancelled before the agent saw it" in desk.remuda("cancel", waiting).out
    assert "turn interrupted" in desk.remuda("cancel", work).out
    until(lambda: desk.receipt(message)["ended"], "the end of the message")
    build.start("other")
    desk.until_session("build7", "other")
    assert desk.remuda("kill", "build7/other").out.startswith("build7/other ended")
    assert "other" not in {one["name"] for one in build.remuda.json("ls")}
    assert "not found" in desk.remuda.refused("kill", "build7/never", code=3)


def test_a_session_is_started_on_the_other_machine(pair: Pair) -> None:
    desk, build = pair.desk, pair.build
    words = ("--host", "build7", "--cwd", str(build.remuda.cwd), "--agent", "demo")
    said = desk.remuda("start", "made", *words, "--", "--permission-mode", "default").out
    assert said == "started build7/made; attach with: remuda attach build7/made\n"
    assert desk.until_session("build7", "made")["session"]["cwd"] == str(build.remuda.cwd)
    assert desk.remuda("send", "build7/made", "hello", "--wait").out == "REPLY#1 to: hello\n"
    assert "'made' is already running" in desk.remuda.refused("start", "made", *words, code=5)
    refused = desk.remuda.refused("start", "other", *words, "--record", "file", code=2)
    assert "--record does not go with --host" in refused
    assert "host 'never' not found" in desk.remuda.refused(
        "start", "x", "--host", "never", "--", "true", code=2
    )
    desk.remuda("kill", "build7/made")
    until(lambda: desk.remuda.json("ls") == [], "the session to be gone")


def test_a_session_whose_name_is_written_otherwise_on_the_hub_is_reached_as_any_other(pair: Pair) -> None:
    desk, build = pair.desk, pair.build
    work = pair.start(name := "v1.2@home+x_y")
    assert desk.remuda("send", work, "hello", "--wait").out == "REPLY#1 to: hello\n"
    assert [f"{one['host']}/{one['name']}" for one in desk.remuda.json("ls")] == [work]
    assert [one["prompt"] for one in desk.remuda.json("messages", work)] == ["hello"]
    assert "REPLY#1 to: hello" in desk.remuda("show", work).out
    assert "REPLY#1 to: hello" in desk.remuda("logs", work).out
    assert build.prompts(name) == ["hello"]
    desk.remuda("kill", work)
    until(lambda: desk.remuda.json("ls") == [], "the session to be gone")


def test_a_key_does_only_what_its_role_allows(pair: Pair, work: str) -> None:
    viewer = pair.bench.machine("viewer", "viewer")
    viewer.until_session("build7", work.partition("/")[2])
    assert [f"{one['host']}/{one['name']}" for one in viewer.remuda.json("ls")] == [work]
    assert work in viewer.remuda("show", work).out
    for words in (("send", work, "hello"), ("kill", work), ("start", "x", "--host", "build7", "--", "true")):
        assert "may not act on other hosts" in viewer.remuda.refused(*words, code=8)
    assert "may not see other hosts" in pair.build.remuda.refused("show", "desk/work", code=8)
    pair.bench.hub.remuda("fleet", "keys", "revoke", "viewer")
    until(lambda: "does not accept the key" in str(viewer.status()["error"]), "the refusal")
    assert "not connected" in viewer.remuda("fleet", "status").out
    viewer.remuda("fleet", "leave")
    assert "has joined no fleet" in viewer.remuda.refused("fleet", "status", code=2)
    assert viewer.remuda.json("ls") == []


def test_a_session_there_is_put_to_sleep_and_woken_by_a_message(pair: Pair, work: str) -> None:
    desk, build = pair.desk, pair.build
    name = work.partition("/")[2]
    desk.remuda("send", work, "hello", "--wait")

    def may_sleep() -> bool:
        with KeeperClient.connect(name, build.remuda.sessions) as client:
            return not why_awake(client)

    def phase() -> str:
        return str(build.remuda.json("status", name)["sleep"]["phase"])

    until(may_sleep, "a session that may sleep")
    assert desk.remuda("sleep", work).out.endswith(" is asleep\n")
    assert phase() == "asleep"
    assert desk.remuda("send", work, "again", "--wait").out == "REPLY#2 to: again\n"
    assert phase() == "awake"
    until(may_sleep, "a session that may sleep again")
    desk.remuda("sleep", work)
    desk.remuda("wake", work)
    assert phase() == "awake"


CLIENT = """
import asyncio, pathlib, sys, remuda
there, gate = sys.argv[1:]
async def main():
    async with remuda.Client(fleet=True, agent="demo") as client:
        print((await client.run("from python", cwd=there)).text)
        held, kinds = {"permission_mode": "bypassPermissions", "timeout": 200}, []
        try:
            async for event in client.stream(f"RUNBASH cat '{gate}'", cwd=there, **held):
                kinds.append(event.type)
                if kinds.count("token") == 1 and event.type == "token":
                    pathlib.Path(gate).write_text("opened")  # the turn cannot end before
        finally:
            print(*kinds, file=sys.stderr)
        print("token" in kinds, kinds[-1])  # it may come after the tool: an agent reports both at once
asyncio.run(main())
"""


@pytest.mark.timeout(400)
def test_a_prompt_runs_on_any_host_that_offers_its_pool(pair: Pair) -> None:
    desk, build = pair.desk, pair.build
    there = str(build.remuda.cwd)

    def pools() -> list[str]:
        return [one["name"] for one in desk.status()["hosts"] if one["pool"]]

    assert "no host of the fleet offers a pool" in desk.remuda("run", "--fleet", "x", code=3).err
    build.remuda("pool", "serve", "--demo", "--fleet", "--detach", "--size", "1", "--prewarm", "0")
    until(lambda: pools() == ["build7"], "the pool of the other machine")
    words = ("run", "--fleet", "--demo", "--cwd", there)
    result = json.loads(desk.remuda(*words, "hello", "--json").out)
    assert (result["text"], result["host"]) == ("REPLY#1 to: hello", "build7")
    assert desk.remuda(*words, "again", "--stream").out == "REPLY#1 to: again\n"
    refusal = desk.remuda("run", "--fleet", "--demo", "--cwd", "/no/such", "x", code=2).err
    assert "build7: cwd must be a folder" in refusal
    os.mkfifo(gate := build.remuda.cwd / "gate")
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, there, str(gate)],
        env=desk.remuda.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "REPLY#1 to: from python\nTrue done\n", done.stderr
    held = ("--permission-mode", "bypassPermissions", "--stream", "--timeout", "200", f"RUNBASH cat '{gate}'")
    with subprocess.Popen([*COMMAND, *words, *held], env=desk.remuda.env, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.read(7) == b"running"  # its turn cannot end before the gate is open
        gate.write_text("opened")
        assert b"opened" in running.stdout.read()
    listed = json.loads(desk.remuda("fleet", "requests", "--json").out)
    assert len(listed) == 6
    assert {one["host"] for one in listed} == {"build7"}
    assert "answered" in desk.remuda("fleet", "requests").out
    assert "may not act on other hosts" in build.remuda("run", "--fleet", "x", code=8).err
    build.remuda("pool", "stop")
    until(lambda: pools() == [], "the end of the pool")
