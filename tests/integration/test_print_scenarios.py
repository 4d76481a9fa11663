"""The scenarios of claude-print's plan on the scripted agent: acceptance, edge cases, invariants, its table.

Where `claude -p` and the plan differ, `claude -p` is followed; where the plan names a mechanism that is not
ours (a FIFO, a thread), the property behind it is shown.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.claude.launch import IDENTITY_VARIABLES
from remuda.agents.claude.print.transcript import TurnTail
from remuda.keeper.client import KeeperClient
from remuda.wire.connection import ClientConnection
from support.counts import FLOOD
from support.floods import flood
from support.keeper import event_named, until
from support.print_calls import TAIL, Calls, HeldStart, without_hooks, write_program

ANSWER = "REPLY#1 to: hello\n"


def transcripts(calls: Calls) -> list[list[dict[str, Any]]]:
    found = sorted((calls.home / ".claude" / "projects").glob("*/*.jsonl"))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in found]


def prompts(calls: Calls) -> list[str]:
    """What the agent took as prompts, by conversation."""
    return [
        record["message"]["content"]
        for records in transcripts(calls)
        for record in records
        if record["type"] == "user" and isinstance(record["message"]["content"], str)
    ]


def arguments(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\0")[:-1]


# ── acceptance ──


def test_as_1_a_piped_prompt_is_answered_in_text(calls: Calls) -> None:
    done = calls(stdin=b"What is 2+2?")
    assert done.out == "REPLY#1 to: What is 2+2?\n"
    assert done.err == ""
    assert len(transcripts(calls)) == 1


def test_as_2_a_json_consumer_gets_one_object(calls: Calls) -> None:
    found = calls.json("What is the capital of France?")
    assert (found["type"], found["subtype"], found["is_error"]) == ("result", "success", False)
    assert found["result"]
    assert found["usage"]["input_tokens"] > 0
    assert found["claude_version"]
    assert found["backend"] == "terminal"


def test_as_3_a_worker_gets_a_session_id_and_a_transcript_in_its_folder(calls: Calls) -> None:
    found = calls.json("--model", "claude-sonnet-4-6", "--max-turns", "30", stdin=b"a bead's prompt")
    assert str(uuid.UUID(found["session_id"])) == found["session_id"]
    slug = re.sub(r"[^A-Za-z0-9]", "-", os.path.realpath(calls.remuda.cwd))
    assert (calls.home / ".claude" / "projects" / slug / f"{found['session_id']}.jsonl").exists()


def test_as_4_and_inv_6_the_entrypoint_is_what_the_agent_says_and_never_set_by_us(calls: Calls) -> None:
    found = calls.json("hello")
    said = {record["entrypoint"] for record in transcripts(calls)[0] if "entrypoint" in record}
    assert said == {found["entrypoint"]}
    assert "CLAUDE_CODE_ENTRYPOINT" not in (calls.home / "agent.env").read_text()


@pytest.mark.parametrize("words", [("--claude-binary", "/nonexistent"), ()])
def test_as_5_a_missing_agent_is_named(calls: Calls, words: tuple[str, ...]) -> None:
    env = {"PATH": "/nonexistent"}
    command = [sys.executable, "-m", "remuda", "print", *words, "hello"]
    outputs = []
    for form in ([], ["--output-format", "json"]):
        done = subprocess.run(
            [*command, *form], env={**calls.env, **env}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert (words[1] if words else "claude") in done.stdout + done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == ""
    found = json.loads(outputs[1])
    assert (found["is_error"], found["subtype"]) == (True, "internal_error")


def test_as_6_an_answer_that_is_written_down_late_is_found(calls: Calls) -> None:
    assert calls.json("hello", env={"MOCK_DELAY_JSONL": "150"})["result"] + "\n" == ANSWER


# ── the plan's integration table ──

RIGHT: dict[str, Mapping[str, str]] = {
    "defaults": {},
    "trust dialog": {"MOCK_TRUST_DIALOG": "1"},
    "trust dialog with yes first": {"MOCK_TRUST_DIALOG": "1", "MOCK_TRUST_WORDING": "old"},
    "trust dialog in other words": {"MOCK_TRUST_DIALOG": "1", "MOCK_TRUST_WORDING": "alternate"},
    "late transcript": {"MOCK_DELAY_JSONL": "100"},
    "no transcript_path": {"MOCK_OMIT_TRANSCRIPT_PATH": "1"},
    "no last_assistant_message": {"MOCK_OMIT_LAST_MESSAGE": "1"},
    "no last_assistant_message, late transcript": {
        "MOCK_OMIT_LAST_MESSAGE": "1",
        "MOCK_DELAY_JSONL": "200",
    },
    "no session_id and no cwd": {"MOCK_OMIT_SESSION_ID": "1", "MOCK_OMIT_CWD": "1"},
    "unknown probe": {"MOCK_UNKNOWN_PROBE": "1"},
    "unknown event type": {"MOCK_UNKNOWN_EVENT_TYPE": "1"},
    "unknown usage fields": {"MOCK_UNKNOWN_USAGE_FIELDS": "1"},
    "late Stop": {"MOCK_DELAY_STOP": "300"},
    "more Stops than one": {"MOCK_EXTRA_STOPS": "2"},
    "a Stop before there was a prompt": {"MOCK_STOP_BEFORE_INJECT": "1"},
    "not one byte on the terminal": {"MOCK_SILENT": "1"},
}


@pytest.mark.parametrize("env", RIGHT.values(), ids=RIGHT)
def test_whatever_the_agent_leaves_out_or_adds_the_answer_is_right(
    calls: Calls, env: Mapping[str, str]
) -> None:
    found = calls.json("hello", env=env)
    assert found["result"] + "\n" == ANSWER
    assert (found["num_turns"], found["usage"]["input_tokens"]) == (1, 12)
    calls.assert_nothing_left()


def test_several_answers_to_one_prompt_the_last_is_told_and_all_are_counted(calls: Calls) -> None:
    found = calls.json("hello", env={"MOCK_TURNS": "3"})
    assert found["result"].startswith("REPLY#3")
    assert found["usage"]["input_tokens"] == 36


@pytest.mark.parametrize(("form", "is_read"), [("text", False), ("json", True)])
def test_a_text_is_printed_when_the_agent_has_shown_and_said_it(
    calls: Calls, form: str, is_read: bool
) -> None:
    """Nothing of what is written down is waited for, where nothing of it is printed."""
    text = "  an answer \n\nwith blanks  \n"
    env = {"MOCK_RESPONSE": text, "MOCK_DELAY_JSONL": "0" if is_read else "600000"}

    def reads() -> bool:
        code, out, err = calls.begin("--output-format", form, "hello", env=env).ended()
        assert (code, json.loads(out)["result"] if is_read else out) == (0, text)
        calls.assert_nothing_left()
        return "acked" in err

    # On a busy machine the turn may be over before the command comes to look at the answer.
    assert reads() if is_read else any(not reads() for _ in range(4))


def test_where_a_hook_of_the_user_may_send_the_agent_on_a_text_waits_for_its_end(calls: Calls) -> None:
    settings = calls.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    hook = {"type": "command", "command": "true"}
    settings.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}}))
    code, out, err = calls.begin("hello").ended()
    assert (code, out) == (0, ANSWER)
    assert "acked" in err


def test_an_answer_without_a_transcript_comes_from_the_hook(calls: Calls) -> None:
    assert calls("hello", env={"MOCK_WRITE_DERIVED_JSONL": "0"}).out == ANSWER


def test_the_answer_of_the_environment_is_the_answer(calls: Calls) -> None:
    assert calls("hello", env={"MOCK_RESPONSE": "forty-two"}).out == "forty-two\n"


def test_stream_json_is_one_object_a_line_up_to_the_result(calls: Calls) -> None:
    """INV-8: all of it is printed before the call ends."""
    lines = calls("hello", "--output-format", "stream-json", "--verbose").out.splitlines()
    messages = [json.loads(line) for line in lines]
    assert [one["type"] for one in messages] == ["system", "assistant", "result"]
    assert messages[-1]["result"] + "\n" == ANSWER


def test_without_the_users_hooks_only_ours_fire(calls: Calls) -> None:
    fired = calls.home / "fired"
    settings = calls.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    hook = {"type": "command", "command": f"touch {fired}"}
    settings.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}}))
    record = calls.home / "arguments"

    calls("hello", "--no-inherit-hooks", env={"MOCK_RECORD_ARGS": str(record)})
    assert not fired.exists()
    assert "--setting-sources=" in arguments(record)
    calls("hello", env={"MOCK_RECORD_ARGS": str(record)})
    assert fired.exists()
    assert not any(word.startswith("--setting-sources") for word in arguments(record))
    assert "--settings" in arguments(record)


# ── INV-7: exit codes ──


def test_inv_7_every_end_has_its_exit_code(calls: Calls) -> None:
    """The plan's table; 4 for a wrong input."""
    assert calls("err 400", code=1).out == "API Error: 400 fake error 400\n"
    found = calls.json("RUNBASH true", "--allowedTools", "Bash", "--max-turns", "1", code=1)
    assert found["subtype"] == "error_max_turns"
    gone = calls("hello", code=2, env={"MOCK_EXIT_BEFORE_STOP": "1"})
    assert "the agent exited" in gone.err
    unknown = calls("hello", code=2, env={"MOCK_TRUST_DIALOG": "1", "MOCK_TRUST_WORDING": "unresolvable"})
    assert "How shall this folder be opened, with which permission?" in unknown.err
    assert "--pretrust-cwd" in unknown.err
    calls.hangs("THINK 600 x", on="s: the agent is thinking")
    calls.assert_nothing_left()


def test_a_stop_that_never_comes_is_a_timeout_of_its_own_name(calls: Calls) -> None:
    found = calls.json("hello", "--stop-hook-timeout", "1", code=124, env={"MOCK_DELAY_STOP": "99999"})
    assert found["subtype"] == "timeout"
    assert found["error_message"] == (
        "--stop-hook-timeout: the turn has ended, but no Stop hook came within 1 s"
    )
    calls.assert_nothing_left()


# ── what it hangs on ──


def test_a_hang_is_named_a_tool(calls: Calls) -> None:
    calls.hangs(f"RUNBASH {TAIL}", "--allowedTools", "Bash", on="s: a tool is running: PreToolUse Bash")
    calls.assert_nothing_left()


def test_a_hang_is_named_the_api_that_is_tried_again(calls: Calls) -> None:
    calls.hangs("err 500", on="the agent is retrying the API, attempt 1 of", env={"MOCK_TIME_SCALE": "100"})


def test_a_dialog_that_no_hook_tells_of_is_refused_with_its_text(calls: Calls) -> None:
    env = {"MOCK_AUTO_MODE_DIALOG": "1"}
    done = calls("RUNBASH touch made", "--permission-mode", "auto", code=2, env=env)
    assert "a one-shot run cannot answer" in done.err
    assert "Auto mode can" in done.err
    calls.assert_nothing_left()


# ── hooks that do not reach us ──


@pytest.mark.parametrize("answers", [False, True], ids=["dead", "starved"])
def test_permission_whose_hook_does_not_reach_us_ends_the_call_and_is_not_given(
    calls: Calls, answers: bool
) -> None:
    """Starved: connections are accepted, and closed at once."""
    made = calls.home / "made"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if not answers:
            listener.close()
        else:
            threading.Thread(target=_hang_up, args=(listener,), daemon=True).start()
        calls.binary = without_hooks(calls.home, calls.binary, port)
        done = calls(f"RUNBASH touch {made}", code=2)
        if answers:
            listener.shutdown(socket.SHUT_RDWR)
    assert "a one-shot run cannot answer" in done.err
    assert "Do you want to proceed?" in done.err
    assert "no hook reported it" in done.err
    assert not made.exists()
    calls.assert_nothing_left()


@pytest.mark.soak
def test_permission_is_refused_while_another_user_floods_the_hook_port(calls: Calls) -> None:
    made = calls.home / "made"
    held = HeldStart(calls.home, calls.binary)
    calls.binary = held.binary
    call = calls.begin("--output-format", "json", f"RUNBASH touch {made}")
    with flood(held.port(), FLOOD):
        held.let_go()
        code, out, err = call.ended()
    assert code == 0, err
    assert json.loads(out)["permission_denials"][0]["tool_name"] == "Bash"
    assert not made.exists()
    calls.assert_nothing_left()


def _hang_up(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            listener.accept()[0].close()


# ── edge cases ──


def test_ec_1_two_calls_in_one_folder_never_mix(calls: Calls) -> None:
    both = [calls.begin("--output-format", "json", f"prompt {number}") for number in range(4)]
    found = [json.loads(call.ended()[1]) for call in both]
    assert [one["result"] for one in found] == [f"REPLY#1 to: prompt {number}" for number in range(4)]
    assert len({one["session_id"] for one in found}) == 4
    calls.assert_nothing_left()


def test_ec_2_a_home_without_anything_in_it_will_do(calls: Calls) -> None:
    assert not (calls.home / ".claude").exists()
    assert calls("hello").out == ANSWER


def test_ec_3_and_inv_3_who_hears_the_end_is_there_before_the_prompt(calls: Calls) -> None:
    """The quickest Stop there can be is heard."""
    call = calls.begin("hello", env={"MOCK_RESPONSE": "x", "MOCK_TIME_SCALE": "0"})
    code, out, err = call.ended()
    assert (code, out) == (0, "x\n")
    stages = re.findall(r"ms\] (?:session \S+ )?(started|submitted|recorded|ended)", err)
    # On a busy machine the transcript may be read before the hook: then 'submitted' is passed over.
    assert stages[0] == "started", stages
    assert len(stages) > 1, stages


def test_ec_4_a_nul_is_refused_for_a_terminal_and_carried_by_the_stream(calls: Calls) -> None:
    refused = calls("--backend", "terminal", stdin=b"a\0b", code=4)
    assert refused.out == ""
    assert "U+0000" in refused.err
    assert "--backend stream" in refused.err
    took = calls.home / "took"
    write_program(
        calls.binary,
        f'#!/bin/sh\ncat > {took}\necho \'{{"type":"result","subtype":"success","result":"ok"}}\'\n',
    )
    assert calls("--backend", "stream", stdin=b"a\0b").out == "ok\n"
    assert took.read_bytes() == b"a\0b"


@pytest.mark.parametrize(
    "words",
    [
        ["/cost"],
        ["\x1b[201~x", "--backend", "terminal"],
        ["a\x07b", "--ask"],
        ["a\x07b", "--keep"],
    ],
    ids=["command", "terminal", "ask", "keep"],
)
def test_what_no_terminal_can_take_as_it_is_is_refused_with_the_way_out(
    calls: Calls, words: list[str]
) -> None:
    refused = calls(*words, code=4)
    assert refused.err.endswith("add --backend stream\n")
    assert "--command" not in refused.err
    assert not calls.sessions.exists() or not os.listdir(calls.sessions)


@pytest.mark.parametrize("size", [33_000, 300_000])
def test_ec_5_a_long_prompt_arrives_whole(calls: Calls, size: int) -> None:
    prompt = "".join(f"{number:07d}\n" for number in range(size // 8)) + "end"
    calls(stdin=prompt.encode())
    assert prompts(calls) == [prompt]


def test_ec_6_a_version_that_nobody_can_read_is_unknown(calls: Calls) -> None:
    assert re.fullmatch(r"remuda print \S+ \(wrapping claude [\d.]+\)\n", calls("--version").out)
    write_program(calls.binary, "#!/bin/sh\necho something else\n")
    assert calls("-V").out.endswith("(wrapping claude unknown)\n")


def test_ec_7_a_stop_before_the_prompt_is_no_answer(calls: Calls) -> None:
    """Where the prompt is taken after it, its own answer is told (see the table above); here it never is."""
    prompt_dropped = 'while [ $# -gt 0 ] && [ "$1" != -- ]; do set -- "$@" "$1"; shift; done; shift 2'
    agent = calls.binary.read_text().replace("exec ", f"{prompt_dropped}\nexec ")
    write_program(calls.binary, agent)
    found = calls.json("hello", code=2, env={"MOCK_STOP_BEFORE_INJECT": "1"})
    assert (found["is_error"], found["subtype"]) == (True, "internal_error")
    assert found["error_message"] == "typed, but the agent never confirmed it"
    calls.assert_nothing_left()


def test_ec_8_an_agent_that_prints_nothing_is_told_by_its_own_timeout(calls: Calls) -> None:
    write_program(calls.binary, f"#!/bin/sh\n{TAIL}\n")
    for backend in ("terminal", "stream"):
        done = calls("hello", "--first-output-timeout", "1", "--backend", backend, code=124)
        assert "--first-output-timeout: no output after 1 s: the agent has printed nothing" in done.err
    calls.assert_nothing_left()


def test_an_agent_that_never_stops_printing_is_ended_in_time(calls: Calls) -> None:
    write_program(calls.binary, "#!/bin/sh\nexec yes '{}'\n")
    done = calls("hello", "--timeout", "1", "--backend", "stream", code=124)
    assert "--timeout: not finished after 1 s" in done.err
    calls.assert_nothing_left()


def test_ec_9_no_escape_sequence_of_an_answer_reaches_a_terminal(calls: Calls) -> None:
    env = {"MOCK_RESPONSE": "\x1b[31mred\x1b[0m \x1b]0;title\x07end"}
    master, slave = pty.openpty()
    call = calls.begin("hello", env=env, stdout=slave)
    os.close(slave)
    assert call.ended()[0] == 0
    shown = os.read(master, 4096)
    os.close(master)
    assert shown == b"red end\r\n"


def test_ec_10_a_last_line_without_its_end_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    line = json.dumps({"type": "user", "promptId": "p"}).encode() + b"\n"
    path.write_bytes(line + b"not json\n" + line[:-5])
    tail = TurnTail(path, "p")
    assert len(tail.read()) == 1
    with path.open("ab") as file:
        file.write(line[-5:])
    assert len(tail.read()) == 1


def test_a_transcript_is_read_from_the_prompt_of_the_call_on(tmp_path: Path) -> None:
    """One that was gone on with has earlier turns in it."""
    path = tmp_path / "t.jsonl"
    turns = [[{"type": "user", "promptId": name}, {"type": "assistant", "of": name}] for name in "abc"]
    path.write_text("".join(json.dumps(record) + "\n" for turn in turns for record in turn))
    assert TurnTail(path, "b").read() == turns[1] + turns[2]
    assert TurnTail(path, None).read() == [record for turn in turns for record in turn]


def test_an_answer_that_was_written_before_its_prompt_is_read_with_it(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    prompt = {"type": "user", "promptId": "p", "uuid": "u", "parentUuid": None}
    answer = {"type": "assistant", "uuid": "a", "parentUuid": "u"}
    tail = TurnTail(path, "p")
    path.write_text(json.dumps(answer) + "\n")
    assert tail.read() == []
    with path.open("a") as file:
        file.write(json.dumps(prompt) + "\n")
    assert tail.read() == [prompt, answer]


def test_ec_11_an_agent_does_not_inherit_another_agents_identity(calls: Calls) -> None:
    identity = dict.fromkeys(IDENTITY_VARIABLES, "somebody-else")
    terminal = {"TMUX": "/tmp/tmux-0/default,1,0", "TMUX_PANE": "%1"}
    assert calls("hello", env=identity | terminal).out == ANSWER
    given = dict(
        line.split("=", 1) for line in (calls.home / "agent.env").read_text().splitlines() if "=" in line
    )
    assert not {*identity, *terminal} & given.keys()


def test_ec_12_a_terminal_without_a_prompt_is_an_input_error(calls: Calls) -> None:
    master, slave = pty.openpty()
    call = calls.begin(stdin=slave)
    os.close(slave)
    code, out, err = call.ended()
    os.close(master)
    assert (code, out) == (4, "")
    assert "the prompt is empty" in err


# ── invariants ──


def test_inv_1_and_2_and_4_no_file_no_zombie_and_no_terminal_outlives_a_call(calls: Calls) -> None:
    call = calls.begin("THINK 600 x").until("submitted")
    agent = call.agent()
    call.process.terminate()
    assert call.ended()[0] == 130
    calls.assert_nothing_left()
    assert agent.ended()
    # Not even as a zombie: its keeper has waited for it. So its terminal has no end that is open.
    until(lambda: not Path(f"/proc/{agent.pid}").exists(), "the last of the agent")
    agent.close()


def test_inv_5_nothing_of_ours_writes_below_the_agents_folder(calls: Calls) -> None:
    trace = calls.home / "trace"
    calls("hello", prefix=["strace", "-f", "-qq", "-e", "trace=%file,%process", "-o", str(trace)])
    agents: set[str] = set()
    writers = []
    for line in trace.read_text(errors="replace").splitlines():
        pid, _, call = line.partition(" ")
        call = call.strip()
        if call.startswith("execve(") and str(calls.binary) in call:
            agents.add(pid)
        born = re.match(r"(?:clone3?|v?fork)\(.*= (\d+)$", call)
        if born and pid in agents:
            agents.add(born[1])
        if "/.claude" in call and re.search(r"O_WRONLY|O_RDWR|O_CREAT|^(?:mkdir|rename|unlink)", call):
            writers.append((pid, call))
    assert writers, "the agent itself writes there"
    assert [one for one in writers if one[0] not in agents] == []


# ── where it may be called from ──


def test_cron_without_a_terminal_will_do(calls: Calls) -> None:
    assert calls("hello", prefix=["setsid", "--wait"], env={"TERM": ""}).out == ANSWER


@pytest.mark.parametrize("named", ["", "missing"])
def test_a_missing_home_is_an_error(calls: Calls, named: str) -> None:
    done = calls("--output-format", "json", "hello", code=2, env={"HOME": named and str(calls.home / named)})
    assert done.out == ""
    assert "HOME is" in done.err


@pytest.mark.parametrize("closed", ["<&-", "<&- 2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_will_do(calls: Calls, closed: str) -> None:
    done = calls("hello", prefix=["sh", "-c", f'"$@" {closed}', "sh"])
    assert done.out == ("" if ">&-" in closed.replace("2>&-", "") else ANSWER)
    calls.assert_nothing_left()


def test_a_pipe_that_says_nothing_is_not_waited_for_longer_than_claude_does(calls: Calls) -> None:
    read, write = os.pipe()
    call = calls.begin("hello", stdin=read)
    os.close(read)
    code, out, err = call.ended()
    os.close(write)
    assert (code, out) == (0, ANSWER)
    assert "no data on standard input within 3 s" in err


def test_standard_input_that_cannot_be_read_is_told_and_left_alone(calls: Calls) -> None:
    write_only = os.open(calls.home / "log", os.O_WRONLY | os.O_CREAT)
    code, out, err = calls.begin("hello", stdin=write_only).ended()
    os.close(write_only)
    assert (code, out) == (0, ANSWER)
    assert "cannot read standard input (Bad file descriptor); continuing without it" in err


def test_standard_input_that_breaks_off_is_no_prompt(calls: Calls) -> None:
    """What came may be half of it."""
    ours, theirs = socket.socketpair()
    theirs.send(b"who closes without having read this")
    ours.send(b"delete all but")
    ours.close()  # has broken the connection
    code, out, err = calls.begin("hello", stdin=theirs).ended()
    theirs.close()
    assert (code, out) == (4, "")
    assert "cannot read all of standard input: Connection reset by peer" in err


# ── a human beside it ──


def test_a_permission_that_is_asked_for_can_be_given_by_who_attaches(calls: Calls) -> None:
    made = calls.home / "made"
    call = calls.begin("--ask", f"RUNBASH touch {made}", env={"MOCK_DIALOG_GUARD": "0"}).until("submitted")
    with KeeperClient.connect(call.name, calls.sessions) as human:
        found = human.request("watch")
        if found["state"] != "waiting_permission":
            event_named(human, "state", state="waiting_permission")
        until(lambda: "Do you want to proceed?" in "\n".join(human.request("screen")["lines"]), "the dialog")
        human.send(ClientConnection.input(b"1"))
        code, out, _ = call.ended()
    assert (code, out) == (0, "REPLY#2 to: tool_result (Bash completed with no output)\n")
    assert made.exists()
    calls.assert_nothing_left()


def test_without_a_human_a_permission_is_refused_and_told(calls: Calls) -> None:
    made = calls.home / "made"
    found = calls.json(f"RUNBASH touch {made}")
    assert found["permission_denials"][0]["tool_name"] == "Bash"
    assert not made.exists()


def test_the_tool_that_asks_a_human_is_there_only_with_one(calls: Calls) -> None:
    for words, has_it in ((), False), (("--ask",), True):
        record = calls.home / "arguments"
        calls(*words, "hello", env={"MOCK_RECORD_ARGS": str(record)})
        assert ("--disallowedTools=AskUserQuestion" not in arguments(record)) is has_it


def test_a_permission_that_nobody_gives_is_named_when_time_is_up(calls: Calls) -> None:
    said = calls.hangs("--ask", "RUNBASH touch made", on="a dialog is open")
    assert "Do you want to proceed? / ❯ 1. Yes" in said


def test_a_kept_session_goes_on(calls: Calls) -> None:
    done = calls("--keep", "--max-turns", "1", "--output-format", "json", "hello")
    name = json.loads(done.out)["session"]
    assert f"the session is still running: remuda attach {name}" in done.err
    answered = calls.remuda("send", name, "and again", "--wait").out
    assert "REPLY#2 to: and again" in answered
    # What held for the call does not hold for those who go on.
    calls.remuda("send", name, "RUNBASH touch made")
    with KeeperClient.connect(name, calls.sessions) as human:
        if human.request("watch")["state"] != "waiting_permission":
            event_named(human, "state", state="waiting_permission")
    calls.remuda("kill", name)


def test_the_agents_screen_is_shown_when_time_is_up(calls: Calls) -> None:
    said = calls.hangs("--show-child-output", "THINK 600 x", on="❯ THINK 600 x")
    assert "----- the agent's terminal (--timeout) -----" in said


def test_what_the_agent_said_last_is_shown_when_it_is_gone(calls: Calls) -> None:
    write_program(calls.binary, "#!/bin/sh\nprintf '\\033[31mno licence\\033[0m\\n'; sleep 1; exit 3\n")
    done = calls("--show-child-output", "hello", code=2)
    assert "the agent exited" in done.err
    assert "(the agent exited) -----\nno licence\n" in done.err
