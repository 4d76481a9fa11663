"""A call's look at its own session: whether its keeper lives, what the agent shows, and why nothing comes."""

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


class Look:
    """Its keeper is asked only when there is a question: most calls end without any.

    `on_shown` gets text as it appears, for whoever wants that; `wants_output` keeps what the agent printed
    last, for when its keeper is gone.
    """

    def __init__(
        self, session: CallSession, on_shown: Callable[[str], None] | None, *, wants_output: bool
    ) -> None:
        self._paths = session.paths
        self._news = session.news
        self._on_shown = on_shown
        self._output = bytearray()
        self._rest = b""
        self.answer: str | None = None
        """What the agent said, where that is known and proven before it is written down."""
        self._client: KeeperClient | None = None
        self.subscriptions = int(wants_output)
        """How many of those who see the agent's terminal are we."""
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

    # ── what comes by itself ──

    def descriptors(self) -> list[int]:
        """Readable when there is something to `take`."""
        found = [] if self._client is None else [self._client.fileno()]
        return found if self._news < 0 else [*found, self._news]

    def take(self, ready: Sequence[int]) -> None:
        """What has come. Raises `SessionUnreachable` when the keeper is gone."""
        if self._client is not None and self._client.fileno() in ready:
            self._receive(self._client)
        if self._news in ready:
            self._read_news()

    def _read_news(self) -> None:
        data = os.read(self._news, _READ_BYTES)
        if not data:
            self._news = -1
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

    # ── what is asked ──

    def status(self) -> dict[str, Any] | None:
        """None when its keeper does not answer any more."""
        try:
            return self._connected().describe(explain=True)
        except (RemudaError, EOFError, OSError):
            return None

    def screen(self) -> list[str]:
        """What the agent's terminal shows now, as far as anybody can tell."""
        try:
            return list(self._connected().request("screen")["lines"])
        except (RemudaError, EOFError, OSError):
            return []

    def last_output(self) -> str:
        """What the agent's terminal shows, or showed last."""
        if lines := self.screen():
            return "\n".join(lines).rstrip()
        return _ESCAPES.sub(b"", bytes(self._output)).decode(errors="replace").strip()

    def is_silent(self) -> bool | None:
        """Whether nothing has come since the agent's start; None while its keeper does not answer."""
        from .hang import is_silent

        status = self.status()
        return None if status is None else is_silent(status, self.screen())

    def why(self, stage: str) -> str:
        """What the call waits for."""
        from remuda.agents.claude.screen import open_dialog

        from .hang import diagnose

        lines = self.screen()
        return diagnose(self.status(), lines, open_dialog(lines), stage)
