"""remuda inbox put and remuda inbox serve: messages from the command line and over HTTP"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.errors import InputError, InvalidOptions
from remuda.inbox.journal import Accepted, Inbox
from remuda.paths import private_folder

from .common import json_option
from .inbox_target import (
    InboxTarget,
    check_agent,
    check_parent,
    check_sendable,
    find_target,
    inbox_argument,
    inbox_options,
    session_of,
    with_word,
)
from .message_options import (
    decoded,
    dedup_option,
    max_bytes_option,
    message_options,
    read_prompt,
    schedule_options,
)
from .output import after_success, complain, echo, json_line, print_json

if TYPE_CHECKING:
    from remuda.inbox.serve import InjectServer

_CANCEL_TIMEOUT = 10.0


# ── remuda inbox put ──


@click.command("put", short_help="Put a message into an inbox.")
@inbox_argument
@click.argument("text", required=False, metavar="[TEXT|-]")
@schedule_options
@dedup_option
@message_options
@click.option("--lines", is_flag=True, help="Put each line of standard input as a message, as it arrives.")
@max_bytes_option
@inbox_options
@json_option
def put_command(
    name: str | None,
    text: str | None,
    path: Path | None,
    folder: Path | None,
    lines: bool,
    max_bytes: int,
    as_json: bool,
    command_: bool,
    **given: Any,
) -> int:
    """Put a message into an inbox. It is on disk when 'accepted ID' is printed.

    TEXT is the prompt; '-' or no TEXT reads it from standard input, without the newline at the end. If the
    session has ended, the message waits until it is back.

    \b
    Examples:
      remuda inbox put work "look at the failing tests"
      remuda inbox put work "write the weekly report" --delay 2h30m --dedup report-32
      tail -F errors.log | remuda inbox put work --lines --ttl 1h
    """
    name, text = with_word(name, text, path)
    target = find_target(name, path, folder)
    options = {key: value for key, value in {**given, "command": command_}.items() if value}
    check_agent(target)
    if lines:
        _check_lines(text, options)
        return _put_lines(target, max_bytes, options, as_json=as_json)
    prompt = text if text not in (None, "-") else read_prompt(max_bytes, asked=text == "-")
    accepted = _put(target, target.inbox(max_bytes), prompt, options)
    with after_success(f"{accepted.id} was accepted"):
        if as_json:
            print_json(_document(accepted, target))
        else:
            echo(_accepted_text(accepted, target))
    return 0


def _put(target: InboxTarget, inbox: Inbox, prompt: str, options: dict[str, Any]) -> Accepted:
    check_sendable(
        target, prompt, command=options.get("command", False), literal=options.get("literal", False)
    )
    return inbox.put(prompt, **options)


def _accepted_text(accepted: Accepted, target: InboxTarget) -> str:
    text = f"accepted {accepted.id}"
    if accepted.duplicate:
        return f"{text} (duplicate: a message with this key was accepted before)"
    return (
        f"{text} (session '{target.session}' has ended; the message waits)" if target.alive is False else text
    )


def _document(accepted: Accepted, target: InboxTarget) -> dict[str, Any]:
    return {"id": accepted.id, "duplicate": accepted.duplicate, "alive": target.alive}


# ── standard input ──


def _check_lines(text: str | None, options: dict[str, Any]) -> None:
    if text not in (None, "-"):
        raise InvalidOptions("TEXT does not go with --lines", hint="--lines reads standard input")
    if "dedup" in options:
        raise InvalidOptions(
            "--dedup does not go with --lines", hint="it would accept the first line and refuse the others"
        )


def _put_lines(target: InboxTarget, max_bytes: int, options: dict[str, Any], *, as_json: bool) -> int:
    """Put each line. A line that cannot be a prompt is reported and skipped; a disk error ends it."""
    inbox, code = target.inbox(max_bytes), 0
    for number, data in _numbered_lines(max_bytes):
        try:
            accepted = _put_line(target, inbox, data, max_bytes, options)
        except InputError as error:
            complain(f"line {number}: {error}")
            code = error.exit_code
        else:
            echo(json_line(_document(accepted, target)) if as_json else _accepted_text(accepted, target))
    return code


def _put_line(
    target: InboxTarget, inbox: Inbox, data: bytes, max_bytes: int, options: dict[str, Any]
) -> Accepted:
    if len(data) > max_bytes:
        raise InputError(f"the line has more than {max_bytes} bytes")
    return _put(target, inbox, decoded(data, "the line"), options)


def _numbered_lines(max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield lines that are not blank, without line ends. A line that is too long is cut above the limit."""
    source, number = sys.stdin.buffer, 0
    while line := source.readline(max_bytes + 2):
        number += 1
        kept = line.removesuffix(b"\n").removesuffix(b"\r")
        while not line.endswith(b"\n") and (line := source.readline(1 << 16)):
            pass
        if kept.strip():
            yield number, kept


# ── remuda inbox serve ──


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
def serve_command(
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
      curl -H "Authorization: Bearer $(cat TOKEN_FILE)" \\
        http://127.0.0.1:3457/inject -d '{"prompt": "hello"}'
    """
    import asyncio  # takes longer to load than all other commands of the group together

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
