"""What the commands share: arguments and options, the folder of the sessions, states and limits in words."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from remuda.duration import LONGEST, parse_time, show_duration, show_moment
from remuda.errors import InvalidOptions, RemudaError, SessionNotFound
from remuda.keeper.elsewhere import split_host
from remuda.names import did_you_mean, is_name
from remuda.paths import SessionPaths, expanded, known_names, own_config_file, sessions_folder
from remuda.patterns import pattern
from remuda.untrusted import one_line

from . import declare
from .output import cut, echo, flat, json_line, style

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from typing import Any, TypeVar

    import click
    from click.shell_completion import CompletionItem

    from remuda.config import Config
    from remuda.keeper.client import KeeperClient

    F = TypeVar("F", bound=Callable[..., Any])

_COMPLETION_TIMEOUT = 0.5
_STATE_COLOURS = {
    "idle": "green",
    "interrupted": "green",
    "asleep": "green",
    "waiting_permission": "yellow",
    "waiting_answer": "yellow",
    "limited": "red",
    "error": "red",
    "dead": "red",
}


def seconds(text: str) -> float:
    """Parse an option that takes a number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise declare.bad_value(f"{text!r} is not a number of seconds")
    return min(value, LONGEST)


def time_span(text: str | float) -> float:
    """Parse an option that takes seconds, or a duration such as 2h30m."""
    text = str(text)  # a default may be a number
    try:
        return parse_time(text)
    except InvalidOptions as error:
        raise declare.bad_value(str(error)) from None


def complete_session(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from remuda.keeper.claim import live_names

    try:
        folder = ctx.params.get("folder")
        names = [*live_names(find_folder(folder)), *([] if folder else complete_elsewhere())]
    except (RemudaError, OSError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_elsewhere() -> list[str]:
    """Return the kept sessions of other hosts as HOST/NAME, for completion: quickly, or none."""
    from .elsewhere import list_elsewhere, names_elsewhere

    return names_elsewhere(list_elsewhere(lambda _: None, timeout=_COMPLETION_TIMEOUT))


def pick_session(name: str | None, folder: Path, choose: Callable[[Sequence[str]], str] | None = None) -> str:
    """Return the session for a name, the beginning of one, or None.

    None means the live session that was started last; with `choose`, that one of several which it returns. It
    gets the names, the one that was started last first. A known name stays as it is, and so does one that is
    not the beginning of another. Live sessions come before ended ones. Raises `SessionNotFound` with the
    hosts if only other hosts have a session of that name.
    """
    from remuda.keeper.claim import live_names, read_holder

    if name is not None and (not is_name(name) or name in (known := known_names(folder))):
        return name
    living = list(live_names(folder))
    if name is not None:
        begun = names_beginning(name, living) or names_beginning(name, known)
        if len(begun) > 1:
            more = ", …" if len(begun) > 5 else ""
            raise InvalidOptions(f"'{name}' matches {len(begun)} sessions: {', '.join(begun[:5])}{more}")
        if not begun and folder == find_folder(None):
            from .elsewhere import hint_elsewhere

            if named := hint_elsewhere(name):
                raise SessionNotFound(f"session '{name}' not found", hint=named)
        return begun[0] if begun else name
    own = os.environ.get("REMUDA_SESSION")  # a session cannot be attached to its own terminal
    held = [
        (holder.since, one)
        for one in living
        if one != own and (holder := read_holder(SessionPaths(folder, one)))
    ]
    if not held:
        raise SessionNotFound(
            "no session is running", hint="start one with: remuda start NAME --agent claude"
        )
    names = [one for _, one in sorted(held, reverse=True)]
    return choose(names) if choose is not None and len(names) > 1 else names[0]


def connect_to(name: str, folder: Path | None, *, read_only: bool = False) -> KeeperClient:
    """Connect to a session by its name, the beginning of one, or HOST/NAME.

    Raises `SessionNotFound`, `SessionDead`, and what prevents the way to another host.
    """
    from remuda.keeper.client import KeeperClient

    host, name = split_host(name) if folder is None else (None, name)
    if host is not None:
        return KeeperClient.connect_elsewhere(host, name, read_only=read_only)
    where = find_folder(folder)
    return KeeperClient.connect(pick_session(name, where), where, read_only=read_only)


def names_beginning(word: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if word and name.startswith(word))


def session_argument(function: F) -> F:
    return declare.argument("name", shell_complete=complete_session)(function)


def format_option(example: str) -> Callable[[F], F]:
    return declare.option(
        "--format",
        "template",
        metavar="TEMPLATE",
        help=f"Print one line each, with fields of the JSON, such as '{example}'.",
    )


def config_option(function: F) -> F:
    option = declare.option(
        "--config",
        "config_file",
        type=declare.ClickType("Path", path_type=Path),
        help="Configuration file to use.",
    )
    return option(function)


def folder_option(function: F) -> F:
    option = declare.option(
        "--socket-dir",
        "folder",
        type=declare.ClickType("Path", path_type=Path),
        help="Folder of the sessions.  [default: under $REMUDA_HOME]",
    )
    return option(function)


def json_option(function: F) -> F:
    return declare.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")(function)


def configuration(config_file: Path | None = None, *, strict: bool = True) -> Config:
    """Without `strict`, for commands that start nothing: an invalid file in this folder is only a warning."""
    from remuda.config import load_config

    try:
        here = Path.cwd()
    except FileNotFoundError:  # the folder was removed
        here = Path(os.devnull)  # has no configuration file either
    return load_config(
        config_file, here, os.environ, strict=strict, warn=lambda line: echo(f"warning: {line}", err=True)
    )


def find_folder(folder: Path | None, config: Config | None = None) -> Path:
    """Return the folder of the sessions: from the option, the configuration, or our default.

    Without `config` the user's own: a file in the working folder cannot set it, and is not read.
    """
    chosen: Path | str | None = folder
    if not chosen and config is not None:
        chosen = config.socket_dir
    elif not chosen and own_config_file(os.environ) is not None:
        from remuda.config import load_own_config

        chosen = load_own_config(os.environ).socket_dir
    return expanded(chosen) if chosen else sessions_folder()


def coloured_state(text: str, state: str | None = None) -> str:
    """Return the name of a state, or another text, in the colour of the state."""
    return style(text, fg=_STATE_COLOURS.get(state or text, "cyan"))


def limit_lines(limit: Mapping[str, Any], now: float) -> list[str]:
    """Describe an account at its limit: until when and why, and which messages wait."""
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


# ── --format TEMPLATE: one line for each listed thing, with fields of its JSON ──


_FIELD = pattern(r"\{([^{}]*)\}")
_ESCAPES = {r"\t": "\t", r"\n": "\n"}


def check_alone(template: str | None, **others: bool) -> None:
    """Raise `InvalidOptions` if `--format` is combined with one of the others."""
    if template is not None and (also := [name for name, given in others.items() if given]):
        raise InvalidOptions(f"--format does not go with --{also[0]}", hint="use one of them")


def print_formatted(template: str, documents: Sequence[Mapping[str, Any]]) -> None:
    """Print each document by the template. `{delivery.held}` is a field in a field; `\\t` is a tab.

    A missing field is empty. Raises `InvalidOptions` for a field that no document has.
    """
    if template == "json":
        raise InvalidOptions("--format has no field", hint="use --json, or name fields: --format '{name}'")
    for field in _FIELD.findall(template):
        if documents and not any(_has(one, field) for one in documents):
            fields = sorted({key for one in documents for key in one})
            near = did_you_mean(field, fields) or f"the fields are: {', '.join(fields)}"
            raise InvalidOptions(f"unknown field '{field}' in --format", hint=near)
    for written, character in _ESCAPES.items():
        template = template.replace(written, character)
    for one in documents:
        parts = _FIELD.split(template)
        parts[1::2] = [flat(_text(_value(one, field))) for field in parts[1::2]]
        echo("".join(parts))


def _has(document: Mapping[str, Any], field: str) -> bool:
    first, _, rest = field.partition(".")
    inner = document.get(first)
    return first in document and (
        not rest or inner is None or (isinstance(inner, Mapping) and _has(inner, rest))
    )


def _value(document: object, field: str) -> object:
    for part in field.split("."):
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json_line(value)
