"""What the warm pool is measured next to: one turn of the CLI, in every way in which others get one.

Each takes a prompt and gives the seconds until its answer was there, and checks the answer.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from remuda.terminal.pty import Pty, spawn
from remuda.testing.real_cli import RealCli

PROMPT = "hello"
PATIENCE = 60.0
_SETTLED = 0.3
"""A terminal that was cleared is drawn again."""


def check(said: object) -> None:
    assert re.fullmatch(rf"REPLY#\d+ to: {PROMPT}\n?", str(said)), said


@contextlib.contextmanager
def model_process() -> Iterator[str]:
    """A model that answers at once, in a process of its own: it takes no time from those we measure."""
    process = subprocess.Popen(
        [sys.executable, "-m", "remuda.testing.loopback_model"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip().partition("=")[2]
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield url
    finally:
        process.terminate()
        process.wait()


def claude_p(cli: RealCli) -> float:
    """From exec to exit."""
    began = time.monotonic()
    done = subprocess.run(
        cli.argv("-p", PROMPT),
        cwd=cli.project,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    taken = time.monotonic() - began
    check(done.stdout)
    return taken


# ── the Agent SDK ──


class Sdk:
    """The vendor's Python client, with the binary that all others run."""

    def __init__(self, cli: RealCli) -> None:
        self._sdk = importlib.import_module("claude_agent_sdk")
        self._options = self._sdk.ClaudeAgentOptions(
            cli_path=str(cli.binary), cwd=str(cli.project), env=cli.env
        )
        self._client: Any = None

    async def query(self) -> float:
        """A process for one prompt."""
        began = time.monotonic()
        async for message in self._sdk.query(prompt=PROMPT, options=self._options):
            if isinstance(message, self._sdk.ResultMessage):
                check(message.result)
        return time.monotonic() - began

    async def open(self) -> None:
        self._client = self._sdk.ClaudeSDKClient(self._options)
        await self._client.connect()

    async def turn(self) -> float:
        """One more turn of a conversation that goes on: nothing is cleared."""
        began = time.monotonic()
        await self._client.query(PROMPT)
        async for message in self._client.receive_response():
            if isinstance(message, self._sdk.ResultMessage):
                check(message.result)
        return time.monotonic() - began

    async def close(self) -> None:
        if self._client is not None:
            await self._client.disconnect()


# ── the raw protocol ──


class RawLoop:
    """The CLI's stream of messages in the fewest lines: a line in, lines out, up to the result."""

    def __init__(self, cli: RealCli) -> None:
        flags = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
        self._process = subprocess.Popen(
            cli.argv(*flags), cwd=cli.project, env=cli.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def turn(self, prompt: str = PROMPT) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps({"type": "user", "message": {"role": "user", "content": prompt}})
        began = time.monotonic()
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        for answer in self._process.stdout:
            message = json.loads(answer)
            if message.get("type") == "result":
                taken = time.monotonic() - began
                if prompt == PROMPT:
                    check(message["result"])
                return taken
        raise EOFError("the raw loop ended")

    def clear(self) -> float:
        return self.turn("/clear")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)


# ── the bare terminal ──


class BareTui:
    """The CLI on a terminal, a paste, and its own Stop hook: the floor of everything that uses a terminal."""

    def __init__(self, cli: RealCli) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        hook = [{"hooks": [{"type": "http", "url": url}]}]
        settings = json.dumps({"hooks": {"Stop": hook, "SessionEnd": hook}})
        flags = ("--settings", settings, "--permission-mode", "manual")
        self._pty: Pty = spawn(cli.argv(*flags), cwd=cli.project, env=cli.env, cols=220, rows=50)
        self._shown = b""
        self._until_shown(b"manual mode")
        self._drain(_SETTLED)

    def turn(self) -> float:
        """Paste to Stop."""
        self._drain(0.0)
        began = time.monotonic()
        os.write(self._pty.fd, f"\x1b[200~{PROMPT}\x1b[201~\r".encode())
        hook = self._next_hook()
        taken = time.monotonic() - began
        assert hook["hook_event_name"] == "Stop", hook
        check(hook["last_assistant_message"])
        self._drain(_SETTLED)
        return taken

    def clear(self) -> None:
        os.write(self._pty.fd, b"\x1b[200~/clear\x1b[201~\r")
        assert self._next_hook()["hook_event_name"] == "SessionEnd"
        self._drain(_SETTLED)

    def _next_hook(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            ready, _, _ = select.select([self._listener.fileno(), self._pty.fd], [], [], PATIENCE)
            if self._pty.fd in ready:
                self._pty.drain(b"")
            if self._listener.fileno() in ready:
                return self._hear()
        raise TimeoutError("the bare terminal's hook never came")

    def _hear(self) -> dict[str, Any]:
        connection, _ = self._listener.accept()
        with connection:
            data = b""
            while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < _length(data):
                data += connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        payload: dict[str, Any] = json.loads(data.partition(b"\r\n\r\n")[2])
        return payload

    def _until_shown(self, landmark: bytes) -> None:
        deadline = time.monotonic() + PATIENCE
        while landmark not in self._shown:
            assert time.monotonic() < deadline, self._shown[-500:]
            select.select([self._pty.fd], [], [], 0.1)
            with contextlib.suppress(BlockingIOError):
                self._shown += os.read(self._pty.fd, 65536)

    def _drain(self, quiet: float) -> None:
        """Until it has printed nothing for this long."""
        while select.select([self._pty.fd], [], [], quiet)[0]:
            try:
                os.read(self._pty.fd, 65536)
            except BlockingIOError:
                continue
            except OSError:  # it has ended
                time.sleep(quiet)
                return

    def close(self) -> None:
        os.kill(self._pty.pid, signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        while os.waitpid(self._pty.pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
            self._drain(0.02)
        self._pty.close()
        self._listener.close()


def _length(data: bytes) -> int:
    for line in data.partition(b"\r\n\r\n")[0].lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0
