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
from remuda.keeper.claim import live_names, read_holder
from remuda.keeper.listing import list_sessions
from remuda.oneshot.check import round_trip
from remuda.oneshot.remains import remains
from remuda.paths import SessionPaths, private_folder
from remuda.terminal.screen import unavailable_reason

from .checks_boss import examine_boss
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
            yield Finding("ok", f"sessions will lie in {folder}")
        else:
            yield Finding(
                "fail",
                f"cannot make {folder}: {nearest} is not writable",
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
            "fail", f"no space is left for {folder}", "free some: messages are refused and none is delivered"
        )
    else:
        yield Finding("ok", f"sessions lie in {folder}, private to you")


def _is_full(folder: Path) -> bool:
    disk = os.statvfs(folder)
    return disk.f_bavail == 0 or (disk.f_files > 0 and disk.f_favail == 0)  # some have no count of files


def _emulator() -> Iterator[Finding]:
    reason = unavailable_reason()
    if reason is None:
        yield Finding("ok", "screen model available")
    else:
        yield Finding(
            "note", f"no screen model: {reason}", "sessions run; 'screen' and the status bar do not"
        )


def _claude() -> Iterator[Finding]:
    path = shutil.which("claude")
    if path is None:
        fix = "any command can be kept; to try an agent without it: remuda start x --agent demo"
        yield Finding("note", "Claude Code is not on the PATH", fix)
        return
    try:
        asked = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
        yield Finding("ok", f"Claude Code {asked.stdout.strip() or 'of unknown version'} at {path}")
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("fail", f"{path} does not answer: {error}", "reinstall Claude Code")


def _call() -> Iterator[Finding]:
    step = round_trip()
    if step.failure:
        yield Finding(
            "fail", f"not so: {step.what}: {step.failure}", "this is a fault of ours: please report it"
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
            f"only {watches} inotify instances are allowed; each kept agent uses two, beyond that it polls",
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
            "fail", "this host ends your processes when you log out", f"loginctl enable-linger {user}"
        )


def _sessions(folder: Path) -> Iterator[Finding]:
    sessions = list_sessions(folder)
    yield Finding("ok", f"{len(sessions)} live sessions")
    for session in sessions:
        name, version = session["name"], session.get("keeper_version")
        if session["state"] == "unreachable":
            yield Finding("fail", f"session '{name}': {session['detail']}", f"see: remuda logs {name}")
        elif version not in (None, __version__):
            yield Finding(
                "note",
                f"session '{name}' is kept by version {version}; what both know works",
                f"when it can be spared: remuda kill {name}, remuda start {name} --resume",
            )
        for reason in session.get("degraded", []):
            yield Finding("note", f"session '{name}': {reason}")


def _leftovers(folder: Path) -> Iterator[Finding]:
    live = set(live_names(folder))
    for pid, name in _orphans(folder, live):
        yield Finding("note", f"process {pid} is left of the dead session '{name}'", f"kill {pid}")
    calls = {paths.name for paths in remains(folder)}
    if calls:
        yield Finding(
            "note",
            f"{len(calls)} calls of 'remuda print' or of a pool were killed and left something behind",
            "remuda print --check --clean",
        )
    scratch = [path for path in folder.glob("*.d") if path.name.removesuffix(".d") not in live | calls]
    if scratch:
        yield Finding(
            "note", f"{len(scratch)} folders are left of keepers that were killed", "remuda clean --force"
        )


def _orphans(folder: Path, live: set[str]) -> Iterator[tuple[int, str]]:
    """Processes whose environment names a session of this folder that is dead.

    A session of another folder may have the same name: what a living keeper keeps is no orphan.
    """
    known = {path.stem for path in folder.glob("*.json")}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        names = [one[15:].decode(errors="replace") for one in variables if one.startswith(b"REMUDA_SESSION=")]
        if not names or names[0] not in known - live or _is_kept(int(entry.name)):
            continue
        if read_holder(SessionPaths(folder, names[0])) is None:
            yield int(entry.name), names[0]


def _is_kept(pid: int) -> bool:
    """Is one of its ancestors a keeper? A keeper adopts what its program leaves, for as long as it lives."""
    while pid > 1:
        try:
            if b"remuda.keeper" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return True
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except OSError:
            return True  # it has just ended
    return False


def _hooks() -> Iterator[Finding]:
    """Stop hooks of ours that do not work as they stand, and others' whose program is gone.

    The CLI passes over a hook that fails without a word.
    """
    for path in broken_settings():
        yield Finding("note", f"{path} is not a JSON object: no hook in it runs", "mend it")
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
