"""An agent that speaks ACP under test (`acp_program`): sessions of it, and what they show."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remuda.keeper.environment import session_environment
from support.keeper import Kept, Start, until
from support.messages import Post

PROGRAM = [sys.executable, "-P", str(Path(__file__).with_name("acp_program.py"))]


class Stage:
    """Sessions of the agent, with one home."""

    def __init__(self, start: Start, folder: Path) -> None:
        self._start = start
        self.home = folder / "acp-home"
        self.home.mkdir()
        self.folder = folder

    def environment(self, *, load: bool = True) -> dict[str, str]:
        return {"ACP_TEST_HOME": str(self.home), "ACP_TEST_LOAD": "1" if load else ""}

    def start(self, name: str = "a", *, load: bool = True, **more: Any) -> Post:
        post = Post(self.keep(name, load=load, **more))
        until(lambda: draft(post) is not None, "the row for lines")
        return post

    def keep(
        self, name: str = "a", *, load: bool = True, program: Sequence[str] = PROGRAM, **more: Any
    ) -> Kept:
        env = session_environment({**os.environ, **self.environment(load=load)}, name, "HEIMDALL", {})
        given: dict[str, Any] = {"agent": "acp", "cols": 100, "rows": 30, "asks": True, **more}
        return self._start(name, program, cwd=str(self.folder), env=env, **given)

    def runs(self) -> list[str]:
        path = self.home / "runs"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def pid(self) -> int:
        return int((self.home / "pid").read_text())


def draft(post: Post) -> str | None:
    """Return what is typed in its row for lines; None while it has none."""
    last = next((line for line in reversed(post.lines()) if line.strip()), "")
    return last[2:].rstrip() if last.startswith("❯") else None


def shows(post: Post, text: str) -> None:
    until(lambda: any(text in line for line in post.lines()), f"{text!r} on the screen")
