"""What the commands share: arguments and options, the folder of the sessions, states and limits in words."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from remuda.config import Config, load_config, load_own_config
from remuda.duration import LONGEST, parse_time, show_duration, show_moment
from remuda.errors import InvalidOptions, RemudaError, SessionNotFound
from remuda.names import is_name
from remuda.paths import SessionPaths, known_names, sessions_folder
from remuda.untrusted import one_line

from .output import cut, echo, style

F = TypeVar("F", bound=Callable[..., Any])

_STATE_COLOURS = {
    "idle": "green",
    "interrupted": "green",
    "waiting_permission": "yellow",
    "waiting_answer": "yellow",
    "limited": "red",
    "error": "red",
    "dead": "red",
}


def seconds(text: str) -> float:
    """The type of an option that takes a time."""
    try:
        given = float(text)
    except ValueError:
        given = math.nan
    if not 0 <= given < math.inf:
        raise click.BadParameter(f"{text!r} is not a number of seconds")
    return min(given, LONGEST)


def time_span(text: str | float) -> float:
    """The type of an option that takes seconds, or a duration such as 2h30m."""
    text = str(text)  # a default may be a number
    try:
        return parse_time(text)
    except InvalidOptions:
        raise click.BadParameter(f"{text!r} is not a time; write for example 90s, 45m or 2h30m") from None


def complete_session(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from remuda.keeper.claim import live_names

    try:
        names = list(live_names(find_folder(ctx.params.get("folder"))))
    except (RemudaError, OSError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def pick_session(name: str | None, folder: Path) -> str:
    """Return the session meant by a name, the beginning of one, or None.

    None is the only live session, or the one that was started last. A name that is known stays as it is, and
    so does one that begins no other. Live sessions come before those that have ended.
    """
    from remuda.keeper.claim import live_names, read_holder

    if name is not None and (not is_name(name) or name in (known := known_names(folder))):
        return name
    living = list(live_names(folder))
    if name is not None:
        begun = names_beginning(name, living) or names_beginning(name, known)
        if len(begun) > 1:
            raise InvalidOptions(
                f"'{name}' is the beginning of {len(begun)} session names",
                hint=f"type more of it: {', '.join(begun[:5])}",
            )
        return begun[0] if begun else name
    own = os.environ.get("REMUDA_SESSION")  # attaching to the terminal that one is in makes no sense
    held = [
        (holder.since, one)
        for one in living
        if one != own and (holder := read_holder(SessionPaths(folder, one)))
    ]
    if not held:
        raise SessionNotFound("no session is running", hint="start one with: remuda start NAME -- COMMAND")
    return max(held)[1]


def names_beginning(word: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if word and name.startswith(word))


def session_argument(function: F) -> F:
    return click.argument("name", shell_complete=complete_session)(function)


def format_option(example: str) -> Callable[[F], F]:
    return click.option(
        "--format",
        "template",
        metavar="TEMPLATE",
        help=f"Print one line each, with fields of the JSON, such as '{example}'.",
    )


def config_option(function: F) -> F:
    option = click.option(
        "--config", "config_file", type=click.Path(path_type=Path), help="Configuration file to use."
    )
    return option(function)


def folder_option(function: F) -> F:
    option = click.option(
        "--socket-dir",
        "folder",
        type=click.Path(path_type=Path),
        help="Folder of the sessions.  [default: under $REMUDA_HOME]",
    )
    return option(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")(function)


def configuration(config_file: Path | None = None, *, strict: bool = True) -> Config:
    """Without `strict`, for commands that start nothing: an invalid file in this folder is only a warning."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was removed under its shell
        here = Path(os.devnull)  # in which there is no file either
    return load_config(
        config_file, here, os.environ, strict=strict, warn=lambda line: echo(f"warning: {line}", err=True)
    )


def find_folder(folder: Path | None, config: Config | None = None) -> Path:
    """Where the sessions lie: the option, else the configuration, else ours.

    Without `config` the user's own: a file in the working folder cannot set it, and is not read.
    """
    chosen = folder or (config or load_own_config(os.environ)).socket_dir
    return Path(chosen).expanduser().absolute() if chosen else sessions_folder()


def coloured_state(text: str, state: str | None = None) -> str:
    """A state's name, or another text in its colour."""
    return style(text, fg=_STATE_COLOURS.get(state or text, "cyan"))


def limit_lines(limit: Mapping[str, Any], now: float) -> list[str]:
    """An account at its limit: until when and why, and what waits for that."""
    why = one_line(limit["reason"])
    until, left = show_moment(limit["until"], now), show_duration(max(0.0, limit["until"] - now))
    lines = [f"account {limit['account']} until {until} ({left} more): {cut(why, 60)}"]
    if count := limit.get("messages"):
        held = f"{count} message{'s' * (count > 1)} for {', '.join(limit['sessions'])}"
        lines.append(f"{held} will be delivered then")
    return lines


def short_path(path: str) -> str:
    home = os.environ.get("HOME", "")
    return "~" + path[len(home) :] if home and (path == home or path.startswith(home + "/")) else path
