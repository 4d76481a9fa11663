"""Sessions of `--restart` come back: with the boss, with `resume`, and never after `kill`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from remuda import Session
from remuda.config import Config
from remuda.errors import EXIT_CODES, InvalidOptions
from remuda.keeper.claim import read_holder
from remuda.keeper.record import SessionRecord
from remuda.keeper.resume import Restarter, ResumeOutcome
from remuda.paths import SessionPaths
from remuda.wire.connection import KeeperConnection, RequestReceived
from remuda.wire.messages import Status
from support.boss import lasting_port
from support.boss_whole import CommandedBoss
from support.commands import Commands, run_by_systemd
from support.heimdall_client import PATIENCE
from support.keeper import Process, until

COUNTED = """
import os, sys, time
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\n")
if sys.argv[2] == "wait":
    time.sleep(600)
sys.exit(int(sys.argv[2]))
"""
"""A program that notes each of its runs, and waits or exits."""
SLOW_START = f"""
echo "${{0##*/}}" >> "${{0%/*}}/log"
until [ -e "$0.go" ]; do sleep 0.02; done
exec {sys.executable} -P -m remuda.testing.scripted_agent "$@"
"""
"""The scripted agent. It notes that it starts, and waits until it may come up."""


@pytest.fixture
def boss(home: Path, remuda: Commands) -> Iterator[CommandedBoss]:
    one = CommandedBoss(home, remuda)
    yield one
    one.close()


def configure(remuda: Commands, *lines: str) -> None:
    folder = remuda.home / ".config" / "remuda"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "remuda.toml").write_text("\n".join(lines))


def begin(remuda: Commands, name: str, policy: str, how: str, *words: str) -> Path:
    runs = remuda.home / f"{name}.runs"
    program = [sys.executable, "-c", COUNTED, str(runs), how]
    remuda.start(name, "--restart", policy, *words, "--", *program)
    until(lambda: runs.exists() and runs.read_text().endswith("\n"), "the first run")
    return runs


def count(runs: Path) -> int:
    return len(runs.read_text().splitlines())


def record(remuda: Commands, name: str) -> SessionRecord:
    found = SessionRecord.load(remuda.sessions / f"{name}.json")
    assert found is not None
    return found


def kill_program(runs: Path) -> None:
    os.kill(int(runs.read_text().splitlines()[-1]), signal.SIGKILL)


def item(boss: CommandedBoss, name: str) -> dict[str, Any] | None:
    return next((one for one in boss.waiting() if one["session"]["name"] == name), None)


def test_boss_restarts_what_crashes_and_nothing_that_was_killed(
    remuda: Commands, boss: CommandedBoss
) -> None:
    configure(remuda, "restart_pause = 0.0")
    always, crashed = (
        begin(remuda, name, policy, "wait") for name, policy in (("al", "always"), ("cr", "on-crash"))
    )
    never = begin(remuda, "ne", "never", "wait")
    killed = begin(remuda, "ki", "always", "wait")
    calm = begin(remuda, "ca", "on-crash", "0")
    again = begin(remuda, "ag", "always", "0")
    boss.start()
    until(lambda: count(again) >= 3, "a program that ends with 0, again")
    remuda("kill", "ki")
    for runs in (always, crashed, never):
        kill_program(runs)
    until(lambda: count(always) == 2 and count(crashed) == 2, "both again")
    # The keeper too: SIGTERM is a logout, SIGKILL a machine that is short of memory.
    for name, number in (("al", signal.SIGTERM), ("cr", signal.SIGKILL)):
        keeper = remuda.keeper(name)
        keeper.signal(number)
        keeper.gone()
    until(lambda: count(always) == 3 and count(crashed) == 3, "both once more")
    assert (count(never), count(killed), count(calm)) == (1, 1, 1)
    remuda("kill", "--all", "--yes")


def test_service_that_setup_installed_brings_sessions_back_after_a_logout(remuda: Commands) -> None:
    configure(remuda, "restart_pause = 0.0", "[boss]", f"port = {lasting_port()}")
    runs = begin(remuda, "work", "on-crash", "wait")
    remuda("setup", "boss", "--service", "--yes")
    unit = remuda.home / ".config" / "systemd" / "user" / "remuda-boss.service"
    kill_program(runs)
    remuda.kill_keeper("work")
    command, environment = run_by_systemd(unit.read_text())
    environment["HOME"] = remuda.env["HOME"]  # the one variable that systemd adds which matters here
    service = subprocess.Popen(command, env=environment, cwd="/", stderr=subprocess.PIPE)
    try:
        until(lambda: count(runs) == 2, "the second run")
    finally:
        service.send_signal(signal.SIGTERM)  # KillMode=process: to this process alone
        _, said = service.communicate(timeout=PATIENCE)
    assert service.returncode == 0, said
    assert remuda.json("status", "work")["alive"]
    remuda("kill", "work")
    remuda("setup", "boss", "--remove", "--yes")


def test_session_that_dies_again_and_again_is_left_alone_and_in_the_queue(
    remuda: Commands, boss: CommandedBoss
) -> None:
    configure(remuda, "restart_pause = 0.01", "restart_tries = 3")
    remuda.may_complain = True
    remuda.start("w", "--agent", "demo", "--restart", "on-crash")
    remuda("send", "w", "hello", "--wait")
    boss.start()
    until(lambda: item(boss, "w"), "what it said")
    # Its program is gone: no start can succeed.
    path = remuda.sessions / "w.json"
    keeper = remuda.keeper("w")
    text = path.read_text().replace(sys.executable, "/no/such/python")
    keeper.kill()
    keeper.close()
    path.write_text(text)
    until(lambda: (found := item(boss, "w")) and found["reason"] == "left_alone", "the reason")
    found = item(boss, "w")
    assert found is not None
    assert found["detail"]["tries"] == 3
    assert "/no/such/python" in found["detail"]["error"]
    assert "left alone after 3 restarts" in remuda("queue").out
    assert "is left alone after 3 tries" in remuda("resume", "--all").err
    path.write_text(text.replace("/no/such/python", sys.executable))
    assert "resumed w" in remuda("resume", "w").out
    until(lambda: item(boss, "w") is None or item(boss, "w")["reason"] != "left_alone", "it is back")  # type: ignore[index]
    assert remuda("send", "w", "again", "--wait").out
    remuda("kill", "w")


def test_kill_is_on_disk_before_anything_is_ended(remuda: Commands) -> None:
    runs = remuda.home / "runs"
    stubborn = f"import signal\nfor one in (1, 15): signal.signal(one, signal.SIG_IGN)\n{COUNTED}"
    remuda.start("s", "--restart", "always", "--", sys.executable, "-c", stubborn, str(runs), "wait")
    until(lambda: runs.exists() and runs.read_text().endswith("\n"), "the program")
    program = Process(int(runs.read_text()))
    asked = remuda.begin("kill", "--grace", "600", "s")
    until(lambda: record(remuda, "s").killed, "the note")
    remuda.kill_keeper("s")
    program.kill()
    program.close()
    asked.wait()
    assert "no session to bring back" in remuda("resume", "--all").out
    assert count(runs) == 1


def test_resume_all_brings_back_what_is_wanted_and_names_the_rest(remuda: Commands) -> None:
    names = ("z", "m", "a")
    runs = {name: begin(remuda, name, "on-crash", "wait") for name in names}
    other = begin(remuda, "other", "never", "wait")
    secret = begin(remuda, "secret", "always", "wait", "--env", "TOKEN=x")
    for name in (*names, "other", "secret"):
        remuda.kill_keeper(name)
    for file in (*runs.values(), other, secret):
        program = Process(int(file.read_text()))
        program.signal(signal.SIGKILL)
        program.ended()
        program.close()
    done = remuda("resume", "--all", code=EXIT_CODES["INVALID_OPTIONS"])
    assert sorted(done.out.splitlines()[:3]) == ["resumed a", "resumed m", "resumed z"]
    assert "without --restart: other" in done.out
    assert done.err.count("not saved: TOKEN") == 1
    until(lambda: [count(one) for one in runs.values()] == [2, 2, 2], "the second runs")
    assert count(other) == count(secret) == 1
    assert "is left alone" in remuda("resume", "--all").err  # no value of TOKEN comes by itself
    assert "resumed other" in remuda("resume", "other").out
    remuda("start", "secret", "--resume", "--detach", "--env", "TOKEN=y")
    until(lambda: count(other) == count(secret) == 2, "the second runs")
    remuda("kill", "--all", "--yes")
    assert "no session to bring back" in remuda("resume", "--all").out


def test_sessions_come_back_in_the_order_of_their_start_and_not_all_at_once(
    remuda: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", remuda.env["HOME"])
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    log, others = remuda.home / "log", remuda.home / "others"
    for folder in (remuda.sessions, others):
        folder.mkdir(mode=0o700)
    names = ("z", "m", "a", "q")
    for at, name in enumerate(names):
        slow = ["sh", "-c", SLOW_START, str(remuda.home / name)]
        wanted(name, slow, remuda, agent="demo", started_at=1000.0 + at).save(
            remuda.sessions / f"{name}.json"
        )
        wanted(name, ["cat"], remuda, agent="simple").save(others / f"{name}.json")
    log.touch()

    def begun(count: int) -> list[str]:
        until(lambda: len(log.read_text().split()) >= count, "the next starts")
        return log.read_text().split()

    assert 2 <= Restarter(remuda.sessions, Config()).at_once <= 8
    restarter = Restarter(remuda.sessions, Config(), at_once=2, coming_up_limit=10 * PATIENCE)
    with ThreadPoolExecutor(1) as beside:
        done = beside.submit(restarter.round)
        try:
            assert {*begun(2)} == {"z", "m"}
            # In this time all others could have begun as well.
            assert len(Restarter(others, Config(), at_once=2).round().done) == len(names)
            assert {*begun(2)} == {"z", "m"}
            (remuda.home / "z.go").touch()
            assert begun(3)[2:] == ["a"]
            (remuda.home / "a.go").touch()
            assert begun(4)[2:] == ["a", "q"]  # m is still starting
        finally:
            for name in names:
                (remuda.home / f"{name}.go").touch()
        assert [(one.record.name, one.outcome) for one in done.result().done] == [
            (name, ResumeOutcome.RESUMED) for name in names
        ]


def wanted(name: str, argv: list[str], remuda: Commands, **more: Any) -> SessionRecord:
    """Return the record of a session that ended with its machine."""
    options = {"restart": "on-crash"}
    given = {"started_at": 1000.0, **more}
    return SessionRecord(name=name, argv=argv, cwd=str(remuda.cwd), options=options, **given)


def test_resume_all_says_that_an_agent_ended_before_it_was_ready(remuda: Commands) -> None:
    remuda.may_complain = True
    remuda.start("w", "--agent", "demo", "--restart", "on-crash")
    keeper = remuda.keeper("w")
    keeper.kill()
    keeper.close()
    path = remuda.sessions / "w.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "argv": [sys.executable, "-c", "raise SystemExit(3)"]}))
    done = remuda("resume", "--all", code=EXIT_CODES["SESSION_DEAD"])
    assert "w: it ended before it was ready" in done.err
    assert "'remuda resume --all' tries them again after a pause" in done.out  # no boss runs
    assert "resumed" not in done.out
    remuda("kill", "w")


def test_bad_input_of_resume_and_restart_is_named(remuda: Commands) -> None:
    usage = EXIT_CODES["INVALID_OPTIONS"]
    assert "no session given" in remuda.refused("resume", code=usage)
    assert "do not go with --all" in remuda.refused("resume", "--all", "x", code=usage)
    assert "'nix' not found" in remuda.refused("resume", "nix", code=EXIT_CODES["NO_SESSION"])
    remuda("start", "x", "--restart", "sometimes", "--", "true", code=usage)
    with pytest.raises(InvalidOptions, match="restart must be one of never, on-crash, always"):
        Session.start("x", ["true"], restart="sometimes", folder=remuda.sessions)  # type: ignore[arg-type]
    assert remuda("resume", "--all").out == "no session to bring back\n"


def until_gone(remuda: Commands, name: str) -> None:
    """Wait for the end of a keeper too: it ends a moment after its record says so."""
    until(lambda: record(remuda, name).ended_at, "the end")
    until(lambda: read_holder(SessionPaths(remuda.sessions, name)) is None, "the keeper's end")


def test_kill_of_an_ended_session_ends_its_restart(remuda: Commands) -> None:
    runs = begin(remuda, "s", "always", "0")
    until_gone(remuda, "s")
    assert "kept: s, which will be restarted" in remuda("clean", "--older-than", "1", "--force").out
    assert remuda("kill", "s").out == "s not restarted\n"
    assert remuda("resume", "--all").out == "no session to bring back\n"
    assert "has ended" in remuda.refused("kill", "s", code=EXIT_CODES["SESSION_DEAD"])
    assert count(runs) == 1
    other = begin(remuda, "t", "always", "0")
    until_gone(remuda, "t")
    assert Session("t", folder=remuda.sessions).kill() is None
    assert remuda("resume", "--all").out == "no session to bring back\n"
    assert count(other) == 1


@pytest.mark.soak  # an agent without a terminal gets 10 s to end by itself
def test_program_that_outlived_its_keeper_is_ended_before_its_session_comes_back(remuda: Commands) -> None:
    runs = remuda.home / "runs"
    stubborn = f"import signal\nsignal.signal(1, signal.SIG_IGN)\n{COUNTED}"
    remuda.start("s", "--restart", "on-crash", "--", sys.executable, "-c", stubborn, str(runs), "wait")
    until(lambda: runs.exists() and runs.read_text(), "the program")
    program = Process(int(runs.read_text()))
    remuda.kill_keeper("s")
    assert "resumed s" in remuda("resume", "--all").out
    program.gone()
    until(lambda: count(runs) == 2, "the second run")
    remuda("kill", "s")


class _LastWords(threading.Thread):
    """Greets one client in place of a killed keeper, and is gone then: as one that is killed just after."""

    def __init__(self, paths: SessionPaths, *, hears_more: bool) -> None:
        super().__init__(daemon=True)
        self._hears_more = hears_more
        paths.socket.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(paths.socket))
        self._listener.listen()

    def run(self) -> None:
        keeper = KeeperConnection()
        peer, _ = self._listener.accept()
        with self._listener, peer:
            while keeper.hello is None:
                list(keeper.receive(peer.recv(4096)))
            if not self._hears_more:  # what the client sends next fails
                peer.shutdown(socket.SHUT_RD)
            status = keeper.status(Status(1, 0, True, 0, 0))
            peer.sendall(keeper.greeting() + keeper.welcome({"name": "work"}) + status)
            while self._hears_more:
                heard = list(keeper.receive(peer.recv(4096)))
                self._hears_more = not any(isinstance(one, RequestReceived) for one in heard)


@pytest.mark.parametrize("hears_more", [True, False])
@pytest.mark.parametrize("by", ["command", "library"])
def test_kill_of_a_session_whose_keeper_dies_as_it_is_asked_is_for_good(
    remuda: Commands, by: str, *, hears_more: bool
) -> None:
    runs = begin(remuda, "work", "always", "wait")
    remuda.kill_keeper("work")
    kill_program(runs)
    paths = SessionPaths(remuda.sessions, "work")
    keeper = _LastWords(paths, hears_more=hears_more)
    keeper.start()
    if by == "library":
        assert Session("work", folder=remuda.sessions).kill() is None
    else:
        assert remuda("kill", "work").out == "work ended, not restarted\n"
    keeper.join()
    assert record(remuda, "work").killed
