"""Start a session's program with its inbox, its previous record and its recording."""

from __future__ import annotations

import logging
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.agents import find_agent
from remuda.agents.base import Agent
from remuda.errors import RemudaError, SpawnFailed
from remuda.paths import SessionPaths
from remuda.proctree import adopt_orphans
from remuda.terminal.asciicast import Recorder

from .begin import Begun, begin
from .mailbox import Mailbox
from .record import SessionRecord
from .spec import SessionSpec

log = logging.getLogger("remuda.keeper")


@dataclass(slots=True)
class Prepared:
    """A running program, ready to be kept."""

    begun: Begun
    conversation: dict[str, Any]
    """What is known of it from its previous run."""
    degraded: list[str]
    mailbox: Mailbox | None
    recorder: Recorder | None


def prepare(spec: SessionSpec, paths: SessionPaths, begun: Begun | None) -> Prepared:
    """Start the program. `begun`: it runs already. Raises the reason why it cannot run or be kept."""
    degraded: list[str] = []
    if not adopt_orphans():
        degraded.append("orphans of the program cannot be adopted on this system")
    mailbox = _open_mailbox(spec, begun.agent if begun else find_agent(spec.agent), paths, degraded)
    record = SessionRecord.load(paths.record) if spec.resume else None
    conversation = dict(record.conversation) if record else {}
    recorder = _open_recorder(spec)
    if begun is None:
        may_ask = mailbox is not None and find_agent(spec.agent).takes_argument(spec.argv)
        prompt = mailbox.take_first() if mailbox is not None and may_ask else None
        try:
            begun = begin(spec, paths, prompt, conversation)
        except BaseException:
            if mailbox is not None:
                mailbox.put_back_first()
            raise
    elif begun.prompt is not None and mailbox is not None:
        mailbox.take_given()
    log.info("started pid %d: %s", begun.pty.pid, shlex.join(begun.launch.argv))
    return Prepared(begun, conversation, [*degraded, *begun.launch.degraded], mailbox, recorder)


def _open_mailbox(
    spec: SessionSpec, agent: Agent, paths: SessionPaths, degraded: list[str]
) -> Mailbox | None:
    speech = agent.speech
    if speech is None:
        return None
    try:
        return Mailbox(spec, speech, paths.inbox)
    except RemudaError as error:  # a session without its inbox is better than none
        if spec.prompt is not None:
            raise
        degraded.append(f"no delivery of messages: {error}")
        return None


def _open_recorder(spec: SessionSpec) -> Recorder | None:
    if spec.record_file is None:
        return None
    try:
        return Recorder(Path(spec.record_file), spec.cols, spec.rows, spec.name)
    except OSError as error:
        raise SpawnFailed(f"cannot record to {spec.record_file}: {error.strerror}") from error
