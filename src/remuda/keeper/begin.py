"""The start of a session's program, with little loaded: what keeps it is loaded while it starts."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.agents import find_agent
from remuda.agents.base import LaunchContext
from remuda.frozen import frozen
from remuda.paths import FOLDER_VARIABLE, private_folder
from remuda.terminal.pty import Pty, spawn

if TYPE_CHECKING:
    from remuda.agents.base import Agent, Launch
    from remuda.paths import SessionPaths

    from .spec import SessionSpec

_BACKLOG = 1024
"""Connections wait there until the keeper is loaded, also those of a flood."""


@frozen
class Begun:
    """A program that runs, and what was made for it."""

    agent: Agent
    listener: socket.socket | None
    """Where its hooks arrive."""
    token: str
    launch: Launch
    pty: Pty
    prompt: str | None
    """What it was given as an argument."""

    def abandon(self) -> None:
        """Nobody would ever know of it."""
        try:
            os.killpg(self.pty.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.pty.close()


def begin_at_once(spec: SessionSpec, paths: SessionPaths) -> Begun:
    """Start it with the one prompt that it is for, which is written down while it loads: an agent takes much
    longer to read its arguments than we to write, and is killed if that fails."""
    agent, prompt = find_agent(spec.agent), spec.prompt
    if prompt is None or not agent.takes_argument(spec.argv) or not agent.fits_argument(prompt):
        return begin(spec, paths)
    return begin(spec, paths, prompt)


def begin(
    spec: SessionSpec,
    paths: SessionPaths,
    prompt: str | None = None,
    conversation: Mapping[str, Any] | None = None,
) -> Begun:
    """Raises what keeps the program from running."""
    agent = find_agent(spec.agent)
    listener, token = None, os.urandom(24).hex()
    if agent.hooks is not None:
        private_folder(paths.scratch)
        listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    launch = agent.launch(
        LaunchContext(
            argv=spec.argv,
            env=spec.env,
            cwd=Path(spec.cwd),
            scratch=paths.scratch,
            hook_url=f"http://127.0.0.1:{listener.getsockname()[1]}/hook" if listener is not None else "",
            hook_token=token,
            emit_command="" if spec.ephemeral and prompt is not None else _emit_command(paths),
            conversation=conversation or {},
            limits_turns=bool(spec.max_turns),
            asks=spec.asks,
            tools=spec.tools,
            prompt=prompt,
        )
    )
    for path, content in launch.files.items():
        _write(path, content)
    env = {**launch.env, FOLDER_VARIABLE: str(paths.folder)}
    pty = spawn(launch.argv, cwd=Path(spec.cwd), env=env, cols=spec.cols, rows=spec.rows)
    return Begun(agent, listener, token, launch, pty, prompt)


def _emit_command(paths: SessionPaths) -> str:
    import shlex
    import sys

    from . import emit

    return shlex.join([sys.executable, "-I", "-S", emit.__file__, str(paths.socket)])


def _write(path: Path, data: bytes) -> None:
    """For the program that is about to start: nobody reads it after a crash, so no disk is waited for."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        os.fchmod(fd, 0o600)  # whatever the umask
        file.write(data)
