"""A server of codex or opencode behind a proxy that loses one call or its answer. Run as the program.

Without this, which step of a call a kill meets is chance on the real binaries.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

_PR_SET_PDEATHSIG = 1
Loss = Literal["call", "answer"]


class LossyServer:
    """Makes the program for a test. From `lose` on the next call of a prompt is never answered."""

    def __init__(self, real: Path, folder: Path) -> None:
        self.folder = folder / "lossy"
        self.folder.mkdir()
        self.program = self.folder / real.name
        words = shlex.join([sys.executable, __file__, str(real), str(self.folder)])
        self.program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        self.program.chmod(0o700)

    def lose(self, what: Loss) -> None:
        (self.folder / "lose").write_text(what)

    def lost(self) -> None:
        """Wait until it happened. An answer is lost when the agent has given it."""
        from support.keeper import until  # here: the program itself must start quickly

        until((self.folder / "lost").exists, "the loss of a call")


class _Loss:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def next(self) -> str:
        """Return what to lose of the call that comes now; empty for nothing. It is lost once."""
        with suppress(FileNotFoundError):
            os.rename(self._folder / "lose", self._folder / "loses")
            return (self._folder / "loses").read_text()
        return ""

    def happened(self) -> None:
        (self._folder / "lost").touch()


def _die_with_parent() -> Callable[[], None]:
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


# ── codex: messages over a WebSocket ──


async def _codex(argv: list[str], loss: _Loss) -> None:
    from websockets.asyncio.client import unix_connect
    from websockets.asyncio.server import unix_serve
    from websockets.exceptions import ConnectionClosed

    at = argv.index("--listen") + 1
    path = argv[at].removeprefix("unix://")
    behind = path + "r"
    Path(behind).unlink(missing_ok=True)
    server = await asyncio.create_subprocess_exec(
        *argv[:at], f"unix://{behind}", *argv[at + 1 :], preexec_fn=_die_with_parent()
    )
    while not os.path.exists(behind):  # it says nothing when it listens
        await asyncio.sleep(0.02)

    async def relay(client: Any) -> None:
        unanswered: set[object] = set()
        async with unix_connect(behind, uri="ws://localhost/", compression=None, max_size=None) as upstream:

            async def calls() -> None:
                async for data in client:
                    message = json.loads(data)
                    params = message.get("params") or {}
                    # The terminal makes turns too, for a title, without an id of ours.
                    is_prompt = str(params.get("clientUserMessageId")).startswith("m")
                    what = loss.next() if is_prompt else ""
                    if what == "call":
                        loss.happened()
                        continue
                    if what:
                        unanswered.add(message["id"])
                    await upstream.send(data)

            async def answers() -> None:
                async for data in upstream:
                    message = json.loads(data)
                    if "method" not in message and message.get("id") in unanswered:
                        loss.happened()
                    else:
                        await client.send(data)

            await _first_ends(calls(), answers(), ConnectionClosed)

    Path(path).unlink(missing_ok=True)
    async with unix_serve(relay, path, compression=None, max_size=None):
        await server.wait()


async def _first_ends(one: Any, other: Any, *expected: type[Exception]) -> None:
    tasks = [asyncio.ensure_future(one), asyncio.ensure_future(other)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError, *expected):
            await task


# ── opencode: HTTP, where the keeper has a connection for each request ──


async def _opencode(argv: list[str], loss: _Loss) -> None:
    at = argv.index("--port") + 1
    server = await asyncio.create_subprocess_exec(
        *argv[:at], "0", *argv[at + 1 :], stdout=asyncio.subprocess.PIPE, preexec_fn=_die_with_parent()
    )
    assert server.stdout is not None
    found = None
    while found is None:
        line = await server.stdout.readline()
        if not line:
            return
        found = re.search(rb"listening on http://127\.0\.0\.1:(\d+)", line)
    behind = int(found[1])

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            is_prompt = b"/prompt_async " in head.splitlines()[0]
            what = loss.next() if is_prompt else ""
            if what == "call":
                loss.happened()
                await reader.read()  # until the caller gives up
                return
            upstream, downstream = await asyncio.open_connection("127.0.0.1", behind)
            downstream.write(head)
            answers = _lost(upstream, loss) if what else _copy(upstream, writer)
            try:
                await _first_ends(_copy(reader, downstream), answers, OSError)
            finally:
                downstream.close()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(relay, "127.0.0.1", int(argv[at])) as proxy:
        print(f"listening on http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}", flush=True)
        while await server.stdout.readline():
            pass
        await server.wait()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def _lost(reader: asyncio.StreamReader, loss: _Loss) -> None:
    await reader.readuntil(b"\r\n")
    loss.happened()
    await asyncio.Event().wait()  # until the caller gives up


def main() -> None:
    real, folder, *words = sys.argv[1:]
    serve = {"app-server": _codex, "serve": _opencode}.get(words[0] if words else "")
    if serve is None:
        os.execv(real, [real, *words])
    asyncio.run(serve([real, *words], _Loss(Path(folder))))


if __name__ == "__main__":
    main()
