"""The scripted agent on a real terminal: its text box, interrupts, prompts while it is busy, errors."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from remuda.testing.scripted_agent.probe import Probe
from support.agents import Start, texts

# --- the text box


@pytest.mark.parametrize(
    ("pasted", "submitted"),
    [
        ("one\ntwo", "one\ntwo"),
        ("tab\there", "tab    here"),
        ("crlf\r\ncr\rend", "crlf\ncr\nend"),
        ("trailing \n\n", "trailing"),
        ("  leading", "  leading"),
        ("a\u200bb\x00c\x07d", "abcd"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("日本語 👩‍💻 e\u0301", "日本語 👩‍💻 e\u0301"),
        ("\n!echo inert", "\n!echo inert"),
        ("/tmp/foo bar", "/tmp/foo bar"),
        ("x" * 100_000, "x" * 100_000),
        ("many words " * 90_000 + "end", "many words " * 90_000 + "end"),
    ],
)
def test_pasted_text_reaches_the_model_as_the_real_box_would_send_it(
    agent: Probe, pasted: str, submitted: str
) -> None:
    agent.paste(pasted)
    assert agent.wait_for_hook("UserPromptSubmit")["prompt"] == submitted
    agent.wait_for_hook("Stop")


def test_paste_end_inside_a_paste_breaks_out_and_runs_a_command(agent: Probe, project: Path) -> None:
    agent.type("\x1b[200~harmless\x1b[201~\x15!touch broke-out\r")
    agent.until((project / "broke-out").exists, "the command")
    assert agent.count("UserPromptSubmit") == 0


def test_pasted_bang_runs_a_shell_command_and_the_model_learns_it(agent: Probe, project: Path) -> None:
    agent.turn("!echo out > made; cat made")
    assert (project / "made").read_text() == "out\n"
    assert agent.count("UserPromptSubmit") == agent.count("PreToolUse") == 0
    told = texts(agent, "user")
    assert told == [
        "<bash-input>echo out > made; cat made</bash-input>",
        "<bash-stdout>out</bash-stdout><bash-stderr></bash-stderr>",
    ]


@pytest.mark.parametrize("text", ["/clear", " /clear", "\n/clear"])
def test_slash_command_is_live_after_blanks(agent: Probe, text: str) -> None:
    agent.turn("hello")
    first = agent.entry["sessionId"]
    agent.paste(text)
    started = agent.wait_for_hook("SessionStart", 2)
    assert started["source"] == "clear"
    assert "prompt_id" not in started
    assert started["session_id"] == agent.entry["sessionId"] != first
    assert agent.wait_for_hook("SessionEnd")["reason"] == "clear"
    agent.settle()
    agent.turn("again")
    assert "again" in texts(agent, "user", started["session_id"])
    assert "hello" not in texts(agent, "user", started["session_id"])


def test_unknown_command_is_not_sent(agent: Probe) -> None:
    agent.paste("/unknown foo")
    agent.terminal.wait_for(b"Unknown command: /unknown")
    assert agent.count("UserPromptSubmit") == 0


def test_mentioned_file_is_attached(agent: Probe, project: Path) -> None:
    (project / "note.txt").write_text("memo\n")
    agent.turn("see @note.txt please")
    attached = [line["attachment"] for line in agent.transcript() if line["type"] == "attachment"]
    assert [found["content"]["file"]["content"] for found in attached if found["type"] == "file"] == [
        "memo\n"
    ]


def test_stashed_draft_returns_after_the_next_prompt(agent: Probe) -> None:
    agent.type("draft")
    agent.type("\x13")
    agent.terminal.wait_for("› stashed".encode())
    agent.turn("job")
    agent.until(lambda: "❯\u00a0draft" in agent.screen(), "the draft")
    assert agent.wait_for_hook("UserPromptSubmit")["prompt"] == "job"


def test_draft_is_prepended_to_what_is_pasted(agent: Probe) -> None:
    agent.type("human draft ")
    agent.paste("JOB")
    assert agent.wait_for_hook("UserPromptSubmit")["prompt"] == "human draft JOB"


# --- interrupts


def test_escape_before_the_first_word_returns_the_prompt_to_the_box(agent: Probe) -> None:
    agent.paste("THINK 30 deep")
    agent.wait_for_hook("UserPromptSubmit")
    agent.until(lambda: "THINK 30 deep" in texts(agent, "user"), "the record")
    agent.type("\x1b")
    agent.settle()
    agent.until(lambda: "❯\u00a0THINK 30 deep" in agent.screen(), "the prompt in the box")
    agent.type("\x15")
    assert agent.turn("hello")["last_assistant_message"] == "REPLY#1 to: hello"
    prompts = [line for line in agent.transcript() if "promptSource" in line]
    assert [line["message"]["content"] for line in prompts] == ["THINK 30 deep", "hello"]
    assert prompts[1]["parentUuid"] == prompts[0]["parentUuid"], "as if it had never been said"


def test_escape_while_words_come_leaves_them_and_no_hook(agent: Probe) -> None:
    agent.paste("SLOW 20 words")
    agent.until(lambda: re.search(r"↓ [1-9]", agent.screen()), "the first words")
    agent.type("\x1b")
    agent.settle()
    lines = agent.transcript()
    (partial,) = [line for line in lines if line["type"] == "assistant"]
    assert partial["isAbortedMidStream"] is True
    assert partial["message"]["content"][0]["text"].startswith("word0 ")
    assert lines[-1]["message"]["content"] == [{"type": "text", "text": "[Request interrupted by user]"}]
    assert agent.count("Stop") == agent.count("StopFailure") == 0
    agent.until(lambda: agent.titles[-1] == "✳ Claude Code", "the idle title")


def test_escape_in_a_tool_kills_it(start: Start, project: Path) -> None:
    agent = start("--allowedTools", "Bash")
    agent.ready()
    agent.paste("RUNBASH echo $$ > pid; sleep 300")
    agent.until(lambda: (project / "pid").exists() and (project / "pid").read_text(), "the tool")
    pid = int((project / "pid").read_text())
    agent.type("\x1b")
    agent.settle()
    agent.until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the tool")
    assert texts(agent, "user")[-1] == "[Request interrupted by user for tool use]"
    assert agent.count("Stop") == agent.count("PostToolUse") == 0


# --- prompts while busy


def test_prompts_typed_during_an_answer_become_one_turn(agent: Probe) -> None:
    agent.paste("THINK 6 one")  # long enough for the hooks of two more prompts
    agent.wait_for_status("busy")
    agent.wait_for_hook("UserPromptSubmit")
    for prompt in ("two", "three"):
        agent.paste(prompt)
    agent.wait_for_hook("UserPromptSubmit", 3)
    assert agent.count("Stop") == 0
    assert agent.wait_for_hook("Stop", 2)["last_assistant_message"] == "REPLY#2 to: three"
    agent.settle()
    assert agent.count("Stop") == 2
    lines = agent.transcript()
    sources = {line["message"]["content"]: line["promptSource"] for line in lines if "promptSource" in line}
    assert sources == {"THINK 6 one": "typed", "two": "queued", "three": "queued"}
    operations = [line["operation"] for line in lines if line["type"] == "queue-operation"]
    assert operations == ["enqueue", "enqueue", "dequeue", "dequeue"]


def test_prompt_typed_during_a_tool_joins_the_running_turn(agent: Probe, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    agent.paste(f"RUNBASH cat {gate}")
    agent.wait_for_hook("PreToolUse")
    agent.wait_for_status("busy")
    agent.paste("inject me")
    agent.wait_for_hook("UserPromptSubmit", 2)
    gate.write_bytes(b"through\n")
    assert agent.wait_for_hook("Stop")["last_assistant_message"] == "REPLY#2 to: tool_result through"
    agent.settle()
    attached = [line["attachment"] for line in agent.transcript() if line["type"] == "attachment"]
    assert [found["prompt"] for found in attached] == ["inject me"]
    operations = [line["operation"] for line in agent.transcript() if line["type"] == "queue-operation"]
    assert operations == ["enqueue", "remove"]
    assert agent.count("Stop") == 1


# --- errors of the model


@pytest.mark.parametrize(
    ("prompt", "name", "text", "status"),
    [
        ("err 400", "unknown", "API Error: 400 fake error 400", 400),
        ("err 401", "authentication_failed", "Please run /login · API Error: 401 fake error 401", 401),
        ("err 429", "rate_limit", "API Error: Request rejected (429) · fake error 429", 429),
        ("err 529", "server_error", "API Error: Repeated 529 Overloaded errors.", 529),
        ("CUT 3", "server_error", "API Error: Connection to the API was lost (ECONNRESET).", None),
    ],
)
def test_api_error_ends_in_stop_failure(
    start: Start, prompt: str, name: str, text: str, status: int | None
) -> None:
    agent = start(env={"MOCK_TIME_SCALE": "0.01"})
    agent.ready()
    payload = agent.turn(prompt, "StopFailure")
    assert payload["error"] == name
    assert payload["last_assistant_message"].startswith(text)
    assert "permission_mode" not in payload
    (line,) = [line for line in agent.transcript() if line.get("isApiErrorMessage")]
    assert line["message"]["model"] == "<synthetic>"
    assert line.get("apiErrorStatus") == status
    assert agent.count("Stop") == 0


def test_rate_limit_counts_down_on_the_screen_and_escape_returns_the_prompt(agent: Probe) -> None:
    agent.paste("err 429")
    agent.terminal.wait_for("✻ 429 fake error 429 · Retrying in 1s · attempt 1/10".encode())
    agent.type("\x1b")
    agent.settle()
    agent.until(lambda: "❯\u00a0err 429" in agent.screen(), "the prompt in the box")
    assert agent.count("StopFailure") == 0


def test_max_retries_is_honoured(start: Start) -> None:
    agent = start(env={"MOCK_TIME_SCALE": "0.05", "CLAUDE_CODE_MAX_RETRIES": "2"})
    agent.ready()
    agent.turn("err 500", "StopFailure")
    agent.terminal.wait_for(b"attempt 2/2")
