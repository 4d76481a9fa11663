"""remuda hooks: the Stop hook in Claude Code's settings; those of the boss, and tmux, are in files beside"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from remuda.agents.claude.files import read_settings
from remuda.agents.claude.launch import BLOCK_CAP_VARIABLE
from remuda.agents.claude.settings import SettingsFile, local_file, project_file, user_file
from remuda.agents.claude.stop_hooks import (
    TIMEOUT,
    StopHook,
    find_hooks,
    lift_cap,
    make_command,
    put_hook,
    restore_cap,
    same_file,
    take_hooks,
)
from remuda.errors import InvalidOptions

from . import hooks_boss, hooks_tmux, hooks_trail_boss
from .common import json_option, short_path, time_span
from .hook_change import (
    Agreement,
    agreement_options,
    install_into,
    lifted_caps,
    remember_cap,
    uninstall_from,
)
from .hook_state import Found, broken_settings, fix, found_hooks, own_script, shown_place
from .inbox_target import check_parent
from .output import complain, echo, print_json, print_lines, style

F = TypeVar("F", bound=Callable[..., Any])

_MARGIN = 60.0
"""How much longer than its wait a hook may take."""
_PARTS = {
    "--boss": hooks_boss.COMMANDS,
    "--tmux": hooks_tmux.COMMANDS,
    "--trail-boss": {"show": hooks_trail_boss.show},
}
_TARGETS = "--inbox PATH, --boss or --tmux"


class _ByTarget(click.Group):
    """A group whose install, uninstall and show mean what is named among their words."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        named = [target for target in _PARTS if target in args]
        if not named or args[0] not in _PARTS[named[0]]:
            return super().resolve_command(ctx, args)
        with_inbox = any(word.partition("=")[0] == "--inbox" for word in args)
        if len(named) + with_inbox > 1 and not ctx.resilient_parsing:
            raise InvalidOptions(f"{_TARGETS} cannot be combined", hint="give one of them")
        words = [word for word in args[1:] if word != named[0]]
        return f"{args[0]} {named[0]}", _PARTS[named[0]][args[0]], words


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
      remuda hooks show --trail-boss         print the address for Trail Boss's clients
    """
    if ctx.invoked_subcommand is None:
        print_lines(ctx.get_help().splitlines())


def _where_options(function: F) -> F:
    for option in (
        click.option(
            "--local", is_flag=True, help="Use .claude/settings.local.json of this folder.  [default]"
        ),
        click.option(
            "--project", is_flag=True, help="Use .claude/settings.json of this folder, which is committed."
        ),
        click.option("--user", is_flag=True, help="Use your own settings, for every session you start."),
        click.option(
            "--settings", type=click.Path(path_type=Path), metavar="FILE", help="Use this settings file."
        ),
    ):
        function = option(function)
    return function


def _part_options(function: F) -> F:
    """For help and completion: a command line with one of them never gets here (see `_ByTarget`)."""
    for target, text in (("--tmux", "Keys in tmux"), ("--boss", "The boss's hooks")):
        function = click.option(
            target, is_flag=True, expose_value=False, help=f"{text}; see '{target} --help'."
        )(function)
    return function


def _named_path(where: dict[str, Any]) -> Path | None:
    """The settings file that the options name; None when they name none."""
    named = [name for name in ("settings", "user", "project", "local") if where[name]]
    if len(named) > 1:
        words = " and ".join(f"--{name}" for name in named)
        raise InvalidOptions(f"{words} select different files", hint="give one of them")
    if where["settings"] is not None:
        return Path(where["settings"]).expanduser().absolute()
    if where["user"]:
        return user_file(os.environ)
    here = Path.cwd()
    return project_file(here) if where["project"] else local_file(here) if where["local"] else None


def _with_ours(inbox: str | None) -> list[Path]:
    """The settings files of this project that have a Stop hook of ours, for this inbox or any."""
    here = Path.cwd()
    return [path for path in (local_file(here), project_file(here)) if _hooks_in(path, inbox)]


def _hooks_in(path: Path, inbox: str | None) -> list[StopHook]:
    hooks = find_hooks(read_settings(path))
    return [one for one in hooks if inbox is None or same_file(one.inbox, inbox)]


def _inbox_path(inbox: Path) -> Path:
    """Absolute; a folder stands for the inbox in it, as it does for `remuda inbox`.

    What is not there is a folder if its name has no ending, unless a hook has it for a file already.
    """
    path = inbox.expanduser().absolute()
    is_new_folder = not path.exists() and not path.suffix and not _with_ours(str(path))
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
@click.option("--keep-cap", is_flag=True, help="Keep Claude Code's cap on blocked stops.")
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
    # An install of an earlier version, which took the project's committed file, stays where it is.
    known = _with_ours(str(target))
    file = SettingsFile(_named_path(where) or (known[0] if known else local_file(Path.cwd())))
    words = ["--inbox", str(target), *(["--mode", mode] if mode != "drain" else [])]
    words += [] if wait is None else ["--wait", f"{wait:g}"]
    words += [] if signal_file is None else ["--signal-file", _signal_path(signal_file, target.parent)]
    line = make_command(sys.executable, str(own_script()), words)
    _check_text(line)
    replaced = bool(_hooks_in(file.path, str(target)))
    put_hook(file.document, line, max(TIMEOUT, (wait or 0) + _MARGIN))
    lifted = not keep_cap and lift_cap(file.document)
    how = Agreement(yes, dry_run, diff, must_ask=False)
    if install_into(file, f"add a Stop hook to {shown_place(file)}", how, folder=target.parent):
        echo(f"{'updated' if replaced else 'installed'} in {shown_place(file)}: {line}")
        if lifted:
            remember_cap(file, lifted=True)
            echo(
                f"also set {BLOCK_CAP_VARIABLE}=0 there, so that Claude Code does not drop the ninth message"
            )
    _tell_of_others(str(target))


def _signal_path(signal_file: Path, new_folder: Path) -> str:
    path = signal_file.expanduser().absolute()
    if path.parent != new_folder:
        check_parent(path)
    return str(path)


def _check_text(line: str) -> None:
    try:
        line.encode()
    except UnicodeEncodeError:
        raise InvalidOptions("JSON cannot hold a path that is not UTF-8", hint="use another path") from None


def _tell_of_others(inbox: str) -> None:
    for one in found_hooks():
        if not same_file(one.hook.inbox, inbox):
            echo(
                f"the same sessions also drain {one.hook.inbox}; to stop that: "
                f"remuda hooks uninstall --inbox {one.hook.inbox} --settings {one.path}"
            )


# ── uninstall ──


@command.command("uninstall")
@click.option(
    "--inbox", type=click.Path(path_type=Path), metavar="PATH", help="Remove only the hook for this inbox."
)
@_part_options
@_where_options
@agreement_options
def uninstall(inbox: Path | None, yes: bool, dry_run: bool, diff: bool, **where: Any) -> None:
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
    wanted = None if inbox is None else str(inbox.expanduser().absolute())
    if wanted and os.path.isdir(wanted):
        wanted += "/inbox.jsonl"
    named = _named_path(where)
    paths = [named] if named else _with_ours(wanted) or [local_file(Path.cwd())]
    for path in paths:
        _uninstall(SettingsFile(path), wanted, Agreement(yes, dry_run, diff, must_ask=False))


def uninstall_from_file(path: Path, how: Agreement) -> None:
    """Remove every Stop hook of ours from one settings file."""
    _uninstall(SettingsFile(path), None, how)


def _uninstall(file: SettingsFile, inbox: str | None, how: Agreement) -> None:
    taken = take_hooks(file.document, inbox)
    if not taken:
        echo(f"no inbox hook in {shown_place(file)}; 'remuda setup --show' lists what is installed")
        return
    last = not find_hooks(file.document)
    restored = last and str(file.real) in lifted_caps() and restore_cap(file.document)
    if not uninstall_from(file, f"remove {len(taken)} Stop hooks from {shown_place(file)}", how):
        return
    for one in taken:
        echo(f"removed from {shown_place(file)}: the hook for {one.inbox or one.command}")
    if restored:
        echo(f"also removed {BLOCK_CAP_VARIABLE}, which Remuda had set there")
    if last:
        remember_cap(file, lifted=False)


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
    found = found_hooks(only)
    wrong = any(one.problems for one in found)
    if as_json:
        print_json([_as_json(one) for one in found])
    else:
        for one in found:
            _print(one)
        others, others_wrong = (False, False) if inbox_only else _show_others(only)
        wrong = wrong or others_wrong
        if not found and not others:
            place = short_path(str(only)) if only else "the settings that apply here"
            what = "no inbox hook" if inbox_only else "nothing installed"
            echo(f"{what} in {place}; 'remuda hooks install' takes {_TARGETS}")
    broken = broken_settings(only)
    for path in broken:
        complain(f"{short_path(str(path))} is not a JSON object, so none of its hooks run; fix the file")
    return 1 if broken or wrong else 0


def _show_others(only: Path | None) -> tuple[bool, bool]:
    """Show what is installed for the boss and in tmux. Return whether something is, and is wrong."""
    boss = hooks_boss.found_hooks(only)
    hooks_boss.print_found(boss)
    files, keys = ([], None) if only else hooks_tmux.found_parts()
    if files or keys:
        echo("tmux keys and status line:")
        hooks_tmux.print_parts(files, keys)
    return bool(boss or files or keys), any(one.problems for one in boss)


def _as_json(one: Found) -> dict[str, Any]:
    return {
        "settings": str(one.path),
        "inbox": one.hook.inbox,
        "mode": one.hook.mode,
        "state": "broken" if one.problems else "ok",
        "problems": one.problems,
        "interpreter": one.hook.interpreter,
        "program": one.hook.script,
        "timeout": one.hook.timeout,
        "command": one.hook.command,
    }


def _print(one: Found) -> None:
    echo(f"{one.hook.inbox or one.hook.command}  {one.hook.mode}  in {short_path(str(one.path))}")
    for problem in one.problems:
        echo(f"  {style('note', fg='yellow')}  {problem}")
    if one.problems:
        echo(f"  {fix(one)}")
