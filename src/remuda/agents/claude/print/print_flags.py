"""Every flag of `claude` (2.1.325), what `remuda print` does with it, and the arguments of a call.

On the stream backend the CLI runs with `-p` itself. Every flag but the refused ones is passed on there. On
the terminal backend the CLI runs as it does for a person: some flags have no meaning, and some are taken
differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from remuda.agents.claude.files import newest_conversation, titled_conversations
from remuda.agents.claude.flags import ALIASES as CLI_ALIASES
from remuda.agents.claude.flags import MANY_VALUES, ONE_VALUE, split_arguments, takes
from remuda.agents.claude.launch import accept_bypass
from remuda.agents.headless import Handling, PrintFlags
from remuda.errors import AgentRefused


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

CLAUDE_PRINT_ALIASES = {"-m": "--model", "-o": "--output-format", "-V": "--version"}
ALIASES = {**CLI_ALIASES, **CLAUDE_PRINT_ALIASES}

FLAGS = PrintFlags(
    terminal=TERMINAL,
    aliases=ALIASES,
    ours=OURS_ALWAYS,
    needs_value=ONE_VALUE | MANY_VALUES,
    takes=takes,
)


# ── the arguments of a call ──

_NO_SETTINGS = "--setting-sources="
_NO_QUESTIONS = "--disallowedTools=AskUserQuestion"  # `claude -p` does not have it either


def terminal_arguments(
    passed: Sequence[str], env: Mapping[str, str], cwd: Path, *, inherit_hooks: bool, asks: bool
) -> list[str]:
    """Return the arguments of a call of `print`. Raises `AgentRefused`. `asks`: a person can answer."""
    flags = accept_bypass(name_conversation(passed, env, cwd), env, cwd)
    if not inherit_hooks:
        flags.append(_NO_SETTINGS)
    return flags if asks else [*flags, _NO_QUESTIONS]


def stream_arguments(passed: Sequence[str], *, inherit_hooks: bool, partial: bool) -> list[str]:
    """Return the arguments of a call on the stream backend."""
    words = ["-p", "--output-format", "stream-json", "--verbose"]
    if partial:
        words.append("--include-partial-messages")
    if not inherit_hooks:
        words.append(_NO_SETTINGS)
    return [*words, *passed]


def name_conversation(flags: Sequence[str], env: Mapping[str, str], cwd: Path) -> list[str]:
    """Replace `--continue` by `--resume ID`, or remove it without a conversation; replace a title by its id.

    The terminal skips conversations that `claude -p` began, and refuses to begin a new one.
    """
    named: list[str] = []
    for flag, values in split_arguments(flags):
        name, equals, value = (flag or "").partition("=")
        if flag == "--continue":
            found = newest_conversation(env, cwd)
            named += ["--resume", found] if found else []
        elif name == "--resume" and (one := _titled(value if equals else "".join(values[:1]), env, cwd)):
            named += ["--resume", one, *values[1:]]
        else:
            named += [flag, *values] if flag is not None else values
    return named


def _titled(title: str, env: Mapping[str, str], cwd: Path) -> str | None:
    """Return the id of the conversation with this title; None if there is none, as for an id."""
    found = titled_conversations(env, cwd, title)
    if len(found) > 1:
        raise AgentRefused(
            f"--resume {title!r} matches {len(found)} conversations: {', '.join(found)}",
            hint="pass one of these ids",
        )
    return found[0] if found else None
