"""Start the boss, serve, shut down. It may be killed at any moment: every event it took is on disk."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remuda.admission.credentials import load_token
from remuda.errors import InvalidOptions, RemudaError
from remuda.keeper.logfile import open_log
from remuda.paths import SocketAddress, private_folder, sessions_folder

from .access import Access
from .answers.approvals import Approvals
from .answers.policy_answers import PolicyAnswers
from .answers.reply_delivery import Replies
from .folder import BossFolder
from .http.login_routes import PAGE_ROUTES
from .http.openapi import ROUTES
from .http.server import HttpServer, load_tls
from .http.trail_boss import TokenFile
from .http.web import Application
from .lock import BossHolder, BossLock
from .logins import Logins
from .notices.links import Links
from .notices.notifier import Notifier
from .notices.push import PushSubscriptions
from .ports import SOURCES, BossParts, EventSource, SourceStatus, load_fleet, make_sources
from .records.store import Store
from .service import BossService
from .wall_clock import boot_id, since_boot

log = logging.getLogger("remuda.boss")

START_TIMEOUT = 10.0
"""A source that takes longer goes on starting while the boss serves."""
CLOSE_TIMEOUT = 5.0
THREADS_TIMEOUT = 2.0
"""A thread that has not ended by then is abandoned: a disk or a host does not answer."""
_BACKLOG = 512


@dataclass(frozen=True, slots=True)
class BossSettings:
    folder: BossFolder
    port: int
    log_level: str = "info"
    log_max_bytes: int = 1 << 20
    sources: tuple[str, ...] = SOURCES
    any_port: bool = False
    """Whether another port is taken when `port` is in use: any user of the machine can listen on it."""
    access: Access = field(default_factory=Access)
    """Where it can be reached besides loopback."""


def run(settings: BossSettings, ready: Callable[[BossParts], None]) -> None:
    """Be the boss until a signal ends it. Raises `BossExists`, and errors that prevent the start.

    Exits the process with 0 if one of its threads hangs: Python would wait for it without end.
    """
    private_folder(settings.folder.path)
    before = set(threading.enumerate())
    lock = BossLock.acquire(settings.folder.lock)
    try:
        lock.tell(BossHolder(os.getpid()))
        open_log(settings.folder.log, settings.log_level, None, settings.log_max_bytes)
        asyncio.run(_Daemon(settings, lock).run(ready))
    finally:
        stuck = _still_busy(set(threading.enumerate()) - before)
        if stuck:
            log.warning("threads that did not end: %s", ", ".join(sorted(stuck)))
        lock.release()
    if stuck:
        _leave()


def _leave() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(0)


def _still_busy(threads: set[threading.Thread]) -> list[str]:
    deadline = time.monotonic() + THREADS_TIMEOUT
    waited_for = [thread for thread in threads if not thread.daemon]
    for thread in waited_for:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [thread.name for thread in waited_for if thread.is_alive()]


class _Threads(ThreadPoolExecutor):
    """The executor of `asyncio.to_thread`. asyncio waits for its threads, in some versions without end."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=True)


class _Daemon:
    def __init__(self, settings: BossSettings, lock: BossLock) -> None:
        self._settings = settings
        self._lock = lock
        self._ended = asyncio.Event()
        self._starting: set[asyncio.Task[None]] = set()

    async def run(self, ready: Callable[[BossParts], None]) -> None:
        folder = self._settings.folder
        token = load_token(folder.token)
        self._catch_signals()
        asyncio.get_running_loop().set_default_executor(_Threads(thread_name_prefix="boss"))
        access = self._settings.access
        tls = load_tls(*access.tls) if access.tls is not None else None
        tcp = listen_on_loopback(self._settings.port, or_any=self._settings.any_port)
        beyond = listen_on_address(access.address) if access.address is not None else None
        listeners = [tcp, listen_on_path(folder.socket)]
        port = listeners[0].getsockname()[1]
        self._lock.tell(BossHolder(os.getpid(), port))
        service = BossService(Store(folder.database), steady=since_boot, boot=boot_id())
        await service.open()
        answers = Approvals(service, sessions_folder())
        answers.on_open = PolicyAnswers(answers, folder).consider
        links = Links(service, answers)
        logins = Logins(service)
        replies = Replies(service, sessions_folder())
        public = access.public.origin if access.public is not None else ""
        push = PushSubscriptions(service, logins, folder, public if public.startswith("https:") else "")
        boss = BossParts(service, port, answers, replies, links, logins, push, access.urls(port))
        notifier = Notifier(service, links, push, folder, public or boss.urls[0])
        sources = make_sources(service, self._settings.sources)
        boss.sources += [SourceStatus(source.name) for source in sources]
        trail_token = TokenFile(folder.trail_token)
        trail_token.load()
        app = Application(boss, (*ROUTES, *PAGE_ROUTES), token, access.sites(port), trail_token.current)
        server = HttpServer(app, app.admits, app.upgrades, listeners, access, beyond, tls)
        service.has_begun.clear()
        await server.open()
        await answers.open()
        notifier.open()
        log.info("serving at %s, pid %d", " ".join(boss.urls), os.getpid())
        boss.reload_fleet = lambda: _reload_fleet(boss, folder)
        try:
            await self._start(boss, sources)
            service.has_begun.set()
            await boss.reload_fleet()
            ready(boss)
            gc.collect()
            gc.freeze()  # these objects stay: the collector need not visit them again
            await self._ended.wait()
        finally:
            await app.mcp.close()
            if boss.fleet is not None:
                await boss.fleet.close()
            logins.close()
            await notifier.close()
            await answers.close()
            await self._shut_down(service, server, sources)

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signal_number, self._ended.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)  # the terminal that started it was closed

    async def _start(self, boss: BossParts, sources: list[EventSource]) -> None:
        for source, status in zip(sources, boss.sources, strict=True):
            self._starting.add(asyncio.create_task(_start_one(source, status)))
        ended: asyncio.Future[Any] = asyncio.ensure_future(self._ended.wait())
        begun: asyncio.Future[Any] = asyncio.gather(*self._starting)
        await asyncio.wait([ended, begun], timeout=START_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()

    async def _shut_down(self, service: BossService, server: HttpServer, sources: list[EventSource]) -> None:
        log.info("shutting down")
        for task in self._starting:
            task.cancel()
        service.feed.close()  # the server would wait for streams of changes
        await server.close()
        self._settings.folder.socket.unlink(missing_ok=True)
        for source in reversed(sources):
            await _close_one(source)
        await service.close()


async def _start_one(source: EventSource, status: SourceStatus) -> None:
    try:
        await source.start()
        status.state = "running"
    except asyncio.CancelledError:
        raise
    except Exception as error:
        log.exception("source %s failed to start", source.name)
        status.state, status.error = "failed", str(error) or type(error).__name__


async def _reload_fleet(boss: BossParts, folder: BossFolder) -> None:
    """Leave the fleet that this machine was in, and join the one that it is in now."""
    if boss.fleet is not None:
        fleet, boss.fleet = boss.fleet, None
        await fleet.close(leaving=True)
    try:
        boss.fleet = load_fleet(boss, folder)
    except (RemudaError, ImportError) as error:  # the boss is needed all the same
        log.error("this machine's fleet cannot be used: %s", error)
    if boss.fleet is not None:
        boss.fleet.open()


async def _close_one(source: EventSource) -> None:
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await source.close()
    except Exception:
        log.exception("source %s failed to stop", source.name)


# ── sockets ──


def listen_on_loopback(port: int, *, or_any: bool = False) -> socket.socket:
    """With `or_any` on a free port if that one is in use: commands and hooks need only the private socket."""
    # Declared as TCP: only then does asyncio set TCP_NODELAY. Without it each small answer waits for 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        if or_any and port and isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            log.warning("port %d is in use by another program; taking a free one", port)
            return listen_on_loopback(0)
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidOptions(
            f"cannot listen on port {port}: {reason}", hint="choose another with --port or [boss] port"
        ) from error
    return listener


def listen_on_address(address: tuple[str, int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidOptions(
            f"cannot listen on {address[0]}, port {address[1]}: {error.strerror}",
            hint="change [boss] listen in the configuration file",
        ) from error
    return listener


def listen_on_path(path: Path) -> socket.socket:
    """Listen for this user only; accepts as soon as the path exists.

    We hold the lock of the boss: an old socket is stale.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    temporary = path.parent / f".sock.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    try:
        with SocketAddress(temporary) as address:
            listener.bind(address)
        temporary.chmod(0o600)
        listener.listen(_BACKLOG)
        os.rename(temporary, path)
    except OSError as error:
        listener.close()
        temporary.unlink(missing_ok=True)
        raise RemudaError(f"cannot listen on {path}: {error.strerror}") from error
    return listener
