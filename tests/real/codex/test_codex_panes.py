"""Two codex terminals of one server, as a user has them: each conversation is found in its own pane."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.real_cli.codex import RealCodex
from support.boss import RunningBoss
from support.codex import end_shared_server, escalated
from support.commands import Commands
from support.keeper import until
from support.pane_agent import AgentPane
from support.tmux_attention import TmuxBench

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
SOURCES = ("remuda.boss.evidence.spool:Spool", "remuda.boss.evidence.reconcile:Reconcile")


@pytest.fixture
def boss(home: Path) -> Iterator[RunningBoss]:
    one = RunningBoss(home, SOURCES)
    yield one
    one.close()


@pytest.fixture(params=["joined", pytest.param("plain", marks=pytest.mark.soak(only=True))])
def argv(request: pytest.FixtureRequest, codex: RealCodex, home: Path) -> Iterator[list[str]]:
    """The command of both terminals, which share a server with the hooks.

    `plain`: the first one starts it, as it does if it is packaged, and copies the package (320 MB) for that.
    """
    remuda = Commands(home)
    remuda("setup", "boss", "--agent", "codex", "--yes", env={**codex.env, "CODEX_HOME": ""})
    remuda.close()
    if request.param == "plain":
        codex.make_package()
        yield codex.argv()
        end_shared_server(codex)
        return
    path = codex.folder / "s"
    codex.sockets.add(path)
    env = {**codex.env, "TMUX": "/another,1,0", "TMUX_PANE": "%99"}
    process = subprocess.Popen(
        codex.argv("app-server", "--listen", f"unix://{path}"),
        cwd=codex.project,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until(path.exists, "its socket")
    yield codex.argv("--remote", f"unix://{path}")
    process.kill()
    process.wait()


def test_terminals_of_one_server_are_found_by_their_conversations(
    codex: RealCodex, boss: RunningBoss, tmux: TmuxBench, argv: list[str]
) -> None:
    boss.start()
    first = AgentPane(tmux, boss, argv, codex.env, codex.project)
    trust(first)
    first.until_shows("loopback-model")
    window = ("-d", "-P", "-F", "#{pane_id}", "-t", "w:", "-c", str(codex.project), "/bin/sh")
    first.prompt("hello first")
    one = item(boss, "stopped", "hello first")
    assert one["session"]["entrypoint"] == "app-server"
    assert found(boss, one) == first.id
    second = AgentPane(tmux, boss, argv, codex.env, codex.project, pane=tmux.run("new-window", *window))
    second.until_shows("loopback-model")
    second.prompt(escalated("touch made"))
    two = item(boss, "permission", "touch made")
    assert two["session_id"] != one["session_id"]
    assert found(boss, one) == first.id
    second.until_shows("Would you like to run")
    second.press("Escape")  # no hook reports a denied permission as such
    until(lambda: not [i for i in boss.waiting() if i["reason"] == "permission"], "the end of the request")
    tmux.run("kill-pane", "-t", first.id)
    until(lambda: one["session_id"] not in [i["session_id"] for i in boss.waiting()], "the end of the first")


def trust(pane: AgentPane) -> None:
    pane.until_shows("Hooks need review")

    def is_gone() -> bool:
        if "Hooks need review" in pane.shown():
            pane.press("2", "Enter")
        return "Hooks need review" not in pane.shown()

    until(is_gone, "the end of the review")


def item(boss: RunningBoss, reason: str, text: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        here = [one for one in boss.waiting() if one["reason"] == reason and text in one["message"]]
        return here[0] if here else {}

    return until(look, f"{reason}: {text}")


def found(boss: RunningBoss, item: dict[str, Any]) -> str:
    """Its pane, once it is known."""

    def look() -> str:
        return str(boss.client.get("sessions", item["session_id"])["session"]["pane"] or "")

    return until(look, "its pane")
