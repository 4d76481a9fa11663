"""The specification of a session.

It goes through a pipe, because arguments are public and environments secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remuda.arguments import check_text, check_variables, check_words
from remuda.duration import LONGEST, check_seconds
from remuda.errors import InvalidOptions, SpawnFailed
from remuda.frozen import frozen
from remuda.names import check_name
from remuda.untrusted import parse_json

from .size import check_policy, check_size

if TYPE_CHECKING:  # a program is started before the code is loaded that hands it messages
    from remuda.turns.message_policy import OnOrphan

DEFAULT_COLS, DEFAULT_ROWS = 220, 50
DEFAULT_SCROLLBACK_BYTES = 65536
DEFAULT_HISTORY_BYTES = 8 << 20
LEAST_HISTORY_BYTES = 1 << 20
"""A read of the terminal has up to 128 KiB, and half of this is one file."""
DEFAULT_KILL_GRACE = 5.0
DEFAULT_LOG_BYTES = 1 << 20
DEFAULT_DRAFT_PATIENCE = 15.0
LEAST_DESCRIPTORS = 24
"""An agent's keeper has 16 open. With 18 it starts, and delivers nothing; with 20 it does."""
MAX_SCROLLBACK_BYTES = 1 << 30
_MOST = {
    "scrollback_bytes": MAX_SCROLLBACK_BYTES,
    "history_bytes": 1 << 40,
    "log_max_bytes": 1 << 40,
    "idle_threshold_ms": int(LONGEST * 1000),
    "debounce_ms": int(LONGEST * 1000),
}
_RESUMED = (
    *("classifier", "idle_threshold_ms", "debounce_ms", "scrollback_bytes", "history_bytes", "kill_group"),
    *("log_file", "log_level", "log_filter", "on_orphan", "trust", "turn_timeout", "draft_patience"),
    *("restart", "sleep_after"),
    *("key", "started_by", "depth"),
)
ON_ORPHAN: tuple[OnOrphan, ...] = ("retry", "deadletter", "drop")
RESTART = ("never", "on-crash", "always")


@frozen
class SessionSpec:
    """Everything a keeper needs to run one session. `Session.start` makes one from its options.

    `start_session` takes it as it is: nothing is read from configuration files.
    """

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
    history_bytes: int = DEFAULT_HISTORY_BYTES
    """How much of the program's output to keep on disk; 0 keeps none."""
    kill_group: bool = True
    kill_grace: float = DEFAULT_KILL_GRACE
    log_file: str | None = None
    log_level: str = "info"
    log_filter: str | None = None
    log_max_bytes: int = DEFAULT_LOG_BYTES
    record_file: str | None = None
    resume: bool = False
    expect_attach: bool = False
    """The starter attaches at once; a session that ends earlier waits for that."""
    on_orphan: OnOrphan = "deadletter"
    """What to do with a message that was submitted when its session died."""
    unless_killed: bool = False
    """Do not start it if a user has ended the session of this name."""
    restart: str = "never"
    """When to start it again after its end: see `keeper/restart`."""
    sleep_after: float = 0.0
    """Seconds after which the agent of an idle session is ended until it is needed; 0 for never."""
    trust: bool = False
    """Answer yes if the agent asks whether the folder is trusted."""
    forget_trust: bool = False
    """Use that answer for this session only: remove it from the agent's settings afterwards."""
    turn_timeout: float = 0.0
    """Seconds without a sign of life after which a turn has failed; 0 means unlimited."""
    draft_patience: float = DEFAULT_DRAFT_PATIENCE
    """Seconds after which an unchanged draft is stashed to deliver a message. It is restored afterwards."""
    owned: bool = False
    """End the session when its starter exits: the starter holds a pipe open."""
    ephemeral: bool = False
    """Leave nothing after the end: no record, no log, no inbox."""
    once: bool = False
    """Deliver one message, try it once, and report to its sender how it ended."""
    single_try: bool = False
    """Try each message once, whatever happens to it or to the account."""
    deny_permissions: bool = False
    """Deny permission requests that a human would have to decide; the agent goes on. With `once`, for the
    first message."""
    asks: bool = False
    """Let clients decide permission requests, as well as the terminal."""
    tools: bool = False
    """Report input and output of the agent's tools to the clients that subscribe to it."""
    max_turns: int = 0
    """Stop the agent after this many requests to the model; 0 means unlimited."""
    stop_timeout: float = 0.0
    """Seconds after the end of a turn by which its Stop hook must arrive, or the turn has failed. 0: without
    the hook the turn counts as interrupted."""
    prompt: str | None = None
    """The first message; `message_id` is its id."""
    message_id: str = ""
    variables: Sequence[str] = ()
    """Names in `env` that the user set for this session."""
    worktree: Mapping[str, Any] | None = None
    """The git worktree that was made for it, as `Worktree.document`."""
    key: str = ""
    """Made at the first start and kept by a resume: another session of the same name has another one."""
    started_by: str = ""
    """The agent that started it through MCP (`mcp.rights.Caller.id`); empty if a person or a program did."""
    depth: int = 0
    """How many agents started each other before this one."""

    def to_json(self) -> bytes:
        return json.dumps({name: getattr(self, name) for name in self.__match_args__}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> SessionSpec:
        return cls(**parse_json(data, keep_surrogates=True))

    def options(self) -> dict[str, Any]:
        """Return what a resumed session should have again, by the names of the options of `start`."""
        same = {name: getattr(self, name) for name in _RESUMED}
        return {"size": self.size_policy, "grace": self.kill_grace, **same}

    def check(self) -> None:
        """Raise `InvalidOptions` for a value that a keeper could not use."""
        _check_descriptors()
        check_name(self.name)
        check_policy(self.size_policy)
        check_size(self.cols, self.rows)
        self._check_times_and_choices()
        check_words("argv", self.argv)
        check_variables("env", self.env)
        for name in ("folder", "cwd", "log_file", "record_file"):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name))
        if not self.argv or not self.argv[0]:
            raise InvalidOptions("no command to run")
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 0 <= value <= most):
                raise InvalidOptions(f"{name} must be an integer from 0 to {most}")
        if 0 < self.history_bytes < LEAST_HISTORY_BYTES:
            raise InvalidOptions(f"history_bytes must be 0 or at least {LEAST_HISTORY_BYTES}")

    def _check_times_and_choices(self) -> None:
        for name in ("kill_grace", "turn_timeout", "draft_patience", "stop_timeout", "sleep_after"):
            if check_seconds(name, getattr(self, name)) != getattr(self, name):
                raise InvalidOptions(f"{name} must be at most {LONGEST:.0f} seconds")
        for name, known in (("on_orphan", ON_ORPHAN), ("restart", RESTART)):
            if getattr(self, name) not in known:
                raise InvalidOptions(f"{name} must be one of {', '.join(known)}, not {getattr(self, name)!r}")


def _check_descriptors() -> None:
    """With fewer, a keeper starts and then cannot be reached."""
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= allowed < LEAST_DESCRIPTORS:
        raise SpawnFailed(
            f"the limit is {allowed} open files, but a session needs {LEAST_DESCRIPTORS}",
            hint="raise the limit first: ulimit -n 1024",
        )
