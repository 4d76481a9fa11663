"""Which inbox a command means: that of a session, or the one in a folder"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from remuda.errors import FolderUnusable, InvalidOptions, MessageNotFound, RemudaError, SessionNotFound
from remuda.frozen import frozen
from remuda.inbox.journal import Inbox
from remuda.inbox.message import DEFAULT_MAX_BYTES
from remuda.inbox.stop_hook import Files
from remuda.keeper.claim import live_names, read_holder
from remuda.keeper.elsewhere import split_host
from remuda.keeper.record import SessionRecord
from remuda.keeper.sendable import find_prompts, refuse_foreign
from remuda.names import did_you_mean, is_name
from remuda.paths import SessionPaths, known_names, private_folder

from . import declare
from .common import complete_elsewhere, find_folder, folder_option, names_beginning, pick_session
from .elsewhere import hint_elsewhere

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

    from remuda.agents.prompting import PromptProtocol
    from remuda.inbox.receipts import Trace

F = TypeVar("F", bound=Callable[..., Any])

_FILE = "inbox.jsonl"
_FIRST = 200


@frozen
class InboxTarget:
    """An inbox. `words` name it on a command line. `session` and `alive` are None for a folder."""

    folder: Path
    words: str
    session: str | None = None
    alive: bool | None = None

    def inbox(self, max_bytes: int = DEFAULT_MAX_BYTES) -> Inbox:
        """Return the inbox. Raises `InvalidOptions` if using it would create more than one folder."""
        if self.session is None:
            check_parent(self.folder)
        return Inbox(self.folder, max_bytes=max_bytes)

    def existing(self) -> Inbox:
        """Return the inbox to inspect it. A session's inbox may be unused so far, but a folder must exist."""
        if self.folder.is_dir():
            return self.inbox()  # also a read-only one
        if self.session is not None:
            refuse_foreign(SessionPaths(self.folder.parent, self.session))
            private_folder(self.folder)
        else:
            raise FolderUnusable(
                f"no inbox at {self.folder}", hint=f"'remuda inbox put {self.words} TEXT' makes one"
            )
        return self.inbox()

    @property
    def files(self) -> Files:
        return Files(str(self.folder / _FILE))


def check_parent(path: Path) -> None:
    """Refuse a path in a folder that does not exist: it may be a typo, and would be created silently."""
    if not path.parent.is_dir():
        import shlex

        hint = f"mkdir -p {shlex.quote(str(path.parent))}"
        raise InvalidOptions(f"the folder {path.parent} does not exist", hint=hint)


def complete_inbox(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of sessions, also of dead ones, which still have an inbox."""
    from click.shell_completion import CompletionItem

    from remuda.keeper.listing import dead_records

    if ctx.params.get("path"):
        return []
    try:
        where = find_folder(ctx.params.get("folder"))
        living = set(live_names(where))
        names = living | {record.name for record in dead_records(where, living)}
    except (RemudaError, OSError):
        return []
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def complete_any(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete as `complete_inbox`, also sessions of other hosts."""
    from click.shell_completion import CompletionItem

    there = [] if ctx.params.get("path") or ctx.params.get("folder") else complete_elsewhere()
    found = [CompletionItem(name) for name in there if name.startswith(incomplete)]
    return [*complete_inbox(ctx, param, incomplete), *found]


def inbox_argument(function: F) -> F:
    return declare.argument("name", required=False, shell_complete=complete_inbox)(function)


def inbox_options(function: F) -> F:
    option = declare.option(
        "--inbox",
        "path",
        type=declare.ClickType("Path", path_type=Path),
        help=f"Use the inbox in this folder (or this {_FILE}), not that of a session.",
    )
    return option(folder_option(function))


def with_word(name: str | None, word: str | None, path: Path | None) -> tuple[str | None, str | None]:
    """Return the session and the word after it: with --inbox the first word is not a session."""
    if path is None:
        return name, word
    if word is not None:
        raise InvalidOptions("a session name does not go with --inbox", hint="use one of them")
    return None, name


def find_target(name: str | None, path: Path | None, folder: Path | None) -> InboxTarget:
    if name is not None and path is not None:
        raise InvalidOptions("a session name does not go with --inbox", hint="use one of them")
    if path is not None:
        return _of_path(path)
    if name is None:
        raise InvalidOptions("no inbox given", hint="name a session, or a folder with --inbox")
    host, name = split_host(name)
    if host is not None:
        raise InvalidOptions(
            f"the inbox of '{host}/{name}' is a folder on {host}",
            hint=f"run this command there; 'remuda messages {host}/{name}' lists its messages (--dead)",
        )
    where = find_folder(folder)
    return _of_session(SessionPaths.of(_picked(name, where), where))


def _picked(name: str, folder: Path) -> str:
    """Return the name of a session. One that left nothing but an inbox counts as known."""
    return name if is_name(name) and SessionPaths(folder, name).inbox.is_dir() else pick_session(name, folder)


def _of_path(path: Path) -> InboxTarget:
    import shlex

    words = f"--inbox {shlex.quote(str(path))}"
    path = path.expanduser().absolute()
    if path.name == _FILE and not path.is_dir():
        return InboxTarget(path.parent, words)
    if path.is_file() or (path.suffix == ".jsonl" and not path.exists()):
        raise InvalidOptions(
            f"{path} is not an inbox: its name is not {_FILE}", hint=f"give its folder, or the {_FILE} in it"
        )
    return InboxTarget(path, words)


def _of_session(paths: SessionPaths) -> InboxTarget:
    if (found := _known(paths)) is not None:
        return found
    near = did_you_mean(paths.name, known_names(paths.folder))
    hint = "'remuda ls --all' lists all; 'remuda inbox' takes any folder with --inbox"
    raise SessionNotFound(f"session '{paths.name}' not found", hint=f"{near} {hint}" if near else hint)


def _known(paths: SessionPaths) -> InboxTarget | None:
    alive = read_holder(paths) is not None
    if not alive and SessionRecord.load(paths.record) is None and not paths.inbox.is_dir():
        return None
    return InboxTarget(paths.inbox, paths.name, paths.name, alive)


def known_session(name: str, folder: Path | None) -> InboxTarget | None:
    """Return the session of that name, alive or not; None if there is none."""
    return _known(SessionPaths.of(name, find_folder(folder))) if is_name(name) else None


def inbox_folders(path: Path | None, folder: Path | None) -> list[Path]:
    """Return the folder of the named inbox, or those of all sessions."""
    if path is not None:
        return [find_target(None, path, folder).folder]
    return sorted(find_folder(folder).glob("*.inbox"))


def find_what(what: str, path: Path | None, folder: Path | None) -> InboxTarget | Trace:
    """Return the session of that name or the message of that id; the beginning of either is enough.

    Raises `MessageNotFound` if it is neither, and `InvalidOptions` for the beginning of several. With `path`
    it is a message.
    """
    from remuda.inbox.catalog import find_by_prefix

    session = None if path is not None else known_session(what, folder)
    if session is not None:
        return session
    where = find_folder(folder)
    begun = names_beginning(what, known_names(where)) if path is None else []
    try:
        message = find_by_prefix(what, inbox_folders(path, folder))
    except MessageNotFound:
        if path is not None:
            raise
        if begun:
            return find_target(what, None, folder)
        near, hint = did_you_mean(what, known_names(where)), "'remuda ls' and 'remuda messages' list all"
        near = (hint_elsewhere(what) if folder is None else "") or near
        raise MessageNotFound(
            f"no session and no message '{what}'", hint=f"{near} {hint}" if near else hint
        ) from None
    if begun and message.id != what:
        raise InvalidOptions(
            f"'{what}' is the beginning of a session name and of a message id",
            hint=f"type more of it: {begun[0]}, {message.id}",
        )
    return message


def session_of(folder: Path) -> SessionPaths | None:
    """Return the session that has this inbox; None for any other folder."""
    name = folder.name.removesuffix(".inbox")
    if name == folder.name or not is_name(name):
        return None
    paths = SessionPaths(folder.parent, name)
    return paths if paths.record.exists() or paths.pid.exists() else None


def first_line(text: str) -> str:
    first, *more = text.strip().splitlines() or [""]
    return f"{first[:_FIRST]} …" if more or len(first) > _FIRST else first


# ── what is checked before a message is put into an inbox ──


def check_agent(target: InboxTarget) -> PromptProtocol | None:
    """Return how the session's agent takes prompts, if known. Raises for an agent that takes none."""
    if target.session is None:
        return None
    return find_prompts(SessionPaths(target.folder.parent, target.session))


def check_sendable(target: InboxTarget, prompt: str, *, command: bool, literal: bool) -> None:
    """Raise for an agent that does not take prompts, or not this one."""
    if (prompts := check_agent(target)) is not None:
        prompts.check(prompt, command=command, literal=literal)
