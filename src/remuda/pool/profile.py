"""What makes two agent processes interchangeable. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property

from remuda.agents import find_agent


@dataclass(frozen=True)
class Profile:
    """A warm session serves requests of its own profile and no other."""

    agent: str
    binary: str
    cwd: str
    env: Mapping[str, str] = field(repr=False)
    """The whole environment, not only what was added to it."""
    model: str | None = None
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    permission_mode: str | None = None
    asks: bool = False
    """Whether permissions go to the caller; else the agent is told no, as `claude -p` is."""
    settings: str | None = None
    setting_sources: str | None = None
    mcp_config: tuple[str, ...] = ()
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    add_dirs: tuple[str, ...] = ()
    extra_args: tuple[str, ...] = ()

    @property
    def program(self) -> list[str]:
        """The words that start the agent, before its flags."""
        return [self.binary, *find_agent(self.agent).default_argv[1:]]

    @cached_property
    def key(self) -> str:
        """The same for equal profiles; tells nothing of what is in it."""
        text = json.dumps(asdict(self) | {"env": dict(sorted(self.env.items()))}, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
