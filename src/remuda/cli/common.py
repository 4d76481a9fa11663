"""What the commands share: the session argument, where sessions lie, and how things are printed."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from remuda.config import Config, load_config
from remuda.duration import parse_duration, show_duration, show_moment
from remuda.errors import InvalidOptions, RemudaError
from remuda.oneshot.output import without_halves
from remuda.paths import sessions_folder

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


# Thirty years. Who asks for more means 'for ever', and the system calls that wait take no such number.
_LONGEST = 1e9


def seconds(text: str) -> float:
    """The type of an option that takes a time."""
    try:
        given = float(text)
    except ValueError:
        given = math.nan
    if not 0 <= given < math.inf:
        raise click.BadParameter(f"{text!r} is not a number of seconds")
    return min(given, _LONGEST)


def time_span(text: str) -> float:
    """The type of an option that takes seconds, or a duration such as 2h30m."""
    try:
        return min(parse_duration(text), _LONGEST) if text[-1:].isalpha() else seconds(text)
    except (click.BadParameter, InvalidOptions):
        raise click.BadParameter(f"{text!r} is not a time; write for example 90, 45m or 2h30m") from None


def complain(message: str) -> None:
    click.echo(f"remuda: {message}", err=True)


def complete_session(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from remuda.keeper.claim import live_names

    try:
        names = list(live_names(find_folder(ctx.params.get("folder"))))
    except (RemudaError, OSError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def session_argument(function: F) -> F:
    return click.argument("name", shell_complete=complete_session)(function)


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


def configuration(config_file: Path | None = None) -> Config:
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was removed under its shell
        here = Path(os.devnull)  # in which there is no file either
    return load_config(config_file, here, os.environ)


def find_folder(folder: Path | None, config: Config | None = None) -> Path:
    """Where the sessions lie: the option, else the configuration, else ours."""
    chosen = folder or (config or configuration()).socket_dir
    return Path(chosen).expanduser().absolute() if chosen else sessions_folder()


def print_json(document: object) -> None:
    click.echo(without_halves(json.dumps(document, indent=2, ensure_ascii=False)))


def coloured_state(text: str, state: str | None = None) -> str:
    """A state's name, or another text in its colour."""
    return click.style(text, fg=_STATE_COLOURS.get(state or text, "cyan"))


def one_line(text: str) -> str:
    """Of what an agent says: no control characters on the user's terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


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


def cells(text: str) -> int:
    """How many columns a text takes on a terminal."""
    return sum(2 if _is_wide(character) else 1 for character in click.unstyle(text))


def _is_wide(character: str) -> bool:
    import unicodedata

    return ord(character) > 0x10FF and unicodedata.east_asian_width(character) in "WF"


def cut(text: str, width: int) -> str:
    """At most `width` columns of an unstyled text."""
    if cells(text) <= width:
        return text
    taken = ""
    for character in text:
        if cells(taken + character) > width - 1:
            break
        taken += character
    return taken + "…"


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for line in table_lines(head, rows):
        click.echo(line)


def table_lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as they need; the last takes what is left of a terminal, or all it wants elsewhere."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    widths = [max(cells(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = []
    for number, row in enumerate([head, *rows]):
        padded = [text + " " * (size - cells(text)) for text, size in zip(row[:-1], widths[:-1], strict=True)]
        line = "  ".join(padded)
        last = row[-1] if width is None else cut(row[-1], max(8, width - cells(line) - 2))
        line = f"{line}  {last}".rstrip()
        lines.append(click.style(line, bold=True) if number == 0 else line)
    return lines
