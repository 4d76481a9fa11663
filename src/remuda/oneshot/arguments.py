"""The CLI's arguments, where its terminal interface takes them otherwise than `claude -p` does (2.1.325)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from remuda.agents.claude.files import newest_conversation, titled_conversations
from remuda.agents.claude.flags import split_arguments
from remuda.agents.claude.launch import accept_bypass
from remuda.errors import AgentRefused


def for_terminal(flags: Sequence[str], env: Mapping[str, str], cwd: Path) -> list[str]:
    return accept_bypass(name_conversation(flags, env, cwd), env, cwd)


def name_conversation(flags: Sequence[str], env: Mapping[str, str], cwd: Path) -> list[str]:
    """`--continue` as `--resume ID`, or left out where there is nothing to go on with; a title as its ID.

    The terminal passes over conversations that `claude -p` began, and refuses to begin a new one.
    """
    named: list[str] = []
    for flag, values in split_arguments(flags):
        name, equals, value = (flag or "").partition("=")
        if flag == "--continue":
            found = newest_conversation(env, cwd)
            named += ["--resume", found] if found else []
        elif name == "--resume" and (one := _titled(value if equals else "".join(values[:1]), env, cwd)):
            named += ["--resume", one, *values[1:]]
        else:
            named += [flag, *values] if flag is not None else values
    return named


def _titled(title: str, env: Mapping[str, str], cwd: Path) -> str | None:
    """None where no conversation has that title: it is an ID, or the CLI knows more of it."""
    found = titled_conversations(env, cwd, title)
    if len(found) > 1:
        raise AgentRefused(
            f"--resume {title!r} matches {len(found)} conversations: {', '.join(found)}",
            hint="pass one of these ids",
        )
    return found[0] if found else None
