"""An agent that dies in its start: the one who started it is told, with its last words."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remuda import Session, SessionDead
from remuda.cli.start import check_came_up
from remuda.keeper.coming_up import has_died
from remuda.keeper.record import SessionRecord
from support.commands import COMMAND, Commands
from support.heimdall_client import PATIENCE
from support.keeper import Start, until
from support.tmux import Tmux

WORDS = "Unable to connect to Anthropic services"
REMUDA = " ".join(COMMAND)


@pytest.fixture
def broken(remuda: Commands) -> str:
    """An agent that says why it does not run, and ends."""
    path = remuda.home / "claude"
    path.write_text(f"#!/bin/sh\necho starting; echo '{WORDS}'\nexit 3\n")
    path.chmod(0o755)
    return str(path)


def record_of(remuda: Commands, name: str) -> SessionRecord:
    found = SessionRecord.load(remuda.sessions / f"{name}.json")
    assert found is not None
    return found


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["text", "json"])
def test_start_of_an_agent_that_dies_at_once_fails_with_its_last_words(
    remuda: Commands, broken: str, more: list[str]
) -> None:
    done = remuda("start", "work", "--detach", *more, "--", broken, code=6)
    assert done.out == ""
    *said, last = done.err.splitlines()
    assert [line for line in said if not line.startswith("note: ")] == ["starting", WORDS]
    assert last.startswith("remuda: 'work' ended before it was ready, with exit code 3; 'remuda logs work' ")
    assert not record_of(remuda, "work").came_up
    assert WORDS in remuda("logs", "work").out


class Held:
    """An agent that has begun, and dies when it is let go."""

    def __init__(self, remuda: Commands) -> None:
        folder = remuda.home / "held"
        folder.mkdir()
        self._go, self.path = folder / "go", folder / "claude"
        os.mkfifo(self._go)
        self.path.write_text(f"#!/bin/sh\necho starting; read x < {self._go}; echo '{WORDS}'\nexit 3\n")
        self.path.chmod(0o755)

    def let_go(self) -> None:
        self._go.write_text("x\n")


@pytest.fixture
def held(remuda: Commands) -> Held:
    return Held(remuda)


def test_agent_that_dies_while_start_waits_is_said_to_have_failed_with_its_last_words(
    start: Start, held: Held, capfd: pytest.CaptureFixture[str]
) -> None:
    """The wait is longer than that of `start`: on a busy machine the agent is let go late."""
    kept = start("work", [str(held.path)], agent="claude")
    with ThreadPoolExecutor(1) as threads:
        died = threads.submit(has_died, kept.paths, 2 * PATIENCE)
        held.let_go()
        assert died.result()
    with pytest.raises(SessionDead, match="'work' ended before it was ready, with exit code 3"):
        check_came_up(kept.paths)
    assert WORDS in capfd.readouterr().err


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_attached_start_of_an_agent_that_dies_leaves_its_last_words(
    remuda: Commands, broken: str, held: Held, later: bool
) -> None:
    with Tmux(remuda.env, remuda.cwd, 100, 20) as tmux:
        pane = tmux.first()
        pane.until_shows("$")
        pane.enter(f"{REMUDA} start work -- {held.path if later else broken}; echo rc=$?")
        if later:
            pane.until_shows("starting")
            held.let_go()
        lines = pane.until_shows("rc=3")
        assert WORDS in lines
        assert not any("--resume" in line for line in lines)
    assert not record_of(remuda, "work").came_up


@pytest.mark.parametrize("command", ["status", "kill"])
def test_session_that_never_came_up_is_not_said_to_be_resumable(
    remuda: Commands, broken: str, command: str
) -> None:
    remuda("start", "work", "--detach", "--", broken, code=6)
    said = remuda.refused(command, "work", code=6)
    assert said == (
        "session 'work' has ended with exit code 3; it failed while starting; "
        "'remuda logs work' prints its output"
    )


def test_message_for_a_session_that_never_came_up_is_held_without_that_advice(
    remuda: Commands, broken: str
) -> None:
    remuda("start", "work", "--detach", "--", broken, code=6)
    said = remuda("send", "work", "hi").err
    assert said.startswith("remuda: the message waits: session 'work' has ended; it failed while starting; ")
    assert "--resume" not in said


def test_wait_for_an_agent_that_dies_in_its_start_ends_and_the_message_stays(remuda: Commands) -> None:
    go = remuda.home / "go"
    os.mkfifo(go)
    agent = remuda.home / "claude"
    agent.write_text(f"#!/bin/sh\nread x < {go}\nexit 3\n")
    agent.chmod(0o755)
    remuda("start", "work", "--detach", "--", str(agent))
    waiting = remuda.begin("send", "work", "hi", "--wait")
    until(lambda: remuda.json("messages", "work"), "the message")
    go.write_text("x\n")
    _, err = waiting.communicate(timeout=PATIENCE)
    (one,) = remuda.json("messages", "work", "--waiting")
    assert waiting.returncode == 6
    assert f"message {one['id']} waits in the inbox: session 'work' has ended; it failed" in err.decode()
    assert one["stage"] == "accepted"
    for words in (["messages", one["id"], "--wait"], ["wait", one["id"]]):
        assert "it failed while starting" in remuda.refused(*words, code=6)
    with pytest.raises(SessionDead, match="it failed while starting"):
        Session("work", folder=remuda.sessions).wait(one["id"], timeout=PATIENCE)


def test_message_given_to_a_program_that_cannot_run_waits_for_the_next_start(
    remuda: Commands, broken: str
) -> None:
    remuda("start", "work", "--detach", "--", broken, code=6)
    remuda("send", "work", "hi")
    Path(broken).unlink()
    remuda("start", "work", "--resume", "--detach", code=127)
    found = remuda.json("receipt")
    assert [step["stage"] for step in found["steps"]] == ["accepted", "written", "nacked"]
    assert "in flight" not in remuda("inbox", "status", "work").out


def test_attach_to_a_dead_session_shows_its_last_screen(remuda: Commands, broken: str) -> None:
    remuda("start", "work", "--detach", "--", broken, code=6)
    with Tmux(remuda.env, remuda.cwd, 80, 12) as tmux:
        pane = tmux.first()
        pane.until_shows("$")
        pane.enter(f"{REMUDA} attach work; echo rc=$?")
        lines = pane.until_shows("rc=6")
        assert WORDS in lines
        assert not any("--resume" in line for line in lines)


def test_agent_that_comes_up_is_started_and_can_be_resumed_when_it_ends(remuda: Commands) -> None:
    assert remuda("start", "work", "--detach", "--agent", "demo").out.startswith("started work (pid ")
    remuda("kill", "work")
    until(lambda: record_of(remuda, "work").ended_at, "its end")
    assert record_of(remuda, "work").came_up
    assert "--resume' brings it back" in remuda.refused("status", "work", code=6)


def test_agent_that_takes_its_time_is_started(remuda: Commands) -> None:
    slow = Path(remuda.home, "claude")
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    assert "started work" in remuda("start", "work", "--detach", "--", str(slow)).out


def test_plain_command_that_ends_at_once_is_no_error(remuda: Commands) -> None:
    assert "started work" in remuda("start", "work", "--detach", "--", "sh", "-c", "exit 4").out
