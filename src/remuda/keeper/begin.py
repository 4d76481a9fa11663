"""Start a session's program, with few imports: the rest of the keeper is loaded while it starts."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.agents import find_agent
from remuda.agents.base import LaunchContext
from remuda.frozen import frozen, replaced
from remuda.paths import FOLDER_VARIABLE, private_folder
from remuda.terminal.pty import Pty, resolve_program, spawn
from remuda.tried_program import check_program

if TYPE_CHECKING:
    from remuda.agents.base import Agent, Launch
    from remuda.agents.prompting import CallAddress
    from remuda.paths import SessionPaths

    from .companion import CompanionProcess
    from .spec import SessionSpec

_BACKLOG = 1024
"""How many connections can wait until the keeper is loaded, also in a flood."""


@frozen
class StartedProgram:
    """A program that runs, and what was made for it."""

    agent: Agent
    listener: socket.socket | None
    """Where its hooks arrive."""
    token: str
    launch: Launch
    pty: Pty
    prompt: str | None
    """The prompt that it got as an argument."""
    address: CallAddress | None = None
    """Where its server listens; None for an agent that is not called."""
    companion: CompanionProcess | None = None

    def abandon(self) -> None:
        """Kill the program: it cannot be kept, and no client could find it."""
        if self.companion is not None:
            self.companion.kill()
        try:
            os.killpg(self.pty.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.pty.close()


def begin_at_once(spec: SessionSpec, paths: SessionPaths) -> StartedProgram:
    """Start a program with its only prompt as an argument.

    The prompt is written to the inbox while the agent loads, which takes longer. If that fails, the agent is
    killed.
    """
    agent, prompt = find_agent(spec.agent), spec.prompt
    if prompt is None or not agent.takes_argument(spec.argv) or not agent.fits_argument(prompt):
        return begin(spec, paths)
    return begin(spec, paths, prompt)


def begin(
    spec: SessionSpec,
    paths: SessionPaths,
    prompt: str | None = None,
    conversation: Mapping[str, Any] | None = None,
    permission_mode: str | None = None,
    permissions: Sequence[Mapping[str, Any]] = (),
    *,
    model: str = "",
    is_known: bool = False,
) -> StartedProgram:
    """Start the program. Raises the reason if it cannot run, `NotSafe` if a self-test found it unsafe.

    `permission_mode`: its session was asleep, and it goes on in that mode, with those `permissions`, and with
    that `model` unless it is empty.
    `is_known`: its start need not be reported.
    """
    agent = find_agent(spec.agent)
    listener, token = None, os.urandom(24).hex()
    transport = agent.prompts.transport if agent.prompts is not None else None
    if transport is not None:
        check_program(resolve_program(spec.argv[0], spec.env, Path(spec.cwd)), spec.agent)
    if agent.hooks is not None or (transport is not None and transport.kind == "call"):
        private_folder(paths.scratch)
    if agent.hooks is not None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    context = LaunchContext(
        argv=spec.argv,
        env=spec.env,
        cwd=Path(spec.cwd),
        scratch=paths.scratch,
        hook_url=f"http://127.0.0.1:{listener.getsockname()[1]}/hook" if listener is not None else "",
        hook_token=token,
        emit_command="" if spec.ephemeral and prompt is not None else _emit_command(paths),
        conversation=conversation or {},
        woken=permission_mode is not None,
        permission_mode=permission_mode or "",
        model=model,
        permissions=permissions,
        is_known=is_known,
        limits_turns=bool(spec.max_turns),
        asks=spec.asks,
        tools=spec.tools,
        prompt=prompt,
        call_secret=os.urandom(24).hex() if transport is not None and transport.kind == "call" else "",
    )
    folder = {FOLDER_VARIABLE: str(paths.folder)}
    companion = address = None
    if transport is not None and transport.kind == "call":
        from .companion import CompanionProcess

        companion = CompanionProcess(transport, context, folder)
        address = companion.start()
        context = replaced(context, call=address)
    try:
        launch = agent.launch(context)
        for path, content in launch.files.items():
            write_private(path, content)
        env = {**launch.env, **folder}
        argv = launch.argv
        if spec.worktree is not None:
            from .worktree import with_setup

            resolve_program(argv[0], env, Path(spec.cwd))  # before the set-up command takes minutes
            argv = with_setup(argv, spec.worktree)
        pty = spawn(argv, cwd=Path(spec.cwd), env=env, cols=spec.cols, rows=spec.rows)
    except BaseException:
        if companion is not None:
            companion.kill()
        if listener is not None:
            listener.close()
        raise
    return StartedProgram(agent, listener, token, launch, pty, prompt, address, companion)


def _emit_command(paths: SessionPaths) -> str:
    import shlex
    import sys

    from . import emit

    return shlex.join([sys.executable, "-I", "-S", emit.__file__, str(paths.socket)])


def write_private(path: Path, data: bytes) -> None:
    """Write a file for the program that is about to start. No fsync: after a crash it is not needed."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        os.fchmod(fd, 0o600)  # whatever the umask
        file.write(data)
