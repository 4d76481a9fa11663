"""Rules that decide permission requests in place of a human. Pure: a request in, a verdict out.

The first rule that fits decides, and what no rule fits is asked. A shell command is decided part by part: one
part that is denied denies it, and it is allowed only if every part is. Below a rule with `command` that
denies or asks, only commands that are understood, and whose programs run no others, are allowed (`reading`,
`programs`, `matching`). A question is never answered by a rule, and a plan only by one that names its tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from unicodedata import normalize

from ..attention.model import Reason
from .matching import Candidate, Fit, candidates
from .reading import Words, read_command
from .request import AskedPath, CommandTools, Request

SHELL_TOOL = "Bash"
"""In a rule with `command` that denies or asks, it stands for every tool that runs commands."""


class Decision(StrEnum):
    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"


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
    commands: tuple[Words, ...] = ()
    paths: tuple[Place, ...] = ()
    folders: tuple[Place, ...] = ()
    sessions: tuple[str, ...] = ()
    message: str = ""

    @property
    def guards_commands(self) -> bool:
        return bool(self.commands) and self.decision is not Decision.ALLOW

    def fit(self, request: Request) -> Fit:
        """Without regard to the command."""
        if request.reason is not Reason.PERMISSION and request.tool not in self.tools:
            return Fit.NO
        if not self._names_tool(request) or (self.sessions and not _named(request.session, self.sessions)):
            return Fit.NO
        if self.commands and request.command is None and not request.may_run_commands:
            return Fit.NO
        return min(
            self._fit_places(request.paths, self.paths),
            self._fit_places((request.folder or AskedPath("", ""),), self.folders),
        )

    def _names_tool(self, request: Request) -> bool:
        names = [request.tool]
        if self.guards_commands and (request.command is not None or request.may_run_commands):
            names.append(SHELL_TOOL)
        return not self.tools or _named(names, self.tools)

    def _fit_places(self, paths: Sequence[AskedPath], places: Sequence[Place]) -> Fit:
        """All paths must be in places that are allowed. One in a place that is not is enough."""
        if not places or not paths:
            return Fit.NO if places else Fit.YES
        fits = [self._fit_place(path, places) for path in paths]
        return min(fits) if self.decision is Decision.ALLOW else max(fits)

    def _fit_place(self, path: AskedPath, places: Sequence[Place]) -> Fit:
        """What is allowed is so by where its links lead; what is not, also by any of its names."""
        if not path.real:
            return Fit.MAYBE
        if self.decision is Decision.ALLOW:
            return Fit.YES if any(_is_below(path.real, one.real) for one in places) else Fit.NO
        patterns = {one.given for one in places} | {one.real for one in places}
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
        if self.decision is Decision.ALLOW:
            return Fit.YES if any(candidate.allows(one) for one in self.commands) else Fit.NO
        return max(candidate.fit(one) for one in self.commands)


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
    command_tools: CommandTools = field(default_factory=dict)
    """Declared in the file; an agent knows its own tools besides."""

    def decide(self, request: Request) -> Verdict:
        fitting = [(rule, fit) for rule in self.rules if (fit := rule.fit(request)) is not Fit.NO]
        if request.command is not None and any(rule.commands for rule, _ in fitting):
            verdict = _decide_command(fitting, request.command)
        else:
            verdict = _decide_other(fitting, request)
        if verdict.decision is not Decision.ALLOW:
            return verdict
        if request.reason is Reason.QUESTION:
            return Verdict(Decision.ASK, None, "questions need a human")
        return (
            verdict if request.is_plain else Verdict(Decision.ASK, None, "it requests more than its command")
        )


def _decide_command(rules: Sequence[tuple[Rule, Fit]], command: str) -> Verdict:
    verdicts = (
        _first(((rule, min(fit, rule.fit_command(one))) for rule, fit in rules), one.doubt)
        for one in candidates(read_command(command))
    )
    return max(verdicts, key=lambda one: _WEIGHT[one.decision])


_WEIGHT = {Decision.ALLOW: 0, Decision.ASK: 1, Decision.DENY: 2}


def _decide_other(rules: Sequence[tuple[Rule, Fit]], request: Request) -> Verdict:
    """Without a command that rules look at. A tool that may run commands passes a rule with `command` above
    only if the rule that allows names it in full, and the one above does not mean it.
    """
    verdict = _first((rule, fit) for rule, fit in rules if not rule.commands)
    if verdict.decision is not Decision.ALLOW or not request.may_run_commands:
        return verdict
    is_named = verdict.rule is not None and request.tool in verdict.rule.tools
    for rule, _ in rules:
        if rule is verdict.rule:
            break
        if rule.guards_commands and (not is_named or _named([request.tool], rule.tools)):
            return Verdict(
                Decision.ASK,
                rule,
                f"{request.tool} may run commands; see command_tools in the policy reference",
            )
    return verdict


def _first(rules: Iterable[tuple[Rule, Fit]], doubt: str = "") -> Verdict:
    doubted: Rule | None = None
    for rule, fit in rules:
        if rule.decision is Decision.ALLOW:
            if fit is Fit.YES and doubted is not None:
                return Verdict(Decision.ASK, doubted, doubt or "this rule may apply")
            if fit is Fit.YES:
                return Verdict(Decision.ALLOW, rule)
        elif fit is Fit.YES:
            return Verdict(rule.decision, rule)
        elif fit is Fit.MAYBE:
            doubted = doubted or rule
    return Verdict(Decision.ASK, None, doubt or "no rule matches")


def _named(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, one) for name in names for one in patterns)


def _is_below(path: str, text: str) -> bool:
    """Whether it is that, or lies below. `*` is anything within one name, `**` anything at all."""
    pieces = re.split(r"(\*\*|\*|\?)", text.rstrip("/"))
    found = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    body = "".join(found.get(piece) or re.escape(piece) for piece in pieces)
    return re.compile(f"{body}(?:/.*)?", re.DOTALL).fullmatch(path) is not None


def _folded(path: str) -> str:
    """The same for all names that a disk may take for one: of upper and lower case, of composed letters."""
    return normalize("NFD", path).casefold()


def _may_hold(path: str, text: str) -> bool:
    """Whether something below a path may fit the pattern."""
    known = re.split(r"[*?]", text)[0]
    below = path.rstrip("/") + "/"
    return known.startswith(below) or (known != text and below.startswith(known))
