"""What a call asks of its own session: whether its keeper lives, what the agent shows, why nothing comes."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from remuda.errors import RemudaError, SessionUnreachable
from remuda.untrusted import parse_json

if TYPE_CHECKING:
    from remuda.keeper.client import KeeperClient

    from .session import CallSession

_READ_BYTES = 1 << 16
_KEPT_OUTPUT_BYTES = 1 << 16
_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])|[\x00-\x09\x0b-\x1f]"
)


class KeeperProbe:
    """Connects to the keeper only when there is something to ask: most calls end without that.

    `on_shown` gets text as it appears. `wants_output` keeps the agent's last output, for the case that its
    keeper dies.
    """

    def __init__(
        self, session: CallSession, on_shown: Callable[[str], None] | None, *, wants_output: bool
    ) -> None:
        self._paths = session.paths
        self._headless = session.headless
        self._notices = session.notices
        self._on_shown = on_shown
        self._output = bytearray()
        self._rest = b""
        self.answer: str | None = None
        """The agent's answer, if the keeper has proved it before the transcript has it."""
        self._client: KeeperClient | None = None
        self.subscriptions = int(wants_output)
        """How many clients of the agent's terminal are ours."""
        if on_shown is not None or wants_output:
            self._listen(wants_output)

    def _listen(self, wants_output: bool) -> None:
        from remuda.wire.connection import ClientConnection

        client = self._connected()
        client.request("watch")
        if wants_output:
            client.send(ClientConnection.subscribe())

    def _connected(self) -> KeeperClient:
        if self._client is None:
            from remuda.keeper.client import KeeperClient

            self._client = KeeperClient.connect(self._paths.name, self._paths.folder, read_only=True)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    # ── notices ──

    def descriptors(self) -> list[int]:
        """Return the descriptors that become readable when there is something to `take`."""
        client = [] if self._client is None else [self._client.fileno()]
        return client if self._notices < 0 else [*client, self._notices]

    def take(self, ready: Sequence[int]) -> None:
        """Read what has come. Raises `SessionUnreachable` when the keeper is gone."""
        if self._client is not None and self._client.fileno() in ready:
            self._receive(self._client)
        if self._notices in ready:
            self._read_notices()

    def _read_notices(self) -> None:
        data = os.read(self._notices, _READ_BYTES)
        if not data:
            self._notices = -1
            raise SessionUnreachable("the keeper has exited")
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in filter(None, lines):
            with contextlib.suppress(ValueError):
                self.answer = str(parse_json(line)["answer"])

    def _receive(self, client: KeeperClient) -> None:
        from remuda.wire.connection import EventReceived, OutputReceived, RepaintReceived

        try:
            for event in client.receive(0.0):
                if isinstance(event, EventReceived) and event.document.get("event") == "shown":
                    if self._on_shown is not None:
                        self._on_shown(str(event.document.get("text")))
                elif isinstance(event, OutputReceived | RepaintReceived):
                    self._output += event.data
                    del self._output[:-_KEPT_OUTPUT_BYTES]
        except EOFError:
            client.close()
            self._client = None
            raise SessionUnreachable("the keeper closed the connection") from None

    # ── requests ──

    def status(self) -> dict[str, Any] | None:
        """Return the session's status, or None if its keeper no longer answers."""
        try:
            return self._connected().describe(explain=True)
        except (RemudaError, EOFError, OSError):
            return None

    def screen(self) -> list[str]:
        """Return the rows of the agent's terminal; empty if its keeper no longer answers."""
        try:
            return list(self._connected().request("screen")["lines"])
        except (RemudaError, EOFError, OSError):
            return []

    def last_output(self) -> str:
        """Return what the agent's terminal shows, or showed last."""
        if lines := self.screen():
            return "\n".join(lines).rstrip()
        return _ESCAPES.sub(b"", bytes(self._output)).decode(errors="replace").strip()

    def is_silent(self) -> bool | None:
        """Whether the agent has printed nothing; None if its keeper does not answer."""
        from .dialogs import is_silent

        status = self.status()
        return None if status is None else is_silent(status, self.screen())

    def why(self, stage: str) -> str:
        """Return what the call waits for."""
        from .dialogs import diagnose

        lines = self.screen()
        return diagnose(self.status(), lines, self._headless.dialogs, stage)
