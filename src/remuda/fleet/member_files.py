"""Small files of a member: what it sent, and what of its own the hub must still get."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from remuda.durable import read_regular, replace_file, sync_folder
from remuda.inbox.stop_hook import iso_time
from remuda.paths import private_folder
from remuda.untrusted import BadJson, dump_json, finite, parse_object

_KEPT_SECONDS = 14 * 86400.0


class DurableMap:
    """A small table of strings in a file. A change is on the disk when the call returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, str] = {}
        try:
            document = parse_object(read_regular(path))
            self._values = {str(name): str(value) for name, value in document.items()}
        except (FileNotFoundError, BadJson):
            pass

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._values))

    def get(self, name: str) -> str | None:
        return self._values.get(name)

    def update(self, added: dict[str, str], removed: Collection[str] = ()) -> None:
        values = {name: value for name, value in self._values.items() if name not in removed} | added
        if values != self._values:
            private_folder(self._path.parent)
            replace_file(self._path, dump_json(values).encode())
            self._values = values


def append_line(path: Path, document: Mapping[str, Any]) -> None:
    """Append a line. It is on the disk when this returns; a line that a crash tore stays apart from it."""
    private_folder(path.parent)
    is_new = not path.exists()
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, (b"" if is_new else b"\n") + dump_json(document).encode() + b"\n")
        os.fsync(fd)
    finally:
        os.close(fd)
    if is_new:
        sync_folder(path.parent)


class SentMessages:
    """The messages that were sent from here to other hosts, one line for each fact."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._messages: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._load()

    def _load(self) -> None:
        try:
            lines = read_regular(self._path).split(b"\n")
        except FileNotFoundError:
            return
        for line in lines:
            try:
                document = parse_object(line) if line else {}
            except BadJson:  # torn by a crash
                continue
            if document.get("id"):
                self._messages.setdefault(str(document["id"]), {}).update(document)
        oldest = time.time() - _KEPT_SECONDS
        kept = {name: one for name, one in self._messages.items() if finite(one.get("sent_at")) > oldest}
        if len(kept) < len(self._messages) or len(lines) > 2 * len(kept) + 1000:
            self._messages = kept
            data = "".join(dump_json(one) + "\n" for one in kept.values())
            replace_file(self._path, data.encode())

    def note(self, message_id: str, **facts: Any) -> None:
        """Write facts about a message. They are on the disk when this returns."""
        self._messages.setdefault(message_id, {}).update({"id": message_id, **facts})
        append_line(self._path, {"id": message_id, **facts})

    def unsettled(self, now: float) -> list[str]:
        """Return messages that should have ended by `now`, the hub's time, and whose end is not noted."""
        return [
            name
            for name, one in self._messages.items()
            if not one.get("settled") and finite(one.get("expires")) < now
        ]

    def settle(self, receipt: Mapping[str, Any]) -> None:
        """Note that a message has ended; one that expired gets a bounce, once."""
        message_id = str(receipt["id"])
        with self._lock:
            if (self._messages.get(message_id) or {}).get("settled"):
                return
            if receipt["stage"] == "expired":
                bounce = {"id": message_id, "to": f"{receipt['host']}/{receipt['session']}"}
                bounce |= {"bounced": "expired", "reason": receipt["steps"][-1]["reason"], "at": iso_time()}
                append_line(self._path.with_name("outbox.jsonl"), bounce)
            self.note(message_id, settled=True)

    def get(self, message_id: str) -> dict[str, Any] | None:
        return self._messages.get(message_id)

    def matching(self, beginning: str) -> list[str]:
        return [name for name in self._messages if name.startswith(beginning)]

    def to(self, host: str, session: str) -> list[dict[str, Any]]:
        return [
            one for one in self._messages.values() if (one.get("host"), one.get("session")) == (host, session)
        ]
