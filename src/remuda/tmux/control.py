"""A control client: a `tmux -C` that stays attached. It takes a command in 0.02 ms; to run tmux takes 2 ms.

It cannot be had unseen. A control client must be attached to a session, and attaching one
  - counts in `session_attached`, stands in `list-clients`, and runs the user's `client-attached` hooks;
  - clears the bell and activity marks of the session's current window;
  - makes it the client that a script's `tmux display-message` goes to, until a human presses a key there;
  - keeps a session that is to end with its last client (`destroy-unattached`, `exit-unattached`);
  - and `tmux attach`, which prefers sessions that nobody has, no longer finds the one that was left.
So whoever does not need it goes without (`link.Link`). Where it is wanted, `companion_session` lets it in
only beside a human's client and only where nothing is lost, and `Link` takes it out when the human goes.

It has no say in sizes and hears no output (`-f`). It leaves the session's environment alone (`-E`). The flag
`read-only` would not keep it from any command (3.3a), and is not used.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from remuda.errors import RemoteProtocolError, TmuxGone, TmuxMissing, WaitTimeout

from .address import COMPANIONS, Address, parse_version, surroundings
from .once import TIMEOUT, cut_rows, error_of, new_mark, row_format
from .protocol import Answer, ControlReader, Event, Exited, Notice, line_of

_CLOSING: Final = 1.0


class Control:
    """One attached control client. Commands are answered in their order; each waits no longer than it may."""

    def __init__(
        self,
        address: Address,
        process: subprocess.Popen[bytes],
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        on_notice: Callable[[Notice], None],
    ) -> None:
        self.address = address
        self._process = process
        self._in, self._out = streams
        self._on_notice = on_notice
        self._waiting: deque[asyncio.Future[Answer]] = deque()
        self._attached: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def open(
        cls,
        address: Address,
        session: str,
        env: Mapping[str, str],
        on_notice: Callable[[Notice], None] = lambda _: None,
        timeout: float = TIMEOUT,  # noqa: ASYNC109 - the bound is part of the contract
    ) -> Control:
        """Attach to that session (`$1`). Never starts a server and never makes a session."""
        ours, theirs = socket.socketpair()
        with theirs:
            words = ["-N", "-u", "-S", address.path, "-C", "attach-session", "-E", "-t", session]
            try:
                process = subprocess.Popen(  # noqa: ASYNC220 - does not wait
                    ["tmux", *words, "-f", "ignore-size,no-output"],
                    env=surroundings(env),
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL,
                )
            except FileNotFoundError as error:
                ours.close()
                raise TmuxMissing("tmux not found", hint="install it, or check PATH") from error
        control = cls(address, process, await asyncio.open_connection(sock=ours), on_notice)
        try:
            answer = await control._answer(control._attached, timeout)
            if not answer.ok:
                raise error_of("\n".join(answer.lines), address)
        except BaseException:
            await control.aclose()
            raise
        return control

    @property
    def is_open(self) -> bool:
        return not self._reader.done()

    async def command(self, *words: str, timeout: float = TIMEOUT) -> list[str]:  # noqa: ASYNC109 - as above
        """What a command prints, line by line. A wait that ends too early ends the connection as well."""
        line = line_of(words)
        if not self.is_open:
            raise self._gone()
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._out.write(line)
        found = await self._answer(answer, timeout)
        if not found.ok:
            raise error_of("\n".join(found.lines), self.address)
        return found.lines

    async def rows(
        self,
        *words: str,
        fields: Sequence[str],
        timeout: float = TIMEOUT,  # noqa: ASYNC109 - as above
    ) -> list[list[str]]:
        """As `once.Tmux.rows`."""
        mark = new_mark()
        lines = await self.command(*words, "-F", row_format(fields, mark), timeout=timeout)
        return cut_rows("\n".join(lines).encode("utf-8", "surrogateescape"), fields, mark)

    async def aclose(self) -> None:
        """Detach. Takes a second at most; whoever still waits for an answer is told that it is gone."""
        try:
            if not self._out.is_closing():
                self._out.write_eof()
        except OSError:
            pass  # it was quicker
        try:
            await asyncio.to_thread(self._process.wait, _CLOSING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        finally:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _answer(self, answer: asyncio.Future[Answer], timeout: float) -> Answer:  # noqa: ASYNC109
        try:
            # One that is no longer waited for keeps its place in the order.
            return await asyncio.wait_for(answer, timeout)
        except TimeoutError:
            self._reader.cancel()
            raise WaitTimeout(f"tmux did not answer within {timeout:g} seconds") from None

    async def _read(self) -> None:
        reader = ControlReader()
        try:
            while data := await self._in.read(1 << 16):
                for event in reader.feed(data):
                    self._take(event)
        except (RemoteProtocolError, OSError) as error:
            self._fail(error if isinstance(error, RemoteProtocolError) else self._gone())
        finally:
            self._fail(self._gone())
            self._out.close()

    def _take(self, event: Event) -> None:
        if isinstance(event, Answer) and event.ours:
            if not self._waiting:
                raise RemoteProtocolError("tmux sent an answer without a request")
            _settle(self._waiting.popleft(), event)
        elif isinstance(event, Answer):
            # The first that is not ours is that of the attaching; all others are of hooks.
            _settle(self._attached, event)
        elif isinstance(event, Notice):
            self._on_notice(event)
        elif isinstance(event, Exited):
            self._fail(self._gone(event.reason))

    def _gone(self, reason: str = "") -> TmuxGone:
        return TmuxGone(f"the connection to tmux on {self.address.path} has ended", hint=reason or None)

    def _fail(self, error: Exception) -> None:
        for future in (self._attached, *self._waiting):
            if not future.done():
                future.set_exception(error)
                future.exception()  # nobody may be waiting any more
        self._waiting.clear()


def _settle(future: asyncio.Future[Answer], answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)


# ── which session, if any ──


class SessionFact(NamedTuple):
    id: str
    activity: int
    marks: str
    """Of its current window: `!` a bell, `#` activity, `~` silence."""
    destroy_unattached: str
    exit_unattached: str
    version: str


SESSION_FIELDS: Final = (
    "session_id",
    "session_activity",
    "window_flags",
    "destroy-unattached",
    "exit-unattached",
    "version",
)
HOOKS: Final = ("client-attached", "client-session-changed")


def session_fact(row: Sequence[str]) -> SessionFact:
    return SessionFact(row[0], int(row[1] or 0), *row[2:])


def companion_session(
    sessions: Sequence[SessionFact], humans: Sequence[str], hooks: Sequence[str]
) -> str | None:
    """Where a control client is in nobody's way, or None.

    `humans` are the sessions that clients with a terminal are attached to, `hooks` what the user has hooked.
    The session used last is chosen: to attach to another one would change which it is.
    """
    if any(hook in HOOKS for hook in hooks):
        return None
    fit = [session for session in sessions if session.id in humans and _is_fit(session)]
    return max(fit, key=lambda session: session.activity).id if fit else None


def _is_fit(session: SessionFact) -> bool:
    off = ("", "0", "off")
    return (
        parse_version(session.version) >= COMPANIONS
        and session.destroy_unattached in off
        and session.exit_unattached in off
        and not any(mark in session.marks for mark in "!#~")
    )
