"""Defaults of `remuda print` from the file that claude-print reads.

    --config FILE, else $XDG_CONFIG_HOME/claude-print/config.toml, else ~/.config/claude-print/config.toml

A missing file is not an error, even if it was named. An unknown key, or a value of another type or out of
range, is one. Flags override the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from remuda.durable import read_regular
from remuda.errors import InvalidOptions
from remuda.frozen import frozen
from remuda.paths import config_home

from .request import PrintRequest

_MAX_TURNS = 1000
_MAX_TIMEOUT = 86_400


@frozen
class Defaults:
    model: str | None = None
    inherit_hooks: bool | None = None
    max_turns: int | None = None
    timeout_secs: float | None = None
    source: Path | None = None
    """The file that was read; None if there is none."""


def config_file(named: str | None, environ: Mapping[str, str]) -> Path:
    if named is not None:
        return Path(named).expanduser()
    return config_home(environ) / "claude-print" / "config.toml"


def load_defaults(named: str | None, environ: Mapping[str, str]) -> Defaults:
    """Read the file. Raises `InvalidOptions` if it cannot be read or is wrong."""
    path = config_file(named, environ)
    try:
        data = read_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return Defaults()
    except OSError as error:
        raise InvalidOptions(f"cannot read {path}: {error.strerror}") from error
    import tomllib  # most users have no such file

    try:
        document = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidOptions(f"{path} is not TOML: {error}") from error
    return read_defaults(document, path)


def read_defaults(document: Mapping[str, Any], path: Path) -> Defaults:
    for name in document:
        if name != "defaults":
            raise InvalidOptions(f"{path}: unknown key '{name}'", hint="the only table is [defaults]")
    table = document.get("defaults", {})
    if not isinstance(table, dict):
        raise InvalidOptions(f"{path}: 'defaults' must be a table")
    for name, value in table.items():
        check = _CHECKS.get(name)
        if check is None:
            raise InvalidOptions(f"{path}: unknown key '{name}'", hint=f"known keys: {', '.join(_CHECKS)}")
        wanted, is_right = check
        if not is_right(value):
            raise InvalidOptions(f"{path}: '{name}' must be {wanted}, not {value!r}")
    return Defaults(**table, source=path)


def _is_integer(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


_CHECKS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "model": ("the name of a model", lambda value: isinstance(value, str) and value[:1] not in ("", "-")),
    "inherit_hooks": ("true or false", lambda value: isinstance(value, bool)),
    "max_turns": (f"an integer from 1 to {_MAX_TURNS}", lambda value: _is_integer(value, _MAX_TURNS)),
    "timeout_secs": (
        f"an integer from 1 to {_MAX_TIMEOUT}",
        lambda value: _is_integer(value, _MAX_TIMEOUT),
    ),
}


def apply_defaults(request: PrintRequest, defaults: Defaults) -> None:
    """Set what the command line did not."""
    if request.timeout is None:
        request.timeout = defaults.timeout_secs
    if request.model is None and defaults.model is not None:
        request.model = defaults.model
        request.passed += ["--model", defaults.model]
    if request.max_turns is None and defaults.max_turns is not None:
        request.max_turns = defaults.max_turns
        if request.backend == "stream":
            request.passed += ["--max-turns", str(defaults.max_turns)]
    chose_sources = any(word.partition("=")[0] == "--setting-sources" for word in request.passed)
    if request.inherit_hooks is None and not chose_sources:
        request.inherit_hooks = defaults.inherit_hooks
