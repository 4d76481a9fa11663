"""Whether a tool call runs, is refused, or must be asked about. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

Decision: TypeAlias = Literal["allow", "ask", "deny"]

# They are questions in themselves: no mode answers them.
QUESTIONS = frozenset({"AskUserQuestion", "ExitPlanMode"})
_EDITS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_HARMLESS = frozenset(
    {"Read", "Glob", "Grep", "LS", "TodoWrite", "Agent", "Task", "ToolSearch", "ListAgents"}
)
_HARMLESS_COMMANDS = frozenset(
    (
        *(
            "basename",
            "cat",
            "cd",
            "cut",
            "date",
            "df",
            "diff",
            "dirname",
            "du",
            "echo",
            "expr",
            "false",
            "file",
        ),
        *("grep", "head", "hostname", "id", "ls", "nl", "printf", "pwd", "realpath", "seq", "sleep", "sort"),
        *("stat", "tail", "test", "tr", "true", "uname", "uniq", "wc", "which", "whoami"),
    )
)
# Claude Code 2.1.325 runs them without asking where edits are accepted.
_EDIT_COMMANDS = frozenset({"cp", "mkdir", "mv", "rm", "rmdir", "sed", "touch"})
_BETWEEN_COMMANDS = re.compile(r"&&|\|\||[;|\n]")


def decide(
    tool: str,
    given: Mapping[str, Any],
    mode: str,
    *,
    allow: Sequence[str],
    deny: Sequence[str],
    ask: Sequence[str],
) -> Decision:
    """What becomes of a call in that mode, under these rules. A ``deny`` rule wins, then ``ask``."""
    if any(_covers(rule, tool, given) for rule in deny):
        return "deny"
    if tool in QUESTIONS:
        return "ask"
    if mode == "bypassPermissions":
        return "allow"
    if any(_covers(rule, tool, given) for rule in ask):
        return "ask"
    if mode == "auto" or any(_covers(rule, tool, given) for rule in allow) or _is_harmless(tool, given):
        return "allow"
    if mode == "acceptEdits" and (tool in _EDITS or _is_harmless(tool, given, _EDIT_COMMANDS)):
        return "allow"
    return "deny" if mode == "dontAsk" else "ask"


def rule_for(tool: str, given: Mapping[str, Any]) -> str:
    """The rule that "don't ask again" adds for a call."""
    words = str(given.get("command", "")).split()
    return f"Bash({words[0]}:*)" if tool == "Bash" and words else tool


def suggestions(tool: str, cwd: str) -> list[dict[str, Any]] | None:
    """What the permission hook is offered as ways to ask less; None for a question."""
    if tool in QUESTIONS:
        return None
    accept = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    folders = {"type": "addDirectories", "directories": [cwd], "destination": "session"}
    return [folders, accept] if tool == "Bash" else [accept]


def _covers(rule: str, tool: str, given: Mapping[str, Any]) -> bool:
    """``Tool`` covers all its calls, ``Tool(pattern)`` those that fit; ``p:*`` is a beginning."""
    name, parenthesis, pattern = rule.partition("(")
    if name != tool:
        return False
    if not parenthesis:
        return True
    pattern = pattern.removesuffix(")")
    subject = str(given.get("command") or given.get("file_path") or given.get("url") or "")
    if pattern.endswith(":*"):
        return subject == pattern[:-2] or subject.startswith(f"{pattern[:-2]} ")
    return fnmatch.fnmatchcase(subject, pattern)


def _is_harmless(tool: str, given: Mapping[str, Any], more: frozenset[str] = frozenset()) -> bool:
    if tool != "Bash":
        return tool in _HARMLESS
    command = str(given.get("command", ""))
    if any(mark in command for mark in ("$(", "`", ">", "<", "&\n")):
        return False
    parts = [part.split() for part in _BETWEEN_COMMANDS.split(command)]
    return all(part[0] in _HARMLESS_COMMANDS | more for part in parts if part) and any(parts)
