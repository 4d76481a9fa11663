"""remuda kill"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from remuda.config import load_own_config
from remuda.errors import (
    Aborted,
    InvalidOptions,
    RemudaError,
    SessionDead,
    SessionNotFound,
    SessionUnreachable,
    WaitTimeout,
)
from remuda.keeper.claim import read_holder
from remuda.keeper.client import KeeperClient, wait_for_end
from remuda.keeper.elsewhere import split_host
from remuda.keeper.foreign import ForeignEnd
from remuda.keeper.hidden import end_hidden, living_names
from remuda.keeper.record import SessionRecord
from remuda.keeper.resume import give_up_restart
from remuda.keeper.spec import DEFAULT_KILL_GRACE
from remuda.keeper.survivors import end_survivors, find_survivors, remove_leftovers
from remuda.keeper.worktree import Worktree, check_removable, forget_worktree, remove_worktree
from remuda.paths import SessionPaths

from .common import complete_session, find_folder, folder_option, pick_session, time_span
from .elsewhere import kill_elsewhere, with_hosts
from .output import ask_yes, complain, cut, echo
from .redraw import ProgressLine

# Added to the grace period: for SIGKILL, the last output, and slow watchers.
_MARGIN = 15.0


@click.command("kill")
@click.argument("names", nargs=-1, shell_complete=complete_session)
@click.option("--all", "everyone", is_flag=True, help="End all sessions.")
@click.option("--yes", is_flag=True, help="With --all: do not ask for confirmation.")
@click.option(
    "--grace", type=time_span, metavar="TIME", help="Time between TERM and KILL.  [default: the session's]"
)
@click.option(
    "--remove-worktree",
    "with_worktree",
    is_flag=True,
    help="Remove the worktree of 'start --worktree' too, if nothing would be lost.",
)
@folder_option
def command(
    names: tuple[str, ...],
    everyone: bool,
    yes: bool,
    grace: float | None,
    with_worktree: bool,
    folder: Path | None,
) -> int:
    """End sessions: the program and every process it started.

    kill sends TERM, waits for --grace, then sends KILL, and returns when all processes have ended. It also
    ends processes that are left of a session whose keeper was killed. A session of --restart that ended is
    not restarted after this. With several names, a failure does not
    stop the others. On a terminal the beginning of a NAME is enough, and it asks for confirmation, as --all
    does. In a script, write the full NAME. HOST/NAME ends a session on another machine of your fleet.

    \b
    Examples:
      remuda kill work
      remuda kill --grace 0 stuck
      remuda kill build7/work
      remuda kill fix --remove-worktree
      remuda kill --all
    """
    where = find_folder(folder)
    if not names and not everyone:
        raise InvalidOptions("no session given", hint="name at least one, or pass --all")
    if names and everyone:
        raise InvalidOptions("session names do not go with --all", hint="use one of them")
    if everyone and with_worktree:
        raise InvalidOptions("--remove-worktree does not go with --all", hint="name the sessions")
    is_asked = sys.stdin.isatty() and sys.stdout.isatty()
    # A script that ends a session which is gone must not end another one with a longer name.
    split = {name: split_host(name) for name in names} if folder is None else {}
    there = {name: one for name, one in split.items() if one[0] is not None}
    names = tuple(split.get(name, (None, name))[1] for name in names if name not in there)
    picked = tuple(pick_session(name, where) for name in names) if is_asked else names
    chosen = list(dict.fromkeys([*living_names(where), *find_survivors(where)] if everyone else picked))
    if not chosen and not there:
        echo("no sessions")
    elif (everyone or picked != names) and not yes and is_asked:
        count = "1 session" if len(chosen) == 1 else f"{len(chosen)} sessions"
        if not ask_yes(f"End {count} ({cut(', '.join(chosen), 200)}) and every process started there?"):
            raise Aborted("no session was ended")
    if with_worktree:
        if there:
            raise InvalidOptions("--remove-worktree does not go with --host or HOST/NAME")
        return _end_with_worktrees(chosen, where, grace)
    code = _end_all(chosen, where, grace, gone_is_fine=everyone) if chosen or not there else 0
    return _end_elsewhere(there.values(), grace) or code


def _end_with_worktrees(names: list[str], folder: Path, grace: float | None) -> int:
    """End sessions and remove their worktrees. Nothing is ended if anything would be lost."""
    disposable = load_own_config(os.environ).worktree_disposable
    worktrees: dict[str, Worktree] = {}
    for name in names:
        record = SessionRecord.load(SessionPaths.of(name, folder).record)
        made = Worktree.read(record.worktree) if record is not None else None
        if made is None:
            raise InvalidOptions(f"session '{name}' has no worktree of its own", hint="nothing was ended")
        check_removable(made, name, folder, disposable)
        worktrees[name] = made
    living = [name for name in names if read_holder(SessionPaths.of(name, folder)) is not None]
    code = _end_all(living, folder, grace, gone_is_fine=True)
    if code:
        return code
    for name, made in worktrees.items():
        _end_rest(SessionPaths.of(name, folder), grace, None)
        branch = remove_worktree(made, name, folder, disposable)
        forget_worktree(SessionPaths.of(name, folder))
        echo(f"removed {made.path}; {branch}")
    return 0


def _end_elsewhere(sessions: Iterable[tuple[str | None, str]], grace: float | None) -> int:
    code = 0
    for host, session in sessions:
        try:
            echo(kill_elsewhere(str(host), session, grace))
        except RemudaError as error:
            complain(str(error), error=True)
            code = code or error.exit_code
    return code


def _end_all(names: list[str], folder: Path, grace: float | None, *, gone_is_fine: bool) -> int:
    """Send the requests to all keepers first, then wait: their grace periods run in parallel."""
    failed: list[RemudaError] = []
    ended: dict[str, str] = {}
    absent: dict[str, RemudaError] = {}
    unheard: set[str] = set()
    with contextlib.ExitStack() as stack:
        asked: list[tuple[KeeperClient, float | ForeignEnd]] = []
        for name in names:
            with _collect(failed):
                try:
                    client = stack.enter_context(KeeperClient.connect(name, folder))
                    asked.append((client, _request_end(client, SessionPaths.of(name, folder), grace)))
                except (SessionDead, SessionNotFound, SessionUnreachable) as error:
                    absent[name] = with_hosts(error, name)
        for client, patience in asked:
            with _collect(failed), ProgressLine(after=1.0) as progress:
                progress.say(f"waiting until all processes of '{client.name}' have ended")
                code = patience.wait() if isinstance(patience, ForeignEnd) else _wait(client, patience)
                ended[client.name] = _how(code)
                if client.has_ended:
                    unheard.add(client.name)
    for name in [*ended, *absent]:
        with _collect(failed, ignored=(SessionDead, SessionNotFound) if gone_is_fine else ()):
            paths = SessionPaths.of(name, folder)
            rest = _end_rest(paths, grace, absent.get(name), is_unheard=name in unheard)
            echo(f"{name} {', '.join(filter(None, (ended.get(name), rest)))}")
    for one in failed:
        complain(str(one), error=True)
    return failed[0].exit_code if failed else 0


def _how(code: int | None) -> str:
    """Describe how a session ended after our request."""
    if code is None or code in (128 + signal.SIGTERM, 128 + signal.SIGHUP):
        return "ended"
    return "ended, with SIGKILL" if code == 128 + signal.SIGKILL else f"ended with exit code {code}"


@contextlib.contextmanager
def _collect(failed: list[RemudaError], ignored: tuple[type[RemudaError], ...] = ()) -> Iterator[None]:
    try:
        yield
    except ignored:
        pass
    except RemudaError as error:
        failed.append(error)


def _end_rest(
    paths: SessionPaths, grace: float | None, absent: RemudaError | None, *, is_unheard: bool = False
) -> str:
    """End what the keeper did not, and say what that was. Raises `absent` if there was nothing to end.

    `is_unheard`: the keeper ended before it took our request, and has not noted that the end is for good.
    """
    patience = DEFAULT_KILL_GRACE if grace is None else grace
    text = "ended; its files had been removed" if absent and end_hidden(paths, patience + _MARGIN) else ""
    if isinstance(absent, SessionUnreachable) and not text:
        raise _with_pid(absent, paths)  # the keeper lives, so its processes are not ours to end
    count, left = end_survivors(paths, patience)
    if left:
        pids = [one.pid for one in left]
        raise SessionUnreachable(
            f"{len(left)} processes of '{paths.name}' have not ended: {', '.join(map(str, pids))}",
            hint="they did not react to KILL; they may hang in the kernel",
        )
    if is_unheard:
        wait_for_end(paths)
    is_given_up = (absent is not None or is_unheard) and give_up_restart(paths)
    if absent is not None:
        if not count and not text and not is_given_up:
            raise absent
        remove_leftovers(paths)
    ended = f"ended {count} processes that were left" if count else ""
    return ", ".join(filter(None, (text, ended, "not restarted" if is_given_up else "")))


def _with_pid(error: SessionUnreachable, paths: SessionPaths) -> SessionUnreachable:
    """Add to the error what the user can do about a keeper that hangs or was stopped."""
    holder = read_holder(paths)
    if error.hint or holder is None or not holder.keeper_pid:
        return error
    hint = f"'kill -9 {holder.keeper_pid}' ends it; then 'remuda kill {paths.name}' ends what is left"
    return SessionUnreachable(error.message, hint=hint)


def _request_end(client: KeeperClient, paths: SessionPaths, grace: float | None) -> float | ForeignEnd:
    """Ask for the end. Return how long it may take, or how the session of another supervisor is ended."""
    if client.welcome is None:
        return ForeignEnd(client, paths, DEFAULT_KILL_GRACE if grace is None else grace)
    allowed = client.ask_end(grace)
    return (
        (DEFAULT_KILL_GRACE if grace is None else grace) + _MARGIN if allowed is None else allowed + _MARGIN
    )


def _wait(client: KeeperClient, patience: float) -> int | None:
    """Return the exit code, or None if the keeper ended without reporting it."""
    try:
        return client.wait_exit(patience)
    except WaitTimeout:
        raise SessionUnreachable(
            f"session '{client.name}' has not ended",
            hint=f"'remuda logs --keeper {client.name}' names the processes that are left",
        ) from None
