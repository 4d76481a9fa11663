"""Which prompts copilot takes safely, and what its screen shows (1.0.102)."""

from __future__ import annotations

import pytest

from remuda.agents.copilot.prompting import CopilotPaste, check_typed, holds, same
from remuda.agents.copilot.screen import is_working, open_dialog, read_composer, read_trust_choice
from remuda.agents.prompting import Choice, ComposerKind
from remuda.errors import InputError

RULE = "─" * 60


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ("!ls", "shell command"),
        (" \n\t!ls", "shell command"),
        ("\u200b!ls", "shell command"),
        ("\u202e !ls", "shell command"),
        ("/clear", "/clear"),
        ("  /nosuch word", "/nosuch"),
        ("/", "own command"),
        ("quit", "end the agent"),
        (" exit\n", "end the agent"),
        ("a\x1b[201~!ls\r", "U+001B"),
        ("a\x03", "U+0003"),
        ("\x9b201~", "U+009B"),
        ("", "empty"),
        (" \n ", "empty"),
        ("\ud800", "UTF-8"),
        ("x" * 10_001, "10001 bytes"),
        ("é" * 5_001, "10002 bytes"),
    ],
)
def test_check_unsafe_prompt_refused_with_its_reason(prompt: str, why: str) -> None:
    with pytest.raises(InputError, match=why.replace("+", r"\+")):
        check_typed(prompt)


@pytest.mark.parametrize(
    "prompt", ["hello", "say !ls", "/tmp/x is a path", "#5", "?", "@file", "back\\", "x" * 10_000, "quit it"]
)
def test_check_plain_prompt_taken_and_pasted_unchanged(prompt: str) -> None:
    check_typed(prompt)
    assert CopilotPaste().paste(prompt, command=False).data == f"\x1b[200~{prompt}\x1b[201~\r".encode()


def test_check_command_and_literal_mention_refused() -> None:
    with pytest.raises(InputError, match="own commands"):
        check_typed("/clear", command=True)
    with pytest.raises(InputError, match="--literal"):
        check_typed("see @x", literal=True)


def test_paste_one_paste_and_one_enter() -> None:
    carried = CopilotPaste().paste(" a\r\n\tb ", command=False)
    assert carried.data == b"\x1b[200~ a\n\tb \x1b[201~\r"
    assert same("a\n    b", carried.reported)


def test_same_and_holds() -> None:
    assert same("a    b", " a\tb\r\n")
    assert not same("a b", "a  b")
    assert holds("draft words", "words")
    assert holds("words draft", "words")
    assert not holds("words", "words")
    assert not holds("xx", "")


# ── the screen ──


def _screen(*composer: str, status: str = " ← open sidebar · / commands") -> list[str]:
    return [" ❯ an old prompt", "", " ● an answer", " ~/project", RULE, *composer, RULE, status]


@pytest.mark.parametrize(
    ("lines", "kind", "text"),
    [
        (_screen("❯"), ComposerKind.EMPTY, ""),
        (_screen("❯ half"), ComposerKind.DRAFT, "half"),
        (_screen("❯ one", "  two"), ComposerKind.DRAFT, "one\ntwo"),
        (_screen("❯", status=" ● Loading: 1 plugin     model"), ComposerKind.ABSENT, ""),
        (_screen("! ls"), ComposerKind.ABSENT, ""),
        ([" ❯ an old prompt"], ComposerKind.ABSENT, ""),
        ([], ComposerKind.ABSENT, ""),
    ],
)
def test_composer_read(lines: list[str], kind: ComposerKind, text: str) -> None:
    found = read_composer(lines)
    assert (found.kind, found.text, found.stash_taken) == (kind, text, False)


def test_composer_stashed_draft_seen() -> None:
    assert read_composer(_screen("❯", status=" ◉ Working      stashed · model")).stash_taken


@pytest.mark.parametrize(
    ("status", "works"),
    [
        (" ◎ Working · 6 B esc esc interrupt     model", True),
        (" ● Working esc esc edit prompt", True),
        (" ● Working · 48 B esc again to interrupt", True),
        (" ← open sidebar · Interactive · / commands", False),
        (" Interactive · Manual Approval · @ files", False),
        (" ● Loading: 1 plugin", None),
    ],
)
def test_working_by_the_status_line(status: str, works: bool | None) -> None:
    assert is_working(_screen("❯", status=status)) is works
    assert is_working([status]) is None


TRUST = [
    "╭────────────────────────────────────────╮",
    "│ Confirm folder trust                   │",
    "│ Do you trust the files in this folder? │",
    "│ ❯ 1. Yes                               │",
    "│   2. Yes, and remember this folder     │",
    "│   3. No (Esc)                          │",
    "│ ↑/↓ to navigate · enter to select      │",
    "╰────────────────────────────────────────╯",
]
PERMISSION = [
    "│ Do you want to run this command?       │",
    "│ ❯ 1. Yes                               │",
    "│ ↑/↓ to navigate · enter to select      │",
]


@pytest.mark.parametrize(
    ("lines", "dialog"),
    [
        (TRUST, "trust dialog"),
        (PERMISSION, "permission dialog"),
        (["│ Rewind turn 9 │", "│ ↑↓ Navigate · Enter Confirm · Esc Back │"], "rewind dialog"),
        (
            [" Copilot needs information.", " ❯ Red", " ↑/↓ select · enter accept · ctrl+d decline"],
            "question",
        ),
        (["│ something else │", "│ ↑/↓ to navigate · enter to select │"], "dialog"),
        ([*PERMISSION, *_screen("❯")], None),
        (_screen("❯"), None),
    ],
)
def test_dialog_named_where_no_composer_is(lines: list[str], dialog: str | None) -> None:
    assert open_dialog(lines) == dialog


def test_trust_choice_is_the_row_that_saves_nothing() -> None:
    assert read_trust_choice(TRUST) == Choice(1, 1)
    moved = [line.replace("❯ 1", "  1").replace("  2.", "❯ 2.") for line in TRUST]
    assert read_trust_choice(moved) == Choice(2, 1)
    assert read_trust_choice([*TRUST, *_screen("❯")]) is None
    assert read_trust_choice(PERMISSION) is None
