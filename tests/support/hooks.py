"""The Stop hook on an inbox of its own, run as Claude Code runs it: one file, `-I -S`, a payload on stdin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import remuda
from support.envelopes import put_marked

HOOK = Path(remuda.__file__).parent / "inbox" / "stop_hook.py"
IDLE = "--- IDLE TICK ---"
PATIENCE = 30.0


class Ran:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def reason(self) -> str | None:
        """What was handed out; None when the stop was approved."""
        if not self.out:
            return None
        said = json.loads(self.out)
        assert said.keys() == {"decision", "reason"}
        assert said["decision"] == "block"
        reason = said["reason"]
        assert isinstance(reason, str)
        return reason


class Box:
    """A folder with an inbox, and the hook on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inbox = folder / "inbox.jsonl"
        self.running: list[subprocess.Popen[str]] = []

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-I", "-S", str(HOOK), *words, "--inbox", str(self.inbox)]

    def start(
        self, *words: str, payload: dict[str, Any] | None = None, pid: int | None = None
    ) -> subprocess.Popen[str]:
        """`pid` is the agent's, as its hooks are told it."""
        env = {name: value for name, value in os.environ.items() if name != "CLAUDE_PID"}
        process = subprocess.Popen(
            self.argv(*words),
            env=env if pid is None else env | {"CLAUDE_PID": str(pid)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        assert process.stdin is not None
        process.stdin.write("" if payload is None else json.dumps(payload))
        process.stdin.close()
        process.stdin = None
        return process

    def finish(self, process: subprocess.Popen[str]) -> Ran:
        out, err = process.communicate(timeout=PATIENCE)
        return Ran(process.returncode, out, err)

    def run(self, *words: str, payload: dict[str, Any] | None = None, pid: int | None = None) -> Ran:
        return self.finish(self.start(*words, payload=payload, pid=pid))

    def tick(self, *words: str, payload: dict[str, Any] | None = None, pid: int | None = None) -> str | None:
        ran = self.run(*words, payload=payload, pid=pid)
        assert (ran.code, ran.err) == (0, "")
        return ran.reason

    def recover(self, policy: str = "retry") -> str:
        ran = self.run("recover", "--on-orphan", policy)
        assert (ran.code, ran.out) == (0, "")
        return ran.err.rpartition("recover: ")[2].split()[0]

    def drain(self) -> list[str]:
        handed = []
        while (reason := self.tick()) is not None:
            handed.append(reason)
        return handed

    def put(self, text: str) -> None:
        with self.inbox.open("a") as inbox:
            inbox.write(text)

    def envelope(self, **fields: Any) -> None:
        """As one of our own writers puts it."""
        put_marked(self.inbox, **fields)

    def path(self, name: str) -> Path:
        return self.folder / name

    def offset(self) -> int:
        path = self.path(".inbox-offset")
        return int(path.read_text()) if path.exists() else 0

    def flags(self) -> set[str]:
        return {name for name in (".in-flight", ".responded") if self.path(name).exists()}

    def flight(self) -> dict[str, Any]:
        found = json.loads(self.path(".in-flight").read_text())
        assert isinstance(found, dict)
        return found

    def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def lines(self, name: str) -> list[dict[str, Any]]:
        path = self.path(name)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def receipts(self) -> list[tuple[str, str]]:
        return [(str(one["id"]), str(one["stage"])) for one in self.lines("receipts.jsonl")]


BOTH = {".in-flight", ".responded"}


def make_due(box: Box) -> None:
    """The delay passes: the clock of the hook cannot be set, what it compares with can."""
    queue = json.loads(box.path(".inbox-queue.json").read_text())
    for one in queue["held"]:
        one["due"] = 1.0
    box.path(".inbox-queue.json").write_text(json.dumps(queue))


def wait_until(process: subprocess.Popen[str], where: str) -> None:
    """Until the kernel holds it in this call: looked at again and again, at the pace of the machine."""
    call = Path(f"/proc/{process.pid}/syscall")
    began = time.monotonic()
    while call.read_text().split()[0] != where:
        assert process.poll() is None
        assert time.monotonic() - began < PATIENCE
        os.sched_yield()


def start_while_written(box: Box, *words: str) -> subprocess.Popen[str]:
    """Start a hook that waits for the end of the last line, which is being written all the while."""
    process = box.start(*words)
    call = Path(f"/proc/{process.pid}/syscall")
    began = time.monotonic()
    while call.read_text().split()[0] != SYS_SIGTIMEDWAIT:
        os.utime(box.inbox, (time.time() + 1, time.time() + 1))
        assert process.poll() is None
        assert time.monotonic() - began < PATIENCE
        time.sleep(0.01)
    return process


SYS_FLOCK = "73" if os.uname().machine == "x86_64" else "32"
SYS_SIGTIMEDWAIT = "128" if os.uname().machine == "x86_64" else "137"
