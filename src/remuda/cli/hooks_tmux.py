"""remuda hooks … --tmux: our keys and our part of the status line, in tmux.conf and in the running server"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

import remuda.boss.key
from remuda.errors import TmuxError, TmuxGone, TmuxMissing
from remuda.tmux.address import Address
from remuda.tmux.bindings import Keys, apply, bound_keys, check_keys, conf_lines, is_ours, remove, taken_keys
from remuda.tmux.command import Tmux, installed_version
from remuda.tmux.conf import ConfFile, conf_file, conf_files

from .common import json_option, short_path
from .file_changes import (
    Agreement,
    agreed,
    agreement_options,
    forget_lines,
    remember_lines,
    remembered_lines,
)
from .output import echo, print_json

F = TypeVar("F", bound=Callable[..., Any])


def _conf_option(function: F) -> F:
    option = click.option(
        "--conf",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="tmux.conf to use.  [default: ~/.tmux.conf, or the one in $XDG_CONFIG_HOME/tmux]",
    )
    return option(function)


@click.command("install")
@_conf_option
@click.option(
    "--next",
    "next_key",
    default="Tab",
    show_default=True,
    metavar="KEY",
    help="Key for the next waiting agent.",
)
@click.option(
    "--skip", "skip_key", default="S", show_default=True, metavar="KEY", help="Key to skip this agent."
)
@click.option("--popup", "popup_key", default="g", show_default=True, metavar="KEY", help="Key for the list.")
@click.option("--return", "back_key", default="B", show_default=True, metavar="KEY", help="Key to go back.")
@click.option("--no-segment", is_flag=True, help="Do not change the status line.")
@agreement_options
def install(
    conf: Path | None,
    next_key: str,
    skip_key: str,
    popup_key: str,
    back_key: str,
    no_segment: bool,
    dry_run: bool,
    yes: bool,
    diff: bool,
) -> None:
    """Add keys and a status line to tmux.conf, and to the running tmux server if there is one.

    Press the prefix before a key. An empty KEY binds nothing. You see the change before it is made. Safe to
    run again: only outdated entries change.

    \b
    Examples:
      remuda hooks install --tmux --dry-run
      remuda hooks install --tmux --next N --skip "" --no-segment --yes
    """
    installed_version()
    keys = Keys(next_key, skip_key, popup_key, back_key)
    check_keys(keys)
    lines = conf_lines(_program(), keys, segment=not no_segment)
    file = _file(conf)
    file.install(lines)
    tmux = Tmux(Address.here(os.environ))
    _print_replaced_keys(tmux, lines)
    if not _save(file, "already installed", Agreement(yes, dry_run, diff)):
        return
    _try_server(lambda: apply(tmux, lines), "also changed the running tmux server")


@click.command("uninstall")
@_conf_option
@agreement_options
def uninstall(conf: Path | None, dry_run: bool, yes: bool, diff: bool) -> None:
    """Remove Remuda's lines from tmux.conf, and its keys from the running tmux server.

    Every other byte of the file stays as it is. Keys get their earlier bindings back.

    \b
    Example:
      remuda hooks uninstall --tmux
    """
    paths = [conf.expanduser().absolute()] if conf else installed_files() or [conf_file(os.environ)]
    agreed_to = [uninstall_from_file(path, Agreement(yes, dry_run, diff)) for path in paths]
    if all(agreed_to):
        remove_from_server()


def uninstall_from_file(path: Path, how: Agreement) -> bool:
    """Remove our lines from one tmux.conf. Return False if the user declined."""
    file = ConfFile(path)
    file.uninstall()
    return _save(file, "not installed", how)


def remove_from_server() -> None:
    _try_server(lambda: remove(Tmux(Address.here(os.environ))), "also removed from the running tmux server")


@click.command("show")
@_conf_option
@json_option
def show(conf: Path | None, as_json: bool) -> None:
    """Show which files have Remuda's lines, and which of its keys are bound in your tmux server.

    \b
    Example:
      remuda hooks show --tmux
    """
    with_ours, keys = installed_parts(conf)
    if as_json:
        print_json({"files": with_ours, "keys": keys})
    else:
        print_parts(with_ours, keys)


def installed_parts(conf: Path | None = None) -> tuple[list[str], list[str] | None]:
    """Return the files with our lines, and our keys in the running server; None if no server runs."""
    with_ours = [str(path) for path in installed_files(conf)]
    try:
        bound = bound_keys(Tmux(Address.here(os.environ)))
    except TmuxError:
        return with_ours, None
    return with_ours, [key for key, line in bound.items() if is_ours(line)]


def candidate_files() -> list[Path]:
    """Return each tmux.conf that may have our lines: those that tmux reads, and others that setup changed."""
    known = {os.path.realpath(path): path for path in conf_files(os.environ)}
    return [*known.values(), *(path for path in remembered_lines() if str(path) not in known)]


def installed_files(conf: Path | None = None) -> list[Path]:
    """Return each tmux.conf with our lines. Raises `InvalidOptions` if their marks are damaged."""
    return [path for path in ([conf] if conf else candidate_files()) if ConfFile(path).has_block]


def print_parts(with_ours: list[str], keys: list[str] | None) -> None:
    echo(f"in {', '.join(map(short_path, with_ours))}" if with_ours else "not in any tmux.conf")
    if keys is None:
        echo("no tmux server is running")
    else:
        echo(f"keys in the server: {' '.join(keys) or 'none'}")


COMMANDS = {"install": install, "uninstall": uninstall, "show": show}


def _program() -> list[str]:
    """Return what a key runs. A tmux server has its own environment, so we pass the folders of our files."""
    folders = [
        f"{name}={os.environ[name]}" for name in ("REMUDA_HOME", "XDG_STATE_HOME") if os.environ.get(name)
    ]
    return [
        *(["env", *folders] if folders else []),
        sys.executable,
        "-I",
        "-S",
        str(remuda.boss.key.__file__),
    ]


def _file(conf: Path | None) -> ConfFile:
    if conf is not None:
        return ConfFile(conf.expanduser().absolute())
    # Lines that are installed stay in their file.
    installed = [file for file in map(ConfFile, conf_files(os.environ)) if file.has_block]
    return installed[0] if installed else ConfFile(conf_file(os.environ))


def _print_replaced_keys(tmux: Tmux, lines: list[str]) -> None:
    try:
        taken = taken_keys(tmux, lines)
    except TmuxError:
        return
    for key, line in taken.items():
        echo(f"note: this replaces the binding of prefix {key}: {' '.join(line.split())}")


def _save(file: ConfFile, nothing: str, how: Agreement) -> bool:
    """Show the change, ask, and save it. Return False if the user declined."""
    path = short_path(str(file.path))
    if not file.is_changed:
        echo(f"{path}: {nothing}; nothing to change")
        return not how.dry_run
    before, after = [
        None if one is None else one.decode("utf-8", "replace") for one in (file.before, file.after)
    ]
    if not agreed(path, before, after, f"change {path}", how):
        return False
    if file.will_have_block:
        remember_lines(file.real)
    file.save()
    if not file.will_have_block:
        forget_lines(file.real)
    echo(f"{'removed' if file.after is None else 'changed'} {path}")
    return True


def _try_server(work: Callable[[], None], success: str) -> None:
    try:
        work()
    except (TmuxGone, TmuxMissing):
        return  # no server runs, and the next one will read the file
    except TmuxError as error:
        raise TmuxError(
            f"tmux.conf is changed, but the running tmux server is not: {error.message}",
            hint="'tmux source-file' reads the file again",
        ) from error
    echo(success)
