"""Claude Code as an `Agent`.

It is started with few imports. What reads its hooks, files and screen is imported when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .launch import own_arguments, prepare, takes_prompt

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from typing import Any

    from remuda.agents.base import HookChannel, Launch, LaunchContext
    from remuda.agents.events import Report
    from remuda.agents.permission import PermissionDecision, PermissionRequest
    from remuda.agents.prompting import PromptProtocol
    from remuda.agents.sources import AgentSources

    from .headless import ClaudeHeadless
    from .observer import ClaudeObserver
    from .resumption import ClaudeResumption
    from .self_test import ClaudeSelfTest
    from .setup.claude_setup import ClaudeSetup
    from .trust import ClaudeTrust
    from .warm import ClaudeWarm


class ClaudeHooks:
    def read(self, payload: Mapping[str, Any], at: float) -> Report:
        from .hooks import read_hook

        return read_hook(payload, at=at)

    def read_emitted(self, arguments: Mapping[str, Any]) -> Report | None:
        from .hooks import read_emitted

        return read_emitted(arguments)

    def decide(self, request: PermissionRequest, decision: PermissionDecision) -> dict[str, Any]:
        from .hooks import answer_permission

        return answer_permission(request, decision)

    def refuse_prompt(self, reason: str) -> dict[str, Any]:
        return {"decision": "block", "reason": reason}

    def halt(self, reason: str) -> dict[str, Any]:
        return {"continue": False, "stopReason": reason}


class ClaudeAgent:
    name = "claude"
    classifier = "claude"
    default_argv: tuple[str, ...] = ("claude",)
    # It counts grapheme clusters. Without this an emoji of several parts shifts the rest of its row, and the
    # composer is not found.
    screen_setup = b"\x1b[?2027h"

    @property
    def prompts(self) -> PromptProtocol | None:
        from .prompting import ClaudePrompts

        return ClaudePrompts()

    @property
    def warm(self) -> ClaudeWarm:
        from .warm import ClaudeWarm

        return ClaudeWarm()

    @property
    def headless(self) -> ClaudeHeadless:
        from .headless import ClaudeHeadless

        return ClaudeHeadless()

    @property
    def sources(self) -> AgentSources | None:
        from .sources import ClaudeSources

        return ClaudeSources()

    def launch(self, context: LaunchContext) -> Launch:
        return prepare(context, len(self.default_argv))

    @property
    def hooks(self) -> HookChannel:
        return ClaudeHooks()

    def last_word(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> Callable[[], bool]:
        from .last_word import LastWord

        return LastWord(*own_arguments(argv, cwd, len(self.default_argv)), env, cwd)

    def trust_record(self, env: Mapping[str, str], cwd: str) -> ClaudeTrust | None:
        from .trust import ClaudeTrust

        return ClaudeTrust(env, cwd) if env.get("HOME") or env.get("CLAUDE_CONFIG_DIR") else None

    def resumption(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> ClaudeResumption:
        from .resumption import ClaudeResumption

        return ClaudeResumption(argv, env, cwd, len(self.default_argv))

    def setup(self) -> ClaudeSetup | None:
        from .setup.claude_setup import ClaudeSetup

        return ClaudeSetup()

    def self_test(self) -> ClaudeSelfTest | None:
        from .self_test import ClaudeSelfTest

        return ClaudeSelfTest()

    def takes_argument(self, argv: Sequence[str]) -> bool:
        return takes_prompt(argv, len(self.default_argv))

    def fits_argument(self, prompt: str) -> bool:
        from .prompt import fits_argument

        return fits_argument(prompt)

    def observer(self, pid: int, env: Mapping[str, str], *, has_screen: bool) -> ClaudeObserver:
        from .observer import ClaudeObserver

        return ClaudeObserver(pid, env, has_screen=has_screen)


class DemoAgent(ClaudeAgent):
    """The scripted agent: behaves as Claude Code does, needs no account and no network."""

    name = "demo"
    default_argv: tuple[str, ...] = (sys.executable, "-P", "-m", "remuda.testing.scripted_agent")

    def setup(self) -> None:
        """Return None: it reads Claude Code's settings, which `ClaudeAgent` sets up."""

    def self_test(self) -> None:
        """Return None: it comes with Remuda, whose tests try it."""
