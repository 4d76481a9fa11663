"""What Claude Code's screen tells: landmarks as 2.1.325 draws them."""

from __future__ import annotations

import pytest

from remuda.agents.claude.screen import has_composer, is_suspended, open_dialog, spinner_tokens

RULE = "─" * 40

PERMISSION = f"""\
{RULE}
 Bash command
 touch zz1
 Do you want to proceed?
 ❯ 1. Yes
   2. Yes, and always allow access to /srv/demo from this project
   4. No

 Esc to cancel · Tab to amend""".splitlines()

TRUST = """\
 Quick safety check: Is this a project you created or one you trust?
 ❯ 1. Yes, I trust this folder
   2. No, exit

 Enter to confirm · Esc to cancel""".splitlines()

TRUST_SECOND_ROW = """\
 Is this a project you created or one you trust?
   1. Yes, I trust this folder
 ❯ 2. No, exit

 Enter to confirm · Esc to cancel""".splitlines()

AUTO_MODE = """\
 Auto mode can't check actions in this session
 ❯ Yes, stay
   No
 Enter to stay in auto mode · shift+Tab to switch""".splitlines()

COMPOSER = f"""\
● REPLY#8 to: lat 3

✻ Cogitated for 0s · done 6:17 AM
{RULE}
❯
{RULE}
  ⏸ manual mode on · ? for shortcuts""".splitlines()

DRAFT = [RULE, "❯ 1. first do this, then Esc to cancel", RULE]
PROMPT_ABOVE = ["❯ lat 3", "", "● REPLY#8 to: lat 3"]


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (PERMISSION, "dialog"),
        (TRUST, "trust dialog"),
        (TRUST_SECOND_ROW, "trust dialog"),
        (AUTO_MODE, "dialog"),
        (COMPOSER, None),
        (PROMPT_ABOVE, None),
        (["● I would press Esc to cancel, or Enter to confirm"], None),
        ([" ❯ 1. Yes", "no footer"], None),
        ([], None),
    ],
    ids=[
        "permission",
        "trust",
        "trust-second",
        "auto-mode",
        "composer",
        "prompt",
        "talk",
        "no-footer",
        "blank",
    ],
)
def test_open_dialog_is_a_chosen_row_with_a_footer(lines: list[str], wanted: str | None) -> None:
    assert open_dialog(lines) == wanted


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("✻ Thinking… (3s · ↓ 36 tokens)", 36),
        ("· Sautéing… (12s · ↓ 1.2k tokens · esc to interrupt)", 1200),
        ("✶ Brewing… (1m 2s · ↓ 10k tokens)", 10000),
        ("✻ Brewed for 0s · done 6:17 AM", None),
        ("✻ Thinking… (3s)", None),
        ("● it said ↓ 36 tokens", None),
        ("● it said… (that ↓ 1.2.3 tokens came)", None),
        ("● it said… (that ↓ . tokens came)", None),
        (f"● it said… (that ↓ {'9' * 400} tokens came)", None),
        ("", None),
    ],
)
def test_spinner_tokens_are_read_from_its_line_alone(line: str, wanted: int | None) -> None:
    assert spinner_tokens(["● text", line, *COMPOSER[3:]]) == wanted


def test_has_composer_wants_the_mark_right_below_a_rule() -> None:
    assert has_composer(COMPOSER)
    assert has_composer(DRAFT)
    assert not has_composer(["● done", *PROMPT_ABOVE])
    assert not has_composer(PERMISSION)
    assert not has_composer([])


SUSPENDED = "Claude Code has been suspended. Run `fg` to bring Claude Code back."
NOTE = "Note: ctrl + z now suspends Claude Code, ctrl + _ undoes input."


@pytest.mark.parametrize(
    "lines",
    [
        ["● an answer", "", SUSPENDED, NOTE, "", ""],
        [SUSPENDED, NOTE, "typed since"],
        ["Claude Code has been", "suspended. Run `fg`", "to bring Claude Code", "back."],
    ],
)
def test_suspended_is_what_it_says_of_itself(lines: list[str]) -> None:
    assert is_suspended(lines)


@pytest.mark.parametrize(
    "lines",
    [
        ["● an answer", "", "", ""],
        [SUSPENDED, "", "─" * 20, "❯ ", "─" * 20],  # it is back, or someone quotes it
        [SUSPENDED, *["● an answer"] * 20],
    ],
)
def test_not_suspended_is_all_else(lines: list[str]) -> None:
    assert not is_suspended(lines)
