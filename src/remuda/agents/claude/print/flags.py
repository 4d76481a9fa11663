"""Every flag of `claude` (2.1.325) and what `remuda print` does with it. Pure.

On the stream backend the CLI runs with `-p` itself. Every flag but the refused ones is passed on there. On
the terminal backend the CLI runs as it does for a person, and some flags have no meaning.
"""

from __future__ import annotations

from remuda.agents.claude.flags import ALIASES as CLI_ALIASES
from remuda.agents.claude.flags import MANY_VALUES, ONE_VALUE, takes
from remuda.agents.headless import Handling, PrintFlags

_SHOWN: dict[str, Handling] = {
    "--add-dir": Handling.PASSED,
    "--agent": Handling.PASSED,
    "--agents": Handling.PASSED,
    "--allow-dangerously-skip-permissions": Handling.PASSED,
    "--allowedTools": Handling.PASSED,
    "--append-system-prompt": Handling.PASSED,
    "--autocompact": Handling.PASSED,
    "--ax-screen-reader": Handling.OURS,
    "--bare": Handling.STREAM,
    "--betas": Handling.PASSED,
    "--bg": Handling.REFUSED,
    "--brief": Handling.PASSED,
    "--chrome": Handling.PASSED,
    "--cloud": Handling.REFUSED,
    "--continue": Handling.PASSED,
    "--dangerously-skip-permissions": Handling.PASSED,
    "--debug": Handling.PASSED,
    "--debug-file": Handling.PASSED,
    "--desktop": Handling.REFUSED,
    "--disable-slash-commands": Handling.PASSED,
    "--disallowedTools": Handling.PASSED,
    "--effort": Handling.PASSED,
    "--environment": Handling.REFUSED,
    "--exclude-dynamic-system-prompt-sections": Handling.PASSED,
    "--fallback-model": Handling.PASSED,
    "--file": Handling.PASSED,
    "--fork-session": Handling.PASSED,
    "--forward-subagent-text": Handling.STREAM,
    "--from-pr": Handling.STREAM,
    "--help": Handling.OURS,
    "--ide": Handling.PASSED,
    "--include-hook-events": Handling.STREAM,
    "--include-partial-messages": Handling.OURS,
    "--input-format": Handling.OURS,
    "--json-schema": Handling.STREAM,
    "--max-budget-usd": Handling.STREAM,
    "--mcp-config": Handling.PASSED,
    "--model": Handling.PASSED,
    "--name": Handling.PASSED,
    "--no-chrome": Handling.PASSED,
    "--no-session-persistence": Handling.STREAM,
    "--output-format": Handling.OURS,
    "--permission-mode": Handling.PASSED,
    "--permission-prompts": Handling.OURS,
    "--plugin-dir": Handling.PASSED,
    "--plugin-url": Handling.PASSED,
    "--print": Handling.OURS,
    "--prompt-suggestions": Handling.STREAM,
    "--remote-control": Handling.REFUSED,
    "--remote-control-session-name-prefix": Handling.REFUSED,
    "--replay-user-messages": Handling.STREAM,
    "--restricted": Handling.PASSED,
    "--resume": Handling.PASSED,
    "--safe-mode": Handling.STREAM,
    "--session-id": Handling.PASSED,
    "--setting-sources": Handling.PASSED,
    "--settings": Handling.PASSED,
    "--strict-mcp-config": Handling.PASSED,
    "--system-prompt": Handling.PASSED,
    "--system-prompt-snapshot": Handling.PASSED,
    "--teleport": Handling.REFUSED,
    "--tmux": Handling.REFUSED,
    "--tools": Handling.PASSED,
    "--verbose": Handling.OURS,
    "--version": Handling.OURS,
    "--worktree": Handling.PASSED,
}

HIDDEN: dict[str, Handling] = {
    "--advisor": Handling.PASSED,
    "--agent-color": Handling.REFUSED,
    "--agent-id": Handling.REFUSED,
    "--agent-name": Handling.REFUSED,
    "--agent-type": Handling.REFUSED,
    "--append-subagent-system-prompt": Handling.PASSED,
    "--append-subagent-system-prompt-file": Handling.PASSED,
    "--append-system-prompt-file": Handling.PASSED,
    "--managed-settings": Handling.PASSED,
    "--max-thinking-tokens": Handling.PASSED,
    "--max-turns": Handling.OURS,
    "--parent-session-id": Handling.REFUSED,
    "--permission-prompt-tool": Handling.STREAM,
    "--plan-mode-instructions": Handling.STREAM,
    "--plugin-dir-no-mcp": Handling.PASSED,
    "--prefill": Handling.REFUSED,
    "--resume-session-at": Handling.STREAM,
    "--system-prompt-file": Handling.PASSED,
    "--task-budget": Handling.PASSED,
    "--team-name": Handling.REFUSED,
    "--teammate-mode": Handling.REFUSED,
    "--thinking": Handling.PASSED,
    "--thinking-display": Handling.PASSED,
}

TERMINAL: dict[str, Handling] = {**_SHOWN, **HIDDEN}
"""The flags that `claude --help` lists, and those that it does not."""

OURS_ALWAYS = frozenset(
    ["--print", "--output-format", "--help", "--version", "--include-partial-messages", "--verbose"]
)
"""Flags for what is printed. `print` carries them out itself, on the stream backend too."""

NOTES: dict[str, str] = {
    "--agents": "on a terminal the CLI takes JSON, and no file",
    "--allow-dangerously-skip-permissions": "the CLI refuses it to root outside of a sandbox",
    "--ax-screen-reader": "changes the screen and not the answer: left out",
    "--continue": "on a terminal as `--resume` with the conversation that `claude -p` would go on with",
    "--dangerously-skip-permissions": "the CLI refuses it to root outside of a sandbox",
    "--from-pr": "a terminal opens a list to choose from",
    "--include-partial-messages": "on a terminal text alone, when a line of it is complete",
    "--input-format": "on a terminal `text` alone",
    "--max-turns": "on a terminal by a hook that stops the agent before its next request",
    "--permission-prompts": "on a terminal `none` alone; `--ask` leaves permissions to a human",
    "--resume": "needs an id or a title, as with `claude -p`",
    "--settings": "on a terminal together with our hooks, in one file",
    "--tmux": "a call has a session of its own: `remuda attach`",
}

CLAUDE_PRINT_ALIASES = {"-m": "--model", "-o": "--output-format", "-V": "--version"}
ALIASES = {**CLI_ALIASES, **CLAUDE_PRINT_ALIASES}

FLAGS = PrintFlags(
    terminal=TERMINAL,
    aliases=ALIASES,
    ours=OURS_ALWAYS,
    needs_value=ONE_VALUE | MANY_VALUES,
    takes=takes,
)
