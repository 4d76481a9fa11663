"""Rules that answer requests for leave in place of a human. Pure: a table in, decisions out.

The first rule that fits decides, and what no rule fits is asked. A shell command is decided part by part: one
part that is denied denies it, and it is allowed only if every part of it is (`shell`). A question is
never answered by a rule, and a plan only by one that names its tool.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from remuda.errors import InvalidOptions

from ..attention.model import Reason
from . import shell


class Decision(StrEnum):
    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class Request:
    """What a rule looks at. Paths are absolute, and without symbolic links."""

    tool: str
    reason: Reason = Reason.PERMISSION
    command: str | None = None
    """Of a tool that runs one."""
    plain: bool = True
    """It asks for nothing beside that: no way around a sandbox, say."""
    path: str | None = None
    """Of a tool that reads or changes a file."""
    folder: str | None = None
    """Where its session works."""
    session: tuple[str, ...] = ()
    """All that it is called."""


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    decision: Decision
    tools: tuple[str, ...] = ()
    commands: tuple[shell.Words, ...] = ()
    paths: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    message: str = ""

    def fits(self, request: Request) -> bool:
        """But for the command."""
        if request.reason is not Reason.PERMISSION and request.tool not in self.tools:
            return False
        return (
            (not self.tools or any(fnmatchcase(request.tool, one) for one in self.tools))
            and (not self.commands or request.command is not None)
            and (not self.paths or _below(request.path, self.paths))
            and (not self.folders or _below(request.folder, self.folders))
            and (not self.sessions or _named(request.session, self.sessions))
        )

    def fits_part(self, words: shell.Words) -> bool:
        return not self.commands or any(shell.matches(words, one) for one in self.commands)

    def fits_somewhere(self, command: str) -> bool:
        return not self.commands or any(shell.may_match(command, one) for one in self.commands)


@dataclass(frozen=True, slots=True)
class Verdict:
    decision: Decision
    rule: Rule | None = None
    """None: no rule fits."""
    why: str = ""

    @property
    def name(self) -> str:
        return self.rule.name if self.rule else ""


@dataclass(frozen=True, slots=True)
class Policy:
    rules: tuple[Rule, ...] = ()
    dry_run: bool = False
    """What would be decided is written into the ledger, and a human is asked."""

    def decide(self, request: Request) -> Verdict:
        rules = [rule for rule in self.rules if rule.fits(request)]
        verdict = _decide_command(rules, request.command) if request.command is not None else _first(rules)
        if verdict.decision is not Decision.ALLOW:
            return verdict
        if request.reason is Reason.QUESTION:
            return Verdict(Decision.ASK, None, "a question is for a human")
        return verdict if request.plain else Verdict(Decision.ASK, None, "it asks for more than its command")


def _decide_command(rules: Sequence[Rule], command: str) -> Verdict:
    if (parts := shell.split_command(command)) is None:
        return _decide_unclear(rules, command)
    verdicts = [_first([rule for rule in rules if rule.fits_part(part)]) for part in parts]
    return max(verdicts, key=lambda one: _WEIGHT[one.decision])


def _decide_unclear(rules: Sequence[Rule], command: str) -> Verdict:
    """Nobody knows what it does: it is allowed by a rule that asks for no command alone."""
    for rule in rules:
        if not rule.commands or (rule.decision is Decision.DENY and rule.fits_somewhere(command)):
            return Verdict(rule.decision, rule)
    return Verdict(Decision.ASK, None, "its command is not plain enough")


_WEIGHT = {Decision.ALLOW: 0, Decision.ASK: 1, Decision.DENY: 2}


def _first(rules: Sequence[Rule]) -> Verdict:
    return Verdict(rules[0].decision, rules[0]) if rules else Verdict(Decision.ASK, None, "no rule fits")


def _named(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, one) for name in names for one in patterns)


def _below(path: str | None, patterns: Sequence[str]) -> bool:
    """Whether it is one of these, or lies below one."""
    if path is None or not path.startswith("/") or os.path.normpath(path) != path:
        return False
    return any(_pattern(one).fullmatch(path) is not None for one in patterns)


def _pattern(text: str) -> re.Pattern[str]:
    """`*` is anything within one name, `**` anything at all."""
    pieces = re.split(r"(\*\*|\*|\?)", text.rstrip("/"))
    found = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    body = "".join(found.get(piece) or re.escape(piece) for piece in pieces)
    return re.compile(f"{body}(?:/.*)?", re.DOTALL)


# ── reading it ──

_LISTS = ("tool", "command", "path", "folder", "session")
_KEYS = ("name", "decision", "message", *_LISTS)


def read_policy(document: Mapping[str, Any], home: str) -> Policy:
    """Raises `InvalidOptions` that says which rule, and what is wrong. `home` is what ~ means."""
    for key in document:
        if key not in ("rule", "dry_run"):
            raise InvalidOptions(f"unknown key {key!r}", hint="known: dry_run, and [[rule]] tables")
    dry_run, rules = document.get("dry_run", False), document.get("rule", [])
    if not isinstance(dry_run, bool):
        raise InvalidOptions(f"dry_run is true or false, not {dry_run!r}")
    if not isinstance(rules, list) or not all(isinstance(one, dict) for one in rules):
        raise InvalidOptions("rules are [[rule]] tables")
    return Policy(tuple(_rule(number, one, home) for number, one in enumerate(rules, 1)), dry_run)


def _rule(number: int, given: Mapping[str, Any], home: str) -> Rule:
    where = f"rule {number}"
    for key in given:
        if key not in _KEYS:
            raise InvalidOptions(f"{where}: unknown key {key!r}", hint=f"known: {', '.join(_KEYS)}")
    try:
        decision = Decision(given.get("decision", ""))
    except ValueError:
        raise InvalidOptions(f"{where}: decision is allow, deny or ask") from None
    found = {key: _texts(given[key], f"{where}: {key}") for key in _LISTS if key in given}
    if decision is Decision.ALLOW and not found:
        raise InvalidOptions(f"{where} allows everything", hint='say tool = "*" if that is meant')
    name, message = given.get("name", where), given.get("message", "")
    if not isinstance(name, str) or not isinstance(message, str):
        raise InvalidOptions(f"{where}: name and message are texts")
    if message and decision is not Decision.DENY:
        raise InvalidOptions(f"{where}: a message goes with deny")
    return Rule(
        name,
        decision,
        found.get("tool", ()),
        tuple(_command(one, where) for one in found.get("command", ())),
        tuple(_path(one, home, f"{where}: path") for one in found.get("path", ())),
        tuple(_path(one, home, f"{where}: folder") for one in found.get("folder", ())),
        found.get("session", ()),
        message,
    )


def _texts(value: object, where: str) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(one, str) and one for one in texts):
        raise InvalidOptions(f"{where} is a text, or a list of them")
    return tuple(texts)


def _command(text: str, where: str) -> shell.Words:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidOptions(f"{where}: the command {text!r} cannot be read: {error}") from None
    if not words:
        raise InvalidOptions(f"{where}: an empty command")
    return words


def _path(text: str, home: str, where: str) -> str:
    path = home + text[1:] if text == "~" or text.startswith("~/") else text
    if not path.startswith("/"):
        raise InvalidOptions(f"{where} {text!r} must begin with / or ~")
    return path
