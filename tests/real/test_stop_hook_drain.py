"""The installed Stop hook on the real CLI: an inbox drained in one session, past the cap of eight blocks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support.real_sessions import outcomes

pytestmark = pytest.mark.real

PATIENCE = 100.0
MESSAGES = [f"message {number} of 20:\n\t!echo é /clear @file" for number in range(20)]


def installed(
    name: str, *words: str, cli: RealCli, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """One of our commands, as it is installed, in the bench's project and environment."""
    return subprocess.run(
        [str(Path(sys.executable).with_name(name)), *words],
        cwd=cli.project,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture
def env(cli: RealCli, home: Path) -> dict[str, str]:
    return {**cli.env, "REMUDA_HOME": str(home)}


@pytest.fixture
def box(cli: RealCli) -> Path:
    """A full inbox."""
    folder = cli.folder / "box"
    folder.mkdir()
    (folder / "inbox.jsonl").write_text("".join(json.dumps(one) + "\n" for one in MESSAGES))
    return folder


def drained(box: Path, model: LoopbackModel) -> None:
    """Each message was sent once and in order, in one conversation, and its answer is in the outbox."""
    # 2.1.325 puts these words before what a Stop hook hands out.
    feedback = [f"Stop hook feedback:\n{message}" for message in MESSAGES]
    assert [request.prompt for request in model.main_requests] == ["first", *feedback]
    assert outcomes(model) == {"answered"}
    assert len({request.session_id for request in model.main_requests}) == 1
    answers = [json.loads(line)["text"] for line in (box / "outbox.jsonl").read_text().splitlines()]
    assert [answer.partition(" ")[0] for answer in answers] == [f"REPLY#{number}" for number in range(2, 22)]
    assert int((box / ".inbox-offset").read_text()) == (box / "inbox.jsonl").stat().st_size
    assert not (box / ".in-flight").exists()


def test_launched_session_drains_twenty_messages_and_ends_by_its_signal_file(
    cli: RealCli, model: LoopbackModel, box: Path, env: dict[str, str]
) -> None:
    # The cap stays in the settings: here it is the launch that lifts it.
    signal = str(box / "done")
    install = ("hooks", "install", "--inbox", str(box), "--signal-file", signal, "--keep-cap")
    made = installed("remuda", *install, cli=cli, env=env)
    assert made.returncode == 0, made.stderr
    agent = cli.argv("--permission-mode", "manual", "first")
    words = ("--timeout", "90", "--exit-signal", signal, "--", *agent)
    done = installed("heartbeat-launch", *words, cli=cli, env={**env, "CLAUDE_CODE_ENTRYPOINT": "theirs"})
    assert done.returncode == 0, done.stderr
    drained(box, model)
    assert all("cc_entrypoint=cli" in request.system for request in model.main_requests)
    assert not Path(signal).exists()


def test_session_that_is_not_ours_drains_twenty_messages_where_the_hook_is_installed(
    cli: RealCli, model: LoopbackModel, box: Path, env: dict[str, str]
) -> None:
    made = installed("remuda", "hooks", "install", "--inbox", str(box), cli=cli, env=env)
    assert made.returncode == 0, made.stderr
    done = cli.run_print("first", timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    drained(box, model)


def test_shell_that_runs_in_the_background_holds_up_no_message(
    cli: RealCli, model: LoopbackModel, box: Path, env: dict[str, str]
) -> None:
    signal = str(box / "done")
    made = installed(
        "remuda", "hooks", "install", "--inbox", str(box), "--signal-file", signal, cli=cli, env=env
    )
    assert made.returncode == 0, made.stderr
    server = {"command": "tail -f /dev/null", "description": "x", "run_in_background": True}
    first = f"TOOL {json.dumps({'name': 'Bash', 'input': server})}"
    agent = cli.argv("--allowedTools", "Bash", "--permission-mode", "manual", first)
    done = installed(
        "heartbeat-launch", "--timeout", "90", "--exit-signal", signal, "--", *agent, cli=cli, env=env
    )
    assert done.returncode == 0, done.stderr
    assert len((box / "outbox.jsonl").read_text().splitlines()) == len(MESSAGES)
    assert not (box / ".in-flight").exists()
