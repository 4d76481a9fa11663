"""Who is notified, and how: the file notify.toml, else Trail Boss's variables. Reads only that file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from remuda.errors import InvalidOptions
from remuda.names import known_words
from remuda.paths import config_home
from remuda.untrusted import dump_json

from ..attention.model import Reason
from ..folder import BossFolder, read_own

THRESHOLD = 30.0
COOLDOWN = 300.0


@dataclass(frozen=True, slots=True)
class Subscription:
    """A browser that wants to be notified, as it describes itself: see RFC 8030 and 8291."""

    id: str
    """Of its login."""
    endpoint: str
    p256dh: str
    auth: str
    created_at: float
    client: str = ""
    """The name that the browser gives itself."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """A desktop, an address to post to, a topic of ntfy, or a browser."""

    desktop: bool = False
    url: str = ""
    """Where to post; for ntfy the address of the topic."""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    json: Any = None
    reasons: frozenset[Reason] = frozenset(Reason)
    is_ntfy: bool = False
    buttons: bool = True
    """Whether an ntfy notice has links that decide."""
    details: bool = True
    """Whether a notice says who asks, and what. Not for templates."""
    push: Subscription | None = None


@dataclass(frozen=True, slots=True)
class PushSettings:
    """What browsers get that subscribed on the page."""

    reasons: frozenset[Reason] = frozenset(Reason)
    details: bool = False
    hosts: frozenset[str] = frozenset()
    """Push services that may have a private address: a host, or a host and a port."""
    contact: str = ""
    """The contact for push services that have questions about our requests: a mailto: or https: address."""


@dataclass(frozen=True, slots=True)
class NotifySettings:
    threshold: float = THRESHOLD
    cooldown: float = COOLDOWN
    quiet: tuple[tuple[int, int], ...] = ()
    """Begin and end in minutes of the day; over midnight if the begin is later."""
    link_base: str = ""
    """Beginning of answer links; empty for the address of the boss."""
    receivers: tuple[Receiver, ...] = ()
    push: PushSettings = PushSettings()
    least: int = 1
    """How many items must wait before anyone is notified."""


_KEYS = ("threshold", "cooldown", "quiet", "link_base", "to", "push")
_NTFY_KEYS = ("ntfy", "buttons", "details", "headers", "reasons")
_URL_KEYS = ("desktop", "url", "method", "headers", "body", "json", "reasons")
_TO_KEYS = (*_URL_KEYS, *_NTFY_KEYS[:3])
_PUSH_KEYS = ("reasons", "details", "hosts", "contact")
_HOURS = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)")
_TOPIC = re.compile(r"/[-_A-Za-z0-9]{1,64}")
TELEGRAM = ("TELEGRAM_PROXY_URL", "TELEGRAM_CHAT_ID", "TELEGRAM_THREAD_ID")
AMOUNTS = ("NOTIFY_THRESHOLD", "NOTIFY_COOLDOWN_MS", "NOTIFY_CHECK_INTERVAL_MS")
_CONTACT = re.compile(r"mailto:[!-~]+@[!-~]+\.[!-~]+|https://[!-~]+")


def notify_file(folder: BossFolder, environ: Mapping[str, str]) -> Path:
    own, other = folder.path / "notify.toml", config_home(environ) / "remuda" / "notify.toml"
    return own if own.exists() else other


def find_settings(folder: BossFolder, environ: Mapping[str, str]) -> NotifySettings:
    """Read the file, else the variables of Trail Boss. Raises `InvalidOptions` that names the file."""
    return load_settings(notify_file(folder, environ)) or trail_boss_settings(environ)


def load_settings(path: Path) -> NotifySettings | None:
    """Read the settings; None without a file.

    Raises `InvalidOptions` that names the file.
    """
    try:
        return read_settings(tomllib.loads(read_own(path).decode()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidOptions(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not TOML, or nested too deeply
        raise InvalidOptions(f"{path}: {error}") from error
    except InvalidOptions as error:
        if str(path) in error.message:
            raise
        raise InvalidOptions(f"{path}: {error.message}", hint=error.hint) from None


def trail_boss_settings(environ: Mapping[str, str]) -> NotifySettings:
    """Return the chat that Trail Boss would notify; without one, no one is notified.

    Never raises: other programs use these names too. Trail Boss's default for the address is not used,
    because anything may listen on that port. What an agent says is not sent, nor a link that decides.
    """
    proxy, chat, thread = (environ.get(name, "") for name in TELEGRAM)
    url = f"{proxy.rstrip('/')}/send"
    if not chat or not proxy.startswith(("http://", "https://")):
        return NotifySettings()
    try:
        _check_address(url, "")
    except InvalidOptions:
        return NotifySettings()
    body = {"chat_id": chat, "text": "{title}\n{page}"} | ({"thread_id": thread} if thread else {})
    least, cooldown, interval = (
        _whole(environ.get(name), default)
        for name, default in zip(AMOUNTS, (1, 3_600_000, 30_000), strict=True)
    )
    return NotifySettings(
        interval / 1000, cooldown / 1000, receivers=(Receiver(url=url, json=body),), least=least
    )


def _whole(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() and text.isascii() and len(text) < 12 else default


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
        _push(document.get("push", {})),
    )


def _push(table: object) -> PushSettings:
    where = "[push]: "
    if not isinstance(table, dict):
        raise InvalidOptions("push must be a [push] table")
    _no_others(table, _PUSH_KEYS, where)
    contact = table.get("contact", "")
    if contact and not (isinstance(contact, str) and _CONTACT.fullmatch(contact)):
        raise InvalidOptions(
            f"{where}contact must be an address", hint='for example "mailto:you@example.net"'
        )
    hosts = _list(table.get("hosts", []), f"{where}hosts")
    return PushSettings(
        _reasons(table, where), _flag(table, "details", where, False), frozenset(hosts), contact
    )


def _ntfy(table: Mapping[str, Any], where: str) -> Receiver:
    _no_others(table, _NTFY_KEYS, where)
    url = table["ntfy"]
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise InvalidOptions(f"{where}ntfy must begin with http:// or https://")
    _check_address(url, where)
    parts = urlsplit(url)
    if parts.query or parts.fragment or not _TOPIC.fullmatch(parts.path):
        raise InvalidOptions(
            f"{where}ntfy must be the address of a topic", hint='for example "https://ntfy.sh/my-topic"'
        )
    return Receiver(
        url=url,
        headers=_headers(table, where),
        reasons=_reasons(table, where),
        is_ntfy=True,
        buttons=_flag(table, "buttons", where, True),
        details=_flag(table, "details", where, True),
    )


def _receiver(number: int, table: Mapping[str, Any]) -> Receiver:
    where = f"[[to]] number {number}: "
    if "ntfy" in table:
        return _ntfy(table, where)
    _no_others(table, _URL_KEYS, where)
    desktop, url = table.get("desktop", False), table.get("url", "")
    if not isinstance(desktop, bool) or bool(url) == desktop:
        raise InvalidOptions(f"{where}needs one of desktop = true, ntfy and url")
    if url and not (isinstance(url, str) and url.startswith(("http://", "https://"))):
        raise InvalidOptions(f"{where}the url must begin with http:// or https://")
    _check_address(url, where)
    if table.get("method", "POST") not in ("POST", "PUT"):
        raise InvalidOptions(f"{where}method must be POST or PUT")
    headers, body = _headers(table, where), table.get("body")
    if body is not None and (not isinstance(body, str) or "json" in table):
        raise InvalidOptions(f"{where}needs either body (a string) or json, not both")
    try:
        dump_json(table.get("json"))
    except (ValueError, TypeError):
        raise InvalidOptions(f"{where}json holds a date, inf or nan, which JSON does not have") from None
    reasons = _reasons(table, where)
    return Receiver(desktop, url, table.get("method", "POST"), headers, body, table.get("json"), reasons)


def _headers(table: Mapping[str, Any], where: str) -> dict[str, str]:
    headers = table.get("headers", {})
    texts = [*headers.items()] if isinstance(headers, dict) else [(headers, None)]
    if not all(isinstance(one, str) for pair in texts for one in pair):
        raise InvalidOptions(f"{where}headers must be a table of strings")
    return dict(headers)


def _reasons(table: Mapping[str, Any], where: str) -> frozenset[Reason]:
    listed = _list(table.get("reasons", list(Reason)), "reasons")
    for one in listed:
        if one not in list(Reason):
            raise InvalidOptions(f"{where}unknown reason {one!r}", hint=known_words(str(one), Reason))
    return frozenset(map(Reason, listed))


def _flag(table: Mapping[str, Any], key: str, where: str, default: bool) -> bool:
    value = table.get(key, default)
    if not isinstance(value, bool):
        raise InvalidOptions(f"{where}{key} must be true or false")
    return value


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
            raise InvalidOptions(f"{where}unknown key {key!r}", hint=known_words(key, known))


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
