"""opencode as an `Agent`: it is called through a server of its own for each session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

    from .self_test import OpencodeSelfTest


class OpencodeAgent(PlainAgent):
    default_argv: tuple[str, ...] = ("opencode",)

    def __init__(self) -> None:
        super().__init__("opencode", classifier="simple")

    @property
    def prompts(self) -> PromptProtocol | None:  # type: ignore[override]
        from .prompting import OpencodePrompts

        return OpencodePrompts()

    def setup(self) -> AgentSetup | None:  # type: ignore[override]
        from .setup import OpencodeSetup

        return OpencodeSetup()

    @property
    def headless(self) -> Headless | None:  # type: ignore[override]
        from .headless import OpencodeHeadless

        return OpencodeHeadless()

    @property
    def warm(self) -> WarmAgent | None:  # type: ignore[override]
        from .warm import OpencodeWarm

        return OpencodeWarm()

    @property
    def sources(self) -> AgentSources | None:  # type: ignore[override]
        from .sources import OpencodeSources

        return OpencodeSources()

    def self_test(self) -> OpencodeSelfTest:
        from .self_test import OpencodeSelfTest

        return OpencodeSelfTest()

    def launch(self, context: LaunchContext) -> Launch:
        from .launch import make_launch

        return make_launch(context, len(self.default_argv))

    def last_word(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> Callable[[], bool]:
        return lambda: True

    def resumption(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        """Return None: model and mode of its server are not proven to come back."""

    def observer(self, pid: int, env: Mapping[str, str], *, has_screen: bool) -> EventObserver:  # type: ignore[override]
        from remuda.agents.observer import EventObserver

        from .prompting import OpencodePrompts

        return EventObserver(OpencodePrompts())
