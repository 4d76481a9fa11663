"""`remuda print` next to `claude -p`: the same script of the model, on both backends, in every format.

What differs is in one table, `print_differences`, and nothing else may differ; a difference that has gone
must leave the table. docs/reference/print.md shows the same table.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remuda.testing.loopback_model import LoopbackModel, Request
from remuda.testing.real_cli import PINNED, VERSION, RealCli
from remuda.testing.script import Reply, Thinking, ToolUse
from support.json_differences import Message, differences
from support.print_differences import STREAM, TERMINAL, of_older

PATIENCE = 100.0
BACKENDS = ("terminal", "stream")
UNICODE = "Grüße, 日本語, 👩‍🔬 e\u0301 \u202fﷺ"
NOTHING: Mapping[str, str] = {}
STREAM_JSON = ("--output-format", "stream-json", "--verbose")


class Done(NamedTuple):
    code: int
    out: bytes
    err: bytes

    @property
    def messages(self) -> list[Message]:
        return [json.loads(line) for line in self.out.splitlines()]


class Bench:
    """Runs both programs in one project, against one model."""

    def __init__(self, cli: RealCli, model: LoopbackModel, home: Path) -> None:
        self.cli = cli
        self.model = model
        mark = {name: os.environ[name] for name in os.environ if name in ("REMUDA_TEST_RUN", "PYTHONPATH")}
        self._env = {**cli.env, **mark, "REMUDA_HOME": str(home), "CLAUDE_CODE_MAX_RETRIES": "0"}

    def claude(self, *words: str, given: bytes | None = None, env: Mapping[str, str] = NOTHING) -> Done:
        return self._run([*self.cli.argv(), "-p", *words], given, env)

    def remuda(self, *words: str, given: bytes | None = None, env: Mapping[str, str] = NOTHING) -> Done:
        command = [sys.executable, "-m", "remuda", "print", "--claude-binary", self.cli.argv()[0]]
        return self._run([*command, *words], given, env)

    def _run(self, argv: list[str], given: bytes | None, env: Mapping[str, str]) -> Done:
        done = subprocess.run(
            argv,
            input=given or b"",
            capture_output=True,
            cwd=self.cli.project,
            env={**self._env, **env},
            timeout=PATIENCE,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def all(
        self,
        *words: str,
        given: bytes | None = None,
        env: Mapping[str, str] = NOTHING,
        backends: tuple[str, ...] = BACKENDS,
    ) -> dict[str, Done]:
        """What `claude -p` and the backends make of the same words."""
        with ThreadPoolExecutor(2) as pool:
            calls = {"claude": pool.submit(self.claude, *words, given=given, env=env)}
            for backend in backends:
                more = ("--backend", backend)
                calls[backend] = pool.submit(self.remuda, *more, *words, given=given, env=env)
            return {name: call.result() for name, call in calls.items()}


@pytest.fixture
def bench(cli: RealCli, model: LoopbackModel, home: Path) -> Bench:
    return Bench(cli, model, home)


# ── what the model says ──


def _bash(command: str, number: int) -> ToolUse:
    return ToolUse("Bash", {"command": command, "description": "x"}, f"toolu_{number}")


def _work(request: Request, _n: int) -> Reply:
    """Several turns: thinking, text, tools allowed and refused, two of them at once, several texts."""
    steps = [
        Reply.of(Thinking("hm"), "I look.", _bash("echo one", 1)),
        Reply.of(_bash("touch made", 2)),
        Reply.of("Both.", _bash("echo two", 3), _bash("false", 4), "And now?"),
    ]
    turn = sum(message["role"] == "assistant" for message in request.body["messages"])
    return steps[turn] if turn < len(steps) else Reply.of("first", Thinking("x"), f"{UNICODE} \n\n")


def _is_work(request: Request) -> bool:
    return bool(request.is_main and "WORK" in json.dumps(request.body["messages"][0]))


ALLOWED = ("--allowedTools", "Bash(echo:*)", "Bash(false)")


class Case(NamedTuple):
    words: tuple[str, ...]
    code: int
    groups: tuple[str, ...]
    """Which parts of the table apply on the terminal, next to those that always do."""
    env: Mapping[str, str] = NOTHING


ANSWERED = ("message", "model", "timing")
_BLOCK_ONCE = """grep -q '"stop_hook_active":true' || echo '{"decision": "block", "reason": "more"}'"""
BLOCKING = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": _BLOCK_ONCE}]}]}})
CASES = {
    "work": Case(("WORK", *ALLOWED), 0, (*ANSWERED, "thinking", "denied")),
    "max turns": Case(("WORK", *ALLOWED, "--max-turns", "1"), 1, ("message", "model", "thinking")),
    "200 KB": Case(("BIG 200000",), 0, ANSWERED),
    "no content": Case(("EMPTY",), 0, (*ANSWERED, "empty")),
    "Stop hook": Case(("hello", "--settings", BLOCKING), 0, (*ANSWERED, "stop hook")),
    "400": Case(("err 400",), 1, ()),
    "401": Case(("err 401",), 1, ("401",)),
    "429": Case(("err 429",), 1, ()),
    "529, tried again": Case(("err 529",), 1, ("retry",), {"CLAUDE_CODE_MAX_RETRIES": "1"}),
}


def expected(groups: tuple[str, ...]) -> set[str]:
    return {place for group in ("always", *groups) for place in TERMINAL[group]}


def cases(names: Iterable[str], *older: str) -> list[Any]:
    """All of them; these are also run on older versions."""
    return [pytest.param(one, marks=pytest.mark.versions if one in older else ()) for one in names]


def differ_as(theirs: list[Message], ours: list[Message], table: set[str]) -> None:
    """Check that these messages differ as the table says; on an older version in no more than that."""
    found = differences(theirs, ours)
    is_older = VERSION != PINNED
    assert sorted(found - table - of_older(VERSION)) == [], "these are not in the table"
    assert is_older or sorted(table - found) == [], "these are in the table, and are no more"


# ── the tests ──


@pytest.mark.parametrize("name", cases(CASES, "work", "400"))
def test_print_stream_json_differs_from_claude_in_nothing_but_the_table(bench: Bench, name: str) -> None:
    case = CASES[name]
    bench.model.when(_is_work, _work)
    done = bench.all(*case.words, *STREAM_JSON, env=case.env)
    assert {one: each.code for one, each in done.items()} == dict.fromkeys(done, case.code), done
    differ_as(done["claude"].messages, done["stream"].messages, set(STREAM["always"]))
    differ_as(done["claude"].messages, done["terminal"].messages, expected(case.groups))


TEXTS = {
    "blocks": ("WORK", *ALLOWED, "Bash(touch:*)"),
    "200 KB": ("BIG 200000",),
    "no text at the end": ("NO TEXT",),
    "400": ("err 400",),
    "max turns": ("WORK", *ALLOWED, "--max-turns", "1"),
}


@pytest.mark.versions
@pytest.mark.parametrize("name", TEXTS)
def test_print_text_is_byte_for_byte_that_of_claude(bench: Bench, name: str) -> None:
    bench.model.when(_is_work, _work)
    bench.model.when("NO TEXT", Reply.of("said before", Thinking("and then no more")))
    # Both print a result by the same code: one of each kind is enough of the stream.
    done = bench.all(*TEXTS[name], backends=BACKENDS if name in ("blocks", "max turns") else ("terminal",))
    for one in done.values():
        assert (one.code, one.out) == (done["claude"].code, done["claude"].out)
        # 2.1.300 says beside it that its own mode, auto, does not fit this service.
        assert one.err == done["claude"].err or VERSION != PINNED
    assert done["claude"].out.strip() or name == "no text at the end"


@pytest.mark.versions
def test_print_json_is_one_object_and_with_verbose_the_list_of_messages(bench: Bench) -> None:
    alone = {name: done.messages for name, done in bench.all("err 400", "--output-format", "json").items()}
    assert {len(messages) for messages in alone.values()} == {1}
    differ_as(alone["claude"], alone["stream"], set(STREAM["always"]))
    of_result = {place for place in expected(()) if place.lstrip("+-").startswith("result.")}
    differ_as(alone["claude"], alone["terminal"], of_result)
    done = bench.all("hello", "--output-format", "json", "--verbose")
    listed = {name: json.loads(one.out) for name, one in done.items()}
    differ_as(listed["claude"], listed["stream"], {*STREAM["always"], *STREAM["list"]})
    without = {place for place in expected(ANSWERED) if "since_last_result" not in place}
    differ_as(listed["claude"], listed["terminal"], without)


SOURCES: dict[str, tuple[tuple[str, ...], bytes | None]] = {
    "argument": (("an argument\tof two\nlines\n",), None),
    "standard input": ((), f"piped\r\n\t{UNICODE}\n\n".encode()),
    "both": (("look at this:",), b"piped\n"),
    "the first of several arguments": (("this one", "not this", "nor this"), b"piped\n"),
}


@pytest.mark.parametrize("name", cases(SOURCES, "standard input", "both"))
def test_print_takes_its_prompt_from_where_claude_takes_it(bench: Bench, name: str) -> None:
    words, given = SOURCES[name]
    done = bench.all(*words, given=given)
    assert {one.code for one in done.values()} == {0}, done
    assert len({one.out for one in done.values()}) == 1
    prompts = [request.prompt for request in bench.model.main_requests]
    assert len(prompts) == 3
    assert len(set(prompts)) == 1, prompts


def test_print_goes_on_with_the_conversations_that_claude_goes_on_with(bench: Bench) -> None:
    first, other = str(uuid.uuid4()), str(uuid.uuid4())
    assert bench.remuda("nothing yet", "--continue").out == b"REPLY#1 to: nothing yet\n"

    def told(done: Done) -> tuple[str, str]:
        result = json.loads(done.out)
        return result["session_id"], result["result"]

    as_json = ("--output-format", "json")
    assert bench.claude("one", "--session-id", first).code == 0
    assert told(bench.remuda("two", "--resume", first, *as_json)) == (first, "REPLY#2 to: two")
    assert told(bench.claude("three", "--continue", *as_json)) == (first, "REPLY#3 to: three")
    assert told(bench.remuda("four", "-c", *as_json)) == (first, "REPLY#4 to: four")
    forked, _ = told(bench.remuda("six", "--resume", first, "--fork-session", *as_json))
    assert forked != first
    assert [text for _, text in bench.model.wait_for("six").texts if text in ("one", "two", "three")]
    assert told(bench.remuda("new", "--session-id", other, *as_json))[0] == other


def test_print_model_and_system_prompts_reach_the_model_as_with_claude(bench: Bench) -> None:
    flags = ("--model", "claude-sonnet-4-5", "--system-prompt", "BEGIN", "--append-system-prompt", "END")
    done = bench.all("hello", *flags, *STREAM_JSON)
    requests = bench.model.main_requests
    assert [request.model for request in requests] == ["claude-sonnet-4-5"] * 3
    for request in requests:
        assert "BEGIN" in request.system
        assert "END" in request.system
    assert {one.messages[0]["model"] for one in done.values()} == {"claude-sonnet-4-5"}
    assert [set(one.messages[-1]["modelUsage"]) for one in done.values()] == [{"claude-sonnet-4-5"}] * 3


REFUSED_BY_THE_CLI = {
    "a conversation that is not there": ("--resume", "11111111-2222-3333-4444-555555555555"),
    "an id that is none": ("--session-id", "abc"),
}


@pytest.mark.versions
def test_print_what_the_cli_refuses_is_refused_in_its_words_with_its_exit_code(bench: Bench) -> None:
    for flags in REFUSED_BY_THE_CLI.values():
        done = bench.all("hello", *flags)
        assert {name: one.code for name, one in done.items()} == dict.fromkeys(done, 1), done
        words = done["claude"].err.strip()
        assert words
        for backend in BACKENDS:
            assert done[backend].err == b"remuda print: " + words + b"\n"
            assert done[backend].out == b""


def test_print_what_no_terminal_can_be_given_is_refused_or_runs_on_the_stream(bench: Bench) -> None:
    """The stream backend takes it, as `claude -p` does."""
    for prompt in ("/cost", "a\x07b"):
        theirs, ours = bench.claude(prompt), bench.remuda(prompt, "--backend", "stream")
        assert theirs.out.splitlines()[0] == ours.out.splitlines()[0]  # below it are times
        refused = bench.remuda(prompt, "--backend", "terminal")
        assert (refused.code, refused.out) == (4, b"")
        assert b"--backend stream" in refused.err
    assert bench.remuda("a\x07b").out == bench.claude("a\x07b").out
    assert bench.remuda("/cost").code == 4
