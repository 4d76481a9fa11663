"""No line, whatever it holds, stops those after it."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.errors import InvalidOptions
from remuda.inbox import stop_hook
from remuda.inbox.consumer import Consumer
from remuda.inbox.receipts import trace
from support.envelopes import put_marked, put_marked_line
from support.inbox_box import Box
from support.outside_json import FIELDS, poison_lines

# ── numbers ──


@pytest.mark.parametrize("line", poison_lines(), ids=range(len(poison_lines())))
@pytest.mark.parametrize("marked", [False, True])
def test_line_that_cannot_be_read_is_a_dead_letter_and_the_next_is_delivered(
    box: Box, line: str, marked: bool
) -> None:
    if marked:
        put_marked_line(box.inbox, line.encode())
    else:
        box.write(f"{line}\n")
    box.journal.put("next")
    assert box.journal.overview().waiting == 2
    assert box.drain() == ["next"]
    (reason,) = box.dead()
    assert reason.startswith("an envelope that cannot be read: ")
    assert box.journal.redrive() == []
    assert box.dead() == [reason]


JSON_NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 10**30)
ANY = st.recursive(
    st.none() | st.booleans() | JSON_NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@given(
    st.lists(st.dictionaries(st.sampled_from([*FIELDS, "id", "from", "dedup"]), ANY), max_size=4),
    st.booleans(),
)
def test_envelopes_with_any_fields_stop_nothing_and_all_files_stay_json(
    tmp_path_factory: pytest.TempPathFactory, envelopes: list[dict[str, Any]], marked: bool
) -> None:
    box = Box(tmp_path_factory.mktemp("fuzz"), durable=False)
    for fields in envelopes:
        if marked:
            put_marked(box.inbox, prompt="x", **fields)
        else:
            box.write(json.dumps({"remuda": 1, "prompt": "x", **fields}) + "\n")
    box.journal.put("next")
    box.journal.overview()
    handed = box.drain()
    assert handed.count("next") == 1
    assert marked or handed == ["x"] * len(envelopes) + ["next"]
    for path in box.folder.iterdir():
        if path.name.endswith((".json", ".jsonl")) and path.name != "inbox.jsonl":
            for line in path.read_text().splitlines():
                json.loads(line, parse_constant=lambda name: pytest.fail(name))
    assert not any("corrupt" in one for one in box.notices)


@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, math.nan, -1, -0.5, 1e10, 10**400, "-5", True, [1]], ids=range(10)
)
@pytest.mark.parametrize("name", ["delay", "ttl", "max_attempts", "priority"])
def test_put_with_a_number_out_of_bounds_raises_invalid_options(box: Box, name: str, value: Any) -> None:
    if name == "priority":
        value = -(10**10) if value in (-1, -0.5) else value
    with pytest.raises(InvalidOptions, match=name):
        box.journal.put("x", **{name: value})
    assert not box.inbox.exists()


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0},
        {"dedup": 5},
        {"sender": b"x"},
        {"message_id": "\x1b"},
        {"message_id": "line-1"},
        {"now": math.inf},
    ],
)
def test_put_with_an_option_of_another_kind_raises_invalid_options(box: Box, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions, match=next(iter(options))):
        box.journal.put("x", **options)


def test_nack_with_a_delay_without_end_is_due_within_thirty_years(box: Box) -> None:
    box.journal.put("x")
    consumer = Consumer(box.folder, "a test")
    consumer.open()
    leased = consumer.lease("test")
    assert leased is not None
    assert consumer.give_back(leased, math.inf, "busy", counts=False) == "nacked"
    assert consumer.lease("test") is None
    consumer.close()
    assert box.receipts()[-1]["due"] <= time.time() + stop_hook.LONGEST


# ── lines without an end ──


@pytest.mark.parametrize("line", ["a mail body that ends in NUL\0", "\0", "a\0\0\0", '{"remuda": 1\0'])
def test_message_after_a_line_that_ends_in_nul_keeps_its_options(tmp_path: Path, line: str) -> None:
    box = Box(tmp_path)
    box.write(line)
    os.utime(box.inbox, (1, 1))  # its writer is gone
    accepted = box.journal.put("deploy the fix", command=True)
    [ours] = [entry for entry in box.journal.waiting() if entry.id == accepted.id]
    assert ours.fields["command"] is True
    assert box.drain()[-1] == "deploy the fix"
    assert trace(tmp_path, accepted.id).stage == "acked"  # type: ignore[union-attr]


# ── many bad lines ──


def test_many_bad_lines_are_given_up_in_batches_and_the_lock_is_free_between_them(box: Box) -> None:
    box.write('{"remuda"x\n' * (stop_hook.BATCH + 2) + "good\n")
    handed = []
    for _ in range(2):
        with stop_hook.Lock(box.files):
            inbox = stop_hook.HookInbox(box.files)
            inbox.open()
            taken = inbox.next_entry()
            handed.append((taken and taken[0].text, inbox.unfinished, len(box.dead())))
            inbox.close()
    assert handed == [(None, True, stop_hook.BATCH), ("good", False, stop_hook.BATCH + 2)]


def test_message_after_thousands_of_bad_lines_is_delivered_and_each_is_a_dead_letter(box: Box) -> None:
    """With several syncs for each line this takes minutes."""
    box.write('{"remuda"x\n' * 4_000 + "good\n")
    assert box.drain() == ["good"]
    assert len(box.dead()) == 4_000
    assert len({one["id"] for one in box.receipts() if one["stage"] == "dead"}) == 4_000


def test_expired_messages_with_senders_are_bounced_once_each(box: Box) -> None:
    for number in range(5):
        put_marked(box.inbox, id=f"m{number}", prompt="x", expires=1.0, **{"from": "me"})
    box.write("good\n")
    assert box.leased().text == "good"
    outbox = [json.loads(line) for line in (box.folder / "outbox.jsonl").read_text().splitlines()]
    assert [one["id"] for one in outbox] == [f"m{number}" for number in range(5)]
