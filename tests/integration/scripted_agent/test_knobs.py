"""The scripted agent's trust dialog, and the variables that make it misbehave."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.scripted_agent.probe import SCRIPTED, Probe
from support.agents import Start

StartWith = Callable[..., Probe]


@pytest.fixture
def start_with(start: Start) -> StartWith:
    """Starts the agent with ``MOCK_*`` variables, given by the ends of their names."""

    def run(*flags: str, **knobs: str) -> Probe:
        mock = {f"MOCK_{name}": value for name, value in knobs.items()}
        return start(*flags, env={"MOCK_DIALOG_GUARD": "0", **mock})

    return run


def trust_store(home: Path, *folders: Path) -> None:
    projects = {str(folder): {"hasTrustDialogAccepted": True} for folder in folders}
    (home / ".claude.json").write_text(json.dumps({"theme": "dark", "projects": projects}))


def answers(agent: Probe) -> list[dict[str, Any]]:
    return [line for line in agent.transcript() if line["type"] == "assistant"]


# --- trust


def test_folder_that_is_not_trusted_is_asked_about(start_with: StartWith, home: Path) -> None:
    trust_store(home)
    agent = start_with()
    agent.terminal.wait_for("❯ No, exit".encode())
    agent.until(lambda: "Yes, I trust this folder" in agent.screen(), "the dialog")
    assert b"\x1b[?1049h" not in agent.terminal.output
    assert agent.entry == {}


def test_enter_at_the_trust_dialog_exits_with_1(start_with: StartWith) -> None:
    agent = start_with(TRUST_DIALOG="1")
    agent.terminal.wait_for("❯ No, exit".encode())
    agent.type("\r")
    assert agent.wait_for_exit() == 1
    assert agent.hooks == []


def test_pasted_prompt_at_the_trust_dialog_exits_with_1(start_with: StartWith) -> None:
    agent = start_with(TRUST_DIALOG="1")
    agent.terminal.wait_for("❯ No, exit".encode())
    agent.paste("a prompt")
    assert agent.wait_for_exit() == 1


def test_escape_at_the_trust_dialog_exits_with_0(start_with: StartWith) -> None:
    agent = start_with(TRUST_DIALOG="1")
    agent.terminal.wait_for("❯ No, exit".encode())
    agent.type("\x1b")
    assert agent.wait_for_exit() == 0


def test_trusting_runs_the_prompt_and_is_remembered(start_with: StartWith, home: Path, project: Path) -> None:
    trust_store(home)
    agent = start_with("hello")
    agent.terminal.wait_for("❯ No, exit".encode())
    agent.type("\x1b[B")
    agent.terminal.wait_for("❯ Yes, I trust this folder".encode())
    agent.type("\r")
    agent.wait_for_hook("Stop")
    stored = json.loads((home / ".claude.json").read_text())
    assert stored["projects"][str(project)]["hasTrustDialogAccepted"] is True
    assert stored["theme"] == "dark"


@pytest.mark.parametrize("above", [False, True])
def test_trusted_folder_is_not_asked_about(
    start_with: StartWith, home: Path, project: Path, above: bool
) -> None:
    trust_store(home, project.parent if above else project)
    agent = start_with()
    agent.ready()
    assert b"No, exit" not in agent.terminal.output


def test_without_a_trust_store_no_one_is_asked_unless_wanted(start_with: StartWith) -> None:
    start_with().ready()
    asking = start_with(TRUST_FROM_CLAUDE_JSON="1")
    asking.terminal.wait_for("❯ No, exit".encode())


def test_trust_dialog_can_be_forced_off(start_with: StartWith, home: Path) -> None:
    trust_store(home)
    start_with(TRUST_DIALOG="0").ready()


@pytest.mark.parametrize(
    ("wording", "row"), [("old", "❯ 1. Yes, I trust this folder"), ("alternate", "❯ 1. Yes, continue")]
)
def test_other_wordings_are_accepted_by_enter(start_with: StartWith, wording: str, row: str) -> None:
    agent = start_with(TRUST_DIALOG="1", TRUST_WORDING=wording)
    agent.terminal.wait_for(row.encode())
    agent.type("\r")
    agent.ready()


def test_unresolvable_wording_has_neither_yes_nor_no(start_with: StartWith) -> None:
    agent = start_with(TRUST_DIALOG="1", TRUST_WORDING="unresolvable")
    agent.terminal.wait_for(b"permission?")
    assert not any(word in agent.screen() for word in ("Yes", "No,", "Enter to confirm"))


# --- start


def test_silent_agent_prints_nothing_but_works(start_with: StartWith) -> None:
    agent = start_with("hello", SILENT="1")
    agent.wait_for_hook("Stop")
    assert agent.terminal.output == b""


def test_unknown_probe_comes_before_the_device_query(start_with: StartWith) -> None:
    output = start_with(UNKNOWN_PROBE="1").terminal.wait_for(b"\x1b[c")
    assert 0 < output.index(b"\x1b[>7777z") < output.index(b"\x1b[c")


def test_arguments_are_recorded_but_for_version(home: Path, tmp_path: Path, start_with: StartWith) -> None:
    record = tmp_path / "args"
    env = {"HOME": str(home), "MOCK_RECORD_ARGS": str(record)}
    subprocess.run([*SCRIPTED, "--version"], env=env, capture_output=True, check=True)
    assert not record.exists()
    agent = start_with("--model", "sonnet", "a prompt", RECORD_ARGS=str(record))
    agent.wait_for_hook("Stop")
    assert record.read_bytes().split(b"\0")[-4:] == [b"--model", b"sonnet", b"a prompt", b""]


def test_stop_can_come_before_any_prompt(start_with: StartWith) -> None:
    agent = start_with(STOP_BEFORE_INJECT="1")
    assert agent.wait_for_hook("Stop")["last_assistant_message"] == ""
    assert agent.count("UserPromptSubmit") == 0


# --- turns


def test_response_replaces_every_answer(start_with: StartWith) -> None:
    agent = start_with(RESPONSE="made up")
    agent.ready()
    assert agent.turn("hello")["last_assistant_message"] == "made up"


def test_turns_make_several_answers_to_one_prompt(start_with: StartWith) -> None:
    agent = start_with(TURNS="3")
    agent.ready()
    agent.turn("hello")
    assert len({line["message"]["id"] for line in answers(agent)}) == 3
    assert agent.count("Stop") == 1


def test_exit_before_stop_leaves_no_stop(start_with: StartWith) -> None:
    agent = start_with("hello", EXIT_BEFORE_STOP="1")
    assert agent.wait_for_exit() == 1
    assert "Stop" not in agent.events
    assert "SessionEnd" not in agent.events


def test_stop_is_delayed(start_with: StartWith) -> None:
    agent = start_with(DELAY_STOP="4000")
    agent.ready()
    agent.paste("hello")
    agent.until(lambda: answers(agent), "the answer")
    assert agent.count("Stop") == 0
    agent.wait_for_hook("Stop")


def test_extra_stops_follow(start_with: StartWith) -> None:
    agent = start_with(EXTRA_STOPS="2")
    agent.ready()
    agent.turn("hello")
    assert agent.count("Stop") == 3


@pytest.mark.parametrize(
    ("knob", "key"),
    [
        ("OMIT_TRANSCRIPT_PATH", "transcript_path"),
        ("OMIT_LAST_MESSAGE", "last_assistant_message"),
        ("OMIT_SESSION_ID", "session_id"),
        ("OMIT_CWD", "cwd"),
    ],
)
def test_key_is_left_out_of_the_stop_payload_only(start_with: StartWith, knob: str, key: str) -> None:
    agent = start_with(**{knob: "1"})
    agent.ready()
    stop = agent.turn("hello")
    assert key not in stop
    assert len({"transcript_path", "last_assistant_message", "session_id", "cwd"} & set(stop)) == 3
    assert {"transcript_path", "session_id", "cwd"} <= set(agent.wait_for_hook("UserPromptSubmit"))


# --- the transcript


def test_last_answer_can_land_after_stop(start_with: StartWith) -> None:
    agent = start_with(DELAY_JSONL="5000")
    agent.ready()
    agent.turn("hello")
    assert answers(agent) == []
    agent.until(lambda: answers(agent), "the answer")


def test_transcript_can_stay_away(start_with: StartWith) -> None:
    agent = start_with(WRITE_DERIVED_JSONL="0")
    agent.ready()
    agent.turn("hello")
    assert agent.transcript() == []


def test_transcript_can_hold_what_no_one_knows(start_with: StartWith) -> None:
    agent = start_with(UNKNOWN_EVENT_TYPE="1", UNKNOWN_USAGE_FIELDS="1", IS_ERROR="1")
    agent.ready()
    agent.turn("hello")
    lines = agent.transcript()
    assert "remuda-mystery" in {line["type"] for line in lines}
    assert [line["is_error"] for line in lines if line["type"] == "result"] == [True]
    assert answers(agent)[0]["message"]["usage"]["mystery_tokens"] == 1
