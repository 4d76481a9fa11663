"""One set of rules for JSON from outside: the package's reader, and that of the Stop hook."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda import duration, untrusted
from remuda.inbox import stop_hook
from remuda.inbox.stop_hook import decode_json, encode_json
from remuda.untrusted import dump_json, parse_json
from support.outside_json import READ, REFUSED, VALUES

READERS: dict[str, Callable[[str], Any]] = {"package": parse_json, "stop hook": decode_json}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_reader_of_a_bad_document_raises_value_error(reader: str, text: str) -> None:
    with pytest.raises(ValueError):
        READERS[reader](text)


@pytest.mark.parametrize("text", READ, ids=range(len(READ)))
def test_readers_of_a_good_document_agree(text: str) -> None:
    found = [repr(read(text)) for read in READERS.values()]
    assert len(set(found)) == 1
    found[0].encode()


@given(st.text(alphabet='{}[]",:0123456789.eE+-\\u dD8aNInfity', max_size=60))
def test_readers_of_any_text_agree(text: str) -> None:
    outcomes = []
    for read in READERS.values():
        try:
            outcomes.append(repr(read(text)))
        except ValueError:
            outcomes.append("refused")
    assert len(set(outcomes)) == 1


@given(VALUES)
def test_stop_hook_writes_what_the_package_writes(value: object) -> None:
    assert encode_json(value) == dump_json(value)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, {"a": [math.nan]}])
def test_stop_hook_writes_no_number_that_json_does_not_have(value: object) -> None:
    with pytest.raises(ValueError):
        encode_json(value)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x"])
def test_stop_hook_writes_no_value_that_is_not_json(value: object) -> None:
    with pytest.raises(TypeError):
        encode_json(value)


def test_stop_hook_deepest_document_can_be_written_again() -> None:
    text = "[" * stop_hook.MAX_DEPTH + "]" * stop_hook.MAX_DEPTH
    assert encode_json(decode_json(text)) == text


@pytest.mark.parametrize(
    "value", [5, 0.25, -1, math.nan, math.inf, -math.inf, 10**400, -(10**400), True, "5", None]
)
def test_stop_hook_bounds_seconds_and_numbers_as_the_package_does(value: object) -> None:
    assert stop_hook.seconds(value) == duration.clamp_seconds(value)
    assert stop_hook.number(value) == untrusted.finite(value)
    assert (stop_hook.LONGEST, stop_hook.MAX_DEPTH) == (duration.LONGEST, untrusted.MAX_DEPTH)


def test_receipt_with_a_number_that_json_does_not_have_is_written_without_it(tmp_path: Any) -> None:
    files = stop_hook.Files(str(tmp_path / "inbox.jsonl"))
    stop_hook.HookInbox(files).receipt("m1", "ended", cost=math.inf, usage={"tokens": [math.nan, 1]})
    line = (tmp_path / "receipts.jsonl").read_text()
    found = json.loads(line, parse_constant=lambda name: pytest.fail(name))
    assert (found["cost"], found["usage"]) == (None, {"tokens": [None, 1]})
