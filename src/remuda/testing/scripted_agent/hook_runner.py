"""Which hooks an event has, all run at the same time, and what their answers add up to.

A hook is a command with the payload on stdin, or a POST to loopback. It fails open, always.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from .agent_loop import Future, Loop, gather
from .settings import Hook

# ── one hook ──


@dataclass(frozen=True, slots=True)
class Answer:
    """What a hook gave back: JSON that was understood, or the text of exit code 2."""

    hook: Hook
    output: Mapping[str, Any]
    complaint: str = ""
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """How the program names the hook to the user, and to the model."""
        return self.hook.target


class Run:
    """One run of a hook. :meth:`result` blocks, in a thread; :meth:`cancel` ends it from any other."""

    def __init__(
        self, hook: Hook, payload: bytes, environ: Mapping[str, str], cwd: str, timeout: float
    ) -> None:
        self._hook = hook
        self._payload = payload
        self._environ = environ
        self._cwd = cwd
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def result(self) -> Answer:
        """Return the answer; an empty one for a hook that failed in whatever way."""
        started = time.monotonic()
        try:
            output, complaint = self._post() if self._hook.kind == "http" else self._execute()
        except (OSError, ValueError, subprocess.SubprocessError):
            output, complaint = {}, ""
        return Answer(self._hook, output, complaint, time.monotonic() - started)

    def cancel(self) -> None:
        """End it: the process with all its group, or the connection."""
        if self._process is not None:
            _kill_group(self._process.pid)
        if self._connection is not None:
            try:
                self._connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # it has ended
                pass

    def _execute(self) -> tuple[Mapping[str, Any], str]:
        hook = self._hook
        line = ["/bin/sh", "-c", hook.target] if hook.arguments is None else [hook.target, *hook.arguments]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            line,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=self._environ,
            cwd=self._cwd,
            start_new_session=True,
        )
        self._process = process
        try:
            output, errors = process.communicate(self._payload, timeout=self._timeout)
        except subprocess.TimeoutExpired:
            _kill_group(process.pid)
            process.communicate()
            raise
        if process.returncode == 2:
            return {}, errors.decode("utf-8", "replace").strip()
        return (_parsed(output) if process.returncode == 0 else {}), ""

    def _post(self) -> tuple[Mapping[str, Any], str]:
        url = urlsplit(self._hook.target)
        if (
            url.scheme != "http"
            or not _is_loopback(url.hostname or "")
            or _goes_through_proxy(url, self._environ)
        ):
            return {}, ""
        host, port = url.hostname or "", url.port or 80
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        headers = {"Host": f"{host}:{port}", "Content-Length": str(len(self._payload)), **self._headers()}
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        if " " in path or any(re.search(r"[\r\n\0]", line) for line in lines):
            raise ValueError("not a request")
        with socket.create_connection((host, port), self._timeout) as connection:
            self._connection = connection
            connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + self._payload)
            status, body = _read_response(connection)
            return (_parsed(body) if status == 200 else {}), ""

    def _headers(self) -> dict[str, str]:
        def value_of(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            return self._environ.get(name, "") if name in self._hook.allowed_variables else ""

        given = {
            name: re.sub(r"\$\{(\w+)\}|\$(\w+)", value_of, text) for name, text in self._hook.headers.items()
        }
        return {"Content-Type": "application/json", "User-Agent": "remuda-scripted-agent", **given}


def _read_response(connection: socket.socket) -> tuple[int, bytes]:
    """Return status and body. Not by `http.client`: its imports take a quarter of the time of a start."""
    data = b""
    while piece := connection.recv(65536):
        data += piece
        head, found, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if found and length and len(body) >= int(length[1]):
            break
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]) if head.startswith(b"HTTP/1.") else 0, body


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _parsed(output: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(output)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None


def _goes_through_proxy(url: SplitResult, environ: Mapping[str, str]) -> bool:
    """Whether the real program would send this through a proxy, so that it never arrives."""
    variables = {name.lower(): value for name, value in environ.items()}
    if not variables.get("http_proxy"):
        return False
    spared = [entry.strip() for entry in variables.get("no_proxy", "").split(",")]
    return not any(entry in ("*", url.hostname, f"{url.hostname}:{url.port}") for entry in spared)


# ── the hooks of one event ──

DEFAULT_TIMEOUT = 600.0
# SessionEnd is cut short, unless the hook or the environment grants it more.
SESSION_END_TIMEOUT = 1.5
# These never arrive over http.
_COMMAND_ONLY = frozenset({"SessionStart", "Setup"})


@dataclass(frozen=True, slots=True)
class HookVerdict:
    """The sum of all answers to an event."""

    answers: Sequence[Answer] = ()

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """Every block: who said it and why, in the words the model is given."""
        complaints = [(a.name, f"[{a.name}]: {a.complaint}") for a in self.answers if a.complaint]
        blocking = (answer for answer in self.answers if answer.output.get("decision") == "block")
        return complaints + [(answer.name, str(answer.output.get("reason") or "")) for answer in blocking]

    @property
    def halt(self) -> str | None:
        """The reason of an answer with ``continue: false``."""
        for answer in self.answers:
            if answer.output.get("continue") is False:
                return str(answer.output.get("stopReason") or "")
        return None

    def specific(self, event: str) -> list[Mapping[str, Any]]:
        """Return the ``hookSpecificOutput`` objects meant for that event."""
        outputs = (answer.output.get("hookSpecificOutput") for answer in self.answers)
        return [found for found in outputs if isinstance(found, dict) and found.get("hookEventName") == event]

    @property
    def contexts(self) -> list[str]:
        """Every ``additionalContext``."""
        specifics = (answer.output.get("hookSpecificOutput") for answer in self.answers)
        found = (item.get("additionalContext") for item in specifics if isinstance(item, dict))
        return [text for text in found if isinstance(text, str)]


class Hooks:
    """Fires events. ``load`` gives the hooks of this moment, ``environ`` the environment for one event."""

    def __init__(
        self, loop: Loop, load: Callable[[], Sequence[Hook]], environ: Mapping[str, str], cwd: str
    ) -> None:
        self._loop = loop
        self._load = load
        self._environ = environ
        self._cwd = cwd
        self._live: set[Run] = set()

    def of(self, event: str, subject: str = "") -> list[Hook]:
        """Return the hooks of an event whose matcher fits; of identical ones only the first."""
        found: dict[tuple[object, ...], Hook] = {}
        for hook in self._load():
            unreachable = hook.kind == "http" and event in _COMMAND_ONLY
            if hook.event == event and not unreachable and _matches(hook.matcher, subject):
                found.setdefault((hook.kind, hook.target, hook.arguments), hook)
        return list(found.values())

    async def fire(
        self, payload: Mapping[str, Any], environ: Mapping[str, str], subject: str = ""
    ) -> HookVerdict:
        """Run the event's hooks and wait for the slowest. Thrown at, it ends them all."""
        runs = self._start(payload, environ, subject)
        try:
            return HookVerdict(await gather(future for _, future in runs))
        except BaseException:
            for run, _ in runs:
                run.cancel()
            raise

    def fire_and_forget(
        self, payload: Mapping[str, Any], environ: Mapping[str, str], subject: str = ""
    ) -> None:
        """Run the event's hooks without waiting for them."""
        self._start(payload, environ, subject)

    def cancel_all(self) -> None:
        """End every hook that still runs."""
        for run in tuple(self._live):
            run.cancel()

    def _start(
        self, payload: Mapping[str, Any], environ: Mapping[str, str], subject: str
    ) -> list[tuple[Run, Future[Answer]]]:
        event = payload["hook_event_name"]
        hooks = self.of(event, subject)
        if not hooks:
            return []
        body = json.dumps(payload, ensure_ascii=False).encode() + b"\n"
        variables = {**self._environ, **environ}
        waited = []
        for hook in hooks:
            run = Run(hook, body, variables, self._cwd, self._timeout(hook, event))
            future = self._launch(run)
            if not hook.in_background:
                waited.append((run, future))
        return waited

    def _launch(self, run: Run) -> Future[Answer]:
        self._live.add(run)
        future = self._loop.in_thread(run.result)
        future.when_done(lambda: self._live.discard(run))
        return future

    def _timeout(self, hook: Hook, event: str) -> float:
        if hook.timeout is not None:
            return hook.timeout
        if event != "SessionEnd":
            return DEFAULT_TIMEOUT
        granted = self._environ.get("CLAUDE_CODE_SESSIONEND_HOOKS_TIMEOUT_MS", "")
        return int(granted) / 1000 if granted.isdigit() else SESSION_END_TIMEOUT


def _matches(matcher: str, subject: str) -> bool:
    if matcher in ("", "*") or not subject:
        return True
    try:
        return re.fullmatch(matcher, subject) is not None
    except re.error:
        return False
