"""The real opencode under test: a home of its own, the loopback model, and sessions around it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from remuda.keeper.environment import session_environment
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import binary_of
from support.keeper import Process, Start, until
from support.messages import Post
from support.real_sessions import tool

_MODEL = "anthropic/claude-sonnet-4-5"
# Made up; it is only ever sent to loopback.
_KEY = "sk-ant-api03-remuda-bench-made-up-key-000000000000"
PATIENCE = 150.0
QUESTION = tool(
    "question",
    questions=[
        {
            "question": "Which color?",
            "header": "Color",
            "options": [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}],
        }
    ],
)


def bash(command: str) -> str:
    """A prompt that lets the agent run a command."""
    return tool("bash", command=command, description="run it")


class Opencode:
    """The binary with a HOME and a project below `folder`. `settings` are laid over those of the bench."""

    def __init__(self, folder: Path, model: LoopbackModel, **settings: Any) -> None:
        self.folder = folder
        self.model = model
        self.home, self.project = folder / "home", folder / "project"
        for one in (self.project, self.home / ".config" / "opencode", folder / "tmp"):
            one.mkdir(parents=True)
        options = {"baseURL": f"{model.url}/v1", "apiKey": _KEY}
        made = {
            "autoupdate": False,
            "share": "disabled",
            "model": _MODEL,
            "provider": {"anthropic": {"options": options}},
            "permission": {"bash": "ask"},
            **settings,
        }
        (self.home / ".config" / "opencode" / "opencode.json").write_text(json.dumps(made))
        self.env = {
            "PATH": f"{binary_of('opencode').parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self.home),
            "TMPDIR": str(folder / "tmp"),
            "SHELL": "/bin/sh",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            **{name: value for name, value in os.environ.items() if name == "REMUDA_TEST_RUN"},
        }

    def start(self, start: Start, name: str = "o", *flags: str, **more: Any) -> Post:
        """A session, once its composer is drawn."""
        env = session_environment({**self.env, **more.pop("env", {})}, name, "HEIMDALL_SESSION_ID", {})
        given: dict[str, Any] = {"agent": "opencode", "cols": 100, "rows": 30, "asks": True, **more}
        argv = [str(binary_of("opencode")), *flags]
        post = Post(start(name, argv, cwd=str(self.project), env=env, **given))
        until(lambda: "ctrl+p commands" in screen(post), "its composer")
        return post

    def prompts(self) -> list[str]:
        """Every prompt that reached the model, in order. opencode asks for titles without tools."""
        return [
            request.prompt
            for request in self.model.requests
            if request.is_message and request.tools and isinstance(request.said, str)
        ]


@contextmanager
def opencode_bench(model: LoopbackModel, **settings: Any) -> Iterator[Opencode]:
    folder = Path(tempfile.mkdtemp(prefix="rmd-oc-", dir="/tmp"))
    try:
        yield Opencode(folder / "bench", model, **settings)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def screen(post: Post) -> str:
    return "\n".join(post.lines())


def server_of(post: Post) -> Process:
    return Process(int(record_of(post)["companion_pid"]))


def record_of(post: Post) -> Mapping[str, Any]:
    record: Mapping[str, Any] = json.loads(post.kept.paths.record.read_text())
    return record
