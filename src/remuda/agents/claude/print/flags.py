"""Every flag of `claude` (2.1.325) and what `remuda print` does with it. Pure.

On the stream backend the CLI runs with `-p` itself. Every flag but the refused ones is passed on there. On
the terminal backend the CLI runs as it does for a person, and some flags have no meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

from remuda.agents.claude.flags import ALIASES as CLI_ALIASES
from remuda.agents.claude.flags import MANY_VALUES, ONE_VALUE, takes
from remuda.agents.headless import Handling, PrintFlags


def _table(flags: Mapping[Handling, str]) -> dict[str, Handling]:
    return {flag: handling for handling, names in flags.items() for flag in names.split()}


_LISTED = _table(
    {
        Handling.PASSED: """
            --add-dir --agent --agents --allow-dangerously-skip-permissions --allowedTools
            --append-system-prompt --autocompact --betas --brief --chrome --continue
            --dangerously-skip-permissions --debug --debug-file --disable-slash-commands --disallowedTools
            --effort --exclude-dynamic-system-prompt-sections --fallback-model --file --fork-session --ide
            --mcp-config --model --name --no-chrome --permission-mode --plugin-dir --plugin-url
            --restricted --resume --session-id --setting-sources --settings --strict-mcp-config
            --system-prompt --system-prompt-snapshot --tools --worktree
        """,
        Handling.OURS: """
            --ax-screen-reader --help --include-partial-messages --input-format --output-format
            --permission-prompts --print --verbose --version
        """,
        Handling.STREAM: """
            --bare --forward-subagent-text --from-pr --include-hook-events --json-schema --max-budget-usd
            --no-session-persistence --prompt-suggestions --replay-user-messages --safe-mode
        """,
        Handling.REFUSED: """
            --bg --cloud --desktop --environment --remote-control --remote-control-session-name-prefix
            --teleport --tmux
        """,
    }
)
HIDDEN = _table(
    {
        Handling.PASSED: """
            --advisor --append-subagent-system-prompt --append-subagent-system-prompt-file
            --append-system-prompt-file --managed-settings --max-thinking-tokens --plugin-dir-no-mcp
            --system-prompt-file --task-budget --thinking --thinking-display
        """,
        Handling.OURS: "--max-turns",
        Handling.STREAM: "--permission-prompt-tool --plan-mode-instructions --resume-session-at",
        Handling.REFUSED: """
            --agent-color --agent-id --agent-name --agent-type --parent-session-id --prefill --team-name
            --teammate-mode
        """,
    }
)
TERMINAL: dict[str, Handling] = {**_LISTED, **HIDDEN}
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
