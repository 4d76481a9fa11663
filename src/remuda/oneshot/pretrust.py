"""`--pretrust-cwd`: write down, where Claude Code does so itself, that this folder is trusted."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from remuda import durable
from remuda.errors import FolderUnusable, InvalidOptions

_KEY = "hasTrustDialogAccepted"


def global_config(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("CLAUDE_CONFIG_DIR") or environ["HOME"], ".claude.json")


def pretrust(environ: Mapping[str, str], cwd: str, warn: Callable[[str], None]) -> bool:
    """Whether it was written; all else in the file stays as it is, and so does its mode.

    A file that is not JSON is left alone, with a warning: the CLI has its own way to mend it. Raises
    `InvalidOptions` where the folder's entry has no place to go.
    """
    path = Path(os.path.realpath(global_config(environ)))  # it may be a link, and stays one
    document = _read(path, warn)
    if document is None or not _trust(document, path, cwd):
        return False
    with _only_one_of_us(path):
        document = _read(path, warn)  # as another call may have left it meanwhile
        if document is None or not _trust(document, path, cwd):
            return False
        _write(path, document)
    return True


@contextlib.contextmanager
def _only_one_of_us(path: Path) -> Iterator[None]:
    """The lock stays there: one that is removed would be two."""
    try:
        fd = os.open(path.with_name(f"{path.name}.remuda-lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FolderUnusable(f"cannot write {path}: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _trust(document: dict[str, Any], path: Path, cwd: str) -> bool:
    """Whether that changes it."""
    projects = document.setdefault("projects", {})
    if not isinstance(projects, dict):
        raise InvalidOptions(f"'projects' in {path} is not an object", hint="mend the file by hand")
    entry = projects.setdefault(cwd, {})
    if not isinstance(entry, dict):
        raise InvalidOptions(f"the entry of {cwd} in {path} is not an object", hint="mend the file by hand")
    if entry.get(_KEY) is True:
        return False
    entry[_KEY] = True
    return True


def _read(path: Path, warn: Callable[[str], None]) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise FolderUnusable(f"cannot read {path}: {error.strerror}") from error
    except ValueError:
        warn(f"{path} is not JSON and is left as it is; the folder is not written down as trusted")
        return None
    if not isinstance(document, dict):
        warn(f"{path} holds no object and is left as it is; the folder is not written down as trusted")
        return None
    return document


def _write(path: Path, document: dict[str, Any]) -> None:
    try:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
        durable.replace_file(path, json.dumps(document, indent=2, ensure_ascii=False).encode(), mode)
    except OSError as error:
        raise FolderUnusable(f"cannot write {path}: {error.strerror}") from error
