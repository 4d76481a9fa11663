"""The list of those who wait: what keys do to it, and that what is drawn fits."""

from __future__ import annotations

import json
import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cli.output import cells, rendered
from remuda.cli.picker import Picker, PickerRow
from remuda.cli.queue_keys import READ


def rows(*names: str) -> list[PickerRow]:
    return [PickerRow({"id": name}, f"who is {name}", f"what {name} says") for name in names]


def press(picker: Picker, *keys: str) -> list[str | None]:
    return [picker.press(key) for key in keys]


def marked(picker: Picker) -> str:
    assert picker.marked is not None
    return str(picker.marked["id"])


def test_press_moves_within_the_list() -> None:
    picker = Picker(rows("a", "b", "c"))
    for keys, name in [("j", "b"), ("jjj", "c"), ("k", "b"), ("g", "a"), ("k", "a"), ("G", "c")]:
        assert press(picker, *keys) == [None] * len(keys)
        assert marked(picker) == name
    press(picker, "\x1b[A", "\x1bOA")
    assert marked(picker) == "a"
    press(picker, "\x1b[B")
    assert marked(picker) == "b"


@pytest.mark.parametrize(
    ("key", "meant"),
    [("\r", "go"), ("l", "go"), ("s", "skip"), ("z", "snooze"), ("d", "dismiss"), ("r", "refresh"),
     ("q", "quit"), ("\x1b", "quit"), ("\x03", "quit"), ("x", None), ("9", None), ("0", None),
     ("é", None), ("²", None)],
)  # fmt: skip
def test_press_says_what_is_to_be_done(key: str, meant: str | None) -> None:
    picker = Picker(rows("a", "b"))
    assert picker.press(key) == meant
    assert marked(picker) == "a"


def test_every_key_of_the_shared_table_does_the_same_here_or_says_what_to_do() -> None:
    table = json.loads((files("remuda.boss.web") / "keys.json").read_text())
    actions = {"go", "skip", "snooze", "dismiss", "refresh"}
    for one in table:
        picker = Picker(rows("a", "b", "c"))
        picker.at = 1
        done = picker.press({"Enter": "\r"}.get(one["key"], one["key"]))
        if one["action"] in actions:
            assert done == one["action"]
        elif one["action"] in ("up", "down"):
            assert marked(picker) == {"up": "a", "down": "c"}[one["action"]]
        elif one["action"] != "yes":
            assert picker.note, one


def test_press_of_a_number_goes_to_that_one() -> None:
    picker = Picker(rows("a", "b", "c"))
    assert picker.press("2") == "go"
    assert marked(picker) == "b"


def test_replace_keeps_the_mark_on_the_same_one_and_else_in_its_place() -> None:
    picker = Picker(rows("a", "b", "c"))
    press(picker, "j")
    picker.replace(rows("x", "a", "b"))
    assert marked(picker) == "b"
    picker.replace(rows("x", "y"))
    assert marked(picker) == "y"
    picker.replace([])
    assert picker.marked is None
    assert press(picker, "j", "k", "G", "1") == [None] * 4


class Clock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def read(self) -> None:
        self.now += READ


BASH = "Bash\n  command  make release"


def asking(body: str = BASH, hidden: str = "") -> tuple[Picker, Clock]:
    """One that asks, and has been read; behind it one that does not."""
    clock = Clock()
    picker = Picker([PickerRow({"id": "a"}, "who is a", body, "r1", hidden), *rows("b")], clock)
    picker.draw(60, 12)
    clock.read()
    return picker, clock


def foot(picker: Picker, lines: int = 12) -> str:
    return picker.draw(60, lines)[-1]


def test_request_is_allowed_and_denied_with_two_keys() -> None:
    for key, what in (("a", "allow"), ("n", "deny")):
        picker, _ = asking()
        assert picker.press(key) is None
        assert picker.asks
        assert f"{what} this?" in foot(picker)
        assert press(picker, "y", "y") == [what, None]


@pytest.mark.parametrize("key", ["n", "a", "\r", "d", "q", "j", "1"])
def test_any_other_second_key_does_nothing_at_all(key: str) -> None:
    picker, _ = asking()
    assert press(picker, "a", key, "y") == [None, None, None]
    assert marked(picker) == "a"


@pytest.mark.parametrize(
    ("body", "hidden"),
    [("\n".join(f"line {number}" for number in range(100)), ""), ("漢" * 58, ""), (BASH, "it is elsewhere")],
)
def test_request_that_is_not_shown_completely_is_not_allowed(body: str, hidden: str) -> None:
    picker, _ = asking(body, hidden)
    assert press(picker, "a", "y") == [None, None]
    picker.press("a")
    assert "press Enter to go there" in foot(picker)
    assert press(picker, "n", "y") == [None, "deny"]


def test_request_is_not_allowed_if_the_terminal_shrinks_before_the_second_key() -> None:
    picker, _ = asking()
    picker.press("a")
    assert "too long for this screen" in foot(picker, 4)
    assert press(picker, "y") == [None]


def test_request_that_has_just_come_up_is_not_answered_by_keys_that_were_meant_for_another() -> None:
    picker, clock = asking()
    picker.replace(
        [PickerRow({"id": "a"}, "who is a", "rm -rf /", "r2")]
    )  # the same one asks for something else
    assert press(picker, "a", "y") == [None, None]
    picker.draw(60, 12)
    assert press(picker, "a", "y", "n", "y") == [None] * 4
    picker.press("a")
    assert "this request is new" in foot(picker)
    clock.read()
    assert press(picker, "a", "y") == [None, "allow"]


def test_what_is_asked_for_is_shown_from_its_beginning() -> None:
    drawn = asking("\n".join(f"line {number}" for number in range(100)))[0].draw(40, 12)
    assert any("line 0" in line for line in drawn)
    assert any("more lines" in line for line in drawn)
    assert "a allow" in drawn[-1]


def test_agent_without_a_request_cannot_be_allowed() -> None:
    picker, _ = asking()
    assert press(picker, "j", "a", "y") == [None, None, None]
    assert "a allow" not in foot(picker)


def test_request_that_is_over_before_the_second_key_is_not_answered_and_no_other_is() -> None:
    for again in (PickerRow({"id": "a"}, "who is a", "rm -rf /", "r2"), PickerRow({"id": "b"}, "b", "b")):
        picker, _ = asking()
        picker.press("a")
        picker.replace([again])
        assert "no longer open" in foot(picker)
        assert press(picker, "y") == [None]


def test_failure_between_the_two_keys_withdraws_the_question() -> None:
    picker, _ = asking()
    picker.press("a")
    picker.fail("the boss is not running")
    assert press(picker, "y") == [None]


def test_trouble_is_shown_at_the_bottom_until_the_list_is_known_again() -> None:
    picker, _ = asking()
    picker.trouble = "the boss is not running"
    picker.press("x")
    assert "not running" in foot(picker)
    picker.replace(rows("b"))
    assert "Enter go" in foot(picker)


def test_draw_shows_the_marked_one_and_the_end_of_what_it_says() -> None:
    long = [PickerRow({"id": "a"}, "who", "\n".join(f"line {number}" for number in range(100)))]
    drawn = Picker(long).draw(40, 12)
    assert "\x1b[7m" in drawn[0]
    assert any("line 99" in line for line in drawn)
    assert not any("line 50" in line for line in drawn)
    assert "Enter go" in drawn[-1]


def test_draw_of_an_empty_list_says_so() -> None:
    assert "no agent is waiting" in Picker().draw(40, 10)[0]


def test_draw_shows_a_note_in_place_of_the_keys_until_the_next_key() -> None:
    picker = Picker(rows("a"))
    picker.note = "it is gone"
    assert "it is gone" in picker.draw(40, 10)[-1]
    picker.press("j")
    assert "it is gone" not in picker.draw(40, 10)[-1]


texts = st.text(st.sampled_from("ab1 .-é中文🙂ー\n\t\r\x1b\x9b\u202e\u2028\U0003fffd"), max_size=200)


@given(
    st.lists(st.tuples(texts, texts), max_size=30),
    st.integers(12, 200),
    st.integers(3, 60),
    st.integers(0, 40),
)
def test_draw_fits_any_terminal(said: list[tuple[str, str]], cols: int, lines: int, steps: int) -> None:
    picker = Picker([PickerRow({"id": str(number)}, text, body) for number, (text, body) in enumerate(said)])
    press(picker, *"j" * steps)
    drawn = picker.draw(cols, lines)
    assert len(drawn) <= lines
    for line in drawn:
        assert cells(line) <= cols
        assert re.sub(r"\x1b\[\d*m", "", rendered(line, coloured=True)).isprintable()
    assert not said or any("\x1b[7m" in line for line in drawn)
