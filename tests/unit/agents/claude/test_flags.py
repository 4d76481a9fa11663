"""Telling Claude Code's flags and their values from a prompt."""

from __future__ import annotations

import pytest

from remuda.agents.claude.flags import split_arguments, without_flags, without_prompt


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], []),
        (["fix it"], [(None, ["fix it"])]),
        (["--model", "sonnet", "fix it"], [("--model", ["sonnet"]), (None, ["fix it"])]),
        (["--model=sonnet", "fix it"], [("--model=sonnet", []), (None, ["fix it"])]),
        (["--model", "--odd"], [("--model", ["--odd"])]),
        (["--verbose", "fix it"], [("--verbose", []), (None, ["fix it"])]),
        (["--tools", "Bash", "Read", "--model", "x"], [("--tools", ["Bash", "Read"]), ("--model", ["x"])]),
        (["--resume", "abc", "go"], [("--resume", ["abc"]), (None, ["go"])]),
        (["--resume", "--model", "x"], [("--resume", []), ("--model", ["x"])]),
        (["-r", "abc"], [("-r", ["abc"])]),
        (["-"], [(None, ["-"])]),
        (
            ["--add-dir", "a", "b", "--", "--not-a-flag"],
            [("--add-dir", ["a", "b"]), (None, ["--not-a-flag"])],
        ),
        (["--model"], [("--model", [])]),
    ],
)
def test_split_gives_each_flag_its_values(
    arguments: list[str], wanted: list[tuple[str | None, list[str]]]
) -> None:
    assert list(split_arguments(arguments)) == wanted


def test_without_prompt_keeps_flags_and_values_alone() -> None:
    given = ["--model", "sonnet", "fix", "it", "--allowedTools", "Bash(ls:*)", "Read", "-d", "--", "-x"]
    assert without_prompt(given) == ["--model", "sonnet", "--allowedTools", "Bash(ls:*)", "Read", "-d"]


def test_without_flags_takes_the_flag_with_its_value_in_every_form() -> None:
    given = ["--resume", "abc", "-c", "--session-id=9", "--model", "opus", "hello"]
    assert without_flags(given, ["--resume", "-c", "--session-id"]) == ["--model", "opus", "hello"]


def test_without_flags_keeps_a_prompt_that_looks_like_a_flag_a_prompt() -> None:
    assert without_flags(["-c", "--", "--help", "-"], ["-c"]) == ["--", "--help", "-"]
