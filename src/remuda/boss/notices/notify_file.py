"""Where it stands who is told, and reading it: loads nothing that a command would have to wait for."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from remuda.errors import InvalidOptions

from ..folder import BossFolder
from .notify import Settings, read_settings


def notify_file(folder: BossFolder, environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "/"), ".config")
    own, other = folder.path / "notify.toml", Path(base, "remuda", "notify.toml")
    return other if other.exists() and not own.exists() else own


def load_settings(path: Path) -> Settings:
    """Without a file nobody is told. Raises `InvalidOptions` that names the file."""
    try:
        with open(path, "rb") as file:
            return read_settings(tomllib.load(file))
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise InvalidOptions(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, InvalidOptions) as error:
        raise InvalidOptions(f"{path}: {error}") from None
