"""opencode as a worker of a pool: options as settings, and a new conversation of its server per request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.unattended import DENIED
from remuda.agents.warm import WorkerOptions
from remuda.errors import InvalidOptions
from remuda.untrusted import as_object, dump_json, parse_object

from .headless import NO_QUESTIONS
from .launch import read_words
from .prompting import OpencodePrompts
from .reader import REJECTED

_MISSING = (
    "permission_mode",
    "setting_sources",
    "mcp_config",
    "system_prompt",
    "append_system_prompt",
    "add_dirs",
)
"""Options of the pool that opencode has no setting for."""
_RULE = re.compile(r"(\w+)(?:\((.*)\))?", re.DOTALL)


class OpencodeWarm:
    clear_command = "/new"

    def check_prompt(self, prompt: str) -> None:
        OpencodePrompts().check(prompt, command=False, literal=False)

    def refusals(self, options: WorkerOptions, *, terminal: bool = False) -> list[str]:
        return list(_refusals(options))

    def arguments(self, options: WorkerOptions) -> list[str]:
        if found := [name for name in _MISSING if getattr(options, name)]:
            raise InvalidOptions(
                f"opencode has no {found[0]}", hint="put it into 'settings', if it has a setting"
            )
        settings = _settings(options)
        words = [] if options.model is None else [f"--model={options.model}"]
        words += [f"--settings={dump_json(settings)}"] if settings else []
        return [*words, *options.extra_args]

    def terminal_arguments(
        self, options: WorkerOptions, env: Mapping[str, str], cwd: Path, *, asks: bool
    ) -> list[str]:
        return [*self.arguments(options), *([] if asks else [NO_QUESTIONS])]

    def split_options(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        options: dict[str, Any] = {}
        rest: list[str] = []
        words = list(arguments)
        while words:
            flag, joined, value = words.pop(0).partition("=")
            name = {"-m": "model", "--model": "model", "--settings": "settings"}.get(flag)
            if name is not None and (joined or words):
                options[name] = value if joined else words.pop(0)
            else:
                rest.append(flag + joined + value)
        return options, rest

    def is_denial(self, content: object) -> bool:
        return isinstance(content, str) and content.startswith(REJECTED) and DENIED[:40] in content

    def entrypoint(self, env: Mapping[str, str], pid: int) -> str | None:
        return None


def _settings(options: WorkerOptions) -> dict[str, Any]:
    """Return the settings that the options make. Raises `InvalidOptions`."""
    try:
        settings = parse_object(options.settings) if options.settings else {}
    except ValueError as error:
        raise InvalidOptions(f"settings is not a JSON object: {error}") from error
    given = settings.get("permission")
    rules: dict[str, Any] = {"*": given} if isinstance(given, str) else dict(as_object(given))
    for action, tools in (("allow", options.allowed_tools), ("deny", options.disallowed_tools)):
        for tool in tools:
            found = _RULE.fullmatch(tool)
            if found is None:
                raise InvalidOptions(
                    f"'{tool[:80]}' is not a tool of opencode", hint="write bash or bash(git *)"
                )
            name, pattern = found[1], found[2]
            before = rules.get(name)
            known = before if isinstance(before, dict) else {} if before is None else {"*": before}
            rules[name] = action if pattern is None else {**known, pattern: action}
    return {**settings, **({"permission": rules} if rules else {})}


def _refusals(options: WorkerOptions) -> Iterator[str]:
    try:
        words = read_words(options.extra_args)
    except InvalidOptions as error:
        yield error.message
        return
    if words.conversation or words.last:
        yield "--session and --continue cannot be used in a pool: every conversation of a pool begins fresh"
