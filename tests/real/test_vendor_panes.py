"""One pane of each vendor, as a user starts them, in one queue: reasons, `next` to each, answers, ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import OTHER_VERSIONS, RealCli, binary_of, left_out
from remuda.testing.real_cli.codex import RealCodex
from remuda.testing.real_cli.copilot import RealCopilot
from support import keeper
from support.boss import RunningBoss
from support.boss_whole import NEXT
from support.codex import escalated
from support.commands import Commands
from support.copilot import QUESTION as COPILOT_QUESTION
from support.copilot import shell
from support.keeper import until
from support.opencode import PATIENCE, Opencode, bash, opencode_bench
from support.opencode import QUESTION as OPENCODE_QUESTION
from support.pane_agent import AgentPane
from support.tmux_attention import Person, TmuxBench

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
SOURCES = ("remuda.boss.evidence.spool:Spool", "remuda.boss.evidence.reconcile:Reconcile")
COLS, ROWS = 120, 40
FLAGS = {
    "claude": ["--permission-mode", "default"],
    # The bare binary has no package around it, which its shared server needs.
    "codex": ["--no-daemon"],
}
Bench = TypeVar("Bench", bound=RealCli)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for agent in OTHER_VERSIONS:
        if why := left_out(agent):
            pytest.skip(why)
        assert binary_of(agent).exists(), f"{agent} is not at {binary_of(agent)}: `make test` fetches it"
    monkeypatch.setattr(keeper, "PATIENCE", PATIENCE)


class Yard:
    """Four agents in panes of one tmux, their hooks set up by the command, and a human in front."""

    def __init__(self, home: Path, model: LoopbackModel, cli: RealCli) -> None:
        self._stack = ExitStack()
        self.remuda = Commands(home)
        self.tmux = TmuxBench(home)
        self.boss = RunningBoss(home, SOURCES)
        self._stack.callback(self.remuda.close)
        self._stack.callback(self.boss.close)
        self._stack.callback(self.tmux.close)
        self.codex = self._bench(lambda path: RealCodex(path, model.url))
        self.copilot = self._bench(lambda path: RealCopilot(path, model.url))
        self.opencode: Opencode = self._stack.enter_context(opencode_bench(model))
        self.benches: dict[str, Any] = {
            "claude": cli,
            "codex": self.codex,
            "opencode": self.opencode,
            "copilot": self.copilot,
        }
        self.codex.sockets.add(self.codex.home / ".codex" / "app-server-control" / "app-server-control.sock")
        self.panes: dict[str, AgentPane] = {}

    def _bench(self, make: Callable[[Path], Bench]) -> Bench:
        folder = self._stack.enter_context(TemporaryDirectory(prefix="remuda-", ignore_cleanup_errors=True))
        bench = make(Path(folder) / "bench")
        self._stack.enter_context(bench)
        return bench

    def close(self) -> None:
        self._stack.close()

    def start(self) -> None:
        for name, bench in self.benches.items():
            self.remuda("setup", "boss", "--agent", name, "--yes", env=self._env(name))
            if name == "opencode":
                bench.seed_plugin_package()
        self.boss.start()
        self.tmux.run("new-session", "-d", "-s", "desk", "-x", str(COLS), "-y", str(ROWS), "/bin/sh")
        self.tmux.start()
        for name, bench in self.benches.items():
            where = ("-d", "-t", "desk:", "-n", name, "-P", "-F", "#{pane_id}", "-c", str(bench.project))
            pane = self.tmux.run("new-window", *where, "/bin/sh")
            argv = [str(bench.binary)]
            argv += FLAGS.get(name, [])
            self.panes[name] = AgentPane(self.tmux, self.boss, argv, bench.env, bench.project, pane=pane)
        self.human: Person = self.tmux.person("desk", COLS, ROWS)

    def _env(self, name: str) -> dict[str, str]:
        bench = self.benches[name]
        return {
            **bench.env,
            "XDG_CONFIG_HOME": "",
            "CODEX_HOME": "",
            "COPILOT_HOME": "",
            "CLAUDE_CONFIG_DIR": "",
        }

    def item(self, name: str) -> dict[str, Any]:
        """What it waits for, once it is in its own pane; empty if nothing."""
        found = [one for one in self.boss.waiting() if one["session"]["agent"] == name]
        assert len(found) < 2, found
        return found[0] if found and found[0]["session"]["pane"] == self.panes[name].id else {}

    def becomes(self, name: str, reason: str) -> dict[str, Any]:
        def look() -> dict[str, Any]:
            found = self.item(name)
            return found if found and found["reason"] == reason else {}

        try:
            return until(look, reason)
        except AssertionError:
            shown = self.panes[name].shown()
            raise AssertionError(f"{name} is not {reason}: {self.boss.waiting()}\n{shown}") from None

    def presses_until_gone(self, name: str, text: str, *keys: str) -> None:
        """Answer a dialog: again, if it is still there. An agent may drop keys while it draws."""
        self.panes[name].until_shows(text)

        def is_gone() -> bool:
            if text in self.panes[name].shown():
                self.panes[name].press(*keys)
            return text not in self.panes[name].shown()

        until(is_gone, f"the end of {text!r}")

    def presses_until(
        self, name: str, key: str, wanted: Callable[[dict[str, Any]], object], during: str = ""
    ) -> None:
        """Press a key repeatedly while the screen has `during`, until the queue shows what is wanted."""

        def look() -> bool:
            if not (is_so := bool(wanted(self.item(name)))) and during in self.panes[name].shown():
                self.panes[name].press(key)
            return is_so

        try:
            until(look, f"what {key} leads to")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.item(name)}\n{self.panes[name].shown()}") from None

    def are_ready(self) -> None:
        """Wait for those other than Claude Code. codex runs no hook that its user did not trust."""
        self.presses_until_gone("codex", "Hooks need review", "2", "Enter")
        self.panes["codex"].until_shows("loopback-model")
        self.panes["copilot"].until_shows("open sidebar")
        self.panes["opencode"].until_shows("ctrl+p commands")

    def shown(self) -> str:
        clients = self.tmux.run("list-clients", "-F", "#{client_name} #{pane_id}").splitlines()
        return dict(line.split(" ") for line in clients)[self.human.name]


@pytest.fixture
def yard(home: Path, model: LoopbackModel, cli: RealCli) -> Iterator[Yard]:
    whole = Yard(home, model, cli)
    yield whole
    whole.close()


VENDORS = ("codex", "opencode", "copilot")
QUESTIONS = {"opencode": OPENCODE_QUESTION, "copilot": COPILOT_QUESTION}
"""codex asks in plan mode only."""
SAYS = {"opencode": "Which color?", "copilot": "Information requested"}
BUSY = {"codex": "esc to interrupt", "opencode": "esc ", "copilot": "Working"}


@pytest.mark.soak(only=True)
def test_error_question_interrupt_and_killed_terminal_of_each_vendor(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOT_HOME", str(yard.copilot.home / ".copilot"))  # the boss reads files there
    del yard.benches["claude"]
    yard.start()
    yard.are_ready()
    panes = yard.panes
    for name in VENDORS:
        panes[name].prompt("err 400 broken")
    for name in VENDORS:
        assert "broken" in yard.becomes(name, "api_error")["message"]
    for name, question in QUESTIONS.items():
        panes[name].press("-l", question)  # opencode shows no long paste
        panes[name].until_shows(question[:20])
        panes[name].press("Enter")
        assert yard.becomes(name, "question")["message"].startswith(SAYS[name])
        yard.presses_until(name, "Enter", lambda item: item.get("reason") == "stopped")
    for name in VENDORS:
        panes[name].prompt(f"SLOW 60 {name}")
        panes[name].until_shows("word3")
        panes[name].press("Escape")  # enough for codex; the others want another one
        yard.presses_until(name, "Escape", lambda item: item.get("detail", {}).get("interrupted"), BUSY[name])
    for name in VENDORS:
        pid = int(yard.becomes(name, "stopped")["session"]["pid"])
        panes[name].prompt(f"SLOW 50 {name}")
        until(lambda name=name: not yard.item(name), "its work")  # type: ignore[misc]
        os.kill(pid, signal.SIGKILL)  # at rest it would be taken out of the queue
        yard.becomes(name, "dead")


@pytest.mark.shows(
    "an agent that you started yourself is in the queue", agents=("codex", "opencode", "copilot")
)
def test_queue_with_one_pane_of_each_vendor_and_next_to_each(yard: Yard) -> None:
    yard.start()
    panes = yard.panes
    panes["claude"].until_shows("for shortcuts")
    yard.are_ready()

    panes["claude"].prompt("RUNBASH touch made; echo done")
    panes["codex"].prompt(escalated("touch made"))
    panes["opencode"].prompt(bash("touch made"))
    panes["copilot"].prompt(shell("touch made"))
    asked = {name: yard.becomes(name, "permission") for name in panes}
    for name, item in asked.items():
        assert "touch made" in item["message"], (name, item)
        assert item["session"]["cwd"] == str(yard.benches[name].project)
        assert item["session"]["pid"], name
    for name in ("codex", "opencode", "copilot"):
        refused = yard.remuda.refused("approve", asked[name]["session_id"], "--yes", code=8)
        assert "only be decided in the agent's terminal" in refused
    queue = yard.remuda("queue").out
    assert queue.count("touch made") == 4, queue

    yard.remuda("hooks", "install", "--tmux", "--yes", env={"TMUX": f"{yard.tmux.address.path},0,0"})
    order = [item["session"]["agent"] for item in yard.boss.waiting()]
    assert sorted(order) == sorted(panes)
    yard.human.press(f"{sys.executable} -m remuda next\r".encode())
    until(lambda: yard.shown() == panes[order[0]].id, f"the pane of {order[0]}")
    for name in (*order[1:], order[0]):
        yard.human.press(NEXT)
        until(lambda name=name: yard.shown() == panes[name].id, f"the pane of {name}")  # type: ignore[misc]

    until(panes["claude"].agrees, "the end of Claude's dialog")
    yard.presses_until_gone("codex", "Would you like to run", "Enter")
    yard.presses_until_gone("opencode", "Permission required", "Enter")
    yard.presses_until_gone("copilot", "Do you want to run", "Enter")
    for name in panes:
        yard.becomes(name, "stopped")
        assert (yard.benches[name].project / "made").exists(), name

    for name in ("codex", "opencode", "copilot"):
        yard.tmux.run("kill-pane", "-t", panes[name].id)
        until(lambda name=name: not yard.item(name), f"the end of {name}")  # type: ignore[misc]
    os.kill(int(yard.becomes("claude", "stopped")["session"]["pid"]), 15)
    until(lambda: yard.boss.waiting() == [], "an empty queue")
