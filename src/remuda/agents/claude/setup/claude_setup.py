"""Claude Code's settings files as an `AgentSetup`: our hooks in them, and what `remuda doctor` checks."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.claude.files import local_file, project_file, read_settings, settings_files, user_file
from remuda.agents.claude.launch import BLOCK_CAP_VARIABLE, own_environment
from remuda.agents.claude.trust import global_config, locked
from remuda.agents.settings_file import SettingsFile, command_hooks
from remuda.agents.setup import (
    AddedInboxHook,
    BossHooks,
    Finding,
    InboxHook,
    RemovedInboxHooks,
    Scope,
)
from remuda.durable import read_regular
from remuda.errors import InvalidOptions
from remuda.untrusted import parse_json

from . import boss_hooks, mcp_servers, stop_hooks
from .stop_hooks import StopHook

_PACKAGE = Path(__file__).parents[3]
_STOP_HOOK_PROGRAM = _PACKAGE / "inbox" / "stop.py"
_BOSS_HOOK_PROGRAMS = _PACKAGE / "boss"
_DEFAULT_WAIT = 540.0


class ClaudeSettings(SettingsFile):
    """A settings file to which our hooks can be added."""

    @property
    def had_hooks(self) -> bool:
        return _has_hooks(self.saved_document())

    @property
    def has_hooks(self) -> bool:
        return _has_hooks(self.document)

    def add_inbox_hook(self, arguments: Sequence[str], *, timeout: float, keep_cap: bool) -> AddedInboxHook:
        command = stop_hooks.make_command(sys.executable, str(_STOP_HOOK_PROGRAM), arguments)
        _check_encodable(command)
        with self._named():
            stop_hooks.put_hook(self.document, command, max(stop_hooks.TIMEOUT, timeout))
            lifted = not keep_cap and stop_hooks.lift_cap(self.document)
        return AddedInboxHook(command, BLOCK_CAP_VARIABLE if lifted else "")

    def remove_inbox_hooks(self, inbox: str | None, *, restore_cap: bool) -> RemovedInboxHooks:
        removed = stop_hooks.take_hooks(self.document, inbox)
        is_last = bool(removed) and not stop_hooks.find_hooks(self.document)
        restored = is_last and restore_cap and stop_hooks.restore_cap(self.document)
        names = [hook.inbox or hook.command for hook in removed]
        return RemovedInboxHooks(names, is_last, BLOCK_CAP_VARIABLE if restored else "")

    def add_boss_hooks(self, boss_folder: Path) -> int:
        hooks = boss_hooks.make_hooks(sys.executable, str(_BOSS_HOOK_PROGRAMS), str(boss_folder))
        _check_encodable(json.dumps(hooks, ensure_ascii=False))
        with self._named():
            boss_hooks.put_hooks(self.document, hooks)
        return len(hooks)

    def remove_boss_hooks(self) -> int:
        return len(boss_hooks.take_hooks(self.document))

    @property
    def has_mcp_server(self) -> bool:
        return mcp_servers.find_server(self.document) is not None

    def add_mcp_server(self) -> None:
        server = mcp_servers.make_server()
        _check_encodable(sys.executable)
        with self._named():
            mcp_servers.put_server(self.document, server)

    def remove_mcp_server(self) -> bool:
        return mcp_servers.take_server(self.document)

    def write(self, text: str | None) -> None:
        """Replace the file, under the CLI's lock for the one that it writes itself while it runs."""
        if self.real.name != ".claude.json" or not self.real.parent.is_dir():
            super().write(text)
            return
        with locked(self.real):
            super().write(text)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Name the file in an error about its contents."""
        try:
            yield
        except InvalidOptions as error:
            raise InvalidOptions(f"{self.path}: {error.message}", hint=error.hint) from None


def _has_hooks(document: dict[str, Any]) -> bool:
    return bool(
        stop_hooks.find_hooks(document)
        or boss_hooks.find_hooks(document)
        or mcp_servers.find_server(document)
    )


def _check_encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidOptions("JSON cannot hold a path that is not UTF-8", hint="use another path") from None


class ClaudeSetup:
    """The settings of the user that runs us, and of the current folder."""

    folder_variables: tuple[str, ...] = ("CLAUDE_CONFIG_DIR",)

    def settings_path(self, scope: Scope) -> Path:
        if scope == "user":
            return user_file(os.environ)
        return (project_file if scope == "project" else local_file)(Path.cwd())

    def mcp_path(self) -> Path:
        return global_config({"HOME": os.path.expanduser("~"), **os.environ})

    def open_settings(self, path: Path) -> ClaudeSettings:
        return ClaudeSettings(path)

    def broken_settings(self, only: Path | None = None) -> list[Path]:
        """Return settings files that the CLI ignores, because they are not JSON objects."""
        return [path for path in _files(only) if path.exists() and not _is_object(path)]

    def inbox_hooks(self, only: Path | None = None) -> list[InboxHook]:
        hooks = []
        for path in _files(only):
            document, cap = read_settings(path), _cap_in_force(path)
            hooks += [_inbox_hook(path, hook, document, cap) for hook in stop_hooks.find_hooks(document)]
        return hooks

    def boss_hooks(self, boss_folder: Path, only: Path | None = None) -> list[BossHooks]:
        groups = []
        for path in _files(only):
            document = read_settings(path)
            if hooks := boss_hooks.find_hooks(document):
                problems = list(_boss_hook_problems(hooks, boss_folder))
                problems += ["the settings disable all hooks"] if document.get("disableAllHooks") else []
                groups.append(BossHooks(path, [hook.event for hook in hooks], hooks[0].folder, problems))
        return groups

    def launch_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        return own_environment(environ)

    # ── what doctor checks ──

    def check_program(self) -> Iterator[Finding]:
        path = shutil.which("claude")
        if path is None:
            fix = "to try Remuda without it: remuda start x --agent demo"
            yield Finding("note", "Claude Code is not installed, or not on the PATH", fix)
            return
        try:
            done = subprocess.run(
                [path, "--version"], capture_output=True, text=True, timeout=20, check=False
            )
            version = done.stdout.strip().removesuffix(" (Claude Code)") or "of unknown version"
            yield Finding("ok", f"Claude Code {version} at {path}")
        except (OSError, subprocess.TimeoutExpired) as error:
            yield Finding("fail", f"{path} does not answer: {error}", "reinstall Claude Code")

    def check_hooks(self, boss_folder: Path) -> Iterator[Finding]:
        """Report hooks that fail: the CLI ignores them silently."""
        for path in self.broken_settings():
            yield Finding("note", f"{path} is not a JSON object, so none of its hooks run", "fix the file")
        for hook in self.inbox_hooks():
            where = f"Stop hook for {hook.inbox or 'no inbox'} in {hook.path}"
            yield from _findings(where, hook)
        for group in self.boss_hooks(boss_folder):
            yield from _findings(f"the boss's hooks in {group.path}", group)
        for path in _files(None):
            for event, hook_fields in command_hooks(read_settings(path)):
                yield from _check_other_hook(event, hook_fields["command"], path)


def _findings(where: str, hooks: InboxHook | BossHooks) -> Iterator[Finding]:
    yield from (Finding("note", f"{where}: {problem}", hooks.fix) for problem in hooks.problems)
    if not hooks.problems:
        yield Finding("ok", where)


def _check_other_hook(event: str, command: str, path: Path) -> Iterator[Finding]:
    """Check a hook that may be another program's."""
    try:
        program = shlex.split(command)[0]
    except (ValueError, IndexError):
        return
    if event == "Stop" and stop_hooks.read_command(command) is not None:
        return
    if program.startswith("/") and not Path(program).exists():
        yield Finding("note", f"hook for {event} runs {program}, which does not exist", f"edit {path}")
    elif event == "Stop" and stop_hooks.runs_heartbeat_stop(command) and (cap := _cap_in_force(path)):
        yield Finding(
            "note",
            f"Stop hook heartbeat-stop in {path}: {_cap_problem(cap)}",
            f'set "env": {{"{BLOCK_CAP_VARIABLE}": "0"}} in {path}, or start them with remuda launch',
        )


# ── settings files ──


def _files(only: Path | None) -> list[Path]:
    return [only] if only else settings_files(os.environ, Path.cwd())


def _is_object(path: Path) -> bool:
    try:
        data = read_regular(path).removeprefix(codecs.BOM_UTF8)
        return not data.strip() or isinstance(parse_json(data), dict)
    except (OSError, ValueError):
        return False


def _cap_in_force(path: Path) -> int:
    """Return how many stops in a row a hook of this file may block, in sessions that we did not start.

    The user's own hooks run in every project, so the settings of this project do not count for them.
    """
    others = [] if path == user_file(os.environ) else settings_files(os.environ, path.parent.parent)
    environments = [stop_hooks.settings_environment(read_settings(one)) for one in [path, *reversed(others)]]
    return stop_hooks.block_cap(*environments, os.environ)


def _cap_problem(cap: int) -> str:
    return f"sessions not started by Remuda drop a message after {cap} blocked stops in a row"


# ── problems of installed hooks ──


def _inbox_hook(path: Path, hook: StopHook, document: Mapping[str, Any], cap: int) -> InboxHook:
    problems = list(_inbox_hook_problems(hook, document, cap))
    return InboxHook(
        path, hook.command, hook.inbox, hook.mode, hook.interpreter, hook.script, hook.timeout, problems
    )


def _inbox_hook_problems(hook: StopHook, document: Mapping[str, Any], cap: int) -> Iterator[str]:
    if hook.interpreter and not Path(hook.interpreter).exists():
        yield f"its interpreter {hook.interpreter} is gone"
    if hook.script and not Path(hook.script).exists():
        yield f"its program {hook.script} is gone"
    elif hook.script and not _is_in(Path(hook.script).parent, _STOP_HOOK_PROGRAM.parent):
        yield f"its program {hook.script} belongs to another installation of Remuda"
    if not hook.inbox:
        yield "it has no --inbox"
    elif not Path(hook.inbox).parent.is_dir():
        yield f"the folder of its inbox {hook.inbox} is missing"
    if hook.mode == "persist" and hook.timeout <= _longest_wait(hook):
        yield f"its timeout of {hook.timeout:g} s is shorter than its wait"
    if document.get("disableAllHooks"):
        yield "the settings disable all hooks"
    if cap:
        yield _cap_problem(cap)


def _is_in(folder: Path, own: Path) -> bool:
    return os.path.realpath(folder) == os.path.realpath(own)


def _longest_wait(hook: StopHook) -> float:
    """As `inbox.stop_hook.Options.longest_wait` computes it."""
    interval = hook.option("--idle-interval") or ("2" if "--idle-tick" in hook.words else "")
    return min((_seconds(text) for text in (hook.option("--wait"), interval) if text), default=_DEFAULT_WAIT)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _boss_hook_problems(hooks: list[boss_hooks.BossHook], boss_folder: Path) -> Iterator[str]:
    for interpreter in sorted({hook.interpreter for hook in hooks}):
        if not Path(interpreter).exists():
            yield f"its interpreter {interpreter} is gone"
    for script in sorted({hook.script for hook in hooks}):
        if not Path(script).exists():
            yield f"its program {script} is gone"
        elif Path(os.path.realpath(script)).parent != _BOSS_HOOK_PROGRAMS.resolve():
            yield f"its program {script} belongs to another installation of Remuda"
    for folder in sorted({hook.folder for hook in hooks}):
        if folder != str(boss_folder):
            yield f"it reports to another boss, in {folder}"
    events = {hook.event for hook in hooks}
    if missing := [event for event in boss_hooks.EVENTS if event not in events]:
        yield f"the hooks for {', '.join(missing)} are missing"
