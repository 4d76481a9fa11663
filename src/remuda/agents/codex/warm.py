"""codex in a pool: which options of a profile it can honour. Pure.

One app-server serves many requests of one profile, each in a thread of its own that is not saved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Never

from remuda.agents.warm import WorkerOptions
from remuda.errors import InputError, InvalidOptions

from .launch import split_words

_UNKNOWN = {
    "allowed_tools": "codex has no list of allowed tools",
    "disallowed_tools": "codex has no list of tools",
    "settings": "codex has no settings file; pass -c in extra_args",
    "setting_sources": "codex has no setting sources",
    "mcp_config": "codex takes MCP servers from its configuration; pass -c in extra_args",
}
_PASSED = ("-c", "--config", "--enable", "--disable", "--strict-config")
_SANDBOXES = ("-s", "--sandbox")
_NO_TERMINAL = "codex in a pool has no terminal: use backend='stream' (or leave it out)"


class CodexWarm:
    clear_command = "/new"
    default_backend = "stream"

    def check_prompt(self, prompt: str) -> None:
        if not prompt.strip():
            raise InputError("the prompt is empty")

    def refusals(self, options: WorkerOptions, *, terminal: bool = False) -> list[str]:
        found = [_NO_TERMINAL] if terminal else []
        found += [why for name, why in _UNKNOWN.items() if getattr(options, name)]
        words = split_words(options.extra_args)
        if words.command or words.rest:
            found.append(f"extra_args has {(words.command or words.rest[0])!r}, which is not an option")
        for one in words.options:
            if not one[0].startswith((*_PASSED, *_SANDBOXES)):
                found.append(f"{one[0]} cannot be used in a pool: the server of codex has no such option")
        return found

    def arguments(self, options: WorkerOptions) -> list[str]:
        """Return the words for the server. The rest of the options are set for each thread."""
        if refusals := self.refusals(options):
            raise InvalidOptions("; ".join(refusals))
        words = split_words(options.extra_args)
        return [word for one in words.options if one[0].startswith(_PASSED) for word in one]

    def terminal_arguments(
        self, options: WorkerOptions, env: Mapping[str, str], cwd: Path, *, asks: bool
    ) -> Never:
        raise InvalidOptions(_NO_TERMINAL)

    def split_options(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        options: dict[str, Any] = {}
        rest: list[str] = []
        words = split_words(arguments)
        for one in words.options:
            name = one[0].partition("=")[0]
            if name in ("-m", "--model"):
                options["model"] = one[-1].partition("=")[2] if "=" in one[0] else one[-1]
            elif name == "--add-dir":
                options.setdefault("add_dirs", []).append(
                    one[-1].partition("=")[2] if "=" in one[0] else one[-1]
                )
            else:
                rest += one
        return options, [*rest, *([words.command] if words.command else []), *words.rest]

    def is_denial(self, content: object) -> bool:
        return "rejected by user" in str(content)

    def entrypoint(self, env: Mapping[str, str], pid: int) -> str | None:
        return None


def thread_options(options: WorkerOptions, cwd: str) -> dict[str, Any]:
    """Return the parameters of `thread/start`. A setting of a turn would stick (0.166.0), one of a thread
    ends with it."""
    words = split_words(options.extra_args)
    config = {"sandbox_workspace_write.writable_roots": list(options.add_dirs)} if options.add_dirs else None
    given = {
        "cwd": cwd,
        "model": options.model,
        "baseInstructions": options.system_prompt,
        "developerInstructions": options.append_system_prompt,
        "approvalPolicy": options.permission_mode,
        "sandbox": next(iter(words.values(*_SANDBOXES)), None),
        "config": config,
    }
    return {"ephemeral": True, **{key: value for key, value in given.items() if value is not None}}
