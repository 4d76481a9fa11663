"""remuda notify"""

from __future__ import annotations

import os
import subprocess
import threading
from http.client import HTTPException
from typing import Any

import click

from remuda.boss.folder import BossFolder
from remuda.boss.notices.notification import Receiver, load_settings, notify_file, words
from remuda.errors import EXIT_CODES

from .common import json_option, short_path
from .output import echo, print_json, style


@click.command("notify")
@click.option("--test", is_flag=True, help="Send a test notice to each receiver.")
@json_option
def command(test: bool, as_json: bool) -> int:
    """List who is notified when an agent waits, or send each receiver a test notice.

    The test is sent from here, at once: threshold, cooldown, quiet hours and reasons do not apply. It has no
    link, since there is nothing to decide. Needs no boss. Exits with 1 if a receiver did not accept it.

    \b
    Examples:
      remuda notify
      remuda notify --test
    """
    path = notify_file(BossFolder.default(), os.environ)
    receivers = load_settings(path).receivers
    results = [_tried(one) if test else _listed(one) for one in receivers]
    if as_json:
        print_json({"file": str(path), "receivers": results})
    elif not results:
        echo(f"no one is notified: {short_path(str(path))} has no receivers")
    else:
        for one in results:
            echo(_line(one))
    return EXIT_CODES["FAILED"] if any(one.get("error") for one in results) else EXIT_CODES["OK"]


def _listed(receiver: Receiver) -> dict[str, Any]:
    from remuda.boss.notices.sending import place_of

    return {"to": place_of(receiver), "reasons": sorted(receiver.reasons)}


def _tried(receiver: Receiver) -> dict[str, Any]:
    """Send a test notice. `error` in the result is None if the receiver accepted it."""
    from remuda.boss.notices.sending import TIMEOUT, NoticeExchange, reason_of, send, show

    exchange, error = NoticeExchange(), None
    deadline = threading.Timer(TIMEOUT, exchange.abort)
    deadline.start()
    try:
        (show if receiver.desktop else send)(receiver, _fields(), exchange)
    except (OSError, ValueError, HTTPException, subprocess.SubprocessError) as failure:
        error = reason_of(failure)
    finally:
        deadline.cancel()
    return _listed(receiver) | {"error": error}


def _fields() -> dict[str, str]:
    from remuda.boss.attention.model import Item, Reason, Session

    item = Item("test", "test", Reason.STOPPED, 0.0, "This is a test notice from Remuda.")
    return words(item, Session("test", name="test", cwd=os.getcwd()))


def _line(one: dict[str, Any]) -> str:
    if "error" not in one:
        return f"{one['to']}: {', '.join(one['reasons'])}"
    if one["error"] is None:
        return f"{style('ok', fg='green')}    {one['to']} accepted the test notice"
    return f"{style('fail', fg='red')}  {one['to']}: {one['error']}"
