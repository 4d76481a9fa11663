"""Implements the protocols of `remuda.agents` for codex."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.agents.plain import PlainAgent

if TYPE_CHECKING:
    from remuda.agents.base import Launch, LaunchContext
    from remuda.agents.headless import Headless
    from remuda.agents.observer import EventObserver
    from remuda.agents.prompting import PromptProtocol
    from remuda.agents.setup import AgentSetup
    from remuda.agents.sources import AgentSources
    from remuda.agents.warm import WarmAgent

    from .self_test import CodexSelfTest


class CodexAgent(PlainAgent):
    default_argv: tuple[str, ...] = ("codex",)

    def __init__(self) -> None:
        super().__init__("codex", classifier="simple")

    @cached_property
    def prompts(self) -> PromptProtocol | None:  # type: ignore[override]
        from .prompting import CodexPrompts

        return CodexPrompts()

    @property
    def sources(self) -> AgentSources | None:  # type: ignore[override]
        from .sources import CodexSources

        return CodexSources()

    def setup(self) -> AgentSetup | None:  # type: ignore[override]
        from .setup import CodexSetup

        return CodexSetup()

    @property
    def headless(self) -> Headless | None:  # type: ignore[override]
        from .headless import CodexHeadless

        return CodexHeadless()

    @property
    def warm(self) -> WarmAgent | None:  # type: ignore[override]
        from .warm import CodexWarm

        return CodexWarm()

    def self_test(self) -> CodexSelfTest:
        from .self_test import CodexSelfTest

        return CodexSelfTest()

    def launch(self, context: LaunchContext) -> Launch:
        from . import launch

        return launch.launch(context)

    def last_word(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> Callable[[], bool]:
        """Return that every stop is final: the server says so after all hooks have run."""
        return lambda: True

    def resumption(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        """Return None: model and mode of its app-server are not proven to come back."""

    def observer(self, pid: int, env: Mapping[str, str], *, has_screen: bool) -> EventObserver:  # type: ignore[override]
        from remuda.agents.observer import EventObserver

        from .prompting import CodexPrompts

        return EventObserver(CodexPrompts())
