"""Lines of strangers in the inbox of a kept session: none stops it, none is taken for one of our own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.testing.scripted_agent.probe import whole_records
from support.commands import Commands
from support.delivery import Bench, answer, idle, kill_keeper
from support.hooks import Box
from support.keeper import Start, until
from support.messages import CHAIN, Post, stages
from support.outside_json import poison_lines

OLD_ID = "m1a1e500a39e-086fc294ca"
OLD = f'{{"remuda": 1, "id": "{OLD_ID}", "at": 1764000000.123, "prompt": "hello", "max_attempts": 2}}\n'
"""As version 76f0a55 wrote it."""


@pytest.fixture
def bench(start: Start, tmp_path: Path) -> Bench:
    return Bench(start, tmp_path)


def append(post: Post, text: str) -> None:
    with (post.folder / "inbox.jsonl").open("a") as inbox:
        inbox.write(text)


def reasons(post: Post) -> list[str]:
    return [str(one["reason"]) for one in post.inbox.dead_letters()]


def test_poison_lines_are_dead_letters_the_session_delivers_and_can_be_resumed(
    bench: Bench, remuda: Commands
) -> None:
    post = idle(bench.start())
    append(post, "".join(f"{line}\n" for line in poison_lines()))
    assert stages(post.send("after them")) == CHAIN
    assert all("cannot be read" in reason for reason in reasons(post))
    assert len(reasons(post)) == len(poison_lines())
    assert post.client.describe()["delivery"]["held"] is None
    kill_keeper(post)
    append(post, f"{poison_lines()[0]}\n")
    for words in (("ls",), ("status",), ("dead",)):
        assert remuda("inbox", *words, "--inbox", str(post.folder)).out
    resumed = bench.start(resume=True)
    assert stages(resumed.send("and on")) == CHAIN
    assert len(reasons(resumed)) == len(poison_lines()) + 1


def test_poison_line_as_the_first_message_does_not_keep_a_session_from_starting(
    bench: Bench, home: Path
) -> None:
    folder = home / "sessions" / "d.inbox"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "inbox.jsonl").write_text(f"{poison_lines()[0]}\nhello\n")
    post = bench.start()
    until(lambda: len(whole_records(post.folder / "outbox.jsonl")) == 1, "an answer")
    assert bench.prompts(post) == ["hello"]


def test_command_of_a_stranger_is_not_run(bench: Bench) -> None:
    post = idle(bench.start())
    assert stages(post.send("hello")) == CHAIN
    before = post.client.describe()["conversation"]["session_id"]
    append(post, '{"remuda": 1, "id": "mail-1", "prompt": "/clear", "command": true}\n')
    assert stages(post.send("still here")) == CHAIN
    assert post.client.describe()["conversation"]["session_id"] == before
    assert len(reasons(post)) == 1
    assert bench.prompts(post) == ["hello", "still here"]


def test_command_of_ours_copied_by_a_stranger_is_run_once(bench: Bench) -> None:
    post = idle(bench.start())
    post.run("/clear", command=True)
    before = post.client.describe()["conversation"]["session_id"]
    append(post, (post.folder / "inbox.jsonl").read_text())
    assert stages(post.send("hello")) == CHAIN
    assert post.client.describe()["conversation"]["session_id"] == before
    until(lambda: "a copy of message" in post.kept.paths.log.read_text(), "a line in the log")


def test_envelope_of_the_version_before_is_answered_under_its_id(bench: Bench) -> None:
    post = idle(bench.start())
    append(post, OLD)
    found = post.ended(OLD_ID)
    assert stages(found) == CHAIN
    assert answer(found) == "REPLY#1 to: hello"


def test_stop_hook_hands_out_what_follows_poison_lines(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.put("".join(f"{line}\n" for line in poison_lines()) + OLD + '{"a": 1}\n')
    assert box.drain() == ["hello", '{"a": 1}']
    assert len(box.lines(".dead-letter.jsonl")) == len(poison_lines())
    json.loads(box.path(".inbox-queue.json").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_stop_hook_payload_with_hostile_numbers_acknowledges_nothing(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.put("alpha\nbravo\n")
    assert box.tick() == "alpha"
    deep = {"usage": json.loads("[" * 400 + "]" * 400), "session_id": "s", "last_assistant_message": "x"}
    assert box.tick(payload=deep) == "bravo"
    assert box.run(payload={"session_id": float("inf")}).out == ""
    assert [stage for _, stage in box.receipts()] == ["written", "acked", "written"]
    for name in ("receipts.jsonl", "outbox.jsonl"):
        for line in box.path(name).read_text().splitlines():
            json.loads(line, parse_constant=lambda name: pytest.fail(name))
