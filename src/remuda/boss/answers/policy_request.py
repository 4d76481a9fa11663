"""A permission request as rules see it: the command, the paths, where it comes from."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from remuda.agents import DEFAULT_AGENT, find_permissions
from remuda.agents.sources import PermissionReader

from ..attention.model import Reason

CommandTools = Mapping[str, str | None]
"""Patterns of tool names, and the field of the input with the command. None: the tool runs no commands."""


@dataclass(frozen=True, slots=True)
class RequestedPath:
    """A path that a tool reads or changes. Both are "" if it is not known."""

    real: str
    """Absolute, without symbolic links."""
    asked: str
    """As it was written, but absolute."""
    reaches_below: bool = False
    """The tool also reads what is below it."""


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    tool: str
    reason: Reason = Reason.PERMISSION
    command: str | None = None
    """The command of a tool that runs one. "" if it cannot be read."""
    is_plain: bool = True
    """It requests only the command: not a way around a sandbox as well, for example."""
    may_run_commands: bool = False
    """It is not known whether the tool runs commands."""
    paths: tuple[RequestedPath, ...] = ()
    folder: RequestedPath | None = None
    """Where its session works."""
    session: tuple[str, ...] = ()
    """Its name and its id."""


def make_request(
    tool: str,
    reason: Reason,
    tool_input: Mapping[str, Any],
    names: Sequence[str | None],
    cwd: str | None,
    command_tools: CommandTools = MappingProxyType({}),
    *,
    agent: str = DEFAULT_AGENT,
) -> PolicyRequest:
    """Make a request as rules see it. Reads symbolic links from disk.

    `command_tools` are those of the policy; they come before those that the agent is known to have.
    """
    permissions = find_permissions(agent)
    known = {name: field for name, field in permissions.command_fields.items() if name not in command_tools}
    is_declared, field = _command_field(tool, {**known, **command_tools})
    is_foreign = field is None and tool not in permissions.quiet_tools
    return PolicyRequest(
        tool,
        reason,
        None if field is None else _command(tool_input.get(field)),
        field is None or permissions.is_plain(tool_input, field),
        not is_declared and tool not in permissions.quiet_tools,
        tuple(
            _foreign_paths(permissions, tool_input, cwd)
            if is_foreign
            else _paths(permissions, tool, tool_input, cwd)
        ),
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


def _paths(
    permissions: PermissionReader, tool: str, tool_input: Mapping[str, Any], cwd: str | None
) -> Iterator[RequestedPath]:
    fields = list(permissions.path_fields(tool_input))
    pattern = permissions.search_pattern(tool, tool_input)
    if pattern is None:
        yield from (_path(one, cwd) for one in fields)
        return
    yield from (_path(one, cwd, reaches_below=True) for one in fields or [cwd])
    if not isinstance(pattern, str) or _LEAVES.search(pattern):
        yield RequestedPath("", "")
    elif pattern.startswith(("/", "~")):
        known = re.split(r"[@+!]?\(|[*?\[{]", pattern)[0]
        yield _path(known if known == pattern else known.rpartition("/")[0] or "/", cwd, reaches_below=True)


def _foreign_paths(
    permissions: PermissionReader, tool_input: Mapping[str, Any], cwd: str | None
) -> Iterator[RequestedPath]:
    """Of a tool whose fields are not known: each text that begins as a path does. It may read below it."""
    for one in (*permissions.path_fields(tool_input), *filter(_PATH.fullmatch, _texts(tool_input))):
        yield _path(one, cwd, reaches_below=True)


_PATH = re.compile(r"\s*(?:~|\.{0,2}/).*\s*")


def _texts(value: object) -> Iterator[str]:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                yield text
            case list() as values:
                waiting.extend(values)
            case dict() as fields:
                waiting.extend((*fields, *fields.values()))


_LEAVES = re.compile(r"\.\.|\\|\[\.|[{,]\s*[/~,}]|[{},/]\.[{},/]")
"""It may lead elsewhere. `.[.]/x` and `.{.,}/x` are `../x`, and `{,a}/x` is also /x."""


def _path(text: object, cwd: str | None, *, reaches_below: bool = False) -> RequestedPath:
    if not isinstance(text, str) or text != text.strip() or text[:5].lower() == "file:":
        return RequestedPath("", "")  # a tool may take it for another path than we do
    try:
        asked = os.path.join(cwd or "", os.path.expanduser(text))
        real = os.path.realpath(asked) if os.path.isabs(asked) else ""
        real.encode()
        if real and _depends_on_process(asked, reaches_below=reaches_below):
            return RequestedPath("", "")
    except (ValueError, OSError):  # NUL, half of a surrogate pair, a circle of links
        return RequestedPath("", "")
    return RequestedPath(real, "/" + os.path.normpath(asked).lstrip("/") if real else "", reaches_below)


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
