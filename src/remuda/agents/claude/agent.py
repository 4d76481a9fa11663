"""Claude Code behind the protocol that every agent has.

It is started before anybody has to understand it: what reads it is loaded when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.agents.base import Launch, LaunchContext

from .answers import Answers
from .launch import own_arguments, prepare, takes_prompt

if TYPE_CHECKING:
    from remuda.agents.permission import Asking
    from remuda.agents.speech import Speech

    from .observer import ClaudeObserver
    from .trust import TrustRecord
    from .warm import ClaudeWarm


class ClaudeAgent:
    name = "claude"
    classifier = "claude"
    default_argv: tuple[str, ...] = ("claude",)
    # It counts grapheme clusters. Else an emoji of several parts garbles all that is drawn beside it, and no
    # composer is found again.
    screen_setup = b"\x1b[?2027h"

    @property
    def speech(self) -> Speech | None:
        from .speech import ClaudeSpeech

        return ClaudeSpeech()

    @property
    def warm(self) -> ClaudeWarm:
        from .warm import ClaudeWarm

        return ClaudeWarm()

    def launch(self, context: LaunchContext) -> Launch:
        return prepare(context, len(self.default_argv))

    def answers(self, *, deny_permissions: bool, max_turns: int, first_only: bool = True) -> Answers:
        return Answers(deny_permissions=deny_permissions, max_turns=max_turns, first_only=first_only)

    def asking(self) -> Asking:
        from .permission import ClaudeAsking

        return ClaudeAsking()

    def last_word(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> Callable[[], bool]:
        from .last_word import LastWord

        return LastWord(*own_arguments(argv, cwd, len(self.default_argv)), env, cwd)

    def trust_record(self, env: Mapping[str, str], cwd: str) -> TrustRecord | None:
        from .trust import TrustRecord

        return TrustRecord(env, cwd) if env.get("HOME") or env.get("CLAUDE_CONFIG_DIR") else None

    def takes_argument(self, argv: Sequence[str]) -> bool:
        return takes_prompt(argv, len(self.default_argv))

    def fits_argument(self, prompt: str) -> bool:
        from .prompt import fits_argument

        return fits_argument(prompt)

    def observer(self, pid: int, env: Mapping[str, str], *, has_screen: bool) -> ClaudeObserver:
        from .observer import ClaudeObserver

        return ClaudeObserver(pid, env, has_screen=has_screen)
