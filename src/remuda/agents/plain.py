"""Programs of which nothing is known but their bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .base import Launch, LaunchContext
from .speech import Speech
from .warm import WarmAgent


class PlainAgent:
    """Any command, as it is. Its state comes from byte timing alone."""

    default_argv: tuple[str, ...] = ()
    speech: Speech | None = None
    warm: WarmAgent | None = None
    screen_setup = b""

    def __init__(self, name: str, classifier: str) -> None:
        self.name = name
        self.classifier = classifier

    def launch(self, context: LaunchContext) -> Launch:
        return Launch(argv=list(context.argv), env=dict(context.env))

    def answers(self, *, deny_permissions: bool, max_turns: int, first_only: bool = True) -> None:
        return None

    def asking(self) -> None:
        return None

    def last_word(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> Callable[[], bool]:
        return lambda: False

    def trust_record(self, env: Mapping[str, str], cwd: str) -> None:
        return None

    def takes_argument(self, argv: Sequence[str]) -> bool:
        return False

    def fits_argument(self, prompt: str) -> bool:
        return False

    def observer(self, pid: int, env: Mapping[str, str], *, has_screen: bool) -> None:
        return None
