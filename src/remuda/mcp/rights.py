"""What an agent may do through MCP: what it reaches, how much it may start, and the file about it. Pure.

An agent reaches what it started, and what those started. `mcp.toml` can let it reach other sessions, and sets
the limits. Limits count for the tree of all agents below the first one, its root.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from remuda.errors import InvalidOptions
from remuda.names import MAX_NAME_BYTES, known_words

Right = Literal["read", "send", "control", "kill"]
"""`read`: state, screen, history, receipts. `send`: messages. `control`: interrupt and cancel."""
GRANTED: tuple[Right, ...] = ("read", "send", "control")
"""What `mcp.toml` can grant for a session that the agent did not start. Never `kill`."""
_MOST = 10**9
_REACH = re.compile(r"([a-z0-9*?\[\]!-]+/)?[^/]+")
"""SESSION or HOST/SESSION, both with `*`."""
_SESSION = re.compile(r"session:([^:]{1,64}):([!-~]{1,64})")


@dataclass(frozen=True, slots=True)
class Caller:
    """The agent that asks."""

    kind: Literal["session", "token", "folder"]
    """How it is known: by its session, by its token, or by the folder of an agent without a session."""
    name: str
    """The name of the session or token; the path of the folder."""
    key: str = ""
    """That of the session: another session of the same name is another agent."""
    folder: str = ""
    """Where it works."""
    depth: int = 0
    """0 for an agent that a person started."""

    @property
    def id(self) -> str:
        return f"{self.kind}:{self.name}" + (f":{self.key}" if self.kind == "session" else "")

    @property
    def label(self) -> str:
        """As `mcp.toml` names it: the name of a session, `token:NAME` or `folder:PATH`."""
        return self.name if self.kind == "session" else self.id

    @property
    def prefix(self) -> str:
        """What the names of its sessions begin with, so that no two agents want the same one."""
        word = os.path.basename(self.name) if self.kind == "folder" else self.name
        return re.sub(r"[^A-Za-z0-9_+@.-]|^[^A-Za-z0-9_]", "_", word) or "_"


def caller_with(caller_id: str) -> Caller:
    """Return the caller with that id, as far as an id says."""
    if (found := session_of(caller_id)) is not None:
        return Caller("session", *found)
    kind, _, name = caller_id.partition(":")
    return Caller("token" if kind == "token" else "folder", name)


def session_of(caller_id: str) -> tuple[str, str] | None:
    """Return name and key of the session in a caller's id; None if the caller has no session."""
    matched = _SESSION.fullmatch(caller_id)
    return (matched[1], matched[2]) if matched else None


# ── limits ──


@dataclass(frozen=True, slots=True)
class StartLimits:
    max_depth: int = 2
    """What a person's agent starts has depth 1."""
    max_sessions: int = 8
    """Running at once, in the tree."""
    max_messages: int = 500
    """Messages and pool requests of the tree, each day."""
    max_output_tokens: int = 0
    """Output tokens in 24 hours: of its sessions, as the boss counts, and of pool requests; 0: no limit."""
    agents: tuple[str, ...] = ()
    """Which agents it may start; empty: every agent that takes messages."""
    folders: tuple[str, ...] = ()
    """Where they may work, besides the folder of the caller."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What one table [[agent]] of `mcp.toml` says."""

    names: tuple[str, ...]
    reach: tuple[str, ...] = ()
    may: tuple[Right, ...] = ("read",)
    changes: Mapping[str, Any] | None = None

    def is_for(self, caller: Caller) -> bool:
        return any(fnmatchcase(caller.label, one) for one in self.names)


@dataclass(frozen=True, slots=True)
class Rights:
    limits: StartLimits = StartLimits()
    grants: tuple[Grant, ...] = ()

    def limits_of(self, caller: Caller) -> StartLimits:
        """Return the limits: those of the first table that names the caller and sets each."""
        limits = self.limits
        for grant in reversed(self.grants):
            if grant.is_for(caller):
                limits = replace(limits, **(grant.changes or {}))
        return limits

    def may(self, caller: Caller, right: Right, session: str, chain: Sequence[str]) -> bool:
        """Whether the caller may do that. `chain` has who started the session, who started that one…

        `session` is SESSION or HOST/SESSION.
        """
        if caller.id in chain:
            return True
        return right != "kill" and any(
            right in grant.may and any(_names(one, session) for one in grant.reach)
            for grant in self.grants
            if grant.is_for(caller)
        )

    def reaches_hosts(self, caller: Caller) -> bool:
        """Whether the caller may reach sessions of other hosts."""
        return any("/" in one for grant in self.grants if grant.is_for(caller) for one in grant.reach)


def _names(pattern: str, session: str) -> bool:
    """Whether a pattern names a session. Its `*` stands for no slash: that of `*` is on this machine."""
    patterns, words = pattern.split("/"), session.split("/")
    return len(patterns) == len(words) and all(map(fnmatchcase, words, patterns))


def why_not_start(
    limits: StartLimits, caller: Caller, agent: str, folder: str, running: int, resolve: Callable[[str], str]
) -> tuple[str, str] | None:
    """Return why a start is refused, and what to do; None if it is allowed.

    `folder` is absolute, `running` the number of sessions of the tree, `resolve` follows symbolic links.
    """
    if caller.depth >= limits.max_depth:
        return (
            f"agents may start agents {limits.max_depth} deep, and this one is at depth {caller.depth}",
            "do the work yourself, or let the user raise max_depth in mcp.toml",
        )
    if running >= limits.max_sessions:
        return (
            f"{running} sessions of this agent run, and {limits.max_sessions} are allowed at once",
            "end one with kill, or wait",
        )
    if limits.agents and agent not in limits.agents:
        return f"agent '{agent}' may not be started here", f"use one of: {', '.join(limits.agents)}"
    return why_not_folder(limits, caller, folder, resolve)


def why_not_folder(
    limits: StartLimits, caller: Caller, folder: str, resolve: Callable[[str], str]
) -> tuple[str, str] | None:
    """Return why agents may not work in that folder, and what to do; None if they may."""
    allowed = [resolve(one) for one in (caller.folder, *limits.folders) if one]
    real = resolve(folder)
    if not any(real == one or real.startswith(one.rstrip("/") + "/") for one in allowed):
        return (
            f"{folder} is not in a folder that you may start agents in",
            f"use one of these, or a folder below: {', '.join(allowed)}",
        )
    return None


def why_not_spend(limits: StartLimits, messages: int, output_tokens: int | None) -> tuple[str, str] | None:
    """Return why no more messages are taken; None if they are. Tokens are None where they are not known."""
    if messages >= limits.max_messages:
        return (
            f"the {limits.max_messages} messages of today are used up",
            "tell the user: max_messages in mcp.toml raises it",
        )
    if limits.max_output_tokens and (output_tokens or 0) >= limits.max_output_tokens:
        return (
            f"{output_tokens} output tokens were used today, and {limits.max_output_tokens} are allowed",
            "tell the user: max_output_tokens in mcp.toml raises it",
        )
    return None


# ── names of sessions ──


def names_for(caller: Caller, wanted: str) -> list[str]:
    """Return names for a new session, the best first. All begin with the caller's."""
    made = []
    for number in range(1, 100):
        end = f".{wanted}" + (f"-{number}" if number > 1 else "")
        made.append(caller.prefix[: MAX_NAME_BYTES - len(end)] + end)
    return made


# ── the file ──

_NUMBERS = ("max_depth", "max_sessions", "max_messages", "max_output_tokens")
_LIMITS = tuple(one.name for one in fields(StartLimits))


def read_rights(
    document: Mapping[str, Any], home: str, resolve: Callable[[str], str] = os.path.normpath
) -> Rights:
    """Raises `InvalidOptions` that says which key is wrong, and how. `home` is what ~ means.

    `resolve` follows symbolic links: an agent is known by the folder that a link leads to.
    """
    _check_keys(document, (*_LIMITS, "agent"), "")
    tables = document.get("agent", [])
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise InvalidOptions("agent must be [[agent]] tables")
    grants = tuple(_grant(number, one, home, resolve) for number, one in enumerate(tables, 1))
    return Rights(StartLimits(**_limits(document, home, "")), grants)


def _grant(number: int, table: Mapping[str, Any], home: str, resolve: Callable[[str], str]) -> Grant:
    where = f"agent {number}: "
    _check_keys(table, ("name", "reach", "may", *_LIMITS), where)
    if "name" not in table:
        raise InvalidOptions(
            f"{where}name is missing", hint='name the session, "token:NAME" or "folder:PATH"'
        )
    may = _texts(table.get("may", ["read"]), f"{where}may")
    if "kill" in may:
        raise InvalidOptions(f"{where}kill cannot be granted", hint="an agent can kill only what it started")
    if unknown := [one for one in may if one not in GRANTED]:
        raise InvalidOptions(f"{where}unknown right {unknown[0]!r}", hint=f"known: {', '.join(GRANTED)}")
    names = tuple(
        f"folder:{resolve(_path(one[7:], home, where))}" if one.startswith("folder:") else one
        for one in _texts(table["name"], f"{where}name")
    )
    reach = _texts(table["reach"], f"{where}reach") if "reach" in table else ()
    if wrong := [one for one in reach if not _REACH.fullmatch(one)]:
        raise InvalidOptions(
            f"{where}reach: {wrong[0]!r} is neither SESSION nor HOST/SESSION", hint="both may have *"
        )
    return Grant(names, reach, tuple(one for one in GRANTED if one in may), _limits(table, home, where))


def _limits(table: Mapping[str, Any], home: str, where: str) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for name in _NUMBERS:
        if name in table:
            value = table[name]
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
                raise InvalidOptions(f"{where}{name} must be an integer from 0 to {_MOST}, not {value!r:.40}")
            limits[name] = value
    if "agents" in table:
        limits["agents"] = _texts(table["agents"], f"{where}agents")
    if "folders" in table:
        found = _texts(table["folders"], f"{where}folders")
        limits["folders"] = tuple(_path(one, home, f"{where}folders: ") for one in found)
    return limits


def _check_keys(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise InvalidOptions(f"{where}unknown key {key!r}", hint=known_words(key, known))


def _texts(value: object, where: str) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(one, str) and one for one in texts):
        raise InvalidOptions(f"{where} must be a string or a list of strings")
    return tuple(texts)


def _path(text: str, home: str, where: str) -> str:
    path = home + text[1:] if text == "~" or text.startswith("~/") else text
    if not path.startswith("/") or "\0" in path:
        raise InvalidOptions(f"{where}{text!r} must be a path that begins with / or ~")
    return path
