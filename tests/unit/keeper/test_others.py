"""Whose a hook is, where an agent has started others with its hooks."""

from __future__ import annotations

from typing import Any

from remuda.keeper.others import Others


def begins(conversation: str, source: str = "startup") -> dict[str, Any]:
    return {"hook_event_name": "SessionStart", "session_id": conversation, "source": source}


def prompted(conversation: str) -> dict[str, Any]:
    return {"hook_event_name": "UserPromptSubmit", "session_id": conversation}


def test_agent_that_begins_beside_ours_is_ours_when_it_says_more() -> None:
    others = Others(lambda _: True)
    assert not others.begins(begins("ours"), 10)
    assert others.begins(begins("anew"), 11)
    assert others.begins(begins("reserve"), 12)
    assert others.completed(prompted("ours")) == prompted("ours")
    assert others.completed(prompted("anew")) == {**prompted("anew"), "claude_pid": 11}
    assert others.completed(prompted("anew")) == prompted("anew")
    assert others.begins(begins("late reserve"), 13)
    assert not others.begins(begins("behind a clear", "clear"), 11)
    assert not others.begins(begins("resumed", "resume"), 14)


def test_agent_that_follows_one_that_is_gone_is_ours() -> None:
    others = Others(lambda _: False)
    assert not others.begins(begins("ours"), 10)
    assert not others.begins(begins("next"), 11)


def test_hook_that_does_not_say_whose_it_is_is_ours() -> None:
    others = Others(lambda _: True)
    assert not others.begins(begins("ours"), None)
    assert not others.begins(begins("ours"), 0)
    assert not others.begins(begins("next"), 11)
    assert others.completed({}) == {}
