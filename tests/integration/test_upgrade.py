"""This version starts from a home that version 0.1 made: everything is there, and nothing runs twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.testing.scripted_agent.probe import whole_records
from support.keeper import until
from support.messages import CHAIN
from support.old_home import OUTSIDE, SETTINGS, TMUX_CONF, OldHome
from support.old_version import NEW, Machine


@pytest.fixture
def old_home(home: Path, old_remuda: Path) -> Iterator[OldHome]:
    """Empty: each test has the parts made that it needs."""
    machine = Machine(home)
    yield OldHome(machine, old_remuda)
    machine.close()


def prompts(home: OldHome, session: str) -> list[str]:
    """Every prompt in the conversation of a session, in order."""
    record = json.loads((home.state / f"sessions/{session}.json").read_text())
    transcript = Path(record["conversation"]["transcript_path"])
    contents = [one["message"]["content"] for one in whole_records(transcript) if one["type"] == "user"]
    return [one for one in contents if isinstance(one, str)]


def test_ended_session_comes_back_with_its_conversation_and_runs_nothing_twice(old_home: OldHome) -> None:
    old_home.fill_ended_session()
    machine, ids = old_home.machine, old_home.ids
    assert [(one["name"], one["state"]) for one in machine.json(NEW, "ls", "--all")] == [("ended", "dead")]
    waiting = [one["id"] for one in machine.json(NEW, "inbox", "ls", "ended")]
    assert waiting == [ids[text] for text in ("SLOW 60", "next", "delayed", "/clear")]
    machine.run(NEW, ["start", "ended", "--resume", "--detach"])
    stages = {}
    for text, message in ids.items():
        machine.run(NEW, ["wait", message], code=None)
        stages[text] = [one["stage"] for one in machine.json(NEW, "receipt", message)["steps"]]
    assert stages["next"] == stages["delayed"] == CHAIN  # the delay was an option
    assert stages["SLOW 60"][-1] == stages["/clear"][-1] == "dead"  # its turn was cut; it is not a command
    assert machine.json(NEW, "inbox", "ls", "ended") == []
    assert prompts(old_home, "ended") == ["first", "SLOW 60", "next", "delayed"]
    assert {one["id"] for one in machine.json(NEW, "inbox", "dead", "ended")} == {
        ids["SLOW 60"],
        ids["/clear"],
    }


def test_messages_of_an_inbox_are_handed_out_once_and_without_options(old_home: OldHome) -> None:
    old_home.fill_inbox()
    machine, inbox, ids = old_home.machine, str(old_home.inbox), old_home.ids
    assert [one["id"] for one in machine.json(NEW, "inbox", "dead", "--inbox", inbox)] == [ids["dead"]]
    assert [one["id"] for one in machine.json(NEW, "inbox", "ls", "--inbox", inbox)] == [
        ids[text] for text in ("flying", "later", "/compact", "fragile")
    ]
    handed = []
    while text := machine.run(NEW, ["stop-hook", "--inbox", f"{inbox}/inbox.jsonl"]):
        handed.append(json.loads(text)["reason"])
    # "flying" was handed out by version 0.1, and the first stop acknowledges it.
    assert handed == ["later", "/compact", "fragile"]
    status = machine.json(NEW, "inbox", "status", "--inbox", inbox)
    assert (status["waiting"], status["in_flight"]) == (0, None)
    receipts = whole_records(old_home.inbox / "receipts.jsonl")
    ignored = {one["id"]: one["options_ignored"] for one in receipts if "options_ignored" in one}
    assert {*ignored} >= {ids["/compact"], ids["fragile"]}
    acked = [one["id"] for one in receipts if one["stage"] == "acked"]
    assert acked == [ids[text] for text in ("done", "flying", "later", "/compact", "fragile")]


def test_boss_knows_ledger_history_queue_and_what_hooks_reported_without_it(old_home: OldHome) -> None:
    machine = old_home.machine
    old_home.install()
    machine.run(old_home.old, ["start", "alive", "--detach", "--agent", "demo"])
    old_home.fill_boss()
    machine.run(NEW, ["up", "--detach", "--port", "0"])
    ledger = machine.json(NEW, "approvals", "--all")["approvals"]
    assert sorted((one["input"]["command"], one["proof"]["ran"]) for one in ledger) == [
        ("touch allowed", True),
        ("touch denied", False),
    ]
    reasons = [one["reason"] for one in machine.json(NEW, "queue", "--history")["items"]]
    assert reasons.count("permission") == 2

    def waiting() -> set[tuple[str, str]]:
        items = machine.json(NEW, "queue")["items"]
        return {(one["session_id"], one["reason"]) for one in items if one["session"]["origin"] != "kept"}

    until(lambda: (OUTSIDE, "stopped") in waiting(), "what the hooks reported")
    (kept,) = [one for one in machine.json(NEW, "agents")["sessions"] if one["name"] == "alive"]
    assert kept["state"] == "stopped"
    # The hooks of version 0.1, which are still installed, reach the boss of this version.
    old_home.report("UserPromptSubmit", OUTSIDE, prompt="go on")
    until(lambda: (OUTSIDE, "stopped") not in waiting(), "the next report")
    assert len(machine.json(NEW, "approvals", "--all")["approvals"]) == 2
    assert machine.json(NEW, "send", "alive", "more", "--wait")["stage"] == "acked"


def test_home_with_all_of_it_is_taken_over_at_once(old_home: OldHome) -> None:
    old_home.make()
    machine, ids = old_home.machine, old_home.ids
    unit = machine.home / ".config/systemd/user/remuda-boss.service"
    assert unit.exists()
    assert "remuda" in (machine.home / ".tmux.conf").read_text()
    states = {one["name"]: one["state"] for one in machine.json(NEW, "ls", "--all")}
    assert (states["alive"], states["ended"]) == ("idle", "dead")
    assert {ids["next"], ids["delayed"]} < {one["id"] for one in machine.json(NEW, "inbox", "ls", "ended")}
    machine.run(NEW, ["up", "--detach", "--port", "0"])
    machine.run(NEW, ["start", "ended", "--resume", "--detach"])
    machine.run(NEW, ["wait", ids["delayed"]])
    assert prompts(old_home, "ended") == ["first", "SLOW 60", "next", "delayed"]
    assert machine.json(NEW, "send", "alive", "more", "--wait")["stage"] == "acked"
    names = [one["name"] for one in machine.json(NEW, "agents")["sessions"]]
    assert {"alive", "ended"} <= {*names}
    machine.run(NEW, ["pool", "serve", "--demo", "--detach", "--prewarm", "0"])
    assert machine.run(NEW, ["run", "hello"]).startswith("REPLY#1 to: hello")
    machine.run(NEW, ["pool", "stop"])
    machine.run(NEW, ["down"])
    machine.run(NEW, ["setup", "--remove", "--yes"])
    assert (machine.home / ".claude/settings.json").read_text() == SETTINGS
    assert (machine.home / ".tmux.conf").read_text() == TMUX_CONF
    assert not unit.exists()
    assert json.loads(old_home.drained.read_text()) == {}  # version 0.1 did not say that it made the file
