"""`remuda print` on the real Claude Code: what it says, what it leaves, and a human next to it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remuda.errors import SessionUnreachable
from remuda.keeper.client import KeeperClient
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from remuda.testing.script import ToolResult
from remuda.wire.connection import ClientConnection
from support import counts
from support.commands import Commands
from support.drifts import DRIFTS, drifted
from support.floods import flood
from support.keeper import Start, event_named, until
from support.print_calls import ORDERLY_TRIES, Calls, HeldStart, processes_of, without_hooks
from support.real_sessions import MakeCli, keep

TAIL = "tail -f /dev/null"
MakeCalls = Callable[[RealCli], Calls]


@pytest.fixture
def make_calls(home: Path) -> Iterator[MakeCalls]:
    commands = Commands(home)
    made: list[Calls] = []

    def make(cli: RealCli) -> Calls:
        made.append(Calls(commands, cli.binary, cli.env, cli.project))
        return made[-1]

    yield make
    for calls in made:
        calls.close()
    commands.close()


@pytest.fixture
def calls(make_calls: MakeCalls, cli: RealCli) -> Calls:
    return make_calls(cli)


def assert_nothing_left(calls: Calls, cli: RealCli) -> None:
    calls.assert_nothing_left()
    until(lambda: not cli.running(), "the end of every process of the CLI")


@pytest.mark.parametrize(("backend", "entrypoint"), [("terminal", "cli"), ("stream", "sdk-cli")])
def test_a_call_is_answered_and_says_what_it_was(
    calls: Calls, cli: RealCli, backend: str, entrypoint: str
) -> None:
    found = calls.json("hello", "--backend", backend)
    assert found["result"] == "REPLY#1 to: hello"
    assert (found["backend"], found["entrypoint"]) == (backend, entrypoint)
    [path] = (cli.home / ".claude" / "projects").glob(f"*/{found['session_id']}.jsonl")
    said = {json.loads(line).get("entrypoint") for line in path.read_text().splitlines()} - {None}
    assert said == {entrypoint}, "what is told is what the CLI wrote of itself"
    assert_nothing_left(calls, cli)


def test_a_prompt_that_no_terminal_can_carry_reaches_the_model_whole(
    calls: Calls, cli: RealCli, model: LoopbackModel
) -> None:
    prompt = "bell \x07, escape \x1b[201~, NUL \0, end"
    (cli.project / "prompt").write_text(prompt)
    done = calls("--input-file", "prompt")
    assert done.out.startswith("REPLY#1 to: bell ")
    assert "using --backend stream" in done.err
    assert model.main_requests[0].prompt == prompt
    assert_nothing_left(calls, cli)


def test_an_answer_that_was_printed_is_written_down_before_the_agent_ends(calls: Calls, cli: RealCli) -> None:
    """Anyone who goes on with the conversation finds it there."""
    assert calls("hello").out == "REPLY#1 to: hello\n"
    assert_nothing_left(calls, cli)
    [path] = (cli.home / ".claude" / "projects").glob("*/*.jsonl")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert "REPLY#1 to: hello" in json.dumps([one for one in records if one["type"] == "assistant"])
    assert "turn_duration" in [one.get("subtype") for one in records]


def test_a_folder_that_nobody_trusted_is_trusted_for_the_call_and_no_longer(
    make_calls: MakeCalls, make_cli: MakeCli
) -> None:
    """What the project's settings allow and hook counts in the call, as in a folder that is trusted."""
    cli = make_cli(trust=False)
    calls = make_calls(cli)
    config = cli.home / ".claude.json"
    before = json.loads(config.read_text())
    before["projects"]["/other"] = {"hasTrustDialogAccepted": True, "lastCost": 0.25}
    config.write_text(json.dumps(before))
    ran, hooked = cli.project / "ran", cli.project / "hooked"
    (cli.project / ".claude").mkdir()
    hook = {"type": "command", "command": f"touch {hooked}"}
    settings = {"permissions": {"allow": ["Bash(touch:*)"]}, "hooks": {"Stop": [{"hooks": [hook]}]}}
    (cli.project / ".claude" / "settings.json").write_text(json.dumps(settings))
    found = calls.json(f"RUNBASH touch {ran}")
    assert (ran.exists(), hooked.exists(), found["permission_denials"]) == (True, True, [])
    assert_nothing_left(calls, cli)
    after = json.loads(config.read_text())
    assert not after["projects"].pop(os.path.realpath(cli.project), {}).get("hasTrustDialogAccepted")
    assert after["projects"] == before["projects"]
    assert after["customApiKeyResponses"] == before["customApiKeyResponses"]
    assert not [name for name in os.listdir(cli.home) if name.startswith(".claude.json.remuda")]


def test_a_killed_call_leaves_no_trust_behind_the_next_start_of_a_session(
    make_calls: MakeCalls, make_cli: MakeCli, start: Start
) -> None:
    """An agent that reports nothing: its trust would be withdrawn when it ends."""
    cli = make_cli(trust=False)
    binary = cli.binary
    calls = make_calls(drifted(cli, DRIFTS["nothing but the screen"]))
    config, notes = cli.home / ".claude.json", cli.home / ".claude.json.remuda-trust"

    def trusted() -> bool:
        entry = json.loads(config.read_text())["projects"].get(os.path.realpath(cli.project), {})
        return bool(entry.get("hasTrustDialogAccepted"))

    call = calls.begin("hello").until("started")
    until(trusted, "the answer to the dialog")
    keeper = call.keeper()
    keeper.signal(signal.SIGKILL)
    call.process.kill()
    keeper.gone()
    until(lambda: not list(processes_of(call.name)), "the end of its agent")
    assert (trusted(), notes.exists()) == (True, True)
    cli.binary = binary
    keep(start, cli)
    until(lambda: not trusted() and not notes.exists(), "the end of the loan")


def test_a_stop_hook_of_the_user_that_takes_its_time_is_no_hang(calls: Calls, cli: RealCli) -> None:
    """Ours is told at once, next to theirs; the turn is over when theirs is done."""
    ran = cli.home / "ran"
    hook = {"type": "command", "command": f"sleep 6; touch {ran}"}
    (cli.home / ".claude").mkdir(exist_ok=True)
    settings = {"hooks": {"Stop": [{"hooks": [hook]}]}}
    (cli.home / ".claude" / "settings.json").write_text(json.dumps(settings))
    assert calls("hello", "--stop-hook-timeout", "4").out == "REPLY#1 to: hello\n"
    assert ran.exists()


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_stop_hook_of_the_user_that_sends_the_agent_on_is_followed(
    calls: Calls, cli: RealCli, seconds: int
) -> None:
    once = cli.home / "once"
    block = json.dumps({"decision": "block", "reason": "go on"})
    command = f"sleep {seconds}; test -e {once} || {{ touch {once}; echo '{block}'; }}"
    (cli.home / ".claude").mkdir(exist_ok=True)
    settings = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}}
    (cli.home / ".claude" / "settings.json").write_text(json.dumps(settings))
    assert "REPLY#2" in calls("hello").out


@pytest.mark.parametrize("backend", ["terminal", "stream"])
def test_a_killed_call_in_a_tool_leaves_nothing_and_ends_the_agent_in_order(
    calls: Calls, cli: RealCli, backend: str
) -> None:
    ended, marker = cli.home / "session-ended", cli.project / "in-tool"
    hook = {"type": "command", "command": f"touch {ended}"}
    (cli.home / ".claude").mkdir(exist_ok=True)
    settings = {"hooks": {"SessionEnd": [{"hooks": [hook]}]}}
    (cli.home / ".claude" / "settings.json").write_text(json.dumps(settings))
    for _ in range(ORDERLY_TRIES):
        call = calls.begin(f"RUNBASH touch {marker}; {TAIL}", "--allowedTools", "Bash", "--backend", backend)
        until(marker.exists, "the tool")
        call.process.kill()
        assert call.ended()[0] == -signal.SIGKILL
        assert_nothing_left(calls, cli)
        if ended.exists():
            return
        marker.unlink()
    pytest.fail("its hook at the session's end never ran")


@pytest.mark.parametrize("who", ["keeper", "agent"])
def test_a_killed_keeper_or_agent_in_a_tool_is_told_and_leaves_nothing(
    calls: Calls, cli: RealCli, who: str
) -> None:
    marker = cli.project / "in-tool"
    call = calls.begin(f"RUNBASH touch {marker}; {TAIL}", "--allowedTools", "Bash").until("started")
    until(marker.exists, "the tool")
    victim = call.keeper() if who == "keeper" else call.agent()
    victim.signal(signal.SIGKILL)
    code, out, err = call.ended()
    victim.close()
    assert (code, out) == (2, "")
    assert "exited" in err
    assert_nothing_left(calls, cli)


def test_an_interrupted_stream_call_in_a_tool_leaves_nothing(calls: Calls, cli: RealCli) -> None:
    marker = cli.project / "in-tool"
    words = (f"RUNBASH touch {marker}; {TAIL}", "--allowedTools", "Bash", "--backend", "stream")
    call = calls.begin(*words)
    until(marker.exists, "the tool")
    call.process.send_signal(signal.SIGINT)
    assert call.ended()[0] == 130
    assert_nothing_left(calls, cli)


@pytest.mark.parametrize(
    ("words", "on"),
    [
        (["--ask", "RUNBASH touch made"], "Do you want to proceed? / ❯ 1. Yes"),
        (["err 500"], "the agent is retrying the API, attempt "),
        ([f"RUNBASH {TAIL}", "--allowedTools", "Bash"], "a tool is running: "),
        ([f"RUNBASH {TAIL}", "--allowedTools", "Bash", "--backend", "stream"], "a tool is running: Bash"),
    ],
    ids=["permission", "api", "tool", "stream-tool"],
)
def test_what_it_hangs_on_is_named(calls: Calls, cli: RealCli, words: list[str], on: str) -> None:
    calls.hangs(*words, on=on)
    assert_nothing_left(calls, cli)


def test_a_permission_that_no_hook_tells_of_is_refused_with_its_text(calls: Calls, cli: RealCli) -> None:
    """Plan mode has actions checked by the service, which is not there. The dialog blinks while it waits."""
    done = calls("RUNBASH touch made", "--permission-mode", "plan", code=2)
    assert "a one-shot run cannot answer: Bash command" in done.err
    assert "Auto mode can't check actions in this session" in done.err
    assert not (cli.project / "made").exists()
    assert_nothing_left(calls, cli)


def test_a_running_call_can_be_watched_and_its_permission_given(calls: Calls, cli: RealCli) -> None:
    made = cli.project / "made"
    call = calls.begin("--ask", f"RUNBASH touch {made}").until("waiting for permission")
    # Of "Bash", or of the dialog if the screen shows that before the hook has come.
    assert re.fullmatch(
        r"remuda print: waiting for permission: (Bash|.*touch.*); answer with .*", call.said[-1]
    )
    answer = f"answer with 'remuda approve {call.name}' or 'remuda attach {call.name}'"
    assert call.said[-1].endswith(answer)
    listed = calls.remuda.json("ls")
    assert [one["name"] for one in listed] == [call.name]
    with KeeperClient.connect(call.name, calls.sessions) as human:
        if human.request("watch")["state"] != "waiting_permission":
            event_named(human, "state", state="waiting_permission")

        def shown() -> str:
            return "\n".join(human.request("screen")["lines"])

        until(lambda: "Do you want to proceed?" in shown(), "the dialog")
        until(lambda: _pressed(human, shown), "that the dialog takes the key")
        code, out, _ = call.ended()
    assert (code, out) == (0, "REPLY#2 to: tool_result (Bash completed with no output)\n")
    assert made.exists()
    assert_nothing_left(calls, cli)


def _pressed(human: KeeperClient, shown: Callable[[], str]) -> bool:
    """A dialog drops the keys of its first moment."""
    try:
        if "Do you want to proceed?" in shown():
            human.send(ClientConnection.input(b"1"))
            return False
    except SessionUnreachable:  # the complete call is over
        pass
    return True


def test_what_ends_in_the_background_before_the_answer_is_answered_too(
    calls: Calls, cli: RealCli, model: LoopbackModel
) -> None:
    """The agent is woken behind its answer, by a notice that was waiting; what it says then counts."""
    work = {"description": "d", "prompt": "some work", "subagent_type": "general-purpose"}
    worker = model.hold(lambda request: request.said == "some work")
    first = model.hold(lambda request: isinstance(request.said, ToolResult))
    tool = json.dumps({"name": "Agent", "input": work})
    call = calls.begin("--allowedTools", "Agent", "--", f"TOOL {tool}")
    first.wait_reached()
    worker.open()
    transcripts = cli.home / ".claude" / "projects"

    def is_queued() -> bool:
        return any('"enqueue"' in path.read_text() for path in transcripts.glob("*/*.jsonl"))

    until(is_queued, "the notice of its end")
    first.open()
    code, out, _ = call.ended()
    assert (code, out[:8]) == (0, "REPLY#4 ")
    assert len(model.main_requests) == 4
    assert_nothing_left(calls, cli)


def test_a_kept_session_takes_messages(calls: Calls, model: LoopbackModel) -> None:
    done = calls("--keep", "--output-format", "json", "hello")
    name = json.loads(done.out)["session"]
    assert f"the session is still running: remuda attach {name}" in done.err
    assert "to: and again" in calls.remuda("send", name, "and again", "--wait").out
    assert [request.prompt for request in model.main_requests] == ["hello", "and again"]
    keeper = calls.remuda.keeper(name)
    calls.remuda("kill", name)
    keeper.gone()


@pytest.mark.parametrize("backend", ["terminal", "stream"])
def test_eight_calls_at_once_are_all_right(calls: Calls, cli: RealCli, backend: str) -> None:
    words = ["--backend", backend, "--output-format", "json"]
    begun = [calls.begin(*words, f"prompt {number}") for number in range(8)]
    found = [json.loads(call.ended()[1]) for call in begun]
    assert [one["result"] for one in found] == [f"REPLY#1 to: prompt {number}" for number in range(8)]
    assert len({one["session_id"] for one in found}) == 8
    assert_nothing_left(calls, cli)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", ["terminal", "stream"])
def test_call_after_call_is_right_and_leaves_nothing(calls: Calls, cli: RealCli, backend: str) -> None:
    for number in range(counts.CALLS):
        done = calls(f"prompt {number}", "--backend", backend)
        assert (done.out, done.err) == (f"REPLY#1 to: prompt {number}\n", "")
    assert_nothing_left(calls, cli)


# ── hooks that do not reach us ──


def test_permission_whose_hook_does_not_reach_us_ends_the_call_and_is_not_given(
    calls: Calls, cli: RealCli
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    made = calls.home / "made"
    calls.binary = without_hooks(calls.home, calls.binary, port)
    done = calls(f"RUNBASH touch {made}", code=2)
    assert "a one-shot run cannot answer" in done.err
    assert "no hook reported it" in done.err
    assert "Do you want to proceed?" in done.err
    assert not made.exists()
    assert_nothing_left(calls, cli)


@pytest.mark.soak
def test_permission_is_refused_while_another_user_floods_the_hook_port(calls: Calls, cli: RealCli) -> None:
    made = calls.home / "made"
    held = HeldStart(calls.home, calls.binary)
    calls.binary = held.binary
    call = calls.begin("--output-format", "json", f"RUNBASH touch {made}")
    with flood(held.port(), counts.FLOOD):
        held.let_go()
        code, out, err = call.ended()
    assert code == 0, err
    assert json.loads(out)["permission_denials"][0]["tool_name"] == "Bash"
    assert not made.exists()
    assert_nothing_left(calls, cli)
