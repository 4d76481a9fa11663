"""Run the nats-server of a hub on this machine, until a signal ends it."""

from __future__ import annotations

import asyncio
import ctypes
import shutil
import signal
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

from remuda.errors import CommandNotFound, HubUnreachable, SpawnFailed

from .hub import Hub, prepare, remove_revoked
from .hub_folder import HubFolder

START_TIMEOUT = 20.0
STOP_TIMEOUT = 20.0
_RETRY_INTERVAL = 0.05
_PR_SET_PDEATHSIG = 1
_LAST_LINES = 3


def find_server() -> str:
    """Return the path of nats-server: the one that the extra brings, else the one on PATH."""
    own = Path(sysconfig.get_path("scripts"), "nats-server")
    found = str(own) if own.exists() else shutil.which("nats-server")
    if found is None:
        raise CommandNotFound(
            "nats-server is not installed", hint="in a clone of Remuda, run: pip install '.[fleet]'"
        )
    return found


async def serve(folder: HubFolder, ready: Callable[[], None]) -> None:
    """Run the server, and call `ready` when it can be used. Returns after SIGINT or SIGTERM.

    Raises `SpawnFailed` if the server ends by itself, and `SessionExists` if one runs already.
    """
    folder.must_not_run()
    folder.stream_bytes()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    process = await asyncio.create_subprocess_exec(
        find_server(),
        "-c",
        str(folder.config),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        preexec_fn=_die_with_parent(),
        start_new_session=True,  # Ctrl-C is for us; we end it in order
    )
    ended, stopped = asyncio.create_task(process.wait()), asyncio.create_task(stop.wait())
    starting = asyncio.create_task(_prepare(folder))
    try:
        await asyncio.wait([ended, stopped, starting], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            ready()
            await asyncio.wait([ended, stopped], return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            words = _last_words(folder)
            if "Error listening" in words:
                host, port = folder.address
                why = words.rpartition(": ")[2].rstrip('"')
                raise SpawnFailed(
                    f"the hub cannot listen on {host}:{port}: {why}",
                    hint="choose another address with --listen",
                )
            raise SpawnFailed(f"nats-server has ended: {words}", hint=f"see {folder.log}")
    finally:
        for task in (starting, stopped):
            task.cancel()
        await _end(process)
        folder.pid.unlink(missing_ok=True)


async def _prepare(folder: HubFolder) -> None:
    """Wait until the server answers, and make its streams."""
    deadline = time.monotonic() + START_TIMEOUT
    hub: Hub | None = None
    while hub is None:
        try:
            hub = await Hub.connect(folder.admin())
        except HubUnreachable:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_RETRY_INTERVAL)
    try:
        await prepare(hub, folder.key_records(), folder.replicas, folder.stream_bytes())
        await remove_revoked(hub, folder.key_records())  # of keys that were revoked while it did not run
    finally:
        await hub.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _last_words(folder: HubFolder) -> str:
    try:
        lines = folder.log.read_text(errors="replace").splitlines()
    except OSError:
        return "it wrote no log"
    errors = [line for line in lines[-50:] if "[FTL]" in line or "[ERR]" in line]
    return "; ".join(line.partition("] ")[2] or line for line in (errors or lines)[-_LAST_LINES:])


def _die_with_parent() -> Callable[[], None] | None:
    """Return what the child calls before it becomes the server; None where the system has no such call."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    return ask
