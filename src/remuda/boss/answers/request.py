"""A permission request as rules see it: the command, the paths, where it comes from."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from remuda.agents.claude.asking import COMMAND_TOOLS, QUIET_TOOLS, is_plain, path_fields, search_pattern

from ..attention.model import Reason

CommandTools = Mapping[str, str | None]
"""Patterns of tool names, and the field of the input with the command. None: the tool runs no commands."""


@dataclass(frozen=True, slots=True)
class AskedPath:
    """A path that a tool reads or changes. Both are "" where it is not known."""

    real: str
    """Absolute, without symbolic links."""
    asked: str
    """As it was written, but absolute."""
    reaches_below: bool = False
    """The tool also reads what is below it."""


@dataclass(frozen=True, slots=True)
class Request:
    tool: str
    reason: Reason = Reason.PERMISSION
    command: str | None = None
    """Of a tool that runs one. "" if it cannot be read."""
    is_plain: bool = True
    """It asks for nothing beside the command: not for a way around a sandbox, say."""
    may_run_commands: bool = False
    """It is not known whether the tool runs commands."""
    paths: tuple[AskedPath, ...] = ()
    folder: AskedPath | None = None
    """Where its session works."""
    session: tuple[str, ...] = ()
    """Its name and its id."""


def make_request(
    tool: str,
    reason: Reason,
    given: Mapping[str, Any],
    names: Sequence[str | None],
    cwd: str | None,
    command_tools: CommandTools = COMMAND_TOOLS,
) -> Request:
    """Looks at the disk, for symbolic links."""
    is_declared, field = _command_field(tool, command_tools)
    return Request(
        tool,
        reason,
        None if field is None else _command(given.get(field)),
        field is None or is_plain(given, field),
        not is_declared and tool not in QUIET_TOOLS,
        tuple(_paths(tool, given, cwd)),
        None if cwd is None else _path(cwd, None),
        tuple(name for name in names if name),
    )


def _command_field(tool: str, tools: CommandTools) -> tuple[bool, str | None]:
    """Whether a tool is declared, and the field. A full name comes before patterns."""
    for pattern in [tool] * (tool in tools) + [one for one in tools if fnmatchcase(tool, one)]:
        return True, tools[pattern]
    return False, None


def _command(value: object) -> str:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return shlex.join(value)
    return value if isinstance(value, str) else ""


def _paths(tool: str, given: Mapping[str, Any], cwd: str | None) -> Iterator[AskedPath]:
    fields = list(path_fields(given))
    pattern = search_pattern(tool, given)
    if pattern is None:
        yield from (_path(one, cwd) for one in fields)
        return
    yield from (_path(one, cwd, reaches_below=True) for one in fields or [cwd])
    if not isinstance(pattern, str) or re.search(r"\.\.|\\|[{,]\s*[/~]", pattern):
        yield AskedPath("", "")
    elif pattern.startswith(("/", "~")):
        known = re.split(r"[*?\[{]", pattern)[0]
        yield _path(known if known == pattern else known.rpartition("/")[0] or "/", cwd, reaches_below=True)


def _path(given: object, cwd: str | None, *, reaches_below: bool = False) -> AskedPath:
    if not isinstance(given, str) or given != given.strip() or given[:5].lower() == "file:":
        return AskedPath("", "")  # a tool may take it for another path than we do
    try:
        asked = os.path.join(cwd or "", os.path.expanduser(given))
        real = os.path.realpath(asked) if os.path.isabs(asked) else ""
        real.encode()
        if real and _depends_on_process(asked, reaches_below=reaches_below):
            return AskedPath("", "")
    except (ValueError, OSError):  # NUL, half of a surrogate pair, a circle of links
        return AskedPath("", "")
    return AskedPath(real, "/" + os.path.normpath(asked).lstrip("/") if real else "", reaches_below)


_OF_A_PROCESS = re.compile(
    r"/(?:.*/)?proc/(?:self|thread-self|\d+)|/dev/(?:fd|stdin|stdout|stderr)", re.DOTALL
)
_MOST_LINKS = 40


def _depends_on_process(path: str, *, reaches_below: bool) -> bool:
    """Whether it leads through a link that is another one in the agent's process: `/proc/self/cwd`.

    Links are followed one by one, since `realpath` has already replaced `self` by our own process.
    """
    here, names, links = "/", path.split("/"), 0
    while names:
        name = names.pop(0)
        here = os.path.normpath(os.path.join(here, name))
        if _OF_A_PROCESS.fullmatch(here):
            return True
        if os.path.islink(here):
            links += 1
            if links > _MOST_LINKS:
                return True
            target = os.readlink(here)
            names = [*target.split("/"), *names]
            here = "/" if target.startswith("/") else os.path.dirname(here)
    plain = "/" + os.path.normpath(path).lstrip("/")  # a tool may drop `..` before it follows links
    return (reaches_below and here == "/proc") or any(
        _OF_A_PROCESS.fullmatch(plain[:at]) for at, sign in enumerate(plain + "/") if sign == "/"
    )
