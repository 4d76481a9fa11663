"""All that comes before a session's program runs, and its start. No loop is needed for that."""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda import durable
from remuda.agents import find_agent
from remuda.agents.base import Agent, Answers, Launch, LaunchContext
from remuda.errors import RemudaError, SpawnFailed
from remuda.paths import SessionPaths, private_folder
from remuda.proctree import adopt_orphans
from remuda.terminal.asciicast import Recorder
from remuda.terminal.pty import Pty, spawn

from . import emit
from .mailbox import Mailbox
from .record import SessionRecord
from .spec import SessionSpec

log = logging.getLogger("remuda.keeper")

_BACKLOG = 64


@dataclass(slots=True)
class Prepared:
    """A program that runs, and what was made for it."""

    agent: Agent
    answers: Answers | None
    conversation: dict[str, Any]
    degraded: list[str]
    mailbox: Mailbox | None
    listener: socket.socket | None
    """Where its hooks arrive."""
    token: str
    recorder: Recorder | None
    launch: Launch
    pty: Pty

    def abandon(self) -> None:
        """Nobody would ever know of it."""
        try:
            os.killpg(self.pty.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.pty.close()


def prepare(spec: SessionSpec, paths: SessionPaths) -> Prepared:
    """Raises what keeps the program from running."""
    agent = find_agent(spec.agent)
    degraded: list[str] = []
    listener, token = None, secrets.token_urlsafe(24)
    if agent.name in ("claude", "demo"):
        private_folder(paths.scratch)
        listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    mailbox = _open_mailbox(spec, agent, paths, degraded)
    answers = agent.answers(deny_permissions=spec.deny_permissions, max_turns=spec.max_turns)
    known = SessionRecord.load(paths.record) if spec.resume else None
    conversation = dict(known.conversation) if known else {}
    launch = agent.launch(_context(spec, paths, agent, mailbox, answers, listener, token, conversation))
    for path, content in launch.files.items():
        durable.replace_file(path, content)
    degraded += launch.degraded
    if not adopt_orphans():
        degraded.append("orphans of the program cannot be adopted on this system")
    recorder = _open_recorder(spec)
    pty = spawn(launch.argv, cwd=Path(spec.cwd), env=launch.env, cols=spec.cols, rows=spec.rows)
    log.info("started pid %d: %s", pty.pid, shlex.join(launch.argv))
    return Prepared(agent, answers, conversation, degraded, mailbox, listener, token, recorder, launch, pty)


def _open_mailbox(
    spec: SessionSpec, agent: Agent, paths: SessionPaths, degraded: list[str]
) -> Mailbox | None:
    if agent.speech is None:
        return None
    try:
        return Mailbox(spec, agent.speech, paths.inbox)
    except RemudaError as error:  # the session is worth more than its inbox
        if spec.prompt is not None:
            raise
        degraded.append(f"no delivery of messages: {error}")
        return None


def _context(
    spec: SessionSpec,
    paths: SessionPaths,
    agent: Agent,
    mailbox: Mailbox | None,
    answers: Answers | None,
    listener: socket.socket | None,
    token: str,
    conversation: dict[str, Any],
) -> LaunchContext:
    may_ask = mailbox is not None and agent.takes_argument(spec.argv)
    prompt = mailbox.take_first() if mailbox is not None and may_ask else None
    script = shlex.join([sys.executable, "-I", "-S", emit.__file__, str(paths.socket)])
    return LaunchContext(
        argv=spec.argv,
        env=spec.env,
        cwd=Path(spec.cwd),
        scratch=paths.scratch,
        hook_url=f"http://127.0.0.1:{listener.getsockname()[1]}/hook" if listener is not None else "",
        hook_token=token,
        emit_command="" if spec.ephemeral and prompt is not None else script,
        conversation=conversation,
        events=answers.events if answers is not None else (),
        prompt=prompt,
    )


def _open_recorder(spec: SessionSpec) -> Recorder | None:
    if spec.record_file is None:
        return None
    try:
        return Recorder(Path(spec.record_file), spec.cols, spec.rows, spec.name)
    except OSError as error:
        raise SpawnFailed(f"cannot record to {spec.record_file}: {error.strerror}") from error
