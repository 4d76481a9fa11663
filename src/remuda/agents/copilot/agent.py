"""GitHub Copilot CLI as an `Agent`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.agents.base import HookChannel, Launch, LaunchContext
from remuda.agents.plain import PlainAgent
from remuda.errors import InputError

if TYPE_CHECKING:
    from remuda.agents.headless import Headless
    from remuda.agents.prompting import PromptProtocol
    from remuda.agents.setup import AgentSetup
    from remuda.agents.sources import AgentSources
    from remuda.agents.warm import WarmAgent

    from .observer import CopilotObserver
    from .self_test import CopilotSelfTest


class CopilotAgent(PlainAgent):
    default_argv: tuple[str, ...] = ("copilot",)

    def __init__(self) -> None:
        super().__init__("copilot", classifier="simple")

    @property
    def prompts(self) -> PromptProtocol | None:  # type: ignore[override]
        from .prompting import CopilotPrompts

        return CopilotPrompts()

    @property
    def hooks(self) -> HookChannel | None:  # type: ignore[override]
        from .hooks import CopilotHooks

        return CopilotHooks()

    @property
    def warm(self) -> WarmAgent | None:  # type: ignore[override]
        from .warm import CopilotWarm

        return CopilotWarm()

    @property
    def headless(self) -> Headless | None:  # type: ignore[override]
        from .headless import CopilotHeadless

        return CopilotHeadless()

    @property
    def sources(self) -> AgentSources | None:  # type: ignore[override]
        from .sources import CopilotSources

        return CopilotSources()

    def self_test(self) -> CopilotSelfTest:
        from .self_test import CopilotSelfTest

        return CopilotSelfTest()

    def launch(self, context: LaunchContext) -> Launch:
        from .launch import prepare

        return prepare(context)

    def resumption(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        """Return None: nothing reports its mode and its model, so they could not be brought back."""

    def setup(self) -> AgentSetup | None:  # type: ignore[override]
        from .setup import CopilotSetup

        return CopilotSetup()

    def takes_argument(self, argv: Sequence[str]) -> bool:
        from .launch import takes_prompt

        return takes_prompt(argv)

    def fits_argument(self, prompt: str) -> bool:
        from .prompting import check_typed

        try:
            check_typed(prompt)
        except InputError:
            return False
        return True

    def observer(  # type: ignore[override]
        self, pid: int, env: Mapping[str, str], *, has_screen: bool
    ) -> CopilotObserver:
        from .observer import CopilotObserver

        return CopilotObserver(pid, env, has_screen=has_screen)
