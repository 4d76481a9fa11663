"""An agent that speaks ACP as a session: receipts, permissions, cancel, resume, and hostile agents."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from remuda.errors import AlreadyAnswered, InvalidOptions
from support.acp_agent import PROGRAM, Stage, draft, shows
from support.attach import attach
from support.boss import KEPT, RunningBoss
from support.commands import Commands
from support.delivery import answer, attempts
from support.keeper import Process, Start, event_named, until
from support.messages import CHAIN, Post, stages, step
from support.tmux import Pane

_REPLY = '{"jsonrpc": "2.0", "id": 1, "result": '
_REFUSAL = '{"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "not today"}}'


@pytest.fixture
def stage(start: Start, tmp_path: Path) -> Stage:
    return Stage(start, tmp_path)


def type_keys(post: Post, keys: str) -> None:
    post.watcher.press(keys.encode())


# ── prompts ──


def test_message_goes_through_the_whole_chain(stage: Stage) -> None:
    post = stage.start()
    found = post.send("hello\nthere")
    assert stages(found) == CHAIN
    assert answer(found) == "ACP#1 to: hello\nthere"
    assert step(found, "written")["transport"] == "call"
    used = {
        "input_tokens": 10,
        "output_tokens": 3,
        "cache_read_input_tokens": 2,
        "cache_creation_input_tokens": 0,
    }
    assert step(found, "ended")["usage"] == used
    assert post.client.describe()["degraded"] == []
    shows(post, "> hello")
    shows(post, "ACP#1 to: hello")
    assert stage.runs() == ["hello\nthere"]


def test_line_of_a_user_is_a_prompt_and_messages_wait_for_its_turn(stage: Stage) -> None:
    post = stage.start()
    type_keys(post, "WAIT\r")
    shows(post, "waiting")
    message = post.put_held("hello", "the session is")
    type_keys(post, "\x03")
    assert answer(post.ended(message)) == "ACP#1 to: hello"
    assert stage.runs() == ["WAIT", "hello"]


def test_draft_of_a_user_survives_a_message(stage: Stage) -> None:
    post = stage.start(draft_patience=1.0)
    type_keys(post, "half a thought")
    until(lambda: draft(post) == "half a thought", "the draft")
    assert answer(post.send("hello")) == "ACP#1 to: hello"
    until(lambda: draft(post) == "half a thought", "the draft again")
    type_keys(post, "!\r")
    shows(post, "ACP#2 to: half a thought!")


def test_line_that_is_entered_during_a_turn_is_kept(stage: Stage) -> None:
    post = stage.start()
    post.put_until("WAIT", "submitted")
    type_keys(post, "later\r")
    shows(post, "a turn is running; your line was not sent, and is kept")
    until(lambda: draft(post) == "later", "the line")
    assert stage.runs() == ["WAIT"]


def test_prompt_counts_as_submitted_only_when_the_agent_reports_its_turn(stage: Stage) -> None:
    post = stage.start()
    message = post.put_held("SILENT", "has not reported anything about it yet")
    assert stages(post.trace(message)) == ["accepted", "written"]
    (stage.home / "go").touch()
    found = post.ended(message)
    assert (stages(found), answer(found)) == (CHAIN, "ACP#1 to: SILENT")
    assert stage.runs() == ["SILENT"]


def test_error_of_the_agent_is_the_reason_of_the_dead_letter(stage: Stage) -> None:
    found = stage.start().send("FAIL over a root")
    assert (step(found, "ended")["end"], found.stage) == ("failed", "dead")
    assert "the agent answered with an error: over a root" in found.reason
    assert stage.runs() == ["FAIL over a root"]


def test_answer_that_begins_as_an_error_is_degraded(stage: Stage) -> None:
    post = stage.start()
    found = post.send("SAY Error: 400 over a root")
    assert (found.stage, answer(found)) == ("acked", "Error: 400 over a root")
    (why,) = step(found, "ended")["degraded"]
    assert "may report an error of its service" in why
    assert "degraded" not in step(post.send("SAY no Error: 400"), "ended")


def test_command_of_the_agent_needs_the_flag(stage: Stage) -> None:
    post = stage.start()
    assert "would run the agent's own command" in post.send("/help").reason
    assert answer(post.send("/help", command=True)) == "ACP#1 to: /help"
    assert stage.runs() == ["/help"]


# ── cancel ──


@pytest.mark.parametrize("prompt", ["WAIT", "SILENT"])
def test_turn_is_interrupted_on_request(stage: Stage, prompt: str) -> None:
    post = stage.start()
    message = post.put(prompt)
    if prompt == "WAIT":
        post.reached(message, "submitted")
    else:
        post.held("has not reported anything about it yet")
    post.client.request("interrupt", id=message)
    found = post.ended(message)
    assert (step(found, "ended")["end"], found.reason) == ("interrupted", "interrupted on request")
    assert answer(post.send("next")) == "ACP#1 to: next"


def test_cancel_withdraws_an_open_permission_request(stage: Stage) -> None:
    post = stage.start()
    post.client.request("watch")
    message = post.put("RUN ls")
    ask = event_named(post.client, "ask", tool="execute")
    post.client.request("interrupt", id=message)
    assert event_named(post.client, "ask_ended")["id"] == ask["id"]
    assert step(post.ended(message), "ended")["end"] == "interrupted"


# ── permissions ──


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        ({"behavior": "allow"}, "done: yes"),
        ({"behavior": "allow", "always": True}, "done: ever"),
        ({"behavior": "deny"}, "done: no"),
    ],
)
def test_permission_is_decided_from_elsewhere(stage: Stage, decision: dict[str, object], said: str) -> None:
    post = stage.start()
    post.client.request("watch")
    message = post.put("RUN ls")
    ask = event_named(post.client, "ask", tool="execute")
    offered = ["Allow once", "Always allow", "Reject"]
    assert ask["input"] == {"title": "Run ls", "command": "ls", "offered": offered}
    assert [one["kind"] for one in ask["suggestions"]] == ["allow_once", "allow_always", "reject_once"]
    post.watcher.until("waiting_permission")
    post.client.request("answer", id=ask["id"], **decision)
    assert answer(post.ended(message)) == said
    shows(post, "from elsewhere")


def test_permission_is_decided_by_a_number_in_the_terminal(stage: Stage) -> None:
    post = stage.start(draft_patience=1.0)
    post.client.request("watch")
    type_keys(post, "my draft")
    until(lambda: draft(post) == "my draft", "the draft")
    message = post.put("RUN ls")
    ask = event_named(post.client, "ask", tool="execute")
    shows(post, "2  Always allow")
    until(lambda: draft(post) == "", "the draft put aside")
    type_keys(post, "7\r")
    shows(post, "type a number from 1 to 3")
    type_keys(post, "2\r")
    assert event_named(post.client, "ask_ended")["id"] == ask["id"]
    assert answer(post.ended(message)) == "done: ever"
    until(lambda: draft(post) == "my draft", "the draft again")
    with pytest.raises(AlreadyAnswered):
        post.client.request("answer", id=ask["id"], behavior="deny")


def test_several_options_of_a_kind_are_a_question_with_exactly_these_answers(stage: Stage) -> None:
    post = stage.start()
    post.client.request("watch")
    message = post.put("CHOOSE")
    ask = event_named(post.client, "ask", tool="choose")
    (question,) = ask["input"]["questions"]
    assert question["question"] == "Which colour?"
    assert [one["label"] for one in question["options"]] == ["Red", "Blue", "None of them"]
    wrong = {**ask["input"], "answers": {"Which colour?": "Green"}}
    with pytest.raises(InvalidOptions):
        post.client.request("answer", id=ask["id"], behavior="allow", input=wrong)
    chosen = {**ask["input"], "answers": {"Which colour?": "Blue"}}
    post.client.request("answer", id=ask["id"], behavior="allow", input=chosen)
    assert answer(post.ended(message)) == "chose b"


def test_files_are_not_offered_to_the_agent(stage: Stage) -> None:
    assert "no file: " in answer(stage.start().send("FILE /etc/hostname"))


# ── ends ──


def test_agent_that_dies_in_its_turn_ends_the_session_and_its_prompt_is_not_run_again(stage: Stage) -> None:
    post = stage.start()
    message = post.put_until("DIE", "submitted")
    (stage.home / "go").touch()
    found = post.ended(message)
    assert (found.stage, step(found, "ended")["end"]) == ("dead", "died")
    assert post.kept.keeper.ended()
    again = stage.start(resume=True)
    assert answer(again.send("hello")) == "ACP#1 to: hello"
    assert stage.runs() == ["DIE", "hello"]
    history = (post.kept.paths.history).read_bytes()
    assert b"the agent exited: exit:3" in history
    assert b"it broke" in history


@pytest.mark.parametrize("who", ["terminal", "agent", "keeper"])
def test_kill_before_the_agent_reported_anything_leaves_the_prompt_unrepeated(stage: Stage, who: str) -> None:
    post = stage.start()
    message = post.put_held("SILENT", "has not reported anything about it yet")
    terminal = Process(json.loads(post.kept.paths.record.read_text())["child_pid"])
    agent = Process(stage.pid())
    {"terminal": terminal, "agent": agent, "keeper": post.kept.keeper}[who].signal(signal.SIGKILL)
    assert post.kept.keeper.ended()
    for process in (terminal, agent):
        process.gone()
    found = stage.start(resume=True).ended(message)
    assert (found.stage, attempts(found)) == ("dead", [1])
    assert "before it was answered" in found.reason
    assert stage.runs() == ["SILENT"]


def test_prompt_that_never_reached_the_agent_is_sent_by_the_next_session(stage: Stage) -> None:
    post = stage.start()
    post.watcher.settled("idle")
    terminal = Process(json.loads(post.kept.paths.record.read_text())["child_pid"])
    terminal.signal(signal.SIGSTOP)
    message = post.put_until("hello", "written")
    terminal.signal(signal.SIGKILL)
    assert post.kept.keeper.ended()
    terminal.close()
    found = stage.start(resume=True).ended(message)
    assert (answer(found), attempts(found)) == ("ACP#1 to: hello", [1, 2])
    assert stage.runs() == ["hello"]


def test_session_ends_with_ctrl_d_and_leaves_no_agent(stage: Stage) -> None:
    post = stage.start()
    agent = Process(stage.pid())
    type_keys(post, "\x04")
    assert post.kept.keeper.ended()
    agent.gone()


# ── resume ──


def test_conversation_is_resumed_and_its_history_is_shown(stage: Stage) -> None:
    first = stage.start()
    assert answer(first.send("hello")) == "ACP#1 to: hello"
    first.client.request("kill")
    assert first.kept.keeper.ended()
    again = stage.start(resume=True)
    shows(again, "ACP#1 to: hello")
    assert answer(again.send("more")) == "ACP#2 to: more"


def test_agent_that_no_longer_offers_session_load_says_so(stage: Stage) -> None:
    first = stage.start()
    first.client.request("kill")
    assert first.kept.keeper.ended()
    again = stage.keep(load=False, resume=True)
    assert again.keeper.ended()
    assert b"it does not offer session/load" in again.paths.history.read_bytes()


def test_agent_without_session_load_cannot_be_resumed(remuda: Commands, stage: Stage) -> None:
    env = stage.environment(load=False)
    remuda("start", "work", "--detach", "--agent", "acp", "--", *PROGRAM, env=env)
    assert "ACP#1 to: hello" in remuda("send", "work", "hello", "--wait").out
    remuda("kill", "work")
    refused = remuda("start", "work", "--resume", "--detach", env=env, code=2)
    assert "cannot resume a conversation: it does not offer session/load" in refused.err


# ── an agent that misbehaves ──


def test_hostile_text_commands_no_terminal(stage: Stage) -> None:
    post = stage.start()
    found = post.send("HOSTILE")
    assert found.stage == "acked"
    shows(post, "after")
    assert post.client.describe()["title"] in (None, "")
    until(lambda: b" after" in post.kept.paths.history.read_bytes(), "the answer in the history")
    seen = post.kept.paths.history.read_bytes()
    assert b"owned" in seen
    for sequence in (b"\x1b]0;", b"\x1b[2J", b"\x1b[31m", b"\xc2\x9b", "\u202e".encode()):
        assert sequence not in seen


def test_what_is_not_a_message_is_shown_once_and_skipped(stage: Stage) -> None:
    post = stage.start()
    assert answer(post.send("GARBLE")) == "ACP#1 to: GARBLE"
    shows(post, "the agent printed what is not a message")


def test_message_without_an_end_ends_the_session_in_clear_words(stage: Stage) -> None:
    post = stage.start()
    found = post.send("LONG")
    assert found.stage == "dead"
    assert post.kept.keeper.ended()
    assert b"the agent sent a message of more than" in post.kept.paths.history.read_bytes()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo no key >&2; exit 4", "the agent exited before it was ready: exit:4 -- stderr: no key"),
        (f"read line; echo '{_REPLY}{{\"protocolVersion\": 7}}}}'; cat", "the agent speaks version 7 of ACP"),
        (f"read line; echo '{_REFUSAL}'; cat", "the agent refused initialize: not today"),
    ],
)
def test_agent_that_does_not_come_up_is_reported_in_clear_words(
    stage: Stage, script: str, words: str
) -> None:
    kept = stage.keep(program=["sh", "-c", script])
    assert kept.keeper.ended()
    assert words.encode() in kept.paths.history.read_bytes()


def test_command_that_is_not_there_is_named(remuda: Commands) -> None:
    assert (
        "no-such-agent: command not found"
        in remuda("start", "x", "--detach", "--agent", "acp", "--", "no-such-agent", code=127).err
    )


def test_agent_without_a_command_is_refused(remuda: Commands) -> None:
    assert "command" in remuda("start", "x", "--detach", "--agent", "acp", code=2).err


# ── the other faces ──


def test_attached_user_sees_the_history_and_types_a_line(remuda: Commands, stage: Stage, pane: Pane) -> None:
    env = stage.environment()
    remuda("start", "work", "--detach", "--agent", "acp", "--", *PROGRAM, env=env)
    remuda("send", "work", "hello", "--wait")
    attach(pane)
    pane.until(lambda lines: any("ACP#1 to: hello" in line for line in lines))
    pane.type("typed by hand\r")
    pane.until(lambda lines: any("ACP#2 to: typed by hand" in line for line in lines))
    remuda("kill", "work")


def test_request_is_in_the_queue_and_the_conversation_on_the_page(
    remuda: Commands, stage: Stage, home: Path
) -> None:
    with RunningBoss(home, (KEPT,)) as boss:
        remuda("start", "work", "--detach", "--agent", "acp", "--", *PROGRAM, env=stage.environment())
        remuda("send", "work", "RUN ls")
        (item,) = until(boss.waiting, "the request in the queue")
        assert (item["session"]["agent"], item["reason"]) == ("acp", "permission")
        shown = remuda("approvals", "--json").out
        assert "Always allow" in shown
        assert json.loads(shown)["approvals"][0]["refuses"].keys() == {"edit", "message"}
        edited = remuda("approve", "work", "--yes", "--edit", '{"command": "id"}', code=2)
        assert "cannot run an edited input" in edited.err
        remuda("approve", "work", "--yes", "--always")
        until(lambda: [one["reason"] for one in boss.waiting()] == ["stopped"], "its answer in the queue")
        remuda("send", "work", "CHOOSE")
        until(lambda: [one["reason"] for one in boss.waiting()] == ["question"], "the question in the queue")
        remuda("approve", "work", "--yes", "--answer", "1=Blue")
        until(lambda: "chose b" in remuda("show", "work").out, "the answer")
        entries = boss.ask("GET", f"/v1/sessions/{item['session']['id']}/conversation").json["entries"]
        kinds = [one["kind"] for one in entries]
        assert kinds[:3] == ["prompt", "tool_call", "notice"]
        assert "tool_result" in kinds
        assert "answer" in kinds
        remuda("kill", "work")


def test_records_are_removed_with_the_session(remuda: Commands, stage: Stage) -> None:
    remuda("start", "work", "--detach", "--agent", "acp", "--", *PROGRAM, env=stage.environment())
    remuda("send", "work", "hello", "--wait")
    remuda("kill", "work")
    records = remuda.sessions / "work.acp"
    assert [path.stat().st_mode & 0o777 for path in (records, *records.iterdir())] == [0o700, 0o600]
    for path in (records, *remuda.sessions.glob("work.*")):
        os.utime(path, (0, 0))
    remuda("clean", "--force")
    assert not records.exists()


def test_keeper_that_connects_again_gets_what_goes_on_and_a_wrong_secret_nothing(stage: Stage) -> None:
    post = stage.start()
    post.put("RUN ls")
    post.watcher.until("waiting_permission")
    record = json.loads(post.kept.paths.record.read_text())
    environment = Path(f"/proc/{record['child_pid']}/environ").read_bytes().split(b"\0")
    (secret,) = [one.split(b"=")[1].decode() for one in environment if one.startswith(b"REMUDA_ACP_SECRET=")]
    assert b"REMUDA_ACP_SECRET" not in Path(f"/proc/{stage.pid()}/environ").read_bytes()

    async def knock(secret: str, notes: int) -> list[str]:
        reader, writer = await asyncio.open_unix_connection(str(post.kept.paths.scratch / "s"))
        writer.write(json.dumps({"secret": secret}).encode() + b"\n")
        try:
            lines = [await reader.readline() for _ in range(notes)]
            return [json.loads(line)["note"] for line in lines if line]
        finally:
            writer.close()

    assert asyncio.run(knock(secret, 3)) == ["ready", "began", "asked"]
    assert asyncio.run(knock("guess", 1)) == []


@pytest.mark.parametrize("command", ["print", "ask"])
def test_print_is_refused_in_one_sentence(remuda: Commands, command: str) -> None:
    done = remuda(command, "--agent", "acp", "hello", code=2)
    assert "agent 'acp' cannot run without a person" in done.err
