"""remuda start"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from remuda.agents import PLAIN_AGENTS
from remuda.config import CLASSIFIERS, Config
from remuda.errors import InvalidOptions, SessionDead
from remuda.keeper.client import KeeperClient
from remuda.keeper.coming_up import dies_at_start, has_died
from remuda.keeper.compose import compose
from remuda.keeper.elsewhere import own_host, split_host
from remuda.keeper.record import SessionRecord
from remuda.keeper.spec import DEFAULT_COLS, DEFAULT_ROWS, RESTART
from remuda.keeper.start import start_session
from remuda.keeper.worktree import is_branch, start_in_worktree
from remuda.names import is_name
from remuda.paths import SessionPaths, known_names
from remuda.self_test.results import find_standing

from .click_types import AgentName
from .common import (
    config_option,
    configuration,
    find_folder,
    folder_option,
    json_option,
    time_span,
)
from .output import after_success, complain, echo, is_dumb, print_json
from .redraw import ProgressLine
from .screen import show_last_screen, show_last_screen_elsewhere

_HELP = """Start an agent, or any command CMD, as session NAME on its own terminal.

    On a terminal, start attaches to the session at once; --detach leaves it in the background. The session
    keeps running when you detach, lose your connection or log out.

    Without a NAME, the session gets the name of the working folder, or of the agent; with a number if that is
    taken.

    With --detach, start fails (exit code 6) if the agent dies at once, and prints its last screen.

    --host starts it on another machine of your fleet, with the environment of the boss there. --cwd is a
    folder of that machine; by default it is the home folder.

    Claude Code starts in the permission mode of your arguments or settings. If they name none, it starts in
    manual mode. Remuda never widens it.

    \b
    Examples:
      remuda start work --agent claude
      remuda start work --detach -- claude --model sonnet "fix the tests"
      remuda start fix --worktree --agent claude
      remuda start build -- make -j2
      remuda start work --resume    restart an ended session
    """


_MARKED = "remuda.start: '--' is before the command"


class _StartCommand(click.Command):
    """Takes '--worktree' without a value too. With blanks, a value could be mistaken for NAME."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[_MARKED] = end < len(args)
        ours = ["--worktree=" if one == "--worktree" else one for one in args[:end]]
        return super().parse_args(ctx, [*ours, *args[end:]])


@click.command("start", cls=_StartCommand, help=_HELP, context_settings={"ignore_unknown_options": False})
@click.argument("name", required=False)
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED)
@click.option("--agent", type=AgentName(), help="Agent to run.  [default: found by the command]")
@click.option(
    "--cwd", "--workdir", type=click.Path(path_type=Path), help="Working folder.  [default: this one]"
)
@click.option("--cols", type=int, help="Columns.  [default: as this terminal, else 220]")
@click.option("--rows", type=int, help="Rows.  [default: as this terminal, else 50]")
@click.option(
    "--size",
    type=click.Choice(["latest", "smallest", "fixed"]),
    help="Follow the size of the terminal used last, or of the smallest; or keep the size.",
)
@click.option("-d", "--detach", is_flag=True, help="Start in the background, without attaching.")
@click.option("--host", metavar="HOST", help="Start it on another machine of your fleet.")
@click.option("--resume", is_flag=True, help="Restart the ended session NAME, with its conversation.")
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set an environment variable of the program.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Record the terminal into FILE, as asciicast v2.",
)
@click.option("--kill-group/--no-kill-group", "--kill-process-group/--no-kill-process-group", default=None,
              help="Let 'kill' end all descendants, or only the program.")  # fmt: skip
@click.option(
    "--trust", is_flag=True, default=None, help="Answer yes if the agent asks whether to trust the folder."
)
@click.option(
    "--on-orphan",
    type=click.Choice(["retry", "deadletter", "drop"]),
    help="What to do with a message that was in flight when the session died.  [default: deadletter]",
)
@click.option(
    "--worktree",
    metavar="[=BRANCH]",
    help="Run in a new git worktree, on BRANCH or on a new branch NAME. Needs '=' before BRANCH.",
)
@click.option(
    "--restart",
    type=click.Choice(RESTART),
    help="Start it again after a crash or reboot; 'always': also after exit code 0.  [default: never]",
)
@click.option(
    "--sleep-after",
    type=time_span,
    metavar="TIME",
    help="End the agent after TIME idle, and wake it when it is needed (30m; 0: never).  [default: never]",
)
@click.option(
    "--turn-timeout",
    type=time_span,
    metavar="TIME",
    help="Fail a turn after TIME without any sign of activity.",
)
@click.option(
    "--draft-patience",
    type=time_span,
    metavar="TIME",
    help="Set a draft aside for a message once it is untouched for TIME.  [default: 15]",
)
@click.option("--grace", type=time_span, metavar="TIME", help="Time between TERM and KILL.  [default: 5]")
@click.option("--scrollback-bytes", type=click.IntRange(min=0), help="Raw output kept for Heimdall clients.")
@click.option(
    "--history-bytes",
    type=click.IntRange(min=0),
    help="Output kept on disk for 'logs'; 0 keeps none.  [default: 8388608]",
)
@click.option(
    "--classifier", type=click.Choice(CLASSIFIERS), help="How to derive a state from output timing."
)
@click.option(
    "--idle-threshold-ms", type=click.IntRange(min=0), help="Milliseconds of silence that count as idle."
)
@click.option(
    "--debounce-ms", type=click.IntRange(min=0), help="Milliseconds that a state must last to count (claude)."
)
@click.option(
    "--session-env-var", metavar="NAME", help="Variable that holds the session name, for the program."
)
@click.option("--log-file", type=click.Path(path_type=Path), help="File for the log of the keeper.")
@click.option("--log-level", help="Level of the log: trace, debug, info, warn or error.")
@click.option("--log-filter", metavar="NAME=LEVEL,…", help="Log levels for parts of the keeper.")
@folder_option
@config_option
@json_option
def command(
    name: str | None, cmd: tuple[str, ...], as_json: bool, detach: bool, host: str | None, **options: Any
) -> int | None:
    config = configuration(options["config_file"])
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not is_dumb()
    attach = not detach and not as_json and on_terminal
    if host is not None and host != own_host():
        size = _size_here(bar=config.status_bar) if attach else None
        return _start_elsewhere(host, name, cmd, options, size, config, as_json=as_json)
    folder = find_folder(options.get("folder"), config)
    if name is None:
        name = _free_name(folder, options)
    size = _size_here(bar=config.status_bar) if attach else (DEFAULT_COLS, DEFAULT_ROWS)
    composed = compose(name, cmd, folder, options, config, attached=attach, size=size)
    if composed.forgotten:
        complain(
            f"these variables of the earlier session are not set now: {', '.join(composed.forgotten)}; "
            "set them with --env"
        )
    spec = composed.spec
    standing = find_standing(spec.agent, spec.argv, spec.env.get("PATH"))
    if standing is not None and standing.level == "note":  # the keeper refuses one that failed
        echo(f"note: {standing.words}", err=True)
    branch = options["worktree"]
    is_marked = click.get_current_context().meta[_MARKED]
    if branch == "" and cmd and not is_marked and is_branch(Path(spec.cwd), cmd[0]):
        # Else it would be the prompt of the agent, which would work on another branch.
        raise InvalidOptions(
            f"'{cmd[0]}' is a branch, but '--worktree {cmd[0]}' does not name it",
            hint=f"write --worktree={cmd[0]}; '--' before it makes it a part of the command",
        )
    with ProgressLine(after=0.5) as progress:
        progress.say("making a worktree" if branch is not None else f"starting '{name}'")
        if branch is None:
            started = start_session(composed.spec)
        else:
            started = start_in_worktree(composed.spec, branch, config)
    # A plain command may end at once without an error.
    if not attach and composed.spec.agent not in PLAIN_AGENTS:
        with ProgressLine(after=0.5) as progress:
            progress.say(f"waiting until '{name}' is ready")
            check_came_up(SessionPaths(folder, name))
    if attach:
        from .attach import attach_here

        return attach_here(name, folder, config)
    with after_success(f"{name} was started"):
        if as_json:
            print_json({"name": name, "keeper_pid": started.keeper_pid, "pid": started.child_pid})
        else:
            echo(f"started {name} (pid {started.child_pid}); attach with: remuda attach {name}")
    return None


# ── on another machine ──


def _start_elsewhere(
    host: str,
    name: str | None,
    cmd: tuple[str, ...],
    options: Mapping[str, Any],
    size: tuple[int, int] | None,
    config: Config,
    *,
    as_json: bool,
) -> int | None:
    """Start a session on another host, by the boss there. With a `size`, attach to it."""
    from remuda.boss.elsewhere import START_OPTIONS, start

    if name is None:
        raise InvalidOptions("--host needs a NAME for the session")
    split_host(f"{host}/{name}")  # says if this machine has joined no fleet
    known = {*START_OPTIONS, "cwd", "config_file"}
    given = [key for key, value in options.items() if key not in known and value not in (None, (), False)]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise InvalidOptions(f"{flag} does not go with --host", hint="start it on that machine itself")
    taken = {} if size is None else {"cols": size[0], "rows": size[1]}
    taken |= {key: options[key] for key in START_OPTIONS if options[key] is not None}
    cwd = None if options["cwd"] is None else str(options["cwd"])
    started = start(host, name, cmd, cwd, taken, _ELSEWHERE_TIMEOUT)
    name = str(started["name"])
    if size is not None:
        from .attach import attach_here

        return attach_here(name, None, config, host=host)
    _check_came_up_elsewhere(host, name)
    if as_json:
        pid = (started["session"] or {}).get("pid")
        print_json({"host": host, "name": name, "pid": pid})
    else:
        echo(f"started {host}/{name}; attach with: remuda attach {host}/{name}")
    return None


def _check_came_up_elsewhere(host: str, name: str) -> None:
    """Raise `SessionDead` for an agent that died during its start, after its last screen."""
    from remuda.boss.client import RemoteBoss

    try:
        with KeeperClient.connect_elsewhere(host, name, read_only=True) as client:
            if client.welcome is None or client.welcome["agent"] in PLAIN_AGENTS:
                return
            if not dies_at_start(client):
                return
    except (EOFError, SessionDead):
        pass
    session = RemoteBoss(host).get("sessions", name)["session"]
    if session["ended"] is None:
        return
    show_last_screen_elsewhere(host, name)
    raise SessionDead(
        f"'{host}/{name}' ended before it was ready", hint=f"'remuda logs {host}/{name}' prints its output"
    )


_LONGEST_OWN_NAME = 40
"""A longer name of a folder is not taken for the session: users type it."""


def _free_name(folder: Path, options: Mapping[str, Any]) -> str:
    """Return a name that no session has, after the working folder, or else the agent."""
    if options["resume"]:
        raise InvalidOptions("--resume needs the NAME of a session", hint="'remuda ls --all' lists all")
    if options["agent"] is None:
        raise InvalidOptions(
            "nothing to start", hint="give --agent, or a NAME and a command: remuda start NAME -- CMD"
        )
    last = (options["cwd"] or Path.cwd()).expanduser().absolute().name
    base = last if is_name(last) and len(last) <= _LONGEST_OWN_NAME else str(options["agent"])
    taken = known_names(folder)
    names = itertools.chain([base], (f"{base}-{count}" for count in itertools.count(2)))
    return next(one for one in names if one not in taken)


def _size_here(*, bar: bool) -> tuple[int, int]:
    """Return the size of this terminal, without the row of our status bar."""
    here = os.get_terminal_size(sys.stdout.fileno())
    if not here.columns or not here.lines:
        return DEFAULT_COLS, DEFAULT_ROWS
    return here.columns, max(1, here.lines - (1 if bar else 0))


# ── did the agent come up? ──


_ELSEWHERE_TIMEOUT = 60.0


def check_came_up(paths: SessionPaths) -> None:
    """Wait until the agent has started, or has not died for a while.

    Prints the last screen of an agent that died, and raises `SessionDead`.
    """
    if not has_died(paths):
        return
    record = SessionRecord.load(paths.record)
    code = record.exit_code if record is not None else None
    show_last_screen(paths, err=True)
    raise SessionDead(
        f"'{paths.name}' ended before it was ready"
        + (f", with exit code {code}" if code is not None else ""),
        hint=f"'remuda logs {paths.name}' prints its output",
    )
