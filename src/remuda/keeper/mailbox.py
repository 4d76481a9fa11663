"""A session's inbox before its agent runs: the first message may become an argument of the agent."""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.agents.speech import Speech
from remuda.errors import InputError, RemudaError, SpawnFailed
from remuda.inbox.consumer import Consumer, Leased
from remuda.inbox.journal import Inbox, translated_errors
from remuda.inbox.stop_hook import InboxError
from remuda.paths import accounts_folder, private_folder
from remuda.turns.account import Account
from remuda.turns.turn import Turn

from .spec import SessionSpec

if TYPE_CHECKING:
    from remuda.inbox.submitted import SubmittedMessages

log = logging.getLogger("remuda.keeper.mailbox")


class Mailbox:
    """A session's inbox before and after its agent is started."""

    def __init__(self, spec: SessionSpec, speech: Speech, folder: Path) -> None:
        private_folder(folder)
        if spec.prompt is not None:
            Inbox(folder, durable=not spec.ephemeral).put(spec.prompt, message_id=spec.message_id)
        self.folder = folder
        self.speech = speech
        who = f"the keeper of session '{spec.name}'"
        self.submitted: SubmittedMessages | None = None
        """Takes messages from clients directly, where nothing needs to outlive the keeper."""
        if spec.ephemeral and spec.single_try:  # a worker of a pool
            from remuda.inbox.submitted import SubmittedMessages

            self.submitted = SubmittedMessages(folder, who)
        self.consumer: Consumer = self.submitted or Consumer(folder, who, durable=not spec.ephemeral)
        self.account = Account(accounts_folder(), speech.account(spec.env))
        self.first: tuple[Leased, Turn] | None = None

    def take_first(self) -> str | None:
        """Return the first message as an argument, if it can be one: exact, and no key is typed."""
        try:
            self.consumer.open()
            if self.account.limited_for(time.time()) or self.consumer.orphan() is not None:
                return None
            return self._lease_argument()
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
        carried = None if leased is None else self.speech.argument(leased.text, command=leased.command)
        if leased is None or carried is None:
            raise SpawnFailed("the prompt that the agent was started with is not in its inbox")
        self.first = leased, Turn(leased.text, carried, self.speech, command=leased.command)

    def _lease_argument(self) -> str | None:
        entry = self.consumer.peek()
        if entry is None or not self._fits(entry):
            return None
        leased = self.consumer.lease("argument")
        if leased is None:
            return None
        carried = self.speech.argument(leased.text, command=leased.command)
        assert carried is not None
        self.first = leased, Turn(leased.text, carried, self.speech, command=leased.command)
        return carried.data.decode()

    def _fits(self, entry: Leased) -> bool:
        try:
            self.speech.check(entry.text, command=entry.command, literal=entry.literal)
        except InputError:  # reported when its turn comes
            return False
        return self.speech.argument(entry.text, command=entry.command) is not None
