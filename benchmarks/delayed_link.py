"""A link that is slow, and not narrow: `python delayed_link.py SECONDS PORT:HOST:PORT…`.

Every byte comes out SECONDS after it went in, in both directions, for kernels without netem. It prints a line
when it listens.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial

_READ_BYTES = 1 << 16
_UNDER_WAY = 512
"""Reads that are under way: 32 MB, more than any window here."""


async def _carry(delay: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_UNDER_WAY)

    async def take() -> None:
        data = b"more"
        while data:
            try:
                data = await reader.read(_READ_BYTES)
            except OSError:
                data = b""
            await queue.put((loop.time() + delay, data))

    taking = asyncio.create_task(take())
    try:
        while True:
            due, data = await queue.get()
            if not data:
                break
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            writer.write(data)
            await writer.drain()
    except OSError:
        taking.cancel()
    writer.close()


async def _accept(
    delay: float, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    there, onward = await asyncio.open_connection(host, port)
    await asyncio.gather(_carry(delay, reader, onward), _carry(delay, there, writer))


async def _main(delay: float, links: list[str]) -> None:
    for link in links:
        port, host, target = link.split(":")
        await asyncio.start_server(partial(_accept, delay, host, int(target)), "127.0.0.1", int(port))
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(float(sys.argv[1]), sys.argv[2:]))
