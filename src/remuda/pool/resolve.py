"""From options to the profile of a session: the parts that need a look at the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict

from remuda.agents import find_agent
from remuda.arguments import wrong
from remuda.errors import CommandNotExecutable, CommandNotFound, InvalidOptions

from .options import ClientSettings, PartialProfile
from .profile import Profile
from .types import Permissions


class Resolver:
    """Knows the environment and the folder of the process as they were when the client was made."""

    def __init__(self, settings: ClientSettings, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._environment = dict(environment) if settings.inherit_env else {}
        self._folder = os.getcwd()

    def profile(
        self, wanted: PartialProfile, permissions: Permissions, *, find_binary: bool = True
    ) -> Profile:
        """Raises `InvalidOptions`, `CommandNotFound` or `CommandNotExecutable`."""
        env = self._merged(wanted.env)
        binary = self._settings.claude_binary
        if self._settings.agent != "claude":  # `claude_binary` is not its program
            binary = find_agent(self._settings.agent).default_argv[0]
        given = asdict(wanted) | {"cwd": self._cwd(wanted.cwd), "env": env}
        return Profile(
            agent=self._settings.agent,
            binary=self._binary(binary, env) if find_binary else binary,
            asks=permissions != "deny",
            **given,
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
        found = shutil.which(binary, path=env.get("PATH", os.defpath))
        if found is None:
            raise CommandNotFound(f"{binary} is not on the PATH", hint="install it, or set claude_binary")
        return os.path.abspath(found)


def _runnable(path: str) -> str:
    if not os.path.isfile(path):
        raise CommandNotFound(f"cannot find the program {path}")
    if not os.access(path, os.X_OK):
        raise CommandNotExecutable(f"{path} is not executable")
    return path
