"""Where the policy stands, and reading it: loads nothing that a command would have to wait for."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from remuda.errors import InvalidOptions
from remuda.paths import config_home

from ..folder import BossFolder, read_own
from .policy import Decision, Place, Policy, Rule
from .reading import Words
from .request import CommandTools


def policy_file(folder: BossFolder, environ: Mapping[str, str]) -> Path:
    """The first that exists: in the boss's folder, or beside the configuration."""
    own = folder.path / "policy.toml"
    other = config_home(environ) / "remuda" / "policy.toml"
    return other if other.exists() and not own.exists() else own


def load_policy(path: Path) -> Policy:
    """Without a file, nothing is decided. Raises `InvalidOptions` that names the file."""
    try:
        text = read_own(path).decode()
        return read_policy(tomllib.loads(text), os.path.expanduser("~"), os.path.realpath)
    except FileNotFoundError:
        return Policy()
    except OSError as error:
        raise InvalidOptions(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not TOML, or a number or a nesting without end
        raise InvalidOptions(f"{path}: {error}") from error
    except InvalidOptions as error:
        if str(path) in error.message:
            raise
        raise InvalidOptions(f"{path}: {error.message}", hint=error.hint) from None


# ── reading it ──

_LISTS = ("tool", "command", "path", "folder", "session")
_KEYS = ("name", "decision", "message", *_LISTS)


Resolve = Callable[[str], str]
"""A path without symbolic links."""


def read_policy(document: Mapping[str, Any], home: str, resolve: Resolve) -> Policy:
    """Raises `InvalidOptions` that says which rule, and what is wrong. `home` is what ~ means."""
    for key in document:
        if key not in ("rule", "dry_run", "command_tools"):
            raise InvalidOptions(
                f"unknown key {key!r}", hint="known: dry_run, [command_tools] and [[rule]] tables"
            )
    dry_run, rules = document.get("dry_run", False), document.get("rule", [])
    if not isinstance(dry_run, bool):
        raise InvalidOptions(f"dry_run must be true or false, not {dry_run!r}")
    if not isinstance(rules, list) or not all(isinstance(one, dict) for one in rules):
        raise InvalidOptions("rules must be [[rule]] tables")
    read = tuple(_rule(number, one, home, resolve) for number, one in enumerate(rules, 1))
    return Policy(read, dry_run, _command_tools(document.get("command_tools", {})))


def _command_tools(given: object) -> CommandTools:
    if not isinstance(given, dict):
        raise InvalidOptions("command_tools must be a table of tool names")
    for tool, name in given.items():
        if name is not False and (not isinstance(name, str) or not name):
            raise InvalidOptions(
                f"command_tools: {tool!r} has the value {name!r}",
                hint="write the name of the field with the command, or false if the tool runs no commands",
            )
    return {tool: name or None for tool, name in given.items()}


def _rule(number: int, given: Mapping[str, Any], home: str, resolve: Resolve) -> Rule:
    where = f"rule {number}"
    for key in given:
        if key not in _KEYS:
            raise InvalidOptions(f"{where}: unknown key {key!r}", hint=f"known: {', '.join(_KEYS)}")
    try:
        decision = Decision(given.get("decision", ""))
    except ValueError:
        raise InvalidOptions(f"{where}: decision must be allow, deny or ask") from None
    found = {key: _texts(given[key], f"{where}: {key}") for key in _LISTS if key in given}
    if decision is Decision.ALLOW and not found:
        raise InvalidOptions(f"{where} allows everything", hint='write tool = "*" if you mean that')
    name, message = given.get("name", where), given.get("message", "")
    if not isinstance(name, str) or not isinstance(message, str):
        raise InvalidOptions(f"{where}: name and message must be strings")
    if message and decision is not Decision.DENY:
        raise InvalidOptions(f'{where}: message needs decision = "deny"')
    return Rule(
        name,
        decision,
        found.get("tool", ()),
        tuple(_command(one, where) for one in found.get("command", ())),
        tuple(_place(one, home, resolve, f"{where}: path") for one in found.get("path", ())),
        tuple(_place(one, home, resolve, f"{where}: folder") for one in found.get("folder", ())),
        found.get("session", ()),
        message,
    )


def _texts(value: object, where: str) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(one, str) and one for one in texts):
        raise InvalidOptions(f"{where} must be a string or a list of strings")
    return tuple(texts)


def _command(text: str, where: str) -> Words:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidOptions(f"{where}: cannot read the command {text!r}: {error}") from None
    if not words:
        raise InvalidOptions(f"{where}: the command is empty")
    return words


def _place(text: str, home: str, resolve: Resolve, where: str) -> Place:
    path = home + text[1:] if text == "~" or text.startswith("~/") else text
    if not path.startswith("/"):
        raise InvalidOptions(f"{where} {text!r} must begin with / or ~")
    wild = re.search(r"[*?]", path)
    cut = path.rfind("/", 0, wild.start()) if wild else len(path)
    try:
        real = resolve(path[:cut] or "/")
    except ValueError:
        raise InvalidOptions(f"{where} {text!r} is not a path") from None
    return Place("/" + os.path.normpath(path).lstrip("/"), real.rstrip("/") + path[cut:].rstrip("/") or "/")
