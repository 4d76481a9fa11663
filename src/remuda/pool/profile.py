"""What makes two workers interchangeable, and how a profile is made of options.

Making one needs the disk: the folder and the program must exist.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property

from remuda.agents import find_agent
from remuda.agents.warm import find_warm
from remuda.arguments import wrong
from remuda.errors import CommandNotExecutable, CommandNotFound, InvalidOptions

from .options import AgentOptions, ClientSettings, PartialProfile
from .types import BackendName, Permissions


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
        """The words that start the agent, before its flags."""
        return [self.binary, *find_agent(self.agent).default_argv[1:]]

    @cached_property
    def key(self) -> str:
        """The same for equal profiles. Nothing of the profile can be read from it."""
        text = json.dumps(asdict(self) | {"env": dict(sorted(self.env.items()))}, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


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
        if self._settings.agent != "claude":  # `claude_binary` is not its program
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
    if refusals := agent.refusals(profile, terminal=backend == "terminal"):
        raise InvalidOptions("; ".join(refusals))
    agent.arguments(profile)
