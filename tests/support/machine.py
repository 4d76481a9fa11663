"""A machine that can lose all its processes at once: a pid namespace, whose first process is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

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


def why_not() -> str:
    """Why no such machine can be made here; empty if it can."""
    try:
        subprocess.run([*_UNSHARE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no pid namespace can be made: {error}"
    return ""


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
        words = [*_UNSHARE, sys.executable, "-c", _FIRST, str(up)]
        self._unshare = subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL)
        until(up.exists, "the first process")
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children").read_text()
        self._first = int(children.split()[0])
        self.remuda.prefix = ("nsenter", "-t", str(self._first), "-p", "-m")

    def cut(self) -> None:
        """Kill every process of the machine at once. Returns when all are gone."""
        if self._unshare is not None:
            os.kill(self._first, signal.SIGKILL)  # the kernel kills the others, and only then it is gone
            self._unshare.wait()
            self._unshare = None

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

    def ended(self, name: str, message: str) -> Trace:
        """The receipt of a message, when it has ended: once, and for a reason that is allowed here."""
        until(lambda: self.receipt(name, message).stage in FINAL, f"the end of {message}")
        receipt = self.receipt(name, message)
        assert sum(one in FINAL for one in stages(receipt)) == 1, receipt
        assert receipt.stage == "acked" or "before it was answered" in receipt.reason, receipt
        return receipt

    def close(self) -> None:
        """Its pid files name processes by the machine's own numbers, so nothing else may be ended by them."""
        self.cut()
        for process in self.remuda._running:
            process.kill()
            process.communicate()
