"""Why a call has not ended: each cause has its own words."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.agents.claude.screen import ClaudeDialogs
from remuda.oneshot.keeper_probe import diagnose, is_silent, question_for_person, unanswerable, waited

DIALOGS = ClaudeDialogs()

RULE = "─" * 40
DIALOG = [
    RULE,
    " Bash command",
    " touch zz",
    " Do you want to proceed?",
    " ❯ 1. Yes",
    "   2. No",
    " Esc to cancel",
]
RETRY = ["✻ 500 fake error · Retrying in 2s · attempt 4/10"]
UNKNOWN = [" How shall it be opened?", " ❯ As it was", "   As it will be"]
COMPOSER = [RULE, "❯ a draft", RULE]
OWN_FILE = {"source": "registry", "state": "waiting_answer", "age": 2.0}


SILENT = {"printed": False}


def look(state: str, **more: Any) -> dict[str, Any]:
    return {"alive": True, "state": state, "detail": "PreToolUse Bash", "idle": 1.0, "uptime": 9.0, **more}


@pytest.mark.parametrize(
    ("document", "lines", "stage", "wanted"),
    [
        (None, [], "submitted", "the agent has exited"),
        (look("dead", alive=False), [], "submitted", "the agent has exited"),
        (
            look("thinking"),
            DIALOG,
            "submitted",
            "a dialog is open: Bash command / touch zz / Do you",
        ),
        (look("waiting_permission"), DIALOG, "submitted", "a dialog is open: Bash command"),
        (look("waiting_answer"), [], "submitted", "a dialog is open: waiting_answer"),
        (look("thinking"), RETRY, "submitted", "the agent is retrying the API, attempt 4 of 10"),
        (look("tool_use"), [], "submitted", "a tool is running: PreToolUse Bash"),
        (look("tool_use", votes=[OWN_FILE]), UNKNOWN, "submitted", "a dialog is open: How shall it"),
        (look("starting", **SILENT), [], "written", "the agent has printed nothing"),
        (look("starting"), UNKNOWN, "written", "the agent asks a question: How shall it be opened?"),
        (
            look("starting"),
            [],
            "written",
            "the agent has not accepted the prompt; the session is starting",
        ),
        (look("idle"), COMPOSER, "recorded", "the turn has ended, but no Stop hook reported it"),
        (look("streaming"), COMPOSER, "recorded", "the agent is streaming"),
    ],
)
def test_diagnose_names_the_cause(
    document: dict[str, Any] | None, lines: list[str], stage: str, wanted: str
) -> None:
    said = diagnose(document, lines, DIALOGS, stage)
    assert said.startswith(wanted)
    assert "\n" not in said


def test_the_agents_own_file_reports_that_it_waits_where_a_late_hook_reports_the_time_before() -> None:
    assert waited(look("waiting_permission", age=3.0)) == 3.0
    assert waited(look("tool_use", age=1.0, votes=[{"source": "hook", "state": "tool_use"}, OWN_FILE])) == 2.0
    assert waited(look("waiting_answer", age=1.0, votes=[OWN_FILE])) == 2.0
    assert waited(look("tool_use", votes=[{**OWN_FILE, "state": "thinking"}])) is None
    assert waited(look("tool_use", votes=[{**OWN_FILE, "source": "screen"}])) is None


def test_an_agent_is_silent_that_has_printed_nothing_since_it_began() -> None:
    assert is_silent(SILENT, ["", "  "])
    assert not is_silent({"printed": True}, [""]), "it has printed, and wiped its screen"
    assert not is_silent({}, [""]), "its keeper is older, and does not say"
    assert not is_silent(SILENT, ["at once"])
    assert not is_silent(None, [])


def test_a_question_is_a_marked_row_without_a_composer() -> None:
    assert DIALOGS.is_question(UNKNOWN)
    assert not DIALOGS.is_question(COMPOSER)
    assert not DIALOGS.is_question(["$ make", "done"])


def test_only_what_the_keeper_answers_itself_is_no_question_to_refuse() -> None:
    trust = [" Do you trust the files in this folder?", " ❯ No, exit", "   Yes, I trust this folder"]
    assert unanswerable(trust, DIALOGS, begun=False) is None
    assert unanswerable(DIALOG, DIALOGS, begun=True) == (
        "Bash command / touch zz / Do you want to proceed? / ❯ 1. Yes / 2. No / Esc to cancel"
    )
    assert unanswerable(UNKNOWN, DIALOGS, begun=False) is not None
    assert (
        unanswerable(["● Auto mode?", RULE, " ❯ Stay", "   Leave"], DIALOGS, begun=True) == "❯ Stay / Leave"
    )
    assert unanswerable(["starting"], DIALOGS, begun=False) is None


def test_what_a_human_is_asked_is_the_tool_or_the_dialog_and_never_trust() -> None:
    trust = [" Do you trust the files in this folder?", " ❯ No, exit", "   Yes, I trust this folder"]
    assert question_for_person(look("waiting_answer"), trust, DIALOGS) is None
    by_hook = {**look("waiting_permission"), "detail": "PermissionRequest Bash"}
    assert question_for_person(by_hook, DIALOG, DIALOGS) == "waiting for permission: Bash"
    by_screen = {**look("waiting_permission"), "detail": "dialog"}
    assert str(question_for_person(by_screen, DIALOG, DIALOGS)).startswith(
        "waiting for permission: Bash command / touch zz"
    )
    assert question_for_person(look("waiting_answer"), [], DIALOGS) == "waiting for an answer"


def test_the_list_of_conversations_is_no_composer_and_no_text_about_one() -> None:
    listed = [
        RULE,
        "  Resume session",
        "  ╭────╮",
        "  │ ⌕ nosuch    │",
        "  ╰────╯",
        '   No sessions match "nosuch".',
    ]
    assert DIALOGS.refusal(listed)
    assert not DIALOGS.refusal(["  Resume session", *COMPOSER])
    assert not DIALOGS.refusal(["  say ⌕ and Resume session", *COMPOSER])
