"""A home as version 0.1 (commit 76f0a55) leaves it at an upgrade.

`python tests/support/old_home.py FOLDER` makes one in FOLDER, to look at.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.keeper import Process, until
from support.old_version import Machine, install_old

SETTINGS = '{ "model":"x" ,\n"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]} }'
TMUX_CONF = "set -g mouse on"
OUTSIDE = "11111111-2222-4333-8444-555555555555"
"""The conversation of a Claude session that only hooks report."""


class OldHome:
    """A user's home in which version 0.1 has run for a while; `alive` still runs on its old keeper."""

    def __init__(self, machine: Machine, old: Path) -> None:
        self.machine, self.old = machine, old
        self.state = machine.home / "state"
        self.inbox = machine.home / "run"
        """An inbox of its own, drained by the Stop hook."""
        self.drained = machine.home / "other/.claude/settings.json"
        """The settings of the project whose Stop hook drains it."""
        self.ids: dict[str, str] = {}
        """Ids of messages by their text."""

    def make(self) -> None:
        self.install()
        self.fill_inbox()
        self._run("start", "alive", "--detach", "--agent", "demo")
        self._run("send", "alive", "hello", "--wait")
        self.fill_ended_session()
        self.fill_boss()
        self.leave_pool()

    def _run(self, *words: str) -> str:
        return self.machine.run(self.old, words)

    def _json(self, *words: str) -> Any:
        return self.machine.json(self.old, *words)

    def put(self, text: str, *words: str) -> None:
        self.ids[text] = self._json(*words, text)["id"]

    def install(self) -> None:
        """Put hooks into Claude's settings, lines into tmux.conf, and write the unit of the boss."""
        home = self.machine.home
        (home / ".claude").mkdir()
        (home / ".claude/settings.json").write_text(SETTINGS)
        (home / ".tmux.conf").write_text(TMUX_CONF)
        self.inbox.mkdir(mode=0o700)
        self._run("hooks", "install", "--boss", "--yes")
        # Not where agents of this home run: they would take its messages.
        inbox = str(self.inbox / "inbox.jsonl")
        self._run("hooks", "install", "--inbox", inbox, "--settings", str(self.drained))
        self._run("hooks", "install", "--tmux", "--yes")
        self._run("up", "--install")

    def fill_inbox(self) -> None:
        """One message acknowledged, one dead, one in flight; the rest waits, one of them delayed."""
        put, inbox = ("inbox", "put", "--inbox", str(self.inbox)), str(self.inbox / "inbox.jsonl")
        for text in ("done", "dead", "flying"):
            self.put(text, *put)
        self.put("later", *put, "--delay", "1h")
        self.put("/compact", *put, "--command")
        self.put("fragile", *put, "--max-attempts", "1", "--ttl", "1h", "--from", "me")
        self._run("stop-hook", "--inbox", inbox)
        self._run("stop-hook", "--inbox", inbox)
        self._run("inbox", "recover", "--inbox", str(self.inbox), "--on-orphan", "deadletter")
        self._run("stop-hook", "--inbox", inbox)

    def fill_ended_session(self) -> None:
        """A session that was killed in a turn, with more messages in its inbox."""
        self._run("start", "ended", "--detach", "--agent", "demo", "--env", "MOCK_TIME_SCALE=1")
        self._run("send", "ended", "first", "--wait")
        self.put("SLOW 60", "send", "ended")

        def is_recorded() -> bool:
            receipt = self._json("receipt", self.ids["SLOW 60"])
            return any(one["stage"] == "recorded" for one in receipt["steps"])

        until(is_recorded, "the turn")
        for text, *words in (["next"], ["delayed", "--delay", "1h"], ["/clear", "--command"]):
            self.put(text, "send", "ended", *words)
        keeper, program = (self.state / "sessions/ended.pid").read_text().split()
        for pid in (keeper, program):
            kill(int(pid))

    def fill_boss(self) -> None:
        """Two decided permission requests, a history, a waiting item, and what a hook reported to no boss."""
        self._run("up", "--detach", "--port", "0")
        for text, decision in (("RUNBASH touch allowed", "approve"), ("RUNBASH touch denied", "deny")):
            self._run("send", "alive", text)
            until(lambda: self._json("approvals")["approvals"], "the permission request")
            self._run(decision, "alive", *(["--yes"] if decision == "approve" else []))
            self._run("wait", "alive")
        until(self._has_proof, "proof of both decisions")
        until(lambda: self._json("queue")["items"], "alive in the queue")
        self._run("down")
        self.report("SessionStart", OUTSIDE, source="startup")
        self.report("Stop", OUTSIDE, last_assistant_message="done outside")

    def _has_proof(self) -> bool:
        ledger = self._json("approvals", "--all")["approvals"]
        return len(ledger) == 2 and all("ran" in (one["proof"] or {}) for one in ledger)

    def report(self, event: str, session: str, **facts: Any) -> None:
        """Run the hook of the boss that is installed, as Claude Code does."""
        settings = json.loads((self.machine.home / ".claude/settings.json").read_text())
        commands = [one["command"] for group in settings["hooks"][event] for one in group["hooks"]]
        (command,) = [one for one in commands if "boss/hook" in one]
        payload = {"hook_event_name": event, "session_id": session, "cwd": str(self.machine.project), **facts}
        data = json.dumps(payload).encode()
        subprocess.run(["sh", "-c", command], input=data, env=self.machine.env, check=True)

    def leave_pool(self) -> None:
        """The files of a pool that was killed."""
        with self.machine.pool(self.old):
            pass
        assert (self.state / "pool.sock").exists()


def kill(pid: int) -> None:
    try:
        process = Process(pid)
    except ProcessLookupError:
        return
    process.kill()
    process.close()


def main() -> None:
    os.environ.setdefault("REMUDA_TEST_RUN", "")
    folder = Path(sys.argv[1]).absolute()
    home = OldHome(Machine(folder), install_old(Path(tempfile.mkdtemp(prefix="remuda-0.1-"))))
    home.make()
    print(f"made {folder}; the session 'alive' runs: REMUDA_HOME={home.state} remuda kill alive")


if __name__ == "__main__":
    main()
