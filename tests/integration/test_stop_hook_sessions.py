"""Two sessions on one inbox: what one was handed is not answered by the other, and its death frees it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.hooks import BOTH, SYS_FLOCK, SYS_SIGTIMEDWAIT, Box, wait_until


@pytest.fixture
def agent() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for the first session's."""
    process = subprocess.Popen(["sleep", "infinity"])
    yield process
    process.kill()
    process.wait()


def stop(session: str, said: str = "") -> dict[str, str]:
    return {"session_id": session, "last_assistant_message": said}


@pytest.fixture
def shared(box: Box, agent: subprocess.Popen[bytes]) -> Box:
    """Session `one` has been handed alpha, and works on it; bravo waits."""
    box.put("alpha\nbravo\n")
    assert box.tick(payload=stop("one"), pid=agent.pid) == "alpha"
    return box


def answers(box: Box) -> list[tuple[str, str]]:
    return [(one["session_id"], one["text"]) for one in box.lines("outbox.jsonl")]


def test_the_stop_of_another_session_answers_nothing_and_gets_nothing(
    shared: Box, agent: subprocess.Popen[bytes]
) -> None:
    ended = shared.path("ended")
    assert (
        shared.tick("--signal-file", str(ended), payload=stop("two", "of another"), pid=os.getpid()) is None
    )
    assert (answers(shared), shared.offset(), shared.flags()) == ([], 0, BOTH)
    assert not ended.exists()
    assert shared.tick(payload=stop("one", "to alpha"), pid=agent.pid) == "bravo"
    assert shared.tick(payload=stop("one", "to bravo"), pid=agent.pid) is None
    assert answers(shared) == [("one", "to alpha"), ("one", "to bravo")]


def test_a_session_that_waits_gets_the_next_one_when_another_has_answered(
    shared: Box, agent: subprocess.Popen[bytes]
) -> None:
    waiting = shared.start("--mode", "persist", payload=stop("two", "of before"), pid=os.getpid())
    wait_until(waiting, SYS_SIGTIMEDWAIT)
    assert shared.tick(payload=stop("one", "to alpha"), pid=agent.pid) == "bravo"
    assert shared.tick(payload=stop("one", "to bravo"), pid=agent.pid) is None
    shared.put("charlie\n")
    assert shared.finish(waiting).reason == "charlie"
    assert answers(shared) == [("one", "to alpha"), ("one", "to bravo")]


@pytest.mark.parametrize("sessions", [("one", "one"), ("one", "two"), (None, None)])
def test_of_two_that_wait_one_gets_a_message_and_the_other_answers_nothing(
    box: Box, sessions: tuple[str | None, str | None]
) -> None:
    """However late the second wakes: it is stopped until the first one has been served."""
    payloads = [None if one is None else stop(one, "of before") for one in sessions]
    both = [box.start("--mode", "persist", "--wait", "20", payload=one) for one in payloads]
    for process in both:
        wait_until(process, SYS_SIGTIMEDWAIT)
    os.kill(both[1].pid, signal.SIGSTOP)
    box.put("alpha\n")
    assert box.finish(both[0]).reason == "alpha"
    with box.path(".inbox-lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.kill(both[1].pid, signal.SIGCONT)
        wait_until(both[1], SYS_FLOCK)
    if sessions == ("one", "one"):
        assert box.finish(both[1]).reason is None
    else:
        wait_until(both[1], SYS_SIGTIMEDWAIT)
    assert (box.lines("outbox.jsonl"), box.flags()) == ([], BOTH)


def test_a_session_that_died_frees_what_it_had(shared: Box, agent: subprocess.Popen[bytes]) -> None:
    agent.kill()
    agent.wait()
    ran = shared.run(payload=stop("two", "of another"), pid=os.getpid())
    assert (ran.reason, answers(shared)) == ("bravo", [])
    assert "session one ended" in ran.err
    (letter,) = shared.lines(".dead-letter.jsonl")
    assert (letter["raw_line"], letter["reason"]) == ("alpha", "its session ended before it was acknowledged")
    assert shared.tick(payload=stop("two", "to bravo"), pid=os.getpid()) is None
    assert answers(shared) == [("two", "to bravo")]


def test_a_number_that_another_process_has_now_is_no_life(shared: Box) -> None:
    lease = json.loads(shared.path(".inbox-lease.json").read_text())
    lease["holder"]["born"] = "1"
    shared.path(".inbox-lease.json").write_text(json.dumps(lease))
    assert shared.run(payload=stop("two"), pid=os.getpid()).reason == "bravo"


@pytest.mark.parametrize("other", ["host", "space"])
def test_nothing_is_known_of_a_session_elsewhere(
    shared: Box, agent: subprocess.Popen[bytes], other: str
) -> None:
    lease = json.loads(shared.path(".inbox-lease.json").read_text())
    lease["holder"][other] = "elsewhere"
    shared.path(".inbox-lease.json").write_text(json.dumps(lease))
    agent.kill()
    agent.wait()
    assert shared.tick(payload=stop("two"), pid=os.getpid()) is None
    assert shared.flags() == BOTH
    assert shared.recover() == "ReQueued"
    assert shared.tick(payload=stop("two"), pid=os.getpid()) == "alpha"


FEEDBACK = '{"type": "user", "isMeta": true, "message": {"content": "Stop hook feedback:\\nalpha"}}\n'
OTHER_PROMPT = '{"type": "user", "message": {"content": "something else"}}\n'


def with_transcript(box: Box, name: str = "one.jsonl") -> tuple[Path, dict[str, object]]:
    """The transcript of session `one`, and what Claude reports of a stop."""
    transcript = box.path(name)
    transcript.write_text(OTHER_PROMPT + FEEDBACK)  # of a message before
    return transcript, {**stop("one"), "hook_event_name": "Stop", "transcript_path": str(transcript)}


@pytest.mark.parametrize(
    ("added", "more", "handed"),
    [
        (OTHER_PROMPT, {"stop_hook_active": False}, "alpha"),  # the agent ended the hook after it had printed
        (FEEDBACK + OTHER_PROMPT, {"stop_hook_active": False}, "bravo"),  # it was interrupted in the turn
        (OTHER_PROMPT, {"stop_hook_active": True}, "bravo"),
        (OTHER_PROMPT, {}, "bravo"),  # another agent's hook: nothing is known
        ("", {"stop_hook_active": False}, "bravo"),  # no transcript is kept
        (OTHER_PROMPT, {"stop_hook_active": False, "transcript_path": "/elsewhere"}, "bravo"),
        (OTHER_PROMPT, {"stop_hook_active": False, "hook_event_name": "SubagentStop"}, "bravo"),
    ],
)
def test_a_message_that_the_agent_did_not_take_is_handed_out_again(
    box: Box, agent: subprocess.Popen[bytes], added: str, more: dict[str, object], handed: str
) -> None:
    transcript, payload = with_transcript(box)
    box.put("alpha\nbravo\n")
    assert box.tick(payload=payload, pid=agent.pid) == "alpha"
    with transcript.open("a") as records:
        records.write(added)
    ran = box.run(payload={**payload, **more}, pid=agent.pid)
    assert ran.reason == handed
    again = ["nacked", "written"] if handed == "alpha" else ["acked", "written"]
    assert [stage for _, stage in box.receipts()] == ["written", *again]
    assert ("handed out again" in ran.err) == (handed == "alpha")
    assert box.tick(payload={**payload, "stop_hook_active": True}, pid=agent.pid) == (
        "bravo" if handed == "alpha" else None
    )


def test_a_transcript_that_was_rewritten_proves_nothing(box: Box, agent: subprocess.Popen[bytes]) -> None:
    """A program that removes secrets makes it shorter: the feedback is before the place that is known."""
    transcript, payload = with_transcript(box)
    box.put("alpha\nbravo\n")
    assert box.tick(payload=payload, pid=agent.pid) == "alpha"
    transcript.write_text(FEEDBACK + FEEDBACK + 9 * OTHER_PROMPT)
    assert box.tick(payload={**payload, "stop_hook_active": False}, pid=agent.pid) == "bravo"


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("rollout-2026-one.jsonl", {}),  # codex, started by Claude: its words for a feedback are others
        ("one.jsonl", {"hook_event_name": "SubagentStop"}),  # its transcript is in another file
    ],
)
def test_the_transcript_of_another_agent_proves_nothing(
    box: Box, agent: subprocess.Popen[bytes], name: str, more: dict[str, object]
) -> None:
    transcript, payload = with_transcript(box, name)
    box.put("alpha\nbravo\n")
    assert box.tick(payload={**payload, **more}, pid=agent.pid) == "alpha"
    with transcript.open("a") as records:
        records.write(OTHER_PROMPT)
    assert box.tick(payload={**payload, "stop_hook_active": False}, pid=agent.pid) == "bravo"


def test_a_message_that_was_not_taken_at_its_last_attempt_is_a_dead_letter_and_said_to_be(
    box: Box, agent: subprocess.Popen[bytes]
) -> None:
    transcript, payload = with_transcript(box)
    box.envelope(id="m1", prompt="alpha", max_attempts=1)
    assert box.tick(payload=payload, pid=agent.pid) == "alpha"
    with transcript.open("a") as records:
        records.write(OTHER_PROMPT)
    ran = box.run(payload={**payload, "stop_hook_active": False}, pid=agent.pid)
    assert (ran.reason, "it is a dead letter" in ran.err) == (None, True)


def test_an_agent_that_got_another_session_goes_on(shared: Box, agent: subprocess.Popen[bytes]) -> None:
    assert shared.tick(payload=stop("behind a clear", "said"), pid=agent.pid) == "bravo"
    assert answers(shared) == [("behind a clear", "said")]
