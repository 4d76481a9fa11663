"""remuda setup: install, show and remove what Remuda adds to files of other programs"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from remuda.agents import setup_of, used_setups
from remuda.agents.setup import BossHooks
from remuda.durable import read_regular
from remuda.errors import EXIT_CODES, InvalidOptions, RemudaError
from remuda.names import did_you_mean

from . import completion, hooks, hooks_boss, hooks_tmux, notify, setup_mcp
from .boss_service import BOSS, HUB
from .common import short_path
from .file_changes import (
    Agreement,
    agreement_options,
    is_program,
    leftovers,
    remembered_files,
    remove_leftovers,
    temporary_files,
)
from .output import ask_letter, complain, echo, style


class _Part(click.Command):
    """One part: its `install`, `uninstall` and `show` as one command, chosen by --remove and --show."""

    def __init__(self, name: str, text: str, commands: dict[str, click.Command]) -> None:
        flags: list[click.Parameter] = [
            click.Option(["--show"], is_flag=True, help="Show what is installed, and change nothing."),
            click.Option(["--remove"], is_flag=True, help="Remove it; files are restored to the byte."),
        ]
        # `show` of hooks has a flag --inbox, which here names the inbox.
        install_words = {word for one in commands["install"].params for word in one.opts}
        known: dict[str | None, click.Parameter] = {
            one.name: one
            for part in ("show", "uninstall", "install")
            for one in commands[part].params
            if one.expose_value and (part == "install" or not {*one.opts} & install_words)
        }
        super().__init__(
            name, params=[*known.values(), *flags], help=inspect.cleandoc(text), callback=_run_part
        )
        self.by_action = commands


@click.pass_context
def _run_part(ctx: click.Context, /, show: bool, remove: bool, **values: Any) -> Any:
    part = ctx.command
    assert isinstance(part, _Part)
    # Flags before the part mean the same as after it.
    before_part = [name for name, value in (ctx.parent.params if ctx.parent else {}).items() if value]
    show, remove = show or "show" in before_part, remove or "remove" in before_part
    values |= {name: True for name in before_part if name in values}
    _check_exclusive(show, remove)
    action = "show" if show else "uninstall" if remove else "install"
    chosen = part.by_action[action]
    names = {str(one.name) for one in chosen.params}
    if part.name == "inbox" and action == "install" and values["inbox"] is None:
        raise InvalidOptions("no inbox given", hint="name its file: --inbox PATH")
    for one in part.params:
        is_given = ctx.get_parameter_source(str(one.name)) is ParameterSource.COMMANDLINE
        if (is_given or one.name in before_part) and one.name not in {*names, "show", "remove"}:
            raise InvalidOptions(f"{one.opts[0]} does not apply to '{action}'", hint="leave it out")
    more = {"inbox_only" if show else "must_ask": True} if part.name == "inbox" else {}
    return ctx.invoke(chosen, **{name: value for name, value in values.items() if name in names}, **more)


def _check_exclusive(show: bool, remove: bool) -> None:
    if show and remove:
        raise InvalidOptions("--show and --remove exclude each other", hint="give one of them")


class _Setup(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            hint = did_you_mean(args[0], self.commands) or f"parts: {', '.join(self.commands)}"
            raise InvalidOptions(f"setup has no part '{args[0]}'", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help text has the parts."""


@click.group("setup", cls=_Setup, invoke_without_command=True)
@click.option("--show", is_flag=True, help="Show what is installed, and change nothing.")
@click.option("--remove", is_flag=True, help="Remove everything that setup installed, restored to the byte.")
@agreement_options
@click.pass_context
def command(ctx: click.Context, show: bool, remove: bool, yes: bool, dry_run: bool, diff: bool) -> int | None:
    """Set up Remuda in your agent's settings, in tmux and in your shell.

    Without a part it shows the state of each and asks one by one. You see every change before it is made.

    \b
      boss         hooks that report every session you start to the queue
      tmux         keys and a status line for the queue
      inbox        a Stop hook that hands out the messages of an inbox
      completion   shell completion

    'setup hub' runs the hub of your fleet as a service, and 'setup mcp' lets agents run agents; a bare
    'setup' offers neither.
    'setup notify' changes nothing: it shows who is notified when an agent waits, and tries it with --test.

    \b
    Examples:
      remuda setup
      remuda setup boss --yes
      remuda setup tmux --dry-run
      remuda setup inbox --inbox run/inbox.jsonl
      remuda setup --show
      remuda setup --remove
    """
    if ctx.invoked_subcommand is not None:
        return None  # the part reads our flags too
    _check_exclusive(show, remove)
    how = Agreement(yes, dry_run, diff)
    if show:
        return _show_all()
    if remove:
        return _remove_all(ctx, how)
    _install_all(ctx, how)
    return None


def _own_settings() -> list[Path]:
    """Return the user's settings file and others that setup changed.

    Other settings of this folder may come from a clone, and are not the user's.
    """
    own = [setup.settings_path("user") for setup in used_setups()]
    known = {os.path.realpath(path) for path in own}
    return [*own, *(Path(one) for one in remembered_files() if one not in known)]


def _boss_hooks() -> list[BossHooks]:
    return [group for path in _own_settings() for group in hooks_boss.boss_hooks(path)]


def _boss_state() -> str:
    groups = _boss_hooks()
    where = ", ".join(short_path(str(group.path)) for group in groups)
    problems = "".join(f"; {problem}" for group in groups for problem in group.problems)
    return f"{len(groups[0].events)} hooks in {where}{problems}" if groups else ""


def _is_sound(name: str) -> bool:
    """Whether what is installed works: hooks of an earlier version may run a program that is gone."""
    own, *others = [hooks_boss.boss_hooks(setup.settings_path("user")) for setup in used_setups()]
    return name != "boss" or (
        bool(own) and not any(one.problems for group in [own, *others] for one in group)
    )


def _tmux_state() -> str:
    files = hooks_tmux.installed_files()
    return f"in {', '.join(short_path(str(path)) for path in files)}" if files else ""


def _completion_state() -> str:
    path = completion.installed_file()
    return f"in {short_path(str(path))}" if path else ""


_PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "boss": ("hooks that report every Claude session to the queue", _boss_state),
    "tmux": ("keys and a status line for the queue", _tmux_state),
    "completion": ("shell completion", _completion_state),
}
"""By name: what it is, and what is installed of it as text; empty for nothing."""


class _Problems:
    """Errors of single files. The others are still shown or removed."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        try:
            yield
        except (RemudaError, OSError) as error:
            if str(error) not in self.errors:
                self.errors.append(str(error))

    def report(self) -> int:
        """Print them, and return the exit code."""
        for error in self.errors:
            complain(error, error=True)
        return EXIT_CODES["FAILED" if self.errors else "OK"]


def _unreadable_settings(problems: _Problems) -> list[Path]:
    """Return the settings files that cannot be read, so that they may have hooks of ours."""
    unreadable = _own_settings()
    for path in _own_settings():
        with problems.noted():
            setup_of(path).open_settings(path)
            unreadable.remove(path)
    return unreadable


def _show_all() -> int:
    problems = _Problems()
    unreadable = ", ".join(short_path(str(path)) for path in _unreadable_settings(problems))
    unknown = f"{style('unknown', fg='red')}: cannot read {unreadable}"
    for name, (text, state) in _PARTS.items():
        count, installed = len(problems.errors), ""
        with problems.noted():
            installed = state()
        if len(problems.errors) > count:
            echo(f"{name:<11} {style('damaged', fg='red')}")
            continue
        if name == "boss" and unreadable and not installed:
            echo(f"{name:<11} {unknown}")
            continue
        mark = style("installed", fg="green") if installed else "not installed"
        echo(f"{name:<11} {mark}: {installed or text}")
    inboxes = _inbox_files()
    places = ", ".join(short_path(str(path)) for path in inboxes)
    echo(
        f"{'inbox':<11} "
        + (
            f"{style('installed', fg='green')}: Stop hook in {places}"
            if inboxes
            else unknown
            if unreadable
            else "not installed: a Stop hook that hands out the messages of an inbox"
        )
    )
    for path in setup_mcp.installed_files():
        echo(f"{'mcp':<11} {style('installed', fg='green')}: MCP server in {short_path(str(path))}")
    for name, service in (("service", BOSS), ("hub", HUB)):
        if service.is_installed:
            echo(f"{name:<11} {style('installed', fg='green')}: {short_path(str(service.file))}")
    return problems.report()


def _inbox_files() -> list[Path]:
    """Return the settings files with our Stop hook: those that apply here, and others that setup changed."""
    paths = [hook.path for hook in hooks.inbox_hooks()]
    for real in map(Path, remembered_files()):
        is_new = real.exists() and real not in [one.resolve() for one in paths]
        if is_new and hooks.inbox_hooks(real):
            paths.append(real)
    return list(dict.fromkeys(paths))


def _install_all(ctx: click.Context, how: Agreement) -> None:
    if not (how.yes or how.dry_run or sys.stdin.isatty()):
        raise InvalidOptions("stdin is not a terminal", hint="name a part, or pass --yes")
    for name, (text, state) in _PARTS.items():
        if (installed := state()) and _is_sound(name):
            echo(f"{name}: already set up {installed}")
            continue
        if not (how.yes or how.dry_run) and ask_letter(f"{name}: set up {text}?", "ny") != "y":
            continue
        _invoke(ctx, name, "install", how)
    echo("\nAn inbox needs a path: remuda setup inbox --inbox PATH")


def _remove_all(ctx: click.Context, how: Agreement) -> int:
    """Remove every part that can be removed, then report what could not."""
    problems = _Problems()
    _unreadable_settings(problems)
    removals = list(_removals(ctx, how, problems))
    for remove in removals:
        with problems.noted():
            remove()
    count = _remove_leftovers(how)
    if not (removals or count or problems.errors):
        echo("nothing is installed")
    return problems.report()


def _removals(ctx: click.Context, how: Agreement, problems: _Problems) -> Iterator[Callable[[], object]]:
    for group in _boss_hooks():
        yield partial(hooks_boss.uninstall_from_file, group.path, how)
    yield from _tmux_removals(how, problems)
    if completion.installed_file():
        yield partial(_invoke, ctx, "completion", "uninstall", how)
    for path in _inbox_files():
        yield partial(hooks.uninstall_from_file, path, how)
    for path in setup_mcp.installed_files():
        yield partial(setup_mcp.uninstall_from_file, path, how)
    for service in (BOSS, HUB):
        if service.is_installed:
            yield partial(service.remove, how)


def _tmux_removals(how: Agreement, problems: _Problems) -> Iterator[Callable[[], object]]:
    files = []
    for path in hooks_tmux.candidate_files():
        with problems.noted():
            files += hooks_tmux.installed_files(path)
    if files:
        yield lambda: _remove_tmux(files, how, problems)


def _remove_tmux(files: list[Path], how: Agreement, problems: _Problems) -> None:
    declined = 0
    for path in files:
        with problems.noted():
            declined += not hooks_tmux.uninstall_from_file(path, how)
    if not declined:
        hooks_tmux.remove_from_server()


def _remove_leftovers(how: Agreement) -> int:
    """Remove what a setup that was killed has left: temporary files, and empty folders that it made."""
    entries, files = leftovers(_has_ours), temporary_files()
    for path in files:
        echo(
            f"{'would remove' if how.dry_run else 'removed'} {short_path(str(path))}, left by a killed setup"
        )
    if not how.dry_run:
        remove_leftovers(entries, files)
    return len(files)


def _has_ours(part: str, path: Path) -> bool:
    if part == "files":
        return setup_of(path).open_settings(path).has_hooks
    if part == "lines":
        return bool(hooks_tmux.installed_files(path))
    try:
        return is_program(path, read_regular(path).decode(errors="replace"))
    except FileNotFoundError:
        return False


def _invoke(ctx: click.Context, name: str, what: str, how: Agreement) -> None:
    part = command.commands[name]
    assert isinstance(part, _Part)
    inner = part.by_action[what]
    ctx.invoke(inner, yes=how.yes, dry_run=how.dry_run, diff=how.diff)


# ── the parts ──


@click.command("install")
@click.option(
    "--service", is_flag=True, help="Also write a systemd unit or launchd plist that starts the boss."
)
def _install_boss(
    settings: Path | None, agents: tuple[str, ...], service: bool, yes: bool, dry_run: bool, diff: bool
) -> None:
    how = Agreement(yes, dry_run, diff)
    for path in hooks_boss.files_to_install(settings, agents):
        hooks_boss.install_into_file(path, how)
    if not settings and not agents:
        for name in hooks_boss.other_agents():
            echo(f"{name} is installed too: 'remuda setup boss --agent {name}' reports its sessions")
    if service:
        BOSS.set_up((), how)


@click.command("uninstall")
def _uninstall_boss(
    settings: Path | None, agents: tuple[str, ...], yes: bool, dry_run: bool, diff: bool
) -> None:
    how = Agreement(yes, dry_run, diff)
    for path in hooks_boss.settings_files(settings, agents):
        hooks_boss.uninstall_from_file(path, how)
    if BOSS.is_installed and not agents:
        BOSS.remove(how)


_install_boss.params[:0] = hooks_boss.install.params
_uninstall_boss.params[:0] = hooks_boss.uninstall.params

command.add_command(
    _Part(
        "boss",
        """Report every session you start to the boss, through hooks in the agent's own settings.

        That is for Claude Code; --agent codex, opencode or copilot names others. Hooks of other programs stay
        as they are. Safe to run again: only outdated entries change.

        \b
        Examples:
          remuda setup boss
          remuda setup boss --agent codex
          remuda setup boss --service
          remuda setup boss --remove
        """,
        {"install": _install_boss, "uninstall": _uninstall_boss, "show": hooks_boss.show},
    )
)
command.add_command(
    _Part(
        "tmux",
        """Bind tmux keys for the queue, and show it in the status line.

        Changes tmux.conf, and the running tmux server if there is one. Removing gives the keys their earlier
        bindings back.

        \b
        Examples:
          remuda setup tmux
          remuda setup tmux --next N --no-segment
          remuda setup tmux --remove
        """,
        hooks_tmux.COMMANDS,
    )
)
command.add_command(
    _Part(
        "inbox",
        """Hand out the messages of an inbox to Claude Code through a Stop hook.

        \b
        Examples:
          remuda setup inbox --inbox run/inbox.jsonl
          remuda setup inbox --inbox run/inbox.jsonl --mode persist --user
          remuda setup inbox --remove
        """,
        {"install": hooks.install, "uninstall": hooks.uninstall, "show": hooks.show},
    )
)
command.add_command(
    _Part(
        "completion",
        """Install shell completion of commands, options and session names.

        \b
        Examples:
          remuda setup completion
          remuda setup completion --shell zsh
          remuda setup completion --remove
        """,
        completion.SETUP_COMMANDS,
    )
)


command.add_command(
    _Part(
        "mcp",
        """Let an agent run other agents: add the MCP server 'remuda' to the agent's own configuration.

        Every session that the agent starts from then on has its tools. What they may do is in mcp.toml; see
        'remuda help --page mcp'.

        \b
        Examples:
          remuda setup mcp
          remuda setup mcp --agent codex --yes
          remuda setup mcp --remove
        """,
        setup_mcp.COMMANDS,
    )
)


# ── the hub ──


@click.command("install")
@click.option(
    "--listen", metavar="ADDRESS:PORT", help="Listen there.  [default: as last time, or 0.0.0.0:4222]"
)
@click.option("--name", metavar="NAME", help="Name of this machine in the fleet.  [default: its host name]")
@click.option("--no-join", is_flag=True, help="Do not make this machine a member.")
@agreement_options
def _install_hub(
    listen: str | None, name: str | None, no_join: bool, yes: bool, dry_run: bool, diff: bool
) -> None:
    from .fleet import read_address
    from .fleet_keys import need_extra

    need_extra()
    from remuda.fleet.hub_folder import HubFolder
    from remuda.fleet.subjects import check_host

    options = [] if listen is None else ["--listen", listen]
    if listen is not None:
        read_address(listen)
    options += [] if name is None else ["--name", check_host(name)]
    options += ["--no-join"] if no_join else []
    if HUB.set_up(options, Agreement(yes, dry_run, diff)):
        if HubFolder.default().server_pid() is not None:
            complain("a hub is running here now; end it first: press Ctrl-C where 'remuda fleet serve' runs")
        echo("then add machines with: remuda fleet keys new NAME")


@click.command("uninstall")
@agreement_options
def _uninstall_hub(yes: bool, dry_run: bool, diff: bool) -> None:
    if HUB.is_installed:
        HUB.remove(Agreement(yes, dry_run, diff))
    else:
        echo(f"{short_path(str(HUB.file))}: not installed; nothing to change")


@click.command("show")
def _show_hub() -> None:
    if not HUB.is_installed:
        echo("not installed: a service that runs the hub of your fleet")
        return
    echo(f"{short_path(str(HUB.file))}:\n")
    echo(HUB.file.read_text(errors="replace"), nl=False)


command.add_command(
    _Part(
        "hub",
        """Run the hub of your fleet as a service: a systemd user unit, or a launchd plist.

        Shows the file before it is written, then prints the commands that start it. Keys and messages of the
        hub are not touched, also not by --remove.

        \b
        Examples:
          remuda setup hub
          remuda setup hub --listen 10.0.0.5:4222
          remuda setup hub --remove
        """,
        {"install": _install_hub, "uninstall": _uninstall_hub, "show": _show_hub},
    )
)


@click.command("notify")
@click.pass_context
def _notify(ctx: click.Context, /, **values: Any) -> Any:
    """Show who is notified when an agent waits, and how to set it up. Changes nothing.

    With --test it sends a notice to each receiver, and says whether it arrived and what to do if not. The
    file is yours: 'setup --remove' leaves it alone.

    \b
    Examples:
      remuda setup notify
      remuda setup notify --test
    """
    before_part = [name for name, value in (ctx.parent.params if ctx.parent else {}).items() if value]
    if before_part and before_part != ["show"]:
        raise InvalidOptions(
            f"--{before_part[0].replace('_', '-')} does not apply to 'notify'",
            hint="setup does not change notify.toml: edit or remove it yourself",
        )
    return ctx.invoke(notify.command, **values)


_notify.params[:0] = notify.command.params
command.add_command(_notify)
