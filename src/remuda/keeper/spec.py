"""What a keeper is told to keep. It travels through a pipe: arguments are public, environments are not."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from remuda.errors import InvalidOptions
from remuda.frozen import frozen
from remuda.names import check_name

from .size import check_policy, check_size

if TYPE_CHECKING:  # a program is started before anything is loaded that hands it messages
    from remuda.turns.policy import OnOrphan

DEFAULT_COLS, DEFAULT_ROWS = 220, 50
DEFAULT_SCROLLBACK_BYTES = 65536
DEFAULT_KILL_GRACE = 5.0
DEFAULT_LOG_BYTES = 1 << 20
DEFAULT_DRAFT_PATIENCE = 15.0
ON_ORPHAN: tuple[OnOrphan, ...] = ("retry", "deadletter", "drop")


@frozen
class SessionSpec:
    """One session, complete: nothing is looked up elsewhere once its keeper runs."""

    name: str
    folder: str
    argv: list[str]
    cwd: str
    env: dict[str, str]
    agent: str = "simple"
    cols: int = DEFAULT_COLS
    rows: int = DEFAULT_ROWS
    size_policy: str = "latest"
    classifier: str = "simple"
    idle_threshold_ms: int | None = None
    debounce_ms: int | None = None
    scrollback_bytes: int = DEFAULT_SCROLLBACK_BYTES
    kill_group: bool = True
    kill_grace: float = DEFAULT_KILL_GRACE
    log_file: str | None = None
    log_level: str = "info"
    log_filter: str | None = None
    log_max_bytes: int = DEFAULT_LOG_BYTES
    record_file: str | None = None
    resume: bool = False
    expect_attach: bool = False
    """Whoever starts it will attach at once, and is waited for if it ends before that."""
    on_orphan: OnOrphan = "deadletter"
    """What is done with a message that was submitted when its session died."""
    trust: bool = False
    """The agent's question whether it may trust the folder is answered with yes."""
    turn_timeout: float = 0.0
    """A turn without any sign of life for so long has failed; 0 is never."""
    draft_patience: float = DEFAULT_DRAFT_PATIENCE
    """A draft that nobody touched for so long is laid aside for a message, and comes back behind it."""
    owned: bool = False
    """It ends with whoever started it: the starter holds a pipe open, and its end is the session's."""
    ephemeral: bool = False
    """Nothing is left of it when it has ended: no record, no log, no inbox."""
    once: bool = False
    """It has one message, which is tried once; whoever sent it is told how that ended."""
    single_try: bool = False
    """Each of its messages is tried once, whatever happens to it or to the account."""
    deny_permissions: bool = False
    """A permission that a human would have to give is refused, and the agent goes on. With `once`, for the
    first message."""
    asks: bool = False
    """Permissions may be given by clients, as well as at the terminal."""
    tools: bool = False
    """Clients that want to hear it are told what goes into the agent's tools, and what comes out."""
    max_turns: int = 0
    """The agent is stopped before its next request when it has made so many; 0 is no limit."""
    stop_timeout: float = 0.0
    """A turn that is over, and of whose end no hook told for so long, has failed. 0: it was interrupted."""
    prompt: str | None = None
    """Its first message, and `message_id` what it is called."""
    message_id: str = ""
    variables: Sequence[str] = ()
    """Names in `env` that the user set for this session."""

    def to_json(self) -> bytes:
        return json.dumps({name: getattr(self, name) for name in self.__match_args__}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> SessionSpec:
        return cls(**json.loads(data))

    def options(self) -> dict[str, Any]:
        """What is worth remembering of it, by the names of `start`'s options."""
        return {
            "size": self.size_policy,
            "classifier": self.classifier,
            "idle_threshold_ms": self.idle_threshold_ms,
            "debounce_ms": self.debounce_ms,
            "scrollback_bytes": self.scrollback_bytes,
            "kill_group": self.kill_group,
            "grace": self.kill_grace,
            "log_file": self.log_file,
            "log_level": self.log_level,
            "log_filter": self.log_filter,
            "on_orphan": self.on_orphan,
            "trust": self.trust,
            "turn_timeout": self.turn_timeout,
            "draft_patience": self.draft_patience,
        }

    def check(self) -> None:
        """Raise for what no keeper could carry out, before anything runs."""
        check_name(self.name)
        check_policy(self.size_policy)
        check_size(self.cols, self.rows)
        check_seconds("kill_grace", self.kill_grace)
        check_seconds("turn_timeout", self.turn_timeout)
        check_seconds("draft_patience", self.draft_patience)
        check_seconds("stop_timeout", self.stop_timeout)
        if self.on_orphan not in ON_ORPHAN:
            raise InvalidOptions(f"on_orphan is one of {', '.join(ON_ORPHAN)}, not {self.on_orphan!r}")
        if not self.argv or not self.argv[0]:
            raise InvalidOptions("there is nothing to run")
        if self.scrollback_bytes < 0 or self.log_max_bytes < 0:
            raise InvalidOptions("a number of bytes cannot be negative")
        texts = [*self.argv, *self.env, *self.env.values(), self.cwd, self.folder]
        if any("\0" in text for text in texts):
            raise InvalidOptions("no argument, variable or path can hold a NUL")


def check_seconds(name: str, value: object) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or value < 0
    ):
        raise InvalidOptions(f"{name} must be a number of seconds, not {value!r}")
