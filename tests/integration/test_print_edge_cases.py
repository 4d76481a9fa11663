"""The edge cases and invariants of claude-print's plan, on the scripted agent.

Where `claude -p` and the plan differ, `claude -p` is followed; where the plan names a mechanism that is not
ours (a FIFO, a thread), the property behind it is shown.
"""

from __future__ import annotations

import json
import os
import pty
import re
import socket
from pathlib import Path

import pytest

from remuda.agents.claude.launch import IDENTITY_VARIABLES
from remuda.agents.claude.print.print_transcript import TurnTail
from support.keeper import until
from support.print_calls import TAIL, Calls, prompts, write_program

ANSWER = "REPLY#1 to: hello\n"


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


@pytest.mark.parametrize("backend", ["terminal", "stream"])
def test_argument_that_is_not_utf_8_is_refused_on_every_backend(calls: Calls, backend: str) -> None:
    refused = calls("bad \udcff", "--backend", backend, code=4)
    assert refused.err == "remuda print: the prompt is not valid UTF-8 (byte 4)\n"


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


def test_ec_6_a_version_that_no_one_can_read_is_unknown(calls: Calls) -> None:
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


def test_ec_8_an_agent_that_prints_nothing_is_reported_by_its_own_timeout(calls: Calls) -> None:
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
    assert len(list(tail.read())) == 1
    with path.open("ab") as file:
        file.write(line[-5:])
    assert len(list(tail.read())) == 1


def test_a_transcript_is_read_from_the_prompt_of_the_call_on(tmp_path: Path) -> None:
    """One that was gone on with has earlier turns in it."""
    path = tmp_path / "t.jsonl"
    turns = [[{"type": "user", "promptId": name}, {"type": "assistant", "of": name}] for name in "abc"]
    path.write_text("".join(json.dumps(record) + "\n" for turn in turns for record in turn))
    assert list(TurnTail(path, "b").read()) == turns[1] + turns[2]
    assert list(TurnTail(path, None).read()) == [record for turn in turns for record in turn]


def test_an_answer_that_was_written_before_its_prompt_is_read_with_it(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    prompt = {"type": "user", "promptId": "p", "uuid": "u", "parentUuid": None}
    answer = {"type": "assistant", "uuid": "a", "parentUuid": "u"}
    tail = TurnTail(path, "p")
    path.write_text(json.dumps(answer) + "\n")
    assert list(tail.read()) == []
    with path.open("a") as file:
        file.write(json.dumps(prompt) + "\n")
    assert list(tail.read()) == [prompt, answer]


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


def test_standard_input_that_cannot_be_read_is_reported_and_left_alone(calls: Calls) -> None:
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
