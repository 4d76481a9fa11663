"""However a call of `remuda print` ends: no agent, no tool, no file of it is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from remuda import Session
from remuda.keeper.record import SessionRecord
from remuda.proctree import descendants, is_alive
from support.keeper import Process, until
from support.print_calls import ORDERLY_TRIES, TAIL, Call, Calls, no_reader, processes_of, write_program

SIGNALS = {"INT": signal.SIGINT, "TERM": signal.SIGTERM, "HUP": signal.SIGHUP}
STAGES = ("prompt", "dialog", "submitted", "tool")


def begin(calls: Calls, stage: str) -> Call:
    """A call that has come so far, and goes no further by itself."""
    if stage == "prompt":
        call = calls.begin(stdin=subprocess.PIPE)
        assert call.process.stdin is not None
        call.process.stdin.write(b"half of a prompt")
        call.process.stdin.flush()
        return call.until("reading the prompt")
    if stage == "dialog":
        asked = {"MOCK_TRUST_DIALOG": "1", "MOCK_TRUST_WORDING": "unresolvable"}
        return calls.begin("--ask", "hello", env=asked).until("started")
    if stage == "submitted":
        return calls.begin("THINK 600 x").until("submitted")
    marker = calls.home / "in-tool"
    call = calls.begin(f"RUNBASH touch {marker}; {TAIL}", "--allowedTools", "Bash").until("submitted")
    until(marker.exists, "the tool")
    return call


@pytest.mark.parametrize("stage", STAGES)
def test_a_call_that_is_terminated_exits_with_130_and_leaves_nothing(calls: Calls, stage: str) -> None:
    call = begin(calls, stage)
    call.process.send_signal(signal.SIGTERM)
    code, out, err = call.ended()
    assert (code, out) == (130, "")
    assert "interrupted by SIGTERM" in err
    calls.assert_nothing_left()


@pytest.mark.parametrize("name", ["INT", "HUP"])
def test_a_call_that_is_interrupted_in_a_tool_exits_with_130_and_leaves_nothing(
    calls: Calls, name: str
) -> None:
    call = begin(calls, "tool")
    call.process.send_signal(SIGNALS[name])
    code, _, err = call.ended()
    assert code == 130
    assert f"interrupted by SIG{name}" in err
    calls.assert_nothing_left()


def test_an_interrupted_call_prints_one_object_in_json(calls: Calls) -> None:
    call = calls.begin("--output-format", "json", "THINK 600 x").until("submitted")
    call.process.send_signal(signal.SIGINT)
    code, out, _ = call.ended()
    found = json.loads(out)
    assert (code, found["subtype"], found["is_error"]) == (130, "interrupted", True)
    calls.assert_nothing_left()


@pytest.mark.parametrize("stage", STAGES)
def test_a_call_that_is_killed_leaves_nothing(calls: Calls, stage: str) -> None:
    call = begin(calls, stage)
    call.process.kill()
    assert call.ended()[0] == -signal.SIGKILL
    calls.assert_nothing_left()


def test_a_call_that_crashes_leaves_nothing(calls: Calls) -> None:
    call = begin(calls, "tool")
    call.process.send_signal(signal.SIGABRT)
    assert call.ended()[0] == -signal.SIGABRT
    calls.assert_nothing_left()


def test_a_killed_call_lets_the_agent_end_in_order(calls: Calls) -> None:
    """The user's SessionEnd hooks run, though the command has long gone."""
    ended = calls.home / "session-ended"
    settings = calls.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    hook = {"type": "command", "command": f"cat > {ended}.part && mv {ended}.part {ended}"}
    settings.write_text(json.dumps({"hooks": {"SessionEnd": [{"hooks": [hook]}]}}))
    for _ in range(ORDERLY_TRIES):
        call = begin(calls, "tool")
        call.process.kill()
        call.ended()
        calls.assert_nothing_left()
        if ended.exists():
            break
        (calls.home / "in-tool").unlink()
    assert json.loads(ended.read_text())["hook_event_name"] == "SessionEnd"


@pytest.mark.parametrize(("number", "grace"), [(signal.SIGTERM, "1.7"), (signal.SIGKILL, "1.7"), (0, "5.0")])
def test_what_does_not_end_is_killed_and_soon_where_the_call_was_cut_short(
    calls: Calls, number: int, grace: str
) -> None:
    """Of a call that came to its own end the agent has longer."""
    left, go = calls.home / "left", calls.home / "go"
    stubborn = f"trap '' TERM HUP INT; touch {left}; while :; do sleep 0.05; done"
    tool = f'setsid sh -c "{stubborn}" >/dev/null 2>&1 & until [ -e {go} ]; do sleep 0.05; done'
    call = calls.begin(f"RUNBASH {tool}", "--allowedTools", "Bash").until("submitted")
    until(left.exists, "what does not end")
    with call.paths.log.open() as log:  # it can still be read when it is gone
        if number:
            call.process.send_signal(number)
        else:
            go.touch()
        call.ended()
        calls.assert_nothing_left()
        assert f"still running after {grace} s, killing" in log.read()


@pytest.mark.parametrize("stage", STAGES[1:])
def test_a_killed_keeper_is_reported_and_leaves_nothing(calls: Calls, stage: str) -> None:
    call = begin(calls, stage)
    keeper = call.keeper()
    keeper.signal(signal.SIGKILL)
    code, out, err = call.ended()
    assert (code, out) == (2, "")
    assert "the keeper of this session exited" in err
    keeper.close()
    calls.assert_nothing_left()


@pytest.mark.parametrize("stage", STAGES[1:])
def test_a_killed_agent_is_reported_and_leaves_nothing(calls: Calls, stage: str) -> None:
    call = begin(calls, stage)
    agent = call.agent()
    agent.signal(signal.SIGKILL)
    code, out, err = call.ended()
    assert (code, out) == (2, "")
    assert "the agent exited" in err
    agent.close()
    calls.assert_nothing_left()


def test_a_reader_that_is_gone_ends_the_call_and_leaves_nothing(calls: Calls) -> None:
    with no_reader() as stdout:
        call = calls.begin("--output-format", "stream-json", "--verbose", "hello", stdout=stdout)
    code, _, _ = call.ended()
    assert code == 1
    calls.assert_nothing_left()


def test_what_killed_calls_left_is_reported_and_swept(calls: Calls) -> None:
    """Keeper and command both killed: files stay until the next call, a minute later."""
    call = begin(calls, "tool")
    keeper = call.keeper()
    os.kill(call.process.pid, signal.SIGSTOP)  # it shall not clean up behind its keeper
    keeper.kill()
    keeper.close()
    call.process.kill()
    call.ended()
    until(lambda: not list(processes_of(call.name)), "the end of the agent, whose terminal is gone")
    assert call.paths.record.exists()

    told = calls.remuda("doctor").out
    assert "1 killed runs of 'remuda print' or of a pool left files or processes" in told
    assert f"WARNING: {call.name} is left" in calls("--check").out
    calls("hello")
    assert call.paths.record.exists(), "what is young is not swept"
    for path in calls.sessions.glob(f"{call.name}.*"):
        os.utime(path, (1, 1))
    calls("hello")
    calls.assert_nothing_left()


def test_check_with_clean_removes_what_killed_calls_left(calls: Calls) -> None:
    calls.sessions.mkdir(mode=0o700)
    dead = subprocess.Popen(["true"])
    dead.wait()
    name = f"print-{dead.pid}-0a1b2c"
    inbox = calls.sessions / f"{name}.inbox"
    inbox.mkdir(mode=0o700)
    record = calls.sessions / f"{name}.json"
    SessionRecord(name, "claude", ["claude"], "/", 0.0, ephemeral=True).save(record)
    for path in (inbox, record):
        os.utime(path, (1, 1))
    other = calls.sessions / "print-mine.json"
    other.write_text("{}")
    assert f"CLEANED: {name}" in calls("--check", "--clean").out
    assert not inbox.exists()
    assert other.exists(), "a session that somebody named so is not a call's"


LIKE_A_CALL = "print-99999999-261116"
"""As a call names its session; no process has that number."""


def age(folder: Path) -> None:
    for path in folder.iterdir():
        os.utime(path, (1, 1), follow_symlinks=False)


def test_call_spares_a_session_of_the_user_that_is_named_like_a_call(calls: Calls) -> None:
    remuda = calls.remuda
    remuda.start(LIKE_A_CALL, "--agent", "demo")
    remuda("kill", LIKE_A_CALL)
    remuda("send", LIKE_A_CALL, "important")
    age(calls.sessions)
    calls("hello")

    def listed() -> list[str]:
        return [one["name"] for one in remuda.json("ls", "--all")]

    until(lambda: len(listed()) == 1, "the end of the keeper of the call")  # the call does not wait for it
    assert listed() == [LIKE_A_CALL]
    assert Session(LIKE_A_CALL, folder=calls.sessions).inbox.overview().waiting == 1


def test_call_spares_a_session_of_the_same_name_in_another_home(calls: Calls) -> None:
    remuda, elsewhere = calls.remuda, calls.home / "elsewhere"
    remuda("start", LIKE_A_CALL, "--detach", "--socket-dir", str(elsewhere), "--", "cat")
    theirs = Session(LIKE_A_CALL, folder=elsewhere)
    calls.sessions.mkdir(mode=0o700, exist_ok=True)
    record = calls.sessions / f"{LIKE_A_CALL}.json"
    SessionRecord(LIKE_A_CALL, "claude", ["claude"], "/", 0.0, ephemeral=True).save(record)
    age(calls.sessions)
    calls("hello")
    assert not record.exists()
    assert theirs.alive
    theirs.kill(0)


def test_call_spares_a_killed_call_for_which_a_message_of_another_waits(calls: Calls) -> None:
    calls.sessions.mkdir(mode=0o700, exist_ok=True)
    record = calls.sessions / f"{LIKE_A_CALL}.json"
    SessionRecord(LIKE_A_CALL, "claude", ["claude"], "/", 0.0, ephemeral=True).save(record)
    calls.remuda("send", LIKE_A_CALL, "important")
    age(calls.sessions)
    calls("hello")
    assert record.exists()
    assert Session(LIKE_A_CALL, folder=calls.sessions).inbox.overview().waiting == 1


def test_what_belongs_to_a_call_that_runs_is_not_left_of_it(calls: Calls) -> None:
    """Also before its keeper has taken its name, and where another process has its number by now."""
    begun = calls.sessions / f"print-{os.getpid()}-abcdef.log"
    calls.sessions.mkdir(parents=True)
    begun.touch()
    os.utime(begun, (0, 0))
    call = begin(calls, "submitted")
    kept = call.paths.record
    renamed = call.paths.pid.with_name("print-4194305-abcdef.pid")
    os.link(call.paths.pid, renamed)  # locked by a keeper, and of no process that is there
    os.utime(renamed, (0, 0))
    told = calls("--check", "--clean").out
    assert "WARNING" not in told
    assert "CLEANED" not in told
    assert begun.exists()
    assert kept.exists()
    assert renamed.exists()
    begun.unlink()
    renamed.unlink()


def press_on(call: Call) -> tuple[int, str, str]:
    """Someone who presses Ctrl-C until it has ended."""

    def ended() -> bool:
        call.process.send_signal(signal.SIGINT)
        return call.process.poll() is not None

    until(ended, "its end")
    return call.ended()


def test_signals_after_the_first_neither_break_the_cleanup_nor_the_exit_code(calls: Calls) -> None:
    call = calls.begin("--output-format", "json", "THINK 600 x").until("submitted")
    code, out, err = press_on(call)
    assert (code, json.loads(out)["subtype"]) == (130, "interrupted")
    assert "Traceback" not in err
    calls.assert_nothing_left()


@pytest.mark.parametrize("words", [("--backend", "terminal"), ("--backend", "stream")])
def test_an_interrupted_call_does_not_wait_for_a_reader_who_takes_nothing(
    calls: Calls, words: tuple[str, ...]
) -> None:
    """There would be no way to end it any more but SIGKILL."""
    if "stream" in words:
        stream_agent(calls)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    call = calls.begin("--output-format", "json", "THINK 600 x", *words, stdout=writing)
    call.until("submitted" if "terminal" in words else "started")
    code, _, err = press_on(call)
    os.close(reading)
    os.close(writing)
    assert code == 130
    assert "Traceback" not in err
    calls.assert_nothing_left()


def has_open(pid: int, file: str) -> bool:
    try:
        return any(os.readlink(entry) == file for entry in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # it ends, or closes one, just now
        return is_alive(pid)


@pytest.mark.parametrize("backend", ["terminal", "stream"])
def test_what_the_caller_has_open_is_held_by_no_one_but_the_call(calls: Calls, backend: str) -> None:
    """A lock of flock's would outlive the call for as long as its agent takes to end."""
    if backend == "stream":
        stream_agent(calls)
    reading, writing = os.pipe()
    file = os.readlink(f"/proc/self/fd/{writing}")
    call = calls.begin("THINK 600 x", "--backend", backend, pass_fds=[writing])
    call.until("started")
    if backend == "stream":
        stream_pids(calls)
        pids = descendants(call.process.pid)
    else:
        held = call.keeper(), call.agent()
        pids = [one.pid for one in held]
        for one in held:
            one.close()
    assert has_open(call.process.pid, file)
    assert len(pids) >= 2
    until(lambda: not any(has_open(pid, file) for pid in pids), "that it is closed")
    os.close(reading)
    os.close(writing)


# ── the stream backend: its agent is a child of ours ──


def stream_agent(calls: Calls, lines: str = "") -> Path:
    """Prints, starts a tool in a process session of its own, and waits."""
    return write_program(
        calls.binary,
        "#!/bin/sh\ncat > /dev/null\n"
        f"{lines}\nsetsid sh -c 'echo $$ > {calls.home}/tool; exec sleep 300' &\n"
        f"echo $$ > {calls.home}/agent\nexec sleep 300\n",
    )


def stream_pids(calls: Calls) -> list[int]:
    def known() -> list[int]:
        files = [calls.home / "tool", calls.home / "agent"]
        texts = [path.read_text().strip() for path in files if path.exists()]
        return [int(text) for text in texts if text] if all(texts) and len(texts) == 2 else []

    return until(known, "agent and tool")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_stream_call_leaves_nothing(calls: Calls, number: int) -> None:
    stream_agent(calls)
    call = calls.begin("--backend", "stream", "hello").until("started")
    pids = stream_pids(calls)
    call.process.send_signal(number)
    assert call.ended()[0] == 130
    until(lambda: not any(map(is_alive, pids)), "the end of agent and tool")


def test_signals_after_the_first_do_not_save_an_agent_that_does_not_hear(calls: Calls) -> None:
    stream_agent(calls, "trap '' HUP TERM INT")
    call = calls.begin("--backend", "stream", "--output-format", "json", "hello").until("started")
    pids = stream_pids(calls)
    code, out, err = press_on(call)
    assert not any(map(is_alive, pids)), "all is done when the call ends"
    assert (code, json.loads(out)["subtype"]) == (130, "interrupted")
    assert "Traceback" not in err


def test_a_killed_agent_of_a_stream_call_is_reported_and_leaves_nothing(calls: Calls) -> None:
    stream_agent(calls)
    call = calls.begin("--backend", "stream", "hello").until("started")
    tool, agent = stream_pids(calls)
    killed = Process(agent)
    killed.signal(signal.SIGKILL)
    code, _, err = call.ended()
    killed.close()
    assert code == 2
    assert "the agent exited with SIGKILL" in err
    until(lambda: not is_alive(tool), "the end of the tool")


@pytest.mark.parametrize("lines", ["", "trap '' HUP TERM"])
def test_a_killed_stream_call_ends_its_agent_and_its_tool(calls: Calls, lines: str) -> None:
    """Also one that does not hear that it is over."""
    stream_agent(calls, lines)
    call = calls.begin("--backend", "stream", "hello").until("started")
    pids = stream_pids(calls)
    call.process.kill()
    call.ended()
    until(lambda: not any(map(is_alive, pids)), "the end of agent and tool")


def test_what_the_agent_of_a_killed_stream_call_prints_is_still_taken(calls: Calls, tmp_path: Path) -> None:
    """One that cannot print waits for that with its end."""
    said, up = tmp_path / "said", calls.home / "up"
    last = f"trap 'head -c 300000 /dev/zero && touch {said}; exit' HUP"
    write_program(
        calls.binary,
        f"#!/bin/bash\ncat > /dev/null\n{last}\necho $$ > {up}.part; mv {up}.part {up}\n"
        "while :; do read -rt 0.05 < <(tail -f /dev/null --pid $$) ; done\n",
    )
    for _ in range(ORDERLY_TRIES):
        call = calls.begin("--backend", "stream", "hello").until("started")
        until(up.exists, "the agent")
        agent = Process(int(up.read_text()))
        call.process.kill()
        call.ended()
        agent.gone()
        if said.exists():
            return
        up.unlink()
    pytest.fail("what it says at its end was not taken")
