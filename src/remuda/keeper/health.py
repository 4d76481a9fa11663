"""Say which of an agent's sources fail: hooks, registry, transcript and composer.

A new version of an agent may rename a hook, move a file or draw its composer differently. Delivery stays safe
then, because it types only where that is proven safe. Within one turn, `degraded` names what is missing.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from remuda.agents.events import (
    AgentEvent,
    MessageRecorded,
    PromptRecorded,
    PromptSubmitted,
    Report,
    TurnFailed,
    TurnInterrupted,
    TurnStopped,
)
from remuda.agents.prompting import ComposerKind, PromptProtocol
from remuda.agents.state import RESTING, WAITING, WORKING, Source, State, Vote
from remuda.durable import open_regular

from .observe import Observation
from .session import Session

log = logging.getLogger("remuda.keeper.health")

# The last hooks and records of a turn come within a tenth of a second after its end.
_SETTLE = 2.0
# An agent at rest shows its composer at once; at its start some tenths of a second after it reports to be
# ready.
_COMPOSER_PATIENCE = 5.0
# On a busy machine an agent may be at rest seconds before it has written its registry file.
_REGISTRY_PATIENCE = 5.0
# Sources report a change within tenths of a second of each other.
_DISSENT_PATIENCE = 30.0
# A user who types may have opened something in place of the composer.
_TYPIST_PATIENCE = 60.0

_NO_HOOKS = (
    "the agent's hooks do not arrive: its state is read from {}, and a message is confirmed by the transcript"
)
_NO_SUBMIT = (
    "the hook that reports a prompt did not arrive in the last turn: a message is confirmed by the transcript"
)
_NO_STOP = (
    "the hook that reports the end did not arrive in the last turn: that is read from the transcript, "
    "some seconds later"
)
_NO_COMPOSER = (
    "the agent is idle but its composer was not found on the screen: messages wait and nothing is typed; "
    "attach to look (this version may draw it differently)"
)
_NO_TRANSCRIPT = (
    "the transcript cannot be read ({}): usage is unknown, "
    "and an interrupted or refused turn is recognised late"
)
_NO_REGISTRY = (
    "the registry file cannot be read ({}): "
    "a dialog that no hook reports is found only by its text on the screen"
)
_NO_SETTINGS = (
    "the agent rejects some of the settings that Remuda starts it with, and shows a dialog; messages wait "
    "until you answer it: {}"
)
_NO_STATE = (
    "no hook, registry file, title or composer says what the agent does: its state is guessed from "
    "the timing of its output; messages wait and nothing is typed; attach to look"
)
_DISSENT = (
    "the agent's sources do not agree: its state is {} (by {}), but {}; "
    "messages wait and nothing is typed; attach to look"
)
_SCREEN_CHARACTERS = 500
_NOTHING = "neither {} can be read: a message is typed once, cannot be confirmed, and is then dead-lettered"


@dataclass(slots=True)
class _TurnSources:
    """Which sources reported the turn that runs, or ran last."""

    submitted: bool = False
    stopped: bool = False
    recorded: bool = False
    answered: bool = False
    interrupted: bool = False
    worked: bool = False
    prompt_id: str | None = None

    @property
    def began(self) -> bool:
        return self.submitted or self.stopped or self.recorded or self.worked


class Health:
    """Watch one agent's sources.

    `hooks_expected`: the agent was started with our hooks, and nothing of the user's silences them.
    `settings` are the files that we passed to it.
    """

    def __init__(
        self,
        session: Session,
        observation: Observation,
        prompts: PromptProtocol,
        *,
        hooks_expected: bool,
        settings: Collection[Path] = (),
    ) -> None:
        self._session = session
        self._observation = observation
        self._prompts = prompts
        self._hooks_expected = hooks_expected
        self._settings = ["".join(str(path).split()) for path in settings]
        self._turn = _TurnSources()
        self._found: dict[str, str] = {}
        self._absent_since: float | None = None
        self._unregistered_since: float | None = None
        self._dissent_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.hooked = False
        """Return whether a hook has come."""
        observation.listeners.append(self._changed)
        self._look_again()

    def reasons(self) -> list[str]:
        proofs = ["hooks", *self._registry, "transcript"]
        if self._found.keys() >= {*proofs}:
            nothing = _NOTHING.format(" nor ".join(proofs))
            return [nothing, *(words for key, words in self._found.items() if key == "composer")]
        return list(self._found.values())

    @property
    def _registry(self) -> list[str]:
        """Return the name of the registry file, if this agent has one."""
        return ["registry"] if self._observation.registry_path is not None else []

    # ── what is heard ──

    def take(self, report: Report) -> None:
        if report.source is Source.HOOK:
            self.hooked = True
            self._found.pop("hooks", None)
        elif report.source is Source.TRANSCRIPT:
            self._found.pop("transcript", None)
        if not report.subagent:
            for event in report.events:
                self._note(event, hooked=report.source is Source.HOOK)

    def _note(self, event: AgentEvent, *, hooked: bool) -> None:
        turn = self._turn
        match event:
            case PromptSubmitted():
                self._begin(event.prompt_id, again=turn.submitted)
                self._turn.submitted = True
            case PromptRecorded() if not event.prompt.startswith("<"):  # else what a command printed
                self._begin(event.prompt_id, again=turn.recorded)
                self._turn.recorded = True
            case TurnInterrupted():
                turn.interrupted = True
            case MessageRecorded():
                turn.answered = event.final
            case TurnFailed() if not hooked:
                turn.answered = True
            case TurnStopped() | TurnFailed():
                turn.stopped = True

    def _begin(self, prompt_id: str | None, *, again: bool) -> None:
        """Note a prompt. Hook and transcript report the same one in any order, also after its end."""
        known = self._turn.prompt_id
        if again or (known is not None and prompt_id is not None and known != prompt_id):
            self._judge_turn()
            self._turn = _TurnSources()
        self._turn.prompt_id = prompt_id or self._turn.prompt_id

    # ── what follows from it ──

    def turn_ended(self) -> None:
        """Judge the turn of a message before its receipt says that it ended: nothing more of it will come."""
        if self._turn.began:  # else it was judged when the agent had rested for a while
            self._judge_turn()
        self._judge_registry(patience=0.0)

    def _changed(self) -> None:
        evidence = self._session.evidence
        state = evidence.verdict.state
        if not evidence.is_guess:
            self._found.pop("state", None)
        if Source.REGISTRY in evidence.votes:
            self._found.pop("registry", None)
        if not evidence.dissent():
            self._dissent_since = None
            self._found.pop("dissent", None)
        if state in WORKING:
            self._turn.worked = True
        if state in WAITING and not self.hooked:
            self._judge_settings()
        elif self._found.keys() & {"composer", "settings"} and self._has_composer():
            self._found.pop("composer", None)
            self._found.pop("settings", None)
            self._absent_since = None
        if state in RESTING or state is State.STARTING:
            self._look_again()
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_again(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SETTLE, self._look)

    def _look(self) -> None:
        self._timer = None
        evidence, now = self._session.evidence, self._session.now()
        says_idle = [
            evidence.votes[source]
            for source in (Source.HOOK, Source.REGISTRY, Source.TITLE)
            if source in evidence.votes and evidence.votes[source].state in RESTING
        ]
        if evidence.verdict.state is State.STARTING and not says_idle:
            self._look_again()
            return
        if evidence.is_guess:
            self._judge_state()
            return
        if evidence.dissent():
            self._judge_dissent(now)
            self._look_again()
            return
        if now - evidence.verdict.since < _SETTLE:
            self._look_again()
            return
        self._judge_registry(_REGISTRY_PATIENCE)
        if evidence.verdict.state in RESTING and self._turn.began:
            self._judge_turn()
            self._turn = _TurnSources()
        self._judge_composer(now, says_idle)

    def _judge_state(self) -> None:
        if "state" not in self._found:
            self._set("state", _NO_STATE, missing=True)
            self._observation.look_again()  # byte timing alone notifies no one

    def _judge_dissent(self, now: float) -> None:
        if self._dissent_since is None:
            self._dissent_since = now
        if now - self._dissent_since >= _DISSENT_PATIENCE:
            verdict, votes = self._session.evidence.verdict, self._session.evidence.dissent()
            others = ", ".join(f"{vote.source.label} shows {vote.state}" for vote in votes)
            words = _DISSENT.format(verdict.state, verdict.source.label, others)
            self._set("dissent", words, missing=True)

    def _judge_settings(self) -> None:
        """Before its first hook the agent asks about a file of ours: it does not know all settings in it."""
        lines = self._session.screen.lines() if self._session.screen is not None else []
        shown = "".join("".join(lines).split())
        if any(path in shown for path in self._settings):
            words = " ".join(" ".join(lines).split()).strip("─ ")
            self._set("settings", _NO_SETTINGS.format(words[:_SCREEN_CHARACTERS]), missing=True)

    def _judge_turn(self) -> None:
        turn = self._turn
        self._judge_transcript(turn)
        if not self._hooks_expected:
            return
        ended = turn.answered or (turn.worked and not turn.interrupted)
        title = ["title"] if Source.TITLE in self._session.evidence.votes else []
        others = ", ".join([*self._registry, *title, "transcript"])
        self._set("hooks", _NO_HOOKS.format(f"{others} and screen"), missing=not self.hooked and ended)
        if "hooks" in self._found or not turn.answered:
            return
        self._set("submit", _NO_SUBMIT, missing=turn.recorded and not turn.submitted)
        self._set("stop", _NO_STOP, missing=not turn.stopped and not turn.interrupted)

    def _judge_transcript(self, turn: _TurnSources) -> None:
        if turn.recorded or turn.answered or not (turn.stopped or (turn.worked and not self.hooked)):
            return
        path = self._observation.transcript_path or self._reported_transcript()
        self._set("transcript", _NO_TRANSCRIPT.format(_why_unreadable(path)), missing=True)

    def _reported_transcript(self) -> Path | None:
        path = self._observation.conversation.get("transcript_path")
        return Path(path) if isinstance(path, str) else None

    def _judge_registry(self, patience: float) -> None:
        path = self._observation.registry_path
        if path is None or Source.REGISTRY in self._session.evidence.votes:
            self._unregistered_since = None
            self._found.pop("registry", None)
            return
        now = self._session.now()
        if self._unregistered_since is None:
            self._unregistered_since = now
        if now - self._unregistered_since < patience:
            self._look_again()
        else:
            self._set("registry", _NO_REGISTRY.format(_why_unreadable(path)), missing=True)

    def _judge_composer(self, now: float, says_idle: list[Vote]) -> None:
        starting = self._session.evidence.verdict.state is State.STARTING
        absent = self._session.has_screen and not self._has_composer()
        if not absent and not starting:
            self._absent_since = None
            return
        if self._absent_since is None:
            self._absent_since = now
        if now - self._absent_since < _COMPOSER_PATIENCE - _SETTLE:
            self._look_again()
            return
        if starting:  # all sources say that it rests
            best = min(says_idle, key=lambda vote: vote.source)
            detail = f"{best.detail}, no composer found" if absent else best.detail
            self._session.vote([Vote(best.source, State.IDLE, now, detail)])
        if absent and now - self._session.keyboard.typed_at >= _TYPIST_PATIENCE:
            self._set("composer", _NO_COMPOSER, missing=True)

    def _has_composer(self) -> bool:
        """Return whether the composer is missing. A dialog in place of it is not a fault."""
        screen = self._session.screen
        if screen is None:
            return True
        lines = screen.lines()
        if self._prompts.dialog(lines) is not None:
            return True
        return self._prompts.composer(lines, lambda y: screen.styled_row(y, screen.cols)).kind is not (
            ComposerKind.ABSENT
        )

    def _set(self, key: str, words: str, *, missing: bool) -> None:
        if not missing:
            self._found.pop(key, None)
        elif self._found.get(key) != words:
            self._found[key] = words
            log.warning("degraded: %s", words)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _why_unreadable(path: Path | None) -> str:
    if path is None:
        return "the agent reported none"
    try:
        os.close(open_regular(path))
    except OSError as error:
        return f"{path}: {error.strerror}"
    return f"{path}: nothing of this agent in it"
