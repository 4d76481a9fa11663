"""What the terminal of a session says, as reports."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.agents.acp.agent import AcpPrompts
from remuda.agents.acp.notes import read_note
from remuda.agents.events import (
    ConversationStarted,
    Failure,
    MessageRecorded,
    PermissionDecided,
    PromptRecorded,
    PromptSubmitted,
    TextShown,
    TurnFailed,
    TurnInterrupted,
    TurnRecorded,
    TurnStopped,
)
from remuda.agents.prompting import ComposerKind
from remuda.errors import InputError

_TURN = {"turn": "t1", "conversation": "c", "transcript": "/x", "cwd": "/w"}


@pytest.mark.parametrize(
    ("note", "events"),
    [
        ({"note": "ready", "how": "startup"}, (ConversationStarted("startup"),)),
        ({"note": "began", "text": "go"}, (PromptSubmitted("go", "t1"), PromptRecorded("go", "t1", "c"))),
        ({"note": "text", "block": 2, "index": 1, "text": "a"}, (TextShown("t1:2", 1, "a"),)),
        ({"note": "decided", "id": "k"}, (PermissionDecided("k"),)),
        ({"note": "ended", "how": "interrupted"}, (TurnInterrupted("t1"),)),
        (
            {"note": "ended", "how": "failed", "text": "w"},
            (TurnFailed(Failure.INVALID, "w", "t1"),),
        ),
        (
            {"note": "ended", "how": "answered", "text": "a", "usage": {"input_tokens": 1}},
            (
                MessageRecorded("t1", {"input_tokens": 1}, "a", final=True),
                TurnStopped("a", "t1", conversation="c"),
                TurnRecorded(),
            ),
        ),
    ],
)
def test_note_is_these_events(note: dict[str, Any], events: tuple[object, ...]) -> None:
    report = read_note({**_TURN, **note})
    assert report is not None
    assert report.events == events
    assert report.session_id == "c"


@pytest.mark.parametrize("note", ["sent", "said", "thought", "earlier", "stray", "else"])
def test_note_for_the_eyes_is_no_report(note: str) -> None:
    assert read_note({**_TURN, "note": note, "text": "x"}) is None


def test_note_of_the_start_says_whether_the_conversation_can_be_resumed() -> None:
    report = read_note({**_TURN, "note": "ready", "how": "startup", "resumable": "yes", "mode": "code"})
    assert report is not None
    assert (report.conversation["resumable"], report.permission_mode) == ("yes", "code")


@pytest.mark.parametrize(
    ("lines", "kind", "text"),
    [
        (["agent says", "❯ ", ""], ComposerKind.EMPTY, ""),
        (["agent says", "❯", ""], ComposerKind.EMPTY, ""),
        (["❯ not this", "❯ a draft"], ComposerKind.DRAFT, "a draft"),
        (["❯ a draft", "below it"], ComposerKind.ABSENT, ""),
        ([], ComposerKind.ABSENT, ""),
    ],
)
def test_composer_is_the_last_row(lines: list[str], kind: ComposerKind, text: str) -> None:
    found = AcpPrompts().composer(lines, lambda _row: b"")
    assert (found.kind, found.text) == (kind, text)


@pytest.mark.parametrize(("prompt", "command"), [(" ", False), ("/help me", False), ("hello", True)])
def test_prompt_that_cannot_be_sent_unchanged_is_refused(prompt: str, command: bool) -> None:
    with pytest.raises(InputError):
        AcpPrompts().check(prompt, command=command, literal=False)


@pytest.mark.parametrize(
    ("prompt", "command"), [("/help me", True), ("hello", False), ("/etc/hosts is", False)]
)
def test_prompt_is_taken(prompt: str, command: bool) -> None:
    AcpPrompts().check(prompt, command=command, literal=False)
