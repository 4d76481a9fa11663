"""The invented agent under test: installed as any package is, and seen from outside."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remuda import agents
from remuda.agents import find_agent
from remuda.keeper.environment import session_environment
from support.keeper import Start, until
from support.messages import Post

_TESTS = Path(__file__).parent.parent
KINDS = ("mustang", "pinto")
TRANSPORT = {"mustang": "call", "pinto": "paste"}


@contextmanager
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put the package of the agent beside ours, for this process and those that it starts.

    Returns the agent's home.
    """
    home = Path(tempfile.mkdtemp(prefix="mstg-", dir="/tmp"))  # short, for its sockets
    registry = str(_TESTS / "support" / "registry")
    before = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([registry, str(_TESTS), *before]))
    monkeypatch.setenv("MUSTANG_HOME", str(home))
    monkeypatch.syspath_prepend(registry)
    agents._installed.cache_clear()
    agents.find_sources.cache_clear()
    try:
        yield home
    finally:
        agents._installed.cache_clear()
        agents.find_sources.cache_clear()
        shutil.rmtree(home, ignore_errors=True)


class Corral:
    """Sessions of one kind of the agent, with one home."""

    def __init__(self, start: Start, home: Path, folder: Path, kind: str) -> None:
        self._start = start
        self.home = home
        self.folder = folder
        self.kind = kind

    def start(self, name: str = "m", **more: Any) -> Post:
        env = session_environment(dict(os.environ), name, "HEIMDALL", {})
        given: dict[str, Any] = {"agent": self.kind, "cols": 100, "rows": 30, "asks": True, **more}
        argv = list(find_agent(self.kind).default_argv)
        post = Post(self._start(name, argv, cwd=str(self.folder), env=env, **given))
        until(lambda: any(line.startswith("saddle>") for line in post.lines()), "its composer")
        return post

    def hold(self, moment: str) -> None:
        """Let calls wait from here on: "before" they are taken, "after" that, or "" to go on."""
        part = self.home / "part"
        part.write_text(moment)
        part.rename(self.home / "hold")

    def holding(self) -> None:
        until((self.home / "holding").exists, "a call that waits")

    def runs(self) -> list[str]:
        """What was run as a turn, in order, by whichever process."""
        path = self.home / "runs"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def draft(post: Post) -> str:
    """What stands in its composer."""
    (line,) = [line for line in post.lines() if line.startswith("saddle>")]
    return line[len("saddle> ") :].rstrip()
