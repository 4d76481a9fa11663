"""Arguments for Claude Code where no person sits at its terminal (2.1.325).

Its terminal interface takes some flags differently from `claude -p`, which `remuda print` replaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from remuda.agents.claude.files import newest_conversation, titled_conversations
from remuda.agents.claude.flags import split_arguments
from remuda.agents.claude.launch import accept_bypass
from remuda.errors import AgentRefused

_NO_SETTINGS = "--setting-sources="
_NO_QUESTIONS = "--disallowedTools=AskUserQuestion"  # `claude -p` does not have it either


def terminal_arguments(
    passed: Sequence[str], env: Mapping[str, str], cwd: Path, *, inherit_hooks: bool, asks: bool
) -> list[str]:
    """Return the arguments of a call of `print`. Raises `AgentRefused`. `asks`: a person can answer."""
    flags = accept_bypass(name_conversation(passed, env, cwd), env, cwd)
    if not inherit_hooks:
        flags.append(_NO_SETTINGS)
    return flags if asks else [*flags, _NO_QUESTIONS]


def stream_arguments(passed: Sequence[str], *, inherit_hooks: bool, partial: bool) -> list[str]:
    """Return the arguments of a call on the stream backend."""
    words = ["-p", "--output-format", "stream-json", "--verbose"]
    if partial:
        words.append("--include-partial-messages")
    if not inherit_hooks:
        words.append(_NO_SETTINGS)
    return [*words, *passed]


def name_conversation(flags: Sequence[str], env: Mapping[str, str], cwd: Path) -> list[str]:
    """Replace `--continue` by `--resume ID`, or remove it without a conversation; replace a title by its id.

    The terminal skips conversations that `claude -p` began, and refuses to begin a new one.
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
    """Return the id of the conversation with this title; None if there is none, as for an id."""
    found = titled_conversations(env, cwd, title)
    if len(found) > 1:
        raise AgentRefused(
            f"--resume {title!r} matches {len(found)} conversations: {', '.join(found)}",
            hint="pass one of these ids",
        )
    return found[0] if found else None
