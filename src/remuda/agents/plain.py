"""Programs that report nothing: only their output is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .base import HookChannel, Launch, LaunchContext
from .prompting import PromptProtocol

if TYPE_CHECKING:
    from .headless import Headless
    from .sources import AgentSources
    from .warm import WarmAgent


class PlainAgent:
    """Any command, as it is. Its state comes from byte timing alone."""

    default_argv: tuple[str, ...] = ()
    prompts: PromptProtocol | None = None
    hooks: HookChannel | None = None
    warm: WarmAgent | None = None
    headless: Headless | None = None
    sources: AgentSources | None = None
    screen_setup = b""

    def __init__(self, name: str, classifier: str) -> None:
        self.name = name
        self.classifier = classifier

    def launch(self, context: LaunchContext) -> Launch:
        return Launch(argv=list(context.argv), env=dict(context.env))

    def last_word(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> Callable[[], bool]:
        return lambda: False

    def trust_record(self, env: Mapping[str, str], cwd: str) -> None:
        return None

    def resumption(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        """Return None: what it was doing cannot be brought back."""

    def setup(self) -> None:
        return None

    def takes_argument(self, argv: Sequence[str]) -> bool:
        return False

    def fits_argument(self, prompt: str) -> bool:
        return False

    def observer(self, pid: int, env: Mapping[str, str], *, has_screen: bool) -> None:
        return None
