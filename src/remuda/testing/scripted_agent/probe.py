"""An agent on a terminal under observation: everything that a supervisor could see of it, kept for a test.

It drives the scripted agent and the real program alike, which is how the two are compared.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from remuda.testing.real_cli import PlainTerminal

from . import __name__ as _package

SCRIPTED = (sys.executable, "-m", _package)
"""The command line of the scripted agent."""
EVENTS = (
    *("SessionStart", "SessionEnd", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse"),
    *("PostToolUseFailure", "PostToolBatch", "MessageDisplay", "Notification", "Stop", "StopFailure"),
    *("PreCompact", "PostCompact", "InstructionsLoaded"),
)
PATIENCE = 30.0
"""How long to wait for what another process does; only ever reached by a test that fails."""
_ANSWER_PATIENCE = 4.0
_TITLE = re.compile(rb"\x1b\]0;(.*?)\x07")


def note_command(log: Path) -> str:
    """Return a hook's command that appends its payload as one line.

    ``dd`` collects everything before it writes, once: lines of hooks that run at the same time do not mix. A
    shell's own printf would write a long one in pieces.
    """
    return f"{{ cat; echo; }} | dd ibs=65536 obs=16777216 2> /dev/null >> '{log}'"


def whole_records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file that another process may be writing: without an unfinished last line."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in written[: written.rfind(b"\n") + 1].split(b"\n") if line]


class Probe:
    """Runs ``program`` in ``project``, with a hook on every event that only writes down its payload.

    ``flags`` may end in a prompt. ``hooks`` are further hooks by event, as a settings file holds them, alone
    or as a group with its matcher. ``env`` is the complete environment.
    """

    def __init__(
        self,
        program: Sequence[str],
        *flags: str,
        home: Path,
        project: Path,
        env: Mapping[str, str],
        hooks: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        observed: Sequence[str] = EVENTS,
        columns: int = 100,
        rows: int = 30,
    ) -> None:
        self._config = Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude")
        self._log = home / "hooks.jsonl"
        self._log_read = 0
        self._payloads: list[dict[str, Any]] = []
        # With a time of its own: a SessionEnd hook without one is cut short after a second and a half.
        note = {"type": "command", "command": note_command(self._log), "timeout": int(PATIENCE)}
        groups: dict[str, list[dict[str, Any]]] = {event: [{"hooks": [note]}] for event in observed}
        for event, added in (hooks or {}).items():
            groups.setdefault(event, []).extend(
                dict(hook) if "hooks" in hook else {"hooks": [dict(hook)]} for hook in added
            )
        settings = home / "probe-settings.json"
        settings.write_text(json.dumps({"hooks": groups}))
        self._size = columns, rows
        line = [*program, "--settings", str(settings), *flags]
        self.terminal = PlainTerminal(line, cwd=project, env=env, columns=columns, rows=rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.terminal.close()

    def until(self, condition: Callable[[], object], what: str, timeout: float = PATIENCE) -> None:
        """Wait for a condition; TimeoutError names it and shows the end of the output."""
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not happen; the end is {self.terminal.output[-500:]!r}")
            time.sleep(0.005)

    def ready(self) -> None:
        """Wait until a prompt can be pasted."""
        self.until(lambda: self.status == "idle" and self.count("SessionStart"), "the start")
        self.terminal.wait_for("❯".encode())

    def type(self, text: str) -> None:
        """Press these keys."""
        self.terminal.write(text.encode())

    def paste(self, text: str, *, submit: bool = True) -> None:
        """Paste, and press Enter."""
        self.type(f"\x1b[200~{text}\x1b[201~" + ("\r" if submit else ""))

    def answer(self, keys: str) -> None:
        """Press keys that answer the open dialog."""
        self.insist(keys, lambda: self.status != "waiting")

    def insist(self, keys: str, worked: Callable[[], object]) -> None:
        """Press keys in a dialog, and again if nothing happens: in its first moment it drops them."""
        for _ in range(5):
            self.type(keys)
            with suppress(TimeoutError):
                # Long enough for a loaded machine: what is pressed too late is text in the box.
                self.until(worked, f"an answer to {keys!r}", timeout=_ANSWER_PATIENCE)
                return
        raise TimeoutError(f"nothing answered {keys!r}; the end is {self.terminal.output[-500:]!r}")

    def turn(self, prompt: str, ends_with: str = "Stop") -> dict[str, Any]:
        """Paste a prompt and wait for the end of its turn; the payload of the event that reported it."""
        before = self.count(ends_with)
        self.paste(prompt)
        self.until(lambda: self.count(ends_with) > before, f"{ends_with} after {prompt!r}")
        self.settle()
        return [payload for payload in self.hooks if payload["hook_event_name"] == ends_with][before]

    def settle(self) -> None:
        """Wait until it is idle."""
        self.wait_for_status("idle")

    def wait_for_status(self, status: str) -> dict[str, Any]:
        """Wait for a status of the registry; its entry then."""
        seen: list[dict[str, Any]] = []

        def look() -> bool:
            seen[:] = [self.entry]
            return seen[0].get("status") == status

        self.until(look, f"status {status}")
        return seen[0]

    def wait_for_hook(self, event: str, count: int = 1) -> dict[str, Any]:
        """Wait until an event has fired that often; its payload then."""
        self.until(lambda: self.count(event) >= count, f"{event} number {count}")
        return [payload for payload in self.hooks if payload["hook_event_name"] == event][count - 1]

    def wait_for_exit(self, timeout: float = PATIENCE) -> int:
        """Wait for the end of the process; its exit code, negative for a signal."""
        return self.terminal.process.wait(timeout)

    @property
    def hooks(self) -> list[dict[str, Any]]:
        """The payloads so far."""
        try:
            with open(self._log, "rb") as log:
                log.seek(self._log_read)
                new = log.read()
        except FileNotFoundError:
            return []
        whole = new[: new.rfind(b"\n") + 1]
        self._log_read += len(whole)
        self._payloads += _objects(whole)
        return list(self._payloads)

    @property
    def events(self) -> list[str]:
        """The names of the events so far."""
        return [payload["hook_event_name"] for payload in self.hooks]

    def count(self, event: str) -> int:
        """Return how often an event has fired."""
        return self.events.count(event)

    @property
    def entry(self) -> dict[str, Any]:
        """The registry's entry; empty when there is none."""
        path = self._config / "sessions" / f"{self.terminal.process.pid}.json"
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                entry: dict[str, Any] = json.loads(path.read_bytes())
            except FileNotFoundError:
                return {}
            except ValueError:  # it is being written
                if time.monotonic() > deadline:
                    raise
            else:
                return entry

    @property
    def status(self) -> str | None:
        """The registry's status."""
        return self.entry.get("status")

    def transcript(self, session_id: str | None = None) -> list[dict[str, Any]]:
        """Return the lines of a conversation; without an id, of the one whose file is newest."""
        files = sorted(self._config.glob("projects/*/*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
        wanted = [path for path in files if session_id in (None, path.stem)]
        return whole_records(wanted[-1]) if wanted else []

    @property
    def titles(self) -> list[str]:
        """Every title that was set."""
        return [title.decode() for title in _TITLE.findall(self.terminal.output)]

    def screen(self) -> str:
        """Return what the terminal shows now."""
        from remuda.terminal.screen import open_screen

        screen = open_screen(*self._size)
        assert screen is not None, "the terminal emulator is missing"
        try:
            screen.feed(self.terminal.output)
            return "\n".join(screen.lines())
        finally:
            screen.close()


def _objects(lines: bytes) -> Iterator[dict[str, Any]]:
    """Yield what hooks wrote down. One that was ended as it ran has left an empty line, or a piece of one."""
    for line in lines.split(b"\n"):
        try:
            yield json.loads(line)
        except ValueError:
            continue
