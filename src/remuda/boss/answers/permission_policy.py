"""Rules that decide permission requests in place of a human, and the file that holds them.

The first rule that matches decides; without one a human is asked. A shell command is decided part by part:
one denied part denies it, and it is allowed only if every part is. Below a rule with `command` that denies or
asks, only commands that are understood, and whose programs run no others, are allowed (`reading`, `programs`,
`matching`). No rule answers a question, and only a rule that names its tool accepts a plan. Deciding is pure.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from unicodedata import normalize

from remuda.errors import InvalidOptions
from remuda.names import did_you_mean, known_words
from remuda.paths import config_home

from ..attention.model import Reason
from ..folder import BossFolder, read_own
from .matching import Candidate, Fit, candidates
from .policy_request import CommandTools, PolicyRequest, RequestedPath
from .reading import Words, read_command

SHELL_TOOL = "Bash"
"""In a rule with `command` that denies or asks, it means every tool that runs commands."""


class PolicyDecision(StrEnum):
    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A pattern of paths: as written, and with symbolic links before its first wildcard resolved."""

    pattern: str
    real: str


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    decision: PolicyDecision
    tools: tuple[str, ...] = ()
    commands: tuple[Words, ...] = ()
    paths: tuple[PathPattern, ...] = ()
    folders: tuple[PathPattern, ...] = ()
    sessions: tuple[str, ...] = ()
    message: str = ""
    mcp: tuple[str, ...] = ()
    """Agents that may decide in the human's place, through MCP. Only of a rule that asks."""

    @property
    def guards_commands(self) -> bool:
        return bool(self.commands) and self.decision is not PolicyDecision.ALLOW

    def fit(self, request: PolicyRequest) -> Fit:
        """Match everything but the command."""
        if request.reason is not Reason.PERMISSION and request.tool not in self.tools:
            return Fit.NO
        if not self._names_tool(request) or (self.sessions and not _named(request.session, self.sessions)):
            return Fit.NO
        if self.commands and request.command is None and not request.may_run_commands:
            return Fit.NO
        return min(
            self._fit_places(request.paths, self.paths),
            self._fit_places((request.folder or RequestedPath("", ""),), self.folders),
        )

    def _names_tool(self, request: PolicyRequest) -> bool:
        names = [request.tool]
        if self.guards_commands and (request.command is not None or request.may_run_commands):
            names.append(SHELL_TOOL)
        return not self.tools or _named(names, self.tools)

    def _fit_places(self, paths: Sequence[RequestedPath], places: Sequence[PathPattern]) -> Fit:
        """To allow, all paths must match. To deny or ask, one is enough."""
        if not places or not paths:
            return Fit.NO if places else Fit.YES
        fits = [self._fit_place(path, places) for path in paths]
        return min(fits) if self.decision is PolicyDecision.ALLOW else max(fits)

    def _fit_place(self, path: RequestedPath, places: Sequence[PathPattern]) -> Fit:
        """Allow by the resolved path only; deny and ask by any of its names."""
        if not path.real:
            return Fit.MAYBE
        if self.decision is PolicyDecision.ALLOW:
            return Fit.YES if any(_is_below(path.real, one.real) for one in places) else Fit.NO
        patterns = {one.pattern for one in places} | {one.real for one in places}
        names = {path.real, path.asked}
        if any(_is_below(name, pattern) for name in names for pattern in patterns):
            return Fit.YES
        if any(_is_below(_folded(name), _folded(pattern)) for name in names for pattern in patterns):
            return Fit.MAYBE
        reached = path.reaches_below and any(_may_hold(name, one) for name in names for one in patterns)
        return Fit.MAYBE if reached else Fit.NO

    def fit_command(self, candidate: Candidate) -> Fit:
        if not self.commands:
            return Fit.YES
        if self.decision is PolicyDecision.ALLOW:
            return Fit.YES if any(candidate.allows(one) for one in self.commands) else Fit.NO
        return max(candidate.fit(one) for one in self.commands)


@dataclass(frozen=True, slots=True)
class PolicyVerdict:
    decision: PolicyDecision
    rule: Rule | None = None
    """None: no rule matches."""
    why: str = ""

    @property
    def name(self) -> str:
        return self.rule.name if self.rule else ""


@dataclass(frozen=True, slots=True)
class Policy:
    rules: tuple[Rule, ...] = ()
    dry_run: bool = False
    """Record what would be decided, and ask a human."""
    command_tools: CommandTools = field(default_factory=dict)
    """Declared in the file, in addition to the agent's own."""

    def decide(self, request: PolicyRequest) -> PolicyVerdict:
        fitting = [(rule, fit) for rule in self.rules if (fit := rule.fit(request)) is not Fit.NO]
        if request.command is not None and any(rule.commands for rule, _ in fitting):
            verdict = _decide_command(fitting, request.command)
        else:
            verdict = _decide_other(fitting, request)
        if verdict.decision is not PolicyDecision.ALLOW:
            return verdict
        if request.reason is Reason.QUESTION:
            return PolicyVerdict(PolicyDecision.ASK, None, "questions need a human")
        return (
            verdict
            if request.is_plain
            else PolicyVerdict(PolicyDecision.ASK, None, "it requests more than its command")
        )

    def lets(self, agent: str, request: PolicyRequest) -> bool:
        """Whether this agent may decide the request through MCP.

        It may where a rule asks and names it, for every part of a command, and nothing above denies or asks.
        """
        rules = tuple(
            replace(rule, decision=PolicyDecision.ALLOW) if _named([agent], rule.mcp) else rule
            for rule in self.rules
        )
        verdict = replace(self, rules=rules).decide(request)
        if self.dry_run or verdict.decision is not PolicyDecision.ALLOW:
            return False
        return self.decide(request).decision is PolicyDecision.ASK


def _decide_command(rules: Sequence[tuple[Rule, Fit]], command: str) -> PolicyVerdict:
    verdicts = (
        _first(((rule, min(fit, rule.fit_command(one))) for rule, fit in rules), one.doubt)
        for one in candidates(read_command(command))
    )
    return max(verdicts, key=lambda one: _WEIGHT[one.decision])


_WEIGHT = {PolicyDecision.ALLOW: 0, PolicyDecision.ASK: 1, PolicyDecision.DENY: 2}


def _decide_other(rules: Sequence[tuple[Rule, Fit]], request: PolicyRequest) -> PolicyVerdict:
    """Decide without a command that rules match. A tool that may run commands passes a rule with `command`
    above only if the rule that allows names it in full, and the rule above does not.
    """
    verdict = _first((rule, fit) for rule, fit in rules if not rule.commands)
    if verdict.decision is not PolicyDecision.ALLOW or not request.may_run_commands:
        return verdict
    is_named = verdict.rule is not None and request.tool in verdict.rule.tools
    for rule, _ in rules:
        if rule is verdict.rule:
            break
        if rule.guards_commands and (not is_named or _named([request.tool], rule.tools)):
            return PolicyVerdict(
                PolicyDecision.ASK,
                rule,
                f"{request.tool} may run commands; see command_tools in the policy reference",
            )
    return verdict


def _first(rules: Iterable[tuple[Rule, Fit]], doubt: str = "") -> PolicyVerdict:
    doubted: Rule | None = None
    for rule, fit in rules:
        if rule.decision is PolicyDecision.ALLOW:
            if fit is Fit.YES and doubted is not None:
                return PolicyVerdict(PolicyDecision.ASK, doubted, doubt or "this rule may apply")
            if fit is Fit.YES:
                return PolicyVerdict(PolicyDecision.ALLOW, rule)
        elif fit is Fit.YES:
            return PolicyVerdict(rule.decision, rule)
        elif fit is Fit.MAYBE:
            doubted = doubted or rule
    return PolicyVerdict(PolicyDecision.ASK, None, doubt or "no rule matches")


def _named(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, one) for name in names for one in patterns)


def _is_below(path: str, text: str) -> bool:
    """Whether the path matches or is below. `*` matches within one name, `**` anything."""
    pieces = re.split(r"(\*\*|\*|\?)", text.rstrip("/"))
    wildcards = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    body = "".join(wildcards.get(piece) or re.escape(piece) for piece in pieces)
    return re.compile(f"{body}(?:/.*)?", re.DOTALL).fullmatch(path) is not None


def _folded(path: str) -> str:
    """Return the same text for names that a disk may treat as equal: case, and composed letters."""
    return normalize("NFD", path).casefold()


def _may_hold(path: str, text: str) -> bool:
    """Whether something below the path may match the pattern."""
    known = re.split(r"[*?]", text)[0]
    below = path.rstrip("/") + "/"
    return known.startswith(below) or (known != text and below.startswith(known))


# ── the file ──


def policy_file(folder: BossFolder, environ: Mapping[str, str]) -> Path:
    """Return that in the folder of the boss if it exists, else that in the folder of the configuration."""
    own = folder.path / "policy.toml"
    other = config_home(environ) / "remuda" / "policy.toml"
    return own if own.exists() else other


def load_policy(path: Path) -> Policy:
    """Load the policy; without a file it has no rules. Raises `InvalidOptions` that names the file."""
    try:
        text = read_own(path).decode()
        return read_policy(tomllib.loads(text), os.path.expanduser("~"), os.path.realpath)
    except FileNotFoundError:
        return Policy()
    except OSError as error:
        raise InvalidOptions(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not TOML, or a number or nesting beyond bounds
        raise InvalidOptions(f"{path}: {error}") from error
    except InvalidOptions as error:
        if str(path) in error.message:
            raise
        raise InvalidOptions(f"{path}: {error.message}", hint=error.hint) from None


_LISTS = ("tool", "command", "path", "folder", "session")
_KEYS = ("name", "decision", "message", "mcp", *_LISTS)


_TABLES = ("rule", "dry_run", "command_tools")
Resolve = Callable[[str], str]
"""A path without symbolic links."""


def read_policy(document: Mapping[str, Any], home: str, resolve: Resolve) -> Policy:
    """Raises `InvalidOptions` that says which rule, and what is wrong. `home` is what ~ means."""
    for key in document:
        if key not in _TABLES:
            raise InvalidOptions(
                f"unknown key {key!r}",
                hint=did_you_mean(key, _TABLES) or "known: dry_run, [command_tools] and [[rule]] tables",
            )
    dry_run, rules = document.get("dry_run", False), document.get("rule", [])
    if not isinstance(dry_run, bool):
        raise InvalidOptions(f"dry_run must be true or false, not {dry_run!r}")
    if not isinstance(rules, list) or not all(isinstance(one, dict) for one in rules):
        raise InvalidOptions("rules must be [[rule]] tables")
    read = tuple(_rule(number, one, home, resolve) for number, one in enumerate(rules, 1))
    return Policy(read, dry_run, _command_tools(document.get("command_tools", {})))


def _command_tools(declared: object) -> CommandTools:
    if not isinstance(declared, dict):
        raise InvalidOptions("command_tools must be a table of tool names")
    for tool, name in declared.items():
        if name is not False and (not isinstance(name, str) or not name):
            raise InvalidOptions(
                f"command_tools: {tool!r} has the value {name!r}",
                hint="write the name of the field with the command, or false if the tool runs no commands",
            )
    return {tool: name or None for tool, name in declared.items()}


def _rule(number: int, table: Mapping[str, Any], home: str, resolve: Resolve) -> Rule:
    where = f"rule {number}"
    for key in table:
        if key not in _KEYS:
            raise InvalidOptions(f"{where}: unknown key {key!r}", hint=known_words(key, _KEYS))
    try:
        decision = PolicyDecision(table.get("decision", ""))
    except ValueError:
        raise InvalidOptions(f"{where}: decision must be allow, deny or ask") from None
    conditions = {key: _texts(table[key], f"{where}: {key}") for key in _LISTS if key in table}
    if decision is PolicyDecision.ALLOW and not conditions:
        raise InvalidOptions(f"{where} allows everything", hint='write tool = "*" if you mean that')
    name, message = table.get("name", where), table.get("message", "")
    if not isinstance(name, str) or not isinstance(message, str):
        raise InvalidOptions(f"{where}: name and message must be strings")
    if message and decision is not PolicyDecision.DENY:
        raise InvalidOptions(f'{where}: message needs decision = "deny"')
    agents = _texts(table["mcp"], f"{where}: mcp") if "mcp" in table else ()
    if agents and (decision is not PolicyDecision.ASK or not conditions):
        raise InvalidOptions(f'{where}: mcp needs decision = "ask", and a condition such as tool')
    return Rule(
        name,
        decision,
        conditions.get("tool", ()),
        tuple(_command(one, where) for one in conditions.get("command", ())),
        tuple(_place(one, home, resolve, f"{where}: path") for one in conditions.get("path", ())),
        tuple(_place(one, home, resolve, f"{where}: folder") for one in conditions.get("folder", ())),
        conditions.get("session", ()),
        message,
        agents,
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


def _place(text: str, home: str, resolve: Resolve, where: str) -> PathPattern:
    path = home + text[1:] if text == "~" or text.startswith("~/") else text
    if not path.startswith("/"):
        raise InvalidOptions(f"{where} {text!r} must begin with / or ~")
    wild = re.search(r"[*?]", path)
    cut = path.rfind("/", 0, wild.start()) if wild else len(path)
    try:
        real = resolve(path[:cut] or "/")
    except ValueError:
        raise InvalidOptions(f"{where} {text!r} is not a path") from None
    return PathPattern(
        "/" + os.path.normpath(path).lstrip("/"), real.rstrip("/") + path[cut:].rstrip("/") or "/"
    )
