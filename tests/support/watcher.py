"""A kept agent under test: what it is told, and the states it passes through."""

from __future__ import annotations

import time
from itertools import groupby
from typing import Any

from remuda.agents.claude.screen import open_dialog, read_composer
from remuda.agents.prompting import ComposerKind
from remuda.errors import RemudaError
from remuda.keeper.client import KeeperClient
from remuda.testing.real_cli import VERSION
from remuda.wire import connection as wire
from remuda.wire.connection import ClientConnection
from support.keeper import until

PATIENCE = 30.0
_DIALOG_PATIENCE = 3.0
_WAITING = ("waiting_permission", "waiting_answer")
_LOOK_INTERVAL = 0.25
TOOL_TURN = ["idle", "thinking", "tool_use", "waiting_permission", "tool_use", "thinking", "idle"]
"""The states of a turn with a tool that has to be allowed, of any agent."""
LOSES_ENTER = ("2.1.197", "2.1.240")
"""Versions on which Enter behind the first paste has no effect: anyone who sees that presses it again."""


class Watcher:
    """Follows a session's states by its events; `seen` holds all of them in order."""

    def __init__(self, client: KeeperClient) -> None:
        self._client = client
        self.seen: list[dict[str, Any]] = [client.request("watch")]
        self._at = 0  # what was last waited for
        self._pasted = False

    def paste(self, text: str) -> None:
        """As a terminal sends what its user pastes, with Enter behind it."""
        self.press(f"\x1b[200~{text}\x1b[201~\r".encode())
        if VERSION in LOSES_ENTER and not self._pasted:
            self._pasted = True
            until(self._is_drawn_or_taken, "what was pasted")
            if self._client.describe()["state"] == "idle":
                self.press(b"\r")

    def _is_drawn_or_taken(self) -> bool:
        styled: list[str] = self._client.request("screen", styled=True)["lines"]
        lines: list[str] = self._client.request("screen")["lines"]
        drawn = read_composer(lines, lambda y: styled[y].encode()).kind is ComposerKind.DRAFT
        return drawn or self._client.describe()["state"] != "idle"

    def press(self, keys: bytes) -> None:
        self._client.send(ClientConnection.input(keys))

    def answer(self, keys: bytes) -> None:
        """Press these in an open dialog until they are taken.

        Not before it is drawn: the CLI holds a dialog back while someone types. And again: it drops what is
        typed in a dialog's first moments, so that no one answers it by accident. But not soon: behind a
        dialog that closes slowly they would be a draft. A hook that comes late may tell of another state
        while the dialog is still to be drawn.
        """
        deadline, pressed = time.monotonic() + PATIENCE, 0.0
        while not pressed or self._client.describe()["state"] in _WAITING:
            is_open = open_dialog(self._client.request("screen")["lines"])
            if pressed and not is_open:
                return
            assert time.monotonic() < deadline, f"{keys!r} did not answer: {self._client.request('screen')}"
            if is_open and time.monotonic() > pressed + _DIALOG_PATIENCE:
                self.press(keys)
                pressed = time.monotonic()
            self._take(0.05)

    def until_shows(self, text: str) -> None:
        """Wait until the screen has it."""
        until(
            lambda: any(text in line for line in self._client.request("screen")["lines"]),
            f"{text!r} on the screen",
        )

    def _take(self, timeout: float) -> bool:
        """Hear what comes; whether a state was among it."""
        before = len(self.seen)
        for event in self._client.receive(timeout):
            if isinstance(event, wire.EventReceived) and event.document.get("event") == "state":
                self.seen.append(event.document)
        return len(self.seen) > before

    def until(self, state: str, *, source: str | None = None) -> dict[str, Any]:
        """Wait for the state, from the one last waited for on. Told by `source`, if one is named."""

        def fits(document: dict[str, Any]) -> bool:
            return document.get("state") == state and source in (None, document.get("source"))

        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for at in range(self._at, len(self.seen)):
                self._at = at
                if fits(self.seen[at]):
                    return self.seen[at]
            if not self._take(_LOOK_INTERVAL) and source is not None:
                self._look()
        raise AssertionError(
            f"never {state} (by {source}): {self.states()}, {self._client.describe(explain=True)}"
        )

    def _look(self) -> None:
        """See the state as it is: no event reports when a better source says the same as another before."""
        try:
            document = self._client.describe()
        except (EOFError, OSError, RemudaError):  # its end; what it said before can still be heard
            return
        self._take(0)
        if document["state"] == self.seen[-1].get("state"):
            self.seen.append(document)

    def settled(self, state: str) -> dict[str, Any]:
        """Wait until the state holds and no lasting source shows another."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            document = self._client.describe()
            if document["state"] == state and not document["dissent"]:
                self._take(0)
                self.seen.append(document)
                self._at = len(self.seen) - 1
                return document
            self._take(0.05)
        raise AssertionError(f"never settled as {state}: {self._client.describe(explain=True)}")

    def states(self) -> list[str]:
        """What was passed through up to the state last waited for, each once in a row."""
        passed: list[str] = []
        for document in self.seen[: self._at + 1]:
            if not passed or passed[-1] != document["state"]:
                passed.append(str(document["state"]))
        return passed

    def lasting_states(self) -> list[str]:
        """The same of an agent that is called, less those that may be too short to be seen.

        "streaming" lasts for some milliseconds: on a busy machine the next state may come with it. There the
        keeper may also read the dialog on the screen just after the decision: "waiting_answer" for a moment.
        """
        lasting = (one for one in self.states() if one not in ("streaming", "waiting_answer"))
        return [state for state, _ in groupby(lasting)]

    def forget(self) -> None:
        del self.seen[:-1]
        self._at = 0
