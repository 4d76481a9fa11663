"""remuda pool serve"""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.errors import InvalidOptions, RemudaError
from remuda.pool.line import default_socket
from remuda.pool.protocol import MAX_FRAME_BYTES

from .common import complain, json_option, print_json, seconds
from .pool_look import socket_option

if TYPE_CHECKING:
    from remuda.pool.serve import ServeLimits

_AT_LEAST_ONE = click.IntRange(1)


def _limit(text: str) -> float | None:
    """Seconds; 0 is no limit."""
    return seconds(text) or None


@click.command("serve", short_help="Keep agents warm for other processes.")
@click.option("--size", type=_AT_LEAST_ONE, default=4, show_default=True, help="The most agents at one time.")
@click.option(
    "--backend",
    type=click.Choice(["terminal", "stream", "print"]),
    default="terminal",
    show_default=True,
    help="How they run: kept terminals, the CLI's own stream, or a fresh one for each request.",
)
@socket_option
@click.option(
    "--prewarm",
    type=click.IntRange(0),
    metavar="N",
    help="Have N stand ready for this folder and this environment, from the start.",
)
@click.option("--warmup-prompt", metavar="TEXT", help="What each prewarmed agent is asked once.")
@click.option(
    "--max-requests", type=_AT_LEAST_ONE, default=50, show_default=True, help="An agent serves so many."
)
@click.option(
    "--max-age", type=_limit, default="3600", show_default=True, metavar="SECONDS", help="0 is no limit."
)
@click.option(
    "--max-idle", type=_limit, default="600", show_default=True, metavar="SECONDS", help="0 is no limit."
)
@click.option(
    "--acquire-timeout",
    type=seconds,
    default="30",
    show_default=True,
    metavar="SECONDS",
    help="A request waits so long for an agent.",
)
@click.option("--spawn-timeout", type=seconds, default="30", show_default=True, metavar="SECONDS")
@click.option(
    "--default-timeout",
    type=seconds,
    default="300",
    show_default=True,
    metavar="SECONDS",
    help="Of a request that names none.",
)
@click.option(
    "--drain-timeout",
    type=seconds,
    default="30",
    show_default=True,
    metavar="SECONDS",
    help="At the end, what runs may go on so long.",
)
@click.option(
    "--permissions",
    type=click.Choice(["deny", "allow"]),
    default="deny",
    show_default=True,
    help="For tools that need one, where the request does not say.",
)
@click.option("--claude-binary", metavar="PATH", default="claude", help="The program to run.")
@click.option("--max-connections", type=_AT_LEAST_ONE, default=128, show_default=True)
@click.option(
    "--max-queue", type=click.IntRange(0), default=256, show_default=True, help="Requests that may wait."
)
@click.option(
    "--max-body-bytes", type=click.IntRange(1024, MAX_FRAME_BYTES), default=MAX_FRAME_BYTES, show_default=True
)
@click.option("--verbose", is_flag=True, help="Say on standard error what happens.")
@json_option
def command(
    size: int,
    socket: Path | None,
    prewarm: int | None,
    max_requests: int,
    max_age: float | None,
    drain_timeout: float,
    claude_binary: str,
    max_connections: int,
    max_queue: int,
    max_body_bytes: int,
    verbose: bool,
    as_json: bool,
    **others: Any,
) -> None:
    """Keep agents warm for other processes of this user. Runs until it is ended (Ctrl-C, 'remuda pool stop').

    A request brings its own folder and environment; an agent serves only requests that are alike in these, in
    model, tools, settings and permissions, one conversation after the other, and no request sees another's.

    \b
    Examples:
      remuda pool serve --size 4
      remuda pool serve --backend stream --prewarm 2
    """
    import asyncio

    from remuda.pool.serve import ServeLimits

    if prewarm is not None and prewarm > size:
        raise InvalidOptions(f"--prewarm {prewarm} is more than there are: --size {size}")
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    options = {
        "pool_size": size,
        "max_requests_per_session": max_requests,
        "max_session_age": max_age,
        "close_timeout": drain_timeout,
        "claude_binary": os.path.abspath(claude_binary) if os.sep in claude_binary else claude_binary,
        "inherit_env": False,
        **others,
    }
    limits = ServeLimits(max_connections, max_queue, max_body_bytes)
    path = str(socket or default_socket())
    asyncio.run(_serve(options, limits, path, prewarm, as_json=as_json))


async def _serve(
    options: dict[str, Any], limits: ServeLimits, path: str, prewarm: int | None, *, as_json: bool
) -> None:
    import asyncio

    from remuda.pool.client import Client
    from remuda.pool.serve import serving

    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    facts = {name: options[name] for name in ("default_timeout", "claude_binary")}
    client = Client(**options)
    async with serving(client, path, limits, **facts) as server:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
        _announce(path, options, as_json=as_json)
        steps = [
            asyncio.create_task(ended.wait()),
            asyncio.create_task(server.asked_to_stop.wait()),
        ]
        warming = asyncio.create_task(_prewarm(client, prewarm))
        await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
        for step in (*steps, warming):
            step.cancel()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)  # a second one ends us at once


async def _prewarm(client: Any, count: int | None) -> None:
    from remuda.pool.errand import whole_options

    if not count:
        return
    try:
        await client.prewarm(count, **whole_options({}, cwd=os.getcwd(), environ=os.environ))
    except RemudaError as error:
        complain(f"nothing stands ready: {error}")


def _announce(path: str, options: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        facts = {name: options[name] for name in ("pool_size", "backend")}
        print_json({"socket": path, "pid": os.getpid(), **facts})
    else:
        click.echo(f"serving {options['pool_size']} agents ({options['backend']}) at {path}; end with Ctrl-C")
