"""A session's inbox in its keeper: connects the driver of `turns/` with the session."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from remuda.agents.events import PromptSubmitted, Report, TurnHalted, TurnStopped
from remuda.agents.prompting import Past, PromptProtocol
from remuda.agents.state import RESTING, Source, State
from remuda.durable import open_regular
from remuda.errors import InvalidOptions
from remuda.jsonl_tail import MAX_LINE_BYTES
from remuda.turns.driver import Driver
from remuda.turns.message_policy import Rules
from remuda.turns.turn_terminal import SessionChannel, Waker
from remuda.untrusted import one_line, parse_json

from .health import Health
from .observe import Observation
from .owner import LentTrust
from .prepare import Mailbox
from .session import Session
from .watch import watch

_MIXED = "A draft and a message are mixed in the composer. Neither was sent."
_MESSAGE_CHARACTERS = 200
_REPEATS = "The message that hit the limit will be delivered again. It does not run twice."


class Delivery:
    def __init__(
        self,
        session: Session,
        mailbox: Mailbox,
        observation: Observation,
        resumed: Mapping[str, Any],
        last_word: Callable[[], bool] = lambda: False,
        trust: LentTrust | None = None,
        *,
        hooks_expected: bool = True,
        settings: Collection[Path] = (),
        caller: SessionChannel | None = None,
        waker: Waker | None = None,
    ) -> None:
        prompts, inbox = mailbox.prompts, mailbox.folder
        self._session = session
        spec = session.spec
        self._account = mailbox.account
        self._submitted = mailbox.submitted
        self._trust = trust or LentTrust(None, spec.name)
        rules = Rules(
            on_orphan=spec.on_orphan,
            once=spec.once or spec.single_try,
            single_try=spec.single_try,
            trust=spec.trust,
            turn_timeout=spec.turn_timeout,
            draft_patience=spec.draft_patience,
            stop_timeout=spec.stop_timeout,
        )
        self._terminal = SessionTerminal(
            session, prompts, observation, resumed, last_word, self._trust, lambda: self.health.turn_ended()
        )
        self._driver = Driver(
            self._terminal,
            prompts,
            mailbox.consumer,
            self._account,
            rules,
            caller,
            mailbox.holds,
            waker,
        )
        self._ready_wanted = False
        self.last_message = ""
        """The beginning of the agent's last answer, on one line."""
        self._prompts = prompts
        self.health = self._watch(observation, hooks_expected=hooks_expected, settings=settings)
        self._driver.start(mailbox.first)
        self._watches = [
            watch(inbox / "inbox.jsonl", self._driver.inbox_changed),
            watch(self._account.path, self._driver.nudge),
        ]

    def _watch(self, observation: Observation, *, hooks_expected: bool, settings: Collection[Path]) -> Health:
        health = Health(
            self._session, observation, self._prompts, hooks_expected=hooks_expected, settings=settings
        )
        observation.listeners.append(self._driver.nudge)
        observation.listeners.append(self._look_ready)
        observation.report_listeners.append(self.take)
        return health

    # ── sleep ──

    @property
    def waits(self) -> str:
        """Say which message the agent must stay for; empty if none waits."""
        return self._driver.waits

    def woken(self, observation: Observation, *, hooks_expected: bool, settings: Collection[Path]) -> None:
        """Go on with the agent's new process."""
        self._terminal.watch(observation)
        self.health = self._watch(observation, hooks_expected=hooks_expected, settings=settings)
        self._driver.restarted()

    def not_woken(self, why: str) -> None:
        self._driver.not_woken(why)

    # ── what comes ──

    def take(self, report: Report) -> str | None:
        """Take a report. Returns a reason if the agent must not take the prompt that it reports."""
        self._driver.alive()
        self._trust.agent_began()
        self.health.take(report)
        refused = None
        if report.source is Source.TRANSCRIPT and report.subagent:
            return None
        for event in report.events:
            if isinstance(event, TurnStopped):
                self.last_message = one_line(event.text[:_MESSAGE_CHARACTERS])
            elif isinstance(event, PromptSubmitted):
                refused = self._refused(event)
            self._driver.hear(event)
        return refused

    def _refused(self, event: PromptSubmitted) -> str | None:
        if self._driver.refuses(event):
            return _MIXED
        return _REPEATS if self._driver.repeats(event) else None

    def submit(self, prompt: str, message_id: str, *, command: bool) -> None:
        """Take a message without the inbox file. Raises `InvalidOptions` if messages must be kept on disk."""
        if self._submitted is None:
            raise InvalidOptions("messages of this session go through its inbox")
        self._submitted.submit(prompt, message_id, command=command)
        self._driver.inbox_changed()

    def interrupt(self, message: str) -> bool:
        return self._driver.interrupt(message)

    def interrupt_turn(self, how: str = "on request") -> str | None:
        return self._driver.interrupt_turn(how)

    def ready(self) -> dict[str, Any]:
        """Return whether a prompt would be typed at once; if not, clients get `ready` when it would."""
        why = self._driver.unready()
        self._ready_wanted = why is not None
        return {"ready": why is None, "why": why}

    def _look_ready(self) -> None:
        if self._ready_wanted and self._driver.unready() is None:
            self._ready_wanted = False
            self._session.tell({"event": "ready"})

    def halt(self, reason: str) -> None:
        """Note that the agent was asked to stop before its next request."""
        self._driver.hear(TurnHalted(reason))

    def document(self) -> dict[str, Any]:
        return {**self._driver.document(), "limited_until": self._account.limited_until(time.time())}

    async def close(self, how: str) -> None:
        for one in self._watches:
            one.close()
        self.health.close()
        await self._driver.close(how)
        await self._trust.close()


class SessionTerminal:
    """A session as the driver sees it."""

    def __init__(
        self,
        session: Session,
        prompts: PromptProtocol,
        observation: Observation,
        resumed: Mapping[str, Any],
        last_word: Callable[[], bool],
        trust: LentTrust,
        turn_ended: Callable[[], None],
    ) -> None:
        self.last_word = last_word
        self.turn_ended = turn_ended
        self.may_trust = trust.lend
        self.trusted = trust.answered
        self._resumed = resumed
        self._session = session
        self._prompts = prompts
        self._observation = observation

    def watch(self, observation: Observation) -> None:
        """Read the conversation of a new process from now on."""
        self._observation = observation

    def now(self) -> float:
        return self._session.now()

    def type(self, data: bytes) -> None:
        self._session.child.write(data)

    def has_read_all(self) -> bool:
        return self._session.child.has_read_all()

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
    def is_guess(self) -> bool:
        return self._session.evidence.is_guess

    @property
    def output_at(self) -> float:
        return self._session.child.last_read

    def shows_rest_since(self, at: float) -> bool:
        votes = self._session.evidence.votes
        own_votes = [votes[source] for source in (Source.REGISTRY, Source.TITLE) if source in votes]
        return any(vote.at >= at and vote.state in RESTING for vote in own_votes)

    @property
    def typed_at(self) -> float:
        return self._session.keyboard.typed_at

    @property
    def typed_text(self) -> bool:
        return self._session.keyboard.typed_text

    def tell(self, document: dict[str, Any]) -> None:
        self._session.tell({"event": "delivery", **document})

    def announce(self, event: str, document: dict[str, Any]) -> None:
        self._session.tell_whole({"event": event, **document})

    def handed_over(self) -> None:
        self._session.processes.prompted()

    @property
    def conversation(self) -> Mapping[str, Any]:
        """Return the conversation, with its transcript and the current size of the file."""
        known, path = self._observation.conversation, self._observation.transcript_path
        found = {} if path is None else {"transcript_path": str(path), "transcript_bytes": _size(path)}
        return {**known, **found}

    def past(self, prompt: str, since: float, facts: Mapping[str, Any]) -> Past:
        """Search the conversation that the message was handed to, else the current one.

        Earlier records belong to other messages, also to one with the same text.
        """
        now = self.conversation.get("transcript_path")
        # For a message that was passed as an argument, only the session's record has the conversation.
        looks = {
            self._resumed.get("transcript_path"): 0,
            now: 0,
            facts.get("transcript_path"): int(facts.get("transcript_bytes") or 0),
        }
        for path, start in reversed(looks.items()):
            if isinstance(path, str):
                found = self._prompts.past(_records(Path(path), start), prompt, since)
                if found.submitted:
                    return found
        return Past()


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _records(path: Path, start: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield every complete record of a transcript. Skips a line that a kill cut short."""
    with contextlib.suppress(OSError), open(open_regular(path), "rb") as file:
        file.seek(start if start <= os.fstat(file.fileno()).st_size else 0)
        while line := file.readline(MAX_LINE_BYTES):
            try:
                record = parse_json(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record
