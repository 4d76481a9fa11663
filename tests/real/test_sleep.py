"""The real Claude Code asleep: what a wake brings back, and what keeps it awake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support import counts
from support.commands import Commands
from support.keeper import Process, Start, until, until_equal
from support.messages import (
    CHAIN,
    Post,
    phase,
    prompts,
    put_to_sleep,
    put_to_sleep_by_command,
    stages,
    stays_awake,
    step,
)
from support.real_sessions import keep, tool
from support.sleep_kills import SleepKills

pytestmark = pytest.mark.real


def command_line(post: Post) -> list[str]:
    return Path(f"/proc/{post.client.describe()['pid']}/cmdline").read_bytes().decode().split("\0")


def test_idle_agent_falls_asleep_and_a_message_wakes_it_with_conversation_and_model(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli, "--model", "haiku", sleep_after=1.0))
    agent = Process(post.kept.child_pid)
    first = post.send("the word is swordfish")
    post.watcher.until("asleep")
    agent.gone()
    until_equal(lambda: phase(post), "asleep", "sleep")
    before = model.wait_for("the word is swordfish")

    found = post.send("which word was it?")
    assert stages(found) == CHAIN
    assert step(found, "written")["woken"] is True
    assert step(found, "submitted")["session_id"] == step(first, "submitted")["session_id"]
    request = model.wait_for("which word was it?")
    assert any("swordfish" in text for _, text in request.texts)
    assert request.model == before.model
    assert "haiku" in request.model
    # The start of an agent that is woken with a prompt is not reported; that of a new conversation is.
    before = post.client.describe()["conversation"]["session_id"]
    post.run("/clear", command=True)
    assert post.client.describe()["conversation"]["session_id"] != before


def test_deleted_transcript_is_a_clear_error_and_the_message_stays_until_it_is_back(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli))
    post.watcher.settled("idle")
    post.send("the word is swordfish")
    put_to_sleep(post)
    path = Path(post.client.describe()["conversation"]["transcript_path"])
    aside = path.rename(path.with_suffix(".aside"))
    message = post.put_held("which word was it?", "does not exist", max_attempts=1)
    status = post.client.describe()
    assert (status["state"], str(path) in status["wake_error"]) == ("asleep", True)
    aside.rename(path)
    post.client.request("wake")
    assert post.ended(message).stage == "acked"
    assert any("swordfish" in text for _, text in model.wait_for("which word was it?").texts)
    assert prompts(model).count("which word was it?") == 1


def test_permission_mode_that_a_human_chose_is_there_after_the_wake(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli))
    post.watcher.settled("idle")
    post.send("hello")
    post.watcher.settled("idle")
    post.watcher.until_shows("manual mode on")
    for _ in range(2):
        post.watcher.press(b"\x1b[Z")
    post.watcher.until_shows("plan mode on")
    put_to_sleep(post)

    post.watcher.press(b"half a thought")  # a key wakes it
    until_equal(post.draft, "half a thought", "the draft")
    post.watcher.until_shows("plan mode on")
    words = command_line(post)
    assert words[words.index("--permission-mode") + 1] == "plan"
    post.watcher.press(b"\r")
    assert model.wait_for("half a thought").prompt == "half a thought"
    post.watcher.until("idle", source="hook")
    assert post.client.request("cleanliness")["permission_mode"] == "plan"


def test_settings_folders_servers_and_worktree_are_as_they_were_after_a_wake(
    remuda: Commands, cli: RealCli, model: LoopbackModel, tmp_path: Path
) -> None:
    for words in ("init -q", "-c user.name=n -c user.email=e commit -q --allow-empty -m begin"):
        subprocess.run(["git", *words.split()], cwd=cli.project, check=True)
    remuda.env |= {**cli.env, "REMUDA_HOME": str(remuda.home)}
    config = Path(remuda.env["HOME"]) / ".config" / "remuda"
    config.mkdir(parents=True, exist_ok=True)
    config.joinpath("remuda.toml").write_text("worktree_setup = 'echo ready >> ready'")
    server = {"command": sys.executable, "args": [str(Path(__file__).with_name("mcp_server.py"))]}
    flags = (
        *("--settings", json.dumps({"env": {"FROM_SETTINGS": "swordfish"}}), "--allowedTools", "Bash"),
        *("--add-dir", str(tmp_path), "--mcp-config", json.dumps({"mcpServers": {"own": server}})),
    )
    where = ("--worktree", "--trust", "--detach", "--cwd", str(cli.project))
    remuda("start", "w", *where, "--", *cli.argv(*flags))
    remuda("send", "w", "the first", "--wait")
    put_to_sleep_by_command(remuda, "w")
    done = remuda("send", "w", "RUNBASH echo $FROM_SETTINGS; wc -l < ready", "--wait")
    tree = remuda.json("show", "w")["cwd"]
    assert done.out.split()[-2:] == ["swordfish", "1"]  # the set-up command did not run again
    request = json.dumps(model.main_requests[-1].body)
    for known in ("the first", "mcp__own__t", str(tmp_path), tree):
        assert known in request, known
    remuda("kill", "w")


def allow_for_the_conversation(post: Post) -> None:
    (asked,) = until(lambda: post.client.request("asks")["asks"], "the request")
    post.client.request("answer", id=asked["id"], behavior="allow", always=True)


def test_what_was_allowed_for_the_conversation_is_allowed_after_two_wakes_and_nothing_else(
    cli: RealCli, start: Start, tmp_path: Path
) -> None:
    post = Post(keep(start, cli, asks=True))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("swordfish")
    asking = ("RUNBASH touch made", tool("Read", file_path=str(elsewhere)))
    for prompt in asking:
        message = post.put(prompt)
        allow_for_the_conversation(post)
        assert post.ended(message).stage == "acked"
    for _ in range(2):
        (cli.project / "made").unlink()
        put_to_sleep(post)
        for prompt in asking:
            post.run(prompt)
        assert (cli.project / "made").exists()
    message = post.put("RUNBASH chmod 600 made")
    (asked,) = until(lambda: post.client.request("asks")["asks"], "the request")
    post.client.request("answer", id=asked["id"], behavior="deny")
    assert post.ended(message).stage == "acked"


def test_what_was_allowed_in_the_dialog_of_the_terminal_keeps_it_awake(
    cli: RealCli, start: Start, tmp_path: Path
) -> None:
    post = Post(keep(start, cli))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("swordfish")
    message = post.put(tool("Read", file_path=str(elsewhere)))
    post.watcher.until("waiting_permission")
    post.watcher.answer(b"2")
    assert post.ended(message).stage == "acked"
    stays_awake(post, "allowed on the terminal")


def test_shell_in_the_background_keeps_it_awake_until_it_has_ended(cli: RealCli, start: Start) -> None:
    post = Post(keep(start, cli, "--allowedTools", "Bash"))
    fifo = cli.project / "go"
    post.watcher.settled("idle")
    # By a human: a message would be in flight as long as the shell runs, for up to a minute.
    post.watcher.paste(tool("Bash", command=f"mkfifo {fifo}; cat {fifo}", run_in_background=True))
    stays_awake(post, "in the background")
    until(fifo.exists, "the shell")
    fifo.write_text("done\n")
    put_to_sleep(post)


if counts.SOAK:

    @pytest.mark.soak
    @pytest.mark.timeout(120 + 60 * counts.REAL_SLEEP_KILLS)
    def test_kills_around_sleep_and_wake_lose_no_message_and_run_none_twice(
        cli: RealCli, start: Start, model: LoopbackModel
    ) -> None:
        kills = SleepKills(lambda resume: Post(keep(start, cli, resume=resume)))
        kills.rage(counts.REAL_SLEEP_KILLS)
        kills.judge(prompts(model).count)


def test_model_that_was_changed_by_a_command_is_there_after_two_wakes(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli, "--model", "opus"))
    post.watcher.settled("idle")
    post.send("/model haiku", command=True)
    post.send("the first")
    put_to_sleep(post)
    post.client.request("wake")
    post.watcher.settled("idle")
    put_to_sleep(post)
    post.send("the second")
    first, second = (model.wait_for(prompt).model for prompt in ("the first", "the second"))
    assert second == first
    assert "haiku" in second
    assert command_line(post).count("--model") == 1


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        (
            tool("CronCreate", cron="0 0 1 1 *", prompt="happy new year", recurring=False),
            "a scheduled prompt",
        ),
        pytest.param(
            tool("EnterWorktree", name="tree"), "another working folder", marks=pytest.mark.soak(only=True)
        ),
    ],
    ids=["scheduled prompt", "worktree"],
)
def test_what_a_tool_gave_to_the_process_alone_keeps_it_awake(
    cli: RealCli, start: Start, prompt: str, why: str
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=cli.project, check=True)
    post = Post(keep(start, cli, "--allowedTools", "CronCreate,EnterWorktree"))
    post.watcher.settled("idle")
    post.watcher.paste(prompt)
    stays_awake(post, why)


@pytest.mark.soak(only=True)
def test_stashed_draft_and_folder_that_a_human_added_keep_it_awake(
    cli: RealCli, start: Start, tmp_path: Path
) -> None:
    post = Post(keep(start, cli))
    post.watcher.settled("idle")
    post.send("hello")
    post.watcher.press(b"half a thought")
    until_equal(post.draft, "half a thought", "the draft")
    post.watcher.press(b"\x13")
    stays_awake(post, "a draft is stashed")
    post.watcher.paste(f"/add-dir {tmp_path}")
    post.watcher.until_shows("Yes, for this session")
    post.watcher.answer(b"\r")
    until_equal(post.draft, "half a thought", "the draft again")
    post.watcher.press(b"\x15")  # it is in the composer again, and is the first reason
    stays_awake(post, "what /add-dir changed")
