"""What a warm session is asked to be, as arguments; and which arguments no pool can honour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from remuda.agents.claude.flags import split_arguments
from remuda.agents.claude.warm import MAX_ARGUMENT_BYTES, arguments, refusals
from remuda.errors import InvalidOptions


@dataclass(frozen=True)
class Asked:
    model: str | None = None
    allowed_tools: Sequence[str] = ()
    disallowed_tools: Sequence[str] = ()
    permission_mode: str | None = None
    settings: str | None = None
    setting_sources: str | None = None
    mcp_config: Sequence[str] = ()
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    add_dirs: Sequence[str] = ()
    extra_args: Sequence[str] = ()


def test_arguments_nothing_asked_gives_none() -> None:
    assert arguments(Asked()) == []


def test_arguments_every_option_becomes_its_flag() -> None:
    asked = Asked(
        model="sonnet",
        allowed_tools=["Read", "Bash(git log *)"],
        disallowed_tools=["Write"],
        permission_mode="plan",
        settings='{"a": 1}',
        setting_sources="",
        mcp_config=["one.json", "two.json"],
        system_prompt="-be brief",
        append_system_prompt="and kind",
        add_dirs=["/a b"],
        extra_args=["--effort", "low"],
    )
    assert arguments(asked) == [
        "--model=sonnet",
        "--permission-mode=plan",
        '--settings={"a": 1}',
        "--setting-sources=",
        "--system-prompt=-be brief",
        "--append-system-prompt=and kind",
        "--allowedTools=Read",
        "--allowedTools=Bash(git log *)",
        "--disallowedTools=Write",
        "--mcp-config=one.json",
        "--mcp-config=two.json",
        "--add-dir=/a b",
        "--effort",
        "low",
    ]


def test_arguments_no_value_can_be_taken_for_a_flag_or_a_prompt() -> None:
    asked = Asked(model="--resume", add_dirs=["--print", "x"], append_system_prompt="a b", settings="")
    assert all(flag is not None for flag, _ in split_arguments(arguments(asked)))


@pytest.mark.parametrize("value", ["a\0b", "x" * MAX_ARGUMENT_BYTES])
def test_arguments_a_value_that_no_argument_can_have_is_refused(value: str) -> None:
    with pytest.raises(InvalidOptions):
        arguments(Asked(append_system_prompt=value))


@pytest.mark.parametrize(
    "extra",
    [
        ["--effort", "low"],
        ["--name=x"],
        ["--debug", "api"],
        ["--dangerously-skip-permissions"],
        ["--allowedTools", "Read", "Write"],
        ["--some-flag-of-tomorrow=1"],
    ],
)
def test_refusals_what_can_be_honoured_is_not_refused(extra: list[str]) -> None:
    assert refusals(Asked(extra_args=extra, allowed_tools=["Bash"])) == []


@pytest.mark.parametrize(
    "extra",
    [
        ["--resume", "x"],
        ["-r"],
        ["--continue"],
        ["-c"],
        ["-cp"],
        ["--session-id=1"],
        ["-p"],
        ["--print"],
        ["--output-format", "json"],
        ["--input-format=stream-json"],
        ["--background"],
        ["--bg"],
        ["--worktree"],
        ["-w"],
        ["--max-turns", "3"],
        ["--help"],
        ["a prompt"],
        ["--", "a prompt"],
        ["--"],
        ["--effort", "low", "a prompt"],
    ],
)
def test_refusals_what_a_pool_cannot_honour_is_found(extra: list[str]) -> None:
    assert refusals(Asked(extra_args=extra))


def test_refusals_a_flag_that_the_options_give_too_is_found() -> None:
    assert refusals(Asked(model="opus", extra_args=["--model", "sonnet"]))
    assert refusals(Asked(settings="{}", extra_args=["--settings={}"]))
    assert not refusals(Asked(extra_args=["--model", "sonnet"]))


def test_refusals_what_only_print_mode_has_is_found_on_the_terminal() -> None:
    assert refusals(Asked(extra_args=["--bare"]), terminal=True)
    assert not refusals(Asked(extra_args=["--bare"]))
