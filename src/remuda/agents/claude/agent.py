"""Claude Code behind the protocol that every agent has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remuda.agents.base import Launch, LaunchContext
from remuda.agents.speech import Speech

from .answers import Answers
from .launch import prepare, takes_prompt
from .observer import ClaudeObserver
from .speech import ClaudeSpeech


class ClaudeAgent:
    name = "claude"
    classifier = "claude"
    default_argv: tuple[str, ...] = ("claude",)
    speech: Speech | None = ClaudeSpeech()
    # It counts grapheme clusters. Else an emoji of several parts garbles all that is drawn beside it, and no
    # composer is found again.
    screen_setup = b"\x1b[?2027h"

    def launch(self, context: LaunchContext) -> Launch:
        return prepare(context, len(self.default_argv))

    def answers(self, *, deny_permissions: bool, max_turns: int) -> Answers:
        return Answers(deny_permissions=deny_permissions, max_turns=max_turns)

    def takes_argument(self, argv: Sequence[str]) -> bool:
        return takes_prompt(argv, len(self.default_argv))

    def observer(self, pid: int, env: Mapping[str, str], *, has_screen: bool) -> ClaudeObserver:
        return ClaudeObserver(pid, env, has_screen=has_screen)
