"""The bench itself: the real CLI on the loopback model, offline, and what the model's log says about it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.offline import closed_proxies, is_offline, proxies_closed
from remuda.testing.real_cli import VERSION, PlainTerminal, RealCli
from remuda.testing.script import ToolResult
from support.heimdall_client import PATIENCE
from support.real_sessions import MakeCli, outcomes

pytestmark = pytest.mark.real


def test_print_prompt_is_answered_and_logged(cli: RealCli, model: LoopbackModel) -> None:
    done = cli.run_print("hello bench")
    assert (done.returncode, done.stdout) == (0, "REPLY#1 to: hello bench\n")
    assert outcomes(model) == {"answered"}
    (request,) = model.main_requests
    assert request.prompt == "hello bench"
    assert f"claude-cli/{VERSION}" in request.headers["user-agent"]
    assert "Bash" in request.tools
    assert request.session_id in {path.stem for path in cli.transcripts()}


def test_bench_is_cut_off_from_every_network(cli: RealCli) -> None:
    assert is_offline() or proxies_closed(cli.env)


def test_bench_without_a_namespace_connects_to_loopback_alone(cli: RealCli, tmp_path: Path) -> None:
    """Proxies are everything that keeps it there then, and git over ssh knows none."""
    calls = tmp_path / "calls"
    strace = ["strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=connect,execve", "-o", str(calls)]
    argv = [*strace, *cli.argv("--permission-mode", "default", "hello")]
    with PlainTerminal(argv, cwd=cli.project, env={**cli.env, **closed_proxies()}) as terminal:
        terminal.wait_for(b"REPLY#1", 2 * PATIENCE)
        # What it does at its start beside a prompt is done by the end of a tool, and of another turn.
        terminal.write(b"\x1b[200~RUNBASH ls -d .\x1b[201~\r")
        terminal.wait_for(b"REPLY#3", 2 * PATIENCE)
    made = calls.read_text()
    assert "AF_INET" in made  # to the model
    outside = [line for line in made.splitlines() if "AF_INET" in line and '"127.0.0.1"' not in line]
    assert outside == []
    assert "htons(9)" not in made  # the closed proxy
    assert not re.search(r'execve\("[^"]*/ssh"', made)


@pytest.mark.parametrize(
    ("status", "said"), [(400, "API Error: 400 fake error 400"), (529, "Repeated 529 Overloaded")]
)
def test_print_api_error_ends_with_exit_1(cli: RealCli, model: LoopbackModel, status: int, said: str) -> None:
    done = cli.run_print(f"err {status}")
    assert done.returncode == 1
    assert said in done.stdout
    assert outcomes(model) == {"failed"}


def test_print_tool_call_runs_and_its_result_reaches_model(cli: RealCli, model: LoopbackModel) -> None:
    done = cli.run_print("RUNBASH echo from-the-tool > made; cat made", "--allowedTools", "Bash")
    assert done.stdout == "REPLY#2 to: tool_result from-the-tool\n"
    assert (cli.project / "made").read_text() == "from-the-tool\n"
    assert [request.said for request in model.main_requests][1] == ToolResult("from-the-tool")


def test_print_thinking_and_text_arrive_as_blocks(cli: RealCli) -> None:
    done = cli.run_print("THINK 0.01 on it", "--output-format", "stream-json", "--verbose")
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    blocks = [
        block["type"] for line in lines if line["type"] == "assistant" for block in line["message"]["content"]
    ]
    assert blocks == ["thinking", "text"]


def test_print_reply_cut_in_the_middle_is_asked_for_again(cli: RealCli, model: LoopbackModel) -> None:
    done = cli.run_print("CUT 3 words", env={"CLAUDE_CODE_MAX_RETRIES": "1"})
    assert done.returncode == 1
    assert "Connection to the API was lost" in done.stdout
    assert outcomes(model) == {"cut"}
    assert len(model.main_requests) > 1


def test_terminal_positional_prompt_reaches_model(cli: RealCli, model: LoopbackModel) -> None:
    with cli.open_terminal("--permission-mode", "manual", "hello from a terminal") as terminal:
        request = model.wait_for("hello from a terminal", 30)
        terminal.wait_for(b"REPLY#1")
    assert request.prompt == "hello from a terminal"
    assert "cc_entrypoint=cli" in request.system


def test_terminal_held_reply_is_shown_only_when_released(cli: RealCli, model: LoopbackModel) -> None:
    with model.hold() as gate, cli.open_terminal("--permission-mode", "manual", "wait for it") as terminal:
        gate.wait_reached(30)
        assert b"REPLY#1" not in terminal.output
        gate.open()
        terminal.wait_for(b"REPLY#1")


def test_terminal_title_request_is_no_part_of_the_conversation(cli: RealCli, model: LoopbackModel) -> None:
    # A prompt of a few characters gets no title: "name me" was sent none (2.1.325).
    variables = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": ""}
    with cli.open_terminal("--permission-mode", "manual", "give me a title", env=variables) as terminal:
        model.wait_for(lambda request: request.is_message and not request.is_main, 30)
        terminal.wait_for(b"REPLY#1")
    assert [request.prompt for request in model.main_requests] == ["give me a title"]


def test_terminal_untrusted_project_asks_before_anything_is_sent(
    make_cli: MakeCli, model: LoopbackModel
) -> None:
    with make_cli(trust=False).open_terminal("--permission-mode", "manual", "not yet") as terminal:
        terminal.wait_for(b"trust")
        assert not model.main_requests


def test_environment_holds_nothing_of_the_callers(make_cli: MakeCli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDECODE",
        "ANTHROPIC_MODEL",
        "ANTHROPIC_AUTH_TOKEN",
        "AI_AGENT",
    ):
        monkeypatch.setenv(name, "the caller's")
    assert "the caller's" not in make_cli().env.values()


def test_close_ends_strays_and_removes_the_folder(make_cli: MakeCli) -> None:
    cli = make_cli()
    with subprocess.Popen(
        ["cat", "-u"],
        env=cli.env,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as stray:
        assert stray.stdin
        assert stray.stdout
        stray.stdin.write(b"up")
        assert stray.stdout.read(2) == b"up"
        assert cli.running() == {stray.pid: "cat -u"}
        assert cli.settle(timeout=0) == {stray.pid: "cat -u"}
        cli.close()
        assert stray.wait(PATIENCE) == -9
    assert not os.path.lexists(cli.folder)
