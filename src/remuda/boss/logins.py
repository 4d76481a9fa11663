"""Browsers that may use the boss: login links, logins, and wrong tries.

A login link works once, for a minute, and is kept in memory only. It makes a login: 30 days for one browser,
by its cookie, which is name and secret together: a browser sends the cookie of loopback to other ports of
this machine too, so its secret must not work under the name of an address with https. Only digests of cookies
are stored, so reading them does not help to log in. They are a note in the database, which needs no new table
and is written in order with everything else.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from remuda.errors import NotInQueue, StoreFailed
from remuda.tasks import TaskSet
from remuda.untrusted import BadJson, dump_json, finite, one_line, parse_object

from .attention.redate import AHEAD, UNSEEN
from .service import BossService
from .wall_clock import since_boot

log = logging.getLogger("remuda.boss.logins")

LINK_LIFE = 60.0
LOGIN_LIFE = 30 * 86400.0
_NOTE = "logins"
_MOST_LINKS = 32
_MOST_LOGINS = 64
_USED_INTERVAL = 300.0
"""The time of last use is written this often: a page makes many requests."""
_EXPIRY_INTERVAL = 3600.0
_CLIENT_CHARACTERS = 200
TRIES = 10
TRIES_WINDOW = 60.0
_MOST_CLIENTS = 1024


@dataclass(frozen=True, slots=True)
class Login:
    id: str
    created_at: float
    expires_at: float
    used_at: float
    client: str
    """The name that the browser gives itself."""
    address: str


class WrongTries:
    """Counts the wrong tries of each client. Pure: `clock` cannot be set."""

    def __init__(self, clock: Callable[[], float] = since_boot) -> None:
        self._clock = clock
        self._wrong: dict[str, list[float]] = {}

    def is_limited(self, client: str) -> bool:
        since = self._clock() - TRIES_WINDOW
        return sum(at > since for at in self._wrong.get(client, ())) > TRIES

    def count(self, client: str) -> None:
        times = self._wrong.pop(client, [])
        self._wrong[client] = [*times, self._clock()][-TRIES - 1 :]
        if len(self._wrong) > _MOST_CLIENTS:
            del self._wrong[next(iter(self._wrong))]


def client_key(address: str) -> str:
    """Return what a client's tries are counted by: one may have all IPv6 addresses of a network."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address


class Logins:
    """Use from one event loop. `login_of` is called for every request with a cookie, and does no I/O."""

    def __init__(
        self, service: BossService, steady: Callable[[], float] = since_boot, retry_interval: float = 10.0
    ) -> None:
        self._service = service
        self._retry_interval = retry_interval
        self._steady = steady
        self._links: dict[str, tuple[float, bool]] = {}  # until when, and whether on this machine only
        self._tries = WrongTries(steady)
        self._logins: dict[str, Login] = {}  # by the digest of the cookie
        self._on_end: dict[str, set[Callable[[], None]]] = {}
        self._tasks = TaskSet()
        self._expiring: asyncio.TimerHandle | None = None
        self._retrying: asyncio.TimerHandle | None = None
        self._load()

    # ── login links ──

    def make_link(self, life: float = LINK_LIFE, *, local: bool = False) -> str:
        """Return the secret of a new link; a `local` one works only where the kernel names the user."""
        secret = secrets.token_urlsafe(24)
        self._links[_digest(secret)] = (self._steady() + life, local)
        while len(self._links) > _MOST_LINKS:
            del self._links[next(iter(self._links))]
        return secret

    def is_limited(self, address: str) -> bool:
        """Whether a client tried too many wrong links in the last minute, this one included.

        That refuses no right link: no one guesses 192 bits, and all clients of a proxy may share an address.
        """
        return self._tries.is_limited(client_key(address))

    async def log_in(
        self, secret: str, name: str, client: str, address: str, *, is_local: bool = True
    ) -> str:
        """Spend a link. Returns a cookie of that name, `NAME=SECRET`, when its digest is on disk.

        Raises `NotInQueue` for a link that is wrong, used or too old, or a local one if not `is_local`: that
        is not spent. Raises `StoreFailed`; a link whose login cannot be written is spent, and logs no one in.
        """
        until, local = self._links.get(_digest(secret), (0.0, False))
        if local and not is_local:
            self._tries.count(client_key(address))
            raise NotInQueue(
                "this login link is for the address on this machine only",
                hint="'remuda open --print' prints a link for here",
            )
        self._links.pop(_digest(secret), None)
        if until <= self._steady():
            self._tries.count(client_key(address))
            raise NotInQueue(
                "this login link was already used, or is older than a minute",
                hint="run 'remuda open' for a new one",
            )
        cookie, now = f"{name}={secrets.token_urlsafe(32)}", self._service.clock()
        browser = one_line(client)[:_CLIENT_CHARACTERS] or "unknown browser"
        login = Login(secrets.token_hex(4), now, now + LOGIN_LIFE, now, browser, one_line(address)[:64])
        self._logins[_digest(cookie)] = login
        while len(self._logins) > _MOST_LOGINS:
            self._drop(min(self._logins, key=lambda one: self._logins[one].used_at))
        try:
            await self._save()
        except StoreFailed:
            self._logins.pop(_digest(cookie), None)
            raise
        log.info("login %s from %s", login.id, login.address)
        return cookie

    # ── logins ──

    def login_of(self, cookie: str) -> str | None:
        """Return the id of the login that this cookie belongs to."""
        digest = _digest(cookie)
        login = self._logins.get(digest)
        if login is None:
            return None
        now = self._service.clock()
        if login.expires_at <= now:
            return None
        if now - login.used_at >= _USED_INTERVAL:
            self._logins[digest] = replace(login, used_at=now)
            self._save_later()
        return login.id

    def list(self) -> list[Login]:
        self._drop_expired()
        return sorted(self._logins.values(), key=lambda login: login.created_at)

    async def revoke(self, login_id: str) -> int:
        """End a login, or `all`. Returns how many were ended, when that is on disk.

        Raises `NotInQueue`, and `StoreFailed`: then it has ended, and is written when the disk takes it.
        """
        ended = [one for one, login in self._logins.items() if login_id in ("all", login.id)]
        if not ended and login_id != "all":
            raise NotInQueue(f"login '{login_id}' not found", hint="'remuda open --logins' lists all")
        if login_id == "all":
            self._links.clear()
        for one in ended:
            self._drop(one)
        await self._save()
        return len(ended)

    def on_end(self, login_id: str | None, close: Callable[[], None]) -> Callable[[], None]:
        """Call `close` when the login ends. Returns a function that cancels this. None: never."""
        if login_id is None:
            return lambda: None
        self._on_end.setdefault(login_id, set()).add(close)

        def cancel() -> None:
            self._on_end.get(login_id, set()).discard(close)

        if all(login.id != login_id for login in self._logins.values()):
            close()  # it ended in between
        return cancel

    def _drop(self, digest: str) -> None:
        login = self._logins.pop(digest)
        for close in tuple(self._on_end.pop(login.id, ())):
            close()

    def _drop_expired(self) -> None:
        now = self._service.clock()
        for digest in [one for one, login in self._logins.items() if login.expires_at <= now]:
            self._drop(digest)

    # ── on disk ──

    def _load(self) -> None:
        try:
            stored = parse_object(self._service.store.note(_NOTE) or "{}")
        except BadJson as error:
            log.warning("cannot read the logins: %s", error)
            stored = {}
        self._logins = {one: _read(what) for one, what in stored.items() if isinstance(what, dict)}
        ahead = max((login.created_at for login in self._logins.values()), default=0) - self._service.clock()
        if ahead > AHEAD:  # the clock was set back while no boss ran
            self._redate(-ahead - UNSEEN)
        self._service.on_clock_set.append(self._redate)
        self._expire()

    def _expire(self) -> None:
        self._drop_expired()
        self._expiring = asyncio.get_running_loop().call_later(_EXPIRY_INTERVAL, self._expire)

    def close(self) -> None:
        for timer in (self._expiring, self._retrying):
            if timer is not None:
                timer.cancel()

    def _redate(self, by: float) -> None:
        """Move all dates by that many seconds: a login is valid for as long as it was."""
        self._logins = {
            one: replace(
                login,
                created_at=login.created_at + by,
                expires_at=login.expires_at + by,
                used_at=login.used_at + by,
            )
            for one, login in self._logins.items()
        }
        self._save_later()

    async def _save(self) -> None:
        document = {one: asdict(login) for one, login in self._logins.items()}
        try:
            await self._service.store.save_note(_NOTE, dump_json(document))
        except StoreFailed:
            # A login that was ended must not come back with the next boss.
            if self._retrying is None:
                self._retrying = asyncio.get_running_loop().call_later(self._retry_interval, self._save_later)
            raise

    def _save_later(self) -> None:
        self._retrying = None

        async def save() -> None:
            try:
                await self._save()
            except StoreFailed as error:
                log.warning("cannot write the logins: %s", error)

        self._tasks.start(save())


def _read(what: dict[str, Any]) -> Login:
    """Dates that are missing or wrong make a login that has expired."""
    created, expires, used = (finite(what.get(name)) for name in ("created_at", "expires_at", "used_at"))
    login, client, address = (str(what.get(name, "")) for name in ("id", "client", "address"))
    return Login(login, created, expires, used, client, address)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
