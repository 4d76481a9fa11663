"""The configuration file: Heimdall's keys, and our own.

The first of these that exists is used alone; files are not merged:

    --config FILE            must exist
    ./remuda.toml            then ./heimdall.toml
    <config>/remuda/remuda.toml, then <config>/heimdall/heimdall.toml, with <config> ~/.config or the XDG one

An unknown key or a wrong type is an error that names the file and the key. A file in the working folder may
have come with a clone, or from another user: it can set only the keys in `FOLDER_KEYS`, and another user's is
ignored. The folder of the sessions and `[boss]` always come from the user's own file, so that all commands
find the same.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from remuda.durable import read_regular

from .duration import LONGEST
from .errors import InvalidOptions
from .names import known_words
from .paths import own_config_file, own_config_files

CLASSIFIERS = ("simple", "claude", "none")
FOLDER_KEYS = frozenset({"classifier", "log_level", "scrollback_bytes", "mouse", "size", "status_bar"})
"""What a file in a working folder may set: how a session looks. Nothing that says what runs, with which
environment, where files are written, which keys leave the session, or what is ended with it. A key that is
added to `Config` is refused there until it is named here."""
FOLDER_SCROLLBACK_BYTES = 1 << 24
"""Each session keeps that much in memory. The user's own file may ask for more."""
_MAX_FILE_BYTES = 1 << 20


def _key(default: Any, most: float = math.inf) -> Any:
    """Return a field for a key whose value has the type of its default: None stands for a string."""
    return field(default=default, metadata={"most": most})


@dataclass(frozen=True, slots=True)
class Config:
    """What a session is started with if the command line does not say."""

    socket_dir: str | None = _key(None)
    scrollback_bytes: int = _key(65536, 1 << 30)
    session_env_var: str = _key("HEIMDALL_SESSION_ID")
    kill_process_group: bool = _key(True)
    log_file: str | None = _key(None)
    log_level: str = _key("info")
    log_filter: str | None = _key(None)
    detach_key: int = _key(28, 255)
    classifier: str | None = None
    idle_threshold_ms: int | None = None
    debounce_ms: int | None = None
    env: dict[str, str] = field(default_factory=dict)
    # ours
    size: str = _key("latest")
    history_bytes: int = _key(8 << 20, 1 << 40)
    kill_grace: float = _key(5.0, LONGEST)
    log_max_bytes: int = _key(1 << 20, 1 << 40)
    status_bar: bool = _key(True)
    mouse: bool = _key(True)
    """Whether `attach` takes the mouse wheel where the program does not."""
    restart_tries: int = _key(5, 1000)
    """How often in a row a session of `--restart` is started again before it is left alone."""
    restart_pause: float = _key(2.0, LONGEST)
    """Seconds before the second try; each further pause is twice as long."""
    sleep_after: float = _key(0.0, LONGEST)
    """Seconds after which the agent of an idle session is ended until it is needed; 0 for never."""
    worktree_folder: str = _key("../{repo}.worktrees")
    """Where `--worktree` makes worktrees: below the repository, unless it is absolute."""
    worktree_setup: str | None = _key(None)
    """A shell command that runs in a new worktree before the agent."""
    worktree_disposable: str = _key("")
    """Names of ignored files and folders that may be removed with a worktree, with blanks between."""
    boss: dict[str, Any] = field(default_factory=dict)
    """The table `[boss]`: what the boss is started with."""
    currency: str = "USD"
    """The currency of `prices`."""
    prices: dict[str, dict[str, float]] = field(default_factory=dict)
    """The table `[prices]`: for a million tokens, by model."""
    source: Path | None = None
    """The file it was read from."""


KEYS = {one.name: one for one in fields(Config) if "most" in one.metadata}
_LONGEST_MS = int(LONGEST * 1000)

_PRICED = ("input", "output", "cache_read", "cache_write")
_MOST_PRICE = 1e9
BOSS_KEYS: dict[str, tuple[type, ...]] = {
    "port": (int,),
    # where it can be reached besides loopback: see boss/access.py
    "listen": (str,),
    "tls_cert": (str,),
    "tls_key": (str,),
    "public_url": (str,),
    "trusted_proxy": (str, list),
}
"""The keys of the table `[boss]`, and the types of their values."""


def candidates(cwd: Path, environ: Mapping[str, str]) -> list[Path]:
    return [cwd / "remuda.toml", cwd / "heimdall.toml", *own_config_files(environ)]


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
    own = own_config_file(environ)
    if path is None or path in known[2:]:
        return _read_own(path or own)
    try:
        found = _read(path, trusted=False)
    except InvalidOptions as error:
        if strict:
            raise
        warn(f"ignored: {error.message}")
        return _read_own(own)
    mine = _read_own(own)
    return replace(found, socket_dir=mine.socket_dir, boss=mine.boss)


def load_own_config(environ: Mapping[str, str]) -> Config:
    """Return the user's own file, whatever is in the working folder."""
    return _read_own(own_config_file(environ))


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
        elif key == "prices":
            values |= _prices(value, where)
        elif key in KEYS:
            values[key] = _checked(key, value, where)
        else:
            raise InvalidOptions(
                f"{where}unknown key {key!r}",
                hint=known_words(key, ("boss", "classifier", "env", "prices", *sorted(KEYS))),
            )
    return Config(**values)


def _checked(key: str, value: object, where: str) -> object:
    default, most = KEYS[key].default, KEYS[key].metadata["most"]
    kind = str if default is None else type(default)
    right = type(value) is kind or (kind is float and type(value) is int)
    if isinstance(value, str) and "\0" in value:  # neither a path nor an argument can hold it
        right = False
    if not right or (isinstance(value, (int, float)) and not 0 <= value < math.inf):
        raise InvalidOptions(f"{where}{key} cannot be {_shown(value)}")
    if isinstance(value, (int, float)) and value > most:
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
        types = BOSS_KEYS.get(key)
        if types is None:
            raise InvalidOptions(
                f"{where}[boss] has the unknown key {key!r}", hint=known_words(key, sorted(BOSS_KEYS))
            )
        if not isinstance(one, types) or isinstance(one, bool):
            raise InvalidOptions(f"{where}[boss] {key} cannot be {_shown(one)}")
    if not 0 <= value.get("port", 0) <= 65535:
        raise InvalidOptions(f"{where}[boss] port cannot be {_shown(value['port'])}")
    return dict(value)


def _prices(value: object, where: str) -> dict[str, Any]:
    """Read `[prices]` with a currency, and a table `[prices."MODEL"]` for each model."""
    if not isinstance(value, dict):
        raise InvalidOptions(f"{where}[prices] must be a table, not {_shown(value)}")
    tables = dict(value)
    currency = tables.pop("currency", "USD")
    if not isinstance(currency, str) or not re.fullmatch("[A-Z]{3}", currency):
        raise InvalidOptions(f"{where}[prices] currency cannot be {_shown(currency)}", hint='write "USD"')
    models = {}
    for model, table in tables.items():
        if not isinstance(table, dict):
            raise InvalidOptions(f'{where}[prices."{model[:60]}"] must be a table, not {_shown(table)}')
        models[model] = {key: _price(model, key, one, where) for key, one in table.items()}
    return {"currency": currency, "prices": models}


def _price(model: str, key: str, value: object, where: str) -> float:
    right = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _MOST_PRICE
    if key not in _PRICED or not right:
        raise InvalidOptions(
            f'{where}[prices."{model[:60]}"] cannot have {key[:60]} = {_shown(value)}',
            hint=f"known: {', '.join(_PRICED)}, each for a million tokens",
        )
    assert isinstance(value, (int, float))
    return float(value)


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
