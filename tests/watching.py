"""A kept agent under test: what it is told, and the states it passes through."""

from __future__ import annotations

import time
from typing import Any

from remuda.agents.claude.screen import open_dialog
from remuda.keeper.client import KeeperClient
from remuda.wire import connection as wire
from remuda.wire.connection import ClientConnection

PATIENCE = 30.0
_DIALOG_PATIENCE = 1.0


class Watcher:
    """Follows a session's states by its events; `seen` holds all of them in order."""

    def __init__(self, client: KeeperClient) -> None:
        self._client = client
        self.seen: list[dict[str, Any]] = [client.request("watch")]

    def paste(self, text: str) -> None:
        """As a terminal sends what its user pastes, with Enter behind it."""
        self.press(f"\x1b[200~{text}\x1b[201~\r".encode())

    def press(self, keys: bytes) -> None:
        self._client.send(ClientConnection.input(keys))

    def answer(self, keys: bytes) -> None:
        """Press these in an open dialog until they are taken.

        Not before it is drawn: the CLI holds a dialog back while somebody types. And again: it drops what is
        typed in a dialog's first moments, so that nobody answers it by accident.
        """
        asked = self._client.describe()["state"]
        while self._client.describe()["state"] == asked:
            if open_dialog(self._client.request("screen")["lines"]):
                self.press(keys)
                self._take(_DIALOG_PATIENCE)
            else:
                self._take(0.05)

    def _take(self, timeout: float) -> None:
        for event in self._client.receive(timeout):
            if isinstance(event, wire.EventReceived) and event.document.get("event") == "state":
                self.seen.append(event.document)

    def until(self, state: str, *, source: str | None = None) -> dict[str, Any]:
        """Wait for the state, as it is or as it comes. Told by `source`, if one is named."""

        def fits(document: dict[str, Any]) -> bool:
            return document.get("state") == state and source in (None, document.get("source"))

        if fits(self.seen[-1]):
            return self.seen[-1]
        deadline = time.monotonic() + PATIENCE
        while (left := deadline - time.monotonic()) > 0:
            for event in self._client.receive(left):
                if isinstance(event, wire.EventReceived) and event.document.get("event") == "state":
                    self.seen.append(event.document)
                    if fits(event.document):
                        return event.document
        raise AssertionError(
            f"never {state} (by {source}): {self.states()}, {self._client.describe(explain=True)}"
        )

    def settled(self, state: str) -> dict[str, Any]:
        """Wait until the state holds and no lasting source shows another."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            document = self._client.describe()
            if document["state"] == state and not document["dissent"]:
                self.seen.append(document)
                return document
            self._take(0.05)
        raise AssertionError(f"never settled as {state}: {self._client.describe(explain=True)}")

    def states(self) -> list[str]:
        """What was passed through, each once in a row."""
        passed: list[str] = []
        for document in self.seen:
            if not passed or passed[-1] != document["state"]:
                passed.append(str(document["state"]))
        return passed

    def forget(self) -> None:
        del self.seen[:-1]
