"""`remuda.Session`: what the commands do, for a program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from remuda import Session
from remuda.errors import (
    InputError,
    InvalidOptions,
    SessionDead,
    SessionExists,
    SessionNotFound,
    WaitTimeout,
)
from support.keeper import AWAKE, until


class Sessions:
    """Starts sessions of the scripted agent, and ends what still runs."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.folder, self.project = folder, project
        self._stack = ExitStack()

    def start(self, name: str, *command: str, **options: Any) -> Session:
        given = {"agent": None if command else "demo", "cwd": self.project, **options}
        session = Session.start(name, command, folder=self.folder, **given)
        self._stack.callback(self._end, session)
        return session

    @staticmethod
    def _end(session: Session) -> None:
        if session.alive:
            session.kill(0.0)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def sessions(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    monkeypatch.setenv("REMUDA_HOME", str(home))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    (tmp_path / "project").mkdir()
    made = Sessions(home / "sessions", tmp_path / "project")
    yield made
    made.close()


def test_session_answers_what_it_is_asked(sessions: Sessions) -> None:
    session = sessions.start("work")

    assert session.ask("hello there", timeout=30.0).startswith("REPLY#1 to: hello there")
    assert session.wait_idle(30.0)["state"] == "idle"
    assert any("hello there" in line for line in session.screen())


def test_message_is_followed_to_its_end_also_when_that_came_before(sessions: Sessions) -> None:
    session = sessions.start("work")
    sent = session.send("first")

    assert session.wait(sent.id, 30.0).stage == "acked"
    assert session.wait(sent.id, 30.0).stage == "acked"
    assert [step["stage"] for step in session.receipt(sent.id).steps][:1] == ["accepted"]


def test_wait_for_what_does_not_end_is_a_timeout(sessions: Sessions) -> None:
    session = sessions.start("work")
    sent = session.send("later", delay=3600)

    with pytest.raises(WaitTimeout):
        session.wait(sent.id, 0.05)


def test_command_of_the_agents_is_refused_unless_it_is_meant(sessions: Sessions) -> None:
    session = sessions.start("work")

    with pytest.raises(InputError):
        session.send("/clear")
    assert session.wait(session.send("/clear", command=True).id, 30.0).stage == "acked"


def test_plain_command_takes_no_message(sessions: Sessions) -> None:
    session = sessions.start("plain", "sleep", "600")

    with pytest.raises(InvalidOptions, match="plain command"):
        session.send("hello")


def test_variables_reach_the_program_and_its_exit_code_comes_back(sessions: Sessions) -> None:
    script = f'trap "exit $CODE" TERM HUP; echo ready; {AWAKE}'
    session = sessions.start("plain", "sh", "-c", script, env={"CODE": "7"})

    until(lambda: "ready" in session.screen()[0], "it is ready")

    assert session.kill() == 7
    assert not session.alive
    with pytest.raises(SessionDead):
        session.status()


def test_send_takes_the_options_of_put_and_refuses_others(sessions: Sessions) -> None:
    session = sessions.start("work")
    first = session.send("later", delay="8h", dedup="k", ttl="9h")
    assert session.send("later", delay="8h", dedup="k") == (first.id, True)
    with pytest.raises(InvalidOptions, match="'dedupe'; did you mean 'dedup'"):
        session.ask("x", dedupe="k")  # type: ignore[call-arg]
    assert [one.text for one in session.inbox.waiting()] == ["later"]


def test_name_that_is_taken_or_unknown_is_an_error(sessions: Sessions) -> None:
    sessions.start("work", "sleep", "600")

    with pytest.raises(SessionExists):
        sessions.start("work", "sleep", "600")
    with pytest.raises(SessionNotFound):
        Session("nobody", folder=sessions.folder)


def test_option_that_no_session_has_is_refused_before_anything_runs(sessions: Sessions) -> None:
    with pytest.raises(InvalidOptions, match="colour"):
        sessions.start("work", "sleep", "600", colour="red")
    with pytest.raises(SessionNotFound):
        Session("work", folder=sessions.folder)


def test_dead_session_is_known_and_comes_back_with_its_messages(sessions: Sessions) -> None:
    session = sessions.start("work")
    session.ask("first", timeout=30.0)
    session.kill(0.0)

    held = Session("work", folder=sessions.folder).send("second")
    again = sessions.start("work", agent=None, resume=True)

    assert again.wait(held.id, 30.0).stage == "acked"
