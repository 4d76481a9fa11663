"""The options of a client and of a request, and their checks. Nothing starts before all are checked.

Every error is `InvalidOptions`. Each option is in two places: in a `TypedDict`, for the type checkers of
callers, and as a field of a dataclass, with its default and the function that checks it. Checks that need the
disk are in `profile`.
"""

# ruff: noqa: RUF009  # `_option` returns a dataclass field

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypedDict, get_args

from remuda.agents import DEFAULT_AGENT, find_warm
from remuda.errors import InvalidOptions

from . import option_readers as read
from .option_readers import Reader
from .scheduler import PoolLimits
from .types import BackendName, Permissions

if TYPE_CHECKING:
    import asyncio

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
    max_output_tokens: int | None
    """Output tokens after which the request fails with `BudgetExceeded`, as far as the agent reports them."""
    max_cost: float | None
    """US dollars; not on the terminal backend, where no agent reports its cost."""


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
    agent: str
    """The name of an agent that can serve many requests: "claude", "demo", or one of another package."""
    runtime_dir: PathOption | None
    """Folder for the files of the workers; None means the folder of all sessions."""
    inherit_env: bool
    """False: agents get the variables of `env` and no others."""
    warmup_prompt: str | None
    permissions: Permissions
    permission_timeout: float


def _option(reader: Reader, default: Any = None) -> Any:
    """Return a field whose value `reader` checks."""
    return field(default=default, metadata={"reader": reader})


def _readers(*kinds: type) -> dict[str, Reader]:
    every = [one for kind in kinds for one in fields(kind)]
    return {one.name: one.metadata["reader"] for one in every if "reader" in one.metadata}


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Options of a profile that become arguments of the agent."""

    model: str | None = _option(read.word)
    allowed_tools: tuple[str, ...] = _option(read.many(read.word), ())
    disallowed_tools: tuple[str, ...] = _option(read.many(read.word), ())
    permission_mode: str | None = _option(read.word)
    settings: str | None = _option(read.config)
    setting_sources: str | None = _option(read.sources)
    mcp_config: tuple[str, ...] = _option(read.many(read.config, alone=True), ())
    system_prompt: str | None = _option(read.text)
    append_system_prompt: str | None = _option(read.text)
    add_dirs: tuple[str, ...] = _option(read.many(read.path), ())
    extra_args: tuple[str, ...] = _option(read.many(read.word), ())


@dataclass(frozen=True, slots=True)
class PartialProfile(AgentOptions):
    """The options of a profile that were given."""

    cwd: str | None = _option(read.path)
    env: Mapping[str, str | None] = field(default_factory=dict, metadata={"reader": read.env})


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The options of a client, checked, with defaults."""

    pool_size: int = _option(read.count, 1)
    backend: BackendName = _option(read.one_of(*get_args(BackendName)), "terminal")
    max_requests_per_session: int | None = _option(read.count_limit, 50)
    max_session_age: float | None = _option(read.limit, 3600.0)
    max_idle: float | None = _option(read.limit, 600.0)
    acquire_timeout: float = _option(read.seconds_or_zero, 30.0)
    spawn_timeout: float = _option(read.seconds, 30.0)
    default_timeout: float = _option(read.seconds, 300.0)
    clear_timeout: float = _option(read.seconds, 10.0)
    interrupt_timeout: float = _option(read.seconds, 5.0)
    end_timeout: float = _option(read.seconds, 10.0)
    close_timeout: float = _option(read.seconds_or_zero, 30.0)
    claude_binary: str = _option(read.path, "claude")
    agent: str = _option(read.agent, DEFAULT_AGENT)
    runtime_dir: str | None = _option(read.path)
    inherit_env: bool = _option(read.flag, True)
    warmup_prompt: str | None = _option(read.prompt)
    permissions: Permissions = _option(read.permissions, "deny")
    permission_timeout: float = _option(read.seconds, 120.0)
    profile: PartialProfile = field(default_factory=PartialProfile)
    """Defaults for the profiles of requests."""

    @property
    def limits(self) -> PoolLimits:
        return PoolLimits(self.pool_size, self.max_requests_per_session, self.max_session_age, self.max_idle)


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """The options of a request, checked, with those of the client for options that were not given."""

    profile: PartialProfile
    timeout: float = _option(read.seconds)
    permissions: Permissions = _option(read.permissions)
    request_id: str | None = _option(read.request_id)
    signal: asyncio.Event | None = _option(read.signal)
    max_output_tokens: int | None = _option(read.count)
    max_cost: float | None = _option(read.amount)


_PROFILE = _readers(PartialProfile)
_CLIENT = {**_readers(ClientSettings), **_PROFILE}
_REQUEST = {**_readers(RequestSettings), **_PROFILE}
_PREWARM = {"permissions": _REQUEST["permissions"], **_PROFILE}


def read_client(given: Mapping[str, object]) -> ClientSettings:
    values = read.read_all(given, _CLIENT, "client")
    if values.get("backend") is None and values.get("agent", DEFAULT_AGENT) != DEFAULT_AGENT:
        # Agents of other packages may not know such a name.
        values["backend"] = getattr(find_warm(values["agent"]), "default_backend", "terminal")
    profile = PartialProfile(**_take_profile(values))
    settings = ClientSettings(**values, profile=profile)
    if settings.backend == "print" and settings.warmup_prompt is not None:
        raise InvalidOptions(
            "warmup_prompt does not work with the print backend", hint="use terminal or stream"
        )
    return settings


def read_run(given: Mapping[str, object], settings: ClientSettings) -> RequestSettings:
    values = read.read_all(given, _REQUEST, "request")
    if "max_cost" in values and settings.backend == "terminal":
        raise InvalidOptions(
            "max_cost does not work with the terminal backend, which does not know the cost",
            hint="use max_output_tokens, or the stream or print backend",
        )
    changes = _take_profile(values)
    changes["env"] = {**settings.profile.env, **changes.get("env", {})}
    values.setdefault("timeout", settings.default_timeout)
    values.setdefault("permissions", settings.permissions)
    return RequestSettings(replace(settings.profile, **changes), **values)


def read_prewarm(given: Mapping[str, object], settings: ClientSettings) -> RequestSettings:
    return read_run(read.read_all(given, _PREWARM, "profile"), settings)


def _take_profile(values: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of a profile from `values` and return them."""
    return {name: values.pop(name) for name in _PROFILE if name in values}
