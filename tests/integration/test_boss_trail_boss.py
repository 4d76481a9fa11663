"""Trail Boss's endpoints: the shapes that its emitters and clients know, and none of its defects."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

import pytest

from support.boss import Answer, RunningBoss

STUCK: dict[str, Any] = {
    "type": "stuck",
    "sessionId": "tmux-%446-1735689600000",
    "paneId": "%446",
    "cwd": "/home/dev",
    "transcriptPath": "",
    "reason": "stopped",
    "message": "Quiet at prompt: $ ",
    "timestamp": 1735689600000,
}


def hook(boss: RunningBoss, name: str, pane: str | None = "%1", session: str = "abc", **more: Any) -> Answer:
    payload = {"session_id": session, "hook_event_name": name, "cwd": "/srv", "transcript_path": "/t", **more}
    headers = {"X-Tmux-Pane": pane} if pane is not None else {}
    return boss.ask("POST", f"/t/{boss.token}/event", payload, headers, token=None)


def normalized(boss: RunningBoss, document: object) -> Answer:
    return boss.ask("POST", f"/t/{boss.token}/event/normalized", document, token=None)


def queue(boss: RunningBoss) -> list[dict[str, Any]]:
    document = boss.ask("GET", "/queue").json
    assert document["count"] == len(document["items"])
    found: list[dict[str, Any]] = document["items"]
    return found


# ── shapes ──


def test_a_session_s_life_from_start_to_end(boss: RunningBoss) -> None:
    assert hook(boss, "SessionStart", source="startup").json == {"ok": True}
    assert queue(boss) == []
    hook(boss, "Stop", last_assistant_message="done")
    (item,) = queue(boss)
    assert set(item) == {
        "id",
        "session_id",
        "pane_id",
        "cwd",
        "reason",
        "last_message",
        "stuck_at",
        "skip_cooldown_until",
    }
    assert (item["session_id"], item["pane_id"], item["cwd"]) == ("abc", "%1", "/srv")
    assert (item["reason"], item["last_message"]) == ("stopped", "done")
    assert isinstance(item["id"], int)
    assert item["stuck_at"] > 1e12
    assert boss.ask("GET", "/next").json == {"paneId": "%1", "sessionId": "abc", "reason": None}
    assert boss.ask("GET", "/status").json == {"status": "ok", "stuckCount": 1}
    hook(boss, "UserPromptSubmit", prompt="go on")
    assert queue(boss) == []
    hook(boss, "PermissionRequest", tool_name="Bash", tool_input={"command": "x" * 200})
    (item,) = queue(boss)
    assert item["reason"] == "permission"
    assert item["last_message"] == '[Bash] {"command":"' + "x" * 85 + "..."
    hook(boss, "SessionEnd", reason="other")
    assert boss.ask("GET", "/next").json == {"paneId": None, "reason": "queue empty"}
    assert boss.ask("GET", "/status").json == {"status": "ok", "stuckCount": 0}


def test_stop_without_a_message_and_one_that_comes_again(boss: RunningBoss) -> None:
    hook(boss, "Stop")
    assert queue(boss)[0]["last_message"] == "[no message]"
    hook(boss, "Stop", last_assistant_message="again")
    (item,) = queue(boss)
    assert item["last_message"] == "again"


def test_skip_sends_the_first_to_the_end_for_a_while(boss: RunningBoss) -> None:
    for number in ("1", "2"):
        hook(boss, "Stop", f"%{number}", f"s{number}", last_assistant_message="x")
    assert boss.ask("POST", "/skip").json == {"paneId": "%2", "sessionId": "s2", "reason": None}
    assert [item["session_id"] for item in queue(boss)] == ["s2"]
    assert boss.ask("POST", "/skip").json == {"paneId": None, "reason": "queue empty after skip"}
    assert boss.ask("POST", "/skip").json == {"paneId": None, "reason": "queue empty"}


@pytest.mark.parametrize("message", ["the same", "another"])
def test_new_stop_of_a_skipped_session_is_shown_at_once(boss: RunningBoss, message: str) -> None:
    hook(boss, "Stop", last_assistant_message="the same")
    boss.ask("POST", "/skip")
    assert queue(boss) == []
    hook(boss, "Stop", last_assistant_message=message)
    assert [item["last_message"] for item in queue(boss)] == [message]
    boss.restart(signal.SIGKILL)
    assert [item["skip_cooldown_until"] for item in queue(boss)] == [None]


def test_permission_request_without_a_tool_says_what_it_is(boss: RunningBoss) -> None:
    hook(boss, "PermissionRequest")
    assert [item["last_message"] for item in queue(boss)] == ["[permission request]"]


def test_normalized_events_of_its_detector(boss: RunningBoss) -> None:
    registered = {key: STUCK[key] for key in ("sessionId", "paneId", "cwd", "transcriptPath", "timestamp")}
    assert normalized(boss, {**registered, "type": "registered"}).json == {"ok": True}
    assert normalized(boss, {**STUCK, "timestamp": STUCK["timestamp"] + 5000}).json == {"ok": True}
    (item,) = queue(boss)
    assert (item["pane_id"], item["last_message"]) == ("%446", "Quiet at prompt: $ ")
    assert item["stuck_at"] == STUCK["timestamp"] + 5000
    later = {"sessionId": STUCK["sessionId"], "timestamp": STUCK["timestamp"] + 9000}
    assert normalized(boss, {**later, "type": "unstuck"}).json == {"ok": True}
    assert queue(boss) == []
    assert normalized(boss, {**later, "type": "ended", "timestamp": later["timestamp"] + 1}).status == 200


def test_errors_have_its_words(boss: RunningBoss) -> None:
    assert hook(boss, "Stop", None).json == {"error": "Missing X-Tmux-Pane header"}
    bad = boss.ask("POST", f"/t/{boss.token}/event", b"{", {"X-Tmux-Pane": "%1"}, token=None)
    assert (bad.status, bad.json) == (400, {"error": "Invalid JSON"})
    wrong = normalized(boss, {"type": "sing"})
    assert (wrong.status, wrong.json) == (400, {"error": "Missing or invalid event type"})
    assert boss.ask("GET", "/nothing").json == {"error": "Not found"}
    assert hook(boss, "SomethingNew").json == {"ok": True}


def test_its_own_emitter_posts_with_the_token_in_its_url(boss: RunningBoss) -> None:
    """As its script calls curl."""
    url = f"http://127.0.0.1:{boss.port}/t/{boss.token}/event"
    payload = '{"session_id": "abc", "hook_event_name": "Stop", "last_assistant_message": "hi"}'
    command = ["curl", "-s", "-X", "POST", url, "--data-binary", payload, "-H", "X-Tmux-Pane: %7"]
    for more in (["-H", "Content-Type: application/json"], []):
        done = subprocess.run([*command, *more], capture_output=True, timeout=30, check=True, env=os.environ)
        assert done.stdout == b'{"ok":true}'
    assert [item["pane_id"] for item in queue(boss)] == ["%7"]


# ── its defects ──


def test_real_hook_after_a_bootstrap_entry_on_the_same_pane_is_taken_and_is_one_item(
    boss: RunningBoss,
) -> None:
    hook(boss, "Stop", "%5", "%5", last_assistant_message="[bootstrap]")
    assert [item["session_id"] for item in queue(boss)] == ["%5"]
    assert hook(boss, "Stop", "%5", "real", last_assistant_message="hi").status == 200
    assert [item["session_id"] for item in queue(boss)] == ["real"]


def test_bootstrap_of_a_busy_pane_does_not_put_it_into_the_queue(boss: RunningBoss) -> None:
    hook(boss, "UserPromptSubmit", "%5", "real", prompt="work")
    hook(boss, "Stop", "%5", "%5")
    assert queue(boss) == []


def test_prompt_has_its_pane_and_is_the_first_that_is_heard_of_a_session(boss: RunningBoss) -> None:
    assert hook(boss, "UserPromptSubmit", "%9", "new", prompt="x").status == 200
    assert boss.client.get("sessions", "new")["session"]["pane"] == "%9"


def test_session_that_moves_to_another_pane_is_found_there(boss: RunningBoss) -> None:
    hook(boss, "Stop", "%1", last_assistant_message="x")
    hook(boss, "Stop", "%2", last_assistant_message="x")
    (item,) = queue(boss)
    assert item["pane_id"] == "%2"


@pytest.mark.parametrize(
    "document",
    [
        {"type": "stuck"},
        {"type": "unstuck"},
        {"type": "registered"},
        {"type": "ended"},
        {**STUCK, "reason": "blocked"},
        {**STUCK, "timestamp": -1},
        {**STUCK, "timestamp": 0},
        {**STUCK, "timestamp": "now"},
        {**STUCK, "timestamp": 1e300},
        {**STUCK, "timestamp": None},
        {**STUCK, "sessionId": ""},
        {**STUCK, "sessionId": 5},
        {**STUCK, "paneId": ""},
        {**STUCK, "paneId": "x; rm"},
        {**STUCK, "cwd": 5},
        {**STUCK, "message": []},
        [],
        "stuck",
        None,
    ],
)
def test_normalized_event_that_cannot_be_is_refused_and_not_taken(
    served: RunningBoss, document: object
) -> None:
    answer = normalized(served, document)
    assert answer.status == 400
    assert isinstance(answer.json["error"], str)
    assert queue(served) == []


@pytest.mark.parametrize(
    ("payload", "pane"),
    [
        ([], "%1"),
        ({}, "%1"),
        ({"session_id": ""}, "%1"),
        ({"session_id": 5}, "%1"),
        ({"session_id": "a\nb"}, "%1"),
        ({"session_id": "a"}, "1"),
        ({"session_id": "a"}, "%x"),
    ],
)
def test_hook_that_cannot_be_is_refused(served: RunningBoss, payload: object, pane: str) -> None:
    answer = served.ask("POST", f"/t/{served.token}/event", payload, {"X-Tmux-Pane": pane}, token=None)
    assert answer.status == 400
    assert isinstance(answer.json["error"], str)


def test_unstuck_or_end_of_a_session_that_no_one_knows_is_harmless(boss: RunningBoss) -> None:
    for kind in ("unstuck", "ended"):
        assert (
            normalized(boss, {"type": kind, "sessionId": "nobody", "timestamp": 1735689600000}).status == 200
        )
    assert queue(boss) == []


def test_body_without_bounds_is_refused(boss: RunningBoss) -> None:
    big = b'{"session_id": "a", "x": "' + b"x" * (17 << 20) + b'"}'
    assert boss.ask("POST", f"/t/{boss.token}/event", big, {"X-Tmux-Pane": "%1"}, token=None).status == 413


def test_timestamps_as_texts_in_a_payload_do_not_take_a_session_out_of_the_queue(boss: RunningBoss) -> None:
    hook(boss, "Stop", last_assistant_message="x", timestamp="2026-01-01T00:00:00Z")
    hook(boss, "Notification", notification_type="idle_prompt", timestamp="2099-01-01T00:00:00Z")
    assert len(queue(boss)) == 1


def test_process_that_an_event_names_is_not_taken(boss: RunningBoss) -> None:
    assert hook(boss, "Stop", transcript_path="/evil/projects/p/abc.jsonl", claude_pid=1).status == 200
    assert normalized(boss, {**STUCK, "transcriptPath": "/evil/projects/p/x.jsonl"}).status == 200
    for name in ("abc", STUCK["sessionId"]):
        found = next(one for one in boss.client.get("sessions")["sessions"] if one["id"] == name)
        assert found["pane"]
        assert found["cwd"]
        assert found["pid"] is None
