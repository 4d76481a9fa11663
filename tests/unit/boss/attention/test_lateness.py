"""Hooks that come late, and what is reported twice: the queue has each wait once, under one number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.agents.state import Source
from remuda.boss.attention.model import Activity, Event, Item, Reason
from remuda.boss.attention.session_index import SessionIndex
from remuda.boss.service import BossService
from support.boss import event, fed, only, with_service

NOW = 1e9
BASH: dict[str, Any] = {"tool": "Bash", "input": {"command": "touch a"}}
PROMPT = event("prompted", 10, prompt="go")
STOP = event("stopped", 20, message="done")


def record(kind: str, at: float, **facts: Any) -> Event:
    return event(kind, at, Source.TRANSCRIPT, **facts)


def state(index: SessionIndex) -> Activity:
    return index.entries["s"].session.state


def test_death_a_moment_after_a_stop_is_a_wait_of_its_own() -> None:
    index = fed(PROMPT, STOP)
    stopped = only(index)
    changes = index.take(event("gone", 20.5, Source.PROCESS), NOW)
    assert (only(index).reason, only(index).since) == (Reason.DEAD, 20.5)
    assert changes.items[stopped.id].resolution == "moved_on"


def test_what_is_reported_a_moment_later_of_the_same_wait_is_the_same_item() -> None:
    idle = event("stopped", 20.05, Source.REGISTRY)
    index = fed(PROMPT, idle)
    number = only(index).id
    for at in (20.1, 20):
        index.take(event("failed", at, message="400"), NOW)
        assert (only(index).reason, only(index).id) == (Reason.API_ERROR, number)


# ── hooks that are run late, and repeat what the transcript told ──


def test_prompt_reported_again_after_the_end_of_its_turn_wakes_no_one() -> None:
    turn = [record("prompted", 10, prompt="go"), record("stopped", 10.1, message="done")]
    index = fed(*turn, event("prompted", 10.2, prompt="go"))
    before = only(index)
    index.take(event("stopped", 10.3, message="done"), NOW)
    assert (only(index), before.since) == (before, 10.1)


def test_prompt_with_the_same_words_as_the_one_before_is_a_prompt() -> None:
    first = [record("prompted", 10, prompt="go on"), event("prompted", 10.1, prompt="go on")]
    index = fed(*first, record("stopped", 12, message="done"), event("prompted", 15, prompt="go on"))
    assert state(index) is Activity.WORKING


def test_prompt_reported_after_the_dialog_that_it_led_to_leaves_it_open() -> None:
    asked = event("asked", 10.3, prompt_id="one", **BASH)
    index = fed(asked, event("prompted", 10.4, prompt="go", prompt_id="one"))
    assert only(index).reason is Reason.PERMISSION
    index.take(event("prompted", 10.5, prompt="something else", prompt_id="two"), NOW)
    assert index.queue() == []


def test_prompt_reported_after_a_dialog_of_unknown_kind_leaves_it_open() -> None:
    index = fed(
        event("asked", 10.3, Source.REGISTRY, reason="permission"), event("prompted", 10.4, prompt="go")
    )
    assert only(index).reason is Reason.PERMISSION


def test_prompt_after_a_dialog_from_emitters_that_report_in_order_answers_it() -> None:
    assert fed(event("asked", 10.3, **BASH), event("prompted", 10.4, prompt="go")).queue() == []


@pytest.mark.parametrize("kind", ["stopped", "failed"])
def test_end_of_a_turn_reported_again_in_the_next_one_is_past(kind: str) -> None:
    index = fed(PROMPT, record(kind, 12, message="m"), event("prompted", 13), event(kind, 13.2, message="m"))
    assert state(index) is Activity.WORKING
    index.take(event(kind, 15, message="m"), NOW)
    assert only(index).since == 15


@pytest.mark.parametrize("kind", ["stopped", "failed"])
def test_end_of_a_turn_reported_again_much_later_keeps_its_date(kind: str) -> None:
    index = fed(PROMPT, record(kind, 20, message="m"))
    before = only(index)
    index.take(event(kind, 26, message="m"), NOW)
    assert (only(index).id, only(index).since) == (before.id, 20)


def test_late_stop_with_work_in_the_background_is_no_stop_any_more() -> None:
    late = event("stopped", 26, message="m", background=[{"id": "a"}])
    assert state(fed(PROMPT, record("stopped", 20, message="m"), late)) is Activity.BACKGROUND


def test_end_of_a_call_reported_again_after_the_stop_wakes_no_one() -> None:
    ran = {**BASH, "tool_use_id": "t1"}
    turn = [record("tool_began", 12, **ran), record("tool_ran", 13, tool_use_id="t1")]
    index = fed(PROMPT, *turn, record("stopped", 14, message="m"), event("tool_ran", 16, **ran))
    assert only(index).since == 14


# ── dialogs ──


def test_dialog_that_was_answered_before_the_registry_reported_it_is_over() -> None:
    index = fed(PROMPT, event("asked", 15, **BASH))
    ask = only(index).detail["ask"]
    index.take(event("ask_ended", 15.03, Source.PROCESS, ask=ask), NOW)
    index.take(event("asked", 15.04, Source.REGISTRY, reason="permission"), NOW)
    assert index.queue() == []
    index.take(event("asked", 18, Source.REGISTRY, reason="permission"), NOW)
    assert only(index).since == 18


def test_dialog_whose_hook_is_late_is_one_item_of_the_first_date() -> None:
    index = fed(PROMPT, event("asked", 15, Source.REGISTRY, reason="permission"), event("asked", 19, **BASH))
    assert (only(index).since, only(index).detail["tool"]) == (15, "Bash")
    assert "more" not in only(index).detail


def test_screen_that_shows_rest_before_the_dialog_is_drawn_is_no_stop() -> None:
    began = event("tool_began", 14, **BASH, tool_use_id="t1")
    index = fed(PROMPT, began, event("asked", 15, **BASH), event("stopped", 15.1, Source.SCREEN))
    ask = only(index).detail["ask"]
    index.take(event("ask_ended", 20, Source.PROCESS, ask=ask), NOW)
    assert (index.queue(), state(index)) == ([], Activity.WORKING)


def test_dialog_that_a_source_without_words_reported_first_gets_the_words_of_the_hook() -> None:
    """The transcript of copilot shows a question before the hook is run that has the question."""
    shown = event("asked", 15, Source.TRANSCRIPT, reason="question", waiting_for="tool.execution_start")
    index = fed(PROMPT, shown)
    first = only(index)
    index.take(event("asked", 15.5, Source.TITLE, reason="permission", message="of another dialog"), NOW)
    assert only(index) == first
    index.take(event("asked", 15.6, Source.TITLE, reason="question", message="Which color?"), NOW)
    index.take(event("asked", 15.7, Source.TITLE, reason="question", message="Information requested"), NOW)
    item = only(index)
    assert (item.id, item.since, item.message) == (first.id, 15, "Which color?")
    assert (first.message, item.detail) == ("", first.detail)


@pytest.mark.parametrize(
    ("late", "how"),
    [("in order", "prompted"), ("behind the dialog", "moved_on"), ("behind the answer", "answered")],
)
def test_question_in_a_turn_whose_prompt_is_reported_late_stays_a_question_in_the_history(
    tmp_path: Path, late: str, how: str
) -> None:
    stop, prompt = event("stopped", 20, message="done"), event("prompted", 20.9, prompt="ask me")
    asked = event("asked", 21, tool="AskUserQuestion", input={"questions": []}, reason="question")

    async def scene(service: BossService) -> list[tuple[str, float, str | None]]:
        await service.take(PROMPT, stop, *([prompt] if late == "in order" else []))
        await service.take(asked, *([prompt] if late == "behind the dialog" else []))
        (question,) = service.queue()
        assert (question.reason, question.since) == (Reason.QUESTION, 21)
        await service.answer(question.detail["ask"], {"behavior": "allow"}, "a test")
        await service.take(prompt)
        assert service.queue() == []
        return [(one.reason, one.since, one.resolution) for one in service.store.history(10)]

    found = with_service(tmp_path, scene)
    assert sorted(found) == [("question", 21, "answered"), ("stopped", 20, how)]


# ── what was resolved by mistake ──


IDLE = event("stopped", 14.5, Source.REGISTRY)


@pytest.mark.parametrize("at", [14.4, 14.5])
def test_item_that_was_resolved_by_mistake_is_open_again_under_its_number(tmp_path: Path, at: float) -> None:
    """Also for the next boss, whether its date has changed in the meantime or not."""

    async def before(service: BossService) -> Item:
        await service.take(event("working", 10, Source.REGISTRY), IDLE)
        (first,) = service.queue()
        await service.take(event("prompted", 14.6, prompt="go"))
        assert [item.id for item in service.store.history(10)] == [first.id]
        if at < IDLE.at:
            await service.take(record("stopped", at, message="done"))
        assert service.queue() == []
        await service.take(record("prompted", 14.3, prompt="go"))
        assert service.store.history(10) == []
        await service.take(event("stopped", 14.7, message="done"))
        (again,) = service.queue()
        assert (again.id, again.since, again.message) == (first.id, at, "done")
        return again

    async def after(service: BossService) -> list[Item]:
        return service.queue()

    assert [with_service(tmp_path, before)] == with_service(tmp_path, after)
