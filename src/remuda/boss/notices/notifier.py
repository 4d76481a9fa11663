"""Telling people that somebody waits: on the desktop, and by posting to an address.

The settings are read again for each round. What cannot be delivered is tried three times, and logged.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from remuda.errors import NotInQueue, RemudaError

from ..attention.model import ApprovalState, Item
from ..desk import Desk
from ..folder import BossFolder
from .links import Links
from .notify import LINK_LIFE, Receiver, Schedule, Settings, fill, fill_all, words
from .notify_file import load_settings, notify_file

log = logging.getLogger("remuda.boss.notices.notify")

ROUND = 1.0
TIMEOUT = 10.0
_PAUSES = (0.0, 2.0, 10.0)
_THREADS = 8
_AT_ONCE = 2
"""Of one receiver: it may never answer, and the others are told all the same."""
_NOTE = "notices"
_OSASCRIPT = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")

Tell = Callable[[Receiver, Mapping[str, str]], None]


class Notifier:
    """From `open` to `close`."""

    def __init__(self, desk: Desk, links: Links, folder: BossFolder, port: int) -> None:
        self._desk = desk
        self._links = links
        self._folder = folder
        self._port = port
        self._schedule = Schedule()
        self._sent: dict[str, float] = {}
        """Items that need no notice any more, whatever becomes of us: not what is only on its way."""
        self._complaint = ""
        # Of its own: all else that the boss does beside its loop waits for no receiver.
        self._threads = ThreadPoolExecutor(_THREADS, "notice")
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_AT_ONCE))
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        self._remember()
        self._begin(self._rounds())

    async def close(self) -> None:
        """Waits for no receiver."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _remember(self) -> None:
        """What a boss before us told."""
        try:
            found = json.loads(self._desk.store.note(_NOTE) or "{}")
            self._sent = {str(one): float(at) for one, at in found["told"].items()}
            self._schedule = Schedule(
                dict(self._sent), {str(one): float(at) for one, at in found["last"].items()}
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            self._sent, self._schedule = {}, Schedule()

    async def _rounds(self) -> None:
        while True:
            try:
                await self._round()
            except RemudaError as error:
                self._complain(str(error))
            await asyncio.sleep(ROUND)

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            log.warning("nobody is told: %s", text)
        self._complaint = text

    async def _round(self) -> None:
        waiting = self._desk.queue()
        if not waiting:
            return
        settings = await asyncio.to_thread(self._settings)
        failed = False
        for item in self._schedule.due(waiting, settings, self._desk.clock()):
            try:
                fields = await self._words(item, settings)
            except RemudaError as error:
                failed = True
                self._schedule.put_back(item)
                self._complain(str(error))
            else:
                self._begin(self._tell_all(item, fields, settings))
        if not failed:
            self._complaint = ""

    def _settings(self) -> Settings:
        return load_settings(notify_file(self._folder, os.environ))

    async def _tell_all(self, item: Item, fields: Mapping[str, str], settings: Settings) -> None:
        wanted = [receiver for receiver in settings.receivers if item.reason in receiver.reasons]
        await asyncio.gather(*(self._tell(receiver, fields) for receiver in wanted))
        told = self._schedule.told
        self._sent = {one: at for one, at in self._sent.items() if one in told} | {
            item.id: self._desk.clock()
        }
        last = {item.session_id: self._sent[item.id]} | self._schedule.last
        try:
            await self._desk.store.save_note(_NOTE, json.dumps({"told": self._sent, "last": last}))
        except RemudaError as error:
            log.warning("cannot write down who was told: %s", error)

    async def _words(self, item: Item, settings: Settings) -> dict[str, str]:
        try:
            session = self._desk.session(item.session_id)
        except NotInQueue:
            session = None
        return words(item, session, await self._link(item, settings))

    async def _link(self, item: Item, settings: Settings) -> str:
        """For a request that can be answered from elsewhere."""
        number = str(item.detail.get("ask", ""))
        try:
            if not number or self._desk.approval(number).state is not ApprovalState.OPEN:
                return ""
        except NotInQueue:
            return ""
        base = settings.link_base or f"http://127.0.0.1:{self._port}"
        return f"{base}/v1/answer/{await self._links.make(number, LINK_LIFE)}"

    async def _tell(self, receiver: Receiver, fields: Mapping[str, str]) -> None:
        what = "the desktop" if receiver.desktop else receiver.url.partition("?")[0]
        for pause in _PAUSES:
            await asyncio.sleep(pause)
            try:
                async with self._turns[receiver.url]:
                    await self._beside(show if receiver.desktop else send, receiver, fields)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                log.warning("could not tell %s: %s", what, error)
            else:
                log.info("told %s: %s", what, fields["title"])
                return

    async def _beside(self, tell: Tell, receiver: Receiver, fields: Mapping[str, str]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, tell, receiver, fields)


def show(_receiver: Receiver, fields: Mapping[str, str]) -> None:
    """On the desktop, if there is one that can be told."""
    title, message = fields["title"], fields["message"]
    if program := shutil.which("notify-send"):
        command = [program, "--app-name=remuda", "--", title, message]
    elif program := shutil.which("osascript"):
        command = [program, *(word for line in _OSASCRIPT for word in ("-e", line)), title, message]
    else:
        raise OSError("there is neither notify-send nor osascript")
    subprocess.run(command, check=True, timeout=TIMEOUT, capture_output=True)


def send(receiver: Receiver, fields: Mapping[str, str]) -> None:
    """Raises OSError when it was not taken, ValueError for what cannot be sent."""
    headers = {name: _header(fill(value, fields)) for name, value in receiver.headers.items()}
    if receiver.json is not None:
        data = json.dumps(fill_all(receiver.json, fields)).encode()
        headers.setdefault("Content-Type", "application/json")
    else:
        data = fill(receiver.body if receiver.body is not None else "{message}\n{link}", fields).encode()
        headers.setdefault("Content-Type", "text/plain; charset=utf-8")
    request = urllib.request.Request(receiver.url, data, headers, method=receiver.method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310  # http alone was let in
        answer.read(1 << 16)


def _header(text: str) -> str:
    """One line, in characters that a header may have."""
    return " ".join(text.split()).encode("ascii", "replace").decode()
