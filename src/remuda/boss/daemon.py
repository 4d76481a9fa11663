"""The boss's life: start, serve, shut down. It may be killed at any moment: what it took is on the disk."""

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
from dataclasses import dataclass
from typing import Any

from remuda.errors import InvalidOptions, RemudaError
from remuda.inbox.serve import load_token
from remuda.keeper.logfile import open_log
from remuda.paths import SocketAddress, private_folder, sessions_folder

from .answers.approvals import Approvals
from .answers.automatic import Automatic
from .answers.reply import Replies
from .clock import boot_id, since_boot
from .desk import Desk
from .folder import BossFolder
from .http.routes import ROUTES
from .http.server import HttpServer
from .http.web import Application
from .lock import Holder, Lock
from .notices.links import Links
from .notices.notifier import Notifier
from .ports import Boss, EventSource, SourceStatus
from .records.store import Store
from .sources import SOURCES, make_sources
from .trail_token import TokenFile

log = logging.getLogger("remuda.boss")

START_TIMEOUT = 10.0
"""A source that has not begun by then goes on beginning while the boss serves."""
CLOSE_TIMEOUT = 5.0
THREADS_TIMEOUT = 2.0
"""A thread that has not ended by then (a disk or a host does not answer) is left behind."""
_BACKLOG = 512


@dataclass(frozen=True, slots=True)
class Settings:
    folder: BossFolder
    port: int
    log_level: str = "info"
    log_max_bytes: int = 1 << 20
    sources: tuple[str, ...] = SOURCES
    any_port: bool = False
    """Whether another port is taken when `port` is in use: any user of the machine can listen on it."""


def run(settings: Settings, ready: Callable[[Boss], None]) -> None:
    """Be the boss, until a signal ends it. Raises `BossExists` and what else keeps it from beginning.

    Ends the process, with 0, when one of its threads hangs: Python would wait for it without end.
    """
    private_folder(settings.folder.path)
    before = set(threading.enumerate())
    lock = Lock.acquire(settings.folder.lock)
    try:
        lock.tell(Holder(os.getpid()))
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
    """What `asyncio.to_thread` uses. asyncio would wait for their end, on some versions for ever."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=True)


class _Daemon:
    def __init__(self, settings: Settings, lock: Lock) -> None:
        self._settings = settings
        self._lock = lock
        self._ended = asyncio.Event()
        self._starting: set[asyncio.Task[None]] = set()

    async def run(self, ready: Callable[[Boss], None]) -> None:
        folder = self._settings.folder
        token = load_token(folder.token)
        self._catch_signals()
        asyncio.get_running_loop().set_default_executor(_Threads(thread_name_prefix="boss"))
        tcp = listen_on_loopback(self._settings.port, or_any=self._settings.any_port)
        listeners = [tcp, listen_on_path(folder)]
        port = listeners[0].getsockname()[1]
        self._lock.tell(Holder(os.getpid(), port))
        desk = Desk(Store(folder.database), steady=since_boot, boot=boot_id())
        await desk.open()
        answers = Approvals(desk, sessions_folder())
        answers.on_open = Automatic(answers, folder).consider
        links = Links(desk, answers)
        boss = Boss(desk, port, answers, Replies(desk, sessions_folder()), links)
        notifier = Notifier(desk, links, folder, port)
        sources = make_sources(desk, self._settings.sources)
        boss.sources += [SourceStatus(source.name) for source in sources]
        trail_token = TokenFile(folder.trail_token)
        trail_token.load()
        app = Application(boss, ROUTES, token, port, trail_token.current)
        server = HttpServer(app, app.admits, listeners)
        await server.open()
        await answers.open()
        notifier.open()
        log.info("serving on port %d, pid %d", port, os.getpid())
        try:
            await self._start(boss, sources)
            ready(boss)
            gc.collect()
            gc.freeze()  # what is there now stays: no collection has to look at it
            await self._ended.wait()
        finally:
            await notifier.close()
            await answers.close()
            await self._shut_down(desk, server, sources)

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._ended.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)  # the terminal that it was started from

    async def _start(self, boss: Boss, sources: list[EventSource]) -> None:
        for source, status in zip(sources, boss.sources, strict=True):
            self._starting.add(asyncio.create_task(_start_one(source, status)))
        ended: asyncio.Future[Any] = asyncio.ensure_future(self._ended.wait())
        begun: asyncio.Future[Any] = asyncio.gather(*self._starting)
        await asyncio.wait([ended, begun], timeout=START_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()

    async def _shut_down(self, desk: Desk, server: HttpServer, sources: list[EventSource]) -> None:
        log.info("shutting down")
        for task in self._starting:
            task.cancel()
        desk.feed.close()  # streams of changes would be waited for
        await server.close()
        self._settings.folder.socket.unlink(missing_ok=True)
        for source in reversed(sources):
            await _close_one(source)
        await desk.close()


async def _start_one(source: EventSource, status: SourceStatus) -> None:
    try:
        await source.start()
        status.state = "running"
    except asyncio.CancelledError:
        raise
    except Exception as error:
        log.exception("source %s failed to start", source.name)
        status.state, status.error = "failed", str(error) or type(error).__name__


async def _close_one(source: EventSource) -> None:
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await source.close()
    except Exception:
        log.exception("source %s failed to stop", source.name)


# ── sockets ──


def listen_on_loopback(port: int, *, or_any: bool = False) -> socket.socket:
    """With `or_any` on a free port if that one is in use: commands and hooks need only the private socket."""
    # Named as TCP: on no other does asyncio send small answers at once, and each would wait for 40 ms.
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


def listen_on_path(folder: BossFolder) -> socket.socket:
    """For this user alone; it accepts as soon as it can be seen. We hold the lock: an old one is stale."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    temporary = folder.path / f".sock.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    try:
        with SocketAddress(temporary) as address:
            listener.bind(address)
        temporary.chmod(0o600)
        listener.listen(_BACKLOG)
        os.rename(temporary, folder.socket)
    except OSError as error:
        listener.close()
        temporary.unlink(missing_ok=True)
        raise RemudaError(f"cannot listen on {folder.socket}: {error.strerror}") from error
    return listener
