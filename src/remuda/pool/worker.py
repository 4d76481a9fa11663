"""A warm agent as the pool sees it, and the backends by name.

Every backend and the fake in `testing` pass one conformance suite. A backend is imported when a client first
needs it. None replaces another.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Protocol, cast

from remuda.agents import DEFAULT_AGENT, find_agent, find_stream, find_warm
from remuda.agents.warm import PoolWorker
from remuda.arguments import wrong
from remuda.digest import sha256
from remuda.errors import CommandNotExecutable, CommandNotFound, InvalidOptions
from remuda.errors import SessionDirty as SessionDirty

from .options import AgentOptions, ClientSettings, PartialProfile, read_client, read_run
from .types import BackendName, Permissions

# ── profiles ──

# Making one needs the disk: the folder and the program must exist.


@dataclass(frozen=True, kw_only=True)
class Profile(AgentOptions):
    """A worker serves requests of its own profile and no other."""

    agent: str
    binary: str
    cwd: str
    env: Mapping[str, str] = field(repr=False)
    """The complete environment, not only additions."""
    asks: bool = False
    """Whether permission requests go to the caller; else they are denied, as `claude -p` does."""

    @property
    def program(self) -> list[str]:
        """Return the words that start the agent, before its flags."""
        return [self.binary, *find_agent(self.agent).default_argv[1:]]

    @cached_property
    def key(self) -> str:
        """The same for equal profiles. Nothing of the profile can be read from it."""
        text = json.dumps(asdict(self) | {"env": dict(sorted(self.env.items()))}, sort_keys=True)
        return sha256(text.encode("utf-8", "surrogateescape"))[:16]

    @property
    def request_key(self) -> str:
        """The same on every machine, for requests that could be served by this worker but for `env`."""
        return _request_key(self.agent, self.cwd, self, asks=self.asks)


def _request_key(agent: str, cwd: str, options: AgentOptions, *, asks: bool) -> str:
    plain = {one.name: getattr(options, one.name) for one in fields(AgentOptions)}
    text = json.dumps([agent, cwd, asks, plain], sort_keys=True)
    return sha256(text.encode("utf-8", "surrogateescape"))[:16]


def request_key(options: Mapping[str, object], permissions: str | None, agent: str | None) -> str:
    """Return the key of a request before it is known who serves it. Raises `InvalidOptions`."""
    settings = read_client({"agent": agent or DEFAULT_AGENT})
    known = {one.name for one in fields(PartialProfile)}
    given = {name: value for name, value in options.items() if name in known and name != "env"}
    profile = read_run(given, settings).profile
    asks = permissions not in (None, "deny")
    return _request_key(settings.agent, profile.cwd or "", profile, asks=asks)


class Resolver:
    """Makes profiles. Uses environment and folder of the process as they were when the client was made."""

    def __init__(self, settings: ClientSettings, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._environment = dict(environment) if settings.inherit_env else {}
        self._folder = os.getcwd()

    def profile(
        self, options: PartialProfile, permissions: Permissions, *, find_binary: bool = True
    ) -> Profile:
        """Raises `InvalidOptions`, `CommandNotFound` or `CommandNotExecutable`."""
        env = self._merged(options.env)
        binary = self._settings.claude_binary
        if self._settings.agent != DEFAULT_AGENT:  # `claude_binary` is not its program
            binary = find_agent(self._settings.agent).default_argv[0]
        return Profile(
            agent=self._settings.agent,
            binary=self._binary(binary, env) if find_binary else binary,
            cwd=self._cwd(options.cwd),
            env=env,
            asks=permissions != "deny",
            **{option.name: getattr(options, option.name) for option in fields(AgentOptions)},
        )

    def _merged(self, env: Mapping[str, str | None]) -> dict[str, str]:
        merged = {**self._environment, **env}
        return {name: value for name, value in merged.items() if value is not None}

    def _cwd(self, cwd: str | None) -> str:
        path = os.path.realpath(os.path.join(self._folder, os.path.expanduser(cwd or "")))
        if not os.path.isdir(path):
            raise wrong("cwd", path, "a folder")
        if not os.access(path, os.X_OK):
            raise InvalidOptions(f"cannot enter cwd {path}: permission denied")
        return path

    def _binary(self, binary: str, env: Mapping[str, str]) -> str:
        if os.sep in binary:
            return _runnable(os.path.abspath(os.path.join(self._folder, os.path.expanduser(binary))))
        path = shutil.which(binary, path=env.get("PATH", os.defpath))
        if path is None:
            raise CommandNotFound(f"{binary} is not on the PATH", hint="install it, or set claude_binary")
        return os.path.abspath(path)


def _runnable(path: str) -> str:
    if not os.path.isfile(path):
        raise CommandNotFound(f"cannot find the program {path}")
    if not os.access(path, os.X_OK):
        raise CommandNotExecutable(f"{path} is not executable")
    return path


def check_profile(profile: Profile, backend: BackendName) -> None:
    """Raise `InvalidOptions` if no worker of that backend can have this profile."""
    agent = find_warm(profile.agent)
    if backend != "terminal":
        find_stream(profile.agent)
    if refusals := agent.refusals(profile, terminal=backend == "terminal"):
        raise InvalidOptions("; ".join(refusals))
    agent.arguments(profile)


class Worker(PoolWorker, Protocol):
    """A worker with its profile. `PoolWorker` says what each method does."""

    backend: ClassVar[BackendName]
    profile: Profile


WorkerFactory = Callable[[str, Profile], Worker]
"""Makes a worker with that id, not yet opened."""


# ── backends ──


def backend_factory(name: BackendName, folder: Path) -> WorkerFactory:
    """Return what makes workers of that backend, with their files in `folder`."""
    if name == "terminal":
        from .terminal_worker import TerminalWorker

        return lambda session_id, profile: TerminalWorker(session_id, profile, folder)

    def make(session_id: str, profile: Profile) -> Worker:
        stream = find_stream(profile.agent)
        worker = stream.worker if name == "stream" else stream.print_worker
        return cast(Worker, worker(session_id, profile))

    return make
