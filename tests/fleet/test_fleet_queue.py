"""One list and one queue: commands, keys of tmux and `remuda.Boss` with sessions of another host."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import remuda
from remuda import AsyncBoss, Boss
from remuda.tmux.panes import capture
from support.commands import COMMAND
from support.fleet import Machine, Pair
from support.heimdall_client import PATIENCE
from support.keeper import until
from support.tmux_attention import TmuxBench

_NUMBERS = count(1)


@pytest.fixture
def work(pair: Pair) -> Iterator[str]:
    """A session of the other machine that has answered and waits for more."""
    where = pair.start(f"waits{next(_NUMBERS)}")
    pair.desk.remuda("send", where, "hello", "--wait")
    until_waiting(pair.desk, "stopped")
    yield where
    pair.build.remuda("kill", where.partition("/")[2])
    until(lambda: pair.desk.remuda.json("ls") == [], "the session to be gone")


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[TmuxBench]:
    bench = TmuxBench(tmp_path)
    bench.start("home")
    yield bench
    bench.close()


def waiting(machine: Machine, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = machine.remuda.json("queue", *words)["items"]
    return found


def until_waiting(machine: Machine, reason: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        return next((one for one in waiting(machine) if one["reason"] == reason), {})

    return until(look, f"an agent with the reason {reason}")


def completed(machine: Machine, line: str) -> list[str]:
    env = {"_REMUDA_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    return [one.partition(",")[2] for one in machine.remuda(env=env).out.splitlines()]


def inside(tmux: TmuxBench) -> dict[str, str]:
    """The environment of a shell in the first pane."""
    first = tmux.pane("home:0.0").id
    socket = tmux.address.path
    return {"TMUX_TMPDIR": str(tmux.folder), "TMUX": f"{socket},1,0", "TMUX_PANE": first}


def test_next_opens_a_session_of_another_host_in_a_window_once(
    pair: Pair, work: str, tmux: TmuxBench
) -> None:
    desk, person, env = pair.desk, tmux.person("home"), inside(tmux)
    assert desk.remuda("next", "--show").out == f"{work} (stopped)\n"
    assert desk.remuda("next", env=env).out == f"{work} (stopped) in home:1.0\n"
    opened = tmux.client(person).pane_id
    until(lambda: "REPLY#1 to: hello" in "\n".join(capture(tmux.tmux, opened)), "its terminal")
    assert desk.remuda("next", env=env).out.startswith(f"already there: {work}")
    assert desk.remuda("return", env=env).out == "back in home:0.0\n"
    # The key of tmux, which the boss handles, and the status line.
    pressed = {"action": "next", "client": person.name, "tmux": tmux.address.path}
    assert desk.client.post("navigate", body=pressed)["told"] == f"{work} (stopped) in home:1.0"
    assert tmux.client(person).pane_id == opened
    assert desk.client.get("segment")["waiting"] == 1
    skipped = desk.client.post("navigate", body={**pressed, "action": "skip"})["told"]
    assert skipped == f"skipped {work}; no other agent is waiting"
    assert (waiting(desk), len(waiting(desk, "--all"))) == ([], 1)
    assert desk.client.get("segment")["waiting"] == 0


def test_next_of_a_key_that_may_only_watch_opens_the_session_read_only(
    pair: Pair, work: str, tmux: TmuxBench
) -> None:
    eye, person = pair.bench.machine("eye", "viewer"), tmux.person("home")
    try:
        pair.desk.remuda("resize", work, "80x20")  # who only watches does not set the size
        eye.until_session("build7", work.partition("/")[2])
        until_waiting(eye, "stopped")
        assert eye.remuda("next", env=inside(tmux)).out == f"{work} (stopped) in home:1.0\n"
        opened = tmux.client(person).pane_id
        wanted = (f" {work} (read-only) ", "REPLY#1 to: hello")
        until(lambda: all(one in "\n".join(capture(tmux.tmux, opened)) for one in wanted), "its terminal")
    finally:
        eye.remuda("fleet", "leave")
        pair.bench.hub.remuda("fleet", "keys", "revoke", "eye")


def test_popup_lists_and_attaches_a_session_of_another_host(pair: Pair, work: str, tmux: TmuxBench) -> None:
    desk, pane = pair.desk, tmux.pane("home:0.0").id
    begun = " ".join(("exec env LINES=24 COLUMNS=80", f"REMUDA_HOME={desk.remuda.home}", *COMMAND))
    tmux.run("respawn-pane", "-k", "-t", pane, f"{begun} popup --inside")
    until(lambda: f"{work} " in "\n".join(capture(tmux.tmux, pane)), "the list")
    tmux.run("send-keys", "-t", pane, "s")
    until(lambda: waiting(desk) == [], "the item to be put off")
    assert desk.remuda("later", work, "0").out == f"{work} is in the queue again\n"
    desk.remuda("skip", work, "--cooldown", "0")
    until(lambda: f"{work} " in "\n".join(capture(tmux.tmux, pane)), "the list again")
    tmux.run("send-keys", "-t", pane, "Enter")
    until(lambda: "REPLY#1 to: hello" in "\n".join(capture(tmux.tmux, pane)), "its terminal")


def test_an_item_of_another_host_is_put_off_and_dismissed(pair: Pair, work: str) -> None:
    desk, name = pair.desk, work.partition("/")[2]
    assert desk.remuda("later", work, "2h").out.startswith(f"{work} is hidden for 2h")
    (item,) = waiting(desk, "--all")
    assert (item["host"], item["id"].partition(":")[0]) == ("build7", "build7")
    assert waiting(desk) == []
    assert desk.remuda("snooze", work, "--wake").out == f"{work} is in the queue again\n"
    assert desk.remuda("later", work, "end").out.startswith(f"{work} is hidden for 30s")
    assert "REPLY#1 to: hello" in desk.remuda("preview", work).out
    assert f"did you mean '{work}'?" in desk.remuda.refused("later", name, code=3)
    assert "build7: session 'never' not found" in desk.remuda.refused("later", "build7/never", code=3)
    assert "host 'never' not found" in desk.remuda.refused("later", "never/x", code=2)
    # As a script does that reads the list.
    assert desk.remuda("dismiss", item["id"]).out == f"dismissed {work} (stopped)\n"
    assert waiting(desk, "--all") == []
    assert "is not waiting" in desk.remuda.refused("later", work, code=3)


def test_commands_that_read_take_a_session_of_another_host(pair: Pair, work: str) -> None:
    desk, name = pair.desk, work.partition("/")[2]
    assert desk.remuda("status", work).out.splitlines()[0].split() == ["session", work]
    status = desk.remuda.json("status", work)
    assert (status["host"], status["name"], status["state"]) == ("build7", name, "idle")
    assert "REPLY#1 to: hello" in desk.remuda("screen", work).out
    assert desk.remuda("resize", work, "91x31").out == f"{work} is 91x31\n"
    assert desk.remuda.json("screen", work)["cols"] == 91
    assert desk.remuda.json("receipt", work)["answer"]["text"] == "REPLY#1 to: hello"
    assert desk.remuda("wait", work).out == "idle\n"
    assert desk.remuda("messages", work, "--wait").out == "REPLY#1 to: hello\n"
    for command in ("status", "screen", "wait", "receipt"):
        assert "not found" in desk.remuda.refused(command, "build7/never", code=3)
        assert f"did you mean '{work}'?" in desk.remuda(command, name, code=3).err
    assert desk.remuda("ls", "-q").out == f"{work}\n"
    assert desk.remuda("ls", "-q", "--local").out == ""
    for line in ("remuda show bui", "remuda send bui", "remuda later bui", "remuda approve bui"):
        assert completed(desk, line) == [work], line
    pair.build.remuda("kill", name)
    until(lambda: desk.remuda("ls", "-q").out == "", "the end to be known")
    assert "below is its last screen" in desk.remuda("screen", work).err
    assert desk.remuda("resume", work).out == f"resumed {work}; attach with: remuda attach {work}\n"
    assert desk.remuda("send", work, "again", "--wait").out.endswith("to: again\n")


def test_permission_requests_of_all_hosts_are_listed(pair: Pair, work: str) -> None:
    desk = pair.desk
    message = desk.send(work, "RUNBASH touch from-the-queue")
    until_waiting(desk, "permission")
    assert work in desk.remuda("approvals").out
    (request,) = desk.remuda.json("approvals")["approvals"]
    assert (request["host"], request["tool"]) == ("build7", "Bash")
    until(lambda: until_waiting(desk, "permission")["detail"]["ask"] == request["id"], "the item of it")
    assert desk.remuda.json("approvals", "--local")["approvals"] == []
    desk.remuda("approve", request["id"], "--yes")
    desk.until_stage(message, "acked")
    assert desk.remuda.json("approvals")["approvals"] == []
    (decided, *_) = desk.remuda.json("approvals", "--all")["approvals"]
    assert (decided["id"], decided["by"]) == (request["id"], "api: fleet: desk")


def test_a_program_has_one_queue(pair: Pair, work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(pair.desk.remuda.home))
    boss = Boss(timeout=PATIENCE)
    (item,) = boss.queue()
    assert (item.host, item.reason, (item.session or {})["name"]) == ("build7", "stopped", work[7:])
    assert boss.queue(hosts=False) == []
    assert (boss.later(item).host, boss.queue()) == ("build7", [])
    assert boss.later(work, 0).id == item.id
    typed = boss.reply(work, "RUNBASH touch from-the-queue")
    assert (typed.via, typed.session) == ("inbox", work)
    (request,) = until(boss.permissions, "the request")
    assert (request.host, request.tool, boss.permissions(hosts=False)) == ("build7", "Bash", [])
    assert boss.permission(work) == request
    assert boss.deny(work, "not now").state == "answered"
    with pytest.raises(remuda.AlreadyAnswered):
        boss.approve(request)
    assert asyncio.run(AsyncBoss(timeout=PATIENCE).permissions(all=True))[0].id == request.id
