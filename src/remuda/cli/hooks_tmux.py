"""remuda hooks … --tmux: our keys and our piece of the status line, in tmux.conf and in a server that runs"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

import remuda.boss.key
from remuda.errors import InvalidOptions, TmuxError
from remuda.tmux.address import Address
from remuda.tmux.bindings import Keys, apply, bound_keys, conf_lines, is_ours, remove, taken_keys
from remuda.tmux.conf import ConfFile, conf_file, conf_files
from remuda.tmux.once import Tmux, installed_version

from .common import json_option, print_json, short_path

F = TypeVar("F", bound=Callable[..., Any])


class WithTmux(click.Group):
    """A group whose install, uninstall and show mean tmux where `--tmux` is among their words."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in COMMANDS and "--tmux" in args:
            return f"{args[0]} --tmux", COMMANDS[args[0]], [word for word in args[1:] if word != "--tmux"]
        return super().resolve_command(ctx, args)


def _conf_option(function: F) -> F:
    option = click.option(
        "--conf",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="This file.  [default: ~/.tmux.conf, or $XDG_CONFIG_HOME/tmux/tmux.conf where only that exists]",
    )
    return option(function)


def _agreement_options(function: F) -> F:
    for option in (
        click.option("--yes", is_flag=True, help="Do it without asking."),
        click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing."),
    ):
        function = option(function)
    return function


@click.command("install")
@_conf_option
@click.option("--next", "next_key", default="Tab", show_default=True, metavar="KEY", help="To the next.")
@click.option("--skip", "skip_key", default="S", show_default=True, metavar="KEY", help="Past this one.")
@click.option("--popup", "popup_key", default="g", show_default=True, metavar="KEY", help="Choose one.")
@click.option("--return", "back_key", default="B", show_default=True, metavar="KEY", help="Back.")
@click.option("--no-segment", is_flag=True, help="Leave the status line alone.")
@_agreement_options
def install(
    conf: Path | None,
    next_key: str,
    skip_key: str,
    popup_key: str,
    back_key: str,
    no_segment: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Put keys and a piece of the status line into tmux.conf, and into your tmux server if one runs.

    The keys are those behind the prefix; an empty KEY binds none. What would change is shown first. To do so
    again changes only what is no longer right.

    \b
    Examples:
      remuda hooks install --tmux --dry-run
      remuda hooks install --tmux --next N --skip "" --no-segment --yes
    """
    installed_version()
    lines = conf_lines(_program(), Keys(next_key, skip_key, popup_key, back_key), segment=not no_segment)
    file = _file(conf)
    file.install(lines)
    tmux = Tmux(Address.here(os.environ))
    _tell_taken(tmux, lines)
    if not _save(file, "already there", dry_run=dry_run, yes=yes):
        return
    _try_server(lambda: apply(tmux, lines), "and in the tmux server that runs")


@click.command("uninstall")
@_conf_option
@_agreement_options
def uninstall(conf: Path | None, dry_run: bool, yes: bool) -> None:
    """Take our lines out of tmux.conf, and our keys out of your tmux server if one runs.

    Every other byte of the file stays as it is; keys get back what they were bound to before.

    \b
    Example:
      remuda hooks uninstall --tmux
    """
    file = _file(conf)
    file.uninstall()
    if not _save(file, "no lines of ours", dry_run=dry_run, yes=yes):
        return
    _try_server(lambda: remove(Tmux(Address.here(os.environ))), "and from the tmux server that runs")


@click.command("show")
@_conf_option
@json_option
def show(conf: Path | None, as_json: bool) -> None:
    """Show where our lines are, and which of our keys are bound in your tmux server.

    \b
    Example:
      remuda hooks show --tmux
    """
    files = [ConfFile(path) for path in ([conf] if conf else conf_files(os.environ))]
    with_ours = [str(file.path) for file in files if file.has_block]
    try:
        bound = bound_keys(Tmux(Address.here(os.environ)))
        keys: list[str] | None = [key for key, line in bound.items() if is_ours(line)]
    except TmuxError:
        keys = None
    if as_json:
        print_json({"files": with_ours, "keys": keys})
        return
    click.echo(f"in {', '.join(map(short_path, with_ours))}" if with_ours else "in no tmux.conf")
    if keys is None:
        click.echo("no tmux server runs here")
    else:
        click.echo(f"keys in the server: {' '.join(keys) or 'none'}")


COMMANDS = {"install": install, "uninstall": uninstall, "show": show}


def _program() -> list[str]:
    """What a key runs. A tmux server has an environment of its own, so it is told where our files lie."""
    told = [
        f"{name}={os.environ[name]}" for name in ("REMUDA_HOME", "XDG_STATE_HOME") if os.environ.get(name)
    ]
    return [*(["env", *told] if told else []), sys.executable, "-I", "-S", str(remuda.boss.key.__file__)]


def _file(conf: Path | None) -> ConfFile:
    if conf is not None:
        return ConfFile(conf.expanduser().absolute())
    # Where our lines are already, there they stay.
    known = [file for file in map(ConfFile, conf_files(os.environ)) if file.has_block]
    return known[0] if known else ConfFile(conf_file(os.environ))


def _tell_taken(tmux: Tmux, lines: list[str]) -> None:
    try:
        taken = taken_keys(tmux, lines)
    except TmuxError:
        return
    for key, line in taken.items():
        click.echo(f"note: prefix {key} is bound already, and will mean ours: {' '.join(line.split())}")


def _save(file: ConfFile, nothing: str, *, dry_run: bool, yes: bool) -> bool:
    """Show, ask, do. False if it shall not be done."""
    path = short_path(str(file.path))
    if not file.is_changed:
        click.echo(f"{path}: {nothing}; nothing to change")
        return not dry_run
    for line in file.difference():
        click.echo(line)
    if dry_run:
        return False
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidOptions("nothing was changed", hint="give --yes to have it done")
        if not click.confirm("change it?"):
            return False
    file.save()
    click.echo(f"changed {path}")
    return True


def _try_server(work: Callable[[], None], told: str) -> None:
    try:
        work()
    except TmuxError:
        return  # none runs, and the next one will read the file
    click.echo(told)
