"""`remuda.AsyncSession`: `Session` for programs with an event loop."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, Unpack

from .duration import check_seconds
from .inbox.journal import Accepted, Inbox
from .inbox.message import PutOptions
from .inbox.receipts import Trace
from .keeper.cancel import DEFAULT_CANCEL_TIMEOUT, Cancelled
from .keeper.start import DEFAULT_START_TIMEOUT
from .session import Session, StartOptions, answer_of
from .tasks import in_thread


class AsyncSession:
    """Use a session by its name from asyncio. The methods are those of `Session`.

    Each call runs in a thread of its own. Cancelling a call ends the wait at once and undoes nothing: a
    message that was sent stays in the inbox, and a session that is starting or ending goes on to do so.

        session = await AsyncSession.start("work", agent="claude")
        answer = await session.ask("Which tests fail?", timeout=600)
        await session.kill()
    """

    def __init__(self, name: str, *, folder: Path | str | None = None) -> None:
        """Find a session that was started before, running or ended. Raises `SessionNotFound`."""
        self._session = Session(name, folder=folder)

    @classmethod
    def _of(cls, session: Session) -> Self:
        made = cls.__new__(cls)
        made._session = session
        return made

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str] = (),
        *,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        folder: Path | str | None = None,
        timeout: float = DEFAULT_START_TIMEOUT,  # noqa: ASYNC109  # a limit that also ends what was begun
        **options: Unpack[StartOptions],
    ) -> Self:
        """Start a session and return when its program runs, as `Session.start`.

        Use `timeout` to give up on a start: a start that was cancelled goes on, and the session may run.
        """
        return cls._of(
            await in_thread(
                lambda _: Session.start(
                    name, command, cwd=cwd, env=env, folder=folder, timeout=timeout, **options
                )
            )
        )

    @classmethod
    async def list(
        cls, *, ended: bool = False, hosts: bool = False, folder: Path | str | None = None
    ) -> builtins.list[Self]:
        """Return the sessions that run, by name; with `ended` and `hosts` as `Session.list`."""
        found = await in_thread(lambda _: Session.list(ended=ended, hosts=hosts, folder=folder))
        return [cls._of(one) for one in found]

    @property
    def name(self) -> str:
        """The name of the session; of one on another host, HOST/SESSION."""
        return self._session.name

    @property
    def host(self) -> str | None:
        """The host that the session runs on; None for this machine."""
        return self._session.host

    @property
    def alive(self) -> bool:
        """True while the session runs. Blocks while another host is asked: use `status` for one of those."""
        return self._session.alive

    @property
    def inbox(self) -> Inbox:
        """The inbox of the session. Its methods block for as long as the disk takes."""
        return self._session.inbox

    def __repr__(self) -> str:
        return f"AsyncSession({self.name!r})"

    async def status(self, *, explain: bool = False) -> dict[str, Any]:
        """Return what the session does and since when. Raises `SessionDead` if it has ended."""
        return await in_thread(lambda _: self._session.status(explain=explain))

    async def screen(self) -> builtins.list[str]:
        """Return the lines that the terminal shows now; of an ended session, those it showed last."""
        return await in_thread(lambda _: self._session.screen())

    async def history(self, lines: int | None = None) -> builtins.list[str]:
        """Return what the program printed, as lines of text; the last `lines` of them, or all."""
        return await in_thread(lambda _: self._session.history(lines))

    async def send(self, text: str, **options: Unpack[PutOptions]) -> Accepted:
        """Send a message and return its id, as `Session.send`.

        If the call is cancelled, the message may have been accepted. With a `message_id` of your own,
        `receipt` says whether it was.
        """
        return await in_thread(lambda _: self._session.send(text, **options))

    async def receipt(self, message: str) -> Trace:
        """Return how far the message with this id got. Raises `MessageNotFound`."""
        return await in_thread(lambda _: self._session.receipt(message))

    async def wait(self, message: str, timeout: float | None = None) -> Trace:  # noqa: ASYNC109
        """Wait until the message with this id has ended, and return its receipt, as `Session.wait`.

        Cancelling ends the wait; the message stays in the inbox. `cancel` takes it back.
        """
        return await in_thread(lambda check: self._session._wait(message, timeout, check))

    async def ask(
        self,
        text: str,
        timeout: float | None = None,  # noqa: ASYNC109
        **options: Unpack[PutOptions],
    ) -> str:
        """Send a message, wait until it has ended, and return the agent's answer, as `Session.ask`.

        Cancelling ends the wait; the message stays in the inbox, and the agent still gets it. To take it back
        use `send`, `wait` and `cancel`.
        """
        if timeout is not None:
            check_seconds("timeout", timeout)  # before anything is sent
        sent = await self.send(text, **options)
        return answer_of(await self.wait(sent.id, timeout))

    async def cancel(
        self,
        message: str | None = None,
        timeout: float = DEFAULT_CANCEL_TIMEOUT,  # noqa: ASYNC109
    ) -> Cancelled | None:
        """Take a waiting message back, or interrupt its turn, as `Session.cancel`."""
        return await in_thread(lambda _: self._session.cancel(message, timeout))

    async def interrupt(self, timeout: float = DEFAULT_CANCEL_TIMEOUT) -> Cancelled | None:  # noqa: ASYNC109
        """Interrupt the turn that runs and return the outcome; None if no turn runs."""
        return await in_thread(lambda _: self._session.interrupt(timeout))

    async def wait_idle(self, timeout: float | None = None) -> dict[str, Any]:  # noqa: ASYNC109
        """Wait until the agent is idle and its inbox has nothing due, and return its status."""
        return await in_thread(lambda check: self._session._wait_idle(timeout, check))

    async def kill(self, grace: float | None = None) -> int | None:
        """End the session and every process it started, and return its exit code, as `Session.kill`."""
        return await in_thread(lambda _: self._session.kill(grace))
