"""The composer and the trust dialog as Claude Code draws them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from remuda.agents.claude.screen import read_composer, read_trust_choice
from remuda.agents.prompting import Choice, Composer, ComposerKind

RULE = "─" * 40
FOOTER = "  ⏸ manual mode on · ? for shortcuts"
MARK = "\x1b[0m❯\x1b[0m\xa0"
EMPTY = Composer(ComposerKind.EMPTY)
ABSENT = Composer(ComposerKind.ABSENT)


def unstyled(row: str) -> str:
    text = row
    while (start := text.find("\x1b[")) >= 0:
        text = text[:start] + text[text.index("m", start) + 1 :]
    return text


def read(*rows: str) -> Composer:
    """The composer on a screen of these styled rows."""
    return read_composer([unstyled(row) for row in rows], lambda y: rows[y].encode())


def box(*rows: str, above: Sequence[str] = ("● REPLY#1 to: hello", "")) -> Composer:
    return read(*above, RULE, *rows, RULE, FOOTER)


def draft(text: str) -> Composer:
    return Composer(ComposerKind.DRAFT, text)


# ── empty ──


@pytest.mark.parametrize("row", ["❯", "❯ ", "❯\xa0", f"{MARK}\x1b[7m \x1b[27m"])
def test_composer_nothing_after_the_mark_is_empty(row: str) -> None:
    assert box(row) == EMPTY


@pytest.mark.parametrize(
    "row",
    [
        f'{MARK}\x1b[7mT\x1b[27m\x1b[2mry "fix the tests"\x1b[22m',
        f'{MARK}\x1b[7mT\x1b[0;2mry "fix the tests"\x1b[0m',
        f'{MARK}\x1b[0;2;7mT\x1b[0;2mry "fix the tests"\x1b[0m',
        f'{MARK}\x1b[2mTry "fix the tests"',
        f"{MARK}\x1b[7mT\x1b[27m\x1b[38;2;2;2;2;2mry it\x1b[m",
        f"{MARK}\x1b[7mT\x1b[27m\x1b[38;5;2;2mry it\x1b[m",
    ],
    ids=["off", "reset", "all-faint", "no-cursor", "colour-and-faint", "palette-and-faint"],
)
def test_composer_suggestion_drawn_faint_is_empty(row: str) -> None:
    assert box(row) == EMPTY


def test_composer_suggestion_of_two_rows_is_empty() -> None:
    assert box(f"{MARK}\x1b[7mT\x1b[27m\x1b[2mry this", "\x1b[2m  and that\x1b[22m") == EMPTY


# ── a draft ──


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (f"{MARK}half a thought\x1b[7m \x1b[27m", "half a thought"),
        (f"{MARK}y\x1b[7m \x1b[27m", "y"),
        (f"{MARK}\x1b[7my\x1b[27m", "y"),
        (f"{MARK}\x1b[38;2;2;22;2mcoloured\x1b[39m", "coloured"),
        (f"{MARK}\x1b[48;5;2mcoloured\x1b[49m", "coloured"),
        (f"{MARK}\x1b[38:2::2:2:2mcoloured\x1b[39m", "coloured"),
        (f"{MARK}\x1b[2mfaint\x1b[22m, then not", "faint, then not"),
        (f"{MARK}\x1b[1;2mfaint\x1b[0m, then not", "faint, then not"),
        (f"{MARK}ye\x1b[2ms, please", "yes, please"),
        (f"{MARK}日本", "日本"),
    ],
    ids=["text", "one", "under-cursor", "rgb", "palette", "colons", "22", "0", "completed", "wide"],
)
def test_composer_what_is_not_faint_is_a_draft(row: str, text: str) -> None:
    assert box(row) == draft(text)


def test_composer_draft_of_several_rows_is_read_whole() -> None:
    assert box("❯ first", "  second", "", "  fourth") == draft("first\n  second\n\n  fourth")


def test_composer_draft_that_looks_like_a_dialog_is_a_draft() -> None:
    assert box("❯ 1. Yes, then Esc to cancel") == draft("1. Yes, then Esc to cancel")


def test_composer_pasted_text_is_a_draft() -> None:
    assert box("❯ [Pasted text #1 +20 lines]") == draft("[Pasted text #1 +20 lines]")


# ── laid aside ──


@pytest.mark.parametrize("row", ["❯", "❯ another"])
def test_composer_mark_above_the_box_reports_a_stash(row: str) -> None:
    assert box(row, above=["● said", "", "      › stashed"]).stash_taken
    assert not box(row, above=["● said", "", ""]).stash_taken


def test_composer_stash_in_the_conversation_is_somebodys_word() -> None:
    assert not box("❯", above=["● it said › stashed", "", ""]).stash_taken


# ── no composer ──


@pytest.mark.parametrize(
    "rows",
    [
        [],
        ["● REPLY#1 to: hello"],
        ["❯ hello", "", "● REPLY#1 to: hello"],
        [RULE, "❯ the box is half drawn"],
        [RULE, RULE],
        [RULE, " Bash command", " ❯ 1. Yes", "   2. No", " Esc to cancel"],
    ],
    ids=["blank", "talk", "prompt", "half", "rules", "dialog"],
)
def test_composer_without_a_box_is_absent(rows: list[str]) -> None:
    assert read(*rows) == ABSENT


@pytest.mark.parametrize("row", ["! ls", "!", "!\xa0"])
def test_composer_shell_mode_is_absent(row: str) -> None:
    assert box(row) == ABSENT


@pytest.mark.parametrize(
    ("below", "wanted"),
    [("❯ mine", draft("mine")), ("! ls", ABSENT)],
    ids=["composer", "shell-mode"],
)
def test_composer_box_in_the_conversation_is_not_it(below: str, wanted: Composer) -> None:
    assert box(below, above=["● it drew", RULE, "❯ ", RULE, ""]) == wanted


def test_composer_with_a_ruled_panel_below_it_is_found() -> None:
    assert read(RULE, "❯ mine", RULE, FOOTER, RULE, "  2 tasks", RULE) == draft("mine")


# ── the agents view ──

FAINT_RULE = f"\x1b[0m\x1b[2m{RULE}\x1b[0m"
TASK = "❯ \x1b[7md\x1b[0m\x1b[38;2;153;153;153mescribe a task for a new session\x1b[0m"
AGENTS = [
    " ▐▛███▛█   Claude Code v2.1.325",
    "▝▜██████▀  New sessions: Opus 5.5 · medium effort · /srv/demo",
    " ▝▝   ▝▝   1 awaiting input · 0 working · 0 completed",
    "",
    "Needs input",
    "✻ current session  project                                     2s",
    "",
]


@pytest.mark.parametrize(
    "rows",
    [
        [*AGENTS, FAINT_RULE, TASK, FAINT_RULE, "  enter to return · space to reply · ? for shortcuts"],
        [*AGENTS, RULE, TASK, RULE, "  ? for shortcuts"],
        [*AGENTS, RULE, "❯ hello", RULE],
        ["1 awaiting input · 0 working · 0", "completed", RULE, "❯ abc", RULE, "  Too short"],
        ["Needs input", RULE, TASK, RULE, "", "  enter to create · esc×2 to clear"],
        ["Needs input", RULE, TASK, RULE, "  ctrl+x to remove all · ? for shortcuts"],
        ["Needs input", RULE, TASK, RULE, "  ctrl+f to find            ctrl+j for newline"],
        ["✻ hi there      REP…   3s", FAINT_RULE, "❯ abc\x1b[7m \x1b[0m", FAINT_RULE, "  Too short"],
        ["✻ hi there      REP…   3s", FAINT_RULE, TASK, FAINT_RULE, "  ? for shortcuts"],
    ],
    ids=["all", "counts", "typed", "wrapped", "create", "remove", "help", "drawn", "drawn-task"],
)
def test_composer_in_the_agents_view_is_absent(rows: list[str]) -> None:
    assert read(*rows) == ABSENT


@pytest.mark.parametrize(
    "rows",
    [
        ["● it says 1 awaiting input · 0 working · 0 completed", RULE, f"{MARK}mine", RULE, FOOTER],
        [*[""] * 8, "1 awaiting input · 0 working · 0 completed", RULE, f"{MARK}mine", RULE, FOOTER],
        [FAINT_RULE, f"{MARK}mine", FAINT_RULE, FOOTER],
        [f"\x1b[38;2;2;2;2m{RULE}\x1b[0m", "❯ mine", RULE, FOOTER],
        ["enter to return", RULE, f"{MARK}mine", RULE, FOOTER],
    ],
    ids=["quoted", "far-down", "faint", "blank", "above"],
)
def test_composer_with_one_mark_of_the_agents_view_is_still_the_composer(rows: list[str]) -> None:
    assert read(*rows) == draft("mine")


# ── the trust dialog ──

OLD_TRUST = """\
 Accessing workspace:

 /srv/demo

 Do you trust the files in this folder?

 ❯ 1. Yes, I trust this folder
   2. No, exit

 Enter to confirm · Esc to cancel"""

NEW_TRUST = f"""\
{RULE}
 Accessing workspace:

 Quick safety check: Is this a project you created or one you trust?

 ❯ No, exit
   Yes, I trust this folder

 Enter to confirm · Esc to cancel"""


@pytest.mark.parametrize(
    ("screen", "wanted"),
    [
        (OLD_TRUST, Choice(0, 0)),
        (NEW_TRUST, Choice(0, 1)),
        (NEW_TRUST.replace("❯ No", "  No").replace("   Yes", " ❯ Yes"), Choice(1, 1)),
        (OLD_TRUST.replace("❯ 1.", "  1.").replace("   2.", " ❯ 2."), Choice(1, 0)),
    ],
    ids=["2.1.197", "2.1.250", "2.1.250-moved", "2.1.197-moved"],
)
def test_trust_choice_is_reported_by_the_words_of_its_rows(screen: str, wanted: Choice) -> None:
    assert read_trust_choice(screen.splitlines()) == wanted


@pytest.mark.parametrize(
    "screen",
    [
        NEW_TRUST.replace("Yes, I trust", "Yes, I like"),
        NEW_TRUST.replace("❯", " "),
        NEW_TRUST.replace("   Yes", " ❯ Yes"),
        " Do you want to proceed?\n ❯ 1. Yes\n   2. No\n Esc to cancel",
        f"❯ No, exit\n  Yes, I trust this folder\n\n● REPLY#1\n{RULE}\n❯\n{RULE}\n{FOOTER}",
        "",
    ],
    ids=["no-yes", "no-mark", "two-marks", "permission", "somebodys-words", "blank"],
)
def test_trust_choice_anything_else_is_none(screen: str) -> None:
    assert read_trust_choice(screen.splitlines()) is None


@pytest.mark.parametrize("mode", ["VISUAL", "VISUAL LINE"])
def test_composer_in_which_vi_keys_select_is_none(mode: str) -> None:
    assert read(RULE, MARK, RULE, f"  -- {mode} -- ⏸ manual mode on") == ABSENT


def test_composer_in_which_vi_keys_insert_is_one() -> None:
    assert read(RULE, MARK, RULE, "  -- INSERT -- ⏸ manual mode on") == EMPTY
