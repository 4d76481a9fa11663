"""What a keeper reports about a message's turn, and how clients stop it, take it back or allow tools."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from remuda.errors import AlreadyAnswered, InvalidOptions, PermissionRefused
from remuda.keeper.client import KeeperClient
from remuda.keeper.environment import session_environment
from support.keeper import Kept, Start, event_named, post_hook, until
from support.messages import Post, stages

SHIFT_TAB = b"\x1b[Z"
ESC = b"\x1b"
TOUCH = "RUNBASH touch made"


class Bench:
    """A scripted agent in a session, a client that hears all, and its inbox."""

    def __init__(self, start: Start, folder: Path) -> None:
        self._start = start
        self.project = folder / "project"
        self.config = folder / "claude"
        self.project.mkdir()
        self.config.mkdir()

    def begin(self, *flags: str, time_scale: str = "0.01", **more: Any) -> Post:
        own = {
            "CLAUDE_CONFIG_DIR": str(self.config),
            "MOCK_TIME_SCALE": time_scale,
            "MOCK_DIALOG_GUARD": "0",
        }
        env = session_environment({**os.environ, **own}, "t", "HEIMDALL", {})
        argv = [sys.executable, "-P", "-m", "remuda.testing.scripted_agent", *flags]
        given: dict[str, Any] = {"agent": "demo", "classifier": "claude", "cols": 100, "rows": 30, **more}
        return Post(self._start("t", argv, cwd=str(self.project), env=env, **given))

    def ready(self, *flags: str, **more: Any) -> Post:
        post = self.begin(*flags, **more)
        client = post.kept.hello()
        client.request("watch")
        if not client.request("ready")["ready"]:
            event_named(client, "ready")
        return post


@pytest.fixture
def bench(start: Start, tmp_path: Path) -> Bench:
    return Bench(start, tmp_path)


def hearing(kept: Kept, *, read_only: bool = False, tools: bool = False) -> KeeperClient:
    client = kept.hello(read_only=read_only)
    client.request("watch", tools=tools)
    return client


def whole(client: KeeperClient, told: dict[str, Any]) -> dict[str, Any]:
    """What an event names as a parcel, fetched."""
    data, offset = "", 0
    while True:
        piece = client.request("parcel", id=told["parcel"]["id"], offset=offset)
        data += piece["data"]
        if piece["next"] is None:
            found: dict[str, Any] = json.loads(data)
            return found
        offset = piece["next"]


# ── stops and ends ──


def test_stop_is_reported_before_the_end_which_has_the_usage(bench: Bench) -> None:
    post = bench.ready()
    client = hearing(post.kept)
    message = post.put("hello")
    stopped = event_named(client, "stopped", id=message)
    ended = event_named(client, "ended", id=message)
    assert (stopped["end"], stopped["text"], stopped["final"]) == ("answered", "REPLY#1 to: hello", True)
    assert (ended["end"], ended["action"]) == ("answered", "ack")
    assert ended["usage"]["output_tokens"] == 7
    assert ended["session_id"] == stopped["conversation"]
    assert "text" not in ended
    assert post.ended(message).stage == "acked"


def test_stop_is_not_final_where_a_hook_of_somebody_else_has_a_say(bench: Bench) -> None:
    once = 'test -f went-on || { touch went-on; echo \'{"decision": "block", "reason": "go on"}\'; }'
    hooks = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": f"cat > /dev/null; {once}"}]}]}}
    (bench.config / "settings.json").write_text(json.dumps(hooks))
    post = bench.ready()
    client = hearing(post.kept)
    message = post.put("hello")
    texts = [event_named(client, "stopped", id=message) for _ in range(2)]
    assert [one["final"] for one in texts] == [False, False]
    assert texts[1]["text"].startswith("REPLY#2 to: ")
    assert event_named(client, "ended", id=message)["end"] == "answered"
    answer = post.ended(message).answer
    assert answer is not None
    assert answer["text"] == texts[1]["text"]


def test_answer_that_no_frame_could_hold_is_fetched(bench: Bench) -> None:
    post = bench.ready()
    client = hearing(post.kept, tools=True)
    message = post.put("BIG 1500000")
    shown = event_named(client, "shown")
    assert len(whole(client, shown)["text"]) == 1_500_000
    stopped = event_named(client, "stopped", id=message)
    assert stopped["final"] is True
    assert len(whole(client, stopped)["text"]) == len(("big " * 375_000).rstrip())


def test_api_error_is_reported_as_a_stop(bench: Bench) -> None:
    post = bench.ready(single_try=True)
    client = hearing(post.kept)
    for _ in range(2):
        message = post.put("err 529")
        stopped = event_named(client, "stopped", id=message)
        assert (stopped["end"], stopped["failure"], stopped["final"]) == ("failed", "overloaded", True)
        ended = event_named(client, "ended", id=message)
        assert (ended["end"], ended["action"]) == ("failed", "dead")  # it is not tried again
    assert event_named(client, "ended", id=post.put("hello"))["action"] == "ack"  # nor does the account wait


def test_clear_has_ended_when_the_agent_says_so_and_names_the_new_conversation(bench: Bench) -> None:
    post = bench.ready()
    client = hearing(post.kept)
    before = event_named(client, "ended", id=post.put("hello"))["session_id"]
    ended = event_named(client, "ended", id=post.put("/clear", command=True))
    assert ended["session_id"] not in (None, before)
    answered = event_named(client, "stopped", id=post.put("again"))
    assert (answered["conversation"], answered["text"]) == (ended["session_id"], "REPLY#1 to: again")


def test_end_of_the_program_is_reported_with_its_last_output(bench: Bench) -> None:
    post = bench.ready()
    client = hearing(post.kept)
    event_named(client, "ended", id=post.put("hello"))
    os.kill(post.kept.child_pid, signal.SIGKILL)
    exited = event_named(client, "exited")
    assert (exited["code"], exited["signal"]) == (137, 9)
    assert "REPLY#1 to: hello" in exited["last_output"]


def test_reminder_of_a_dialog_after_the_turn_does_not_hold_the_next_message(bench: Bench) -> None:
    post = bench.ready(time_scale="1")  # or it says soon that it rests
    assert post.send("hello").stage == "acked"
    late = {"hook_event_name": "Notification", "notification_type": "permission_prompt"}
    own_id = post.client.describe()["conversation"]["session_id"]
    with closing(post_hook(post.kept, json.dumps({"session_id": own_id, **late}))) as sent:
        assert sent.getresponse().status == 200
    assert post.send("again").stage == "acked"


# ── stopping a turn, taking a message back ──


def test_interrupt_stops_the_turn_of_the_message_and_the_next_one_is_delivered(bench: Bench) -> None:
    post = bench.ready()
    client = hearing(post.kept)
    message, behind = post.put("SLOW 60"), post.put("hello")
    event_named(client, "state", state="streaming")
    assert client.request("interrupt", id=message) == {"in_flight": True}
    ended = event_named(client, "ended", id=message)
    assert (ended["end"], ended["action"], ended["reason"]) == (
        "interrupted",
        "dead",
        "interrupted on request",
    )
    assert post.ended(behind).stage == "acked"


def test_interrupt_before_the_first_word_leaves_nothing_in_the_composer(bench: Bench) -> None:
    post = bench.ready()
    client = hearing(post.kept)
    message = post.put("THINK 60 of me")
    event_named(client, "state", state="thinking")
    post.reached(message, "submitted")
    client.request("interrupt", id=message)
    assert event_named(client, "ended", id=message)["end"] == "interrupted"
    assert client.request("cleanliness")["composer"] == "empty"
    answer = post.send("hello").answer
    assert answer is not None
    assert answer["text"] == "REPLY#1 to: hello"


def test_interrupt_of_a_turn_that_waits_for_permission_cancels_its_dialog(bench: Bench) -> None:
    post = bench.ready("--permission-mode", "default", asks=True)
    client = hearing(post.kept)
    message = post.put(TOUCH)
    asked = event_named(client, "ask")
    client.request("interrupt", id=message)
    assert event_named(client, "ask_ended", id=asked["id"])
    assert event_named(client, "ended", id=message)["end"] == "interrupted"
    assert not (bench.project / "made").exists()


def test_interrupt_drops_a_message_that_waits(bench: Bench) -> None:
    post = bench.ready()
    client = hearing(post.kept)
    first, second, third = post.put("SLOW 60"), post.put("never mind"), post.put("hello")
    event_named(client, "state", state="streaming")
    assert client.request("interrupt", id=second) == {"in_flight": False}
    ended = event_named(client, "ended", id=second)
    assert (ended["end"], ended["action"]) == ("cancelled", "drop")
    assert stages(post.trace(second)) == ["accepted", "dropped"]
    client.request("interrupt", id=first)
    assert post.ended(third).stage == "acked"


def test_interrupt_of_what_no_one_knows_presses_nothing(bench: Bench) -> None:
    post = bench.ready()
    client = hearing(post.kept)
    assert client.request("interrupt", id="m-unknown") == {"in_flight": False}
    post.run("hello")
    with pytest.raises(InvalidOptions):
        client.request("interrupt")
    with pytest.raises(PermissionRefused):
        hearing(post.kept, read_only=True).request("interrupt", id="m-unknown")


# ── giving leave ──


def asked(bench: Bench, prompt: str = TOUCH) -> tuple[Post, KeeperClient, str, dict[str, Any]]:
    """A session that asks, a client, the message, and what is asked."""
    post = bench.ready("--permission-mode", "default", asks=True, tools=True)
    client = hearing(post.kept, tools=True)
    message = post.put(prompt)
    return post, client, message, event_named(client, "ask")


def test_ask_is_reported_with_the_call_it_is_about(bench: Bench) -> None:
    post, client, _, ask = asked(bench)
    assert (ask["tool"], ask["input"]["command"], ask["reason"]) == ("Bash", "touch made", "permission")
    assert ask["suggestions"]
    late = hearing(post.kept)
    [listed] = late.request("asks")["asks"]
    assert listed["id"] == ask["id"]
    assert listed["tool_use_id"] == ask["tool_use_id"] is not None
    client.request("answer", id=ask["id"], behavior="deny")
    assert late.request("asks") == {"asks": []}


def test_ask_allowed_runs_and_its_result_is_reported(bench: Bench) -> None:
    _, client, message, ask = asked(bench)
    client.request("answer", id=ask["id"], behavior="allow")
    ended = event_named(client, "tool", what="ended", id=ask["tool_use_id"])
    assert (ended["is_error"], ended["content"]) == (False, "(Bash completed with no output)")
    assert event_named(client, "ended", id=message)["end"] == "answered"
    assert (bench.project / "made").exists()


def test_ask_denied_says_why_and_the_turn_goes_on(bench: Bench) -> None:
    _, client, message, ask = asked(bench)
    client.request("answer", id=ask["id"], behavior="deny", message="not today")
    ended = event_named(client, "tool", what="ended", id=ask["tool_use_id"])
    assert (ended["is_error"], ended["content"]) == (True, "not today")
    assert event_named(client, "stopped", id=message)["text"] == "REPLY#2 to: tool_result not today"
    assert not (bench.project / "made").exists()


def test_ask_denied_with_an_interrupt_ends_the_turn(bench: Bench) -> None:
    _, client, message, ask = asked(bench)
    client.request("answer", id=ask["id"], behavior="deny", interrupt=True)
    assert event_named(client, "ended", id=message)["end"] == "interrupted"


def test_ask_edited_runs_what_was_said_instead(bench: Bench) -> None:
    _, client, message, ask = asked(bench)
    edited = {"command": "touch other", "description": "x"}
    client.request("answer", id=ask["id"], behavior="allow", input=edited)
    event_named(client, "ended", id=message)
    assert [path.name for path in bench.project.iterdir()] == ["other"]


def test_ask_allowed_for_always_is_not_asked_again(bench: Bench) -> None:
    post, client, message, ask = asked(bench)
    client.request("answer", id=ask["id"], behavior="allow", always=True)
    event_named(client, "ended", id=message)
    again = post.put("RUNBASH touch again")
    assert event_named(client, "ended", id=again)["end"] == "answered"
    assert (bench.project / "again").exists()


def test_second_answer_is_refused(bench: Bench) -> None:
    post, client, message, ask = asked(bench)
    other = hearing(post.kept)
    client.request("answer", id=ask["id"], behavior="allow")
    with pytest.raises(AlreadyAnswered):
        other.request("answer", id=ask["id"], behavior="deny")
    assert event_named(other, "ask_ended", id=ask["id"])["why"] == "answered: allow"
    assert event_named(client, "ended", id=message)["end"] == "answered"


@pytest.mark.parametrize(("key", "made"), [(b"1", True), (ESC, False)])
def test_human_at_the_terminal_may_be_first(bench: Bench, key: bytes, made: bool) -> None:
    post, client, message, ask = asked(bench)
    post.watcher.answer(key)
    event_named(client, "ask_ended", id=ask["id"])
    with pytest.raises(AlreadyAnswered):
        client.request("answer", id=ask["id"], behavior="deny")
    event_named(client, "ended", id=message)
    assert (bench.project / "made").exists() is made


def test_client_that_only_watches_cannot_allow(bench: Bench) -> None:
    post, client, _, ask = asked(bench)
    with pytest.raises(PermissionRefused):
        hearing(post.kept, read_only=True).request("answer", id=ask["id"], behavior="allow")
    client.request("answer", id=ask["id"], behavior="deny")


def test_session_that_does_not_ask_clients_leaves_it_to_the_terminal(bench: Bench) -> None:
    post = bench.ready("--permission-mode", "default")
    client = hearing(post.kept)
    message = post.put(TOUCH)
    event_named(client, "state", state="waiting_permission")
    assert client.request("asks") == {"asks": []}
    with pytest.raises(InvalidOptions):
        client.request("answer", id="a1", behavior="allow")
    post.watcher.answer(b"1")
    assert event_named(client, "ended", id=message)["end"] == "answered"


def test_permission_is_denied_for_every_prompt_where_no_one_is_there(bench: Bench) -> None:
    post = bench.ready("--permission-mode", "default", deny_permissions=True)
    client = hearing(post.kept)
    for _ in range(2):
        assert event_named(client, "ended", id=post.put(TOUCH))["end"] == "answered"
    assert not (bench.project / "made").exists()


def test_input_that_no_frame_could_hold_is_asked_whole(bench: Bench) -> None:
    call = {"name": "Write", "input": {"file_path": "made", "content": "x" * 1_200_000}}
    post = bench.ready("--permission-mode", "default", asks=True)
    client = hearing(post.kept)
    message = post.put(f"TOOL {json.dumps(call)}")
    ask = event_named(client, "ask")
    assert whole(client, ask)["input"] == call["input"]
    assert whole(client, client.request("asks"))["asks"][0]["id"] == ask["id"]
    client.request("answer", id=ask["id"], behavior="allow")
    event_named(client, "ended", id=message)
    assert (bench.project / "made").stat().st_size == 1_200_000


# ── what would outlive the conversation ──


def clean(client: KeeperClient) -> dict[str, Any]:
    return client.request("cleanliness")


def test_cleanliness_of_an_ordinary_turn(bench: Bench) -> None:
    post = bench.ready("--permission-mode", "default", "--allowedTools", "Bash")
    client = hearing(post.kept)
    event_named(client, "ended", id=post.put("RUNBASH echo hi"))
    assert clean(client) == {
        "typed": False,
        "composer": "empty",
        "stashed": False,
        "permission_mode": "default",
        "first_permission_mode": "default",
        "residue": [],
        "processes": [],
    }


def test_cleanliness_reports_what_somebody_typed_and_left_in_the_composer(bench: Bench) -> None:
    post = bench.ready()
    client = hearing(post.kept)
    post.watcher.press(b"a thought")
    event_named(client, "typed")
    until(lambda: clean(client)["composer"] == "draft", "the draft on the screen")
    assert clean(client)["typed"] is True


def test_cleanliness_reports_another_permission_mode(bench: Bench) -> None:
    post = bench.ready("--permission-mode", "default")
    client = hearing(post.kept)
    event_named(client, "ended", id=post.put("hello"))
    post.watcher.press(SHIFT_TAB)
    event_named(client, "ended", id=post.put("hello again"))
    found = clean(client)
    assert (found["first_permission_mode"], found["permission_mode"]) == ("default", "acceptEdits")


def test_cleanliness_reports_processes_that_came_with_the_prompt(bench: Bench) -> None:
    post = bench.ready("--permission-mode", "default", "--allowedTools", "Bash")
    client = hearing(post.kept)
    prompt = "RUNBASH (setsid tail -f /dev/null > /dev/null 2>&1 &); echo begun"
    event_named(client, "ended", id=post.put(prompt))

    def tail() -> int:
        """Before it is executed it has its parent's words."""
        [left] = clean(client)["processes"]
        return int(left["pid"]) if left["command"] == "tail -f /dev/null" else 0

    os.kill(until(tail, "the process by its command"), signal.SIGKILL)
    until(lambda: clean(client)["processes"] == [], "the end of that process")


def test_cleanliness_reports_what_was_begun_and_lasts(bench: Bench) -> None:
    post = bench.ready("--permission-mode", "bypassPermissions")
    client = hearing(post.kept)
    call = {"name": "CronCreate", "input": {"cron": "* * * * *"}}
    event_named(client, "ended", id=post.put(f"TOOL {json.dumps(call)}"))
    assert clean(client)["residue"] == ["a scheduled prompt (CronCreate)"]


# ── messages through the socket ──


def test_submit_to_a_worker_of_a_pool_is_answered_without_the_inbox_file(bench: Bench) -> None:
    post = bench.ready(ephemeral=True, single_try=True)
    client = hearing(post.kept)
    assert client.request("submit", id="m-1", prompt="ECHO hello") == {"id": "m-1"}
    ended = event_named(client, "ended")
    assert (ended["id"], ended["end"], ended["action"]) == ("m-1", "answered", "ack")
    found = stages(post.ended("m-1"))
    assert (found[:2], found[-1]) == (["accepted", "written"], "acked")
    assert not (post.folder / "inbox.jsonl").exists()


def test_submit_to_a_session_that_keeps_its_messages_is_refused(bench: Bench) -> None:
    client = bench.ready().kept.hello()
    with pytest.raises(InvalidOptions, match="inbox"):
        client.request("submit", id="m-1", prompt="hello")


def test_submit_by_a_client_that_only_reads_is_refused(bench: Bench) -> None:
    post = bench.ready(ephemeral=True, single_try=True)
    with pytest.raises(PermissionRefused):
        hearing(post.kept, read_only=True).request("submit", id="m-1", prompt="hello")


@pytest.mark.parametrize("args", [{}, {"id": "m-1"}, {"prompt": "x"}, {"id": 1, "prompt": "x"}])
def test_submit_without_prompt_or_id_is_refused(bench: Bench, args: dict[str, Any]) -> None:
    client = bench.ready(ephemeral=True, single_try=True).kept.hello()
    with pytest.raises(InvalidOptions, match="submit needs"):
        client.request("submit", **args)
