"""`remuda.Session("host/name")`: what a program can do with a session of another machine."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import remuda
from remuda import AsyncSession, Session
from support.fleet import Pair, two_machines
from support.heimdall_client import PATIENCE
from support.keeper import until


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with two_machines(tmp_path_factory.mktemp("fleet")) as pair:
        yield pair


@pytest.fixture
def pair(machines: Pair, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """This test is a program on the machine to act from."""
    monkeypatch.setenv("REMUDA_HOME", str(machines.desk.remuda.home))
    return machines


@pytest.fixture
def work(pair: Pair, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"work{abs(hash(request.node.name)) % 10**6}"
    yield pair.start(name)
    if name in {one["name"] for one in pair.build.remuda.json("ls", "--local")}:
        pair.build.remuda("kill", name)


def test_a_session_of_another_host_is_asked_and_read(pair: Pair, work: str) -> None:
    session = Session(work)
    assert (session.name, session.host, repr(session)) == (work, "build7", f"Session('{work}')")
    assert session.alive
    assert session.ask("hello", PATIENCE) == "REPLY#1 to: hello"
    sent = session.send("again", ttl="1h")
    receipt = session.wait(sent.id, PATIENCE)
    assert [one["stage"] for one in receipt.steps][:2] == ["sent", "accepted"]
    assert (receipt.stage, receipt.ended, receipt.id) == ("acked", True, sent.id)
    assert receipt == session.receipt(sent.id)
    assert session.wait_idle(PATIENCE)["state"] == "idle"
    assert session.status(explain=True)["votes"]
    assert any("REPLY#2 to: again" in line for line in session.screen())
    assert "REPLY#1 to: hello" in "\n".join(session.history())
    assert len(session.history(2)) == 2
    assert [one.name for one in Session.list(hosts=True)] == [work]
    assert Session.list() == []
    with session.attach(read_only=True) as client:
        assert client.request("screen")["lines"] == session.screen()
        with pytest.raises(remuda.PermissionRefused):
            client.request("kill")


def test_a_message_that_others_sent_is_known_too(pair: Pair, work: str) -> None:
    name = work.partition("/")[2]
    theirs = pair.build.remuda("send", name, "by hand").out.split()[1]
    receipt = Session(work).wait(theirs, PATIENCE)
    assert (receipt.stage, receipt.answer) == ("acked", {"text": "REPLY#1 to: by hand"})
    with pytest.raises(remuda.MessageNotFound):
        Session(work).receipt(theirs[:-1])  # the beginning of an id is for people


def test_a_turn_is_interrupted_a_message_taken_back_and_the_session_ended(pair: Pair, work: str) -> None:
    session = Session(work)
    assert session.interrupt() is None
    running = session.send("SLOW 600")
    until(lambda: session.receipt(running.id).stage in ("submitted", "recorded"), "the turn to run")
    waiting = session.send("never")
    until(lambda: session.receipt(waiting.id).stage == "accepted", "the message in its inbox")
    with pytest.raises(remuda.WaitTimeout, match="has not ended within"):
        session.wait(waiting.id, 0.1)
    with pytest.raises(remuda.WaitTimeout, match="is not idle"):
        session.wait_idle(0.1)
    taken = session.cancel(waiting.id)
    assert taken is not None
    assert (taken.fate, taken.message) == ("taken_back", waiting.id)
    stopped = session.cancel()
    assert stopped is not None
    assert stopped.fate == "interrupted"
    assert session.wait(running.id, PATIENCE).ended
    assert session.wait_idle(PATIENCE)
    with pytest.raises(remuda.InvalidOptions, match="at most 60 s"):
        session.kill(61)
    session.kill(grace=5)
    assert not session.alive
    with pytest.raises(remuda.SessionDead):
        session.status()
    assert session.screen()
    assert session.history()
    held = session.send("for later")  # as at home: it waits until the session is back
    until(lambda: session.receipt(held.id).stage == "accepted", "the message in its inbox")


def test_a_program_starts_a_session_there(pair: Pair) -> None:
    there = str(pair.build.remuda.cwd)
    words = ("--permission-mode", "default")
    session = Session.start("build7/made", words, agent="demo", cwd=there, cols=100)
    try:
        assert session.name == "build7/made"
        assert session.status()["cols"] == 100
        assert session.ask("hello", PATIENCE) == "REPLY#1 to: hello"
        with pytest.raises(remuda.SessionExists):
            Session.start("build7/made", words, agent="demo")
    finally:
        session.kill()
    for options in ({"env": {"A": "b"}}, {"record": "file"}):
        with pytest.raises(remuda.InvalidOptions, match="of another host"):
            Session.start("build7/other", ("true",), **options)


def test_what_another_host_cannot_do_is_refused_with_the_reason(pair: Pair, work: str) -> None:
    session = Session(work)
    with pytest.raises(remuda.InvalidOptions, match="a folder of that host"):
        _ = session.inbox
    with pytest.raises(remuda.InvalidOptions, match="message_id cannot be given there"):
        session.send("x", message_id="mine")
    with pytest.raises(remuda.InvalidOptions):
        session.send("x", delay="soon")
    with pytest.raises(remuda.MessageDead, match="not answered: dead"):
        session.send("/compact")
    with pytest.raises(remuda.MessageNotFound):
        session.receipt("m1")
    unknown = Session("build7/never")
    assert not unknown.alive
    for call in (unknown.status, unknown.screen, unknown.history, unknown.interrupt, unknown.kill):
        with pytest.raises(remuda.SessionNotFound, match="'build7/never' not found"):
            call()
    with pytest.raises(remuda.MessageDead, match="'never' not found on build7"):
        unknown.send("x")
    with pytest.raises(remuda.NotInFleet, match="host 'nowhere' not found"):
        Session("nowhere/work").status()
    with pytest.raises(remuda.BadName):
        Session("build7/.")
    # A folder of an agent is a name for people. A program must not end another session by it.
    folder = pair.build.remuda.cwd.name
    until(lambda: pair.build.client.get("sessions", folder)["session"]["name"], "the agent by its folder")
    with pytest.raises(remuda.SessionNotFound):
        Session(f"build7/{folder}").kill()
    assert session.alive


def test_the_name_of_this_machine_means_this_machine(pair: Pair) -> None:
    with pytest.raises(remuda.SessionNotFound, match="'here' not found"):
        Session("desk/here")
    pair.desk.start("here")
    try:
        session = Session("desk/here")
        assert (session.name, session.host) == ("here", None)
        assert session.inbox.folder.parent == pair.desk.remuda.sessions
    finally:
        pair.desk.remuda("kill", "here")


def test_without_a_fleet_a_host_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path))
    for make in (Session, AsyncSession, Session.start):
        with pytest.raises(remuda.NotInFleet, match="has joined no fleet"):
            make("build7/work")


def test_the_methods_for_an_event_loop_are_the_same(pair: Pair, work: str) -> None:
    async def use() -> None:
        session = AsyncSession(work)
        assert (session.name, session.host) == (work, "build7")
        assert await session.ask("hello", PATIENCE) == "REPLY#1 to: hello"
        assert [one.name for one in await AsyncSession.list(hosts=True)] == [work]
        assert (await session.status())["state"] == "idle"
        running = await session.send("SLOW 600")
        waiting = asyncio.create_task(session.wait(running.id))
        while (await session.receipt(running.id)).stage not in ("submitted", "recorded"):
            await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        stopped = await session.interrupt()
        assert stopped is not None
        assert stopped.message == running.id
        assert (await session.wait(running.id, PATIENCE)).ended
        assert (await session.wait_idle(PATIENCE))["state"] == "idle"
        assert await session.screen()
        assert await session.history(1)
        await session.kill()

    asyncio.run(use())
    assert not Session(work).alive


def test_a_host_that_is_away_gets_messages_later_and_nothing_else(pair: Pair, work: str) -> None:
    session = Session(work)
    pair.build.boss_end(signal.SIGKILL)
    try:
        sent = session.send("while away")
        assert session.receipt(sent.id).stage == "sent"
        for call in (session.kill, session.interrupt, session.status, session.screen, session.wait_idle):
            with pytest.raises(remuda.HostUnreachable):
                call()
        with pytest.raises(remuda.HostUnreachable, match="cannot be cancelled there"):
            session.cancel(sent.id)
        assert [one.name for one in Session.list(hosts=True)] == [work]
    finally:
        pair.build.boss_up()
    assert session.wait(sent.id, PATIENCE).answer["text"] == "REPLY#1 to: while away"  # type: ignore[index]
