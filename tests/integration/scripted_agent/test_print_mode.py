"""The scripted agent with `-p`: what it prints, and its stream of messages in and out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from remuda.testing.scripted_agent.probe import SCRIPTED

STREAM = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")


def user(text: str, command: str) -> dict[str, Any]:
    return {"type": "user", "uuid": command, "message": {"role": "user", "content": text}}


def control(subtype: str, **fields: object) -> dict[str, Any]:
    return {"type": "control_request", "request_id": subtype, "request": {"subtype": subtype, **fields}}


def run(home: Path, *flags: str, stdin: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SCRIPTED, *flags], input=stdin, capture_output=True, text=True, cwd=home, env={"HOME": str(home)}
    )


def talk(home: Path, *messages: dict[str, Any], flags: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    done = run(home, *STREAM, *flags, stdin="".join(json.dumps(message) + "\n" for message in messages))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def kinds(messages: list[dict[str, Any]]) -> list[str]:
    return [str(message.get("subtype", message["type"])) for message in messages]


def test_text_and_json_print_the_result_alone(home: Path) -> None:
    assert run(home, "-p", "hello", stdin="").stdout == "REPLY#1 to: hello\n"
    printed = json.loads(run(home, "-p", "--output-format", "json", stdin="hello").stdout)
    assert printed["result"] == "REPLY#1 to: hello"


def test_stream_reports_a_turn_in_the_order_of_the_real_program(home: Path) -> None:
    messages = talk(home, control("initialize"), user("hello", "u1"), flags=("--include-partial-messages",))
    assert kinds(messages) == [
        "control_response",
        "command_lifecycle",
        "command_lifecycle",
        "init",
        "status",
        "stream_event",
        "assistant",
        "stream_event",
        "success",
        "command_lifecycle",
    ]
    assert messages[-2]["user_message_uuid"] == "u1"


def test_clear_begins_another_conversation(home: Path) -> None:
    messages = talk(home, user("one", "u1"), user("/clear", "u2"), user("two", "u3"))
    results = [message for message in messages if message["type"] == "result"]
    assert [result["result"] for result in results] == ["REPLY#1 to: one", "", "REPLY#1 to: two"]
    assert results[0]["session_id"] != results[1]["session_id"] == results[2]["session_id"]
    assert "conversation_reset" in kinds(messages)


def test_interrupt_after_a_prompt_cancels_it(home: Path) -> None:
    messages = talk(home, user("SLOW 60", "u1"), control("interrupt", cancel_queued=True))
    assert "result" not in [message["type"] for message in messages]
    assert messages[-1]["response"]["response"]["cancelled"] == ["u1"]


def test_unknown_control_request_is_refused(home: Path) -> None:
    assert talk(home, control("frobnicate"))[0]["response"]["subtype"] == "error"


def test_line_that_is_no_json_ends_it(home: Path) -> None:
    done = run(home, *STREAM, stdin="junk\n")
    assert done.returncode == 1
    assert "Error parsing streaming input line" in done.stderr


def test_task_in_the_background_wakes_it(home: Path) -> None:
    call = {"name": "Bash", "input": {"command": "true", "run_in_background": True}}
    messages = talk(home, user(f"TOOL {json.dumps(call)}", "u1"), flags=("--allowedTools", "Bash"))
    results = [message for message in messages if message["type"] == "result"]
    assert len(results) == 2
    assert results[1]["origin"]["kind"] == "task-notification"
    tasks = [message["tasks"] for message in messages if message.get("subtype") == "background_tasks_changed"]
    assert [len(listed) for listed in tasks] == [1, 0]
