"""Running one hook: a command with the payload on stdin, or a POST to loopback. Fails open, always."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import SplitResult, urlsplit

from .settings import Hook


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
        self._connection: HTTPConnection | None = None

    def result(self) -> Answer:
        """Return the answer; an empty one for a hook that failed in whatever way."""
        started = time.monotonic()
        try:
            output, complaint = self._post() if self._hook.kind == "http" else self._execute()
        except (OSError, ValueError, HTTPException, subprocess.SubprocessError):
            output, complaint = {}, ""
        return Answer(self._hook, output, complaint, time.monotonic() - started)

    def cancel(self) -> None:
        """End it: the process with all its group, or the connection."""
        if self._process is not None:
            _kill_group(self._process.pid)
        if self._connection is not None and self._connection.sock is not None:
            self._connection.sock.close()

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
        self._connection = HTTPConnection(url.hostname or "", url.port or 80, timeout=self._timeout)
        try:
            path = (url.path or "/") + (f"?{url.query}" if url.query else "")
            self._connection.request("POST", path, self._payload, self._headers())
            response = self._connection.getresponse()
            body = response.read()
            return (_parsed(body) if response.status == 200 else {}), ""
        finally:
            self._connection.close()

    def _headers(self) -> dict[str, str]:
        def value_of(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            return self._environ.get(name, "") if name in self._hook.allowed_variables else ""

        given = {
            name: re.sub(r"\$\{(\w+)\}|\$(\w+)", value_of, text) for name, text in self._hook.headers.items()
        }
        return {"Content-Type": "application/json", "User-Agent": "remuda-scripted-agent", **given}


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
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _goes_through_proxy(url: SplitResult, environ: Mapping[str, str]) -> bool:
    """Whether the real program would send this through a proxy, so that it never arrives."""
    variables = {name.lower(): value for name, value in environ.items()}
    if not variables.get("http_proxy"):
        return False
    spared = [entry.strip() for entry in variables.get("no_proxy", "").split(",")]
    return not any(entry in ("*", url.hostname, f"{url.hostname}:{url.port}") for entry in spared)
