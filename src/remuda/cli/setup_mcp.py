"""remuda setup mcp: our MCP server in the configuration of an agent"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from remuda.agents import DEFAULT_AGENT, agent_setups, find_agent
from remuda.agents.setup import AgentSettings, AgentSetup
from remuda.errors import InvalidOptions

from .click_types import AgentName
from .common import short_path
from .file_changes import Agreement, agreement_options, save_installed, save_uninstalled, shown_place
from .hooks_boss import check_installed
from .output import echo

F = TypeVar("F", bound=Callable[..., Any])


def _agent_option(function: F) -> F:
    return click.option(
        "--agent", type=AgentName(), default=DEFAULT_AGENT, show_default=True, help="Agent to set up."
    )(function)


def _file(agent: str) -> AgentSettings:
    """Return the configuration of an agent. Raises `InvalidOptions` if we do not know how to change it."""
    setup = find_agent(agent).setup()
    path = _path(setup)
    if setup is None or path is None:
        raise InvalidOptions(
            f"setup cannot change the configuration of '{agent}'",
            hint="add a stdio server to it that runs: remuda mcp",
        )
    return setup.open_settings(path)


def _path(setup: AgentSetup | None) -> Path | None:
    # Agents of other packages may not know such a name.
    found = getattr(setup, "mcp_path", None)
    return found() if found is not None else None


def installed_files() -> list[Path]:
    """Return the files that have our MCP server. One that cannot be read is left out."""
    found = []
    for setup in agent_setups():
        path = _path(setup)
        if path is not None:
            with suppress(InvalidOptions):
                if setup.open_settings(path).has_mcp_server:
                    found.append(path)
    return list(dict.fromkeys(found))


@click.command("install")
@_agent_option
@agreement_options
def install(agent: str, yes: bool, dry_run: bool, diff: bool) -> None:
    from .mcp import need_extra

    need_extra()
    file = _file(agent)
    setup = find_agent(agent).setup()
    assert setup is not None
    check_installed(agent, setup)
    file.add_mcp_server()
    if save_installed(file, f"add an MCP server to {shown_place(file)}", Agreement(yes, dry_run, diff)):
        echo(
            f"installed in {shown_place(file)}; sessions of {agent} that you start from now on have the tools"
        )


@click.command("uninstall")
@_agent_option
@agreement_options
def uninstall(agent: str, yes: bool, dry_run: bool, diff: bool) -> None:
    _remove(_file(agent), Agreement(yes, dry_run, diff))


def uninstall_from_file(path: Path, how: Agreement) -> None:
    for setup in agent_setups():
        if _path(setup) == path:
            _remove(setup.open_settings(path), how)
            return


def _remove(file: AgentSettings, how: Agreement) -> None:
    file.remove_mcp_server()
    if save_uninstalled(file, f"remove the MCP server from {shown_place(file)}", how):
        echo(f"removed from {shown_place(file)}")


@click.command("show")
@_agent_option
def show(agent: str) -> None:
    file = _file(agent)
    state = "installed in" if file.has_mcp_server else "not installed in"
    echo(f"{state} {short_path(str(file.path))}")


COMMANDS = {"install": install, "uninstall": uninstall, "show": show}
