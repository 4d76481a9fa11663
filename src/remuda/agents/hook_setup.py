"""The boss's hooks of an agent that only reports: nothing waits for a decision, and no inbox has a hook.

A hook runs `boss/hook.py` with the name of the agent. It prints nothing and always exits with 0: the agent
decides as it would without it, whether or not a boss is running.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from remuda.errors import InvalidOptions

from .settings_file import SettingsText
from .setup import BossHooks, Finding, InboxHook, Scope

PROGRAM = Path(__file__).parents[1] / "boss" / "hook.py"
_PROGRAM_END = "remuda/boss/hook.py"
TIMEOUT = 10
"""Seconds after which the agent ends a hook. One takes 0.2 s at most."""


class BossCommand(NamedTuple):
    """What one of our hooks runs."""

    interpreter: str
    program: str
    folder: str
    """The boss's folder."""

    @classmethod
    def own(cls, boss_folder: Path) -> BossCommand:
        return cls(sys.executable, str(PROGRAM), str(boss_folder))

    def words(self, agent: str) -> list[str]:
        return [self.interpreter, "-I", "-S", self.program, self.folder, "--agent", agent]

    def shell(self, agent: str) -> str:
        """Return it for a shell. Without our program it does nothing."""
        return f"[ -f {shlex.quote(self.program)} ] && exec {shlex.join(self.words(agent))} || exit 0"

    def problems(self, boss_folder: Path) -> Iterator[str]:
        for what, path in (("interpreter", self.interpreter), ("program", self.program)):
            if not Path(path).exists():
                yield f"its {what} {path} is gone"
        if self.folder != str(boss_folder):
            yield f"it reports to another boss, in {self.folder}"


def read_command(text: object, agent: str) -> BossCommand | None:
    """Return the parts of a command that `BossCommand.shell` made for this agent; None for any other."""
    try:
        words = shlex.split(text) if isinstance(text, str) else []
    except ValueError:
        return None
    is_ours = words[:2] == ["[", "-f"] and words[4:6] == ["&&", "exec"] and words[11:13] == ["--agent", agent]
    return BossCommand(words[6], words[9], words[10]) if is_ours and words[9].endswith(_PROGRAM_END) else None


class HookSettings(SettingsText):
    """A file that may have the boss's hooks."""

    def commands(self) -> dict[str, BossCommand]:
        """Return our hooks in the saved file, by event."""
        raise NotImplementedError


class OwnHookFile(HookSettings):
    """A file that has the boss's hooks and nothing else."""

    events: Sequence[str]

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._wanted = self._text

    def content(self, boss_folder: Path) -> str:
        """Return the complete text of the file."""
        raise NotImplementedError

    @property
    def had_hooks(self) -> bool:
        return bool(self.commands())

    @property
    def has_hooks(self) -> bool:
        return bool(self._wanted)

    def texts(self) -> tuple[str | None, str | None]:
        return self._text, self._wanted

    def add_boss_hooks(self, boss_folder: Path) -> int:
        self._wanted = self.content(boss_folder)
        return len(self.events)

    def remove_boss_hooks(self) -> int:
        count, self._wanted = len(self.commands()), None
        return count


class HookSetup:
    """An `AgentSetup`. A subclass says where the files are and what is in them."""

    agent: str
    events: Sequence[str]
    folder_variables: tuple[str, ...] = ()
    version_flags: tuple[str, ...] = ("--version",)
    after_install = ""
    """What the user has to do then, for people."""

    def home(self) -> Path:
        """Return the folder that the agent makes for a user."""
        raise NotImplementedError

    def settings_path(self, scope: Scope) -> Path:
        raise NotImplementedError

    def mcp_path(self) -> Path | None:
        raise NotImplementedError

    def open_hooks(self, path: Path) -> HookSettings:
        raise NotImplementedError

    def open_mcp(self, path: Path) -> SettingsText:
        raise NotImplementedError

    def is_used(self) -> bool:
        """Return whether this user has the agent."""
        return self.home().is_dir()

    def is_installed(self) -> bool:
        return shutil.which(self.agent) is not None or self.is_used()

    def open_settings(self, path: Path) -> SettingsText:
        return self.open_mcp(path) if path == self.mcp_path() else self.open_hooks(path)

    def broken_settings(self, only: Path | None = None) -> list[Path]:
        return [path for path in self._files(only) if self._hooks_in(path) is None]

    def inbox_hooks(self, only: Path | None = None) -> list[InboxHook]:
        return []

    def boss_hooks(self, boss_folder: Path, only: Path | None = None) -> list[BossHooks]:
        groups = []
        for path in self._files(only):
            if hooks := self._hooks_in(path):
                problems = [problem for one in set(hooks.values()) for problem in one.problems(boss_folder)]
                if missing := [event for event in self.events if event not in hooks]:
                    problems.append(f"the hooks for {', '.join(missing)} are missing")
                folder = next(iter(hooks.values())).folder
                groups.append(BossHooks(path, list(hooks), folder, problems))
        return groups

    def _files(self, only: Path | None) -> list[Path]:
        own = self.settings_path("user")
        return [own] if only is None or only == own else []

    def _hooks_in(self, path: Path) -> dict[str, BossCommand] | None:
        """Return None for a file that cannot be read."""
        try:
            return self.open_hooks(path).commands()
        except InvalidOptions:
            return None

    def launch_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        return dict(environ)

    # ── what doctor checks ──

    def check_program(self) -> Iterator[Finding]:
        path = shutil.which(self.agent)
        if path is None:
            return
        try:
            done = subprocess.run(
                [path, *self.version_flags], capture_output=True, text=True, timeout=20, check=False
            )
            version = done.stdout.strip().partition("\n")[0] or "of unknown version"
            yield Finding("ok", f"{self.agent}: {version} at {path}")
        except (OSError, subprocess.TimeoutExpired) as error:
            yield Finding("fail", f"{path} does not answer: {error}", f"reinstall {self.agent}")

    def check_hooks(self, boss_folder: Path) -> Iterator[Finding]:
        for path in self.broken_settings():
            yield Finding("note", f"{path} cannot be read, so its hooks do not run", "fix the file")
        for group in self.boss_hooks(boss_folder):
            where = f"the boss's hooks in {group.path}"
            yield from (Finding("note", f"{where}: {problem}", group.fix) for problem in group.problems)
            if not group.problems:
                yield Finding("ok", where)
