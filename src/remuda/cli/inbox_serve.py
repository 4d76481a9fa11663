"""remuda inbox serve"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.paths import private_folder

from .common import json_option, print_json
from .inbox_put import max_bytes_option
from .inbox_target import find_target, inbox_argument, inbox_options
from .sendable import check_agent, check_sendable

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.inbox.serve import InjectServer


@click.command("serve", short_help="Take messages over HTTP, on loopback.")
@inbox_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="A loopback address.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="0 takes a free one; it is printed.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="Holds the token; made if missing.  [default: .inject-token in the inbox's folder]",
)
@max_bytes_option
@inbox_options
@json_option
def command(
    name: str | None,
    host: str,
    port: int,
    token_file: Path | None,
    max_bytes: int,
    path: Path | None,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Take messages over HTTP, on loopback, from whoever has the token. Runs until it is ended.

    POST /inject takes a text, {"prompt": …} with dedup, delay, ttl, from and max_attempts, or
    claude-heartbeat's {"channel": …, "author": …, "content": …}. It answers {"ok": true, "id": …} when the
    message is on the disk. What 'remuda send' refuses it refuses too. GET /status tells how many wait.

    \b
    Examples:
      remuda inbox serve work --port 3457
      curl -H "Authorization: Bearer $(cat TOKEN_FILE)" http://127.0.0.1:3457/inject -d '{"prompt": "hello"}'
    """
    import asyncio  # costs more than all other commands of the group together

    from remuda.inbox.serve import TOKEN_NAME, InjectServer, load_token, loopback

    loopback(host)
    target = find_target(name, path, folder)
    check_agent(target)
    private_folder(target.folder)
    token_path = token_file.expanduser().absolute() if token_file else target.folder / TOKEN_NAME

    def check(prompt: str, options: dict[str, Any]) -> None:
        check_sendable(target, prompt, command=False, literal=options.get("literal", False))

    server = InjectServer(target.folder, load_token(token_path), max_prompt_bytes=max_bytes, check=check)

    def announce() -> None:
        if as_json:
            print_json({"url": server.url, "token_file": str(token_path), "inbox": str(target.folder)})
            return
        click.echo(f"serving {target.folder} at {server.url}/inject")
        click.echo(f"the token is in {token_path}; end with Ctrl-C")

    asyncio.run(_serve(server, host, port, announce))


async def _serve(server: InjectServer, host: str, port: int, announce: Callable[[], None]) -> None:
    import asyncio

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    await server.open(host, port)
    try:
        announce()
        await ended.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)  # a second one ends us at once
        await server.close()
