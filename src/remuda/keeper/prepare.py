"""Start a session's program with its inbox, its previous record and its recording.

The first message of the inbox may become an argument of the agent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda._version import __version__
from remuda.agents import find_agent
from remuda.agents.base import Agent
from remuda.agents.prompting import PromptProtocol
from remuda.errors import RemudaError, SpawnFailed
from remuda.inbox.consumer import Consumer, Leased
from remuda.inbox.journal import Inbox, translated_errors
from remuda.inbox.stop_hook import InboxError
from remuda.paths import SessionPaths, accounts_folder, private_folder
from remuda.proctree import adopt_orphans
from remuda.terminal.asciicast import Recorder
from remuda.turns.account import Account
from remuda.turns.argument import lease_argument
from remuda.turns.holds import Holds, holds_file
from remuda.turns.turn import Turn

from .begin import StartedProgram, begin
from .record import RecordFile, SessionRecord
from .spec import SessionSpec

if TYPE_CHECKING:
    from remuda.inbox.submitted import SubmittedMessages

log = logging.getLogger("remuda.keeper")

# ── the inbox before the start ──


class Mailbox:
    """A session's inbox before and after its agent is started."""

    def __init__(self, spec: SessionSpec, prompts: PromptProtocol, folder: Path) -> None:
        private_folder(folder)
        if spec.prompt is not None:
            Inbox(folder, durable=not spec.ephemeral).put(spec.prompt, message_id=spec.message_id)
        self.folder = folder
        self.prompts = prompts
        who = f"the keeper of session '{spec.name}'"
        self.submitted: SubmittedMessages | None = None
        """Takes messages from clients directly, where nothing needs to outlive the keeper."""
        if spec.ephemeral and spec.single_try:  # a worker of a pool
            from remuda.inbox.submitted import SubmittedMessages

            self.submitted = SubmittedMessages(folder, who)
        self.consumer: Consumer = self.submitted or Consumer(folder, who, durable=not spec.ephemeral)
        self.account = Account(accounts_folder(), prompts.account(spec.env))
        self.holds = Holds(holds_file(), spec.name, spec.cwd)
        # Agents of other packages may not know such a name.
        if (shared := getattr(prompts, "shared_account", None)) is not None:
            self.account.share(shared(spec.env))
        self._is_held = not (spec.once or spec.single_try)
        """Whether budgets hold its messages."""
        self.first: tuple[Leased, Turn] | None = None

    def take_first(self, conversation: Mapping[str, Any]) -> str | None:
        """Return the first message as an argument, if it can be one: exact, and no key is typed."""
        try:
            self.consumer.open()
            if self.account.limited_for(time.time()) or self.consumer.orphan() is not None:
                return None
            if self._is_held and self.holds.reason(conversation.get("session_id"), time.time()):
                return None
            found = lease_argument(self.consumer, self.prompts)
            if found is None:
                return None
            leased, turn, argument = found
            self.first = leased, turn
            return argument
        except (RemudaError, InboxError, OSError) as error:
            log.warning("no first message: %s", error)
            return None

    def put_back_first(self) -> None:
        """Put the first message back: the agent could not be started."""
        if self.first is not None:
            with contextlib.suppress(RemudaError, InboxError, OSError):  # else recovery finds it in flight
                self.consumer.put_back(self.first[0], "the agent could not be started")

    def take_given(self) -> None:
        """Lease the message that the agent was started with. Raises if it cannot be ours."""
        with translated_errors():
            self.consumer.open()
            leased = self.consumer.lease("argument")
        carried = None if leased is None else self.prompts.argument(leased.text, command=leased.command)
        if leased is None or carried is None:
            raise SpawnFailed("the prompt that the agent was started with is not in its inbox")
        self.first = leased, Turn(leased.text, carried, self.prompts, command=leased.command)


# ── the program ──


@dataclass(slots=True)
class Prepared:
    """A running program, ready to be kept."""

    begun: StartedProgram
    file: RecordFile
    degraded: list[str]
    mailbox: Mailbox | None
    recorder: Recorder | None


def prepare(spec: SessionSpec, paths: SessionPaths, begun: StartedProgram | None) -> Prepared:
    """Start the program. `begun`: it runs already. Raises the reason why it cannot run or be kept."""
    degraded: list[str] = []
    if not adopt_orphans():
        degraded.append("orphans of the program cannot be adopted on this system")
    mailbox = _open_mailbox(spec, begun.agent if begun else find_agent(spec.agent), paths, degraded)
    before = SessionRecord.load(paths.record) if spec.resume else None
    conversation = dict(before.conversation) if before else {}
    recorder = _open_recorder(spec)
    if begun is None:
        may_ask = mailbox is not None and find_agent(spec.agent).takes_argument(spec.argv)
        prompt = mailbox.take_first(conversation) if mailbox is not None and may_ask else None
        try:
            begun = begin(spec, paths, prompt, conversation)
        except BaseException:
            if mailbox is not None:
                mailbox.put_back_first()
            raise
    elif begun.prompt is not None and mailbox is not None:
        mailbox.take_given()
    log.info("started pid %d: %s", begun.pty.pid, shlex.join(begun.launch.argv))
    record = _make_record(spec, before, mailbox)
    degraded += begun.launch.degraded
    return Prepared(begun, RecordFile(paths.record, record), degraded, mailbox, recorder)


def _make_record(spec: SessionSpec, before: SessionRecord | None, mailbox: Mailbox | None) -> SessionRecord:
    """`before` is that of the previous run of the session, if this one resumes it."""
    return SessionRecord(
        name=spec.name,
        agent=spec.agent,
        argv=spec.argv,
        cwd=spec.cwd,
        started_at=time.time(),
        version=__version__,
        keeper_pid=os.getpid(),
        cols=spec.cols,
        rows=spec.rows,
        conversation=dict(before.conversation) if before else {},
        options=spec.options(),
        variables=list(spec.variables),
        log_file=spec.log_file,
        account=mailbox.account.name if mailbox is not None else "",
        ephemeral=spec.ephemeral,
        worktree=dict(spec.worktree) if spec.worktree else None,
        resumed=spec.resume,
        first_started_at=(before.first_started_at or before.started_at) if before else None,
    )


def _open_mailbox(
    spec: SessionSpec, agent: Agent, paths: SessionPaths, degraded: list[str]
) -> Mailbox | None:
    prompts = agent.prompts
    if prompts is None:
        return None
    try:
        return Mailbox(spec, prompts, paths.inbox)
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
