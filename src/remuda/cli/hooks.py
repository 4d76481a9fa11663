"""remuda hooks: the Stop hook in Claude Code's settings"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from remuda.agents.claude.launch import BLOCK_CAP_VARIABLE
from remuda.agents.claude.settings import SettingsFile, project_file, user_file
from remuda.agents.claude.stop_hooks import (
    TIMEOUT,
    find_hooks,
    lift_cap,
    make_command,
    put_hook,
    restore_cap,
    same_file,
    take_hooks,
)
from remuda.durable import replace_file
from remuda.errors import InvalidOptions
from remuda.paths import home, private_folder

from .common import complain, json_option, print_json, seconds, short_path
from .hook_state import Found, broken_settings, fix, found_hooks, own_script
from .hooks_boss import WithParts

F = TypeVar("F", bound=Callable[..., Any])

_MARGIN = 60.0
"""How much longer than its wait a hook may take."""


@click.group("hooks", cls=WithParts, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Hooks in Claude Code's settings, and keys in tmux.

    The Stop hook hands out the next message of an inbox after each answer. With --boss it is those by which
    the boss hears of your sessions, with --tmux what leads you through its queue.

    \b
    Examples:
      remuda hooks install --inbox run/inbox.jsonl
      remuda hooks show
      remuda hooks uninstall
      remuda hooks install --boss            the boss hears of all your sessions; show, uninstall --boss
      remuda hooks install --tmux            keys and status line for tmux; show --tmux, uninstall --tmux
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _where_options(function: F) -> F:
    for option in (
        click.option(
            "--project", is_flag=True, help="The project's, in .claude/settings.json here.  [default]"
        ),
        click.option("--user", is_flag=True, help="Yours, for every session that you start."),
        click.option("--settings", type=click.Path(path_type=Path), metavar="FILE", help="This file."),
    ):
        function = option(function)
    return function


def _settings_path(settings: Path | None, user: bool, project: bool) -> Path:
    if (settings is not None) + user + project > 1:
        raise InvalidOptions("--settings, --user and --project name different files", hint="give one of them")
    if settings is not None:
        return settings.expanduser().absolute()
    return user_file(os.environ) if user else project_file(Path.cwd())


def _inbox_path(inbox: Path, document: dict[str, Any]) -> str:
    """Absolute; a folder stands for the inbox in it, as it does for `remuda inbox`, and is made.

    What is not there is a folder if its name has no ending, unless a hook has it for a file already.
    """
    path = inbox.expanduser().absolute()
    if not path.parent.is_dir():
        raise InvalidOptions(f"the folder {path.parent} does not exist", hint=f"mkdir -p {path.parent}")
    known = any(same_file(one.inbox, str(path)) for one in find_hooks(document))
    if not path.exists() and not path.suffix and not known:
        path.mkdir(mode=0o700)
    return str(path / "inbox.jsonl" if path.is_dir() else path)


# ── install ──


@command.command("install")
@click.option(
    "--inbox", required=True, type=click.Path(path_type=Path), metavar="PATH", help="A folder, or a file."
)
@click.option("--mode", type=click.Choice(["drain", "persist"]), default="drain",
              help="When it is empty: let the agent stop, or wait.  [default: drain]")  # fmt: skip
@click.option("--wait", type=seconds, metavar="SECONDS", help="persist: so long.  [default: 540]")
@click.option("--signal-file", type=click.Path(path_type=Path), metavar="FILE",
              help="Touched when the agent may stop, for 'launch --exit-signal'.")  # fmt: skip
@click.option("--keep-cap", is_flag=True, help="Leave the CLI's cap on blocked stops in force.")
@_where_options
def install(
    inbox: Path,
    mode: str,
    wait: float | None,
    signal_file: Path | None,
    keep_cap: bool,
    settings: Path | None,
    user: bool,
    project: bool,
) -> None:
    """Let the agent's Stop hook drain an inbox. To do so again changes only what is no longer right.

    Claude Code drops the ninth message in a row that a Stop hook hands out, in silence. The settings are told
    to lift that cap, unless they name one already or --keep-cap is given.

    \b
    Examples:
      remuda hooks install --inbox run/inbox.jsonl
      remuda hooks install --inbox run/inbox.jsonl --mode persist --settings .claude/settings.local.json
    """
    file = SettingsFile(_settings_path(settings, user, project))
    target = _inbox_path(inbox, file.document)
    words = ["--inbox", target, *(["--mode", mode] if mode != "drain" else [])]
    words += [] if wait is None else ["--wait", f"{wait:g}"]
    words += [] if signal_file is None else ["--signal-file", str(signal_file.expanduser().absolute())]
    line = make_command(sys.executable, str(own_script()), words)
    _check_text(line)
    replaced = any(same_file(one.inbox, target) for one in find_hooks(file.document))
    put_hook(file.document, line, max(TIMEOUT, (wait or 0) + _MARGIN))
    lifted = not keep_cap and lift_cap(file.document)
    if not file.save():
        click.echo(f"already installed in {short_path(str(file.path))}; nothing to change")
    else:
        _remember(file.path, lifted)
        click.echo(f"{'updated' if replaced else 'installed'} in {short_path(str(file.path))}: {line}")
        if lifted:
            click.echo(f"and there set {BLOCK_CAP_VARIABLE}=0, so that no message is dropped after eight")
    _tell_of_others(file, target)


def _check_text(line: str) -> None:
    try:
        line.encode()
    except UnicodeEncodeError:
        raise InvalidOptions("a path that is not UTF-8 cannot stand in JSON", hint="use another") from None


def _tell_of_others(file: SettingsFile, inbox: str) -> None:
    for one in find_hooks(file.document):
        if not same_file(one.inbox, inbox):
            click.echo(
                f"the same sessions drain {one.inbox} too; if they shall not: "
                f"remuda hooks uninstall --inbox {one.inbox} --settings {file.path}"
            )


# ── uninstall ──


@command.command("uninstall")
@click.option("--inbox", type=click.Path(path_type=Path), metavar="PATH", help="Only the hook for this one.")
@_where_options
def uninstall(inbox: Path | None, settings: Path | None, user: bool, project: bool) -> None:
    """Take our Stop hooks out of the settings, and nothing else.

    \b
    Examples:
      remuda hooks uninstall
      remuda hooks uninstall --user --inbox run/inbox.jsonl
    """
    file = SettingsFile(_settings_path(settings, user, project))
    wanted = None if inbox is None else str(inbox.expanduser().absolute())
    if wanted and os.path.isdir(wanted):
        wanted += "/inbox.jsonl"
    taken = take_hooks(file.document, wanted)
    if not taken:
        click.echo(f"no hook of ours in {short_path(str(file.path))}")
        return
    last = not find_hooks(file.document)
    restored = last and _is_remembered(file.path) and restore_cap(file.document)
    file.save()
    for one in taken:
        click.echo(f"removed from {short_path(str(file.path))}: the hook for {one.inbox or one.command}")
    if restored:
        click.echo(f"and {BLOCK_CAP_VARIABLE}, which we had set there")
    if last:
        _remember(file.path, False, forget=True)


# ── what we set besides the hook ──


def _memory() -> Path:
    return home() / "hooks.json"


def _remembered() -> list[str]:
    try:
        found = json.loads(_memory().read_bytes())["lifted_caps"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _is_remembered(path: Path) -> bool:
    return os.path.realpath(path) in _remembered()


def _remember(path: Path, lifted: bool, *, forget: bool = False) -> None:
    """Where it was us who lifted the cap: only there may we put it back."""
    known = _remembered()
    real = os.path.realpath(path)
    wanted = [one for one in known if one != real] if forget else [*known, *([real] if lifted else [])]
    if wanted != known:
        private_folder(home())
        replace_file(_memory(), json.dumps({"lifted_caps": wanted}, indent=1).encode())


# ── show ──


@command.command("show")
@_where_options
@json_option
def show(settings: Path | None, user: bool, project: bool, as_json: bool) -> int:
    """Show our Stop hooks in the settings that apply here, and what is wrong with them.

    Exits with 1 when something is.

    \b
    Examples:
      remuda hooks show
      remuda hooks show --user --json
    """
    only = _settings_path(settings, user, project) if settings or user or project else None
    found = found_hooks(only)
    if as_json:
        print_json([_as_json(one) for one in found])
    elif not found:
        where = short_path(str(only)) if only else "the settings that apply here"
        click.echo(f"no Stop hook of ours in {where}; --boss and --tmux show what else there is")
    else:
        for one in found:
            _print(one)
    broken = broken_settings(only)
    for path in broken:
        complain(f"{short_path(str(path))} is not a JSON object: no hook in it runs; mend it")
    return 1 if broken or any(one.problems for one in found) else 0


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
    click.echo(f"{one.hook.inbox or one.hook.command}  {one.hook.mode}  in {short_path(str(one.path))}")
    for problem in one.problems:
        click.echo(f"  {click.style('note', fg='yellow')}  {problem}")
    if one.problems:
        click.echo(f"  {fix(one)}")
