"""The agents that Remuda knows. Each hides the details of one CLI from all other rooms.

An agent is one folder and one line: here, or in the entry points of another installed package (group
`remuda.agents`, such as `mustang = mustang.agent:MustangAgent`). docs/why/add-an-agent.md has the steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path, PurePath

from remuda.arguments import shown
from remuda.errors import InvalidOptions

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:  # a call of `remuda print` needs one module of one agent
    from importlib.metadata import EntryPoint

    from .base import Agent, StreamTransport
    from .headless import Headless
    from .self_test import SelfTest
    from .setup import AgentSetup
    from .sources import AgentSources, PermissionReader
    from .warm import WarmAgent


def _claude() -> Agent:
    from .claude.agent import ClaudeAgent

    return ClaudeAgent()


def _demo() -> Agent:
    from .claude.agent import DemoAgent

    return DemoAgent()


def _copilot() -> Agent:
    from .copilot.agent import CopilotAgent

    return CopilotAgent()


def _opencode() -> Agent:
    from .opencode.agent import OpencodeAgent

    return OpencodeAgent()


def _codex() -> Agent:
    from .codex.agent import CodexAgent

    return CodexAgent()


def _acp() -> Agent:
    from .acp.agent import AcpAgent

    return AcpAgent()


def _plain(name: str) -> Callable[[], Agent]:
    def make() -> Agent:
        from .plain import PlainAgent

        return PlainAgent(name, classifier=name)

    return make


_AGENTS: dict[str, Callable[[], Agent]] = {
    "claude": _claude,
    "copilot": _copilot,
    "opencode": _opencode,
    "simple": _plain("simple"),
    "none": _plain("none"),
    "demo": _demo,
    "codex": _codex,
    "acp": _acp,
}
_ENTRY_POINTS = "remuda.agents"
DEFAULT_AGENT = "claude"
"""The agent of a command that names none."""
PLAIN_AGENTS = ("simple", "none")
"""Programs that report nothing: their state comes from the timing of their output alone."""


@cache
def _installed() -> dict[str, EntryPoint]:
    """Return the agents of other packages. Reading them takes 50 ms: only for a name that is not ours."""
    from importlib.metadata import entry_points

    return {one.name: one for one in entry_points(group=_ENTRY_POINTS) if one.name not in _AGENTS}


def agent_names() -> tuple[str, ...]:
    """Return the names of all agents: ours, then those of other packages."""
    return (*_AGENTS, *_installed())


def is_agent(name: object) -> bool:
    return isinstance(name, str) and (name in _AGENTS or name in _installed())


def find_agent(name: str) -> Agent:
    """Return an agent. Raises `InvalidOptions` for a name that no agent has, or an agent that cannot load."""
    if name in _AGENTS:
        return _AGENTS[name]()
    if name not in _installed():
        raise InvalidOptions(f"unknown agent {name!r}", hint=f"use one of: {', '.join(agent_names())}")
    try:
        agent: Agent = _installed()[name].load()()
    except Exception as error:
        raise InvalidOptions(f"agent {name!r} cannot be loaded: {error}") from error
    return agent


def _loadable() -> Iterator[Agent]:
    """Yield all agents but those of packages that cannot be loaded: one of them must not stop the rest."""
    for name in agent_names():
        try:
            yield find_agent(name)
        except InvalidOptions as error:
            import logging  # slow to load, and not needed by a call of `remuda print`

            logging.getLogger("remuda.agents").warning("%s", error)


def agent_setups() -> list[AgentSetup]:
    """Return how each agent that has settings files is set up."""
    return [setup for agent in _loadable() if (setup := agent.setup()) is not None]


def used_setups() -> list[AgentSetup]:
    """Return how the default agent is set up, and each other agent that this user has."""
    return [default_setup(), *other_setups().values()]


def other_setups() -> dict[str, AgentSetup]:
    """Return by name how each other agent is set up that this user has."""
    known = ((agent.name, agent.setup()) for agent in _loadable())
    return {
        name: setup
        for name, setup in known
        if setup is not None and getattr(setup, "is_used", lambda: False)()
    }


def setup_of(path: Path) -> AgentSetup:
    """Return how the agent is set up that has this settings file; the default agent for any other file.

    It may be the real path of a file that is a link.
    """
    real = os.path.realpath(path)
    own = (one for one in agent_setups() if real in {os.path.realpath(file) for file in files_of(one)})
    return next(own, default_setup())


def files_of(setup: AgentSetup) -> list[Path]:
    """Return the user's files that `setup` and `hooks` change: hooks, then MCP servers."""
    # Agents of other packages may not know such a name.
    mcp = getattr(setup, "mcp_path", lambda: None)()
    return [setup.settings_path("user"), *([mcp] if mcp is not None else [])]


def default_setup() -> AgentSetup:
    """Return how the default agent is set up."""
    setup = find_agent(DEFAULT_AGENT).setup()
    assert setup is not None
    return setup


def find_self_test(name: str) -> SelfTest | None:
    """Return how an agent is tried on this machine; None if it offers no self-test, or is not known."""
    from .self_test import OffersSelfTest

    agent: object = find_agent(name) if is_agent(name) else None
    return agent.self_test() if isinstance(agent, OffersSelfTest) else None


def find_warm(name: object) -> WarmAgent:
    """Return the part of an agent that a pool uses. Raises `InvalidOptions` if it has none."""
    warm = find_agent(str(name)).warm if is_agent(name) else None
    if warm is None:
        usable = [known for known in agent_names() if find_agent(known).warm is not None]
        raise InvalidOptions(f"agent must be one of {', '.join(usable)}, not {shown(name)}")
    return warm


def find_headless(name: str) -> Headless:
    """Return how an agent runs without a person. Raises `InvalidOptions` if it cannot."""
    headless = find_agent(name).headless
    if headless is None:
        raise InvalidOptions(f"agent {name!r} cannot run without a person")
    return headless


def find_stream(name: str) -> StreamTransport:
    """Return how an agent runs without a terminal. Raises `InvalidOptions` if it cannot."""
    stream = find_headless(name).stream
    if stream is None:
        raise InvalidOptions(f"agent {name!r} cannot run without a terminal", hint="use the backend terminal")
    return stream


@cache
def find_sources(name: str) -> AgentSources | None:
    """Return the reader of an agent's hooks and files; None if it has none, or is not known."""
    return find_agent(name).sources if is_agent(name) else None


def all_sources() -> list[AgentSources]:
    """Return the sources of all agents that have any, each once."""
    found = (find_sources(agent.name) for agent in _loadable())
    return list({sources.agent: sources for sources in found if sources is not None}.values())


def find_permissions(name: str) -> PermissionReader:
    """Return how to read an agent's permission requests. An unknown agent's are read as the default's."""
    sources = find_sources(name) or find_sources(DEFAULT_AGENT)
    assert sources is not None
    return sources.permissions


def guess_agent(argv: list[str]) -> str:
    """Return the agent of ours whose program a command runs; "simple" for any other command."""
    program = PurePath(argv[0]).name if argv else ""
    is_program = program in _AGENTS and find_agent(program).default_argv[:1] == (program,)
    return program if is_program else "simple"
