"""Every flag of the pinned Claude Code: known, of the right arity, and taken by what we run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remuda.agents.claude.flags import MANY_VALUES, ONE_VALUE, OPTIONAL_VALUE
from remuda.agents.claude.print.print_flags import ALIASES, CLAUDE_PRINT_ALIASES, HIDDEN, TERMINAL
from remuda.agents.headless import Handling
from remuda.testing.loopback_model import Gate, LoopbackModel, Request
from remuda.testing.real_cli import RealCli
from remuda.testing.script import Hold, Reply, ToolUse

PATIENCE = 100.0


class Shown(NamedTuple):
    names: list[str]
    value: str
    """As the help writes it: `<one>`, `<many...>`, `[perhaps]`, or nothing."""


def shown_flags(cli: RealCli) -> list[Shown]:
    done = subprocess.run(
        cli.argv("--help"), env=cli.env, cwd=cli.project, capture_output=True, timeout=PATIENCE, check=True
    )
    options = done.stdout.decode().partition("\nOptions:")[2].partition("\nCommands:")[0]
    pattern = re.compile(r"^  (-[\w-]+(?:, -[\w-]+)*)(?: ([<\[][^>\]]*[>\]]))?(?:\s|$)", re.MULTILINE)
    return [Shown(names.split(", "), value) for names, value in pattern.findall(options)]


def test_flags_are_those_of_the_help_with_their_other_names_and_values(cli: RealCli) -> None:
    shown = shown_flags(cli)
    assert len(shown) > 60
    known = {}
    for flag in shown:
        (name,) = [name for name in flag.names if name in TERMINAL]
        known[name] = flag
        assert {ALIASES.get(other) for other in flag.names if other != name} <= {name}
        for one in flag.names:
            assert (one in ONE_VALUE) == (flag.value.startswith("<") and "..." not in flag.value), one
            assert (one in MANY_VALUES) == ("...>" in flag.value), one
            assert (one in OPTIONAL_VALUE) == flag.value.startswith("["), one
    assert set(TERMINAL) - set(known) == set(HIDDEN)
    assert {
        alias for alias in ALIASES if alias not in {name for flag in shown for name in flag.names}
    } == set(CLAUDE_PRINT_ALIASES)


GROUPS: list[dict[str, list[str]]] = [
    {
        "--add-dir": ["."],
        "--advisor": ["opus"],
        "--agent": ["general-purpose"],
        "--agents": ['{"a": {"description": "x", "prompt": "y"}}'],
        "--append-subagent-system-prompt": ["x"],
        "--append-system-prompt-file": ["end.txt"],
        "--autocompact": ["auto"],
        "--betas": ["some-beta"],
        "--brief": [],
        "--debug-file": ["debug.log"],
        "--disable-slash-commands": [],
        "--disallowedTools": ["Bash"],
        "--effort": ["low"],
        "--exclude-dynamic-system-prompt-sections": [],
        "--fallback-model": ["sonnet"],
        "--ide": [],
        "--managed-settings": ["{}"],
        "--max-thinking-tokens": ["2000"],
        "--mcp-config": ['{"mcpServers": {}}'],
        "--name": ["named"],
        "--no-chrome": [],
        "--permission-mode": ["acceptEdits"],
        "--plugin-dir": ["plugin"],
        "--setting-sources": ["user"],
        "--settings": ['{"env": {"A": "b"}}'],
        "--strict-mcp-config": [],
        "--system-prompt-snapshot": ["on"],
        "--task-budget": ["100000"],
        "--thinking-display": ["omitted"],
    },
    {
        "--append-subagent-system-prompt-file": ["end.txt"],
        "--chrome": [],
        "--debug": ["api"],
        "--plugin-dir-no-mcp": ["plugin"],
        "--plugin-url": ["http://127.0.0.1:1/none.zip"],
        "--restricted": [],
        "--system-prompt-file": ["begin.txt"],
        "--thinking": ["disabled"],
        "--tools": ["Read", "Bash"],
        "--worktree": ["tree"],
    },
]
ELSEWHERE = {
    *("--model", "--system-prompt", "--append-system-prompt", "--allowedTools"),
    *("--continue", "--resume", "--fork-session", "--session-id"),
}
"""Tested in test_print_differential."""
PRIVILEGED = {"--dangerously-skip-permissions", "--allow-dangerously-skip-permissions"}
NEEDS_AN_ACCOUNT = {"--file"}


def call_of(cli: RealCli, home: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    mark = {
        name: os.environ[name] for name in ("REMUDA_TEST_RUN", "PATH", "PYTHONPATH") if name in os.environ
    }
    command = [sys.executable, "-m", "remuda", "print", "--claude-binary", cli.argv()[0]]
    return [*command, *words], {**cli.env, **mark, "REMUDA_HOME": str(home)}


def run_print(cli: RealCli, home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    argv, env = call_of(cli, home, *words)
    return subprocess.run(
        argv,
        input=b"",
        capture_output=True,
        cwd=cli.project,
        env={**env, **more},
        timeout=PATIENCE,
        check=False,
    )


@contextlib.contextmanager
def begin_print(cli: RealCli, home: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    argv, env = call_of(cli, home, *words)
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=cli.project, env=env
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_every_flag_that_is_passed_on_is_tried_somewhere() -> None:
    tried = {flag for group in GROUPS for flag in group} | ELSEWHERE | PRIVILEGED | NEEDS_AN_ACCOUNT
    assert tried == {flag for flag, handled in TERMINAL.items() if handled is Handling.PASSED}


@pytest.mark.parametrize("group", GROUPS, ids=["first", "second"])
def test_flags_that_are_passed_on_are_taken_by_the_terminal(
    group: dict[str, list[str]], cli: RealCli, model: LoopbackModel, home: Path
) -> None:
    (cli.project / "begin.txt").write_text("THE BEGINNING")
    (cli.project / "end.txt").write_text("THE END")
    manifest = cli.project / "plugin" / ".claude-plugin" / "plugin.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"name": "plugin", "version": "1.0.0"}')
    git = ["git", "-c", "user.email=a@b", "-c", "user.name=n"]
    subprocess.run([*git, "init", "-q"], cwd=cli.project, check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], cwd=cli.project, check=True)
    words = [word for flag, values in group.items() for word in (flag, *values)]
    done = run_print(cli, home, *words, "--", "hello")
    assert (done.returncode, done.stdout) == (0, b"REPLY#1 to: hello\n"), done
    request = model.wait_for("hello")
    assert "AskUserQuestion" not in request.tools
    if "--tools" in group:
        assert {"Read", "Bash"} <= set(request.tools)
        assert "Edit" not in request.tools
        assert "THE BEGINNING" in request.system
        assert (cli.project / ".claude" / "worktrees" / "tree").is_dir()
    else:
        assert "Bash" not in request.tools
        assert "THE END" in request.system
        assert (cli.project / "debug.log").is_file()


@pytest.mark.parametrize("flag", sorted(PRIVILEGED))
def test_a_call_without_permission_checks_asks_nothing_back(
    flag: str, cli: RealCli, model: LoopbackModel, home: Path
) -> None:
    model.when("WORK", Reply.of(ToolUse("Bash", {"command": "touch made", "description": "x"})))
    bypass = () if flag.startswith("--dangerously") else ("--permission-mode", "bypassPermissions")
    done = run_print(cli, home, flag, *bypass, "--max-turns", "1", "WORK", IS_SANDBOX="1")
    assert done.stdout == b"Error: Reached max turns (1)", done
    assert (cli.project / "made").exists()


def test_flags_of_the_stream_backend_mean_what_they_mean_to_claude(
    cli: RealCli, model: LoopbackModel, home: Path
) -> None:
    model.when("SCHEMA", Reply.of(ToolUse("StructuredOutput", {"a": "yes"})))
    schema = json.dumps({"type": "object", "properties": {"a": {"type": "string"}}})
    for words, code in (
        (("SCHEMA", "--json-schema", schema, "--no-session-persistence"), 0),
        (("RUNBASH echo hi", "--allowedTools", "Bash", "--max-budget-usd", "0.0000001"), 1),
        (("hello", "--safe-mode", "--prompt-suggestions", "false"), 0),
    ):
        theirs = cli.run_print(*words)
        ours = run_print(cli, home, "--backend", "stream", *words)
        assert (ours.returncode, ours.stdout) == (code, theirs.stdout.encode()), ours
    hooks = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}})
    stream = ("--output-format", "stream-json", "--verbose", "--include-hook-events", "--settings", hooks)
    done = run_print(cli, home, "--backend", "stream", "hello", *stream, "--include-partial-messages")
    kinds = [json.loads(line).get("subtype") or json.loads(line)["type"] for line in done.stdout.splitlines()]
    assert "hook_started" in kinds
    assert "stream_event" in kinds


def test_stream_json_on_a_terminal_is_live_message_by_message_and_line_by_line(
    cli: RealCli, model: LoopbackModel, home: Path
) -> None:
    read = ToolUse("Read", {"file_path": "none.txt"}, "toolu_1")
    after_tool, after_line = Gate(), Gate()

    def answer(request: Request, _n: int) -> Reply:
        if len(request.body["messages"]) < 3:
            return Reply.of("I look.", read)
        return Reply.of(Hold(after_tool), "the first line\n\n", Hold(after_line), "and the last")

    model.when(lambda request: request.is_main, answer)
    flags = ("--output-format", "stream-json", "--verbose", "--include-partial-messages")
    with begin_print(cli, home, "WORK", *flags) as process:
        assert process.stdout is not None
        messages: list[dict[str, Any]] = []

        def until(kind: str, text: str) -> None:
            assert process.stdout is not None
            while True:
                line = process.stdout.readline()
                assert line, f"it ended before it said {text!r}: {messages}"
                messages.append(json.loads(line))
                if messages[-1]["type"] == kind and text in json.dumps(messages[-1]):
                    return

        until("user", "toolu_1")
        after_tool.open()
        until("stream_event", "the first line")
        after_line.open()
        until("result", "and the last")
        assert process.wait(PATIENCE) == 0
    whole = {"system": 1, "assistant": 3, "user": 1, "result": 1}
    kinds = [message["type"] for message in messages]
    assert {kind: kinds.count(kind) for kind in whole} == whole
    parts = [message["event"]["delta"]["text"] for message in messages if message["type"] == "stream_event"]
    assert "".join(parts) == "I look.the first line\n\nand the last"
