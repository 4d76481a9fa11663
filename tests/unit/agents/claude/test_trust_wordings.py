"""The question for trust in words that no version has used yet, and what only looks like it."""

from __future__ import annotations

import pytest

from remuda.agents.claude.screen import open_dialog, read_trust_choice
from remuda.agents.prompting import Choice

RULE = "─" * 40
# The question, the row that agrees, the row that leaves.
WORDINGS = [
    ("Do you trust the files in this folder?", "Yes, I trust this folder", "No, exit"),
    ("Quick safety check: Is this a project you created or one you trust?", "Yes, I trust it", "No, exit"),
    ("Do you want to continue and proceed in this folder?", "Yes, continue", "No, exit"),
    ("Is this folder safe to work in? Trust it to continue.", "Yes, proceed", "No, quit"),
    ("Allow Claude to work in this folder?", "Yes, allow", "No, exit"),
    ("Claude needs your permission to use this folder.", "Yes, continue", "No, leave"),
    ("This workspace is not trusted yet. Continue?", "Yes, trust this workspace", "No, exit"),
    (
        "Do you trust the authors of the files in this directory?",
        "Yes, I trust the authors",
        "No, don't trust",
    ),
    ("Do you trust this folder?", "Yes", "No, exit"),
    ("Before you proceed: is this repository one you trust?", "Yes", "No, quit"),
    ("Allow access to this folder and continue?", "Yes, allow access", "No, exit now"),
    ("Folder permission is needed to proceed.", "Yes, proceed", "No, exit"),
    ("New folder. Trust its files and hooks?", "Yes, trust and continue", "No, I want to leave"),
    ("Claude may read, edit and run files in this project. Proceed?", "Yes, continue", "No, exit"),
    ("Please confirm that you trust this directory", "Yes, I trust it", "No, do not trust it"),
    ("Would you like to allow work in this workspace, and continue?", "Yes, continue", "No, exit"),
    ("Is the folder below one that you trust?", "Yes, it is one that I trust", "No, exit"),
    ("To continue, allow this folder.", "Yes, allow this folder", "No, quit"),
    ("TRUST THIS FOLDER?", "YES, TRUST", "NO, EXIT"),
    ("Security guide: only continue in a project you trust.", "Yes, continue here", "No, exit"),
]
STYLES = [
    ("{mark} {row}", "❯", " "),
    (" {mark} {number}. {row}", "❯", " "),
    ("{mark} {number}) {row}", ">", " "),
    ("│ {mark} [{number}] {row}      │", "❯", " "),
]


def dialog(question: str, rows: list[str], marked: int, style: int = 0) -> list[str]:
    form, on, off = STYLES[style]
    drawn = [
        form.format(mark=on if number == marked else off, number=number + 1, row=row)
        for number, row in enumerate(rows)
    ]
    return [RULE, " Accessing workspace:", "", f" {question}", "", *drawn, "", " Enter to confirm"]


@pytest.mark.parametrize("number", range(len(WORDINGS)))
@pytest.mark.parametrize("marked", [0, 1])
@pytest.mark.parametrize("yes_first", [True, False])
def test_trust_is_read_from_any_wording(number: int, marked: int, yes_first: bool) -> None:
    question, yes, no = WORDINGS[number]
    rows = [yes, no] if yes_first else [no, yes]
    lines = dialog(question, rows, marked, number % len(STYLES))
    assert read_trust_choice(lines) == Choice(marked, 0 if yes_first else 1)
    assert open_dialog(lines) == "trust dialog"


def test_the_name_of_the_folder_says_nothing() -> None:
    lines = dialog("Do you trust this folder?", ["Yes, I trust it", "No, exit"], 1)
    assert read_trust_choice([lines[0], " /srv/bypass/api key", *lines[1:]]) == Choice(1, 0)


NONE = {
    "a logo": ["  ▐▛███▜▌   Claude Code", " ▝▜█████▛▘  in this folder"],
    "progress": ["Indexing the folder… 42 %", "████████░░░░"],
    "blank": ["", "", ""],
    "talk of it": ["Do you trust this folder? I would say yes, and continue."],
    "a list": [" 1. Yes, we trust the folder", " 2. No, we exit"],
    "allow me to trust you": ["allow me to trust you", "❯ hello"],
    "a spinner": ["✻ Trusting the process… (3s · ↓ 36 tokens)"],
    "a composer": [RULE, "❯ Yes, I trust this folder", RULE],
    "a shell": ["$ trust this folder? yes", "no such command"],
    "a rule": [RULE],
}


@pytest.mark.parametrize("lines", NONE.values(), ids=NONE)
def test_what_is_no_dialog_asks_for_no_trust(lines: list[str]) -> None:
    assert read_trust_choice(lines) is None


OTHERS = {
    "a tool": dialog("Bash command: rm -r folder. Do you want to proceed?", ["Yes, proceed", "No, exit"], 0),
    "a tool with amending": [
        *dialog("Edit files in this folder. Do you want to proceed?", ["Yes, proceed", "No, exit"], 0),
        " Esc to cancel · Tab to amend",
    ],
    "no way out": dialog("Allow edits in this folder and continue?", ["Yes, allow", "No"], 0),
    "three rows": dialog(
        "Do you want to proceed in this folder?", ["Yes", "Yes, and trust this folder always", "No, exit"], 0
    ),
    "bypassing": dialog(
        "Bypass Permissions mode in this folder: by proceeding you accept.", ["No, exit", "Yes, I accept"], 1
    ),
    "bypassing, with another word": dialog(
        "Bypass Permissions mode: trust this folder and proceed?", ["No, exit", "Yes, continue"], 0
    ),
    "a key": dialog("Use the API key found in this project? Trust it?", ["Yes, continue", "No, exit"], 0),
    "imports": dialog("Allow imports of files outside this folder?", ["Yes, allow", "No, exit"], 0),
    "a plan": dialog("Exit plan mode?", ["Yes, and proceed", "No"], 0),
    "another yes": dialog("Do you trust this folder?", ["Yes, and send my data", "No, exit"], 0),
    "no mark": dialog("Do you trust this folder?", ["Yes, I trust it", "No, exit"], 7),
    "rows far apart": ["this folder: trust it?", "❯ Yes, I trust it", "", "", "", "  No, exit"],
    "nothing about a folder": dialog(
        "Do you want to continue, with permission?", ["Yes, continue", "No, exit"], 0
    )[3:],
}


@pytest.mark.parametrize("lines", OTHERS.values(), ids=OTHERS)
def test_a_question_about_something_else_is_never_taken_for_it(lines: list[str]) -> None:
    assert read_trust_choice(lines) is None
