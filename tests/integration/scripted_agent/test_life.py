"""The scripted agent on a real terminal: its start, its turns, its files and its ways out."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.testing.scripted_agent.probe import SCRIPTED, Probe
from support.agents import Start, texts

# --- start


def test_start_bytes_are_in_the_order_of_the_real_program(agent: Probe) -> None:
    output = agent.terminal.wait_for(b"\x1b[c")
    marks = [
        b"\x1b7\x1b[r\x1b8\x1b[?25h",
        b"\x1b[?2004h",
        b"\x1b[?2031h",
        b"\x1b[?1004h",
        b"\x1b]0;",
        b"\x1b[?1049h",
    ]
    marks += [
        b"\x1b[?1000h",
        b"\x1b[?1006h",
        "❯".encode(),
        b"\x1b[>0q",
        b"\x1b[?u",
        b"\x1b]7501;?\x07",
        b"\x1b[c",
    ]
    places = [output.index(mark) for mark in marks]
    assert places == sorted(places)


def test_start_without_alternate_screen_stays_on_the_main_one(start: Start) -> None:
    agent = start(env={"CLAUDE_CODE_DISABLE_ALTERNATE_SCREEN": "1"})
    agent.ready()
    assert agent.turn("hello")["last_assistant_message"] == "REPLY#1 to: hello"
    agent.until(lambda: "● REPLY#1 to: hello" in agent.screen(), "the answer on the screen")
    assert b"\x1b[?1049h" not in agent.terminal.output


def test_queries_answered_late_are_not_typed_into_the_box(agent: Probe) -> None:
    answers = "\x1b[?62;22c\x1b[?0u\x1bP>|term(1)\x1b\\\x1b]7501;x\x07\x1b[?2026;2$y\x1b[I\x1b[<0;3;4M"
    agent.type(answers)
    assert agent.turn("hello")["last_assistant_message"] == "REPLY#1 to: hello"
    assert agent.wait_for_hook("UserPromptSubmit")["prompt"] == "hello"
    agent.terminal.wait_for(b"\x1b[>5u")


def test_idle_agent_writes_nothing(agent: Probe) -> None:
    def is_silent() -> bool:
        size = len(agent.terminal.output)
        try:
            agent.until(lambda: len(agent.terminal.output) != size, "output", timeout=1.5)
        except TimeoutError:
            return True
        return False

    agent.turn("hello")
    agent.until(is_silent, "silence")  # its spinner would turn every quarter of a second
    assert agent.titles[-1] == "✳ Claude Code"


def test_positional_prompt_is_submitted_and_bang_is_text_there(start: Start) -> None:
    agent = start("!not a command")
    assert agent.wait_for_hook("UserPromptSubmit")["prompt"] == "!not a command"
    agent.wait_for_hook("Stop")


def test_slow_session_start_hook_holds_the_first_prompt_back(start: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    agent = start("hello", hooks={"SessionStart": [{"type": "command", "command": f"cat '{gate}'"}]})
    agent.wait_for_status("busy")
    with pytest.raises(TimeoutError):
        agent.until(lambda: agent.count("UserPromptSubmit"), "a prompt", timeout=0.7)
    gate.write_bytes(b"")
    agent.wait_for_hook("Stop")


def test_version_says_what_it_is() -> None:
    done = subprocess.run([*SCRIPTED, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == "2.1.325 (Remuda scripted agent)\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--session-id", "no-uuid"], "Error: Invalid session ID. Must be a valid UUID."),
        (["--permission-mode", "wild"], "is invalid"),
        (["--resume", "11111111-1111-4111-8111-111111111111"], "No conversation found"),
        (["--settings", "/nowhere.json"], "Settings file not found"),
        ([], "needs a terminal"),
    ],
)
def test_bad_command_line_is_refused_with_exit_1(flags: list[str], message: str, home: Path) -> None:
    done = subprocess.run(
        [*SCRIPTED, *flags], capture_output=True, text=True, stdin=subprocess.DEVNULL, env={"HOME": str(home)}
    )
    assert done.returncode == 1
    assert message in done.stderr or "needs a terminal" in done.stderr


# --- a plain turn


def test_plain_turn_fires_its_hooks_with_the_real_keys(agent: Probe) -> None:
    agent.turn("hello")
    agent.wait_for_hook("MessageDisplay")
    keys = {payload["hook_event_name"]: set(payload) for payload in agent.hooks}
    base = {"session_id", "transcript_path", "cwd", "hook_event_name"}
    assert keys == {
        "SessionStart": base | {"source", "model"},
        "UserPromptSubmit": base | {"prompt_id", "permission_mode", "prompt"},
        "MessageDisplay": base | {"prompt_id", "turn_id", "message_id", "index", "final", "delta"},
        "Stop": base
        | {"prompt_id", "permission_mode", "effort", "stop_hook_active", "last_assistant_message"}
        | {"background_tasks", "session_crons"},
    }
    assert len({payload["session_id"] for payload in agent.hooks}) == 1


def test_plain_turn_leaves_the_records_of_the_real_program(agent: Probe) -> None:
    agent.turn("hello")
    lines = agent.transcript()
    kinds = [(line["type"], line.get("subtype")) for line in lines]
    assert kinds[:5] == [
        ("mode", None),
        ("permission-mode", None),
        ("file-history-snapshot", None),
        ("user", None),
        ("assistant", None),
    ]
    assert ("system", "stop_hook_summary") in kinds
    assert ("system", "turn_duration") in kinds
    chained = [line for line in lines if "uuid" in line]
    assert [line["parentUuid"] for line in chained] == [None, *(line["uuid"] for line in chained[:-1])]
    assert {line["entrypoint"] for line in chained} == {"scripted"}


def test_transcript_appears_with_the_first_prompt(agent: Probe) -> None:
    path = Path(agent.wait_for_hook("SessionStart")["transcript_path"])
    assert not path.exists()
    agent.turn("hello")
    assert path.exists()
    assert path.stat().st_mode & 0o777 == 0o600


def test_screen_of_a_turn_has_the_landmarks(agent: Probe) -> None:
    def has_landmarks() -> bool:
        shown = agent.screen().splitlines()
        return (
            {"❯ hello", "● REPLY#1 to: hello"} <= set(shown)
            and any(re.match(r"✻ \S+ for \d+s · done", line) for line in shown)
            and shown[-1].strip() == "⏸ manual mode on · ? for shortcuts"
            and shown[-2] == shown[-4] == "─" * 100
            and shown[-3].startswith("❯")
        )

    agent.turn("hello")
    agent.until(has_landmarks, "all landmarks on the screen")


def test_busy_agent_shows_it_in_footer_spinner_and_title(agent: Probe) -> None:
    agent.paste("THINK 30 on it")
    agent.wait_for_status("busy")
    agent.terminal.wait_for(b"esc to interrupt")
    agent.terminal.wait_for(b"tokens)")
    agent.until(lambda: {"◐ Claude Code", "◑ Claude Code"} <= set(agent.titles), "both titles")


def test_lines_are_reported_as_they_are_finished(agent: Probe) -> None:
    agent.turn("LINES 3")
    agent.until(lambda: agent.count("MessageDisplay") == 2, "two events")
    told = [payload for payload in agent.hooks if payload["hook_event_name"] == "MessageDisplay"]
    told.sort(key=lambda payload: int(payload["index"]))
    assert [(payload["delta"], payload["final"]) for payload in told] == [
        ("line 1\nline 2\n", False),
        ("line 3", True),
    ]


# --- size


@pytest.mark.parametrize(("columns", "rows"), [(20, 5), (80, 24), (220, 50)])
def test_screen_of_any_size_shows_the_box(start: Start, columns: int, rows: int) -> None:
    agent = start(columns=columns, rows=rows)
    agent.ready()
    agent.turn("hello there, this is a rather long prompt for twenty columns")
    agent.until(lambda: any(line.startswith("❯") for line in agent.screen().splitlines()[-4:]), "the box")
    assert all(len(line) <= columns for line in agent.screen().splitlines())


def test_resize_draws_again(agent: Probe) -> None:
    agent.turn("hello")
    size = struct.pack("HHHH", 12, 50, 0, 0)
    before = len(agent.terminal.output)
    fcntl.ioctl(agent.terminal._master, termios.TIOCSWINSZ, size)
    agent.until(lambda: "─" * 50 in agent.terminal.output[before:].decode("utf-8", "replace"), "a new rule")
    assert b"\x1b[2J" in agent.terminal.output[before:]


# --- ways out


def leave_by_signal(number: int) -> Callable[[Probe], None]:
    return lambda agent: os.kill(agent.terminal.process.pid, number)


@pytest.mark.parametrize(
    ("way", "code", "reason"),
    [
        (lambda agent: agent.paste("/exit"), 0, "prompt_input_exit"),
        (lambda agent: agent.type("\x03\x03"), 0, "prompt_input_exit"),
        (lambda agent: agent.type("\x04\x04"), 0, "prompt_input_exit"),
        (leave_by_signal(signal.SIGINT), 0, "other"),
        (leave_by_signal(signal.SIGTERM), 143, "other"),
        (leave_by_signal(signal.SIGHUP), 129, "other"),
    ],
    ids=["exit", "ctrl-c", "ctrl-d", "SIGINT", "SIGTERM", "SIGHUP"],
)
def test_way_out_has_its_code_and_reason(
    agent: Probe, way: Callable[[Probe], None], code: int, reason: str
) -> None:
    agent.turn("hello")
    way(agent)
    assert agent.wait_for_exit() == code
    assert agent.wait_for_hook("SessionEnd")["reason"] == reason
    assert agent.entry == {}
    output = agent.terminal.wait_for(b"--resume ")
    assert output.rindex(b"\x1b[?2004l") > output.rindex(b"\x1b[?2004h")
    assert output.rindex(b"\x1b[?1049l") > output.rindex(b"\x1b[?1049h")
    assert agent.titles[-1] == ""


def test_one_ctrl_c_or_ctrl_d_does_not_end_it(agent: Probe) -> None:
    agent.type("\x03")
    agent.terminal.wait_for(b"Press Ctrl-C again to exit")
    agent.type("\x04")
    agent.terminal.wait_for(b"Press Ctrl-D again to exit")
    agent.turn("still here")


def test_closed_terminal_is_a_clean_end(home: Path, project: Path) -> None:
    leader = f"""
import os, pty, sys, time
pid, master = pty.fork()
if pid == 0:
    os.execv({sys.executable!r}, {[*SCRIPTED, "--settings", "SETTINGS"]!r})
seen = b""
while b"\\x1b[c" not in seen:
    seen += os.read(master, 65536)
os.close(master)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    log = home / "ended"
    # With a time of its own: it is cut short otherwise.
    hook = {"type": "command", "command": f"cat > '{log}'", "timeout": 30}
    settings = json.dumps({"hooks": {"SessionEnd": [{"hooks": [hook]}]}})
    done = subprocess.run(
        [sys.executable, "-c", leader.replace("'SETTINGS'", repr(settings))],
        cwd=project,
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.stdout, done.stderr) == ("0\n", "")
    assert json.loads(log.read_text())["reason"] == "other"


def test_exit_while_a_tool_runs_kills_it(start: Start, project: Path) -> None:
    agent = start("--allowedTools", "Bash")
    agent.ready()
    agent.paste("RUNBASH echo $$ > pid; sleep 300")
    agent.until(lambda: (project / "pid").exists() and (project / "pid").read_text(), "the tool")
    agent.terminal.process.terminate()
    assert agent.wait_for_exit() == 143
    pid = int((project / "pid").read_text())
    agent.until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the tool")


def test_sigkill_orphans_the_tool_and_leaves_the_registry(start: Start, project: Path, home: Path) -> None:
    agent = start("--allowedTools", "Bash")
    agent.ready()
    agent.paste("RUNBASH echo $$ > pid; sleep 300")
    agent.until(lambda: (project / "pid").exists() and (project / "pid").read_text(), "the tool")
    pid = int((project / "pid").read_text())
    try:
        agent.terminal.process.kill()
        assert agent.wait_for_exit() == -signal.SIGKILL
        assert Path(f"/proc/{pid}").exists()
        assert agent.status == "busy"
        assert agent.count("SessionEnd") == 0
    finally:
        os.killpg(pid, signal.SIGKILL)


def test_registry_distinguishes_this_process_from_a_later_one(agent: Probe) -> None:
    stat = Path(f"/proc/{agent.terminal.process.pid}/stat").read_text()
    assert agent.entry["procStart"] == stat.rpartition(")")[2].split()[19]
    assert agent.entry["pid"] == agent.terminal.process.pid
    assert agent.entry["entrypoint"] == "scripted"


# --- resuming


def test_resume_goes_on_with_the_conversation(start: Start) -> None:
    first = start()
    first.ready()
    session = first.turn("one")["session_id"]
    first.paste("/exit")
    assert first.wait_for_exit() == 0
    again = start("--resume", session, "two")
    stop = again.wait_for_hook("Stop", 2)
    assert (stop["session_id"], stop["last_assistant_message"]) == (session, "REPLY#2 to: two")
    assert again.wait_for_hook("SessionStart", 2)["source"] == "resume"
    again.until(lambda: "● REPLY#1 to: one" in again.screen(), "the old answer on the screen")
    again.settle()
    assert texts(again, "user", session) == ["one", "two"]


def test_fork_copies_the_conversation_under_a_new_id(start: Start) -> None:
    first = start()
    first.ready()
    session = first.turn("one")["session_id"]
    forked = start("--continue", "--fork-session", "two")
    stop = forked.wait_for_hook("Stop", 2)
    assert stop["session_id"] != session
    forked.settle()
    assert texts(forked, "user", stop["session_id"]) == ["one", "two"]
    assert texts(forked, "user", session) == ["one"]


def test_session_id_is_used_once(start: Start) -> None:
    session = "11111111-1111-4111-8111-111111111111"
    first = start("--session-id", session)
    first.ready()
    assert first.turn("one")["session_id"] == session
    second = start("--session-id", session)
    assert second.wait_for_exit() == 1
    second.terminal.wait_for(b"is already in use.")


def test_name_is_in_title_registry_and_payloads(start: Start) -> None:
    agent = start("-n", "nick")
    agent.ready()
    agent.turn("hello")
    agent.until(lambda: agent.titles[-1] == "✳ nick", "the title")
    assert (agent.entry["name"], agent.entry["nameSource"]) == ("nick", "user")
    assert agent.wait_for_hook("UserPromptSubmit")["session_title"] == "nick"


def test_config_dir_moves_all_files(start: Start, tmp_path: Path) -> None:
    agent = start(env={"CLAUDE_CONFIG_DIR": str(tmp_path / "config")})
    agent.ready()
    payload = agent.turn("hello")
    assert payload["transcript_path"].startswith(str(tmp_path / "config/projects/"))
