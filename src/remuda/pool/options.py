"""What a client and a request may be given. Pure; nothing runs before all of it was read.

Every complaint is `InvalidOptions`. What needs a look at the disk is in `resolve`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from remuda.errors import InvalidOptions

from . import checks
from .checks import Reader
from .scheduler import Limits
from .types import BackendName, Permissions

if TYPE_CHECKING:
    import asyncio

AgentName = Literal["claude", "demo"]
PathOption = str | os.PathLike[str]
ConfigOption = str | os.PathLike[str] | Mapping[str, Any]
"""A path, JSON text, or a mapping to be written as JSON."""


class ProfileOptions(TypedDict, total=False):
    """Options that a worker is started with. A worker serves only requests with exactly its own.

    An option that is not given, or None, is the client's; if the client has none, the agent's default.
    """

    cwd: PathOption | None
    env: Mapping[str, str | None] | None
    """Added to the client's environment; None removes a variable."""
    model: str | None
    allowed_tools: Sequence[str] | None
    disallowed_tools: Sequence[str] | None
    permission_mode: str | None
    settings: ConfigOption | None
    setting_sources: str | Sequence[str] | None
    mcp_config: ConfigOption | Sequence[ConfigOption] | None
    system_prompt: str | None
    append_system_prompt: str | None
    add_dirs: Sequence[PathOption] | None
    extra_args: Sequence[str] | None


class PrewarmOptions(ProfileOptions, total=False):
    """Options of `prewarm`: the workers serve requests with the same options."""

    permissions: Permissions | None


class RunOptions(PrewarmOptions, total=False):
    """Options of one request."""

    timeout: float | None
    """Seconds until the request fails, including the wait for a worker."""
    request_id: str | None


class AsyncRunOptions(RunOptions, total=False):
    """Options of one request in an event loop."""

    signal: asyncio.Event | None
    """Set it to abort the request."""


class ClientOptions(ProfileOptions, total=False):
    """Options of a client. Options of a profile are the defaults of its requests."""

    pool_size: int
    backend: BackendName
    max_requests_per_session: int | None
    max_session_age: float | None
    max_idle: float | None
    acquire_timeout: float
    spawn_timeout: float
    default_timeout: float
    clear_timeout: float
    interrupt_timeout: float
    end_timeout: float
    close_timeout: float
    claude_binary: PathOption
    agent: AgentName
    runtime_dir: PathOption | None
    """Folder for the files of the workers; None means the folder of all sessions."""
    inherit_env: bool
    """False: agents get the variables of `env` and no others."""
    warmup_prompt: str | None
    permissions: Permissions
    permission_timeout: float


@dataclass(frozen=True, slots=True)
class PartialProfile:
    """The profile's fields as far as they were given."""

    cwd: str | None = None
    env: Mapping[str, str | None] = field(default_factory=dict)
    model: str | None = None
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    permission_mode: str | None = None
    settings: str | None = None
    setting_sources: str | None = None
    mcp_config: tuple[str, ...] = ()
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    add_dirs: tuple[str, ...] = ()
    extra_args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """A client's options, checked, with the defaults."""

    pool_size: int = 1
    backend: BackendName = "terminal"
    max_requests_per_session: int | None = 50
    max_session_age: float | None = 3600.0
    max_idle: float | None = 600.0
    acquire_timeout: float = 30.0
    spawn_timeout: float = 30.0
    default_timeout: float = 300.0
    clear_timeout: float = 10.0
    interrupt_timeout: float = 5.0
    end_timeout: float = 10.0
    close_timeout: float = 30.0
    claude_binary: str = "claude"
    agent: AgentName = "claude"
    runtime_dir: str | None = None
    inherit_env: bool = True
    warmup_prompt: str | None = None
    permissions: Permissions = "deny"
    permission_timeout: float = 120.0
    wanted: PartialProfile = field(default_factory=PartialProfile)

    @property
    def limits(self) -> Limits:
        return Limits(self.pool_size, self.max_requests_per_session, self.max_session_age, self.max_idle)


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """A request's options, checked, with the client's for those that were not given."""

    wanted: PartialProfile
    timeout: float
    permissions: Permissions
    request_id: str | None = None
    signal: asyncio.Event | None = None


def read_client(given: Mapping[str, object]) -> ClientSettings:
    own = checks.read_all(given, {**_CLIENT, **_PROFILE}, "client")
    wanted = PartialProfile(**{name: own.pop(name) for name in _PROFILE if name in own})
    settings = ClientSettings(**own, wanted=wanted)
    if settings.backend == "print" and settings.warmup_prompt is not None:
        raise InvalidOptions(
            "warmup_prompt does not work with the print backend", hint="use terminal or stream"
        )
    return settings


def read_run(given: Mapping[str, object], settings: ClientSettings) -> RequestSettings:
    own = checks.read_all(given, {**_RUN, **_PROFILE}, "request")
    wanted = _over(settings.wanted, {name: own.pop(name) for name in _PROFILE if name in own})
    own.setdefault("timeout", settings.default_timeout)
    own.setdefault("permissions", settings.permissions)
    return RequestSettings(wanted, **own)


def read_prewarm(given: Mapping[str, object], settings: ClientSettings) -> RequestSettings:
    own = checks.read_all(given, {**_PREWARM, **_PROFILE}, "profile")
    return read_run(own, settings)


def _over(base: PartialProfile, given: Mapping[str, Any]) -> PartialProfile:
    env = {**base.env, **given.get("env", {})}
    return replace(base, **{**given, "env": env})


_PROFILE: dict[str, Reader] = {
    "cwd": checks.path,
    "env": checks.env,
    "model": checks.word,
    "allowed_tools": checks.many(checks.word),
    "disallowed_tools": checks.many(checks.word),
    "permission_mode": checks.word,
    "settings": checks.config,
    "setting_sources": checks.sources,
    "mcp_config": checks.many(checks.config, alone=True),
    "system_prompt": checks.text,
    "append_system_prompt": checks.text,
    "add_dirs": checks.many(checks.path),
    "extra_args": checks.many(checks.word),
}
_PREWARM: dict[str, Reader] = {"permissions": checks.permissions}
_RUN: dict[str, Reader] = {
    **_PREWARM,
    "timeout": checks.seconds,
    "request_id": checks.request_id,
    "signal": checks.signal,
}
_CLIENT: dict[str, Reader] = {
    "pool_size": checks.count,
    "backend": checks.one_of(*get_args(BackendName)),
    "max_requests_per_session": checks.count_limit,
    "max_session_age": checks.limit,
    "max_idle": checks.limit,
    "acquire_timeout": checks.seconds_or_zero,
    "spawn_timeout": checks.seconds,
    "default_timeout": checks.seconds,
    "clear_timeout": checks.seconds,
    "interrupt_timeout": checks.seconds,
    "end_timeout": checks.seconds,
    "close_timeout": checks.seconds_or_zero,
    "claude_binary": checks.path,
    "agent": checks.agent,
    "runtime_dir": checks.path,
    "inherit_env": checks.flag,
    "warmup_prompt": checks.prompt,
    "permissions": checks.permissions,
    "permission_timeout": checks.seconds,
}

assert set(_PROFILE) == {one.name for one in fields(PartialProfile)}
