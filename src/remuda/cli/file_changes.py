"""Change a file of the user for `hooks` and `setup`: show the change, ask, write it, and later restore it.

`hooks.json` in our home has the earlier text of each file. It is written before the file is changed, so a
crash or a full disk in between loses nothing. `uninstall` restores the file byte for byte if it has not
changed since and none of our hooks are left in it. It removes folders that `install` made.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from remuda.agents.setup import AgentSettings
from remuda.boss.folder import BossFolder
from remuda.durable import read_regular, replace_file
from remuda.errors import InvalidOptions
from remuda.paths import home, private_folder
from remuda.untrusted import parse_json

from .common import short_path
from .output import ask_letter, echo

F = TypeVar("F", bound=Callable[..., Any])

_SHOWN_LINES = 24
"""A longer change is summarised: it would scroll the question off the screen."""


class Agreement(NamedTuple):
    """Whether and how to ask the user before a change."""

    yes: bool
    dry_run: bool
    diff: bool
    must_ask: bool = True
    """Without a terminal `--yes` is required."""


def agreement_options(function: F) -> F:
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
        click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing."),
        click.option("--diff", is_flag=True, help="Show a long change in full."),
    ):
        function = option(function)
    return function


def agreed(place: str, before: str | None, after: str | None, summary: str, how: Agreement) -> bool:
    """Show a change of a file, None for one that does not exist, and ask. Return whether to make it."""
    lines = difference(place, before, after)
    rows = sum(1 + len(line) // 80 for line in lines)  # settings may be one line
    is_long = rows > _SHOWN_LINES and not how.diff and not how.dry_run
    for line in [f"{summary}; --diff shows the change"] if is_long else lines:
        echo(line)
    if how.dry_run or how.yes:
        return not how.dry_run
    if not sys.stdin.isatty():
        if how.must_ask:
            raise InvalidOptions("stdin is not a terminal, so nothing was changed", hint="pass --yes")
        return True
    answer = ask_letter("change it?", "nyd" if is_long else "ny")
    while answer == "d":
        for line in lines:
            echo(line)
        answer = ask_letter("change it?", "ny")
    return answer == "y"


def difference(place: str, before: str | None, after: str | None) -> list[str]:
    """Return a change as `diff -u` shows it."""
    old, new = [(text or "").splitlines() for text in (before, after)]
    from_name, to_name = [os.devnull if text is None else place for text in (before, after)]
    return list(difflib.unified_diff(old, new, from_name, to_name, lineterm=""))


# ── settings files ──


def shown_place(settings: AgentSettings) -> str:
    """Return the path of the file, and the real one if the path is a link."""
    path, real = str(settings.path), str(settings.real)
    return short_path(path) if path == real else f"{short_path(path)} (which is {short_path(real)})"


def save_installed(settings: AgentSettings, summary: str, how: Agreement, folder: Path | None = None) -> bool:
    """Save settings to which hooks were added, if the user agrees. Return whether they were saved.

    `folder` is created as well, if it does not exist.
    """
    before, after = settings.texts()
    if before == after:
        echo(f"{shown_place(settings)}: already installed; nothing to change")
        return False
    had_ours = settings.had_hooks
    if not agreed(shown_place(settings), before, after, summary, how):
        return False
    new_folders = [
        one for one in (folder, *missing_folders(settings.real)) if one is not None and not one.exists()
    ]
    entry = _files().get(str(settings.real))
    if had_ours and not _knows(entry, before):
        _note("files", settings.real, None)  # installed by a version without hooks.json, or changed since
    else:
        _note("files", settings.real, _entry(entry, before, after, new_folders))
    if folder is not None and not folder.exists():
        private_folder(folder)
    settings.save()
    return True


def missing_folders(path: Path) -> list[Path]:
    """Return the folders that saving a file will create, the innermost first.

    Also those that were created for another file of ours: the last of both that is removed takes them along.
    """
    entries = [*_files().values(), *_entries("lines").values(), *_programs().values()]
    lists = [one.get("made") for one in entries if isinstance(one, dict)]
    ours = [made for one in lists if isinstance(one, list) for made in one]
    return [one for one in path.parents if not one.exists() or str(one) in ours]


def save_uninstalled(settings: AgentSettings, summary: str, how: Agreement) -> bool:
    """Save settings from which hooks were removed, if the user agrees. Return whether they were saved."""
    before, after = settings.texts()
    if before == after:
        echo(f"{shown_place(settings)}: not installed; nothing to change")
        return False
    entry = _files().get(str(settings.real))
    is_known, last = _knows(entry, before), not settings.has_hooks
    if is_known and last:
        after = _text_before(entry)
    if not agreed(shown_place(settings), before, after, summary, how):
        return False
    if is_known and not last:
        _note("files", settings.real, _entry(entry, before, after, []))
    settings.write(after)
    if is_known and last:
        _remove_made(entry)
    if last or not is_known:
        _note("files", settings.real, None)
    return True


def _text_before(entry: Any) -> str | None:
    return entry["before"] if isinstance(entry.get("before"), str) else None


def _remove_made(entry: Any) -> None:
    for one in entry.get("made") or ():
        with contextlib.suppress(OSError, TypeError):  # it is not empty any more
            os.rmdir(one)


# ── the files that we changed, in hooks.json ──


def _memory() -> Path:
    return home() / "hooks.json"


def _old_memory() -> Path:
    """Return where version 0.1 stored it for the boss's hooks."""
    return BossFolder.default().path / "settings.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        document = parse_json(read_regular(path))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _files() -> dict[str, Any]:
    """Return, by real path, the text before us (None: no file) and after us, and the folders we created."""
    entries = _read(_memory()).get("files")
    return {**_read(_old_memory()), **(entries if isinstance(entries, dict) else {})}


def _knows(entry: Any, text: str | None) -> bool:
    """Whether `text` is the one before us, the one we wrote, or the one that we were about to replace."""
    return isinstance(entry, dict) and text in [entry.get(one) for one in ("before", "after", "until")]


def _entry(known: Any, before: str | None, after: str | None, made: list[Path]) -> dict[str, Any]:
    """Return the entry for a file that is about to change from `before` to `after`."""
    old = known if _knows(known, before) else {"before": before}
    made_before = old.get("made") if isinstance(old.get("made"), list) else []
    made_now = [str(one) for one in made]
    all_made = list(dict.fromkeys([*made_now, *(made_before or [])]))
    return {**old, "after": after, "until": before, "made": all_made}


def _note(part: str, path: Path, entry: dict[str, Any] | None) -> None:
    """Store an entry, or remove it. Other entries stay, also those that another process has added."""
    entries = _files() if part == "files" else _entries(part)
    entries.pop(str(path), None)
    _save(**{part: {**entries, **({} if entry is None else {str(path): entry})}})


def _save(**parts: Any) -> None:
    stored = _read(_memory())
    made = stored.get("made") or [str(one) for one in missing_folders(_memory())]
    document = {name: value for name, value in {**stored, **parts, "made": made}.items() if value}
    if document.keys() <= {"made"}:
        _memory().unlink(missing_ok=True)
        _remove_made(document)
    elif document != stored:
        private_folder(home())
        replace_file(_memory(), json.dumps(document, indent=1).encode())
    if "files" in parts:
        _old_memory().unlink(missing_ok=True)


def remembered_files() -> list[str]:
    """Return the real paths of all settings files that we changed and did not restore.

    Version 0.1 remembered only in which of them it lifted the cap.
    """
    return list(dict.fromkeys([*_files(), *lifted_caps()]))


def _entries(part: str) -> dict[str, Any]:
    entries = _read(_memory()).get(part)
    return entries if isinstance(entries, dict) else {}


# ── files of the user that hold lines of ours ──


def remember_lines(path: Path) -> None:
    """Remember a file that is about to get lines of ours, and the folders that will be created for it."""
    old = _entries("lines").get(str(path))
    made_before = old.get("made") if isinstance(old, dict) else None
    made = [str(one) for one in missing_folders(path)]
    made += made_before if isinstance(made_before, list) else []
    _note("lines", path, {"made": list(dict.fromkeys(made))})


def forget_lines(path: Path) -> None:
    """Forget a file that has no lines of ours any more, and remove the folders that were created for it."""
    _forget("lines", path)


def remembered_lines() -> list[Path]:
    return [*map(Path, _entries("lines"))]


# ── files that are completely ours ──


def _programs() -> dict[str, Any]:
    return _entries("programs")


def remember_program(path: Path, before: str | None, after: str) -> None:
    """Remember the text of a file that is about to be replaced by `after`."""
    entry = _entry(_programs().get(str(path)), before, after, missing_folders(path))
    _note("programs", path, entry)


def is_program(path: Path, text: str) -> bool:
    """Whether we wrote `text` there."""
    entry = _programs().get(str(path))
    return _knows(entry, text) and text != _text_before(entry)


def program_before(path: Path, text: str) -> str | None:
    """Return the text before us; None without a file, or if `text` is not one that we know."""
    entry = _programs().get(str(path))
    return _text_before(entry) if _knows(entry, text) else None


def forget_program(path: Path) -> None:
    """Forget a file that was restored, and remove the folders that were created for it."""
    _forget("programs", path)


def _forget(part: str, path: Path) -> None:
    entry = (_files() if part == "files" else _entries(part)).get(str(path))
    if isinstance(entry, dict):
        _remove_made(entry)
    _note(part, path, None)


def lifted_caps() -> list[str]:
    """Return the files in which we lifted the cap on blocked stops. Only there may we restore it."""
    paths = _read(_memory()).get("lifted_caps")
    return [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else []


def remember_cap(settings: AgentSettings, *, lifted: bool) -> None:
    others = [one for one in lifted_caps() if one != str(settings.real)]
    _save(lifted_caps=[*others, *([str(settings.real)] if lifted else [])])


# ── what a setup that was killed has left ──


def leftovers(is_installed: Callable[[str, Path], bool]) -> list[tuple[str, Path]]:
    """Return the remembered files, with their part of our memory, that hold nothing of ours.

    A setup that was killed had not changed them yet, or had already restored them. `is_installed` says
    whether a file holds something of ours. It raises for a file that cannot be read, which is left out.
    """
    found = []
    for part in ("files", "lines", "programs"):
        for path in map(Path, _files() if part == "files" else _entries(part)):
            with contextlib.suppress(InvalidOptions, OSError):
                if not is_installed(part, path) and not _is_being_written(path):
                    found.append((part, path))
    return found


def temporary_files() -> list[Path]:
    """Return temporary files of ended processes: next to our memory and to every remembered file."""
    entries = [*_files(), *_entries("lines"), *_entries("programs")]
    paths = [_memory(), *map(Path, entries)]
    return [one for path in dict.fromkeys(paths) for one, pid in _temporary(path) if not _is_alive(pid)]


def remove_leftovers(entries: list[tuple[str, Path]], files: list[Path]) -> None:
    for path in files:
        path.unlink(missing_ok=True)
    for part, path in entries:
        _forget(part, path)


def _is_being_written(path: Path) -> bool:
    return any(_is_alive(pid) for _, pid in _temporary(path))


def _temporary(path: Path) -> list[tuple[Path, int]]:
    """Return the files that `durable.replace_file` writes before it renames them, each with its process."""
    name = re.compile(rf"\.{re.escape(path.name)}\.(\d+)\.tmp")
    try:
        names = os.listdir(path.parent)
    except OSError:
        return []
    return [(path.parent / match[0], int(match[1])) for one in names if (match := name.fullmatch(one))]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
