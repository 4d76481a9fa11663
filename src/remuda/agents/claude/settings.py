"""A settings file of Claude Code, to be changed: read with care, written whole or not at all.

What we do not change keeps its value, its order and the file's indentation. A file that cannot be read as the
CLI reads it is refused and left as it is.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remuda.durable import read_regular, replace_file
from remuda.errors import InvalidOptions

from .files import config_folder

_BOM = "\ufeff"
_HINT = "fix it first; nothing was changed"


def user_file(env: Mapping[str, str]) -> Path:
    return config_folder(env) / "settings.json"


def project_file(cwd: Path) -> Path:
    return cwd / ".claude" / "settings.json"


def local_file(cwd: Path) -> Path:
    """The project's, for one user: what names paths of this machine does not belong into a committed file."""
    return cwd / ".claude" / "settings.local.json"


def settings_files(env: Mapping[str, str], cwd: Path) -> list[Path]:
    """All that apply in `cwd`; they need not exist."""
    return [user_file(env), project_file(cwd), local_file(cwd)]


class SettingsFile:
    """`document` is what it says; `save` puts it back if it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Written through a link: many keep their settings elsewhere. But a clone can bring one too.
        self.real = Path(os.path.realpath(path))
        self._text = self._read()
        self.document: dict[str, Any] = self._parse()

    def _read(self) -> str | None:
        try:
            return read_regular(self.real).decode()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidOptions(f"cannot read {self.path}: {error.strerror}", hint=_HINT) from error
        except UnicodeDecodeError as error:
            raise InvalidOptions(f"{self.path} is not UTF-8: {error.reason}", hint=_HINT) from error

    def _parse(self) -> dict[str, Any]:
        if self._text is None or not self._text.removeprefix(_BOM).strip():
            return {}
        try:
            document = json.loads(
                self._text.removeprefix(_BOM), object_pairs_hook=_once_each, parse_constant=_no_constant
            )
        except (ValueError, RecursionError) as error:
            raise InvalidOptions(f"{self.path} is not valid JSON: {error}", hint=_HINT) from error
        if not isinstance(document, dict):
            raise InvalidOptions(f"{self.path} is not a JSON object", hint=_HINT)
        return document

    def save(self) -> bool:
        """Whether there was something to change."""
        before, after = self.texts()
        if before == after:
            return False
        self.write(after)
        return True

    def write(self, text: str | None) -> None:
        """Replace all of it by `text`; None removes it. Raises `InvalidOptions` if somebody was quicker."""
        if self._read() != self._text:
            raise InvalidOptions(
                f"{self.path} was changed by another program at the same time", hint="try again"
            )
        if text is None:
            self.real.unlink(missing_ok=True)
        else:
            self.real.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.real, text.encode(), self._mode())
        self._text = text

    def texts(self) -> tuple[str | None, str | None]:
        """Return what it says now, and what it would say when saved; None for a file that is not there."""
        return self._text, self._text if self.document == self._parse() else self._rendered()

    def saved_document(self) -> dict[str, Any]:
        """Return what it says now, whatever `document` was changed to."""
        return self._parse()

    def _mode(self) -> int:
        try:
            return stat.S_IMODE(self.real.stat().st_mode)
        except FileNotFoundError:
            return 0o600

    def _rendered(self) -> str:
        before = self._text or "{\n  \n}\n"
        inner = re.match(r"\ufeff?\s*\{[ \t\r]*\n([ \t]+)", before)
        indent = inner.group(1) if inner else None if "\n" not in before.strip() else "  "
        try:
            text = json.dumps(self.document, indent=indent, ensure_ascii=False, allow_nan=False)
            text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, written as an escape
            text = json.dumps(self.document, indent=indent, allow_nan=False)
        except ValueError as error:
            raise InvalidOptions(
                f"{self.path} contains a number that is too large: {error}", hint=_HINT
            ) from error
        return (_BOM if before.startswith(_BOM) else "") + text + ("\n" if before.endswith("\n") else "")


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} appears twice")
        found[name] = value
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
