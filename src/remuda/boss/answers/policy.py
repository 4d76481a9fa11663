"""Rules that answer requests for leave in place of a human. Pure: a table in, decisions out.

The first rule that fits decides, and what no rule fits is asked. A shell command is decided part by part: one
part that is denied denies it, and it is allowed only if every part of it is (`shell`). Nothing is allowed
that a rule further up, which denies or asks, may mean (`guess`). A question is never answered by a rule, and
a plan only by one that names its tool.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from remuda.errors import InvalidOptions

from ..attention.model import Reason
from . import shell
from .guess import Fit, Guess, guess, guess_part


class Decision(StrEnum):
    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class Request:
    """What a rule looks at. Paths are absolute; `path` and `folder` are without symbolic links."""

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
    path_as_asked: str | None = None
    folder_as_asked: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A pattern of paths: as it was written, and with symbolic links before its first wildcard followed."""

    given: str
    real: str


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    decision: Decision
    tools: tuple[str, ...] = ()
    commands: tuple[shell.Words, ...] = ()
    paths: tuple[Place, ...] = ()
    folders: tuple[Place, ...] = ()
    sessions: tuple[str, ...] = ()
    message: str = ""

    def fit(self, request: Request) -> Fit:
        """But for the command."""
        if request.reason is not Reason.PERMISSION and request.tool not in self.tools:
            return Fit.NO
        sure = (
            (not self.tools or any(fnmatchcase(request.tool, one) for one in self.tools))
            and (not self.commands or request.command is not None)
            and (not self.paths or request.path is not None)
            and (not self.sessions or _named(request.session, self.sessions))
        )
        if not sure:
            return Fit.NO
        return min(
            self._fit_place(request.path, request.path_as_asked, self.paths),
            self._fit_place(request.folder, request.folder_as_asked, self.folders),
        )

    def _fit_place(self, real: str | None, asked: str | None, places: Sequence[Place]) -> Fit:
        """What is allowed is so by where its links lead; what is not, also by any of its names."""
        if not places:
            return Fit.YES
        if real is None or not real.startswith("/") or os.path.normpath(real) != real:
            return Fit.MAYBE
        if self.decision is Decision.ALLOW:
            found = any(_is_below(real, one.real) for one in places)
        else:
            names = {real, asked or real}
            patterns = {one.given for one in places} | {one.real for one in places}
            found = any(_is_below(name, pattern) for name in names for pattern in patterns)
        return Fit.YES if found else Fit.NO

    def fit_command(self, part: shell.Words | None, guessed: Guess) -> Fit:
        """`part` is None for a command of which nobody knows what it does."""
        if not self.commands:
            return Fit.YES
        if self.decision is Decision.ALLOW:
            certain = part is not None and any(shell.matches(part, one) for one in self.commands)
            return Fit.YES if certain else Fit.NO
        return max(guessed.fit(one) for one in self.commands)


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
        fitting = [(rule, fit) for rule in self.rules if (fit := rule.fit(request)) is not Fit.NO]
        verdict = _first(fitting) if request.command is None else _decide_command(fitting, request.command)
        if verdict.decision is not Decision.ALLOW:
            return verdict
        if request.reason is Reason.QUESTION:
            return Verdict(Decision.ASK, None, "a question is for a human")
        return verdict if request.plain else Verdict(Decision.ASK, None, "it asks for more than its command")


def _decide_command(rules: Sequence[tuple[Rule, Fit]], command: str) -> Verdict:
    def decide(part: shell.Words | None, guessed: Guess) -> Verdict:
        return _first((rule, min(fit, rule.fit_command(part, guessed))) for rule, fit in rules)

    if (parts := shell.split_command(command)) is not None:
        return max((decide(part, guess_part(part)) for part in parts), key=lambda one: _WEIGHT[one.decision])
    verdict = decide(None, guess(command))
    return verdict if verdict.rule else Verdict(Decision.ASK, None, "its command is not plain enough")


_WEIGHT = {Decision.ALLOW: 0, Decision.ASK: 1, Decision.DENY: 2}


def _first(rules: Iterable[tuple[Rule, Fit]]) -> Verdict:
    doubted: Rule | None = None
    for rule, fit in rules:
        if rule.decision is Decision.ALLOW:
            if fit is Fit.YES and doubted is not None:
                return Verdict(Decision.ASK, doubted, "nobody knows whether this rule means it")
            if fit is Fit.YES:
                return Verdict(Decision.ALLOW, rule)
        elif fit is Fit.YES:
            return Verdict(rule.decision, rule)
        elif fit is Fit.MAYBE:
            doubted = doubted or rule
    return Verdict(Decision.ASK, None, "no rule fits")


def _named(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, one) for name in names for one in patterns)


def _is_below(path: str, text: str) -> bool:
    """Whether it is that, or lies below. `*` is anything within one name, `**` anything at all."""
    pieces = re.split(r"(\*\*|\*|\?)", text.rstrip("/"))
    found = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    body = "".join(found.get(piece) or re.escape(piece) for piece in pieces)
    return re.compile(f"{body}(?:/.*)?", re.DOTALL).fullmatch(path) is not None


# ── reading it ──

_LISTS = ("tool", "command", "path", "folder", "session")
_KEYS = ("name", "decision", "message", *_LISTS)


Resolve = Callable[[str], str]
"""A path without symbolic links."""


def read_policy(document: Mapping[str, Any], home: str, resolve: Resolve) -> Policy:
    """Raises `InvalidOptions` that says which rule, and what is wrong. `home` is what ~ means."""
    for key in document:
        if key not in ("rule", "dry_run"):
            raise InvalidOptions(f"unknown key {key!r}", hint="known: dry_run, and [[rule]] tables")
    dry_run, rules = document.get("dry_run", False), document.get("rule", [])
    if not isinstance(dry_run, bool):
        raise InvalidOptions(f"dry_run is true or false, not {dry_run!r}")
    if not isinstance(rules, list) or not all(isinstance(one, dict) for one in rules):
        raise InvalidOptions("rules are [[rule]] tables")
    return Policy(tuple(_rule(number, one, home, resolve) for number, one in enumerate(rules, 1)), dry_run)


def _rule(number: int, given: Mapping[str, Any], home: str, resolve: Resolve) -> Rule:
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
        tuple(_place(one, home, resolve, f"{where}: path") for one in found.get("path", ())),
        tuple(_place(one, home, resolve, f"{where}: folder") for one in found.get("folder", ())),
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


def _place(text: str, home: str, resolve: Resolve, where: str) -> Place:
    path = home + text[1:] if text == "~" or text.startswith("~/") else text
    if not path.startswith("/"):
        raise InvalidOptions(f"{where} {text!r} must begin with / or ~")
    wild = re.search(r"[*?]", path)
    cut = path.rfind("/", 0, wild.start()) if wild else len(path)
    try:
        real = resolve(path[:cut] or "/")
    except ValueError:
        raise InvalidOptions(f"{where} {text!r} is no path") from None
    return Place("/" + os.path.normpath(path).lstrip("/"), real.rstrip("/") + path[cut:].rstrip("/") or "/")
