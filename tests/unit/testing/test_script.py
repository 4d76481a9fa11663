"""The language of prompts that the loopback model and the scripted agent share."""

from __future__ import annotations

import pytest

from remuda.testing.script import (
    Cut,
    Fail,
    Reply,
    Step,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
    filler,
    paced,
    reply_to,
)

BASH = ToolUse("Bash", {"command": "touch a; echo 'b c'", "description": "Run a command"})
READ = ToolUse("Read", {"file_path": "/etc/hosts"})


@pytest.mark.parametrize(
    ("prompt", "steps"),
    [
        ("hello", (Text("REPLY#3 to: hello"),)),
        ("  two\nlines \n", (Text("REPLY#3 to: two lines"),)),
        ("RUNBASH touch a; echo 'b c'", (Text("running"), BASH)),
        ("Stop hook feedback:\nRUNBASH touch a; echo 'b c'", (Text("running"), BASH)),
        ('TOOL {"name": "Read", "input": {"file_path": "/etc/hosts"}}', (Text("using tool"), READ)),
        (
            'TOOLS [{"name": "A", "id": "t1"}, {"name": "B"}]',
            (Text("using tool"), ToolUse("A", {}, "t1"), ToolUse("B", {})),
        ),
        ("SLOW 2.5 stream", (Text(filler(40), 2.5),)),
        ("THINK 1.5 hello", (Thinking("let me think about it", 1.5), Text("REPLY#3 to: THINK 1.5 hello"))),
        ("err 400", (Fail(400, "invalid_request_error", "fake error 400"),)),
        ("err 401", (Fail(401, "authentication_error", "fake error 401"),)),
        ("err 429", (Fail(429, "rate_limit_error", "fake error 429", {"retry-after": "1"}),)),
        ("err 429 30", (Fail(429, "rate_limit_error", "fake error 429", {"retry-after": "30"}),)),
        ("err 529", (Fail(529, "overloaded_error", "fake error 529"),)),
        ("err 502", (Fail(502, "api_error", "fake error 502"),)),
        ("CUT here", (Cut(5),)),
        ("CUT 2 here", (Cut(2),)),
        ("BIG 10", (Text("big big bi"),)),
        ("LINES 3", (Text("line 1\nline 2\nline 3"),)),
        ("EMPTY", ()),
    ],
)
def test_reply_to_prompt_gives_steps(prompt: str, steps: tuple[Step, ...]) -> None:
    assert reply_to(prompt, 3).steps == steps


@pytest.mark.parametrize(
    "prompt",
    [
        "RUNBASH",
        "SLOW soon",
        "THINK",
        "err 4000",
        "err out",
        "BIG x",
        "EMPTY it",
        "runbash ls",
        "say RUNBASH ls",
    ],
)
def test_reply_to_almost_an_order_echoes_it(prompt: str) -> None:
    assert reply_to(prompt, 1) == Reply.of(f"REPLY#1 to: {prompt}")


@pytest.mark.parametrize(
    "prompt", ["TOOL {", "TOOL 1", 'TOOL {"input": {}}', 'TOOLS {"name": "A"}', "TOOLS 7"]
)
def test_reply_to_unreadable_tool_fails_aloud(prompt: str) -> None:
    (step,) = reply_to(prompt, 1).steps
    assert isinstance(step, Fail)
    assert step.status == 400
    assert prompt.split()[0] in step.message


def test_reply_to_tool_result_quotes_its_beginning() -> None:
    assert reply_to(ToolResult("hi\n" + "x" * 100), 4) == Reply.of("REPLY#4 to: tool_result hi " + "x" * 57)


def test_reply_to_tool_result_never_takes_orders() -> None:
    assert reply_to(ToolResult("RUNBASH rm"), 1) == Reply.of("REPLY#1 to: tool_result RUNBASH rm")


def test_reply_to_long_prompt_bounds_the_echo() -> None:
    assert reply_to("y" * 1_000_000, 1) == Reply.of("REPLY#1 to: " + "y" * 200)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply.of("done"), "end_turn"),
        (Reply.of("look", READ), "tool_use"),
        (Reply((Text("cut short"),), stop_reason="max_tokens"), "max_tokens"),
        (Reply(usage=Usage(output_tokens=0)), "end_turn"),
    ],
)
def test_reply_stop_reason_follows_from_steps_unless_given(reply: Reply, reason: str) -> None:
    assert reply.stop_reason == reason


@pytest.mark.parametrize("text", ["one two  three\n\nfour ", " lead", "", "   "])
def test_paced_pieces_keep_text_and_time(text: str) -> None:
    pieces = list(paced(text, 2.0))
    assert "".join(piece for _, piece in pieces) == text
    assert sum(wait for wait, _ in pieces) == pytest.approx(2.0)


def test_paced_without_time_is_one_piece() -> None:
    assert list(paced("one two", 0)) == [(0, "one two")]
