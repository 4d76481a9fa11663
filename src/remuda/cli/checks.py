"""What `remuda doctor` looks at. Each check yields findings; none changes anything."""

from __future__ import annotations

import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from remuda._version import __version__
from remuda.agents.claude.files import read_settings
from remuda.agents.claude.launch import BLOCK_CAP_VARIABLE
from remuda.agents.claude.settings import settings_files
from remuda.agents.claude.stop_hooks import command_hooks, read_command, runs_heartbeat_stop
from remuda.errors import RemudaError
from remuda.keeper.hidden import living_names
from remuda.keeper.listing import list_sessions
from remuda.keeper.survivors import find_survivors
from remuda.oneshot.check import try_call
from remuda.oneshot.leftovers import leftovers
from remuda.paths import private_folder
from remuda.terminal.screen import unavailable_reason

from .checks_boss import examine_boss
from .common import short_path
from .finding import Finding
from .hook_state import broken_settings, cap_in_force, cap_text, fix, found_hooks
from .hooks_boss import found_hooks as boss_hooks

_FEW_DESCRIPTORS = 1024
_FEW_WATCHES = 128


def examine(folder: Path) -> list[Finding]:
    found = [*_python(), *_state_folder(folder)]
    usable = all(one.level != "fail" for one in found)
    found += [*_emulator(), *_claude(), *_call(), *_limits(), *_logout(), *_hooks()]
    found += examine_boss()
    if usable:
        found += [*_sessions(folder), *_leftovers(folder)]
    return found


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("ok", f"remuda {__version__} on Python {version}, {sys.platform}")


def _state_folder(folder: Path) -> Iterator[Finding]:
    if not os.path.lexists(folder):
        nearest = next(parent for parent in folder.parents if os.path.exists(parent))
        if os.access(nearest, os.W_OK | os.X_OK):
            yield Finding("ok", f"sessions will be stored in {folder}")
        else:
            yield Finding(
                "fail",
                f"cannot create {folder}: {nearest} is not writable",
                "set REMUDA_HOME to a folder of yours",
            )
        return
    try:
        private_folder(folder)
    except RemudaError as error:
        yield Finding("fail", error.message, error.hint or "set REMUDA_HOME to a folder of yours")
        return
    if _is_full(folder):
        yield Finding(
            "fail", f"the disk of {folder} is full", "free some space; until then messages are refused"
        )
    else:
        yield Finding("ok", f"sessions are stored in {short_path(str(folder))}, private to you")


def _is_full(folder: Path) -> bool:
    disk = os.statvfs(folder)
    return disk.f_bavail == 0 or (disk.f_files > 0 and disk.f_favail == 0)  # some have no count of files


def _emulator() -> Iterator[Finding]:
    reason = unavailable_reason()
    if reason is None:
        yield Finding("ok", "screen model available")
    else:
        yield Finding(
            "note", f"no screen model: {reason}", "sessions work; 'screen' and the status bar do not"
        )


def _claude() -> Iterator[Finding]:
    path = shutil.which("claude")
    if path is None:
        fix = "to try Remuda without it: remuda start x --agent demo"
        yield Finding("note", "Claude Code is not installed, or not on the PATH", fix)
        return
    try:
        asked = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
        version = asked.stdout.strip().removesuffix(" (Claude Code)") or "of unknown version"
        yield Finding("ok", f"Claude Code {version} at {path}")
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("fail", f"{path} does not answer: {error}", "reinstall Claude Code")


def _call() -> Iterator[Finding]:
    step = try_call()
    if step.failure:
        yield Finding(
            "fail",
            f"self-test failed: {step.what}: {step.failure}",
            "this is a bug in Remuda: please report it",
        )
    else:
        yield Finding("ok", step.what)


def _limits() -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _FEW_DESCRIPTORS:
        yield Finding("note", f"only {soft} open files are allowed", f"ulimit -n {_FEW_DESCRIPTORS}")
    try:
        watches = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    except (OSError, ValueError):
        return
    if watches < _FEW_WATCHES:
        yield Finding(
            "note",
            f"only {watches} inotify instances are allowed; each session uses two, and polls without them",
            "sysctl fs.inotify.max_user_instances=1024",
        )


def _logout() -> Iterator[Finding]:
    """A host that ends a user's processes at logout ends keepers as well."""
    files = [Path("/etc/systemd/logind.conf"), *sorted(Path("/etc/systemd/logind.conf.d").glob("*.conf"))]
    kills = False
    for path in files:
        try:
            said = re.findall(r"^\s*KillUserProcesses\s*=\s*(\w+)", path.read_text(), re.MULTILINE)
        except OSError:
            continue
        kills = said[-1].lower() in ("yes", "true", "1", "on") if said else kills
    user = os.environ.get("USER") or os.environ.get("LOGNAME") or str(os.getuid())
    if kills and not Path("/var/lib/systemd/linger", user).exists():
        yield Finding(
            "fail", "this host kills your processes when you log out", f"loginctl enable-linger {user}"
        )


def _sessions(folder: Path) -> Iterator[Finding]:
    sessions = list_sessions(folder)
    yield Finding("ok", f"{len(sessions)} live session{'s' * (len(sessions) != 1)}")
    for session in sessions:
        name, version = session["name"], session.get("keeper_version")
        if session["state"] == "unreachable":
            yield Finding(
                "fail", f"session '{name}': {session['detail']}", f"see: remuda logs --keeper {name}"
            )
        elif version not in (None, __version__):
            yield Finding(
                "note",
                f"session '{name}' has a keeper of version {version}; features that both versions have work",
                f"to upgrade it: remuda kill {name}, then remuda start {name} --resume",
            )
        for reason in session.get("degraded", []):
            yield Finding("note", f"session '{name}': {reason}")


def _leftovers(folder: Path) -> Iterator[Finding]:
    live = set(living_names(folder))
    for name, left in find_survivors(folder).items():
        what = f"process {left[0].pid} is" if len(left) == 1 else f"{len(left)} processes are"
        pids = "" if len(left) == 1 else f" ({', '.join(str(one.pid) for one in left)})"
        yield Finding("note", f"{what} left over from the dead session '{name}'{pids}", f"remuda kill {name}")
    calls = {paths.name for paths in leftovers(folder)}
    if calls:
        yield Finding(
            "note",
            f"{len(calls)} killed runs of 'remuda print' or of a pool left files or processes",
            "remuda print --check --clean",
        )
    scratch = [path for path in folder.glob("*.d") if path.name.removesuffix(".d") not in live | calls]
    if scratch:
        yield Finding(
            "note", f"{len(scratch)} folders are left over from killed keepers", "remuda clean --force"
        )


def _hooks() -> Iterator[Finding]:
    """Stop hooks of ours that do not work as they stand, and others' whose program is gone.

    The CLI passes over a hook that fails without a word.
    """
    for path in broken_settings():
        yield Finding("note", f"{path} is not a JSON object, so none of its hooks run", "fix the file")
    for found in found_hooks():
        where = f"Stop hook for {found.hook.inbox or 'no inbox'} in {found.path}"
        for problem in found.problems:
            yield Finding("note", f"{where}: {problem}", fix(found))
        if not found.problems:
            yield Finding("ok", where)
    for boss in boss_hooks():
        where = f"the boss's hooks in {boss.path}"
        yield from (Finding("note", f"{where}: {problem}", boss.fix) for problem in boss.problems)
        if not boss.problems:
            yield Finding("ok", where)
    for path in settings_files(os.environ, Path.cwd()):
        for event, hook in command_hooks(read_settings(path)):
            yield from _foreign_hook(event, hook["command"], path, cap_in_force(path))


def _foreign_hook(event: str, command: str, path: Path, cap: int) -> Iterator[Finding]:
    try:
        program = shlex.split(command)[0]
    except (ValueError, IndexError):
        return
    if event == "Stop" and read_command(command) is not None:
        return
    if program.startswith("/") and not Path(program).exists():
        yield Finding("note", f"hook for {event} runs {program}, which does not exist", f"edit {path}")
    elif event == "Stop" and cap and runs_heartbeat_stop(command):
        yield Finding(
            "note",
            f"Stop hook heartbeat-stop in {path}: {cap_text(cap)}",
            f'set "env": {{"{BLOCK_CAP_VARIABLE}": "0"}} in {path}, or start them with remuda launch',
        )
