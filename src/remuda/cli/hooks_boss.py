"""remuda hooks … --boss: the hooks by which the boss hears of sessions that nobody keeps"""

from __future__ import annotations

import difflib
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
from remuda.durable import replace_file
from remuda.errors import InvalidOptions
from remuda.paths import private_folder

from .common import json_option, print_json, short_path
from .hooks_tmux import WithTmux

F = TypeVar("F", bound=Callable[..., Any])


class WithParts(WithTmux):
    """A group whose install, uninstall and show mean the boss's hooks where `--boss` is among their words."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in COMMANDS and "--boss" in args:
            return f"{args[0]} --boss", COMMANDS[args[0]], [word for word in args[1:] if word != "--boss"]
        return super().resolve_command(ctx, args)


def _options(function: F) -> F:
    for option in (
        click.option("--yes", is_flag=True, help="Do it without asking."),
        click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing."),
        _settings_option,
    ):
        function = option(function)
    return function


def _settings_option(function: F) -> F:
    return click.option(
        "--settings",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="This file.  [default: your own settings, for every session that you start]",
    )(function)


def _path(settings: Path | None) -> Path:
    return settings.expanduser().absolute() if settings else user_file(os.environ)


def own_scripts() -> Path:
    """The folder of the programs that they run."""
    return Path(remuda.__file__).parent / "boss"


@click.command("install")
@_options
def install(settings: Path | None, dry_run: bool, yes: bool) -> None:
    """Let the boss hear of every Claude session that you start, wherever it runs.

    Hooks of others stay as they are. What would change is shown first. To do so again changes only what is no
    longer right. A session that runs already hears of it with its next turn.

    \b
    Examples:
      remuda hooks install --boss
      remuda hooks install --boss --dry-run
    """
    file = SettingsFile(_path(settings))
    folder = BossFolder.default()
    before = _bytes(file.path)
    hooks = make_hooks(sys.executable, str(own_scripts()), str(folder.path))
    _check_text(hooks)
    put_hooks(file.document, hooks)
    if not _agreed(file, "already installed", dry_run=dry_run, yes=yes):
        return
    private_folder(folder.path)
    file.save()
    _remember(file.path, before, _bytes(file.path))
    click.echo(f"installed in {short_path(str(file.path))}")


@click.command("uninstall")
@_options
def uninstall(settings: Path | None, dry_run: bool, yes: bool) -> None:
    """Take the boss's hooks out of the settings, and nothing else.

    A file that nobody has changed since is put back as it was, byte for byte.

    \b
    Example:
      remuda hooks uninstall --boss
    """
    file = SettingsFile(_path(settings))
    take_hooks(file.document)
    if not _agreed(file, "no hook of ours", dry_run=dry_run, yes=yes):
        return
    _put_back(file)
    click.echo(f"removed from {short_path(str(file.path))}")


@click.command("show")
@_settings_option
@json_option
def show(settings: Path | None, as_json: bool) -> int:
    """Show the boss's hooks in the settings that apply here, and what is wrong with them.

    Exits with 1 when something is.

    \b
    Example:
      remuda hooks show --boss
    """
    found = found_hooks(_path(settings) if settings else None)
    if as_json:
        print_json([one.document() for one in found])
    elif not found:
        click.echo("the boss has no hooks in the settings that apply here")
    for one in () if as_json else found:
        click.echo(f"{len(one.events)} hooks for {short_path(one.folder)} in {short_path(str(one.path))}")
        for problem in one.problems:
            click.echo(f"  {click.style('note', fg='yellow')}  {problem}")
        if one.problems:
            click.echo(f"  {one.fix}")
    return 1 if any(one.problems for one in found) else 0


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
            yield f"it tells another boss, in {folder}"
    if missing := [event for event in EVENTS if event not in {hook.event for hook in hooks}]:
        yield f"there is none for {', '.join(missing)}"


# ── changing a file, and back ──


def _agreed(file: SettingsFile, nothing: str, *, dry_run: bool, yes: bool) -> bool:
    """Show, and ask. False if there is nothing to do, or it shall not be done."""
    path = short_path(str(file.path))
    before, after = file.texts()
    if before == after:
        click.echo(f"{path}: {nothing}; nothing to change")
        return False
    for line in difflib.unified_diff(before.splitlines(), after.splitlines(), path, path, lineterm=""):
        click.echo(line)
    if dry_run or yes:
        return not dry_run
    if not sys.stdin.isatty():
        raise InvalidOptions("nothing was changed", hint="give --yes to have it done")
    return click.confirm("change it?")


def _check_text(hooks: dict[str, Any]) -> None:
    try:
        json.dumps(hooks, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidOptions("a path that is not UTF-8 cannot stand in JSON", hint="use another") from None


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _memory() -> Path:
    return BossFolder.default().path / "settings.json"


def _remembered() -> dict[str, Any]:
    try:
        found = json.loads(_memory().read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _remember(path: Path, before: bytes | None, after: bytes | None) -> None:
    """What the file was before us, and what it was then."""
    known, real = _remembered(), os.path.realpath(path)
    was = known.get(real)
    if isinstance(was, dict) and was.get("after") == _text(before):
        first = was.get("before")
    else:
        first = _text(before)
        if before is not None and find_hooks(json.loads(before.decode().removeprefix("\ufeff") or "{}")):
            known.pop(real, None)
            replace_file(_memory(), json.dumps(known).encode())
            return
    replace_file(_memory(), json.dumps({**known, real: {"before": first, "after": _text(after)}}).encode())


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _put_back(file: SettingsFile) -> None:
    known, real = _remembered(), Path(os.path.realpath(file.path))
    was = known.pop(str(real), None)
    if isinstance(was, dict) and was.get("after") == _text(_bytes(real)):
        if was.get("before") is None:
            real.unlink()
        else:
            replace_file(real, str(was["before"]).encode(), real.stat().st_mode & 0o7777)
    else:
        file.save()
    if was is not None:
        replace_file(_memory(), json.dumps(known).encode())
