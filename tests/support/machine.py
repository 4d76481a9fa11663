"""A machine that can lose all its processes at once: a pid namespace, whose first process is killed.

It needs root, or a kernel that lets every user make user namespaces.
"""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import FINAL, Trace, find
from remuda.keeper.record import SessionRecord
from support.commands import Commands
from support.keeper import until
from support.messages import stages

# Reaps whatever loses its parent, as the first process of a machine does.
_FIRST = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
os.mkfifo(sys.argv[1])
while True:
    signal.sigwait([signal.SIGCHLD])
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
"""
_UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
_ENTER = ("nsenter", "-p", "-m")


@cache
def _as_user() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What `unshare` and `nsenter` need here besides. Raises `OSError` if no such machine can be made."""
    error = ""
    for unshare, enter in (
        ((), ()),
        (("--user", "--map-root-user"), ("--user", "--preserve-credentials")),
    ):
        done = subprocess.run([*_UNSHARE, *unshare, "true"], capture_output=True, text=True, check=False)
        if not done.returncode:
            return unshare, enter
        error = done.stderr.strip()
    raise OSError(error)


def require_machine() -> None:
    """Skip the test where no machine can be made. All such tests make one line of the summary."""
    try:
        _as_user()
    except OSError as error:
        pytest.skip(f"NOT TESTED: the loss of all processes at once; no pid namespace can be made: {error}")


STAGES = ("accepted", "written", "submitted", "recorded", "ended")
LONGEST_STAGE = 0.2
"""Seconds. A stage lasts less than that, most often."""


class Machine:
    """`boot` it, run commands with `remuda`, and `cut` its power. Its files stay."""

    def __init__(self, home: Path) -> None:
        self.remuda = Commands(home)
        self._boots = 0
        self._unshare: subprocess.Popen[bytes] | None = None
        self._first = 0

    def boot(self) -> None:
        self._boots += 1
        up = self.remuda.home / f"up{self._boots}"
        unshare, enter = _as_user()
        words = [*_UNSHARE, *unshare, sys.executable, "-c", _FIRST, str(up)]
        self._unshare = subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL)
        until(up.exists, "the first process")
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children").read_text()
        self._first = int(children.split()[0])
        self.remuda.prefix = (*_ENTER, *enter, "-t", str(self._first))

    def cut(self) -> None:
        """Kill every process of the machine at once. Returns when all are gone."""
        if self._unshare is not None:
            os.kill(self._first, signal.SIGKILL)  # the kernel kills the others, and only then it is gone
            self._unshare.wait()
            self._unshare = None

    def begin_outside(self, *words: str) -> subprocess.Popen[bytes]:
        """Run a command that outlives the machine. It reaches sockets there by their files."""
        outside = copy.copy(self.remuda)
        outside.prefix = ()
        return outside.begin(*words)

    def stop_agent(self, name: str) -> None:
        """Let its agent take nothing more, at rest."""
        until(lambda: self._rests(name), f"{name} at rest")
        pid = str(self.remuda.json("status", name)["pid"])
        subprocess.run([*self.remuda.prefix, "kill", "-STOP", pid], check=True)

    def _rests(self, name: str) -> bool:
        status = self.remuda.json("status", name)
        return status["state"] == "idle" and not status["dissent"]

    def configure(self, *lines: str) -> None:
        folder = Path(self.remuda.env["HOME"]) / ".config" / "remuda"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "remuda.toml").write_text("\n".join(lines))

    # ── its sessions, by their files ──

    def record(self, name: str) -> SessionRecord:
        found = SessionRecord.load(self.remuda.sessions / f"{name}.json")
        assert found is not None
        return found

    def running(self) -> set[str]:
        return {str(one["name"]) for one in self.remuda.json("ls") if one["alive"]}

    def put(self, name: str, text: str) -> str:
        return Inbox(self.remuda.sessions / f"{name}.inbox").put(text).id

    def receipt(self, name: str, message: str) -> Trace:
        return find(message, [self.remuda.sessions / f"{name}.inbox"])

    def reached(self, name: str, message: str, stage: str) -> None:
        until(lambda: stage in stages(self.receipt(name, message)), f"{message} {stage}")

    def in_flight(self, name: str) -> str | None:
        """The message that was handed out and has not ended, by the files of a machine without power."""
        lease = self.remuda.sessions / f"{name}.inbox" / ".inbox-lease.json"
        return str(json.loads(lease.read_text())["id"]) if lease.exists() else None

    def knows(self, name: str, message: str, text: str) -> bool:
        """Whether the files of a machine without power prove that the agent has that prompt."""
        if "submitted" in stages(self.receipt(name, message)):
            return True
        return any(text in one.read_text() for one in self.transcripts())

    def transcripts(self) -> list[Path]:
        env = self.remuda.env
        return [*Path(env.get("CLAUDE_CONFIG_DIR") or f"{env['HOME']}/.claude").rglob("*.jsonl")]

    def ended(self, name: str, message: str) -> Trace:
        """The receipt of a message, when it has ended: once, and for a reason that is allowed here."""
        until(lambda: self.receipt(name, message).stage in FINAL, f"the end of {message}")
        receipt = self.receipt(name, message)
        assert sum(one in FINAL for one in stages(receipt)) == 1, receipt
        assert receipt.stage == "acked" or "before it was answered" in receipt.reason, receipt
        return receipt

    def delivered_again(self, name: str, message: str) -> bool:
        return [one["stage"] for one in self.receipt(name, message).steps].count("written") > 1

    def close(self) -> None:
        """Its pid files name processes by the machine's own numbers, so nothing else may be ended by them."""
        self.cut()
        for process in self.remuda._running:
            process.kill()
            process.communicate()


class Fates:
    """What was sent, and what may and must become of it, by the files that each loss of power left."""

    def __init__(self, machine: Machine, names: Sequence[str]) -> None:
        self._machine = machine
        self._names = names
        self.sent: dict[str, tuple[str, str]] = {}
        self.may_die: set[str] = set()
        """Cut off when the agent had it: it may have run, and is not handed over again."""
        self.again: set[str] = set()
        """Cut off before that: it must be handed over again."""

    def put(self, name: str, text: str) -> str:
        message = self._machine.put(name, text)
        self.sent[message] = name, text
        return message

    def look(self) -> None:
        """While the machine has no power."""
        for name in self._names:
            message = self._machine.in_flight(name)
            if message in self.sent:
                is_known = self._machine.knows(name, message, self.sent[message][1])
                (self.may_die if is_known else self.again).add(message)

    def ended(self) -> dict[str, Trace]:
        return {message: self._machine.ended(name, message) for message, (name, _) in self.sent.items()}

    def check(self, count: Callable[[str, str], int]) -> None:
        """`count`: how often an agent got a prompt."""
        for message, receipt in self.ended().items():
            name, text = self.sent[message]
            # An agent that was killed with a prompt may not have written it down.
            is_dead = receipt.stage == "dead"
            assert not is_dead or message in self.may_die, receipt
            assert message not in self.again or self._machine.delivered_again(name, message), receipt
            assert count(name, text) == 1 or (is_dead and not count(name, text)), receipt
