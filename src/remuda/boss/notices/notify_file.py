"""Where it stands who is told, and reading it: loads nothing that a command would have to wait for."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from remuda.errors import InvalidOptions
from remuda.paths import config_home

from ..folder import BossFolder, read_own
from .notify import Settings, read_settings


def notify_file(folder: BossFolder, environ: Mapping[str, str]) -> Path:
    own, other = folder.path / "notify.toml", config_home(environ) / "remuda" / "notify.toml"
    return other if other.exists() and not own.exists() else own


def load_settings(path: Path) -> Settings:
    """Without a file nobody is told. Raises `InvalidOptions` that names the file."""
    try:
        return read_settings(tomllib.loads(read_own(path).decode()))
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise InvalidOptions(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not TOML, or a nesting without end
        raise InvalidOptions(f"{path}: {error}") from error
    except InvalidOptions as error:
        if str(path) in error.message:
            raise
        raise InvalidOptions(f"{path}: {error.message}", hint=error.hint) from None
