"""Which inbox a command of `remuda inbox` means: a session's, or a folder's."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from remuda.errors import FolderUnusable, InvalidOptions, RemudaError, SessionNotFound
from remuda.inbox.journal import Inbox
from remuda.inbox.message import DEFAULT_MAX_BYTES
from remuda.inbox.stop_hook import Files
from remuda.keeper.claim import live_names, read_holder
from remuda.keeper.listing import dead_records
from remuda.keeper.record import SessionRecord
from remuda.names import is_name
from remuda.paths import SessionPaths, private_folder

from .common import find_folder, folder_option

F = TypeVar("F", bound=Callable[..., Any])

_FILE = "inbox.jsonl"
_FIRST = 200


@dataclass(frozen=True, slots=True)
class Target:
    """`words` name it on a command line; `session` is None for a folder, `alive` then too."""

    folder: Path
    words: str
    session: str | None = None
    alive: bool | None = None

    def inbox(self, max_bytes: int = DEFAULT_MAX_BYTES) -> Inbox:
        return Inbox(self.folder, max_bytes=max_bytes)

    def existing(self) -> Inbox:
        """For commands that look: a session's inbox may not have been used yet, a folder must be there."""
        if self.folder.is_dir():
            return self.inbox()  # also one that can only be read
        if self.session is not None:
            private_folder(self.folder)
        else:
            raise FolderUnusable(
                f"there is no inbox at {self.folder}", hint=f"'remuda inbox put {self.words} TEXT' makes one"
            )
        return self.inbox()

    @property
    def files(self) -> Files:
        return Files(str(self.folder / _FILE))


def complete_inbox(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of sessions, also of dead ones: their inboxes are still there."""
    if ctx.params.get("path"):
        return []
    try:
        where = find_folder(ctx.params.get("folder"))
        living = set(live_names(where))
        names = living | {record.name for record in dead_records(where, living)}
    except (RemudaError, OSError):
        return []
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def inbox_argument(function: F) -> F:
    return click.argument("name", required=False, shell_complete=complete_inbox)(function)


def inbox_options(function: F) -> F:
    option = click.option(
        "--inbox",
        "path",
        type=click.Path(path_type=Path),
        help=f"A folder, or the path of an {_FILE}, in place of a session.",
    )
    return option(folder_option(function))


def with_word(name: str | None, word: str | None, path: Path | None) -> tuple[str | None, str | None]:
    """The session and the word behind it: with --inbox the first word is not a session."""
    if path is None:
        return name, word
    if word is not None:
        raise InvalidOptions("both a session and --inbox were given", hint="give one or the other")
    return None, name


def find_target(name: str | None, path: Path | None, folder: Path | None) -> Target:
    if name is not None and path is not None:
        raise InvalidOptions("both a session and --inbox were given", hint="give one or the other")
    if path is not None:
        return _of_path(path)
    if name is None:
        raise InvalidOptions("no inbox was named", hint="name a session, or a folder with --inbox")
    return _of_session(SessionPaths.of(name, find_folder(folder)))


def _of_path(path: Path) -> Target:
    words = f"--inbox {shlex.quote(str(path))}"
    path = path.expanduser().absolute()
    if path.name == _FILE and not path.is_dir():
        return Target(path.parent, words)
    if path.is_file() or (path.suffix == ".jsonl" and not path.exists()):
        raise InvalidOptions(f"{path} is not named {_FILE}", hint=f"name its folder, or the {_FILE} in it")
    return Target(path, words)


def _of_session(paths: SessionPaths) -> Target:
    alive = read_holder(paths) is not None
    if not alive and SessionRecord.load(paths.record) is None and not paths.inbox.is_dir():
        raise SessionNotFound(
            f"no session named '{paths.name}'",
            hint="'remuda ls --all' lists them, 'remuda start' makes one; "
            "'remuda inbox' takes any folder with --inbox",
        )
    return Target(paths.inbox, paths.name, paths.name, alive)


def session_of(folder: Path) -> SessionPaths | None:
    """The session whose inbox this is; None for any other folder."""
    name = folder.name.removesuffix(".inbox")
    if name == folder.name or not is_name(name):
        return None
    paths = SessionPaths(folder.parent, name)
    return paths if paths.record.exists() or paths.pid.exists() else None


def shown(text: str) -> str:
    """A text of somebody else, safe to print: no control byte in it reaches a terminal."""
    kept = (one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text)
    return "".join(kept)


def encodable(text: str) -> str:
    """What JSON can carry and a terminal or a file cannot (half of a pair), replaced."""
    return text.encode("utf-8", "replace").decode()


def first_line(text: str) -> str:
    first, *more = text.strip().splitlines() or [""]
    short = shown(first[:_FIRST]).replace("\t", " ")
    return f"{short} …" if more or len(first) > _FIRST else short
