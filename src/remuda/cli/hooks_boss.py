"""remuda hooks … --boss: the hooks by which the boss hears of sessions that nobody keeps"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

import remuda
from remuda.agents.claude.boss_hooks import EVENTS, find_hooks, make_hooks, put_hooks, take_hooks
from remuda.agents.claude.files import read_settings
from remuda.agents.claude.settings import SettingsFile, settings_files, user_file
from remuda.boss.folder import BossFolder
from remuda.errors import InvalidOptions

from .common import json_option, short_path
from .hook_change import Agreement, agreement_options, install_into, uninstall_from
from .hook_state import shown_place
from .output import echo, print_json, style

F = TypeVar("F", bound=Callable[..., Any])


def _settings_option(function: F) -> F:
    return click.option(
        "--settings",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Settings file to use.  [default: your own settings, for every session you start]",
    )(function)


def _path(settings: Path | None) -> Path:
    return settings.expanduser().absolute() if settings else user_file(os.environ)


def own_scripts() -> Path:
    """The folder of the programs that they run."""
    return Path(remuda.__file__).parent / "boss"


@click.command("install")
@_settings_option
@agreement_options
def install(settings: Path | None, dry_run: bool, yes: bool, diff: bool) -> None:
    """Install hooks that report every Claude Code session you start to the boss.

    Hooks of other programs stay as they are. You see the change before it is made. Safe to run again: only
    outdated entries change. A running session uses the hooks from its next turn on.

    \b
    Examples:
      remuda hooks install --boss
      remuda hooks install --boss --dry-run
    """
    file = SettingsFile(_path(settings))
    folder = BossFolder.default()
    hooks = make_hooks(sys.executable, str(own_scripts()), str(folder.path))
    _check_text(hooks)
    put_hooks(file.document, hooks)
    summary = f"add {len(hooks)} hooks to {shown_place(file)}"
    if install_into(file, summary, Agreement(yes, dry_run, diff), folder=folder.path):
        echo(f"installed in {shown_place(file)}")


@click.command("uninstall")
@_settings_option
@agreement_options
def uninstall(settings: Path | None, dry_run: bool, yes: bool, diff: bool) -> None:
    """Remove the boss's hooks from the settings, and nothing else.

    A file that has not changed since is restored byte for byte.

    \b
    Example:
      remuda hooks uninstall --boss
    """
    uninstall_from_file(_path(settings), Agreement(yes, dry_run, diff))


def uninstall_from_file(path: Path, how: Agreement) -> None:
    file = SettingsFile(path)
    summary = f"remove {len(find_hooks(file.document))} hooks from {shown_place(file)}"
    take_hooks(file.document)
    if uninstall_from(file, summary, how):
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
    found = found_hooks(_path(settings) if settings else None)
    if as_json:
        print_json([one.document() for one in found])
    elif not found:
        echo("no boss hooks in the settings that apply here")
    else:
        print_found(found)
    return 1 if any(one.problems for one in found) else 0


def print_found(found: list[Found]) -> None:
    for one in found:
        echo(f"{len(one.events)} hooks for {short_path(one.folder)} in {short_path(str(one.path))}")
        for problem in one.problems:
            echo(f"  {style('note', fg='yellow')}  {problem}")
        if one.problems:
            echo(f"  {one.fix}")


COMMANDS = {"install": install, "uninstall": uninstall, "show": show}


# ── what is there ──


class Found(NamedTuple):
    """Our hooks in one settings file, and what is wrong with them."""

    path: Path
    events: list[str]
    folder: str
    problems: list[str]

    @property
    def fix(self) -> str:
        return f"remuda hooks install --boss --settings {self.path}"

    def document(self) -> dict[str, Any]:
        return {
            "settings": str(self.path),
            "events": self.events,
            "folder": self.folder,
            "state": "broken" if self.problems else "ok",
            "problems": self.problems,
        }


def found_hooks(only: Path | None = None) -> list[Found]:
    """In all files that apply here, or in that one."""
    found = []
    for path in [only] if only else settings_files(os.environ, Path.cwd()):
        document = read_settings(path)
        if hooks := find_hooks(document):
            problems = [
                *_problems(document),
                *(["the settings disable all hooks"] if document.get("disableAllHooks") else []),
            ]
            found.append(Found(path, [hook.event for hook in hooks], hooks[0].folder, problems))
    return found


def _problems(document: dict[str, Any]) -> Iterator[str]:
    hooks = find_hooks(document)
    for interpreter in sorted({hook.interpreter for hook in hooks}):
        if not Path(interpreter).exists():
            yield f"its interpreter {interpreter} is gone"
    for script in sorted({hook.script for hook in hooks}):
        if not Path(script).exists():
            yield f"its program {script} is gone"
        elif Path(os.path.realpath(script)).parent != own_scripts().resolve():
            yield f"its program {script} belongs to another installation of Remuda"
    for folder in sorted({hook.folder for hook in hooks}):
        if folder != str(BossFolder.default().path):
            yield f"it reports to another boss, in {folder}"
    if missing := [event for event in EVENTS if event not in {hook.event for hook in hooks}]:
        yield f"the hooks for {', '.join(missing)} are missing"


def _check_text(hooks: dict[str, Any]) -> None:
    try:
        json.dumps(hooks, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidOptions("JSON cannot hold a path that is not UTF-8", hint="use another path") from None
