"""The scenarios of claude-print's plan on the scripted agent: acceptance, its table, hangs, a human.

Where `claude -p` and the plan differ, `claude -p` is followed; where the plan names a mechanism that is not
ours (a FIFO, a thread), the property behind it is shown.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from remuda.keeper.client import KeeperClient
from remuda.wire.connection import ClientConnection
from support.counts import FLOOD
from support.floods import flood
from support.keeper import event_named, until
from support.print_calls import TAIL, Calls, HeldStart, transcripts, without_hooks, write_program

ANSWER = "REPLY#1 to: hello\n"


def arguments(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\0")[:-1]


# ── acceptance ──


def test_as_1_a_piped_prompt_is_answered_in_text(calls: Calls) -> None:
    done = calls(stdin=b"What is 2+2?")
    assert done.out == "REPLY#1 to: What is 2+2?\n"
    assert done.err == ""
    assert len(transcripts(calls)) == 1


def test_as_2_a_json_consumer_gets_one_object(calls: Calls) -> None:
    found = calls.json("What is the capital of France?")
    assert (found["type"], found["subtype"], found["is_error"]) == ("result", "success", False)
    assert found["result"]
    assert found["usage"]["input_tokens"] > 0
    assert found["claude_version"]
    assert found["backend"] == "terminal"


def test_as_3_a_worker_gets_a_session_id_and_a_transcript_in_its_folder(calls: Calls) -> None:
    found = calls.json("--model", "claude-sonnet-4-6", "--max-turns", "30", stdin=b"a bead's prompt")
    assert str(uuid.UUID(found["session_id"])) == found["session_id"]
    slug = re.sub(r"[^A-Za-z0-9]", "-", os.path.realpath(calls.remuda.cwd))
    assert (calls.home / ".claude" / "projects" / slug / f"{found['session_id']}.jsonl").exists()


def test_as_4_and_inv_6_the_entrypoint_is_what_the_agent_says_and_never_set_by_us(calls: Calls) -> None:
    found = calls.json("hello")
    said = {record["entrypoint"] for record in transcripts(calls)[0] if "entrypoint" in record}
    assert said == {found["entrypoint"]}
    assert "CLAUDE_CODE_ENTRYPOINT" not in (calls.home / "agent.env").read_text()


@pytest.mark.parametrize("words", [("--claude-binary", "/nonexistent"), ()])
def test_as_5_a_missing_agent_is_named(calls: Calls, words: tuple[str, ...]) -> None:
    env = {"PATH": "/nonexistent"}
    command = [sys.executable, "-m", "remuda", "print", *words, "hello"]
    outputs = []
    for form in ([], ["--output-format", "json"]):
        done = subprocess.run(
            [*command, *form], env={**calls.env, **env}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert (words[1] if words else "claude") in done.stdout + done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == ""
    found = json.loads(outputs[1])
    assert (found["is_error"], found["subtype"]) == (True, "internal_error")


def test_as_6_an_answer_that_is_written_down_late_is_found(calls: Calls) -> None:
    assert calls.json("hello", env={"MOCK_DELAY_JSONL": "150"})["result"] + "\n" == ANSWER


# ── the plan's integration table ──

RIGHT: dict[str, Mapping[str, str]] = {
    "defaults": {},
    "trust dialog": {"MOCK_TRUST_DIALOG": "1"},
    "trust dialog with yes first": {"MOCK_TRUST_DIALOG": "1", "MOCK_TRUST_WORDING": "old"},
    "trust dialog in other words": {"MOCK_TRUST_DIALOG": "1", "MOCK_TRUST_WORDING": "alternate"},
    "late transcript": {"MOCK_DELAY_JSONL": "100"},
    "no transcript_path": {"MOCK_OMIT_TRANSCRIPT_PATH": "1"},
    "no last_assistant_message": {"MOCK_OMIT_LAST_MESSAGE": "1"},
    "no last_assistant_message, late transcript": {
        "MOCK_OMIT_LAST_MESSAGE": "1",
        "MOCK_DELAY_JSONL": "200",
    },
    "no session_id and no cwd": {"MOCK_OMIT_SESSION_ID": "1", "MOCK_OMIT_CWD": "1"},
    "unknown probe": {"MOCK_UNKNOWN_PROBE": "1"},
    "unknown event type": {"MOCK_UNKNOWN_EVENT_TYPE": "1"},
    "unknown usage fields": {"MOCK_UNKNOWN_USAGE_FIELDS": "1"},
    "late Stop": {"MOCK_DELAY_STOP": "300"},
    "more Stops than one": {"MOCK_EXTRA_STOPS": "2"},
    "a Stop before there was a prompt": {"MOCK_STOP_BEFORE_INJECT": "1"},
    "not one byte on the terminal": {"MOCK_SILENT": "1"},
}


@pytest.mark.parametrize("env", RIGHT.values(), ids=RIGHT)
def test_whatever_the_agent_leaves_out_or_adds_the_answer_is_right(
    calls: Calls, env: Mapping[str, str]
) -> None:
    found = calls.json("hello", env=env)
    assert found["result"] + "\n" == ANSWER
    assert (found["num_turns"], found["usage"]["input_tokens"]) == (1, 12)
    calls.assert_nothing_left()


def test_several_answers_to_one_prompt_the_last_is_reported_and_all_are_counted(calls: Calls) -> None:
    found = calls.json("hello", env={"MOCK_TURNS": "3"})
    assert found["result"].startswith("REPLY#3")
    assert found["usage"]["input_tokens"] == 36


@pytest.mark.parametrize(("form", "is_read"), [("text", False), ("json", True)])
def test_a_text_is_printed_when_the_agent_has_shown_and_said_it(
    calls: Calls, form: str, is_read: bool
) -> None:
    """Nothing of what is written down is waited for, where nothing of it is printed."""
    text = "  an answer \n\nwith blanks  \n"
    env = {"MOCK_RESPONSE": text, "MOCK_DELAY_JSONL": "0" if is_read else "600000"}

    def reads() -> bool:
        code, out, err = calls.begin("--output-format", form, "hello", env=env).ended()
        assert (code, json.loads(out)["result"] if is_read else out) == (0, text)
        calls.assert_nothing_left()
        return "acked" in err

    # On a busy machine the turn may be over before the command comes to look at the answer.
    assert reads() if is_read else any(not reads() for _ in range(4))


def test_where_a_hook_of_the_user_may_send_the_agent_on_a_text_waits_for_its_end(calls: Calls) -> None:
    settings = calls.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    hook = {"type": "command", "command": "true"}
    settings.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}}))
    code, out, err = calls.begin("hello").ended()
    assert (code, out) == (0, ANSWER)
    assert "acked" in err


def test_an_answer_without_a_transcript_comes_from_the_hook(calls: Calls) -> None:
    assert calls("hello", env={"MOCK_WRITE_DERIVED_JSONL": "0"}).out == ANSWER


def test_the_answer_of_the_environment_is_the_answer(calls: Calls) -> None:
    assert calls("hello", env={"MOCK_RESPONSE": "forty-two"}).out == "forty-two\n"


def test_stream_json_is_one_object_a_line_up_to_the_result(calls: Calls) -> None:
    """INV-8: all of it is printed before the call ends."""
    lines = calls("hello", "--output-format", "stream-json", "--verbose").out.splitlines()
    messages = [json.loads(line) for line in lines]
    assert [one["type"] for one in messages] == ["system", "assistant", "result"]
    assert messages[-1]["result"] + "\n" == ANSWER


def test_without_the_users_hooks_only_ours_fire(calls: Calls) -> None:
    fired = calls.home / "fired"
    settings = calls.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    hook = {"type": "command", "command": f"touch {fired}"}
    settings.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}}))
    record = calls.home / "arguments"

    calls("hello", "--no-inherit-hooks", env={"MOCK_RECORD_ARGS": str(record)})
    assert not fired.exists()
    assert "--setting-sources=" in arguments(record)
    calls("hello", env={"MOCK_RECORD_ARGS": str(record)})
    assert fired.exists()
    assert not any(word.startswith("--setting-sources") for word in arguments(record))
    assert "--settings" in arguments(record)


# ── INV-7: exit codes ──


def test_inv_7_every_end_has_its_exit_code(calls: Calls) -> None:
    """The plan's table; 4 for a wrong input."""
    assert calls("err 400", code=1).out == "API Error: 400 fake error 400\n"
    found = calls.json("RUNBASH true", "--allowedTools", "Bash", "--max-turns", "1", code=1)
    assert found["subtype"] == "error_max_turns"
    gone = calls("hello", code=2, env={"MOCK_EXIT_BEFORE_STOP": "1"})
    assert "the agent exited" in gone.err
    unknown = calls("hello", code=2, env={"MOCK_TRUST_DIALOG": "1", "MOCK_TRUST_WORDING": "unresolvable"})
    assert "How shall this folder be opened, with which permission?" in unknown.err
    assert "--pretrust-cwd" in unknown.err
    calls.hangs("THINK 600 x", on="s: the agent is thinking")
    calls.assert_nothing_left()


def test_a_stop_that_never_comes_is_a_timeout_of_its_own_name(calls: Calls) -> None:
    found = calls.json("hello", "--stop-hook-timeout", "1", code=124, env={"MOCK_DELAY_STOP": "99999"})
    assert found["subtype"] == "timeout"
    assert found["error_message"] == (
        "--stop-hook-timeout: the turn has ended, but no Stop hook came within 1 s"
    )
    calls.assert_nothing_left()


# ── what it hangs on ──


def test_a_hang_is_named_a_tool(calls: Calls) -> None:
    calls.hangs(f"RUNBASH {TAIL}", "--allowedTools", "Bash", on="s: a tool is running: PreToolUse Bash")
    calls.assert_nothing_left()


def test_a_hang_is_named_the_api_that_is_tried_again(calls: Calls) -> None:
    calls.hangs("err 500", on="the agent is retrying the API, attempt 1 of", env={"MOCK_TIME_SCALE": "100"})


def test_a_dialog_that_no_hook_reports_is_refused_with_its_text(calls: Calls) -> None:
    env = {"MOCK_AUTO_MODE_DIALOG": "1"}
    done = calls("RUNBASH touch made", "--permission-mode", "auto", code=2, env=env)
    assert "a one-shot run cannot answer" in done.err
    assert "Auto mode can" in done.err
    calls.assert_nothing_left()


# ── hooks that do not reach us ──


@pytest.mark.parametrize("answers", [False, True], ids=["dead", "starved"])
def test_permission_whose_hook_does_not_reach_us_ends_the_call_and_is_not_given(
    calls: Calls, answers: bool
) -> None:
    """Starved: connections are accepted, and closed at once."""
    made = calls.home / "made"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if not answers:
            listener.close()
        else:
            threading.Thread(target=_hang_up, args=(listener,), daemon=True).start()
        calls.binary = without_hooks(calls.home, calls.binary, port)
        done = calls(f"RUNBASH touch {made}", code=2)
        if answers:
            listener.shutdown(socket.SHUT_RDWR)
    assert "a one-shot run cannot answer" in done.err
    assert "Do you want to proceed?" in done.err
    assert "no hook reported it" in done.err
    assert not made.exists()
    calls.assert_nothing_left()


@pytest.mark.soak
def test_permission_is_refused_while_another_user_floods_the_hook_port(calls: Calls) -> None:
    made = calls.home / "made"
    held = HeldStart(calls.home, calls.binary)
    calls.binary = held.binary
    call = calls.begin("--output-format", "json", f"RUNBASH touch {made}")
    with flood(held.port(), FLOOD):
        held.let_go()
        code, out, err = call.ended()
    assert code == 0, err
    assert json.loads(out)["permission_denials"][0]["tool_name"] == "Bash"
    assert not made.exists()
    calls.assert_nothing_left()


def _hang_up(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            listener.accept()[0].close()


# ── a human next to it ──


def test_a_permission_that_is_asked_for_can_be_given_by_who_attaches(calls: Calls) -> None:
    made = calls.home / "made"
    call = calls.begin("--ask", f"RUNBASH touch {made}", env={"MOCK_DIALOG_GUARD": "0"}).until("submitted")
    with KeeperClient.connect(call.name, calls.sessions) as human:
        found = human.request("watch")
        if found["state"] != "waiting_permission":
            event_named(human, "state", state="waiting_permission")
        until(lambda: "Do you want to proceed?" in "\n".join(human.request("screen")["lines"]), "the dialog")
        human.send(ClientConnection.input(b"1"))
        code, out, _ = call.ended()
    assert (code, out) == (0, "REPLY#2 to: tool_result (Bash completed with no output)\n")
    assert made.exists()
    calls.assert_nothing_left()


def test_without_a_human_a_permission_is_refused_and_reported(calls: Calls) -> None:
    made = calls.home / "made"
    found = calls.json(f"RUNBASH touch {made}")
    assert found["permission_denials"][0]["tool_name"] == "Bash"
    assert not made.exists()


def test_the_tool_that_asks_a_human_is_there_only_with_one(calls: Calls) -> None:
    for words, has_it in ((), False), (("--ask",), True):
        record = calls.home / "arguments"
        calls(*words, "hello", env={"MOCK_RECORD_ARGS": str(record)})
        assert ("--disallowedTools=AskUserQuestion" not in arguments(record)) is has_it


def test_a_permission_that_no_one_gives_is_named_when_time_is_up(calls: Calls) -> None:
    said = calls.hangs("--ask", "RUNBASH touch made", on="a dialog is open")
    assert "Do you want to proceed? / ❯ 1. Yes" in said


def test_a_kept_session_goes_on(calls: Calls) -> None:
    done = calls("--keep", "--max-turns", "1", "--output-format", "json", "hello")
    name = json.loads(done.out)["session"]
    assert f"the session is still running: remuda attach {name}" in done.err
    answered = calls.remuda("send", name, "and again", "--wait").out
    assert "REPLY#2 to: and again" in answered
    # What held for the call does not hold for those who go on.
    calls.remuda("send", name, "RUNBASH touch made")
    with KeeperClient.connect(name, calls.sessions) as human:
        if human.request("watch")["state"] != "waiting_permission":
            event_named(human, "state", state="waiting_permission")
    calls.remuda("kill", name)


def test_the_agents_screen_is_shown_when_time_is_up(calls: Calls) -> None:
    said = calls.hangs("--show-child-output", "THINK 600 x", on="❯ THINK 600 x")
    assert "----- the agent's terminal (--timeout) -----" in said


def test_what_the_agent_said_last_is_shown_when_it_is_gone(calls: Calls) -> None:
    write_program(calls.binary, "#!/bin/sh\nprintf '\\033[31mno licence\\033[0m\\n'; sleep 1; exit 3\n")
    done = calls("--show-child-output", "hello", code=2)
    assert "the agent exited" in done.err
    assert "(the agent exited) -----\nno licence\n" in done.err
