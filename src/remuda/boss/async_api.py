"""`remuda.AsyncBoss`: `Boss` for programs with an event loop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remuda.tasks import in_thread

from .api import Answers, Approval, Boss, ReplyResult, WaitingItem
from .client import ANSWER_TIMEOUT


class AsyncBoss:
    """Read the attention queue, decide permission requests, and reply to agents, from asyncio.

    The methods are those of `Boss`. Each call runs in a thread of its own. Cancelling a call ends the wait at
    once; what the boss was asked to do may still happen.

        boss = AsyncBoss()
        for item in await boss.queue():
            print(item.reason, item.message)
    """

    def __init__(
        self,
        *,
        folder: Path | str | None = None,
        timeout: float = ANSWER_TIMEOUT,
        host: str | None = None,
    ) -> None:
        """Make a client, as `Boss`."""
        self._boss = Boss(folder=folder, timeout=timeout, host=host)

    async def queue(self, *, hidden: bool = False, hosts: bool = True) -> list[WaitingItem]:
        """Return what waits for a human, as `Boss.queue`."""
        return await in_thread(lambda _: self._boss.queue(hidden=hidden, hosts=hosts))

    async def later(self, item: WaitingItem | str, when: float | str = "10m") -> WaitingItem:
        """Put a waiting item off and return it as it is now, as `Boss.later`."""
        return await in_thread(lambda _: self._boss.later(item, when))

    async def permissions(
        self,
        *,
        all: bool = False,  # noqa: A002
        limit: int = 100,
        hosts: bool = True,
    ) -> list[Approval]:
        """Return the open permission requests, the newest first, as `Boss.permissions`."""
        return await in_thread(lambda _: self._boss.permissions(all=all, limit=limit, hosts=hosts))

    async def permission(self, which: str) -> Approval:
        """Return one permission request, as `Boss.permission`."""
        return await in_thread(lambda _: self._boss.permission(which))

    async def approve(
        self,
        which: Approval | str,
        *,
        answers: Answers | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002
        always: bool = False,
        unseen: bool = False,
        by: str | None = None,
    ) -> Approval:
        """Allow a permission request, answer a question, or accept a plan, as `Boss.approve`."""
        return await in_thread(
            lambda _: self._boss.approve(
                which, answers=answers, input=input, always=always, unseen=unseen, by=by
            )
        )

    async def deny(
        self, which: Approval | str, message: str = "", *, interrupt: bool = False, by: str | None = None
    ) -> Approval:
        """Deny a permission request, as `Boss.deny`."""
        return await in_thread(lambda _: self._boss.deny(which, message, interrupt=interrupt, by=by))

    async def reply(
        self,
        session: str,
        text: str,
        *,
        wait: float = 0.0,
        dedup: str | None = None,
        command: bool = False,
        literal: bool = False,
    ) -> ReplyResult:
        """Give a prompt to an agent that the boss knows, as `Boss.reply`."""
        return await in_thread(
            lambda _: self._boss.reply(
                session, text, wait=wait, dedup=dedup, command=command, literal=literal
            )
        )
