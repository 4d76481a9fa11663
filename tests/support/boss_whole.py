"""Five agents and their boss, all by the product's own commands: three in panes of a tmux, two kept."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from remuda.testing.script import ToolResult
from support.boss import RunningBoss
from support.commands import Commands
from support.keeper import Process, until
from support.pane_agent import AgentPane
from support.tmux_attention import TmuxBench

PANES = ("one", "two", "three")
KEPT = ("alpha", "beta")
COLS, ROWS = 120, 80
NEXT, BACK = b"\x02\t", b"\x02B"
"""The keys that `remuda hooks install --tmux` binds."""


class CommandedBoss(RunningBoss):
    """Started by `remuda up`, with all its sources."""

    def __init__(self, home: Path, remuda: Commands) -> None:
        super().__init__(home)
        self._remuda = remuda

    def start(self, port: int = 0) -> dict[str, Any]:
        told: dict[str, Any] = self._remuda.json("up", "--detach", "--port", str(port))
        self.process = Process(told["pid"])
        self.port = int(told["url"].rpartition(":")[2])
        return told


class KeptAgent:
    """Started by `remuda start`; its user talks to it with `remuda send`."""

    def __init__(self, remuda: Commands, name: str, cli: RealCli) -> None:
        self._remuda = remuda
        self.name = name
        size = ("--cols", str(COLS), "--rows", "40")
        argv = cli.argv("--permission-mode", "default")
        self.pid = remuda.start(name, "--cwd", str(cli.project), *size, "--", *argv)

    def prompt(self, text: str) -> None:
        self._remuda("send", self.name, text)


class Ranch:
    """All of them, and a human in front of the tmux. `start` it; `close` ends whatever is left.

    `board` is who has to be in the queue, and why, in its order: each step moves one of them.
    """

    def __init__(self, home: Path, model: LoopbackModel, cli: RealCli) -> None:
        self.model = model
        self.cli = cli
        self.tmux = TmuxBench(home)
        self.remuda = Commands(home)
        self.remuda.env |= {**cli.env, "TMUX_TMPDIR": self.tmux.env["TMUX_TMPDIR"]}
        self.boss = CommandedBoss(home, self.remuda)
        self.panes: dict[str, AgentPane] = {}
        self.kept: dict[str, KeptAgent] = {}
        self.ids: dict[str, str] = {}
        """Whose conversation is which."""
        self.board: list[tuple[str, str]] = []

    def close(self) -> None:
        self.tmux.close()
        try:
            self.boss.close()
        finally:
            self.remuda.close()

    # ── the beginning ──

    def start(self) -> None:
        self.remuda("hooks", "install", "--boss", "--yes")
        self.boss.start()
        self._open_panes()
        self.kept = {name: KeptAgent(self.remuda, name, self.cli) for name in KEPT}
        self.ids = {name: self._begun(name)["id"] for name in (*PANES, *KEPT)}
        self.human = self.tmux.person("desk", COLS, ROWS)
        self.service = self.shown()
        self.remuda("hooks", "install", "--tmux", "--yes", env={"TMUX": f"{self.tmux.address.path},0,0"})

    def _open_panes(self) -> None:
        """One in a window of its own, two that share a window; the human's shell is in another session."""
        size = ("-x", str(COLS), "-y", str(ROWS - 1))
        self.tmux.run("new-session", "-d", "-s", "desk", *size, "/bin/sh")
        self.tmux.start()
        shell = ("-P", "-F", "#{pane_id}", "-c", str(self.cli.project), "/bin/sh")
        alone = self.tmux.run("new-session", "-d", "-s", "work", *size, *shell)
        upper = self.tmux.run("new-window", "-d", "-t", "work:", *shell)
        lower = self.tmux.run("split-window", "-d", "-v", "-t", upper, *shell)
        argv = self.cli.argv("--permission-mode", "default")
        for name, pane in zip(PANES, (alone, upper, lower), strict=True):
            agent = AgentPane(self.tmux, self.boss, argv, self.cli.env, self.cli.project, pane=pane)
            self.panes[name] = agent
        for agent in self.panes.values():
            agent.until_shows("for shortcuts")

    def _begun(self, name: str) -> dict[str, Any]:
        """As the boss knows it when it has begun."""
        where = {"pane": self.panes[name].id} if name in self.panes else {"name": name}

        def look() -> dict[str, Any]:
            found = [one for one in self.sessions() if where.items() <= one.items()]
            return found[0] if found and found[0]["state"] == "started" and found[0]["pid"] else {}

        return until(look, f"{name} among the sessions")

    def prompt(self, name: str, text: str) -> None:
        (self.panes.get(name) or self.kept[name]).prompt(text)

    # ── what the boss says, over loopback and with its token ──

    def ask(self, path: str) -> Any:
        answer = self.boss.ask("GET", path)
        assert answer.status == 200, answer
        return answer.json

    def sessions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("/v1/sessions?all=true")["sessions"]
        return found

    def items(self) -> list[dict[str, Any]]:
        """Without their sessions, of which more may be heard while they wait."""
        found: list[dict[str, Any]] = self.ask("/v1/queue?hidden=true")["items"]
        return [{key: value for key, value in item.items() if key != "session"} for item in found]

    def item(self, name: str) -> dict[str, Any]:
        """Empty while it does not wait."""
        found = [item for item in self.items() if item["session_id"] == self.ids[name]]
        assert len(found) < 2
        return found[0] if found else {}

    def until_says(self, name: str, text: str) -> None:
        """That it rests is known a moment before its last words."""
        until(lambda: self.item(name).get("message", "").endswith(text), f"{text!r} of {name}")

    def name_of(self, session_id: str) -> str:
        return next((name for name, one in self.ids.items() if one == session_id), session_id)

    def queue(self) -> list[tuple[str, str]]:
        return [(self.name_of(item["session_id"]), item["reason"]) for item in self.items()]

    def becomes(self, name: str, reason: str | None) -> None:
        """It waits for that now, behind all others; None: it does not wait. Nothing else has changed."""
        self.board = [one for one in self.board if one[0] != name] + ([(name, reason)] if reason else [])
        self.until_queue()

    def until_queue(self) -> None:
        """Exactly those of the board wait, in its order."""
        try:
            until(lambda: self.queue() == self.board, "the queue")
        except AssertionError:
            raise AssertionError(f"in the queue: {self.queue()}, and not {self.board}") from None

    def stays(self, seconds: float) -> None:
        """Whatever the boss looks at in the meantime, nothing in the queue changes."""
        before, end = [item["id"] for item in self.items()], time.monotonic() + seconds

        def is_over() -> bool:
            assert [item["id"] for item in self.items()] == before
            assert self.queue() == self.board
            return time.monotonic() > end

        until(is_over, "some looks of the boss")

    def history(self, name: str) -> list[str]:
        """Why it has waited, what ended first first."""
        found = self.ask("/v1/queue/history?limit=1000")["items"]
        mine = [one for one in found if one["session_id"] == self.ids[name]]
        return [one["reason"] for one in sorted(mine, key=lambda one: one["resolved_at"])]

    # ── requests for permission ──

    def asked(self, name: str) -> dict[str, Any]:
        """Its request, as soon as someone waits for the answer."""

        def look() -> dict[str, Any]:
            found = self.ask("/v1/approvals?state=open")["approvals"]
            mine = [one for one in found if one["session_id"] == self.ids[name]]
            held = [one for one in mine if name in self.kept or one["expires_at"]]
            return held[0] if held else {}

        return until(look, f"a request of {name}")

    def answer(self, approval: dict[str, Any], **answer: Any) -> tuple[int, Any]:
        """The status, and what was said."""
        told = self.boss.ask("POST", f"/v1/approvals/{approval['id']}/answer", answer)
        return told.status, told.json

    def ledger(self) -> list[tuple[str, str, str, str | None, Any]]:
        """All requests, the oldest first: whose, what for, how it ended, by whom, and whether it ran."""
        return [
            (
                self.name_of(one["session_id"]),
                one["reason"],
                one["state"],
                one["by"],
                (one["proof"] or {}).get("ran"),
            )
            for one in reversed(self.ask("/v1/approvals?limit=1000")["approvals"])
        ]

    # ── what the agents' service heard ──

    def heard_of(self, text: str) -> set[str]:
        """In whose conversation a text was said."""
        found = [request for request in self.model.requests if text.encode() in request.raw]
        return {self.name_of(request.session_id) for request in found}

    def has_spooled(self, name: str, hook: str) -> bool:
        """Whether that was told by its hooks, while there was no boss to hear it."""
        words = (self.ids[name].encode(), f'"hook_event_name":"{hook}"'.encode())
        left = [path.read_bytes() for path in self.boss.folder.spool.iterdir() if path.name[0] != "."]
        return any(all(word in told for word in words) for told in left)

    def until_result(self, name: str, text: str) -> None:
        """A tool of this agent has given that."""
        self.model.wait_for(
            lambda request: (
                request.session_id == self.ids[name]
                and isinstance(request.said, ToolResult)
                and text in request.said.text
            )
        )

    # ── where the human is ──

    def shown(self) -> str:
        """The pane in front of the human."""
        clients = self.tmux.run("list-clients", "-F", "#{client_name} #{pane_id}").splitlines()
        return dict(line.split(" ") for line in clients)[self.human.name]

    def until_shown(self, pane: str) -> None:
        try:
            until(lambda: self.shown() == pane, "the pane")
        except AssertionError:
            raise AssertionError(f"the human sees {self.shown()}, and not {pane}") from None
