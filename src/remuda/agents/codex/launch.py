"""How codex is started: its server, and the terminal that shows the server's conversation. Pure.

`codex` alone starts a server that all terminals of a user share, with the environment and the key of the one
that came first (0.166.0). So each session gets a server of its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from remuda.agents.base import Companion, Launch, LaunchContext
from remuda.errors import InvalidOptions, SpawnFailed

from .channel import SCHEME

_VALUED = frozenset(
    [
        *("-c", "--config", "--enable", "--disable", "-m", "--model", "--local-provider", "-p", "--profile"),
        *("-s", "--sandbox", "-C", "--cd", "--add-dir", "-a", "--ask-for-approval", "-i", "--image"),
        *("--remote", "--remote-auth-token-env"),
    ]
)
_SHARED = frozenset(["-c", "--config", "--enable", "--disable"])
"""Options that the server needs too."""
_TERMINAL_COMMANDS = frozenset({"resume", "fork"})
_OTHER_COMMANDS = frozenset(
    [
        *("agents", "exec", "e", "review", "login", "logout", "mcp", "plugin", "app-server"),
        *("remote-control", "completion", "update", "doctor", "sandbox", "debug", "apply", "a", "queue"),
        *("archive", "delete", "migrate-rollouts", "migrate-nfs-db", "unarchive", "cloud", "exec-server"),
        *("features", "help"),
    ]
)


@dataclass(frozen=True, slots=True)
class Words:
    """The words after the program's name."""

    command: str
    """Empty without a subcommand."""
    options: list[list[str]]
    """Each with its value."""
    rest: list[str]
    """The prompt, or what the subcommand takes."""

    def values(self, *names: str) -> list[str]:
        return [one[-1] for one in self.options if _name(one[0]) in names]


def _name(word: str) -> str:
    if word.startswith("--"):
        return word.partition("=")[0]
    return word[:2]


def split_words(words: Sequence[str]) -> Words:
    """Sort the words of a command line. A word that we do not know is an option without a value."""
    options: list[list[str]] = []
    rest: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            rest += waiting
            break
        if not word.startswith("-") or word == "-":
            rest.append(word)
        elif word in _VALUED and waiting:
            options.append([word, waiting.pop(0)])
        else:
            options.append([word])
    command = rest.pop(0) if rest and rest[0] in _TERMINAL_COMMANDS | _OTHER_COMMANDS else ""
    return Words(command, options, rest)


def read_words(argv: Sequence[str]) -> Words:
    """Sort the words of a session's command. Raises `InvalidOptions` for one that is not a session."""
    words = split_words(argv[1:])
    if words.command in _OTHER_COMMANDS:
        raise InvalidOptions(
            f"'codex {words.command}' is not a conversation in a terminal",
            hint="start it with --agent simple, or use 'remuda ask --agent codex'",
        )
    if words.values("--remote", "--remote-auth-token-env"):
        raise InvalidOptions(
            "--remote cannot be combined with a session: Remuda starts codex's server itself"
        )
    if words.values("-p", "--profile"):
        raise InvalidOptions(
            "--profile does not reach codex's server", hint="pass its settings with -c key=value"
        )
    return words


def socket_path(context: LaunchContext) -> str:
    return str(context.scratch / "s")


def companion(context: LaunchContext) -> Companion:
    words = read_words(context.argv)
    if context.call is None:
        resumed_thread(context)  # before anything is started
    shared = [word for one in words.options if _name(one[0]) in _SHARED for word in one]
    argv = [context.argv[0], "app-server", "--listen", SCHEME + socket_path(context), *shared]
    return Companion(argv, dict(context.env))


def launch(context: LaunchContext) -> Launch:
    words = read_words(context.argv)
    assert context.call is not None
    options = [word for one in words.options if one[0] != "--no-daemon" for word in one]
    if not words.values("-C", "--cd"):
        options += ["-C", str(context.cwd)]
    command, rest = words.command, words.rest
    if (resumed := resumed_thread(context)) is not None:
        command, rest = "resume", [resumed]  # the first prompt was sent when the conversation began
    remote = ["--remote", context.call.url, *options]
    argv = [context.argv[0], *([command] if command else []), *remote, *(["--", *rest] if rest else [])]
    return Launch(argv, dict(context.env))


def resumed_thread(context: LaunchContext) -> str | None:
    """Return the conversation to resume; None for one without a turn, which codex does not keep.

    Raises `SpawnFailed` for one that had a turn and is gone.
    """
    known = context.conversation
    thread, path = known.get("session_id"), known.get("transcript_path")
    if not isinstance(thread, str):
        return None
    if isinstance(path, str) and os.path.exists(path):
        return thread
    if known.get("had_turn") == thread:
        raise SpawnFailed(
            f"codex has no conversation '{thread[:80]}'",
            hint="its file was deleted or moved; start without --resume for a new one",
        )
    return None
