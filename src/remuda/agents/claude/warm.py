"""Claude Code as a worker of a pool that runs on a terminal (2.1.325).

What a short command such as `remuda ask` does not need is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.warm import WorkerOptions
from remuda.errors import InputError

from .flags import split_arguments

_ONE_VALUE = {
    "--model": "model",
    "--permission-mode": "permission_mode",
    "--settings": "settings",
    "--setting-sources": "setting_sources",
    "--system-prompt": "system_prompt",
    "--append-system-prompt": "append_system_prompt",
}
_MANY_VALUES = {
    "--allowedTools": "allowed_tools",
    "--disallowedTools": "disallowed_tools",
    "--mcp-config": "mcp_config",
    "--add-dir": "add_dirs",
}


class ClaudeWarm:
    clear_command = "/clear"
    prompt_event = "UserPromptSubmit"

    def check_prompt(self, text: str) -> None:
        from . import prompt

        try:
            prompt.check(text, command=False, literal=False)
        except InputError as error:
            hint = "put a word before it" if prompt.looks_like_command(text) else error.hint
            raise InputError(error.message, hint=hint) from None

    def refusals(self, options: WorkerOptions, *, terminal: bool = False) -> list[str]:
        from .profile import refusals

        return refusals(options, terminal=terminal)

    def arguments(self, options: WorkerOptions) -> list[str]:
        from .profile import arguments

        return arguments(options)

    def terminal_arguments(
        self, options: WorkerOptions, env: Mapping[str, str], cwd: Path, *, asks: bool
    ) -> list[str]:
        from .launch import accept_bypass

        flags = accept_bypass(self.arguments(options), env, cwd)
        if not asks:
            flags.append("--disallowedTools=AskUserQuestion")  # `claude -p` does not have it either
        return flags

    def split_options(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        options: dict[str, Any] = {}
        rest: list[str] = []
        for word, following in split_arguments(arguments):
            flag, equals, value = (word or "").partition("=")
            values = [value] if equals else following
            if flag in _ONE_VALUE:
                options[_ONE_VALUE[flag]] = values[-1]
            elif flag in _MANY_VALUES:
                options.setdefault(_MANY_VALUES[flag], []).extend(values)
            else:
                rest += [word, *following] if word is not None else following
        return options, rest

    def is_denial(self, content: object) -> bool:
        from .answers import DENIED

        return DENIED in str(content)

    def entrypoint(self, env: Mapping[str, str], pid: int) -> str | None:
        from remuda.durable import read_regular
        from remuda.untrusted import parse_json

        from .files import registry_file

        try:
            entry = parse_json(read_regular(registry_file(env, pid)))
            name = entry.get("entrypoint")
        except (OSError, ValueError, AttributeError):  # it is rewritten in place
            return None
        return name if isinstance(name, str) else None
