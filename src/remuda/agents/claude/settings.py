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

from remuda.durable import replace_file
from remuda.errors import InvalidOptions

from .files import config_folder

_BOM = "\ufeff"
_HINT = "mend it first; nothing was changed"


def user_file(env: Mapping[str, str]) -> Path:
    return config_folder(env) / "settings.json"


def project_file(cwd: Path) -> Path:
    return cwd / ".claude" / "settings.json"


def settings_files(env: Mapping[str, str], cwd: Path) -> list[Path]:
    """All that apply in `cwd`; they need not exist."""
    return [user_file(env), project_file(cwd), cwd / ".claude" / "settings.local.json"]


class SettingsFile:
    """`document` is what it says; `save` puts it back if it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Written through a link: many keep their settings elsewhere.
        self._real = Path(os.path.realpath(path))
        self._text = self._read()
        self.document: dict[str, Any] = self._parse()

    def _read(self) -> str | None:
        try:
            return self._real.read_bytes().decode()
        except FileNotFoundError:
            return None
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
            raise InvalidOptions(f"{self.path} does not hold a JSON object", hint=_HINT)
        return document

    def save(self) -> bool:
        """Whether there was something to change."""
        if self.document == self._parse():
            return False
        text = self._rendered()
        if self._read() != self._text:
            raise InvalidOptions(f"{self.path} was changed by somebody else meanwhile", hint="try again")
        self._real.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._real, text.encode(), self._mode())
        self._text = text
        return True

    def texts(self) -> tuple[str, str]:
        """What it says now, and what it would say when saved."""
        before = self._text or ""
        return before, before if self.document == self._parse() else self._rendered()

    def _mode(self) -> int:
        try:
            return stat.S_IMODE(self._real.stat().st_mode)
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
                f"{self.path} holds a number that is too large: {error}", hint=_HINT
            ) from error
        return (_BOM if before.startswith(_BOM) else "") + text + ("\n" if before.endswith("\n") else "")


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} stands there twice")
        found[name] = value
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
