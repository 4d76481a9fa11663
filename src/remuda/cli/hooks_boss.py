"""remuda hooks … --boss and --trail-boss: hooks that report sessions without a keeper to the boss"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from remuda.agents import DEFAULT_AGENT, agent_setups, find_agent, other_setups, setup_of, used_setups
from remuda.agents.setup import AgentSetup, BossHooks
from remuda.boss.client import BossClient
from remuda.boss.folder import BossFolder
from remuda.errors import InvalidOptions, RemudaError
from remuda.paths import private_folder

from .click_types import AgentName
from .common import configuration, json_option, short_path
from .file_changes import Agreement, agreement_options, save_installed, save_uninstalled, shown_place
from .output import echo, print_json, style

F = TypeVar("F", bound=Callable[..., Any])


def _settings_option(function: F) -> F:
    return click.option(
        "--settings",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Settings file to use.  [default: your own settings, for every session you start]",
    )(function)


def _agent_option(function: F) -> F:
    return click.option(
        "--agent",
        "agents",
        type=AgentName(),
        multiple=True,
        help="Agent to set up; repeat it for several.  [default: claude; to remove: all]",
    )(function)


def settings_files(settings: Path | None, agents: Sequence[str] = ()) -> list[Path]:
    """Return the given file, or the user's own of these agents; without any, of each that the user has."""
    if settings is not None:
        if agents:
            raise InvalidOptions("--settings and --agent exclude each other", hint="give one of them")
        return [settings.expanduser().absolute()]
    setups = [_setup(name) for name in agents] or used_setups()
    return [setup.settings_path("user") for setup in setups]


def _setup(agent: str) -> AgentSetup:
    setup = find_agent(agent).setup()
    if setup is None:
        raise InvalidOptions(f"the boss has no hooks for '{agent}'")
    return setup


def files_to_install(settings: Path | None, agents: Sequence[str]) -> list[Path]:
    """Return the files that get hooks. Raises `InvalidOptions` for an agent that is not installed."""
    for agent in agents:
        check_installed(agent, _setup(agent))
    return settings_files(settings, agents or ([] if settings is not None else [DEFAULT_AGENT]))


def check_installed(agent: str, setup: AgentSetup) -> None:
    # Only agents that need not be there can say so.
    if not getattr(setup, "is_installed", lambda: True)():
        raise InvalidOptions(
            f"{agent} is not installed: no '{agent}' on the PATH",
            hint="install it first; nothing was changed",
        )


def other_agents() -> list[str]:
    """Return the agents besides the default one that this user has, and that have no hooks of the boss."""
    return [name for name, setup in other_setups().items() if not boss_hooks(setup.settings_path("user"))]


def boss_hooks(only: Path | None = None) -> list[BossHooks]:
    """Return the boss's hooks in the settings of all agents that apply here, or in `only`."""
    folder = BossFolder.default().path
    return [group for setup in agent_setups() for group in setup.boss_hooks(folder, only)]


@click.command("install")
@_settings_option
@_agent_option
@agreement_options
def install(settings: Path | None, agents: tuple[str, ...], dry_run: bool, yes: bool, diff: bool) -> None:
    """Install hooks that report every session you start to the boss.

    That is for Claude Code; --agent names others. Hooks of other programs stay as they are. You see the
    change before it is made. Safe to run again: only outdated entries change. A running session uses the
    hooks from its next turn on.

    \b
    Examples:
      remuda hooks install --boss
      remuda hooks install --boss --dry-run
      remuda hooks install --boss --agent codex
    """
    for path in files_to_install(settings, agents):
        install_into_file(path, Agreement(yes, dry_run, diff))


def install_into_file(path: Path, how: Agreement) -> None:
    setup = setup_of(path)
    file = setup.open_settings(path)
    folder = BossFolder.default().path
    count = file.add_boss_hooks(folder)
    summary = f"add {count} hooks to {shown_place(file)}"
    if save_installed(file, summary, how, folder=folder):
        echo(f"installed in {shown_place(file)}")
        if note := getattr(setup, "after_install", ""):
            echo(note)


@click.command("uninstall")
@_settings_option
@_agent_option
@agreement_options
def uninstall(settings: Path | None, agents: tuple[str, ...], dry_run: bool, yes: bool, diff: bool) -> None:
    """Remove the boss's hooks from the settings, and nothing else.

    A file that has not changed since is restored byte for byte.

    \b
    Example:
      remuda hooks uninstall --boss
    """
    for path in settings_files(settings, agents):
        uninstall_from_file(path, Agreement(yes, dry_run, diff))


def uninstall_from_file(path: Path, how: Agreement) -> None:
    file = setup_of(path).open_settings(path)
    count = file.remove_boss_hooks()
    summary = f"remove {count} hooks from {shown_place(file)}"
    if save_uninstalled(file, summary, how):
        echo(f"removed from {shown_place(file)}")


@click.command("show")
@_settings_option
@json_option
def show(settings: Path | None, as_json: bool) -> int:
    """Show the boss's hooks in the settings that apply here, and what is wrong with them.

    Exits with 1 if something is wrong.

    \b
    Example:
      remuda hooks show --boss
    """
    groups = boss_hooks(settings_files(settings)[0] if settings else None)
    if as_json:
        print_json([_document(group) for group in groups])
    elif not groups:
        echo("no boss hooks in the settings that apply here")
    else:
        print_boss_hooks(groups)
    return 1 if any(group.problems for group in groups) else 0


def print_boss_hooks(groups: list[BossHooks]) -> None:
    for group in groups:
        echo(f"{len(group.events)} hooks for {short_path(group.folder)} in {short_path(str(group.path))}")
        for problem in group.problems:
            echo(f"  {style('note', fg='yellow')}  {problem}")
        if group.problems:
            echo(f"  {group.fix}")


def _document(group: BossHooks) -> dict[str, Any]:
    return {
        "settings": str(group.path),
        "events": group.events,
        "folder": group.folder,
        "state": "broken" if group.problems else "ok",
        "problems": group.problems,
    }


COMMANDS = {"install": install, "uninstall": uninstall, "show": show}


# ── Trail Boss's own clients ──


@click.command("show")
@click.option("--renew", is_flag=True, help="Create a new token first; the old address stops working.")
@json_option
def show_trail_boss(renew: bool, as_json: bool) -> None:
    """Print the addresses for Trail Boss's own clients, as lines for your shell.

    The address contains its own token. It can post events, list the queue and skip. It cannot answer
    requests, and it opens nothing else. Other processes of yours can see it in the process list.

    \b
    Examples:
      eval "$(remuda hooks show --trail-boss)"
      remuda hooks show --trail-boss --renew
    """
    from remuda.boss.http.trail_boss import TokenFile

    folder = BossFolder.default()
    private_folder(folder.path)
    file = TokenFile(folder.trail_token)
    base = f"http://127.0.0.1:{_port(folder)}/t/{file.renew() if renew else file.load()}"
    addresses = {
        "TRAILBOSS_URL": base,
        "TRAILBOSS_COLLECTOR_URL": f"{base}/event",
        "TRAILBOSS_DAEMON_URL": f"{base}/event/normalized",
    }
    if as_json:
        print_json(addresses)
        return
    for name, value in addresses.items():
        echo(f"export {name}='{value}'")


def _port(folder: BossFolder) -> int:
    """Return the port of the running boss, or else the one that it will use."""
    from .boss import DEFAULT_PORT

    try:
        return int(BossClient(folder).get("health")["port"])
    except RemudaError:
        return int(configuration(strict=False).boss.get("port", DEFAULT_PORT))
