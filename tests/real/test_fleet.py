"""Claude Code on a machine of a fleet, in a network of its own, used from another one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remuda.keeper.client import KeeperClient
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from remuda.wire.connection import ClientConnection
from support.attach import receive_until
from support.fleet import FleetBench, Machine
from support.keeper import until
from support.namespaces import KIND, Network

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


class Scene(NamedTuple):
    desk: Machine
    build: Machine
    cli: RealCli


@pytest.fixture(params=[KIND])
def scene(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Claude Code, and the model that it talks to, are in the network of `build7`."""
    with ExitStack() as stack:
        network = stack.enter_context(closing(Network(FleetBench(home), delay=0.05)))
        desk, build = network.machine("desk", "operator"), network.machine("build7", "host")
        monkeypatch.setenv("REMUDA_HOME", str(desk.remuda.home))

        def there(make: Callable[[], Any]) -> Any:
            return network.spaces["build7"].call(make) if network.spaces else make()

        # Not below `home`: the CLI puts a unix socket there, whose path may have 107 bytes at most.
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="remuda-", ignore_cleanup_errors=True)
        )
        model = there(lambda: stack.enter_context(LoopbackModel()))
        cli = stack.enter_context(there(lambda: RealCli(Path(folder) / "bench", model.url)))
        assert "HTTPS_PROXY" not in cli.env  # a cable to other machines of the test is not a network
        build.remuda.env = {**build.remuda.env, **cli.env}
        del build.remuda.env["CLAUDE_CONFIG_DIR"]
        yield Scene(desk, build, cli)


def test_claude_code_is_used_from_another_machine(scene: Scene) -> None:
    desk, build, cli = scene
    build.remuda.start("work", "--cwd", str(cli.project), "--", *cli.argv("--permission-mode", "default"))
    desk.until_session("build7", "work")
    assert desk.remuda("send", "build7/work", "hello", "--wait").out.endswith("to: hello\n")

    message = desk.send("build7/work", "RUNBASH touch made")
    until(lambda: [one["reason"] for one in desk.remuda.json("queue")["items"]] == ["permission"], "it")
    desk.remuda("approve", "build7/work", "--edit", json.dumps({"command": "touch edited"}), "--yes")
    receipt = desk.until_stage(message, "acked")
    stages = [one["stage"] for one in receipt["steps"]]
    assert stages == ["sent", "accepted", "written", "submitted", "recorded", "ended", "acked"]
    assert [(cli.project / name).exists() for name in ("edited", "made")] == [True, False]
    assert desk.remuda("reply", "build7/work", "go on", "--wait").out.endswith("to: go on\n")

    with KeeperClient.connect_elsewhere("build7", "work") as client:
        client.send(ClientConnection.subscribe())
        receive_until(client, b"go on")
        client.send(ClientConnection.input(b"draft"))
        receive_until(client, b"draft")
        client.send(ClientConnection.input(b"\x7f" * 5))

    message = desk.send("build7/work", "SLOW 600")
    until(lambda: desk.receipt(message)["stage"] in ("submitted", "recorded"), "the turn to run")
    assert "turn interrupted" in desk.remuda("cancel", "build7/work").out
    until(lambda: desk.receipt(message)["ended"], "the end of the message")
    assert desk.remuda("kill", "build7/work").out.startswith("build7/work ended")
    assert cli.settle() == {}
