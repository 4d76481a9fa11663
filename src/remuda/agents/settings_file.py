"""Change a settings file of an agent: read it strictly, and replace it atomically.

What we do not change keeps its value, its order and the file's indentation. A file that cannot be read as the
agent reads it is refused and stays as it is.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.durable import read_regular, replace_file
from remuda.errors import InvalidOptions

from .setup import AddedInboxHook, RemovedInboxHooks

_BOM = "\ufeff"
_HINT = "fix it first; nothing was changed"


class SettingsText:
    """A settings file as text. A subclass has the text that `save` writes, and what of ours it may hold."""

    agent = "this agent"

    def __init__(self, path: Path) -> None:
        self.path = path
        # Written through a link: many users keep their settings elsewhere. But a clone can bring a link too.
        self.real = Path(os.path.realpath(path))
        self._text = self._read()

    def _read(self) -> str | None:
        try:
            return read_regular(self.real).decode()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidOptions(f"cannot read {self.path}: {error.strerror}", hint=_HINT) from error
        except UnicodeDecodeError as error:
            raise InvalidOptions(f"{self.path} is not UTF-8: {error.reason}", hint=_HINT) from error

    @property
    def had_hooks(self) -> bool:
        """Whether the saved file has something of ours."""
        raise NotImplementedError

    @property
    def has_hooks(self) -> bool:
        """Whether it has something of ours with the changes in memory."""
        raise NotImplementedError

    def texts(self) -> tuple[str | None, str | None]:
        """Return the text now and after `save`; None for a file that does not exist."""
        raise NotImplementedError

    def save(self) -> bool:
        """Write the file. Return whether there was something to change."""
        before, after = self.texts()
        if before == after:
            return False
        self.write(after)
        return True

    def write(self, text: str | None) -> None:
        """Replace the file; None removes it. Raises `InvalidOptions` if another program changed it first."""
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

    def _mode(self) -> int:
        try:
            return stat.S_IMODE(self.real.stat().st_mode)
        except FileNotFoundError:
            return 0o600

    # ── what of ours it may hold: nothing, unless a subclass says otherwise ──

    def add_inbox_hook(self, arguments: Sequence[str], *, timeout: float, keep_cap: bool) -> AddedInboxHook:
        raise InvalidOptions(
            f"{self.agent} has no inbox hook", hint="messages need a session of 'remuda start'"
        )

    def remove_inbox_hooks(self, inbox: str | None, *, restore_cap: bool) -> RemovedInboxHooks:
        return RemovedInboxHooks([], is_last=False, restored_cap="")

    def add_boss_hooks(self, boss_folder: Path) -> int:
        raise InvalidOptions(f"{self.path} has no place for the boss's hooks")

    def remove_boss_hooks(self) -> int:
        return 0

    @property
    def has_mcp_server(self) -> bool:
        return False

    def add_mcp_server(self) -> None:
        raise InvalidOptions(f"{self.path} has no place for MCP servers")

    def remove_mcp_server(self) -> bool:
        return False


class SettingsFile(SettingsText):
    """A JSON file. Change `document`, then `save` it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.document: dict[str, Any] = self._parse()

    def _parse(self) -> dict[str, Any]:
        if self._text is None or not self._text.removeprefix(_BOM).strip():
            return {}
        try:
            document = json.loads(
                self._text.removeprefix(_BOM),
                object_pairs_hook=_without_repeats,
                parse_constant=_refuse_constant,
            )
        except (ValueError, RecursionError) as error:
            raise InvalidOptions(f"{self.path} is not valid JSON: {error}", hint=_HINT) from error
        if not isinstance(document, dict):
            raise InvalidOptions(f"{self.path} is not a JSON object", hint=_HINT)
        return document

    def texts(self) -> tuple[str | None, str | None]:
        """Return the text now and after `save`; None for a file that does not exist."""
        return self._text, self._text if self.document == self._parse() else self._rendered()

    def saved_document(self) -> dict[str, Any]:
        """Return the document without the changes in memory."""
        return self._parse()

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


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"{name!r} appears twice")
        values[name] = value
    return values


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


# ── the hooks in a document ──


def listed_hooks(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every hook with its event. Parts of another shape are skipped."""
    events = document.get("hooks")
    for event, groups in events.items() if isinstance(events, dict) else ():
        for group in groups if isinstance(groups, list) else ():
            hooks = group.get("hooks") if isinstance(group, dict) else None
            for hook in hooks if isinstance(hooks, list) else ():
                yield event, hook


def command_hooks(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every hook that runs a command, with its event."""
    for event, hook in listed_hooks(document):
        if isinstance(hook, dict) and isinstance(hook.get("command"), str):
            yield event, hook


def put_hooks(
    document: dict[str, Any], hooks: Mapping[str, Mapping[str, Any]], is_ours: Callable[[str, Any], bool]
) -> None:
    """Add a hook for each event in place of older ones of ours.

    Raises `InvalidOptions` if the document has no place for them.
    """
    events = document.get("hooks", {})
    if not isinstance(events, dict):
        raise InvalidOptions("'hooks' must be an object", hint="fix it first")
    for event in hooks:
        if not isinstance(events.get(event, []), list):
            raise InvalidOptions(f"'hooks.{event}' must be a list", hint="fix it first")
    ours = [(event, hook) for event, hook in listed_hooks(document) if is_ours(event, hook)]
    if len(ours) == len(hooks) and all(hooks.get(event) == hook for event, hook in ours):
        return
    remove_hooks(document, is_ours)
    events = document.setdefault("hooks", {})
    for event, hook in hooks.items():
        events.setdefault(event, []).append({"hooks": [dict(hook)]})


def remove_hooks(document: dict[str, Any], is_ours: Callable[[str, Any], bool]) -> None:
    """Remove the hooks that are ours, and groups, events and `hooks` that are empty for that reason."""
    events = document.get("hooks")
    if not isinstance(events, dict):
        return
    for event, groups in list(events.items()):
        if not isinstance(groups, list):
            continue
        left = [kept for group in groups if (kept := _without_ours(event, group, is_ours)) is not None]
        if left == groups:
            continue
        if left:
            events[event] = left
            continue
        del events[event]
        if not events:
            del document["hooks"]


def _without_ours(event: str, group: Any, is_ours: Callable[[str, Any], bool]) -> Any:
    """None for a group that had no other hook."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(hooks, list):
        return group
    left = [hook for hook in hooks if not is_ours(event, hook)]
    if len(left) == len(hooks):
        return group
    return {**group, "hooks": left} if left else None
