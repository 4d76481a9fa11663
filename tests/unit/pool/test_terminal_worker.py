"""What a keeper tells, as the pool has it: carry_over, last words, and text that was shown before its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.pool.keeper_session import exit_detail
from remuda.pool.terminal_turn import overlap
from remuda.pool.terminal_worker import carry_over, make_spec
from remuda.pool.worker import Profile

CLEAN: dict[str, Any] = {
    "typed": False,
    "composer": "empty",
    "stashed": False,
    "permission_mode": "default",
    "first_permission_mode": "default",
    "residue": [],
    "processes": [],
}


def test_clean_worker_has_no_carry_over() -> None:
    assert carry_over(CLEAN) == []
    assert carry_over({**CLEAN, "composer": None}) == []


@pytest.mark.parametrize(
    "found",
    [
        {"typed": True},
        {"composer": "draft"},
        {"stashed": True},
        {"permission_mode": "plan"},
        {"residue": ["a scheduled prompt"]},
    ],
)
def test_each_kind_of_carry_over_is_a_reason(found: dict[str, Any]) -> None:
    [reason] = carry_over({**CLEAN, **found})
    assert reason


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("", "exit:1"),
        (None, "exit:1"),
        (" oh no\n", "exit:1 -- oh no"),
        ("x" * 5000, "exit:1 -- " + "x" * 1900),
    ],
)
def test_exit_detail_is_short(said: str | None, words: str) -> None:
    assert exit_detail({"code": 1, "last_output": said}) == words
    assert len(words) < 2048


@pytest.mark.parametrize(
    ("shown", "text", "missing"),
    [
        ("", "hello", "hello"),
        ("hello", "hello", ""),
        ("hello\n", "hello", ""),
        ("running", "hello", "hello"),
        ("runninghello", "hello", ""),
        ("runningline 1\n", "line 1\nline 2", "\nline 2"),
        ("line 1\nline 2\n", "line 1\nline 2\nline 3", "\nline 3"),
        ("hello", "", ""),
        ("", "", ""),
        ("aaa", "aaaa", "a"),
        ("x" * 300_000, "y" * 300_000, "y" * 300_000),
        ("ab" * 200_000, "ab" * 200_001, "ab"),
    ],
)
def test_text_that_was_not_shown_yet_is_what_is_missing(shown: str, text: str, missing: str) -> None:
    assert text[overlap(shown, text) :] == missing


def profile(**more: Any) -> Profile:
    given: dict[str, Any] = {
        "agent": "claude",
        "binary": "/bin/claude",
        "cwd": "/",
        "env": {"HOME": "/nowhere"},
    }
    return Profile(**{**given, **more})


def test_spec_of_a_worker_ends_with_its_owner_and_leaves_nothing() -> None:
    spec = make_spec("pool-1", profile(), Path("/sessions"))
    assert (spec.ephemeral, spec.trust, spec.single_try, spec.tools, spec.once) == (
        True,
        True,
        True,
        True,
        False,
    )
    assert spec.env["REMUDA_SESSION"] == "pool-1"
    assert spec.argv == ["/bin/claude", "--disallowedTools=AskUserQuestion"]


@pytest.mark.parametrize("asks", [True, False])
def test_spec_asks_the_caller_or_denies_for_every_prompt(asks: bool) -> None:
    spec = make_spec("pool-1", profile(asks=asks, model="m"), Path("/sessions"))
    assert (spec.asks, spec.deny_permissions) == (asks, not asks)
    assert ("--disallowedTools=AskUserQuestion" in spec.argv) is not asks
    assert "--model=m" in spec.argv


def test_spec_without_permission_checks_skips_the_question() -> None:
    spec = make_spec("pool-1", profile(permission_mode="bypassPermissions"), Path("/sessions"))
    assert "skipDangerousModePermissionPrompt" in " ".join(spec.argv)
