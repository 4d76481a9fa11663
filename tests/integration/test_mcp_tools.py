"""Agents that run agents: whom they reach, what is refused, and what comes back. On the scripted agent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer

import pytest

from remuda import Session
from remuda.config import load_config
from remuda.errors import RemudaError
from remuda.inbox.receipts import trace
from remuda.keeper.compose import compose
from remuda.keeper.record import SessionRecord
from remuda.keeper.start import start_session
from remuda.mcp.caller import find_caller
from remuda.mcp.ledger import read_ledger
from remuda.paths import SessionPaths, sessions_folder
from remuda.turns.holds import holds_file, save_holds
from support.boss import KEPT, USAGE, RunningBoss
from support.commands import Commands
from support.heimdall_client import PATIENCE
from support.keeper import until, until_equal
from support.mcp_agents import Agent, AgentBench, bench_in


@pytest.fixture
def bench(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentBench]:
    with bench_in(home, tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
def boss(home: Path, bench: AgentBench) -> Iterator[RunningBoss]:
    with RunningBoss(home, (KEPT,)) as one:
        yield one


def lead_that_asked(bench: AgentBench) -> tuple[Agent, Agent, str]:
    """An agent, another that it started, and the message that it sent to that one."""
    bench.user_session("lead")
    lead = bench.agent_in("lead")
    child = bench.agent_in(lead.start("a"))
    asked = lead.call("send", session="lead.a", text="which one?")["message"]
    lead.waits("lead.a", asked)
    return lead, child, asked


def test_agent_starts_another_sends_waits_reads_and_ends_it(bench: AgentBench) -> None:
    bench.user_session("lead")
    lead = bench.agent_in("lead")

    made = lead.call("start", name="tests", prompt="count them")
    assert (made["session"], made["agent"], made["folder"]) == ("lead.tests", "demo", str(bench.project))
    done = lead.waits("lead.tests", made["message"])
    assert done["ended"]
    assert done["stage"] == "acked"
    assert done["answer"].endswith("count them")
    assert f"[message {made['message']} from session lead;" in done["answer"]
    again = lead.call("send", session="lead.tests", text="and again")
    assert lead.waits("lead.tests", again["message"])["answer"].startswith("REPLY#2")
    assert lead.call("receipt", session="lead.tests", message=again["message"])["stage"] == "acked"
    assert [one["session"] for one in lead.call("list_agents")["agents"]] == ["lead.tests"]
    assert any("and again" in line for line in lead.call("screen", session="lead.tests")["lines"])
    assert any("count them" in line for line in lead.call("history", session="lead.tests")["lines"])
    entries = asyncio.run(lead.tools.read("lead.tests", transcript=True))["entries"]
    assert [one["kind"] for one in entries][:2] == ["prompt", "answer"]
    assert lead.call("kill", session="lead.tests")["killed"]
    assert lead.call("list_agents")["agents"] == []
    assert [one["state"] for one in lead.call("list_agents", ended=True)["agents"]] == ["dead"]
    who = {(one["who"], one["tool"]) for one in read_ledger(100)}
    assert {(lead.caller.id, "start"), (lead.caller.id, "send"), (lead.caller.id, "kill")} <= who


def test_session_of_another_and_one_that_is_not_there_are_refused_alike(bench: AgentBench) -> None:
    bench.user_session("lead")
    stranger, lead = bench.outside("eve"), bench.agent_in("lead")
    theirs = lead.start("secret")
    message = lead.call("send", session=theirs, text="hello")["message"]

    for tool, more in [
        ("screen", {}),
        ("history", {}),
        ("wait", {"message": message}),
        ("receipt", {"message": message}),
        ("cancel", {"message": message}),
        ("send", {"text": "x"}),
        ("interrupt", {}),
        ("kill", {}),
    ]:
        answers = {
            (error.code, str(error).replace(name, "NAME"))
            for name in (theirs, "lead", "lead.no-one", "no-one")
            for error in [stranger.refused(tool, session=name, **more)]
        }
        assert len(answers) == 1, f"{tool} tells them apart: {answers}"
    assert lead.refused("kill", session="lead").code == "SESSION_NOT_FOUND"
    assert stranger.call("list_agents", ended=True)["agents"] == []
    assert stranger.call("queue")["waiting"] == []
    assert Session(theirs).alive


def test_start_takes_no_name_that_anyone_has_or_had(bench: AgentBench) -> None:
    ended = bench.user_session("ci.tests")
    ended.ask("the user's own", timeout=PATIENCE)
    ended.kill(0.0)
    before = SessionPaths(sessions_folder(), "ci.tests").record.read_bytes()
    bench.user_session("ci.docs")
    ci = bench.outside("ci")

    assert ci.start("tests") == "ci.tests-2"
    assert ci.start("docs") == "ci.docs-2"
    assert SessionPaths(sessions_folder(), "ci.tests").record.read_bytes() == before
    ci.call("kill", session="ci.tests-2")
    assert ci.refused("start", name="tests", agent="demo").code == "SESSION_EXISTS"
    assert ci.refused("screen", session="ci.tests").code == "SESSION_NOT_FOUND"


def test_depth_number_and_messages_are_limited_for_the_whole_tree(bench: AgentBench) -> None:
    bench.write("mcp.toml", "max_depth = 2\nmax_sessions = 3\nmax_messages = 2")
    ci = bench.outside("ci")
    child = bench.agent_in(ci.start("a"))
    grandchild = bench.agent_in(child.start("b"))

    assert grandchild.caller.name == "ci.a.b"
    assert "deep" in str(grandchild.refused("start", agent="demo"))
    ci.start("c")
    assert "at once" in str(child.refused("start", name="d", agent="demo"))
    child.call("send", session="ci.a.b", text="one")
    ci.call("send", session="ci.a.b", text="two")
    assert "used up" in str(child.refused("send", session="ci.a.b", text="three"))
    assert ci.call("whoami")["used"] == {"sessions": 3, "messages": 2, "output_tokens": "not known"}
    assert ci.call("kill", session="ci.a")["also_killed"] == ["ci.a.b"]
    assert {one.name for one in Session.list()} == {"ci.c"}
    bench.write("mcp.toml", "max_dept = 2")
    assert "unknown key 'max_dept'" in str(ci.refused("list_agents"))


def test_file_lets_an_agent_read_and_write_to_a_session_of_the_user_but_not_end_it(bench: AgentBench) -> None:
    bench.write("mcp.toml", '[[agent]]\nname = "token:ci"\nreach = "build"\nmay = ["read", "send"]')
    bench.user_session("build")
    ci = bench.outside("ci")

    sent = ci.call("send", session="build", text="status?")
    assert ci.waits("build", sent["message"])["ended"]
    assert ci.refused("interrupt", session="build").code == "SESSION_NOT_FOUND"
    assert ci.refused("kill", session="build").code == "SESSION_NOT_FOUND"
    assert bench.outside("eve").refused("screen", session="build").code == "SESSION_NOT_FOUND"


def test_start_is_refused_outside_the_agents_folder_and_for_plain_commands(
    bench: AgentBench, tmp_path: Path
) -> None:
    ci = bench.outside("ci")

    assert ci.refused("start", agent="demo", cwd=str(tmp_path)).code == "PERMISSION_REFUSED"
    assert ci.refused("start", agent="demo", cwd="../claude").code == "INVALID_OPTIONS"
    assert ci.refused("start", agent="simple").code == "INVALID_OPTIONS"
    assert ci.refused("start", agent="nothing").code == "INVALID_OPTIONS"
    assert ci.refused("start", name="a/../b").code == "INVALID_OPTIONS"
    assert ci.refused("start", command=["sh"]).code == "INVALID_OPTIONS"
    assert ci.refused("approve").code == "INVALID_OPTIONS"
    assert ci.refused("send", session="x").code == "INVALID_OPTIONS"
    assert Session.list() == []


def test_reply_finds_its_way_back_and_only_to_the_sender(bench: AgentBench) -> None:
    _, child, asked = lead_that_asked(bench)

    assert child.refused("send", session="lead", text="the first").code == "SESSION_NOT_FOUND"
    replied = child.call("send", in_reply_to=asked, text="the first")
    assert replied["session"] == "lead"
    done = child.waits("lead", replied["message"])
    assert f"from session lead.a, in reply to your message {asked}" in done["answer"]
    assert done["answer"].endswith("the first")
    assert child.refused("screen", session="lead").code == "SESSION_NOT_FOUND"
    assert bench.outside("eve").refused("send", in_reply_to=asked, text="x").code == "MESSAGE_NOT_FOUND"
    from_user = Session("lead.a").send("hello", sender="session:lead:made-up").id
    assert child.refused("send", in_reply_to=from_user, text="x").code == "NOT_SAFE"
    assert child.refused("send", in_reply_to="m1", session="lead.a", text="x").code == "INVALID_OPTIONS"


def test_text_of_an_agent_stays_data_and_cannot_be_a_command(bench: AgentBench) -> None:
    ci = bench.outside("ci")
    name = ci.start("a")

    sent = ci.call("send", session=name, text="/clear")
    assert "/clear" in ci.waits(name, sent["message"])["answer"]
    assert ci.refused("send", session=name, text="a\0b").code == "INPUT_ERROR"


def test_wait_returns_when_the_session_dies_and_at_the_end_of_its_time(bench: AgentBench) -> None:
    ci = bench.outside("ci")
    made = ci.call("start", name="a", agent="demo", prompt="SLOW 600 words")

    early = ci.call("wait", session="ci.a", message=made["message"], timeout=0.1)
    assert (early["ended"], early["why"]) == (False, "the time is over; call wait again")
    until(lambda: ci.call("receipt", **_of(made))["stage"] == "recorded", "the turn")
    killer = Timer(0.2, lambda: Session("ci.a").kill(0.0))
    killer.start()
    try:
        ended = ci.call("wait", session="ci.a", message=made["message"], timeout=PATIENCE)
    finally:
        killer.join()
    assert ended["ended"] or ended["state"] == "dead"
    assert ci.call("wait", session="ci.a", timeout=PATIENCE)["why"] == "the session has ended"


def _of(made: dict[str, str]) -> dict[str, str]:
    return {"session": made["session"], "message": made["message"]}


def test_turn_is_interrupted_and_waiting_message_taken_back(bench: AgentBench) -> None:
    ci = bench.outside("ci")
    first = ci.call("start", name="a", agent="demo", prompt="SLOW 600 words")
    second = ci.call("send", session="ci.a", text="after that")
    until(lambda: ci.call("receipt", **_of(first))["stage"] == "recorded", "the turn")

    assert ci.call("cancel", **_of(second))["outcome"] == "taken_back"
    assert ci.call("interrupt", session="ci.a")["message"] == first["message"]
    assert ci.waits("ci.a", first["message"])["ended"]
    assert not ci.call("interrupt", session="ci.a")["interrupted"]


def test_permission_is_for_the_human_unless_a_rule_names_the_agent(
    bench: AgentBench, boss: RunningBoss
) -> None:
    ci = bench.outside("ci")
    made = ci.call("start", name="a", agent="demo", prompt="RUNBASH touch made")

    stopped = ci.waits("ci.a", made["message"])
    assert not stopped["ended"]
    assert "permission that the user must decide" in stopped["why"]
    again = ci.call("wait", session="ci.a", message=made["message"], timeout=0.1)
    assert not again["ended"]
    assert "permission" in again["why"]

    (asked,) = until(ci.requests, "the request in the queue")
    assert asked["may_answer"] is False
    number = str(asked["request"])
    assert ci.refused("answer_permission", request=number, decision="allow").code == "PERMISSION_REFUSED"
    assert (
        bench.outside("eve").refused("answer_permission", request=number, decision="allow").code
        == "NOT_IN_QUEUE"
    )
    assert not (bench.project / "made").exists()
    rule = '[[rule]]\ndecision = "ask"\ntool = "Bash"\ncommand = "touch *"\nmcp = "{}"\n'
    bench.write("policy.toml", rule.format("token:eve"))
    assert ci.refused("answer_permission", request=number, decision="allow").code == "PERMISSION_REFUSED"
    bench.write("policy.toml", rule.format("token:ci"))
    assert [one["may_answer"] for one in ci.requests()] == [True]
    assert ci.call("answer_permission", request=number, decision="allow")["state"] == "answered"
    assert ci.waits("ci.a", made["message"])["ended"]
    assert (bench.project / "made").exists()
    (approval,) = boss.client.get("approvals")["approvals"]
    assert approval["by"] == "api: mcp: token:ci"


def test_message_for_an_agent_that_has_ended_is_held(bench: AgentBench) -> None:
    ci = bench.outside("ci")
    name = ci.start("a")
    Session(name).kill(0.0)

    sent = ci.call("send", session=name, text="later")
    assert "waits until it is started" in sent["note"]
    assert trace(SessionPaths(sessions_folder(), name).inbox, sent["message"]) is not None
    back = Session.start(name, resume=True)
    assert back.wait(sent["message"], PATIENCE).stage == "acked"
    record = SessionRecord.load(SessionPaths(sessions_folder(), name).record)
    assert record is not None
    assert record.options["started_by"] == ci.caller.id
    assert ci.call("kill", session=name)["killed"]


def test_variable_of_a_session_alone_does_not_make_an_agent_that_session(bench: AgentBench) -> None:
    """A tmux server that was started in a session hands the variable to every pane."""
    bench.user_session("lead")
    environ = {"REMUDA_SESSION": "lead", "REMUDA_SESSION_FOLDER": str(sessions_folder())}

    caller = find_caller(environ, str(bench.project))
    assert (caller.kind, caller.name) == ("folder", str(bench.project))


def test_many_calls_at_once_are_refused_and_others_go_on(bench: AgentBench) -> None:
    ci = bench.outside("ci")
    name = ci.start("a")

    async def flood() -> list[object]:
        calls = [
            ci.tools.call("wait", {"session": name, "message": "x" * 9, "timeout": 1}) for _ in range(80)
        ]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    other = bench.outside("eve")
    theirs = other.start("b")
    with ThreadPoolExecutor(1) as beside:
        flooding = beside.submit(lambda: asyncio.run(flood()))
        sent = other.call("send", session=theirs, text="hello")
        assert other.waits(theirs, sent["message"])["ended"]
    codes = {one.code for one in flooding.result() if isinstance(one, RemudaError)}
    assert codes == {"NOT_SAFE", "MESSAGE_NOT_FOUND"}
    assert ci.call("list_agents")["agents"][0]["session"] == name


def test_request_to_the_pool_is_refused_while_a_budget_of_its_folder_or_day_is_used_up(
    bench: AgentBench,
) -> None:
    ci = bench.outside("ci")
    elsewhere = {"folder": str(bench.project / "other"), "reason": "budget 'x': 2 used of 1"}
    over = {"folder": str(bench.project), "reason": "budget 'day': 2 used of 1"}
    save_holds(holds_file(), [{**over, "until": 1.0}, elsewhere])
    assert ci.refused("run", prompt="hello").code != "PERMISSION_REFUSED"
    save_holds(holds_file(), [over])
    refused = ci.refused("run", prompt="hello")
    assert (refused.code, refused.message) == ("PERMISSION_REFUSED", over["reason"])


def test_request_to_the_pool_is_answered_counted_and_recorded(bench: AgentBench, remuda: Commands) -> None:
    bench.write("mcp.toml", "max_output_tokens = 14")
    ci = bench.outside("ci")
    child = bench.agent_in(ci.start("a"))
    said = ci.refused("run", prompt="hello")
    assert (said.code, "remuda pool serve" in (said.hint or "")) == ("POOL_NOT_SERVED", True)
    remuda("pool", "serve", "--detach", "--demo", "--warm", "0")
    try:
        answered = child.call("run", prompt="hello")
        assert answered["answer"] == "REPLY#1 to: hello"
        assert answered["denied_tools"] == []
        used = {"sessions": 1, "messages": 2, "output_tokens": 7}  # the refused one was a message
        assert ci.call("whoami")["used"] == used
        failed = ci.refused("run", prompt="err 400 0 no such thing")
        assert (failed.code, "no such thing" in failed.message) == ("AGENT_ERROR", True)
        assert child.call("run", prompt="again")["answer"] == "REPLY#1 to: again"
        assert "14 output tokens" in ci.refused("run", prompt="hello").message
    finally:
        remuda("pool", "stop")
    assert [(one["who"], one["outcome"]) for one in read_ledger(100) if one["tool"] == "run"] == [
        (ci.caller.id, "POOL_NOT_SERVED"),
        (child.caller.id, "ok"),
        (ci.caller.id, "AGENT_ERROR"),
        (child.caller.id, "ok"),
        (ci.caller.id, "PERMISSION_REFUSED"),
    ]


def test_tokens_of_the_whole_tree_are_counted_by_the_boss_and_limited(home: Path, bench: AgentBench) -> None:
    bench.write("mcp.toml", "max_output_tokens = 14\n")
    with RunningBoss(home, (KEPT, USAGE)):
        lead = bench.outside("ci")
        name = lead.start("a")
        child = bench.agent_in(name)

        def used() -> int:
            found: int = child.call("whoami")["used"]["output_tokens"]
            return found

        for tokens in (7, 14):  # each answer of the scripted agent has seven
            sent = lead.call("send", session=name, text="hello")
            assert lead.waits(name, sent["message"])["ended"]
            until_equal(used, tokens, "what was used")
            # Another conversation of the same session: what the first one used still counts.
            Session(name).ask("/clear", command=True, timeout=PATIENCE)
        refused = lead.refused("send", session=name, text="hello")
        assert (refused.code, "14" in refused.message) == ("PERMISSION_REFUSED", True)
        assert child.refused("start", name="b", agent="demo", prompt="hello").code == "PERMISSION_REFUSED"
        assert bench.outside("eve").call("whoami")["used"]["output_tokens"] != 14  # another's tree


def test_messages_that_are_sent_at_once_are_not_more_than_the_limit(bench: AgentBench) -> None:
    bench.write("mcp.toml", "max_messages = 3\n")
    ci = bench.outside("ci")
    name = ci.start("a")

    async def flood() -> list[object]:
        calls = [ci.tools.call("send", {"session": name, "text": f"number {one}"}) for one in range(25)]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    results = asyncio.run(flood())
    assert sum(isinstance(one, dict) for one in results) == 3
    assert {one.code for one in results if isinstance(one, RemudaError)} == {"PERMISSION_REFUSED"}
    assert ci.call("whoami")["used"]["messages"] == 3


def test_prompt_that_cannot_be_sent_starts_nothing(bench: AgentBench) -> None:
    ci = bench.outside("ci")

    for prompt in ("a\0b", "\N{GRINNING FACE}" * (1 << 20)):
        assert ci.refused("start", name="a", agent="demo", prompt=prompt).code == "INPUT_ERROR"
    assert Session.list() == []
    assert ci.call("whoami")["used"]["messages"] == 0


def test_agent_that_replied_waits_for_the_answer_and_does_not_see_the_screen(bench: AgentBench) -> None:
    lead, child, asked = lead_that_asked(bench)

    replied = child.call("send", in_reply_to=asked, text="SLOW 600 words")
    early = child.call("wait", session="lead", message=replied["message"], timeout=0.1)
    assert not early["ended"]
    assert "progress" not in early
    assert "progress" in lead.call("wait", session="lead.a", message=_waiting(lead), timeout=0.1)


def _waiting(agent: Agent) -> str:
    return str(agent.call("send", session="lead.a", text="SLOW 600 words")["message"])


def test_kill_ends_the_session_before_those_that_it_started(bench: AgentBench, tmp_path: Path) -> None:
    ci = bench.outside("ci")
    child = bench.agent_in(ci.start("a"))
    record = SessionRecord.load(SessionPaths(sessions_folder(), "ci.a").record)
    assert record is not None
    ready, seen = tmp_path / "ready", tmp_path / "seen"
    look = f"kill -0 {record.child_pid} && echo runs > {seen} || echo ended > {seen}; exit"
    script = f"trap '{look}' HUP TERM; touch {ready}; while :; do sleep 0.1; done"
    said = {"cwd": str(bench.project), "started_by": child.caller.id, "depth": 2}
    config = load_config(None, bench.project, os.environ)
    start_session(compose("ci.a.b", ("sh", "-c", script), sessions_folder(), said, config).spec)
    until(ready.exists, "the trap")

    assert ci.call("kill", session="ci.a")["also_killed"] == ["ci.a.b"]
    assert seen.read_text() == "ended\n"
