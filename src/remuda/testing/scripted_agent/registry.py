"""``sessions/<pid>.json``: what the process says of itself to whoever looks. Gone after a clean exit."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from . import ENTRYPOINT, VERSION


class Registry:
    """One process's entry. It has no status until the first :meth:`update`."""

    def __init__(self, config: Path, session_id: str, cwd: str, name: str | None) -> None:
        pid = os.getpid()
        self._path = config / "sessions" / f"{pid}.json"
        started = _milliseconds()
        # What belongs to talking with other sessions (socket, peer protocol) is left out: there is none here.
        self._entry: dict[str, object] = {
            "pid": pid,
            "sessionId": session_id,
            "cwd": cwd,
            "startedAt": started,
            "procStart": _process_start(),
            "version": VERSION,
            "kind": "interactive",
            "entrypoint": ENTRYPOINT,
            "name": name or f"{Path(cwd).name}-{os.urandom(1).hex()}",
            "nameSource": "user" if name else "derived",
            "nameSince": started,
        }
        self._write()

    @property
    def status(self) -> object:
        """The status as it was last written."""
        return self._entry.get("status")

    def update(self, status: str, waiting_for: str | None = None, session_id: str | None = None) -> None:
        """Write a new status, unless nothing changed."""
        entry = {key: value for key, value in self._entry.items() if key != "waitingFor"}
        entry["status"] = status
        if session_id is not None:
            entry["sessionId"] = session_id
        if waiting_for is not None:
            entry["waitingFor"] = waiting_for
        if entry != self._entry:
            self._entry = entry | {"updatedAt": _milliseconds(), "statusUpdatedAt": _milliseconds()}
            self._write()

    def remove(self) -> None:
        """The process ends cleanly."""
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._path.with_suffix(".tmp")
        draft.write_text(json.dumps(self._entry, ensure_ascii=False, separators=(",", ":")))
        draft.replace(self._path)


def _milliseconds() -> int:
    return int(time.time() * 1000)


def _process_start() -> str:
    """When this process began, as its system tells it: by that a reused process id is told from it."""
    try:
        status = Path("/proc/self/stat").read_text()
    except OSError:
        words = ["ps", "-o", "lstart=", "-p", str(os.getpid())]
        env = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
        return subprocess.run(words, env=env, capture_output=True, text=True, check=False).stdout.strip()
    # Behind the program's name, which may hold anything: the 22nd field of the whole line.
    return status.rpartition(")")[2].split()[19]
