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
from remuda.keeper.survivors import end_survivors
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import OTHER_VERSIONS
from remuda.testing.real_cli.opencode import OpencodeCli
from support.keeper import Process, Start, until
from support.messages import Post
from support.real_sessions import tool

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


class Opencode(OpencodeCli):
    """The binary, and sessions of it on a loopback model."""

    def __init__(self, folder: Path, model: LoopbackModel, **settings: Any) -> None:
        super().__init__(folder, model.url, **settings)
        self.model = model
        self.env |= {name: value for name, value in os.environ.items() if name == "REMUDA_TEST_RUN"}

    def start(self, start: Start, name: str = "o", *flags: str, **more: Any) -> Post:
        """A session, once its composer is drawn. `program` stands in for the binary."""
        env = session_environment({**self.env, **more.pop("env", {})}, name, "HEIMDALL_SESSION_ID", {})
        given: dict[str, Any] = {"agent": "opencode", "cols": 100, "rows": 30, "asks": True, **more}
        argv = [str(given.pop("program", self.binary)), *flags]
        post = Post(start(name, argv, cwd=str(self.project), env=env, **given))
        until(lambda: "ctrl+p commands" in screen(post), "its composer")
        return post

    def seed_plugin_package(self) -> None:
        """Leave its folder as a first start with a network does: a plugin makes it install a package there.

        Without a network it tries for 70 to 130 s at each start (1.18.33).
        """
        name, version = "@opencode-ai/plugin", OTHER_VERSIONS["opencode"]
        folder = self.home / ".config" / "opencode"
        own: dict[str, Any] = {"dependencies": {name: version}}
        package = {"name": name, "version": version}
        lock = {"lockfileVersion": 3, "packages": {"": own, f"node_modules/{name}": {"version": version}}}
        installed = folder / "node_modules" / name
        installed.mkdir(parents=True)
        for path, document in (
            (folder / "package.json", own),
            (folder / "package-lock.json", lock),
            (installed / "package.json", package),
        ):
            path.write_text(json.dumps(document))

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


def server_address(post: Post) -> tuple[str, str, str]:
    """Return address and password of its server, and the conversation in its terminal."""
    record = record_of(post)
    words = Path(f"/proc/{record['child_pid']}/cmdline").read_text().split("\0")
    variables = Path(f"/proc/{record['companion_pid']}/environ").read_text().split("\0")
    (secret,) = [one.partition("=")[2] for one in variables if one.startswith("OPENCODE_SERVER_PASSWORD=")]
    return words[words.index("attach") + 1], secret, words[words.index("--session") + 1]


def kill(post: Post, victim: str) -> None:
    """Kill the keeper, the server or the terminal outright."""
    record = record_of(post)
    pids = {
        "server": record["companion_pid"],
        "terminal": record["child_pid"],
        "keeper": post.kept.keeper_pid,
    }
    try:
        process = Process(int(pids[victim]))
    except ProcessLookupError:
        return
    process.kill()
    process.close()
    if victim != "server":
        assert post.kept.keeper.ended()
        assert end_survivors(post.kept.paths, 0.0)[1] == []
