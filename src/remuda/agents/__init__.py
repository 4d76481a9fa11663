"""What is true of one agent CLI and of no other, behind one protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING

from remuda.errors import InvalidOptions

if TYPE_CHECKING:  # a call of `remuda print` needs one module of one agent
    from .base import Agent
    from .headless import Headless
    from .setup import AgentSetup
    from .sources import AgentSources, PermissionReader


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
"""What a command means that names no agent."""
PLAIN_AGENTS = ("simple", "none")
"""Programs that report nothing: their state comes from the timing of their output alone."""


def find_agent(name: str) -> Agent:
    try:
        return _AGENTS[name]()
    except KeyError:
        raise InvalidOptions(
            f"unknown agent {name!r}", hint=f"use one of: {', '.join(AGENT_NAMES)}"
        ) from None


def agent_setups() -> list[AgentSetup]:
    """Return how each agent that has settings files is set up."""
    return [setup for name in AGENT_NAMES if (setup := find_agent(name).setup()) is not None]


def default_setup() -> AgentSetup:
    """Return how the default agent is set up."""
    setup = find_agent(DEFAULT_AGENT).setup()
    assert setup is not None
    return setup


def find_headless(name: str) -> Headless:
    """Return how an agent runs without a person. Raises `InvalidOptions` if it cannot."""
    headless = find_agent(name).headless
    if headless is None:
        raise InvalidOptions(f"agent {name!r} cannot run without a terminal")
    return headless


@cache
def find_sources(name: str) -> AgentSources | None:
    """Return what an agent's hooks and files tell; None for a program that has none, or is not known."""
    return find_agent(name).sources if name in _AGENTS else None


def all_sources() -> list[AgentSources]:
    """Return the sources of all agents that have any, each once."""
    found = (find_sources(name) for name in _AGENTS)
    return list({sources.agent: sources for sources in found if sources is not None}.values())


def find_permissions(name: str) -> PermissionReader:
    """Return how to read an agent's permission requests. An unknown agent's are read as the default's."""
    sources = find_sources(name) or find_sources(DEFAULT_AGENT)
    assert sources is not None
    return sources.permissions


def guess_agent(argv: list[str]) -> str:
    """The agent that a command names by itself."""
    return "claude" if argv and PurePath(argv[0]).name == "claude" else "simple"
