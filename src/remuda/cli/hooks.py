"""remuda hooks, and its Stop hook for an inbox. `hooks_boss` and `hooks_tmux` have the other targets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from remuda.agents import agent_setups, default_setup
from remuda.agents.setup import AgentSettings, InboxHook, same_path
from remuda.errors import InvalidOptions

from . import hooks_boss, hooks_tmux
from .common import json_option, short_path, time_span
from .file_changes import (
    Agreement,
    agreement_options,
    lifted_caps,
    remember_cap,
    save_installed,
    save_uninstalled,
    shown_place,
)
from .inbox_target import check_parent
from .output import complain, echo, print_json, print_lines, style

F = TypeVar("F", bound=Callable[..., Any])

_MARGIN = 60.0
"""Seconds that a hook may take longer than its wait."""
_TARGET_COMMANDS = {
    "--boss": hooks_boss.COMMANDS,
    "--tmux": hooks_tmux.COMMANDS,
    "--trail-boss": {"show": hooks_boss.show_trail_boss},
}
_TARGETS = "--inbox PATH, --boss or --tmux"


class _ByTarget(click.Group):
    """A group whose install, uninstall and show act on the target that is among their words."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        named = [target for target in _TARGET_COMMANDS if target in args]
        if not named or args[0] not in _TARGET_COMMANDS[named[0]]:
            return super().resolve_command(ctx, args)
        with_inbox = any(word.partition("=")[0] == "--inbox" for word in args)
        if len(named) + with_inbox > 1 and not ctx.resilient_parsing:
            raise InvalidOptions(f"{_TARGETS} cannot be combined", hint="give one of them")
        words = [word for word in args[1:] if word != named[0]]
        return f"{args[0]} {named[0]}", _TARGET_COMMANDS[named[0]][args[0]], words


@click.group("hooks", cls=_ByTarget, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Install hooks in Claude Code's settings, and keys in tmux. 'remuda setup' does the same.

    \b
    --inbox PATH   a Stop hook that hands out the messages of an inbox
    --boss         hooks that report every Claude Code session to the boss
    --tmux         keys and a status line for the queue

    \b
    Examples:
      remuda hooks install --inbox run/inbox.jsonl
      remuda hooks install --boss
      remuda hooks install --tmux
      remuda hooks show
      remuda hooks uninstall --boss
      remuda hooks show --trail-boss    print the address for Trail Boss's clients
    """
    if ctx.invoked_subcommand is None:
        print_lines(ctx.get_help().splitlines())


def _where_options(function: F) -> F:
    for option in (
        click.option("--local", is_flag=True, help="Use your own settings for this folder only.  [default]"),
        click.option(
            "--project",
            is_flag=True,
            help="Use the settings of this folder for everyone, which are committed.",
        ),
        click.option("--user", is_flag=True, help="Use your own settings, for every session you start."),
        click.option(
            "--settings", type=click.Path(path_type=Path), metavar="FILE", help="Use this settings file."
        ),
    ):
        function = option(function)
    return function


def _part_options(function: F) -> F:
    """For help and completion only: `_ByTarget` handles a command line that has one of them."""
    for target, text in (("--tmux", "Keys in tmux"), ("--boss", "The boss's hooks")):
        function = click.option(
            target, is_flag=True, expose_value=False, help=f"{text}; see '{target} --help'."
        )(function)
    return function


def _named_path(where: dict[str, Any]) -> Path | None:
    """Return the settings file that the options name; None if they name none."""
    named = [name for name in ("settings", "user", "project", "local") if where[name]]
    if len(named) > 1:
        words = " and ".join(f"--{name}" for name in named)
        raise InvalidOptions(f"{words} select different files", hint="give one of them")
    if where["settings"] is not None:
        return Path(where["settings"]).expanduser().absolute()
    setup = default_setup()
    if where["user"]:
        return setup.settings_path("user")
    if where["project"]:
        return setup.settings_path("project")
    return setup.settings_path("local") if where["local"] else None


def _project_files_with(inbox: str | None) -> list[Path]:
    """Return the settings files of this project with a Stop hook of ours, for this inbox or any."""
    setup = default_setup()
    return [
        path
        for path in (setup.settings_path("local"), setup.settings_path("project"))
        if _has_inbox_hook(path, inbox)
    ]


def _has_inbox_hook(path: Path, inbox: str | None) -> bool:
    hooks = default_setup().inbox_hooks(path)
    return any(inbox is None or same_path(hook.inbox, inbox) for hook in hooks)


def inbox_hooks(only: Path | None = None) -> list[InboxHook]:
    """Return our Stop hooks in the settings of all agents that apply here, or in `only`."""
    return [hook for setup in agent_setups() for hook in setup.inbox_hooks(only)]


def _inbox_path(inbox: Path) -> Path:
    """Return the absolute path of an inbox file. A folder means the inbox in it, as for `remuda inbox`.

    A path that does not exist is a folder if it has no suffix, unless a hook already uses it as a file.
    """
    path = inbox.expanduser().absolute()
    is_new_folder = not path.exists() and not path.suffix and not _project_files_with(str(path))
    return path / "inbox.jsonl" if path.is_dir() or is_new_folder else path


# ── install ──


@command.command("install")
@click.option(
    "--inbox", type=click.Path(path_type=Path), metavar="PATH", help="Inbox to hand out: a folder, or a file."
)
@_part_options
@click.option("--mode", type=click.Choice(["drain", "persist"]), default="drain",
              help="On an empty inbox: stop (drain), or wait (persist).  [default: drain]")  # fmt: skip
@click.option(
    "--wait", type=time_span, metavar="TIME", help="In persist mode, wait up to TIME.  [default: 540]"
)
@click.option("--signal-file", type=click.Path(path_type=Path), metavar="FILE",
              help="Touch FILE when the agent may stop, for 'launch --exit-signal'.")  # fmt: skip
@click.option("--keep-cap", is_flag=True, help="Keep the agent's cap on blocked stops.")
@_where_options
@agreement_options
def install(
    inbox: Path | None,
    mode: str,
    wait: float | None,
    signal_file: Path | None,
    keep_cap: bool,
    yes: bool,
    dry_run: bool,
    diff: bool,
    must_ask: bool = False,
    **where: Any,
) -> None:
    """Install an inbox's Stop hook, or --boss hooks or --tmux keys.

    Safe to run again: only outdated entries change. A missing folder of the inbox is created.

    Claude Code silently drops the ninth message in a row that a Stop hook hands out. This command lifts that
    cap in the settings, unless they set one already or --keep-cap is given.

    \b
    Examples:
      remuda hooks install --inbox run/inbox.jsonl
      remuda hooks install --inbox run/inbox.jsonl --mode persist --user
      remuda hooks install --boss
      remuda hooks install --tmux --dry-run
    """
    if inbox is None:
        raise InvalidOptions("nothing to install", hint=f"give {_TARGETS}")
    target = _inbox_path(inbox)
    check_parent(target if target.parent.exists() else target.parent)
    # Earlier versions installed into the project's committed file. Such a hook stays there.
    installed = _project_files_with(str(target))
    setup = default_setup()
    settings = setup.open_settings(
        _named_path(where) or (installed[0] if installed else setup.settings_path("local"))
    )
    words = ["--inbox", str(target), *(["--mode", mode] if mode != "drain" else [])]
    words += [] if wait is None else ["--wait", f"{wait:g}"]
    words += [] if signal_file is None else ["--signal-file", _signal_path(signal_file, target.parent)]
    replaced = _has_inbox_hook(settings.path, str(target))
    added = settings.add_inbox_hook(words, timeout=(wait or 0) + _MARGIN, keep_cap=keep_cap)
    how = Agreement(yes, dry_run, diff, must_ask)
    place = shown_place(settings)
    if save_installed(settings, f"add a Stop hook to {place}", how, folder=target.parent):
        echo(f"{'updated' if replaced else 'installed'} in {place}: {added.command}")
        if added.lifted_cap:
            remember_cap(settings, lifted=True)
            echo(f"also set {added.lifted_cap}=0 there, so that the agent drops no message")
    _print_other_inboxes(str(target))


def _signal_path(signal_file: Path, new_folder: Path) -> str:
    path = signal_file.expanduser().absolute()
    if path.parent != new_folder:
        check_parent(path)
    return str(path)


def _print_other_inboxes(inbox: str) -> None:
    for hook in inbox_hooks():
        if not same_path(hook.inbox, inbox):
            echo(
                f"the same sessions also drain {hook.inbox}; to stop that: "
                f"remuda hooks uninstall --inbox {hook.inbox} --settings {hook.path}"
            )


# ── uninstall ──


@command.command("uninstall")
@click.option(
    "--inbox", type=click.Path(path_type=Path), metavar="PATH", help="Remove only the hook for this inbox."
)
@_part_options
@_where_options
@agreement_options
def uninstall(
    inbox: Path | None, yes: bool, dry_run: bool, diff: bool, must_ask: bool = False, **where: Any
) -> None:
    """Remove inbox Stop hooks, or --boss hooks or --tmux keys.

    Without --boss and --tmux it removes the Stop hooks in the settings of this folder.

    A file that has not changed since is restored byte for byte.

    \b
    Examples:
      remuda hooks uninstall
      remuda hooks uninstall --user --inbox run/inbox.jsonl
      remuda hooks uninstall --boss
      remuda hooks uninstall --tmux
    """
    inbox_file = None if inbox is None else str(inbox.expanduser().absolute())
    if inbox_file and os.path.isdir(inbox_file):
        inbox_file += "/inbox.jsonl"
    named = _named_path(where)
    setup = default_setup()
    paths = [named] if named else _project_files_with(inbox_file) or [setup.settings_path("local")]
    for path in paths:
        _uninstall(setup.open_settings(path), inbox_file, Agreement(yes, dry_run, diff, must_ask))


def uninstall_from_file(path: Path, how: Agreement) -> None:
    """Remove every Stop hook of ours from one settings file."""
    _uninstall(default_setup().open_settings(path), None, how)


def _uninstall(settings: AgentSettings, inbox: str | None, how: Agreement) -> None:
    place = shown_place(settings)
    removed = settings.remove_inbox_hooks(inbox, restore_cap=str(settings.real) in lifted_caps())
    if not removed.hooks:
        echo(f"no inbox hook in {place}; 'remuda setup --show' lists what is installed")
        return
    if not save_uninstalled(settings, f"remove {len(removed.hooks)} Stop hooks from {place}", how):
        return
    for name in removed.hooks:
        echo(f"removed from {place}: the hook for {name}")
    if removed.restored_cap:
        echo(f"also removed {removed.restored_cap}, which Remuda had set there")
    if removed.is_last:
        remember_cap(settings, lifted=False)


# ── show ──


@command.command("show")
@click.option("--inbox", "inbox_only", is_flag=True, help="Show only Stop hooks that drain an inbox.")
@_part_options
@_where_options
@json_option
def show(inbox_only: bool, as_json: bool, **where: Any) -> int:
    """Show what is installed here, and what is wrong with it.

    Exits with 1 if something is wrong. With --json it lists the Stop hooks that drain an inbox; use
    --boss --json and --tmux --json for the others.

    \b
    Examples:
      remuda hooks show
      remuda hooks show --user --json
      remuda hooks show --boss
      remuda hooks show --tmux
    """
    only = _named_path(where)
    hooks = inbox_hooks(only)
    wrong = any(hook.problems for hook in hooks)
    if as_json:
        print_json([_document(hook) for hook in hooks])
    else:
        for hook in hooks:
            _print(hook)
        others, others_wrong = (False, False) if inbox_only else _show_others(only)
        wrong = wrong or others_wrong
        if not hooks and not others:
            place = short_path(str(only)) if only else "the settings that apply here"
            what = "no inbox hook" if inbox_only else "nothing installed"
            part = "inbox --inbox PATH" if inbox_only else ""
            echo(f"{what} in {place}; install with: {f'remuda setup {part}'.rstrip()}")
    broken = [path for setup in agent_setups() for path in setup.broken_settings(only)]
    for path in broken:
        complain(f"{short_path(str(path))} is not a JSON object, so none of its hooks run; fix the file")
    return 1 if broken or wrong else 0


def _show_others(only: Path | None) -> tuple[bool, bool]:
    """Show what is installed for the boss and in tmux. Return whether there is any, and any problem."""
    boss = hooks_boss.boss_hooks(only)
    hooks_boss.print_boss_hooks(boss)
    files, keys = ([], None) if only else hooks_tmux.installed_parts()
    if files or keys:
        echo("tmux keys and status line:")
        hooks_tmux.print_parts(files, keys)
    return bool(boss or files or keys), any(group.problems for group in boss)


def _document(hook: InboxHook) -> dict[str, Any]:
    return {
        "settings": str(hook.path),
        "inbox": hook.inbox,
        "mode": hook.mode,
        "state": "broken" if hook.problems else "ok",
        "problems": hook.problems,
        "interpreter": hook.interpreter,
        "program": hook.script,
        "timeout": hook.timeout,
        "command": hook.command,
    }


def _print(hook: InboxHook) -> None:
    echo(f"{hook.inbox or hook.command}  {hook.mode}  in {short_path(str(hook.path))}")
    for problem in hook.problems:
        echo(f"  {style('note', fg='yellow')}  {problem}")
    if hook.problems:
        echo(f"  {hook.fix}")
