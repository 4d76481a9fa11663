"""remuda start"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from remuda.agents import AGENT_NAMES
from remuda.config import CLASSIFIERS
from remuda.keeper.compose import compose
from remuda.keeper.spec import DEFAULT_COLS, DEFAULT_ROWS
from remuda.keeper.start import start_session

from .common import (
    complain,
    config_option,
    configuration,
    find_folder,
    folder_option,
    json_option,
    print_json,
    seconds,
)

_HELP = """Start CMD, or an agent, as the session NAME on a terminal of its own.

    From a terminal you are attached to it at once; --detach leaves it in the background. It goes on when
    you leave, when your connection breaks, and when you log out.

    \b
    Examples:
      remuda start work --agent claude
      remuda start work --detach -- claude --model sonnet "look at the failing tests"
      remuda start build -- make -j2
      remuda start work --resume             bring a dead session back, with its conversation
    """


@click.command("start", help=_HELP, context_settings={"ignore_unknown_options": False})
@click.argument("name")
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED)
@click.option("--agent", type=click.Choice(AGENT_NAMES), help="What runs.  [default: seen from the command]")
@click.option(
    "--cwd", "--workdir", type=click.Path(path_type=Path), help="Working folder.  [default: this one]"
)
@click.option("--cols", type=int, help="Columns.  [default: those of this terminal, else 220]")
@click.option("--rows", type=int, help="Rows.  [default: those of this terminal, else 50]")
@click.option(
    "--size", type=click.Choice(["latest", "smallest", "fixed"]), help="Whose size the session has."
)
@click.option("-d", "--detach", is_flag=True, help="Do not attach.")
@click.option("--resume", is_flag=True, help="Bring back the dead session NAME, with its conversation.")
@click.option(
    "--env", "variables", multiple=True, metavar="NAME=VALUE", help="Set a variable for the program."
)
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help="Record as asciicast v2.")
@click.option("--kill-group/--no-kill-group", "--kill-process-group/--no-kill-process-group", default=None,
              help="Whether 'kill' ends all descendants, or the program alone.")  # fmt: skip
@click.option(
    "--trust", is_flag=True, default=None, help="Answer yes when the agent asks to trust the folder."
)
@click.option(
    "--on-orphan",
    type=click.Choice(["retry", "deadletter", "drop"]),
    help="What becomes of a message whose answer was under way when the session died.  [default: deadletter]",
)
@click.option(
    "--turn-timeout",
    type=seconds,
    metavar="SECONDS",
    help="A turn without a sign of life for so long has failed.",
)
@click.option(
    "--draft-patience",
    type=seconds,
    metavar="SECONDS",
    help="A draft that nobody touched for so long is laid aside for a message.  [default: 15]",
)
@click.option("--grace", type=seconds, metavar="SECONDS", help="Time between TERM and KILL.  [default: 5]")
@click.option("--scrollback-bytes", type=click.IntRange(min=0), help="Raw history for plain clients.")
@click.option("--classifier", type=click.Choice(CLASSIFIERS), help="How byte timing is read.")
@click.option("--idle-threshold-ms", type=click.IntRange(min=0), help="Silence that counts as idle.")
@click.option("--debounce-ms", type=click.IntRange(min=0), help="How long a state must hold (claude).")
@click.option("--session-env-var", metavar="NAME", help="Variable that tells the program its session.")
@click.option("--log-file", type=click.Path(path_type=Path), help="The keeper's log.")
@click.option("--log-level", help="trace, debug, info, warn or error.")
@click.option("--log-filter", metavar="NAME=LEVEL,…", help="Levels for parts of the keeper.")
@folder_option
@config_option
@json_option
def command(name: str, cmd: tuple[str, ...], as_json: bool, detach: bool, **options: Any) -> int | None:
    config = configuration(options["config_file"])
    attach = not detach and not as_json and sys.stdin.isatty() and sys.stdout.isatty()
    folder = find_folder(options.get("folder"), config)
    size = _size_here(bar=config.status_bar) if attach else (DEFAULT_COLS, DEFAULT_ROWS)
    composed = compose(name, cmd, folder, options, config, attached=attach, size=size)
    if composed.forgotten:
        complain(
            f"these variables were set for it before and are not now: {', '.join(composed.forgotten)}; "
            "give them again with --env"
        )
    started = start_session(composed.spec)
    if attach:
        from .attach import attach_here

        return attach_here(name, folder, config)
    if as_json:
        print_json({"name": name, "keeper_pid": started.keeper_pid, "pid": started.child_pid})
    else:
        click.echo(f"started {name} (pid {started.child_pid}); attach with: remuda attach {name}")
    return None


def _size_here(*, bar: bool) -> tuple[int, int]:
    """Of this terminal, without the row that our bar takes."""
    here = os.get_terminal_size(sys.stdout.fileno())
    if not here.columns or not here.lines:
        return DEFAULT_COLS, DEFAULT_ROWS
    return here.columns, max(1, here.lines - (1 if bar else 0))
