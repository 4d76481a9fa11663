"""What Remuda promises on an agent, and what follows if a promise does not hold. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from remuda.agents.self_test import SelfTest
from remuda.tried_program import DOES_NOT_HOLD


class PromiseVerdict(StrEnum):
    HOLDS = "holds"
    FAILS = DOES_NOT_HOLD
    SLOW = "too slow here"
    """It took longer than its limit, on a machine that is slow or busy: it may hold with more time."""
    UNKNOWN = "not known"


class Promise(NamedTuple):
    key: str
    what: str
    follows: str
    """What follows for the user if it does not hold."""
    safety: bool = False
    """Whether text could run as a command, or a dialog be answered without the user."""


PROMISES = (
    Promise("start", "it starts and shows its composer", "sessions of this version cannot be used"),
    Promise(
        "first_message",
        "the first message is taken as fast as the next",
        "the first message waits some seconds",
    ),
    Promise(
        "exact", "a message arrives once, and exactly as sent", "messages may arrive changed or twice", True
    ),
    Promise("sources", "all sources report the state", "the state is known later, or from fewer sources"),
    Promise("bang", "text that begins with ! runs nothing", "a message could run a shell command", True),
    Promise(
        "slash", "text cannot run a command of the agent", "a message could run a command of the agent", True
    ),
    Promise("tool", "an allowed tool runs", "tools that you allowed are refused"),
    Promise(
        "api_error", "an API error is reported with its reason", "a failed turn is recognised late or not"
    ),
    Promise("interrupt", "a turn can be interrupted", "'remuda cancel' may not stop a turn"),
    Promise("dialog", "a message waits at a dialog", "a message could answer a permission dialog", True),
    Promise(
        "compact",
        "the command to compact is confirmed or refused",
        "the receipt of such a command may be wrong",
    ),
    Promise(
        "clear", "the command to clear is confirmed or refused", "the receipt of such a command may be wrong"
    ),
    Promise("draft", "a draft survives a message", "what you typed and did not send may be lost"),
    Promise("resume", "a conversation is resumed", "'start --resume' may begin a new conversation"),
    Promise("hooks", "all hooks report", "what these hooks report is known later or not"),
    Promise("calls", "its server has every call that is used", "calls that it does not have will fail"),
    Promise("trust", "the trust dialog waits for your word", "a folder could be trusted without you", True),
    Promise("print", "'print' answers five times, with usage", "tokens and costs of 'print' may be missing"),
    Promise(
        "pool_terminal",
        "the pool answers and forgets (terminal)",
        "use 'print' in place of the pool on a terminal",
    ),
    Promise("pool_stream", "the pool answers and forgets (stream)", "use the backend terminal for the pool"),
)
_BY_KEY = {promise.key: promise for promise in PROMISES}
ORDER = {promise.key: number for number, promise in enumerate(PROMISES)}
_LONGEST = 2000
REFUSED = "refused: "
"""How the detail begins of a promise that holds because the message is refused, with the reason."""
TIME_OVER = "the time was over before it was seen"
NO_TIME = "the time was over before it was tried"
SESSIONS = ("self-test", "not-trusted", "trusted")
"""The names of the sessions in which they are tried."""


class PromiseResult(NamedTuple):
    """What was found of one promise."""

    promise: Promise
    verdict: PromiseVerdict
    detail: str
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        return {
            "promise": self.promise.key,
            "what": self.promise.what,
            "verdict": str(self.verdict),
            "detail": self.detail,
            "follows": self.promise.follows if self.verdict is PromiseVerdict.FAILS else "",
            "safety": self.promise.safety,
            "seconds": round(self.seconds, 2),
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> PromiseResult | None:
        """Read a `document`; None for one of another version of Remuda that is not understood."""
        promise = _BY_KEY.get(str(document.get("promise")))
        try:
            verdict = PromiseVerdict(str(document.get("verdict")))
            seconds = float(document.get("seconds") or 0.0)
        except (TypeError, ValueError):
            return None
        detail = str(document.get("detail") or "")[:_LONGEST]
        return None if promise is None else cls(promise, verdict, detail, seconds)


def find_promise(key: str) -> Promise:
    return _BY_KEY[key]


def offered(plan: SelfTest) -> list[str]:
    """Return the keys of the promises that can be tried on an agent, in their order."""
    has = {
        "bang": plan.bang,
        "slash": plan.slash,
        "compact": plan.compact,
        "clear": plan.clear,
        "hooks": plan.hooks,
        "calls": plan.describes_calls,
        "trust": plan.asks_trust,
        "pool_terminal": "terminal" in plan.backends,
        "pool_stream": "stream" in plan.backends,
    }
    return [promise.key for promise in PROMISES if has.get(promise.key, True)]


def completed(outcomes: Sequence[PromiseResult], plan: SelfTest) -> list[PromiseResult]:
    """Return the outcomes in their order, with those that did not come in time.

    An agent that did not start has only that outcome.
    """
    found = {one.promise.key: one for one in outcomes}
    if "start" in found and found["start"].verdict is PromiseVerdict.HOLDS:
        for key in offered(plan):
            found.setdefault(key, PromiseResult(find_promise(key), PromiseVerdict.UNKNOWN, TIME_OVER))
    return sorted(found.values(), key=lambda one: ORDER[one.promise.key])
