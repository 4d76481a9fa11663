"""A session's inbox in its keeper: what the driver of `turns/` sees of the session, and is told."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from remuda.agents.speech import Past, Speech, Submitted
from remuda.agents.state import State
from remuda.inbox.consumer import Consumer
from remuda.paths import accounts_folder, private_folder
from remuda.turns.account import Account
from remuda.turns.driver import Driver, Rules

from .observe import MAX_LINE_BYTES, Observation
from .session import Session
from .watch import watch

log = logging.getLogger("remuda.keeper.delivery")

_BLOCK = {"decision": "block", "reason": "A draft and a message met in the composer. Neither was sent."}


class Delivery:
    def __init__(self, session: Session, speech: Speech, observation: Observation, inbox: Path) -> None:
        private_folder(inbox)
        self._session = session
        self._speech = speech
        self._observation = observation
        spec = session.spec
        consumer = Consumer(inbox, f"the keeper of session '{spec.name}'")
        self._account = Account(accounts_folder(), speech.account(spec.env))
        rules = Rules(
            on_orphan=spec.on_orphan,
            trust=spec.trust,
            turn_timeout=spec.turn_timeout,
            draft_patience=spec.draft_patience,
        )
        self._driver = Driver(
            SessionTerminal(session, speech, observation), speech, consumer, self._account, rules
        )
        observation.listeners.append(self._driver.nudge)
        observation.record_listeners.append(self._record)
        self._driver.start()
        self._watches = [
            watch(inbox / "inbox.jsonl", self._driver.nudge),
            watch(self._account.path, self._driver.nudge),
        ]

    def hook(self, payload: Mapping[str, Any]) -> dict[str, Any] | None:
        """A hook's payload; the answer when the agent must not go on with it."""
        signal = self._speech.hook_signal(payload)
        if signal is None:
            return None
        refused = isinstance(signal, Submitted) and self._driver.refuses(signal)
        self._driver.hear(signal)
        return _BLOCK if refused else None

    def _record(self, record: Mapping[str, Any]) -> None:
        if (signal := self._speech.record_signal(record)) is not None:
            self._driver.hear(signal)

    def document(self) -> dict[str, Any]:
        return self._driver.document()

    async def close(self, how: str) -> None:
        for one in self._watches:
            one.close()
        await self._driver.close(how)


class SessionTerminal:
    """A session as the driver sees it."""

    def __init__(self, session: Session, speech: Speech, observation: Observation) -> None:
        self._session = session
        self._speech = speech
        self._observation = observation

    def now(self) -> float:
        return self._session.now()

    def type(self, data: bytes) -> None:
        self._session.child.write(data)

    def hold_typing(self) -> None:
        self._session.keyboard.hold()

    def release_typing(self) -> None:
        self._session.keyboard.release()

    def lines(self) -> list[str] | None:
        screen = self._session.screen
        return screen.lines() if screen is not None else None

    def styled(self, y: int) -> bytes:
        screen = self._session.screen
        return screen.styled_row(y, screen.cols) if screen is not None else b""

    @property
    def state(self) -> State:
        return self._session.evidence.verdict.state

    @property
    def agreed(self) -> bool:
        return not self._session.evidence.dissent()

    @property
    def typed_at(self) -> float:
        return self._session.keyboard.typed_at

    def tell(self, document: dict[str, Any]) -> None:
        self._session.tell({"event": "delivery", **document})

    @property
    def conversation(self) -> Mapping[str, Any]:
        return self._observation.conversation

    def past(self, prompt: str, since: float, facts: Mapping[str, Any]) -> Past:
        """Looks into the conversation that the message was handed to, else into the one of now."""
        for source in (facts, self.conversation):
            path = source.get("transcript_path")
            if (
                isinstance(path, str)
                and (found := self._speech.past(_records(Path(path)), prompt, since)).submitted
            ):
                return found
        return Past()


def _records(path: Path) -> Iterator[Mapping[str, Any]]:
    """Every whole record of a transcript. A line that a kill cut short is none."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record
