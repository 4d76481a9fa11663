"""Records that stand before the one that they follow are read after it."""

from __future__ import annotations

from typing import Any

from remuda.agents.claude.order import InOrder, in_order

Record = dict[str, Any]


def record(kind: str, uuid: str, parent: str | None, **more: Any) -> Record:
    return {"type": kind, "uuid": uuid, "parentUuid": parent, **more}


PROMPT = record("user", "p", "before")
NOTE = record("attachment", "n", "p")
ANSWER = record("assistant", "a", "n")
END = record("system", "e", "a", subtype="turn_duration")
BARE = {"type": "mode"}


def names(records: list[Record]) -> list[str]:
    return [str(one.get("uuid", one["type"])) for one in records]


def ordered(*records: Record) -> list[str]:
    return names([dict(one) for one in in_order(records)])


def test_records_in_order_pass_at_once() -> None:
    order = InOrder()
    for one in (BARE, PROMPT, NOTE, ANSWER, END):
        assert order.take(one) == [one]
    assert not order.holds


def test_answer_before_its_prompt_is_read_after_it() -> None:
    assert ordered(NOTE, ANSWER, END, PROMPT) == ["p", "n", "a", "e"]
    assert ordered(ANSWER, BARE, PROMPT, NOTE, END) == ["mode", "p", "n", "a", "e"]


def test_answer_whose_prompt_never_comes_is_read_in_the_end() -> None:
    order = InOrder()
    assert [order.take(ANSWER), order.take(END), order.holds] == [[], [], True]
    assert (names(order.flush()), order.holds) == (["a", "e"], False)
    assert names(order.take(record("assistant", "b", "e"))) == ["b"]


def test_prompt_after_a_turn_that_was_not_seen_passes_at_once() -> None:
    assert ordered(record("system", "s", "unseen"), PROMPT, NOTE, ANSWER) == ["s", "p", "n", "a"]


def test_many_that_wait_are_not_kept_forever() -> None:
    many = [record("assistant", f"a{n}", f"unseen{n}") for n in range(200)]
    order = InOrder()
    passed = [one for each in many for one in order.take(each)]
    assert names([*passed, *order.flush()]) == names(many)


def test_record_with_a_parent_of_any_shape_passes() -> None:
    assert names(InOrder().take({"type": "assistant", "parentUuid": 7, "uuid": []})) == ["[]"]


def test_answer_waits_only_for_records_among_those_that_are_read() -> None:
    late = record("assistant", "late", "next")
    some = [
        PROMPT,
        ANSWER,
        late,
        record("user", "next", "e"),
    ]  # the note that the answer follows was left out
    order = InOrder(some)
    assert names([one for each in some for one in order.take(each)]) == ["p", "a", "next", "late"]
    assert InOrder([{"uuid": []}, {}]).take(late) == [late]
