"""Decide which ended sessions are started again, and when. Pure.

A session is wanted if it was started with `--restart on-crash` or `always`, and no user ended it. A session
that ended with its machine, its login or its keeper is wanted as one that crashed. Each try is noted before
it is made. A session that ends again soon gets longer and longer pauses, and is left alone in the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remuda.agents import PLAIN_AGENTS
from remuda.untrusted import finite

from .record import SessionRecord

KILLED = "killed"
STARTER_GAVE_UP = "its starter gave up"
_FOR_GOOD = (KILLED, "ended with its owner")
SETTLED_AFTER = 600.0
"""Seconds after which a session runs well: its earlier tries do not count any more."""
LONGEST_PAUSE = 300.0


def comes_back(record: SessionRecord) -> bool:
    """Return whether a session that does not run is wanted."""
    options: object = record.options  # a damaged record can hold anything
    policy = options.get("restart") if isinstance(options, dict) else None
    if policy not in ("on-crash", "always") or record.killed or record.ephemeral:
        return False
    if record.ended_at is None:  # killed with its keeper
        return True
    if record.end_reason in _FOR_GOOD or (not record.resumed and _failed_at_start(record)):
        return False
    return policy == "always" or record.exit_code != 0 or record.end_reason != "exited"


def _failed_at_start(record: SessionRecord) -> bool:
    """Whether 'start' reported an error. A plain command may end at once without one."""
    never_up = not record.came_up and record.agent not in PLAIN_AGENTS
    return never_up or record.end_reason == STARTER_GAVE_UP


@dataclass(frozen=True, slots=True)
class RestartRule:
    """How often to try, and the first pause in seconds; each further pause is twice as long."""

    tries: int = 5
    pause: float = 2.0


@dataclass(frozen=True, slots=True)
class Tries:
    """How often a session was started again in a row."""

    count: int = 0
    at: float = 0.0
    """When it was tried last."""
    run: float = 0.0
    """When the run began that had ended then: a later one that settled starts the count again."""
    error: str = ""
    """Why it could not be started, if it could not."""

    def document(self) -> dict[str, Any]:
        return {"count": self.count, "at": self.at, "run": self.run, "error": self.error}

    @classmethod
    def read(cls, document: object) -> Tries:
        """Read what `document` made; what is not well-formed counts as nothing."""
        if not isinstance(document, Mapping):
            return cls()
        count = document.get("count")
        return cls(
            count if type(count) is int and count >= 0 else 0,
            finite(document.get("at")),
            finite(document.get("run")),
            str(document.get("error") or ""),
        )


def current_tries(record: SessionRecord, tries: Tries) -> Tries:
    """Return the tries that still count: none if the session ran for a while since the last one."""
    lasted = finite(record.ended_at) - finite(record.started_at)
    has_settled = record.settled or lasted >= SETTLED_AFTER
    return Tries() if has_settled and record.started_at != tries.run else tries


def is_left_alone(tries: Tries, rule: RestartRule) -> bool:
    return tries.count >= rule.tries


def due_at(tries: Tries, rule: RestartRule, now: float) -> float:
    """Return when to try again. With a last try in the future the clock was set back: how long ago it was is
    not known, and waiting for that time can take years.
    """
    if not tries.count or tries.at > now:
        return now
    pause = min(rule.pause * 2.0 ** min(tries.count - 1, 30), LONGEST_PAUSE)
    return tries.at + pause


def next_try(record: SessionRecord, tries: Tries, now: float) -> Tries:
    return Tries(tries.count + 1, now, record.started_at)
