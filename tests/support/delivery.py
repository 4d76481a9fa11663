"""Scripted agents to which messages are delivered, what they were typed, and what became of a message."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda.inbox.receipts import Trace
from remuda.keeper.environment import session_environment
from remuda.testing.scripted_agent.probe import whole_records
from support.keeper import Process, Start
from support.messages import Post

# The scripted agent, and every byte that it was typed. LOSE_ENTERS: this many Enters have no effect.
# HELD: a fifo that holds its start.
LISTENING = """
import os, runpy, sys

if "HELD" in os.environ:
    open(os.environ["HELD"]).close()
said = open(sys.argv[2], "ab", buffering=0)
read = os.read
to_lose = int(os.environ.get("LOSE_ENTERS", "0"))


def listening(fd, size):
    global to_lose
    data = read(fd, size)
    if fd == 0:
        said.write(data)
        if to_lose and b"\\r" in data:
            to_lose -= 1
            data = data.replace(b"\\r", b"") or listening(fd, size)
    return data


os.read = listening
sys.argv[1:3] = []
runpy.run_module("remuda.testing.scripted_agent", run_name="__main__", alter_sys=True)
"""


class Bench:
    """Starts scripted agents that share a home, and knows what they were typed."""

    def __init__(self, start: Start, folder: Path) -> None:
        self._start = start
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        (folder / "claude").mkdir()
        self.typed_file = folder / "typed"
        self._program = folder / "listening.py"
        self._program.write_text(LISTENING)

    def start(self, *flags: str, name: str = "d", **more: Any) -> Post:
        own = {"CLAUDE_CONFIG_DIR": str(self.folder / "claude"), "MOCK_TIME_SCALE": "0.01"}
        env = session_environment({**os.environ, **own, **more.pop("env", {})}, name, "HEIMDALL", {})
        # As many words as those that name the scripted agent itself; what follows are its arguments.
        argv = [sys.executable, str(self._program), "agent", str(self.typed_file), *flags]
        given: dict[str, Any] = {"agent": "demo", "classifier": "claude", "cols": 100, "rows": 30, **more}
        return Post(self._start(name, argv, cwd=str(self.project), env=env, **given))

    def typed(self) -> bytes:
        """All that came in, but for the terminal's answers to its queries, which come when they come."""
        return re.sub(rb"\x1b\[\?[\d;]*(?:\$y|[uc])|\x1bP.*?\x1b\\", b"", self.typed_file.read_bytes())

    def keys(self) -> list[int]:
        """How often those came in that a message, a draft or a dialog is moved by."""
        typed = self.typed()
        return [typed.count(key) for key in (b"\x1b[200~", b"\r", b"\x13", b"\x1b[A", b"\x1b[B")]

    def prompts(self, post: Post) -> list[str]:
        """What the agent was asked, as its transcript has it."""
        path = post.client.describe()["conversation"]["transcript_path"]
        records = whole_records(Path(path))
        return [str(one["message"]["content"]) for one in records if "promptSource" in one]


def idle(post: Post) -> Post:
    post.watcher.settled("idle")
    return post


def busy(post: Post) -> Post:
    """With a prompt of a human, until that is interrupted."""
    idle(post).watcher.paste("SLOW 60")
    post.watcher.until("streaming")
    return post


def attempts(found: Trace) -> list[int]:
    return [int(one["attempt"]) for one in found.steps if one["stage"] == "written"]


def answer(found: Trace) -> str:
    assert found.answer is not None
    return str(found.answer["text"])


def in_flight(post: Post) -> dict[str, Any] | None:
    flight: dict[str, Any] | None = post.client.describe()["delivery"]["in_flight"]
    return flight


def pause(post: Post) -> Callable[[], None]:
    """Let the agent stand still, idle; the call that lets it go on."""
    idle(post)
    os.kill(post.kept.child_pid, signal.SIGSTOP)
    return lambda: os.kill(post.kept.child_pid, signal.SIGCONT)


def kill_keeper(post: Post) -> None:
    """As the kernel does when memory is short: its agent goes down with its terminal."""
    agent = Process(post.kept.child_pid)
    post.kept.keeper.kill()
    agent.kill()
    agent.close()
