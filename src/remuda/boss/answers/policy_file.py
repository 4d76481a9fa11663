"""Where the policy stands, and reading it: loads nothing that a command would have to wait for."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path

from remuda.errors import InvalidOptions

from ..folder import BossFolder
from .policy import Policy, read_policy


def policy_file(folder: BossFolder, environ: Mapping[str, str]) -> Path:
    """The first that exists: in the boss's folder, or beside the configuration."""
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "/"), ".config")
    own = folder.path / "policy.toml"
    other = Path(base, "remuda", "policy.toml")
    return other if other.exists() and not own.exists() else own


def load_policy(path: Path) -> Policy:
    """Without a file, nothing is decided. Raises `InvalidOptions` that names the file."""
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_uid not in (os.getuid(), 0) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise InvalidOptions(
                    f"{path} could be written by others", hint=f"make it yours alone: chmod 600 {path}"
                )
            return read_policy(tomllib.load(file), os.path.expanduser("~"), os.path.realpath)
    except FileNotFoundError:
        return Policy()
    except OSError as error:
        raise InvalidOptions(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidOptions(f"{path}: {error}") from error
    except InvalidOptions as error:
        if str(path) in error.message:
            raise
        raise InvalidOptions(f"{path}: {error.message}", hint=error.hint) from None
