"""The options of a message, and its prompt: what 'send' and 'inbox put' share"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from remuda.errors import InputError
from remuda.inbox.message import DEFAULT_MAX_BYTES
from remuda.inbox.stop_hook import MOST_ATTEMPTS

from . import declare
from .common import time_span

F = TypeVar("F", bound=Callable[..., Any])


def non_empty(text: str) -> str:
    """Parse an option that takes a name. An empty one comes from a shell variable that is not set."""
    if not text:
        raise declare.bad_value("the value is empty")
    return text


def lifetime(text: str) -> float:
    """Parse an option that takes a time to live."""
    span = time_span(text)
    if not span:
        raise declare.bad_value("the time must be longer than 0")
    return span


max_bytes_option = declare.option(
    "--max-bytes",
    type=declare.ClickType("IntRange", min=1),
    default=DEFAULT_MAX_BYTES,
    show_default=True,
    metavar="N",
    help="Refuse a prompt of more than N bytes.",
)


dedup_option = declare.option(
    "--dedup", type=non_empty, metavar="KEY", help="Accept at most one message with this key in a day."
)


def schedule_options(function: F) -> F:
    """When a message is delivered: --delay and --ttl."""
    for option in (
        declare.option(
            "--ttl",
            type=lifetime,
            metavar="TIME",
            help="Drop the message if it is not delivered within TIME.",
        ),
        declare.option(
            "--delay", type=time_span, metavar="TIME", help="Delay delivery by TIME (90, 45m, 2h30m)."
        ),
    ):
        function = option(function)
    return function


def message_options(function: F) -> F:
    """Who sends a message and how it is read: --from, --max-attempts, --command and --literal."""
    for option in (
        declare.option(
            "--literal", is_flag=True, help="Refuse TEXT with an @file that the agent would read."
        ),
        declare.option(
            "--command", "command_", is_flag=True, help="TEXT is a command of the agent, such as /compact."
        ),
        declare.option(
            "--max-attempts",
            type=declare.ClickType("IntRange", 1, MOST_ATTEMPTS),
            metavar="N",
            help="Attempts before the message is dead-lettered.  [default: 10]",
        ),
        declare.option(
            "--from",
            "sender",
            type=non_empty,
            metavar="WHO",
            help="Name of the sender, for receipts and bounces.  [send: the session that runs the command]",
        ),
    ):
        function = option(function)
    return function


# ── standard input ──


def read_prompt(max_bytes: int, *, asked: bool) -> str:
    from remuda.inbox.inject import without_line_end

    source = sys.stdin.buffer
    if not asked and sys.stdin.isatty():
        raise InputError("no prompt given", hint="give it as TEXT, or pipe it in; '-' reads the terminal")
    data = source.read(max_bytes + 2)
    if len(data) > max_bytes + 1:
        raise InputError(
            f"the prompt has more than {max_bytes} bytes",
            hint="put it into a file and send the path, or raise --max-bytes",
        )
    return without_line_end(decoded(data, "standard input"))


def decoded(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{what} is not valid UTF-8 (byte {error.start})", hint="convert it, for example with iconv"
        ) from None
