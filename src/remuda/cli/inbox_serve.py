"""remuda inbox serve"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.paths import private_folder

from .common import json_option
from .inbox_put import max_bytes_option
from .inbox_target import check_parent, find_target, inbox_argument, inbox_options, session_of
from .output import echo, print_json
from .sendable import check_agent, check_sendable

_CANCEL_TIMEOUT = 10.0

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.inbox.serve import InjectServer


@click.command("serve", short_help="Accept messages over HTTP, on loopback.")
@inbox_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="Loopback address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port to listen on; 0 takes a free one and prints it.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File with the token; made if missing.  [default: .inject-token in the inbox]",
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
    """Accept messages over HTTP, on loopback, from clients that send the token. Runs until Ctrl-C.

    POST /inject accepts plain text, {"prompt": …} with dedup, delay, ttl, from and max_attempts, or
    claude-heartbeat's {"channel": …, "author": …, "content": …}. It returns {"ok": true, "id": …} when the
    message is on disk, and refuses what 'remuda send' refuses. POST /cancel {"id": …} cancels a message, or
    interrupts its turn. GET /status returns how many messages are waiting.

    \b
    Examples:
      remuda inbox serve work --port 3457
      curl -H "Authorization: Bearer $(cat TOKEN_FILE)" http://127.0.0.1:3457/inject -d '{"prompt": "hello"}'
    """
    import asyncio  # costs more than all other commands of the group together

    from remuda.admission.credentials import load_token
    from remuda.inbox.serve import TOKEN_NAME, InjectServer, loopback
    from remuda.keeper.cancel import cancel_message

    loopback(host)
    target = find_target(name, path, folder)
    check_agent(target)
    if target.session is None:
        check_parent(target.folder)
    private_folder(target.folder)
    token_path = token_file.expanduser().absolute() if token_file else target.folder / TOKEN_NAME

    def check(prompt: str, options: dict[str, Any]) -> None:
        check_sendable(target, prompt, command=False, literal=options.get("literal", False))

    def cancel(message: str) -> dict[str, Any]:
        return cancel_message(target.folder, message, session_of(target.folder), _CANCEL_TIMEOUT).document()

    server = InjectServer(
        target.folder, load_token(token_path), max_prompt_bytes=max_bytes, check=check, cancel=cancel
    )

    def announce() -> None:
        if as_json:
            print_json({"url": server.url, "token_file": str(token_path), "inbox": str(target.folder)})
            return
        echo(f"serving {target.folder} at {server.url}/inject")
        echo(f"token: {token_path}; stop with Ctrl-C")

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
