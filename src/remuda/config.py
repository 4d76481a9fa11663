"""The configuration file: Heimdall's keys, and ours beside them.

The first of these that exists is used, whole; files are not merged:

    --config FILE            must exist
    ./remuda.toml            then ./heimdall.toml
    <config>/remuda/remuda.toml, then <config>/heimdall/heimdall.toml, with <config> ~/.config or the XDG one

An unknown key, a wrong type or a file of another user is an error that names the file and the key.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .errors import InvalidOptions

CLASSIFIERS = ("simple", "claude", "none")


@dataclass(frozen=True, slots=True)
class Config:
    """What a session is started with where the command line says nothing."""

    socket_dir: str | None = None
    scrollback_bytes: int = 65536
    session_env_var: str = "HEIMDALL_SESSION_ID"
    kill_process_group: bool = True
    log_file: str | None = None
    log_level: str = "info"
    log_filter: str | None = None
    detach_key: int = 28
    classifier: str | None = None
    idle_threshold_ms: int | None = None
    debounce_ms: int | None = None
    env: dict[str, str] = field(default_factory=dict)
    # ours
    size: str = "latest"
    kill_grace: float = 5.0
    log_max_bytes: int = 1 << 20
    status_bar: bool = True
    boss: dict[str, Any] = field(default_factory=dict)
    """The table `[boss]`: what the boss is started with."""
    source: Path | None = None
    """The file it was read from."""


_TYPES: dict[str, tuple[type, ...]] = {
    "socket_dir": (str,),
    "scrollback_bytes": (int,),
    "session_env_var": (str,),
    "kill_process_group": (bool,),
    "log_file": (str,),
    "log_level": (str,),
    "log_filter": (str,),
    "detach_key": (int,),
    "size": (str,),
    "kill_grace": (int, float),
    "log_max_bytes": (int,),
    "status_bar": (bool,),
}


_BOSS_TYPES: dict[str, tuple[type, ...]] = {
    "port": (int,),
}


def candidates(cwd: Path, environ: Mapping[str, str]) -> list[Path]:
    base = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "/")) / ".config")
    return [
        cwd / "remuda.toml",
        cwd / "heimdall.toml",
        base / "remuda" / "remuda.toml",
        base / "heimdall" / "heimdall.toml",
    ]


def load_config(explicit: Path | None, cwd: Path, environ: Mapping[str, str]) -> Config:
    if explicit is not None:
        if not explicit.is_file():
            raise InvalidOptions(f"configuration file not found: {explicit}")
        return _read(explicit)  # named in so many words: whose it is does not matter
    for path in candidates(cwd, environ):
        if path.is_file():
            _check_owner(path)
            config = _read(path)
            if path.parent == cwd:
                _check_harmless(config)
            return config
    return Config()


def _check_owner(path: Path) -> None:
    # It can set a program's environment: a file that somebody else put in our way is not ours to obey.
    if path.stat().st_uid not in (os.getuid(), 0):
        raise InvalidOptions(
            f"{path} belongs to another user", hint="name it with --config to use it all the same"
        )


def _check_harmless(config: Config) -> None:
    """A file in the working folder comes with whatever was cloned or unpacked there."""
    reaching = [key for key in ("env", "log_file", "socket_dir", "boss") if getattr(config, key)]
    if reaching:
        raise InvalidOptions(
            f"{config.source} sets {', '.join(reaching)}, which a file in the working folder may not",
            hint="name it with --config if you trust it, or move it to ~/.config/remuda/remuda.toml",
        )


def _read(path: Path) -> Config:
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidOptions(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidOptions(f"{path}: {error}") from error
    return parse_config(found, path)


def parse_config(found: Mapping[str, Any], path: Path | None = None) -> Config:
    where = f"{path}: " if path else ""
    values: dict[str, Any] = {"source": path}
    for key, value in found.items():
        if key == "classifier":
            values |= _classifier(value, where)
        elif key == "env":
            values["env"] = _environment(value, where)
        elif key == "boss":
            values["boss"] = _boss(value, where)
        elif key in _TYPES:
            values[key] = _checked(key, value, where)
        else:
            known = ", ".join(sorted(one.name for one in fields(Config) if one.name in _TYPES))
            raise InvalidOptions(f"{where}unknown key {key!r}", hint=f"known: boss, classifier, env, {known}")
    return Config(**values)


def _checked(key: str, value: object, where: str) -> object:
    wanted = _TYPES[key]
    right = isinstance(value, wanted) and (bool in wanted or not isinstance(value, bool))
    if not right or (isinstance(value, (int, float)) and not 0 <= value < math.inf):
        raise InvalidOptions(f"{where}{key} cannot be {value!r}")
    if key == "detach_key" and isinstance(value, int) and value > 255:
        raise InvalidOptions(f"{where}detach_key is one byte, not {value}")
    if key == "session_env_var":
        check_variable(str(value), where + key)
    return value


def check_variable(name: str, what: str) -> str:
    """Return `name` if it can name a variable of an environment."""
    if not name or "=" in name or "\0" in name:
        raise InvalidOptions(f"{what} cannot be {name!r}", hint="it names a variable of the environment")
    return name


def _classifier(value: object, where: str) -> dict[str, Any]:
    """`classifier = "simple"`, or one table `[classifier.simple]` with its thresholds."""
    if isinstance(value, str):
        return {"classifier": _classifier_name(value, where)}
    if not isinstance(value, dict) or len(value) != 1:
        raise InvalidOptions(f"{where}[classifier] needs exactly one of: {', '.join(CLASSIFIERS)}")
    name, table = next(iter(value.items()))
    result: dict[str, Any] = {"classifier": _classifier_name(name, where)}
    if not isinstance(table, dict):
        raise InvalidOptions(f"{where}[classifier.{name}] must be a table, not {table!r}")
    for key, number in table.items():
        if key not in ("idle_threshold_ms", "debounce_ms") or type(number) is not int or number < 0:
            raise InvalidOptions(f"{where}[classifier.{name}] cannot have {key} = {number!r}")
        result[key] = number
    return result


def _classifier_name(name: str, where: str) -> str:
    if name not in CLASSIFIERS:
        raise InvalidOptions(
            f"{where}unknown classifier {name!r}", hint=f"use one of: {', '.join(CLASSIFIERS)}"
        )
    return name


def _boss(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidOptions(f"{where}[boss] must be a table, not {value!r}")
    for key, one in value.items():
        wanted = _BOSS_TYPES.get(key)
        if wanted is None:
            raise InvalidOptions(
                f"{where}[boss] cannot have {key!r}", hint=f"known: {', '.join(sorted(_BOSS_TYPES))}"
            )
        if not isinstance(one, wanted) or (isinstance(one, bool) and bool not in wanted):
            raise InvalidOptions(f"{where}[boss] {key} cannot be {one!r}")
    if not 0 <= value.get("port", 0) <= 65535:
        raise InvalidOptions(f"{where}[boss] port cannot be {value['port']}")
    return dict(value)


def _environment(value: object, where: str) -> dict[str, str]:
    entries = value if isinstance(value, list) else []
    result = {}
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        content = entry.get("value") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not isinstance(content, str) or "\0" in content:
            raise InvalidOptions(f"{where}[[env]] needs a name and a value, both texts")
        result[check_variable(name, f"{where}[[env]] name")] = content
    if not result:
        raise InvalidOptions(f"{where}env must be written as [[env]] tables with name and value")
    return result
