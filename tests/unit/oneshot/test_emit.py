"""What a call prints, byte for byte, to a pipe and to a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from typing import Any

import pytest

from remuda.agents.claude.print.print_messages import TranscriptMessages
from remuda.agents.headless import TurnEnd
from remuda.oneshot.emitter import Emitter
from remuda.oneshot.print_request import parse

STREAM = ["--output-format", "stream-json", "--verbose"]
PROMPT = {"type": "user", "uuid": "u0", "sessionId": "s", "cwd": "/w", "message": {"content": "hello"}}
MODEL = {"type": "attachment", "attachment": {"identity": {"modelId": "opus"}}}


def said(text: str, number: str = "m1") -> dict[str, Any]:
    message = {"id": number, "model": "opus", "content": [{"type": "text", "text": text}], "usage": {}}
    return {"type": "assistant", "sessionId": "s", "message": message}


def play(*records: dict[str, Any], words: list[str], shown: tuple[str, ...] = ()) -> Emitter:
    request = parse(words)
    emitter = Emitter(request)
    turn = TranscriptMessages(
        emitter.emit if emitter.wants_messages else None, partial=request.partial_messages
    )
    for text in shown:
        turn.shown(text)
    for record in records:
        turn.take(record)
    turn.result(TurnEnd(), 1, "terminal")
    emitter.terminal_result({"type": "result", "result": turn.facts.text, "modelUsage": {}})
    return emitter


def printed(capfdbinary: pytest.CaptureFixture[bytes]) -> list[Any]:
    return [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        ({"result": "yes"}, b"yes\n"),
        ({"result": "yes\n"}, b"yes\n"),
        ({"result": "\n yes \n\n"}, b"\n yes \n\n"),
        ({"result": ""}, b"\n"),
        ({"result": "Grüße 日本 😀"}, "Grüße 日本 😀\n".encode()),
        ({"result": "half \ud83d a pair"}, "half \ufffd a pair\n".encode()),
        ({"result": "\x1b[31mred\x07\x9b1m"}, "\x1b[31mred\x07\x9b1m\n".encode()),
        (
            {"subtype": "error_max_turns", "errors": ["Reached maximum number of turns (2)"]},
            b"Error: Reached max turns (2)",
        ),
        (
            {"subtype": "error_max_budget_usd", "errors": ["Reached maximum budget ($0.5)"]},
            b"Error: Exceeded USD budget (0.5)",
        ),
        ({"subtype": "error_during_execution", "errors": ["a", "b"]}, b"a\nb\n"),
    ],
)
def test_text_in_a_pipe_is_the_answer_and_nothing_else(
    document: dict[str, Any], wanted: bytes, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    Emitter(parse([])).result(document)
    assert capfdbinary.readouterr().out == wanted


def test_json_is_one_line_of_utf8_in_any_locale() -> None:
    code = (
        "from remuda.oneshot.emitter import Emitter; from remuda.oneshot.print_request import parse;"
        "Emitter(parse(['-o', 'json'])).result({'result': '\\xfc \\U0001f600 \\ud800'})"
    )
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env, check=True)
    assert done.stdout == '{"result":"ü 😀 \ufffd"}\n'.encode()


NASTY = [
    "\x1b[2J\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07\x1b]52;c;AAAA\x1b\\",
    "\x1bP+q\x1b\\ \x1bc \x1b(0 \x1b",
    "\x07\x08\r\x00\x7f\x0e\x0f",
    "\x9b31m\x9d0;t\x9c \x85",
    "\x1b[200~paste\x1b[201~",
]


def test_text_on_a_terminal_has_no_escape_sequences_and_no_control_characters() -> None:
    answer = "".join(NASTY) + "plain\ttext ü\n"
    code = (
        "import sys; from remuda.oneshot.emitter import Emitter;"
        "from remuda.oneshot.print_request import parse;"
        "Emitter(parse([])).result({'result': sys.argv[1].encode().decode('unicode_escape')})"
    )
    escaped = answer.encode("unicode_escape").decode()
    master, slave = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", code, escaped], stdout=slave)
    os.close(slave)
    seen = b""
    with contextlib.suppress(OSError):  # a terminal's end is an error on Linux
        while piece := os.read(master, 4096):
            seen += piece
    os.close(master)
    assert process.wait(30) == 0
    shown = seen.decode().replace("\r\n", "\n")  # the terminal's own carriage returns
    assert shown.endswith("plain\ttext ü\n")
    assert [one for one in shown if (ord(one) < 32 and one not in "\n\t") or 127 <= ord(one) < 160] == []
    assert "[31m" not in shown
    assert "title" not in shown


def test_messages_come_live_and_init_first_with_the_model(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    emitter = Emitter(parse(STREAM))
    turn = TranscriptMessages(emitter.emit)
    for record, wanted in [(PROMPT, []), (MODEL, ["system"]), (said("yes"), ["assistant"])]:
        turn.take(record)
        messages = printed(capfdbinary)
        assert [message["type"] for message in messages] == wanted
        if wanted == ["system"]:
            assert (messages[0]["model"], messages[0]["cwd"]) == ("opus", "/w")
    emitter.terminal_result({"type": "result", "modelUsage": {"opus": {}}})
    (result,) = printed(capfdbinary)
    assert result["model_usage_since_last_result"] == result["modelUsage"]


def test_json_prints_the_result_alone_and_with_verbose_all_in_one_list(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    play(PROMPT, said("yes"), words=["-o", "json"])
    assert printed(capfdbinary) == [{"type": "result", "result": "yes", "modelUsage": {}}]
    play(PROMPT, said("yes"), words=["-o", "json", "--verbose"])
    ((init, message, result),) = printed(capfdbinary)
    assert [one["type"] for one in (init, message, result)] == ["system", "assistant", "result"]


def test_parts_of_messages_come_after_init_and_before_their_message(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    words = [*STREAM, "--include-partial-messages"]
    play(PROMPT, said("one\ntwo"), said("three", "m2"), words=words, shown=("one\n",))
    messages = printed(capfdbinary)
    kinds = ["system", "stream_event", "stream_event", "assistant", "stream_event", "assistant", "result"]
    assert [message["type"] for message in messages] == kinds
    deltas = [one["event"]["delta"]["text"] for one in messages if one["type"] == "stream_event"]
    assert deltas == ["one\n", "two", "three"]


def test_results_of_the_stream_are_passed_on_and_say_what_ran(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """What was left in the background wakes the agent again: then `claude -p` has two results."""
    first, last = ({"type": "result", "result": text} for text in ("one", "two\n"))
    added = {"backend": "stream", "entrypoint": "sdk-cli", "claude_version": None, "cost_usd": 0}
    ours = [{**first, **added}, {**last, **added}]
    since: dict[str, Any] = {"model_usage_since_last_result": {}}
    for words, wanted in (
        (["-o", "json"], [ours[1]]),
        (["-o", "json", "--verbose"], [ours]),
        (STREAM, [{**one, **since} for one in ours]),
    ):
        emitter = Emitter(parse(words))
        emitter.message({**first, **since})
        emitter.message({**last, **since})
        emitter.stream_end()
        assert printed(capfdbinary) == wanted
    emitter = Emitter(parse([]))
    emitter.message(first)
    emitter.message(last)
    emitter.stream_end()
    assert capfdbinary.readouterr().out == b"one\n\ntwo\n"


def test_an_error_is_one_object_in_json_and_one_line_on_standard_error_in_text(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    document = {"type": "result", "error_message": "too long"}
    Emitter(parse([])).error(document)
    assert capfdbinary.readouterr() == (b"", b"remuda print: too long\n")
    for words in (["-o", "json"], STREAM):
        Emitter(parse(words)).error(document)
        assert printed(capfdbinary) == [{**document, "claude_version": None}]
