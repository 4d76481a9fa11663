"""Changing a file of the user's for `remuda hooks`: show it, ask, write it, and put it back as it was.

What a file was before us is in `hooks.json` of our home, and was written there before the file was changed: a
crash or a full disk in between loses nothing. `uninstall` puts it back byte for byte, if nobody else has
changed it since and nothing of ours is left in it. It removes folders that `install` made.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from remuda.agents.claude import boss_hooks, stop_hooks
from remuda.agents.claude.settings import SettingsFile
from remuda.boss.folder import BossFolder
from remuda.durable import read_regular, replace_file
from remuda.errors import InvalidOptions
from remuda.paths import home, private_folder
from remuda.untrusted import parse_json

from .hook_state import shown_place
from .output import ask_letter, echo

F = TypeVar("F", bound=Callable[..., Any])

_SHOWN_LINES = 24
"""A longer change is summed up: it would scroll the question off the screen."""


class Agreement(NamedTuple):
    """How the user wants to be asked."""

    yes: bool
    dry_run: bool
    diff: bool
    must_ask: bool = True
    """Without a terminal `--yes` is needed."""


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
    is_long = len(lines) > _SHOWN_LINES and not how.diff and not how.dry_run
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
    """A change as `diff -u` shows it."""
    old, new = [(text or "").splitlines() for text in (before, after)]
    from_name, to_name = [os.devnull if text is None else place for text in (before, after)]
    return list(difflib.unified_diff(old, new, from_name, to_name, lineterm=""))


# ── settings ──


def install_into(file: SettingsFile, summary: str, how: Agreement, folder: Path | None = None) -> bool:
    """Save what `file.document` is now, if the user agrees; False if not, or if there is nothing to change.

    `folder` is made as well, if it is not there.
    """
    before, after = file.texts()
    if before == after:
        echo(f"{shown_place(file)}: already installed; nothing to change")
        return False
    had_ours = _has_ours(file.saved_document())
    if not agreed(shown_place(file), before, after, summary, how):
        return False
    made = [one for one in (folder, *missing_folders(file.real)) if one is not None and not one.exists()]
    known = _files().get(str(file.real))
    if had_ours and not _knows(known, before):
        _note("files", file.real, None)  # put there before there was a memory, or changed since
    else:
        _note("files", file.real, _entry(known, before, after, made))
    if folder is not None and not folder.exists():
        private_folder(folder)
    file.save()
    return True


def missing_folders(path: Path) -> list[Path]:
    """The folders that saving a file may make, the innermost first."""
    return [one for one in path.parents if not one.exists()]


def uninstall_from(file: SettingsFile, summary: str, how: Agreement) -> bool:
    """Save what `file.document` is now, without our hooks, if the user agrees."""
    before, after = file.texts()
    if before == after:
        echo(f"{shown_place(file)}: not installed; nothing to change")
        return False
    known = _files().get(str(file.real))
    is_known, last = _knows(known, before), not _has_ours(file.document)
    if is_known and last:
        after = _text_before(known)
    if not agreed(shown_place(file), before, after, summary, how):
        return False
    if is_known and not last:
        _note("files", file.real, _entry(known, before, after, []))
    file.write(after)
    if last or not is_known:
        _note("files", file.real, None)
    if is_known and last:
        _remove_made(known)
    return True


def _text_before(known: Any) -> str | None:
    return known["before"] if isinstance(known.get("before"), str) else None


def _remove_made(known: Any) -> None:
    for one in known.get("made") or ():
        with contextlib.suppress(OSError, TypeError):  # there is something in it by now
            os.rmdir(one)


def _has_ours(document: dict[str, Any]) -> bool:
    return bool(stop_hooks.find_hooks(document) or boss_hooks.find_hooks(document))


# ── what we know of files that we changed ──


def _memory() -> Path:
    return home() / "hooks.json"


def _old_memory() -> Path:
    """Where version 0.1 kept it for the boss's hooks."""
    return BossFolder.default().path / "settings.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        found = parse_json(read_regular(path))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _files() -> dict[str, Any]:
    """By its real path: what a file was before us (None: not there) and after us, and what else was made."""
    found = _read(_memory()).get("files")
    return {**_read(_old_memory()), **(found if isinstance(found, dict) else {})}


def _knows(known: Any, text: str | None) -> bool:
    """Whether that is what a file was before us, or what we made of it, or were about to make of it."""
    return isinstance(known, dict) and text in [known.get(one) for one in ("before", "after", "until")]


def _entry(known: Any, before: str | None, after: str | None, made: list[Path]) -> dict[str, Any]:
    """What to remember of a file that is about to change from `before` to `after`."""
    old = known if _knows(known, before) else {"before": before}
    made_before = old.get("made") if isinstance(old.get("made"), list) else []
    made_now = [str(one) for one in made]
    return {**old, "after": after, "until": before, "made": [*made_now, *(made_before or [])]}


def _note(part: str, path: Path, entry: dict[str, Any] | None) -> None:
    """Put an entry into the memory, or take it out, and change nothing else that is there by now."""
    found = _files() if part == "files" else _programs()
    found.pop(str(path), None)
    _save(**{part: {**found, **({} if entry is None else {str(path): entry})}})


def _save(**parts: Any) -> None:
    known = _read(_memory())
    wanted = {name: value for name, value in {**known, **parts}.items() if value}
    if not wanted:
        _memory().unlink(missing_ok=True)
    elif wanted != known:
        private_folder(home())
        replace_file(_memory(), json.dumps(wanted, indent=1).encode())
    if "files" in parts:
        _old_memory().unlink(missing_ok=True)


def remembered_files() -> list[str]:
    """The real paths of all settings files that we changed and did not change back."""
    return [*_files()]


# ── files that are all ours ──


def _programs() -> dict[str, Any]:
    found = _read(_memory()).get("programs")
    return found if isinstance(found, dict) else {}


def remember_program(path: Path, before: str | None, after: str) -> None:
    """Remember what a file is, of which all is about to be replaced by `after`."""
    entry = _entry(_programs().get(str(path)), before, after, missing_folders(path))
    _note("programs", path, entry)


def is_program(path: Path, text: str) -> bool:
    """Whether we wrote `text` there."""
    known = _programs().get(str(path))
    return _knows(known, text) and text != _text_before(known)


def program_before(path: Path, text: str) -> str | None:
    """Return what the file was before us; None if it was not there, or is not `text` that we know of."""
    known = _programs().get(str(path))
    return _text_before(known) if _knows(known, text) else None


def forget_program(path: Path) -> None:
    """Forget a file that is as it was again, and remove the folders that were made for it."""
    known = _programs().get(str(path))
    _note("programs", path, None)
    if isinstance(known, dict):
        _remove_made(known)


def lifted_caps() -> list[str]:
    """The files in which it was us who lifted the cap on blocked stops: only there may we put it back."""
    found = _read(_memory()).get("lifted_caps")
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def remember_cap(file: SettingsFile, *, lifted: bool) -> None:
    others = [one for one in lifted_caps() if one != str(file.real)]
    _save(lifted_caps=[*others, *([str(file.real)] if lifted else [])])
