"""Whether a stop of Claude Code is final: no Stop hook but ours can make it continue (2.1.325).

A hook in the settings of the user, the project, an administrator or of `--settings` can, and so can those
of plugins, agents and skills. The CLI notices a change of its settings files at once, so they are checked
again at each stop; that costs a `stat` each.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.durable import read_regular

from .files import config_folder, read_settings, settings_files
from .flags import split_arguments

_MANAGED = Path("/Library/Application Support/ClaudeCode" if sys.platform == "darwin" else "/etc/claude-code")
# Flags that bring hooks of their own, or may.
_BRINGING = frozenset(
    [
        "--agent",
        "--agents",
        "--managed-settings",
        "--plugin-dir",
        "--plugin-dir-no-mcp",
        "--plugin-url",
    ]
)
_MOST_SKILLS = 500


class LastWord:
    """Called whenever the agent stops. Returns False if in doubt."""

    def __init__(
        self, arguments: Sequence[str], given: Mapping[str, Any], env: Mapping[str, str], cwd: Path
    ) -> None:
        flags = {flag.partition("=")[0] for flag, _ in split_arguments(arguments) if flag is not None}
        sources = _sources(arguments)
        self._never = bool(flags & _BRINGING) or _has_say(given) or any(_hooked_skills(sources, env, cwd))
        self._files = [*_settings_files(sources, env, cwd), *_managed_files(env)]
        self._seen: list[tuple[int, int, int] | None] | None = None
        self._alone = False

    def __call__(self) -> bool:
        if self._never:
            return False
        found = [_stamp(path) for path in self._files]
        if found != self._seen:
            self._alone = not any(_has_say(read_settings(path)) for path in self._files)
            self._seen = found
        return self._alone


def _has_say(settings: Mapping[str, Any]) -> bool:
    hooks, plugins = settings.get("hooks"), settings.get("enabledPlugins")
    return bool(
        settings.get("agent")
        or (isinstance(hooks, dict) and hooks.get("Stop"))
        or (isinstance(plugins, dict) and any(plugins.values()))
    )


def _sources(arguments: Sequence[str]) -> frozenset[str]:
    """Return the settings files that count: all, unless the arguments name some."""
    chosen = "user,project,local"
    for flag, values in split_arguments(arguments):
        if flag == "--setting-sources":
            chosen = values[0] if values else ""
        elif flag is not None and flag.startswith("--setting-sources="):
            chosen = flag.partition("=")[2]
    return frozenset(name.strip() for name in chosen.split(","))


def _settings_files(sources: frozenset[str], env: Mapping[str, str], cwd: Path) -> Iterator[Path]:
    named = zip(("user", "project", "local"), settings_files(env, cwd), strict=True)
    return (path for name, path in named if name in sources)


def _managed_files(env: Mapping[str, str]) -> Iterator[Path]:
    yield config_folder(env) / "remote-settings.json"
    yield _MANAGED / "managed-settings.json"
    yield from sorted((_MANAGED / "managed-settings.d").glob("*.json"))


def _hooked_skills(sources: frozenset[str], env: Mapping[str, str], cwd: Path) -> Iterator[bool]:
    """A skill or a command may register hooks when it is used."""
    folders = [config_folder(env)] if "user" in sources else []
    if "project" in sources:
        folders += [folder / ".claude" for folder in (cwd, *cwd.parents)]
    files = (path for folder in folders for kind in ("skills", "commands") for path in _pages(folder / kind))
    for count, path in enumerate(files):
        try:
            yield count >= _MOST_SKILLS or b"hooks:" in read_regular(path)
        except OSError:
            yield True


def _pages(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder, followlinks=False):
        yield from (Path(root, name) for name in names if name.endswith(".md"))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
