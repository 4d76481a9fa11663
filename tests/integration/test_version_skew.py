"""Keepers, bosses and command lines of different versions work together, or say that they cannot."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import remuda
from support.heimdall_client import PATIENCE
from support.keeper import Process, until
from support.messages import CHAIN
from support.old_version import NEW, Machine, make_environment
from support.print_calls import scripted_agent
from support.tmux import Tmux

DETACH = b"\x1c"


@pytest.fixture
def machine(home: Path) -> Iterator[Machine]:
    one = Machine(home)
    yield one
    one.close()


# ── version 0.1 and this one: who is of which ──


class Mixed:
    """A machine whose keepers, boss and command line may be of different versions."""

    def __init__(self, machine: Machine, keeper: Path, boss: Path, cli: Path) -> None:
        self.machine, self.keeper, self.boss, self.cli = machine, keeper, boss, cli

    def __call__(self, *words: str) -> str:
        return self.machine.run(self.cli, words)

    def json(self, *words: str) -> Any:
        return self.machine.json(self.cli, *words)

    def start(self, name: str, *words: str) -> None:
        self.machine.run(self.keeper, ["start", name, "--detach", *words])

    def up(self) -> None:
        self.machine.run(self.boss, ["up", "--detach", "--port", "0"])

    def keeper_process(self, name: str) -> Process:
        return Process(int((self.machine.home / f"state/sessions/{name}.pid").read_text().split()[0]))

    def waiting(self, name: str, reason: str) -> dict[str, Any]:
        """The item of that session in the queue, once it has that reason."""

        def look() -> dict[str, Any]:
            items = [one for one in self.json("queue")["items"] if one["session"]["name"] == name]
            return items[0] if items and items[0]["reason"] == reason else {}

        return until(look, f"{name} in the queue: {reason}")

    def open_approval(self) -> str:
        """The id of the open permission request, once the boss has it."""

        def look() -> list[str]:
            return [one["id"] for one in self.json("approvals")["approvals"] if one["state"] == "open"]

        try:
            return until(look, "the permission request")[0]
        except AssertionError as error:
            error.add_note(self("status", "work", "--explain", "--json"))
            error.add_note(self("approvals", "--all", "--json"))
            raise

    def ran(self, approval: str) -> bool:
        """Whether the tool of that request ran, once there is proof."""

        def look() -> dict[str, Any]:
            (found,) = [one for one in self.json("approvals", "--all")["approvals"] if one["id"] == approval]
            return found["proof"] if "ran" in (found["proof"] or {}) else {}

        return bool(until(look, "a proof")["ran"])


_EACH_TIME = [("old", "new", "new"), ("old", "old", "new")]
_MIXTURES = [
    pytest.param(one, marks=() if one in _EACH_TIME else pytest.mark.soak(only=True))
    for one in itertools.product(("old", "new"), repeat=3)
    if len({*one}) > 1
]


@pytest.fixture(params=_MIXTURES, ids=lambda one: "{}-keeper-{}-boss-{}-cli".format(*one))
def mixed(request: pytest.FixtureRequest, machine: Machine, old_remuda: Path) -> Mixed:
    versions = {"old": old_remuda, "new": NEW}
    return Mixed(machine, *(versions[one] for one in request.param))


@pytest.fixture(params=["old", "new"], ids=lambda keeper: f"{keeper}-keeper")
def pair(request: pytest.FixtureRequest, machine: Machine, old_remuda: Path) -> Mixed:
    """A keeper or a pool of one version, and a command line of the other."""
    keeper, cli = (old_remuda, NEW) if request.param == "old" else (NEW, old_remuda)
    return Mixed(machine, keeper, cli, cli)


def test_session_of_the_other_version_is_listed_shown_and_killed(pair: Mixed) -> None:
    pair.start("work", "--agent", "demo")
    keeper = pair.keeper_process("work")
    pair("wait", "work")
    (listed,) = pair.json("ls")
    assert (listed["name"], listed["state"]) == ("work", "idle")
    status = pair.json("status", "work")
    assert (status["state"], status["agent"]) == ("idle", "demo")
    assert "Scripted agent" in pair("screen", "work")
    if pair.cli == NEW:
        assert "version 0.1.0" in pair("show", "work")
    assert pair.machine.json(pair.cli, "status", "work", "--explain")["state"] == "idle"
    pair("resize", "work", "100x30")
    pair("kill", "work", "--grace", "0")
    keeper.gone()
    assert [one["state"] for one in pair.json("ls", "--all")] == ["dead"]


def test_message_to_a_keeper_of_the_other_version_has_all_receipts(pair: Mixed) -> None:
    pair.start("work", "--agent", "demo")
    sent = pair.json("send", "work", "hello")
    pair("wait", sent["id"])
    assert [one["stage"] for one in pair.json("receipt", sent["id"])["steps"]] == CHAIN
    assert pair.json("send", "work", "and again", "--wait")["answer"]["text"] == "REPLY#2 to: and again"
    # From now on the inbox has a key, and the other version's envelopes have no mark.
    assert pair.machine.json(NEW, "send", "work", "three", "--wait")["answer"]["text"] == "REPLY#3 to: three"
    assert pair.json("send", "work", "four", "--wait")["answer"]["text"] == "REPLY#4 to: four"


def test_delay_of_a_message_holds_with_a_keeper_of_version_0_1(machine: Machine, old_remuda: Path) -> None:
    machine.run(old_remuda, ["start", "work", "--detach", "--agent", "demo"])
    later = machine.json(NEW, "send", "work", "later", "--delay", "1h")["id"]
    machine.run(NEW, ["send", "work", "now", "--wait"])
    assert [one["id"] for one in machine.json(NEW, "inbox", "ls", "work")] == [later]


def test_options_of_version_0_1_are_dropped_by_this_version(machine: Machine, old_remuda: Path) -> None:
    """Its envelopes have no mark, so that anyone could have written them."""
    machine.run(NEW, ["start", "work", "--detach", "--agent", "demo"])
    message = machine.json(old_remuda, "send", "work", "later", "--delay", "1h")["id"]
    machine.run(NEW, ["wait", message])
    assert machine.json(NEW, "receipt", message)["answer"]["text"] == "REPLY#1 to: later"


def test_session_of_the_other_version_can_be_attached(pair: Mixed) -> None:
    pair.start("work", "--", "sh", "-c", 'stty -echo; echo ready; while read -r x; do echo "[$x]"; done')
    with Tmux(pair.machine.env, pair.machine.project) as tmux:
        pane = tmux.first()
        pane.enter(f"{pair.cli} -m remuda attach work; echo rc=$?")
        pane.until_shows("ready")
        pane.enter("hello")
        pane.until_shows("[hello]")
        pane.send(DETACH)
        pane.until_shows("rc=0")


def test_queue_and_permissions_work_with_keeper_boss_and_command_line_of_any_version(mixed: Mixed) -> None:
    mixed.start("work", "--agent", "demo")
    mixed.up()
    mixed("send", "work", "hello", "--wait")
    assert mixed.waiting("work", "stopped")["message"] == "REPLY#1 to: hello"
    assert [one["name"] for one in mixed.json("agents")["sessions"]] == ["work"]
    mixed("send", "work", "RUNBASH touch allowed")
    mixed.waiting("work", "permission")
    allowed = mixed.open_approval()
    mixed("approve", "work", "--yes")
    assert mixed.ran(allowed)
    assert (mixed.machine.project / "allowed").exists()
    mixed.waiting("work", "stopped")
    mixed("send", "work", "RUNBASH touch denied")
    denied = mixed.open_approval()
    mixed("deny", "work", "--message", "no")
    assert not mixed.ran(denied)
    assert not (mixed.machine.project / "denied").exists()
    mixed.waiting("work", "stopped")
    mixed("kill", "work", "--grace", "0")
    until(
        lambda: [one["state"] for one in mixed.json("agents")["sessions"]] in ([], ["dead"]),
        "its end at the boss",
    )
    mixed("down")


def test_pool_of_the_other_version_runs_requests_reports_and_stops(pair: Mixed) -> None:
    agent = scripted_agent(pair.machine.home)
    with pair.machine.pool(pair.keeper, "--backend", "stream", "--claude-binary", str(agent)) as served:
        assert pair("run", "--no-fallback", "hello") == "REPLY#1 to: hello\n"
        result = pair.json("run", "--no-fallback", "and again")
        assert (result["text"], result["warm"]) == ("REPLY#1 to: and again", True)
        assert pair("print", "--pool", "hello") == "REPLY#1 to: hello\n"
        status = pair.json("pool", "status")["pool"]
        assert (status["spawns"], len(status["sessions"])) == (1, 1)
        pair("pool", "stop")
        assert served.wait(PATIENCE) == 0


# ── a version that is still to come ──


def later_version(folder: Path, protocol: int) -> Path:
    """Install a copy of ours that says so. Returns its interpreter."""
    source = folder / "source"
    package = Path(remuda.__file__).parent
    shutil.copytree(package, source / "remuda", ignore=shutil.ignore_patterns("__pycache__"))
    (source / "remuda" / "_version.py").write_text('__version__ = "9.9.9"\n')
    messages = source / "remuda" / "wire" / "messages.py"
    ours, line = messages.read_text(), "PROTOCOL_VERSION: Final = 1\n"
    assert line in ours
    messages.write_text(ours.replace(line, f"PROTOCOL_VERSION: Final = {protocol}\n"))
    return make_environment(folder / "venv", source)


def test_keeper_of_a_later_release_is_named_and_works(machine: Machine, tmp_path: Path) -> None:
    machine.run(later_version(tmp_path, protocol=1), ["start", "work", "--detach", "--", "cat"])
    assert "9.9.9" in machine.run(NEW, ["status", "work"])
    assert "9.9.9" in machine.run(NEW, ["doctor"], code=None)
    machine.run(NEW, ["kill", "work"])


def test_keeper_of_a_later_protocol_is_listed_asked_and_killed(machine: Machine, tmp_path: Path) -> None:
    machine.run(later_version(tmp_path, protocol=2), ["start", "work", "--detach", "--", "cat"])
    keeper = Process(int((machine.home / "state/sessions/work.pid").read_text().split()[0]))
    assert [one["name"] for one in machine.json(NEW, "ls")] == ["work"]
    assert "idle" in machine.run(NEW, ["status", "work"])
    assert "another program or version" in machine.error(NEW, ["screen", "work"], code=7)
    machine.run(NEW, ["kill", "work"])
    keeper.gone()


def test_command_line_of_a_later_protocol_is_answered(machine: Machine, tmp_path: Path) -> None:
    later = later_version(tmp_path, protocol=2)
    machine.run(NEW, ["start", "work", "--detach", "--", "cat"])
    assert "idle" in machine.run(later, ["status", "work"])
    machine.run(later, ["kill", "work"])
    assert machine.json(NEW, "ls") == []
