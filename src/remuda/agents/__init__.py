"""What is true of one agent CLI and of no other, behind one protocol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING

from remuda.errors import InvalidOptions

if TYPE_CHECKING:  # a call of `remuda print` needs one module of one agent
    from .base import Agent


def _claude() -> Agent:
    from .claude.agent import ClaudeAgent

    return ClaudeAgent()


def _demo() -> Agent:
    from .demo import DemoAgent

    return DemoAgent()


def _plain(name: str) -> Callable[[], Agent]:
    def make() -> Agent:
        from .plain import PlainAgent

        return PlainAgent(name, classifier=name)

    return make


_AGENTS: dict[str, Callable[[], Agent]] = {
    "claude": _claude,
    "simple": _plain("simple"),
    "none": _plain("none"),
    "demo": _demo,
}
AGENT_NAMES = tuple(_AGENTS)
DEFAULT_AGENT = "claude"


def find_agent(name: str) -> Agent:
    try:
        return _AGENTS[name]()
    except KeyError:
        raise InvalidOptions(
            f"unknown agent {name!r}", hint=f"use one of: {', '.join(AGENT_NAMES)}"
        ) from None


def guess_agent(argv: list[str]) -> str:
    """The agent that a command names by itself."""
    return "claude" if argv and PurePath(argv[0]).name == "claude" else "simple"
