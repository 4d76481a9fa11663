"""A kept Claude Code outlives its watchers, and dies whole when it must."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from remuda.agents.claude.launch import IDENTITY_VARIABLES
from remuda.agents.claude.screen import open_dialog
from remuda.proctree import descendants
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from remuda.testing.real_cli.bench import PlainTerminal
from remuda.testing.scripted_agent.probe import whole_records
from support.commands import COMMAND, Commands
from support.heimdall_client import PATIENCE
from support.keeper import Kept, Process, Start, until, until_equal
from support.messages import Post, prompts
from support.real_sessions import keep
from support.watcher import Watcher

pytestmark = pytest.mark.real


def attach(kept: Kept, home: Path) -> PlainTerminal:
    env = {**os.environ, "REMUDA_HOME": str(home), "TERM": "xterm-256color"}
    return PlainTerminal([sys.executable, "-m", "remuda", "attach", kept.name], cwd=Path("/"), env=env)


def test_conversation_goes_on_after_the_attached_terminal_is_killed(
    cli: RealCli, start: Start, model: LoopbackModel, home: Path
) -> None:
    kept = keep(start, cli, cols=100, rows=29)
    watcher = Watcher(kept.hello())
    watcher.settled("idle")

    with attach(kept, home) as terminal:
        terminal.wait_for(b"manual")
        terminal.write(b"first words\r")
        assert model.wait_for("first words").prompt == "first words"
        terminal.wait_for(b"REPLY#1")
        terminal.write(b"\x1c")  # the detach key
        terminal.process.wait(PATIENCE)
        assert terminal.process.returncode == 0
    watcher.settled("idle")

    with attach(kept, home) as terminal:
        terminal.wait_for(b"REPLY#1")  # what was said before is on the screen
        terminal.write(b"half a dra")
        terminal.wait_for(b"dra")
        os.kill(terminal.process.pid, signal.SIGKILL)
        terminal.process.wait(PATIENCE)

    with attach(kept, home) as terminal:
        terminal.wait_for(b"dra")
        terminal.write(b"ft\r")
        request = model.wait_for("half a draft")
        assert any("first words" in text for _, text in request.texts)
        terminal.wait_for(b"REPLY#2")


WHEEL_UP, PAGE_UP, SHIFT_PAGE_UP = b"\x1b[<64;5;5M", b"\x1b[5~", b"\x1b[5;2~"


def scroll_back(terminal: PlainTerminal) -> None:
    """Scroll in our view, where keys do nothing, also those of a dialog. Then in the agent's own."""

    def drawn(keys: bytes, words: bytes) -> None:
        before = len(terminal.output)
        terminal.write(keys)
        until(lambda: words in terminal.output[before:], f"{words!r}")

    drawn(SHIFT_PAGE_UP, b"q: back")
    terminal.write(WHEEL_UP + b"x1\r" + PAGE_UP)
    drawn(b"q", b"detach")
    terminal.write(WHEEL_UP * 3 + PAGE_UP)


def test_scrolling_back_disturbs_neither_a_turn_nor_a_draft_nor_a_dialog(
    cli: RealCli, start: Start, model: LoopbackModel, home: Path
) -> None:
    post = Post(keep(start, cli, "--permission-mode", "default", cols=100, rows=29))
    post.watcher.settled("idle")
    with attach(post.kept, home) as terminal:
        terminal.wait_for(b"manual")
        terminal.write(b"SLOW 1 words\r")
        terminal.wait_for(b"word3")
        scroll_back(terminal)
        terminal.write(b"half a draft")
        post.watcher.settled("idle")
        until_equal(post.draft, "half a draft", "the draft")
        assert any("word39" in line for line in post.lines())

        scroll_back(terminal)
        terminal.write(b"!")
        until_equal(post.draft, "half a draft!", "the draft and one more key")
        terminal.write(b"\x15")
        until_equal(post.draft, "", "no draft")

        terminal.write(b"RUNBASH touch made\r")
        post.watcher.until("waiting_permission")
        until(lambda: open_dialog(post.lines()), "the dialog on the screen")
        scroll_back(terminal)
        until(lambda: "Jump to bottom" in "".join(post.lines()), "the agent's own view, scrolled")
        assert post.client.describe()["state"] == "waiting_permission"
        terminal.write(b"\x1b[1;5F")  # Ctrl-End
        until(lambda: "Jump to bottom" not in "".join(post.lines()), "its end")
        assert open_dialog(post.lines())
        assert not (cli.project / "made").exists()
        post.watcher.answer(b"1")
        post.watcher.settled("idle")
    assert (cli.project / "made").exists()
    assert prompts(model) == ["SLOW 1 words", "RUNBASH touch made"]


def test_attached_start_with_a_flag_that_it_does_not_know_leaves_its_own_words(
    cli: RealCli, remuda: Commands
) -> None:
    env = {**remuda.env, **cli.env, "REMUDA_HOME": str(remuda.home), "TERM": "xterm-256color"}
    words = [*COMMAND, "start", "work", "--", *cli.argv("--no-such-flag")]
    with PlainTerminal(words, cwd=cli.project, env=env) as terminal:
        assert terminal.process.wait(PATIENCE) == 1
        terminal.wait_for(b"unknown option '--no-such-flag'")
        assert b"--resume" not in terminal.output
    assert "it failed while starting; " in remuda.refused("status", "work", code=6)


def test_kill_ends_the_tool_that_runs_in_a_process_session_of_its_own(
    cli: RealCli, start: Start, home: Path
) -> None:
    kept = keep(start, cli, "--allowedTools", "Bash")
    client = kept.hello()
    watcher = Watcher(client)
    watcher.settled("idle")
    sleeping = [f'python3 -c "import time; time.sleep({seconds})"' for seconds in (4242, 4243)]
    watcher.paste(f"RUNBASH setsid {sleeping[0]} & {sleeping[1]}")
    watcher.until("tool_use")
    tools = _wait_for_processes(kept.keeper_pid, "4242", "4243")
    held = [Process(pid) for pid in tools]
    assert {os.getsid(pid) for pid in tools} != {os.getsid(kept.child_pid)}
    client.request("kill")
    watcher.until("dead")
    assert all(process.ended() for process in held)
    for process in held:
        process.close()


def _wait_for_processes(keeper_pid: int, *words: str) -> list[int]:
    """The descendants that sleep for these numbers of seconds, when there is one for each."""

    def look() -> list[int]:
        found = {}
        for pid in descendants(keeper_pid):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            program = command[2].decode() if len(command) > 2 else ""
            found.update({word: pid for word in words if program == f"import time; time.sleep({word})"})
        return list(found.values()) if set(found) == set(words) else []

    return until(look, f"processes that sleep for {words}")


def test_resume_brings_the_conversation_back_and_asks_nothing_twice(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    kept = keep(start, cli, "the word is swordfish")
    watcher = Watcher(kept.hello())
    watcher.until("thinking")
    watcher.settled("idle")
    kept.hello().request("kill")
    watcher.until("dead")
    assert kept.keeper.ended()
    before = len(model.main_requests)

    again = keep(start, cli, "the word is swordfish", resume=True)
    watcher = Watcher(again.hello())
    watcher.settled("idle")
    assert len(model.main_requests) == before
    watcher.paste("which word was it?")
    request = model.wait_for("which word was it?")
    assert any("swordfish" in text for _, text in request.texts)


def test_agent_is_started_without_an_inherited_identity_and_in_manual_mode(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    inherited = {name: "somebody-else" for name in IDENTITY_VARIABLES if name != "CLAUDE_ENV_FILE"}
    kept = keep(start, cli, env=inherited)
    watcher = Watcher(kept.hello())
    watcher.settled("idle")
    environ = Path(f"/proc/{kept.child_pid}/environ").read_bytes().decode().split("\0")
    assert not [entry for entry in environ if "somebody-else" in entry]
    command = Path(f"/proc/{kept.child_pid}/cmdline").read_bytes().decode().split("\0")
    assert command[command.index("--permission-mode") + 1] == "default"
    watcher.paste("who are you")
    watcher.until("thinking")
    watcher.until("idle", source="hook")
    transcript = Path(kept.hello().describe()["conversation"]["transcript_path"])
    assert until(lambda: _entrypoints(transcript), "a record that names its entrypoint") == {"cli"}


def _entrypoints(transcript: Path) -> set[str]:
    """What the CLI says of itself in its records. They, and the file too, come a moment after the turn."""
    return {record["entrypoint"] for record in whole_records(transcript) if "entrypoint" in record}


def test_users_permission_mode_is_kept(cli: RealCli, start: Start) -> None:
    kept = keep(start, cli, "--permission-mode", "plan")
    watcher = Watcher(kept.hello())
    watcher.settled("idle")
    watcher.until_shows("plan mode on")


def test_agent_killed_outright_is_reported_and_its_tool_does_not_live_on(cli: RealCli, start: Start) -> None:
    kept = keep(start, cli, "--allowedTools", "Bash")
    watcher = Watcher(kept.hello())
    watcher.settled("idle")
    watcher.paste('RUNBASH python3 -c "import time; time.sleep(4244)"')
    watcher.until("tool_use")
    tool = Process(_wait_for_processes(kept.keeper_pid, "4244")[0])
    os.kill(kept.child_pid, signal.SIGKILL)
    watcher.until("dead")
    tool.gone()
    assert kept.keeper.ended()
    assert json.loads(kept.paths.record.read_text())["exit_code"] == 128 + signal.SIGKILL


def test_ctrl_z_does_not_leave_a_session_that_nobody_can_wake(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    kept = keep(start, cli)
    watcher = Watcher(kept.hello())
    watcher.settled("idle")
    watcher.until_shows("? for shortcuts")
    watcher.press(b"\x1a")
    until(lambda: "suspended itself" in kept.log(), "that it suspended itself")
    watcher.until_shows("? for shortcuts")
    watcher.paste("after it was suspended")
    assert model.wait_for("after it was suspended").prompt == "after it was suspended"
