"""Where Claude Code's settings files are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from remuda.agents.claude.files import config_folder


def user_file(env: Mapping[str, str]) -> Path:
    return config_folder(env) / "settings.json"


def project_file(cwd: Path) -> Path:
    return cwd / ".claude" / "settings.json"


def local_file(cwd: Path) -> Path:
    """Return the project's file for one user. It is not committed, so it may have paths of this machine."""
    return cwd / ".claude" / "settings.local.json"


def settings_files(env: Mapping[str, str], cwd: Path) -> list[Path]:
    """Return the files that apply in `cwd`; they need not exist."""
    return [user_file(env), project_file(cwd), local_file(cwd)]
