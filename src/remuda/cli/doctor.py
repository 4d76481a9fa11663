"""remuda doctor. Each check yields findings; none changes anything."""

from __future__ import annotations

import os
import re
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from remuda._version import __version__
from remuda.agents import agent_names, agent_setups
from remuda.agents.setup import Finding
from remuda.boss.client import BossClient
from remuda.boss.folder import BossFolder
from remuda.errors import BossDown, InvalidOptions, RemudaError
from remuda.keeper.hidden import living_names
from remuda.keeper.listing import list_sessions
from remuda.keeper.survivors import find_survivors
from remuda.oneshot.check import try_call
from remuda.oneshot.leftovers import leftovers
from remuda.paths import private_folder
from remuda.self_test.promises import PromiseResult, PromiseVerdict
from remuda.self_test.results import SelfTestResult, find_standing, save
from remuda.terminal.screen import unavailable_reason
from remuda.tmux.command import installed_version
from remuda.untrusted import one_line

from .boss import boss_files, unread_variables
from .click_types import AgentName
from .common import find_folder, folder_option, json_option, short_path, time_span
from .hooks_boss import boss_hooks
from .output import echo, print_json, style
from .redraw import ProgressLine

_MARKS = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "fail": ("FAIL", "red")}


_VERDICTS = {
    PromiseVerdict.HOLDS: ("holds         ", "green"),
    PromiseVerdict.FAILS: ("does not hold ", "red"),
    PromiseVerdict.SLOW: ("too slow here ", "yellow"),
    PromiseVerdict.UNKNOWN: ("not known     ", "yellow"),
}


@click.command("doctor")
@click.option("--agent", type=AgentName(), help="Try the installed CLI of this agent, offline.")
@click.option(
    "--binary",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Program to try with --agent.  [default: the one on the PATH]",
)
@click.option(
    "--timeout",
    type=time_span,
    metavar="TIME",
    help="Limit of --agent; what is not tried by then is not known.  [default: 45 for claude, else 115]",
)
@folder_option
@json_option
def command(
    agent: str | None, binary: Path | None, timeout: float | None, folder: Path | None, as_json: bool
) -> int:
    """Check this machine and what dead sessions left, and say how to fix what is wrong.

    Changes nothing. Exits with 1 if something cannot work.

    --agent tries the agent's CLI as it is installed here: whether each promise of Remuda holds on this
    version. It runs without a network and without your files or keys, with a made-up home and model. The
    result is stored under $REMUDA_HOME, where 'start', 'show' and 'doctor' read it. Exits with 1 if a promise
    does not hold; not if it is 'too slow here' (a busy machine: try again with a longer --timeout) or not
    known.

    \b
    Examples:
      remuda doctor
      remuda doctor --json | jq '.[] | select(.level != "ok")'
      remuda doctor --agent claude
    """
    if agent is not None:
        return _try_agent(agent, binary, timeout, as_json=as_json)
    if binary is not None or timeout is not None:
        raise InvalidOptions("--binary and --timeout need --agent")
    findings = examine(find_folder(folder))
    if as_json:
        print_json([{"level": one.level, "what": one.what, "fix": one.fix} for one in findings])
    else:
        for one in findings:
            mark, colour = _MARKS[one.level]
            echo(f"{style(mark, fg=colour)}  {one.what}" + (f"\n      {one.fix}" if one.fix else ""))
    return 1 if any(one.level == "fail" for one in findings) else 0


# ── the self-test of an agent ──


def _try_agent(agent: str, binary: Path | None, timeout: float | None, *, as_json: bool) -> int:
    from remuda.self_test.bench import run

    def tell(outcome: PromiseResult | None) -> None:
        if outcome is not None:
            tried.append(outcome)
        last = f", {outcome.promise.what}: {outcome.verdict}" if outcome is not None else ""
        progress.say(f"trying {agent}: {len(tried)} promises{last}")

    tried: list[PromiseResult] = []
    with ProgressLine() as progress:
        result = run(agent, binary, timeout, tell)
    save(result)
    if as_json:
        print_json(result.document())
    else:
        _print_result(result)
    return 1 if result.broken else 0


def _print_result(result: SelfTestResult) -> None:
    echo(f"{result.program} {result.version} at {short_path(result.binary)}, {result.offline}")
    for one in result.outcomes:
        mark, colour = _VERDICTS[one.verdict]
        echo(f"{style(mark, fg=colour)}{one.promise.what}: {one_line(one.detail)}")
        if one.verdict is PromiseVerdict.FAILS:
            echo(f"              so {one.promise.follows}")
    if result.words:
        echo(f"\nwhat {result.program} printed last:")
        for line in result.words:
            echo(f"  {one_line(line)}")
    counts = [f"{sum(one.verdict is kind for one in result.outcomes)} {kind}" for kind in PromiseVerdict]
    echo(f"{', '.join(counts)}; {result.seconds:.0f} s")


def _tried_agents() -> Iterator[Finding]:
    for name in agent_names():
        standing = find_standing(name)
        if standing is not None:
            yield Finding(standing.level, f"self-test: {standing.words}")


# ── the checks ──


_FEW_DESCRIPTORS = 1024
_FEW_WATCHES = 128


def examine(folder: Path) -> list[Finding]:
    findings = [*_python(), *_state_folder(folder)]
    usable = all(one.level != "fail" for one in findings)
    setups = agent_setups()
    findings += [*_emulator(), *(one for setup in setups for one in setup.check_program())]
    findings += [*_tried_agents(), *_call(), *_limits(), *_logout()]
    boss_folder = BossFolder.default().path
    findings += [*(one for setup in setups for one in setup.check_hooks(boss_folder)), *examine_boss()]
    if usable:
        findings += [*_sessions(folder), *_leftovers(folder)]
    return findings


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
    return disk.f_bavail == 0 or (
        disk.f_files > 0 and disk.f_favail == 0
    )  # some file systems do not count files


def _emulator() -> Iterator[Finding]:
    reason = unavailable_reason()
    if reason is None:
        yield Finding("ok", "screen model available")
    else:
        yield Finding(
            "note", f"no screen model: {reason}", "sessions work; 'screen' and the status bar do not"
        )


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
    """Check whether the host kills a user's processes at logout: keepers too."""
    files = [Path("/etc/systemd/logind.conf"), *sorted(Path("/etc/systemd/logind.conf.d").glob("*.conf"))]
    kills = False
    for path in files:
        try:
            values = re.findall(r"^\s*KillUserProcesses\s*=\s*(\w+)", path.read_text(), re.MULTILINE)
        except OSError:
            continue
        kills = values[-1].lower() in ("yes", "true", "1", "on") if values else kills
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


# ── the boss ──


_UNREACHED_AGE = 24 * 3600.0


def examine_boss() -> Iterator[Finding]:
    folder = BossFolder.default()
    if not folder.database.exists() and not boss_hooks():
        return
    try:
        health = BossClient(folder).get("health")
    except BossDown as error:
        left = _count_spooled(folder)
        lost = f"; {left} events of your sessions wait for it" if left else ""
        yield Finding(
            "note",
            f"{error.message}{lost}",
            "remuda boss up --detach, or at every login: remuda setup boss --service",
        )
    except RemudaError as error:
        yield Finding(
            "fail", f"the boss: {error.message}", "remuda boss down --force, then remuda boss up --detach"
        )
    else:
        yield Finding(
            "ok", f"the boss runs (pid {health['pid']}); agents waiting for you: {health['waiting']}"
        )
        for source in health["sources"]:
            if source["state"] != "running":
                why = f": {source['error']}" if source["error"] else ""
                yield Finding("note", f"the boss has no events from {source['name']}: {source['state']}{why}")
        if health["laid_aside"]:
            yield Finding(
                "note",
                f"an earlier database of the boss could not be read; it was moved to {health['laid_aside']}",
            )
    yield from (Finding("note", what, instead) for what, instead in unread_variables())
    yield from _unreached(folder)
    for file in boss_files():
        if not file.is_valid:
            yield Finding("note", f"the boss's {file.name} are {file.text}")
    yield from _tmux()


def _count_spooled(folder: BossFolder) -> int:
    try:
        return sum(not name.startswith(".") for name in os.listdir(folder.spool))
    except OSError:
        return 0


def _unreached(folder: BossFolder) -> Iterator[Finding]:
    """Report the last failure that the boss's hook recorded, if it is recent."""
    try:
        at, _, why = (folder.path / "unreached").read_text(errors="replace").partition(" ")
        age = time.time() - int(at)
    except (OSError, ValueError):
        return
    if age < _UNREACHED_AGE:
        text = f"a permission request did not reach the boss {age / 60:.0f} minutes ago: {one_line(why)}"
        yield Finding("note", text, "answer it in the agent's own terminal; boss.log has the details")


def _tmux() -> Iterator[Finding]:
    try:
        version = installed_version()
    except RemudaError as error:
        yield Finding("note", f"cannot switch to tmux panes: {error.message}", error.hint or "")
    else:
        yield Finding("ok", f"tmux {version}")
