"""`remuda print --agent copilot` on both backends, and `Client(agent="copilot")`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import remuda
from remuda.agents.self_test import MADE_UP_KEY
from remuda.errors import AgentError, InvalidOptions
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.copilot import RealCopilot
from support.commands import Commands
from support.copilot import shell
from support.print_calls import Calls

pytestmark = pytest.mark.real
_USAGE = {
    "input_tokens": 12,
    "output_tokens": 7,
    "cache_read_input_tokens": 3,
    "cache_creation_input_tokens": 0,
}


@pytest.fixture
def calls(home: Path, copilot: RealCopilot) -> Iterator[Calls]:
    commands = Commands(home)
    made = Calls(commands, copilot.binary, copilot.env, copilot.project)
    yield made
    made.close()
    commands.close()


def test_print_terminal_text_json_error_and_denied_tool(calls: Calls, copilot: RealCopilot) -> None:
    result = calls.json("--agent", "copilot", "hello")
    assert (result["result"], result["usage"], result["is_error"]) == ("REPLY#1 to: hello", _USAGE, False)
    failed = calls.json("--agent", "copilot", "err 400 boom", code=1)
    assert (failed["is_error"], failed["result"]) == (True, "400 boom")
    said = calls(
        "--agent", "copilot", "--output-format", "stream-json", "--verbose", shell("touch denied")
    ).out
    kinds = [json.loads(line)["type"] for line in said.splitlines()]
    assert kinds[-4:] == ["assistant", "user", "assistant", "result"]
    assert not (copilot.project / "denied").exists()
    calls.assert_nothing_left()


def test_print_stream_takes_what_a_terminal_cannot(
    calls: Calls, copilot: RealCopilot, model: LoopbackModel
) -> None:
    result = calls.json("--agent", "copilot", "--backend", "stream", "!touch bang")
    assert (result["result"], result["usage"]) == ("REPLY#1 to: !touch bang", None)
    failed = calls.json("--agent", "copilot", "--backend", "stream", "err 400 boom", code=1)
    assert (failed["is_error"], failed["result"]) == (True, "400 boom")
    assert "shell command" in calls("--agent", "copilot", "!touch bang", code=4).err
    assert not (copilot.project / "bang").exists()
    # The value of its key is masked in what it prints, whatever the value is.
    masked = calls.json("--agent", "copilot", "--backend", "stream", f"say {MADE_UP_KEY}")
    assert masked["result"] == "REPLY#2 to: say ******"
    sent = ["!touch bang", "err 400 boom", f"say {MADE_UP_KEY}"]
    assert [request.prompt for request in model.main_requests] == sent


def acp_servers(copilot: RealCopilot) -> set[int]:
    """The pids of its processes that serve a pool."""
    return {
        pid for pid, command in copilot.running().items() if command.startswith(f"{copilot.binary} --acp")
    }


def test_client_answers_from_one_process(copilot: RealCopilot) -> None:
    path = f"{copilot.binary.parent}:{copilot.env['PATH']}"
    options: dict[str, Any] = {"cwd": str(copilot.project), "env": {**copilot.env, "PATH": path}}
    with remuda.SyncClient(agent="copilot", backend="stream", pool_size=1, inherit_env=False) as client:
        assert client.run("one", **options).text == "REPLY#1 to: one"
        first = acp_servers(copilot)
        assert len(first) == 1
        with pytest.raises(AgentError):
            client.run("err 400 boom", **options)
        assert client.run("two", **options).text == "REPLY#2 to: two"
        assert acp_servers(copilot) == first
    with pytest.raises(InvalidOptions, match="stream"):
        remuda.SyncClient(agent="copilot", backend="terminal", inherit_env=False)
