"""The answer as it appears on the terminal, piece by piece."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remuda.agents.claude.shown import Shown


def piece(delta: object, index: object = 0, *, final: bool = False, message: str = "m1") -> dict[str, Any]:
    fields = {"message_id": message, "index": index, "final": final, "delta": delta}
    return {"hook_event_name": "MessageDisplay", **fields}


@given(st.lists(st.text(), min_size=1), st.randoms())
def test_a_text_is_whole_when_every_piece_has_come_in_whatever_order(texts: list[str], random: Any) -> None:
    pieces = [piece(text, n, final=n == len(texts) - 1) for n, text in enumerate(texts)]
    random.shuffle(pieces)
    shown = Shown()
    for one in pieces:
        assert shown.whole is None
        assert shown.take(one) == one["delta"]
    assert shown.whole == "".join(texts)


def test_the_next_message_begins_anew() -> None:
    shown = Shown()
    shown.take(piece("using tool", final=True))
    shown.take(piece("the ", message="m2"))
    assert shown.whole is None
    shown.take(piece("answer", 1, final=True, message="m2"))
    assert shown.whole == "the answer"


def test_what_is_no_piece_changes_nothing() -> None:
    shown = Shown()
    shown.take(piece("x", final=True))
    for other in ({"hook_event_name": "Stop", "delta": "y"}, piece(None), {}):
        assert shown.take(other) == ""
    assert shown.whole == "x"
    assert Shown().whole is None
