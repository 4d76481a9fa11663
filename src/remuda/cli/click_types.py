"""What commands add to click: a type of parameter, and a group."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from remuda.agents import agent_names, is_agent


class AgentName(click.ParamType[str]):
    """The name of an agent. Those of other packages are read only for a name that is not ours."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_agent(value):
            self.fail(f"{value!r} is not one of {', '.join(map(repr, agent_names()))}.", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in agent_names() if name.startswith(incomplete)]


class OrderedGroup(click.Group):
    """A group that lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)
