"""One tmux server, for asyncio: a tmux is run for each command, unless a control client is asked for.

A server may come and go; each command finds it as it is. Several links, to several servers, know nothing of
each other.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from remuda.errors import RemudaError

from .address import Address
from .control import HOOKS, SESSION_FIELDS, Control, companion_session, session_fact
from .once import TIMEOUT, Tmux
from .protocol import Notice

RETRY_INTERVAL: Final = 5.0
_CLIENT_FIELDS: Final = ("client_control_mode", "session_id")
_LEAVING: Final = ("client-detached", "client-session-changed", "session-changed", "sessions-changed")


class Link:
    """`control=True`: a control client is kept as long as that is in nobody's way (see `control`)."""

    def __init__(
        self,
        address: Address,
        env: Mapping[str, str] | None = None,
        *,
        control: bool = False,
        on_notice: Callable[[Notice], None] = lambda _: None,
    ) -> None:
        self.address = address
        self._env = dict(os.environ if env is None else env)
        self._tmux = Tmux(address, self._env)
        self._wants_control = control
        self._on_notice = on_notice
        self._control: Control | None = None
        self._session = ""
        self._try_at = 0.0
        self._entering = asyncio.Lock()
        self._leaving: asyncio.Task[None] | None = None
        self._looks = 0

    async def command(self, *words: str, timeout: float = TIMEOUT) -> list[str]:  # noqa: ASYNC109 - a contract
        """What a command prints, line by line.

        If the connection ends meanwhile it raises, and nothing is tried again: it may have been done.
        """
        if control := await self._companion():
            return await control.command(*words, timeout=timeout)
        return await asyncio.to_thread(self._tmux.command, *words, timeout=timeout)

    async def rows(
        self,
        *words: str,
        fields: Sequence[str],
        timeout: float = TIMEOUT,  # noqa: ASYNC109 - a contract
    ) -> list[list[str]]:
        """As `once.Tmux.rows`."""
        if control := await self._companion():
            return await control.rows(*words, fields=fields, timeout=timeout)
        return await asyncio.to_thread(self._tmux.rows, *words, fields=fields, timeout=timeout)

    async def output(
        self,
        *commands: Sequence[str],
        stdin: bytes = b"",
        timeout: float = TIMEOUT,  # noqa: ASYNC109 - a contract
    ) -> bytes:
        """What commands print, as it is. Always by a tmux that is run: no text can end its answer early."""
        return await asyncio.to_thread(self._tmux.output, *commands, stdin=stdin, timeout=timeout)

    @property
    def has_control(self) -> bool:
        return self._open_control() is not None

    async def aclose(self) -> None:
        """Detach, if there is anything to detach. Takes a second at most."""
        self._wants_control = False
        if self._leaving is not None:
            self._leaving.cancel()
            await asyncio.gather(self._leaving, return_exceptions=True)
        async with self._entering:
            await self._leave()

    # ── the control client ──

    def _open_control(self) -> Control | None:
        return self._control if self._control is not None and self._control.is_open else None

    async def _companion(self) -> Control | None:
        if self._wants_control and self._open_control() is None:
            async with self._entering:
                if self._open_control() is None and time.monotonic() >= self._try_at:
                    self._try_at = time.monotonic() + RETRY_INTERVAL
                    await self._leave()
                    await self._enter()
        return self._open_control()

    async def _enter(self) -> None:
        try:
            session = await asyncio.to_thread(choose_session, self._tmux)
            if session is not None:
                self._session = session
                self._control = await Control.open(self.address, session, self._env, self._notice)
                self._reconsider_soon()  # the human may have gone meanwhile
        except RemudaError:
            pass  # it can be done without, and the command itself will tell what is wrong

    async def _leave(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            await control.aclose()

    def _notice(self, notice: Notice) -> None:
        if notice.name in _LEAVING:
            self._reconsider_soon()
        self._on_notice(notice)

    def _reconsider_soon(self) -> None:
        self._looks += 1
        if self._leaving is None or self._leaving.done():
            self._leaving = asyncio.create_task(self._reconsider())

    async def _reconsider(self) -> None:
        """Stay only where a human is: alone, we would be what makes the session an attached one."""
        looked = 0
        while (control := self._open_control()) is not None and looked != self._looks:
            looked = self._looks
            try:
                rows = await control.rows("list-clients", fields=_CLIENT_FIELDS)
            except RemudaError:
                return  # it is closed, which the next command sees
            here = {mode == "1" for mode, session in rows if session == self._session}
            if here == {True, False}:
                continue
            async with self._entering:
                await self._leave()


def choose_session(tmux: Tmux) -> str | None:
    """Where a control client may go now."""
    sessions, clients = tmux.tables((["list-sessions"], SESSION_FIELDS), (["list-clients"], _CLIENT_FIELDS))
    hooked = [name for name in HOOKS if any("[" in line for line in tmux.command("show-hooks", "-g", name))]
    humans = [session for mode, session in clients if mode != "1"]
    return companion_session([session_fact(row) for row in sessions], humans, hooked)
