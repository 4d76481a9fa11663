"""Hooks and permission rules from the settings: the user's, the project's, those of ``--settings``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remuda.durable import read_regular

from .agent_flags import AgentFlags, UsageError


def config_dir(environ: Mapping[str, str]) -> Path:
    """Return where transcripts, registry and user settings are."""
    return Path(environ.get("CLAUDE_CONFIG_DIR") or Path(environ.get("HOME", "/")) / ".claude")


def global_config(environ: Mapping[str, str]) -> Path:
    """Return the file that remembers trusted folders."""
    moved = environ.get("CLAUDE_CONFIG_DIR")
    return Path(moved or environ.get("HOME", "/")) / ".claude.json"


@dataclass(frozen=True, slots=True)
class Hook:
    """One hook as the settings name it."""

    event: str
    matcher: str
    kind: str
    target: str
    arguments: tuple[str, ...] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    allowed_variables: frozenset[str] = frozenset()
    timeout: float | None = None
    in_background: bool = False


@dataclass(slots=True)
class Settings:
    """What all sources say together."""

    hooks: list[Hook] = field(default_factory=list)
    allow: list[str] = field(default_factory=list)
    deny: list[str] = field(default_factory=list)
    ask: list[str] = field(default_factory=list)
    mode: str | None = None
    model: str | None = None
    fullscreen: bool = True


class Sources:
    """Reads the settings again for every event, as the real program does; ``--settings`` only once."""

    def __init__(self, options: AgentFlags, environ: Mapping[str, str], cwd: Path) -> None:
        self._hooks_off = options.hooks_off
        self._given = _given(options.settings)
        files = {
            "user": config_dir(environ) / "settings.json",
            "project": cwd / ".claude/settings.json",
            "local": cwd / ".claude/settings.local.json",
        }
        self._files = [path for name, path in files.items() if name in options.setting_sources]

    def load(self) -> Settings:
        """Return the settings as they are now. A file that is missing or broken counts as empty."""
        documents = [*map(_read, self._files), self._given]
        settings = Settings()
        for document in documents:
            _add(settings, document)
        if self._hooks_off or any(document.get("disableAllHooks") is True for document in documents):
            settings.hooks = []
        return settings


def trusted(path: Path, cwd: Path) -> bool | None:
    """Whether the global configuration trusts ``cwd`` or a folder above it; None without such a file."""
    if not path.exists():
        return None
    projects = _read(path).get("projects")
    if not isinstance(projects, dict):
        return False
    folders = (projects.get(str(folder)) for folder in (cwd, *cwd.parents))
    return any(isinstance(entry, dict) and entry.get("hasTrustDialogAccepted") is True for entry in folders)


def trust(path: Path, cwd: Path) -> None:
    """Remember that ``cwd`` is trusted."""
    document = _read(path)
    projects = document.setdefault("projects", {})
    if isinstance(projects, dict) and isinstance(entry := projects.setdefault(str(cwd), {}), dict):
        entry["hasTrustDialogAccepted"] = True
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(document, indent=2))
    draft.replace(path)


def idle_threshold(path: Path) -> float:
    """Seconds of silence after a turn before the user is notified that the agent waits."""
    value = _read(path).get("messageIdleNotifThresholdMs")
    return value / 1000 if isinstance(value, (int, float)) else 60.0


def _given(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        return _object(json.loads(text if text.lstrip().startswith("{") else Path(text).read_text()))
    except OSError:
        raise UsageError(f"Error: Settings file not found: {text}") from None
    except ValueError as error:
        raise UsageError(f"Error: Invalid JSON provided to --settings: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return _object(json.loads(read_regular(path)))
    except (OSError, ValueError):
        return {}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _add(settings: Settings, document: Mapping[str, Any]) -> None:
    settings.hooks += _hooks(_object(document.get("hooks")))
    permissions = _object(document.get("permissions"))
    for name in ("allow", "deny", "ask"):
        getattr(settings, name).extend(permissions.get(name) or ())
    settings.mode = permissions.get("defaultMode") or settings.mode
    settings.model = document.get("model") or settings.model
    if "tui" in document:
        settings.fullscreen = document["tui"] != "default"


def _hooks(by_event: Mapping[str, Any]) -> Iterator[Hook]:
    for event, groups in by_event.items():
        for group in groups if isinstance(groups, list) else ():
            for entry in _object(group).get("hooks") or ():
                if hook := _hook(event, str(_object(group).get("matcher") or ""), _object(entry)):
                    yield hook


def _hook(event: str, matcher: str, entry: Mapping[str, Any]) -> Hook | None:
    kind = entry.get("type")
    target = entry.get("url" if kind == "http" else "command")
    if kind not in ("command", "http") or not isinstance(target, str):
        return None
    arguments = entry.get("args")
    timeout = entry.get("timeout")
    return Hook(
        event=event,
        matcher=matcher,
        kind=kind,
        target=target,
        arguments=tuple(map(str, arguments)) if isinstance(arguments, list) else None,
        headers={str(k): str(v) for k, v in _object(entry.get("headers")).items()},
        allowed_variables=frozenset(map(str, entry.get("allowedEnvVars") or ())),
        timeout=float(timeout) if isinstance(timeout, (int, float)) else None,
        in_background=entry.get("async") is True,
    )
