"""When, where and with which text to notify about a waiting item. Pure, except for reading the file.

An item is due when it has waited longer than the threshold, and its session was quiet for the cooldown. In
quiet hours nothing is due; what still waits at their end is due then.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from remuda.errors import InvalidOptions
from remuda.paths import config_home
from remuda.untrusted import dump_json

from ..attention.display import label
from ..attention.model import Item, Reason, Session
from ..folder import BossFolder, read_own

THRESHOLD = 30.0
COOLDOWN = 300.0
LINK_LIFE = 3600.0
_SHORT = 300
_FIELD = re.compile(r"{([a-z_]+)}")
FIELDS = ("title", "message", "reason", "session", "cwd", "tool", "id", "link")
"""Names that a template may have in braces."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """A desktop, or an address to post to."""

    desktop: bool = False
    url: str = ""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    json: Any = None
    reasons: frozenset[Reason] = frozenset(Reason)


@dataclass(frozen=True, slots=True)
class NotifySettings:
    threshold: float = THRESHOLD
    cooldown: float = COOLDOWN
    quiet: tuple[tuple[int, int], ...] = ()
    """Begin and end in minutes of the day; over midnight if the begin is later."""
    link_base: str = ""
    """Beginning of answer links; empty for the address of the boss."""
    receivers: tuple[Receiver, ...] = ()


# ── when ──


@dataclass(slots=True)
class Schedule:
    """Which items and sessions were notified about, and when."""

    notified: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)

    def due(self, items: Sequence[Item], settings: NotifySettings, now: float) -> list[Item]:
        """Return the items to notify about now, and count them as notified.

        An item that no receiver wants delays no other.
        """
        waiting = {item.id for item in items}
        self.notified = {item_id: at for item_id, at in self.notified.items() if item_id in waiting}
        last = {one: min(at, now) for one, at in self.last.items()}  # the clock may have been set back
        self.last = {one: at for one, at in last.items() if now - at < settings.cooldown}
        if is_quiet(settings, now):
            return []
        wanted = frozenset[Reason]().union(*(receiver.reasons for receiver in settings.receivers))
        due = []
        for item in items:
            if item.reason not in wanted:
                continue
            fresh = item.id not in self.notified and item.session_id not in self.last
            if fresh and now - item.since >= settings.threshold:
                self.notified[item.id] = self.last[item.session_id] = now
                due.append(item)
        return due

    def put_back(self, item: Item) -> None:
        """The notice failed: the item is due again."""
        self.notified.pop(item.id, None)
        self.last.pop(item.session_id, None)


def is_quiet(settings: NotifySettings, now: float) -> bool:
    """By the local time of the machine of the boss."""
    local = datetime.fromtimestamp(now)
    minute = local.hour * 60 + local.minute
    return any(
        begin <= minute < end if begin <= end else minute >= begin or minute < end
        for begin, end in settings.quiet
    )


# ── what ──


def words(item: Item, session: Session | None, link: str = "") -> dict[str, str]:
    """Return the fields of a notice."""
    session = session or Session(item.session_id)
    name = label(session.name, session.repo or session.cwd, session.id)
    message = item.message if len(item.message) <= _SHORT else item.message[: _SHORT - 1] + "…"
    return {
        "title": f"{name}: {item.reason}",
        "message": message or str(item.detail.get("waiting_for") or item.reason),
        "reason": str(item.reason),
        "session": name,
        "cwd": session.cwd or "",
        "tool": str(item.detail.get("tool", "")),
        "id": str(item.detail.get("ask") or item.id),
        "link": link,
    }


def fill(template: str, fields: Mapping[str, str]) -> str:
    """Fill in the known names in braces. Braces in the values are left alone."""
    return _FIELD.sub(lambda found: fields.get(found[1], found[0]), template)


def fill_all(template: Any, fields: Mapping[str, str]) -> Any:
    """Do the same in every string of a JSON document."""
    if isinstance(template, str):
        return fill(template, fields)
    if isinstance(template, list):
        return [fill_all(one, fields) for one in template]
    if isinstance(template, Mapping):
        return {key: fill_all(value, fields) for key, value in template.items()}
    return template


# ── the file ──

_KEYS = ("threshold", "cooldown", "quiet", "link_base", "to")
_TO_KEYS = ("desktop", "url", "method", "headers", "body", "json", "reasons")
_HOURS = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)")


def notify_file(folder: BossFolder, environ: Mapping[str, str]) -> Path:
    own, other = folder.path / "notify.toml", config_home(environ) / "remuda" / "notify.toml"
    return other if other.exists() and not own.exists() else own


def load_settings(path: Path) -> NotifySettings:
    """Read the settings; without a file no one is notified.

    Raises `InvalidOptions` that names the file.
    """
    try:
        return read_settings(tomllib.loads(read_own(path).decode()))
    except FileNotFoundError:
        return NotifySettings()
    except OSError as error:
        raise InvalidOptions(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not TOML, or nested too deeply
        raise InvalidOptions(f"{path}: {error}") from error
    except InvalidOptions as error:
        if str(path) in error.message:
            raise
        raise InvalidOptions(f"{path}: {error.message}", hint=error.hint) from None


def read_settings(document: Mapping[str, Any]) -> NotifySettings:
    """Raises `InvalidOptions` that says what is wrong."""
    _no_others(document, _KEYS, "")
    receivers = document.get("to", [])
    if not isinstance(receivers, list) or not all(isinstance(one, dict) for one in receivers):
        raise InvalidOptions("receivers must be [[to]] tables")
    base = document.get("link_base", "")
    if not isinstance(base, str) or (base and not base.startswith(("http://", "https://"))):
        raise InvalidOptions("link_base must begin with http:// or https://")
    return NotifySettings(
        _seconds(document, "threshold", THRESHOLD),
        _seconds(document, "cooldown", COOLDOWN),
        tuple(_hours(one) for one in _list(document.get("quiet", []), "quiet")),
        base.rstrip("/"),
        tuple(_receiver(number, one) for number, one in enumerate(receivers, 1)),
    )


def _receiver(number: int, table: Mapping[str, Any]) -> Receiver:
    where = f"[[to]] number {number}: "
    _no_others(table, _TO_KEYS, where)
    desktop, url = table.get("desktop", False), table.get("url", "")
    if not isinstance(desktop, bool) or bool(url) == desktop:
        raise InvalidOptions(f"{where}needs either desktop = true or a url")
    if url and not (isinstance(url, str) and url.startswith(("http://", "https://"))):
        raise InvalidOptions(f"{where}the url must begin with http:// or https://")
    _check_address(url, where)
    if table.get("method", "POST") not in ("POST", "PUT"):
        raise InvalidOptions(f"{where}method must be POST or PUT")
    headers, body = table.get("headers", {}), table.get("body")
    texts = [*headers.items()] if isinstance(headers, dict) else [(headers, None)]
    if not all(isinstance(one, str) for pair in texts for one in pair):
        raise InvalidOptions(f"{where}headers must be a table of strings")
    if body is not None and (not isinstance(body, str) or "json" in table):
        raise InvalidOptions(f"{where}needs either body (a string) or json, not both")
    try:
        dump_json(table.get("json"))
    except (ValueError, TypeError):
        raise InvalidOptions(f"{where}json holds a date, inf or nan, which JSON does not have") from None
    try:
        reasons = frozenset(Reason(one) for one in _list(table.get("reasons", list(Reason)), "reasons"))
    except ValueError as error:
        raise InvalidOptions(f"{where}{error}", hint=f"reasons: {', '.join(Reason)}") from None
    return Receiver(desktop, url, table.get("method", "POST"), headers, body, table.get("json"), reasons)


def _check_address(url: str, where: str) -> None:
    """Errors do not repeat the address: they are logged, and it is often a password."""
    if not url.isprintable() or not url.isascii() or " " in url:
        raise InvalidOptions(f"{where}the url has a space or a character that is not ASCII")
    if "@" in url.partition("//")[2].partition("/")[0]:
        raise InvalidOptions(f"{where}the url holds a user or a password", hint="put them into headers")
    try:
        known = urlsplit(url).hostname is not None and urlsplit(url).port != 0
    except ValueError:
        known = False
    if url and not known:
        raise InvalidOptions(f"{where}the url has no host, or an invalid port")


def _no_others(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise InvalidOptions(f"{where}unknown key {key!r}", hint=f"known keys: {', '.join(known)}")


def _seconds(document: Mapping[str, Any], key: str, default: float) -> float:
    value = document.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise InvalidOptions(f"{key} must be a number of seconds, not {value!r}")
    return float(value)


def _list(value: object, key: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InvalidOptions(f"{key} must be a list of strings")
    return value


def _hours(text: str) -> tuple[int, int]:
    matched = _HOURS.fullmatch(text)
    numbers = [int(one) for one in matched.groups()] if matched else []
    if not numbers or max(numbers[::2]) > 24 or max(numbers[1::2]) > 59:
        raise InvalidOptions(f"quiet hours must look like 22:00-07:00, not {text!r}")
    return numbers[0] * 60 + numbers[1], numbers[2] * 60 + numbers[3]
