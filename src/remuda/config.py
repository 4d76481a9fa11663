"""The configuration file: Heimdall's keys, and our own.

The first of these that exists is used alone; files are not merged:

    --config FILE            must exist
    ./remuda.toml            then ./heimdall.toml
    <config>/remuda/remuda.toml, then <config>/heimdall/heimdall.toml, with <config> ~/.config or the XDG one

An unknown key or a wrong type is an error that names the file and the key. A file in the working folder may
have come with a clone, or from another user: it can set only the keys in `FOLDER_KEYS`, and another user's is
ignored. The folder of the sessions always comes from the user's own file, so that all commands find the same.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from remuda.durable import read_regular

from .duration import LONGEST
from .errors import InvalidOptions
from .paths import config_home

CLASSIFIERS = ("simple", "claude", "none")
FOLDER_KEYS = frozenset({"classifier", "log_level", "scrollback_bytes", "mouse", "size", "status_bar"})
"""What a file in a working folder may set: how a session looks. Nothing that says what runs, with which
environment, where files are written, which keys leave the session, or what is ended with it. A key that is
added to `Config` is refused there until it is named here."""
FOLDER_SCROLLBACK_BYTES = 1 << 24
"""Each session keeps that much in memory. The user's own file may ask for more."""
_MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Config:
    """What a session is started with if the command line does not say."""

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
    history_bytes: int = 8 << 20
    kill_grace: float = 5.0
    log_max_bytes: int = 1 << 20
    status_bar: bool = True
    mouse: bool = True
    """Whether `attach` takes the mouse wheel where the program does not."""
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
    "history_bytes": (int,),
    "kill_grace": (int, float),
    "log_max_bytes": (int,),
    "status_bar": (bool,),
    "mouse": (bool,),
}


_MOST: dict[str, float] = {
    "detach_key": 255,
    "scrollback_bytes": 1 << 30,
    "history_bytes": 1 << 40,
    "log_max_bytes": 1 << 40,
    "kill_grace": LONGEST,
}
_LONGEST_MS = int(LONGEST * 1000)

_BOSS_TYPES: dict[str, tuple[type, ...]] = {
    "port": (int,),
}


def candidates(cwd: Path, environ: Mapping[str, str]) -> list[Path]:
    base = config_home(environ)
    return [
        cwd / "remuda.toml",
        cwd / "heimdall.toml",
        base / "remuda" / "remuda.toml",
        base / "heimdall" / "heimdall.toml",
    ]


def load_config(
    explicit: Path | None,
    cwd: Path,
    environ: Mapping[str, str],
    *,
    strict: bool = True,
    warn: Callable[[str], object] = str,
) -> Config:
    """`warn` gets a line for a file that is ignored. Without `strict` also for an invalid one in `cwd`."""
    if explicit is not None:
        if not explicit.exists():
            raise InvalidOptions(f"configuration file not found: {explicit}")
        return _read(explicit)  # the user named it: its owner does not matter
    known = candidates(cwd, environ)
    path = next((one for one in known[:2] if _is_usable(one, warn)), None)
    own = own_file(environ)
    if path is None or path in known[2:]:
        return _read_own(path or own)
    try:
        found = _read(path, trusted=False)
    except InvalidOptions as error:
        if strict:
            raise
        warn(f"ignored: {error.message}")
        return _read_own(own)
    return replace(found, socket_dir=_read_own(own).socket_dir)


def load_own_config(environ: Mapping[str, str]) -> Config:
    """The user's own file, whatever is in the working folder."""
    return _read_own(own_file(environ))


def own_file(environ: Mapping[str, str]) -> Path | None:
    return next((one for one in candidates(Path(), environ)[2:] if one.is_file()), None)


def _read_own(path: Path | None) -> Config:
    if path is None:
        return Config()
    if not _is_ours(path):
        raise InvalidOptions(
            f"{path} belongs to another user", hint=f"make it yours: chown {os.getuid()} {path}"
        )
    return _read(path)


def _is_usable(path: Path, warn: Callable[[str], object]) -> bool:
    if not path.is_file():
        return False
    if not (is_ours := _is_ours(path)):
        warn(f"ignored: {path} belongs to another user")
    return is_ours


def _is_ours(path: Path) -> bool:
    try:
        return path.stat().st_uid in (os.getuid(), 0)
    except OSError:  # it went in this moment
        return False


def _check_harmless(document: Mapping[str, Any], path: Path) -> None:
    """A file in the working folder may have come with what was cloned or unpacked there."""
    reason = ""
    if refused := sorted(document.keys() - FOLDER_KEYS):
        reason = f"sets {', '.join(map(repr, refused))}, which a file in a working folder may not set"
    elif document.get("scrollback_bytes", 0) > FOLDER_SCROLLBACK_BYTES:
        reason = f"sets scrollback_bytes above {FOLDER_SCROLLBACK_BYTES}, the maximum in a working folder"
    if reason:
        raise InvalidOptions(
            f"{path} {reason}",
            hint="if you trust it, pass --config FILE to 'start', or move it to ~/.config/remuda/remuda.toml",
        )


def _read(path: Path, *, trusted: bool = True) -> Config:
    try:
        document = tomllib.loads(read_regular(path, _MAX_FILE_BYTES).decode())
    except OSError as error:
        raise InvalidOptions(f"cannot read {path}: {error.strerror}") from error
    except RecursionError:
        raise InvalidOptions(f"{path}: nested too deeply") from None
    except ValueError as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise InvalidOptions(f"{path}: {error}") from error
    config = parse_config(document, path)
    if not trusted:
        _check_harmless(document, path)
    return config


def parse_config(document: Mapping[str, Any], path: Path | None = None) -> Config:
    where = f"{path}: " if path else ""
    values: dict[str, Any] = {"source": path}
    for key, value in document.items():
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
    expected_type = _TYPES[key]
    right = isinstance(value, expected_type) and (bool in expected_type or not isinstance(value, bool))
    if not right or (isinstance(value, (int, float)) and not 0 <= value < math.inf):
        raise InvalidOptions(f"{where}{key} cannot be {_shown(value)}")
    if isinstance(value, (int, float)) and value > (most := _MOST.get(key, math.inf)):
        raise InvalidOptions(f"{where}{key} must be at most {most:.0f}, not {_shown(value)}")
    if key == "session_env_var":
        check_variable(str(value), where + key)
    return value


def _shown(value: object) -> str:
    """Return a value for an error, cut. Python does not print an integer of more than 4,300 digits."""
    try:
        text = repr(value)
    except ValueError:
        return "a number with thousands of digits"
    return text if len(text) <= 60 else f"{text[:60]}…"


def check_variable(name: str, what: str) -> str:
    """Return `name` if it can name a variable of an environment."""
    if not name or "=" in name or "\0" in name:
        raise InvalidOptions(f"{what} cannot be {name!r}", hint="use the name of an environment variable")
    return name


def _classifier(value: object, where: str) -> dict[str, Any]:
    """Read `classifier = "simple"`, or one table `[classifier.simple]` with its thresholds."""
    if isinstance(value, str):
        return {"classifier": _classifier_name(value, where)}
    if not isinstance(value, dict) or len(value) != 1:
        raise InvalidOptions(f"{where}[classifier] needs exactly one of: {', '.join(CLASSIFIERS)}")
    name, table = next(iter(value.items()))
    result: dict[str, Any] = {"classifier": _classifier_name(name, where)}
    if not isinstance(table, dict):
        raise InvalidOptions(f"{where}[classifier.{name}] must be a table, not {_shown(table)}")
    for key, number in table.items():
        known = key in ("idle_threshold_ms", "debounce_ms")
        if not known or type(number) is not int or not 0 <= number <= _LONGEST_MS:
            raise InvalidOptions(f"{where}[classifier.{name}] cannot have {key} = {_shown(number)}")
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
        raise InvalidOptions(f"{where}[boss] must be a table, not {_shown(value)}")
    for key, one in value.items():
        expected_type = _BOSS_TYPES.get(key)
        if expected_type is None:
            raise InvalidOptions(
                f"{where}[boss] has the unknown key {key!r}", hint=f"known: {', '.join(sorted(_BOSS_TYPES))}"
            )
        if not isinstance(one, expected_type) or (isinstance(one, bool) and bool not in expected_type):
            raise InvalidOptions(f"{where}[boss] {key} cannot be {_shown(one)}")
    if not 0 <= value.get("port", 0) <= 65535:
        raise InvalidOptions(f"{where}[boss] port cannot be {_shown(value['port'])}")
    return dict(value)


def _environment(value: object, where: str) -> dict[str, str]:
    entries = value if isinstance(value, list) else []
    result = {}
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        content = entry.get("value") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not isinstance(content, str) or "\0" in content:
            raise InvalidOptions(f"{where}[[env]] needs a name and a value, both strings")
        result[check_variable(name, f"{where}[[env]] name")] = content
    if not result:
        raise InvalidOptions(f"{where}env must be written as [[env]] tables with name and value")
    return result
