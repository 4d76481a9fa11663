"""What a call asks of its own session: whether its keeper lives, what the agent shows, why nothing comes."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from remuda.errors import RemudaError, SessionUnreachable
from remuda.untrusted import parse_json

if TYPE_CHECKING:
    from remuda.agents.headless import Dialogs, Lines
    from remuda.keeper.client import KeeperClient

    from .print_session import CallSession


_READ_BYTES = 1 << 16
_KEPT_OUTPUT_BYTES = 1 << 16


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

    def wait(self, seconds: float) -> None:
        """Wait until something comes, and read it. Raises `SessionUnreachable` when the keeper is gone."""
        client = self._client
        if client is not None and client.has_waiting:  # came with the answer to a request
            seconds = 0.0
        wanted = [] if client is None else [client.fileno()]
        if self._notices >= 0:
            wanted.append(self._notices)
        ready, _, _ = select.select(wanted, [], [], seconds)
        if client is not None:
            self._receive(client)
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
        from remuda.terminal.history_format import plain_text

        return plain_text(bytes(self._output)).strip()

    def is_silent(self) -> bool | None:
        """Whether the agent has printed nothing; None if its keeper does not answer."""
        status = self.status()
        return None if status is None else is_silent(status, self.screen())

    def why(self, stage: str) -> str:
        """Return what the call waits for."""
        lines = self.screen()
        return diagnose(self.status(), lines, self._headless.dialogs, stage)


# ── why a call has not ended yet, and what the agent asks (pure) ──

# `document` is the status of the call's session; `dialogs` reads the agent's screen.

Document = Mapping[str, Any]
_WAITING = ("waiting_permission", "waiting_answer")


def diagnose(document: Document | None, lines: Lines, dialogs: Dialogs, stage: str) -> str:
    """Return the reason in one line. `document` is None when the keeper no longer answers."""
    if document is None or not document.get("alive", True):
        return "the agent has exited"
    state = document.get("state")
    dialog = dialogs.open_dialog(lines)
    if dialog is not None or waited(document) is not None:
        return f"a dialog is open: {dialogs.shown(lines) or dialog or state}"
    if retry := dialogs.retrying(lines):
        return retry
    if is_silent(document, lines):
        return "the agent has printed nothing"
    if state == "tool_use":
        return f"a tool is running: {document.get('detail', '')}"
    if stage in ("accepted", "written"):
        if dialogs.is_question(lines):
            return f"the agent asks a question: {dialogs.shown(lines)}"
        return f"the agent has not accepted the prompt; the session is {state}"
    if state in ("idle", "interrupted", "error", "limited"):
        return "the turn has ended, but no Stop hook reported it"
    return f"the agent is {state}"


def is_silent(document: Document | None, lines: Lines) -> bool:
    """Whether the agent has printed nothing since its start."""
    return (
        document is not None and not document.get("printed", True) and not any(line.strip() for line in lines)
    )


def waited(document: Document) -> float | None:
    """Return for how many seconds the agent has reported that it waits for an answer; None if it does not.

    The agent's own file says so for as long as it is true. A hook about an earlier moment may come late, and
    then the session's state does not show it.
    """
    own = [vote for vote in document.get("votes", []) if vote["source"] == "registry"]
    ages = [float(vote.get("age", 0.0)) for vote in (document, *own) if vote.get("state") in _WAITING]
    return max(ages, default=None)


def is_unreported(document: Document) -> bool:
    """Whether the agent waits for an answer and no hook, which would have denied it, has come from it."""
    has_hooks = any(vote["source"] == "hook" for vote in document.get("votes", []))
    return waited(document) is not None and not has_hooks


def question_for_person(document: Document, lines: Lines, dialogs: Dialogs) -> str | None:
    """Return what a person is asked, in one line. None for the trust dialog, which the keeper answers."""
    if dialogs.asks_for_trust(lines):
        return None
    event, _, tool = str(document.get("detail") or "").partition(" ")
    # Observers give this name to a permission request of every agent.
    what = tool if event == "PermissionRequest" and tool else dialogs.shown(lines)
    kind = "permission" if document.get("state") == "waiting_permission" else "an answer"
    return f"waiting for {kind}: {what}" if what else f"waiting for {kind}"


def unanswerable(lines: Lines, dialogs: Dialogs, *, begun: bool) -> str | None:
    """Return a question that no one can answer here, or None. The keeper answers the trust dialog.

    `begun`: the agent has taken the prompt, and reports itself that it waits for an answer. Before that it
    may ask in words that we do not know.
    """
    if dialogs.asks_for_trust(lines):
        return None
    is_asked = begun or dialogs.open_dialog(lines) is not None or dialogs.is_question(lines)
    return dialogs.shown(lines) if is_asked else None
