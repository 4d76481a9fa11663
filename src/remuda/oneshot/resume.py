"""Which conversation a call goes on with, where the CLI's terminal would choose another than `claude -p`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from remuda.agents.claude.files import newest_conversation
from remuda.agents.claude.flags import split_arguments


def name_conversation(flags: Sequence[str], env: Mapping[str, str], cwd: Path) -> list[str]:
    """`--continue` as `--resume ID`, or left out where there is nothing to go on with (2.1.325).

    The terminal passes over conversations that `claude -p` began, and refuses to begin a new one.
    """
    named: list[str] = []
    for flag, values in split_arguments(flags):
        if flag != "--continue":
            named += [flag, *values] if flag is not None else values
        elif found := newest_conversation(env, cwd):
            named += ["--resume", found]
    return named
