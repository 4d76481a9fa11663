"""A launcher that was written for heartbeat-rs: its persist mode, on the real CLI."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support.hooks import IDLE
from support.keeper import Start, until
from support.real_sessions import keep
from support.watcher import Watcher

pytestmark = pytest.mark.real

PATIENCE = 30.0


def program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def prompts(model: LoopbackModel) -> list[str]:
    return [request.prompt.removeprefix("Stop hook feedback:\n") for request in model.main_requests]


def hook(cli: RealCli, command: str, timeout: float) -> None:
    """Let it run at each stop."""
    settings = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command, "timeout": timeout}]}]}}
    (cli.project / ".claude").mkdir(exist_ok=True)
    (cli.project / ".claude" / "settings.json").write_text(json.dumps(settings))


def test_message_of_a_hook_that_the_agent_ended_after_it_had_printed_is_handed_out_again(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    box = cli.folder / "box"
    box.mkdir()
    (box / "inbox.jsonl").write_text("one\n")
    command = f"{program('heartbeat-stop')} --inbox {box}/inbox.jsonl"
    hook(cli, f"{command}; [ -e {box}/slow ] || {{ touch {box}/slow; sleep 600; }}", 2)
    watcher = Watcher(keep(start, cli).hello())
    watcher.settled("idle")
    watcher.paste("first")
    until((box / "slow").exists, "the message")
    watcher.until("thinking")
    watcher.settled("idle")
    assert prompts(model) == ["first"]
    watcher.paste("second")
    until(lambda: len(prompts(model)) == 3, "the message at the model")
    assert prompts(model) == ["first", "second", "one"]
    size = (box / "inbox.jsonl").stat().st_size
    until(lambda: int((box / ".inbox-offset").read_text()) == size, "its acknowledgement")


def test_persist_with_heartbeats_own_interval_and_timeout_delivers_a_late_message(
    cli: RealCli, model: LoopbackModel, home: Path
) -> None:
    box = cli.folder / "box"
    box.mkdir()
    (box / "inbox.jsonl").write_text("one\n")
    # As the README of heartbeat-rs pairs them (300 and 310 there): the hook must answer before its timeout.
    hook(cli, f"{program('heartbeat-stop')} --inbox {box}/inbox.jsonl --mode persist --idle-interval 3", 6)
    agent = cli.argv("--permission-mode", "manual", "first")
    process = subprocess.Popen(
        [program("heartbeat-launch"), "--timeout", "90", "--", *agent],
        cwd=cli.project,
        env={**cli.env, "REMUDA_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: prompts(model).count(IDLE) >= 2, "two idle ticks")
        with (box / "inbox.jsonl").open("a") as inbox:
            inbox.write("late message\n")
        until(lambda: "late message" in prompts(model), "the late message")
        until(lambda: prompts(model)[-1] == IDLE, "an idle tick after it")
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)
    assert prompts(model)[:3] == ["first", "one", IDLE]
    assert int((box / ".inbox-offset").read_text()) == (box / "inbox.jsonl").stat().st_size
