"""The folders that Claude Code trusts, in its `.claude.json`: trusting one for good, or for one start only.

The CLI writes the file too. It takes `.claude.json.lock`, a folder that is stale after ten seconds, reads the
file, changes it and renames the new one over it (2.1.325). So do we.

`print` and pools answer the trust dialog, and the CLI saves that answer. That trust is lent: it is noted in
`.claude.json.remuda-trust` before the dialog is answered, and withdrawn when the agent has started. Trust
that a killed keeper left is withdrawn when any keeper starts.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from remuda import durable
from remuda.errors import FolderUnusable, InvalidOptions
from remuda.proctree import is_alive, start_ticks
from remuda.untrusted import dump_json, parse_json

Document = dict[str, Any]
Warn = Callable[[str], None]

_KEY = "hasTrustDialogAccepted"
_STALE = 10.0
_LOCK_TIMEOUT = 15.0
_LOOK_INTERVAL = 0.01
_MOST_NOTES = 1 << 20
_CANNOT_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS)


def global_config(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("CLAUDE_CONFIG_DIR") or environ["HOME"], ".claude.json")


def pretrust(environ: Mapping[str, str], cwd: str, warn: Warn) -> bool:
    """Trust `cwd` for good. Return whether that changed anything; all else in the file stays as it is.

    A file that is not JSON is left alone, with a warning: the CLI repairs it itself. Raises `InvalidOptions`
    if the folder's entry has no place to go.
    """
    path = global_config(environ)
    document = _read(path, warn)
    if document is None or not (_trust(document, path, cwd) or _notes(path).exists()):
        return False
    with locked(path):
        document = _read(path, warn)  # others may have changed it
        if document is None:
            return False
        changed = _trust(document, path, cwd)
        if changed:
            _write(path, document)
        loans = _loans(path)
        lent = [loan for loan in loans if loan["keys"].pop(cwd, loan) is not loan]
        if lent:  # it is no longer lent
            _save_loans(path, loans)
    return changed or bool(lent)


class ClaudeTrust:
    """The trust of one session's folder, as the CLI saves it."""

    def __init__(self, environ: Mapping[str, str], cwd: str) -> None:
        self._path = global_config(environ)
        self._cwd = cwd

    def has_loans(self) -> bool:
        return _notes(self._path).exists()

    def lend(self, session: str) -> None:
        """Note that the trust that the CLI will save is for this session only. Raises `FolderUnusable`.

        Does nothing if the folder is read-only: the CLI cannot save there either.
        """
        try:
            with locked(self._path):
                others = [loan for loan in _loans(self._path) if loan["session"] != session]
                keys = self._untrusted(others)
                pid = os.getpid()
                loan = {"session": session, "pid": pid, "started": start_ticks(pid), "keys": keys}
                _save_loans(self._path, [*others, loan])
        except FolderUnusable as error:
            if getattr(error.__cause__, "errno", None) not in _CANNOT_WRITE:
                raise

    def _untrusted(self, loans: list[Document]) -> Document:
        """Return what to note: each folder where the CLI may save trust, with its value before."""
        projects = (_read(self._path, _ignore) or {}).get("projects")
        found: Document = {}
        for folder in _folders(self._cwd):
            entry = projects.get(folder) if isinstance(projects, dict) else None
            before = entry.get(_KEY) if isinstance(entry, dict) else None
            if before is True:  # by a human, and kept; or by another call, which withdraws it
                lent = [loan["keys"] for loan in loans if folder in loan["keys"]]
                if not lent:
                    continue
                before = lent[-1][folder]
            found[folder] = before if isinstance(before, bool) else None
        return found

    def take_back(self, session: str | None = None, *, accepted: bool = False) -> None:
        """Withdraw the trust of `session`, and of sessions whose keeper is dead. Raises `FolderUnusable`.

        `accepted`: a human answered the dialog of that session, so its trust stays.
        """
        if not self.has_loans():
            return
        with locked(self._path):
            loans = _loans(self._path)
            over = [loan for loan in loans if loan["session"] == session or not _lives(loan)]
            if loans and not over:
                return
            document = _read(self._path, _ignore)
            returned = [loan for loan in over if not (accepted and loan["session"] == session)]
            if document is not None and _restore(document, returned):
                _write(self._path, document)
            _save_loans(self._path, [loan for loan in loans if loan not in over])


def _ignore(_: str) -> None:
    pass


# ── folders ──


def _folders(cwd: str) -> list[str]:
    """Return where the CLI may save its trust of `cwd`: there, or at the root of its repository (2.1.325).

    For a worktree that is the repository which it belongs to. Returns all folders above `cwd`: only the CLI
    knows which of them is the root.
    """
    real = Path(os.path.realpath(cwd))
    folders = [real, *real.parents]
    for folder in (real, *real.parents):
        if (main := _main_repository(folder)) is not None:
            folders.append(main)
            break
    return list(dict.fromkeys([cwd, *map(str, folders)]))


def _main_repository(folder: Path) -> Path | None:
    """Return the repository of a worktree, whose `.git` is a file that names a folder inside it."""
    try:
        text = durable.read_regular(folder / ".git", 1 << 16).decode("utf-8", "surrogateescape")
        git = folder / text.removeprefix("gitdir:").strip()
        common = durable.read_regular(git / "commondir", 1 << 16).decode("utf-8", "surrogateescape").strip()
        return Path(os.path.realpath(git / common)).parent
    except (OSError, ValueError):
        return None


# ── the CLI's file ──


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the CLI's own lock on its file. Raises `FolderUnusable`."""
    lock = path.with_name(f"{path.name}.lock")
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            os.mkdir(lock, 0o700)
            break
        except FileExistsError:
            _remove_stale(lock)
        except OSError as error:
            raise FolderUnusable(f"cannot write {path}: {error.strerror}") from error
        if time.monotonic() > deadline:
            raise FolderUnusable(f"cannot write {path}: {lock} is held by another program")
        time.sleep(_LOOK_INTERVAL)
    made = os.lstat(lock).st_ino
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if os.lstat(lock).st_ino == made:  # else it was stale for another: we took too long
                os.rmdir(lock)


def _remove_stale(lock: Path) -> None:
    with contextlib.suppress(OSError):
        if time.time() - os.lstat(lock).st_mtime > _STALE:
            os.rmdir(lock)


def _trust(document: Document, path: Path, cwd: str) -> bool:
    """Whether that changes it."""
    projects = document.setdefault("projects", {})
    if not isinstance(projects, dict):
        raise InvalidOptions(f"'projects' in {path} is not an object", hint="edit the file by hand")
    entry = projects.setdefault(cwd, {})
    if not isinstance(entry, dict):
        raise InvalidOptions(f"the entry of {cwd} in {path} is not an object", hint="edit the file by hand")
    if entry.get(_KEY) is True:
        return False
    entry[_KEY] = True
    return True


def _restore(document: Document, loans: list[Document]) -> bool:
    """Whether that changes it."""
    projects = document.get("projects")
    changed = False
    for folder, before in ((key, value) for loan in loans for key, value in loan["keys"].items()):
        entry = projects.get(folder) if isinstance(projects, dict) else None
        if not isinstance(entry, dict) or entry.get(_KEY) is not True:
            continue
        changed = True
        if before is None:
            del entry[_KEY]
        else:
            entry[_KEY] = before
    return changed


def _read(path: Path, warn: Warn) -> Document | None:
    try:
        document = parse_json(durable.read_regular(path).removeprefix(codecs.BOM_UTF8), keep_surrogates=True)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise FolderUnusable(f"cannot read {path}: {error.strerror}") from error
    except ValueError:
        warn(f"{path} is not JSON and was left unchanged; the folder was not saved as trusted")
        return None
    if not isinstance(document, dict):
        warn(f"{path} is not a JSON object and was left unchanged; the folder was not saved as trusted")
        return None
    return document


def _write(path: Path, document: Document) -> None:
    real = Path(os.path.realpath(path))  # it may be a link, and stays one
    try:
        mode = stat.S_IMODE(real.stat().st_mode) if real.exists() else 0o600
        text = dump_json(document, indent=2, ascii_only=False)
        durable.replace_file(real, text.encode("utf-8", "backslashreplace"), mode)
    except OSError as error:
        raise FolderUnusable(f"cannot write {path}: {error.strerror}") from error


# ── loans ──


def _notes(path: Path) -> Path:
    return path.with_name(f"{path.name}.remuda-trust")


def _loans(path: Path) -> list[Document]:
    """Return the notes that are well-formed; none if the file cannot be read."""
    try:
        found = parse_json(durable.read_regular(_notes(path), _MOST_NOTES), keep_surrogates=True)
    except (OSError, ValueError):
        return []
    return [loan for loan in found if _is_loan(loan)] if isinstance(found, list) else []


def _is_loan(loan: object) -> bool:
    if not isinstance(loan, dict) or not isinstance(loan.get("keys"), dict):
        return False
    values = all(value is None or isinstance(value, bool) for value in loan["keys"].values())
    return values and isinstance(loan.get("session"), str) and isinstance(loan.get("pid"), int)


def _save_loans(path: Path, loans: list[Document]) -> None:
    notes = _notes(path)
    kept = [loan for loan in loans if loan["keys"]]
    try:
        if kept:
            durable.replace_file(notes, dump_json(kept).encode())
        else:
            notes.unlink(missing_ok=True)
            durable.sync_folder(notes.parent)
    except OSError as error:
        raise FolderUnusable(f"cannot write {notes}: {error.strerror}") from error


def _lives(loan: Document) -> bool:
    """Return whether the keeper that noted it still runs. A zombie does not."""
    return is_alive(loan["pid"]) and start_ticks(loan["pid"]) == loan.get("started")
