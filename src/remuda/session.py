"""`remuda.Session`: a kept session by its name. What the commands do, for a program."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from .agents import find_agent
from .config import load_config
from .errors import InvalidOptions, MessageDead, SessionNotFound
from .inbox.journal import Accepted, Inbox
from .inbox.receipts import Trace, find, follow
from .keeper.claim import read_holder
from .keeper.client import KeeperClient
from .keeper.compose import compose
from .keeper.record import SessionRecord
from .keeper.rest import wait_for_rest
from .keeper.start import DEFAULT_START_TIMEOUT, start_session
from .names import check_name
from .paths import SessionPaths, sessions_folder
from .wire.connection import ClientConnection

_END_TIMEOUT = 10.0


class Session:
    """A session that runs, or ran. It holds nothing open: each call finds the session as it is then.

    Blocking, every wait with a bound; from asyncio use `asyncio.to_thread`. It lives on when this object,
    or the whole program, is gone.
    """

    def __init__(self, name: str, *, folder: Path | str | None = None) -> None:
        """One that is known here. Raises `SessionNotFound`."""
        self._paths = SessionPaths.of(check_name(name), _folder(folder))
        if not self.alive and SessionRecord.load(self._paths.record) is None:
            raise SessionNotFound(f"no session named '{name}'", hint="'remuda ls' shows those there are")

    @classmethod
    def start(
        cls,
        name: str,
        command: Sequence[str] = (),
        *,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        folder: Path | str | None = None,
        timeout: float = DEFAULT_START_TIMEOUT,
        **options: Any,
    ) -> Self:
        """Start it and return when it runs. `options` are those of `remuda start`: `agent="claude"`,
        `resume=True`, `trust=True`, `cols=120`… Raises what that can raise, such as `SessionExists`."""
        unknown = options.keys() - _OPTIONS
        if unknown:
            raise InvalidOptions(f"a session has no option {', '.join(sorted(unknown))}")
        where = _folder(folder)
        config = load_config(None, Path.cwd(), os.environ)
        variables = [f"{key}={value}" for key, value in (env or {}).items()]
        said = {"cwd": cwd, "variables": variables, **options}
        start_session(compose(name, command, where, said, config).spec, timeout)
        return cls(name, folder=where)

    @property
    def name(self) -> str:
        return self._paths.name

    @property
    def alive(self) -> bool:
        return read_holder(self._paths) is not None

    @property
    def inbox(self) -> Inbox:
        return Inbox(self._paths.inbox)

    def __repr__(self) -> str:
        return f"Session({self.name!r})"

    # ── looking ──

    def attach(self, *, read_only: bool = False) -> KeeperClient:
        """A connection to its keeper, to see and to type. Close it, or use it in a `with`."""
        return KeeperClient.connect(self.name, self._paths.folder, read_only=read_only)

    def status(self, *, explain: bool = False) -> dict[str, Any]:
        """What it is doing, and since when. Raises `SessionDead` when it has ended."""
        with self.attach(read_only=True) as client:
            return client.describe(explain=explain)

    def screen(self) -> list[str]:
        with self.attach(read_only=True) as client:
            return list(client.request("screen")["lines"])

    # ── messages ──

    def send(self, text: str, *, command: bool = False, literal: bool = False, **options: Any) -> Accepted:
        """On the disk when this returns, and typed when the agent is idle. `options` are those of
        `Inbox.put`: `dedup`, `delay`, `ttl`… Raises `InputError` for what the agent cannot be given."""
        record = SessionRecord.load(self._paths.record)
        speech = find_agent(record.agent).speech if record is not None else None
        if record is not None and speech is None:
            raise InvalidOptions(f"'{self.name}' runs a plain command, which never says what it took")
        if speech is not None:
            speech.check(text, command=command, literal=literal)
        return self.inbox.put(text, command=command, literal=literal, **options)

    def receipt(self, message: str) -> Trace:
        return find(message, [self._paths.inbox])

    def wait(self, message: str, timeout: float | None = None) -> Trace:
        """The message's receipt at its end, which may have come before. Raises `WaitTimeout`."""
        *_, last = follow(self._paths.inbox, message, timeout)
        return last

    def ask(self, text: str, timeout: float | None = None, **options: Any) -> str:
        """Send, wait, and give the answer. Raises `MessageDead` when there is none to come."""
        ended = self.wait(self.send(text, **options).id, timeout)
        if ended.stage != "acked":
            raise MessageDead(f"message {ended.id} was not answered: {ended.stage}, {ended.reason}")
        return str((ended.answer or {}).get("text") or "")

    def wait_idle(self, timeout: float | None = None) -> dict[str, Any]:
        """Its status when it rests and nothing waits for it."""
        return wait_for_rest(self.name, self._paths.folder, timeout)

    # ── the end ──

    def kill(self, grace: float | None = None) -> int | None:
        """End it and all that it started; its exit code, or None when its keeper had no time to say."""
        with self.attach() as client:
            client.send(ClientConnection.subscribe())
            allowed = float(client.request("kill", grace=grace)["grace"])
            return client.wait_exit(allowed + _END_TIMEOUT)


_OPTIONS = {
    "agent",
    "classifier",
    "cols",
    "debounce_ms",
    "draft_patience",
    "grace",
    "idle_threshold_ms",
    "kill_group",
    "log_file",
    "log_filter",
    "log_level",
    "on_orphan",
    "record",
    "resume",
    "rows",
    "scrollback_bytes",
    "session_env_var",
    "size",
    "trust",
    "turn_timeout",
}


def _folder(folder: Path | str | None) -> Path:
    return sessions_folder() if folder is None else Path(folder).expanduser().absolute()
