"""remuda notify, remuda setup notify"""

from __future__ import annotations

import os
import subprocess
import threading
from http.client import HTTPException
from pathlib import Path
from typing import Any

import click

from remuda.boss.client import BossClient
from remuda.boss.folder import BossFolder
from remuda.boss.notices.notify_file import Receiver, find_settings, notify_file
from remuda.errors import EXIT_CODES, BossDown, NotInQueue, RemudaError

from .common import json_option, short_path
from .output import echo, print_json, style

_PUSH_TIMEOUT = 60.0
_HOW = """To be notified, write {file}. For a phone with the ntfy app:

  [[to]]
  ntfy = "https://ntfy.sh/TOPIC"    # a name that no one can guess

On the desktop: desktop = true instead of ntfy. A browser: 'Notices' on the page that 'remuda open' opens.
'remuda help approve-from-phone' has all steps."""


@click.command("notify")
@click.option("--test", is_flag=True, help="Send a test notice to each receiver.")
@json_option
def command(test: bool, as_json: bool) -> int:
    """List who is notified when an agent waits, or send each receiver a test notice.

    The test is sent at once: threshold, cooldown, quiet hours and reasons do not apply. It has no buttons,
    since there is nothing to decide. Browsers need a running boss, the others do not. Exits with 1 if a
    receiver did not accept it.

    \b
    Examples:
      remuda notify
      remuda notify --test
    """
    folder = BossFolder.default()
    path = notify_file(folder, os.environ)
    receivers = find_settings(folder, os.environ).receivers
    results = [_tried(one) if test else _listed(one) for one in receivers] + _browsers(test)
    if as_json:
        print_json({"file": str(path), "receivers": results})
    else:
        _print(path, results)
    return EXIT_CODES["FAILED"] if any(one.get("error") for one in results) else EXIT_CODES["OK"]


def _print(path: Path, results: list[dict[str, Any]]) -> None:
    file = short_path(str(path))
    if not results:
        echo(f"no one is notified: {file} {'has no receivers' if path.exists() else 'not found'}\n")
        echo(_HOW.format(file=file))
    for one in results:
        echo(_line(one))
        if one.get("advice"):
            echo(f"      {one['advice']}")


def _listed(receiver: Receiver) -> dict[str, Any]:
    from remuda.boss.notices.sending import place_of

    return {"to": place_of(receiver), "reasons": sorted(receiver.reasons)}


def _tried(receiver: Receiver) -> dict[str, Any]:
    """Send a test notice. `error` in the result is None if the receiver accepted it."""
    from remuda.boss.notices.sending import TIMEOUT, NoticeExchange, advice_of, reason_of, tell

    exchange, status, error, advice = NoticeExchange(), None, None, None
    deadline = threading.Timer(TIMEOUT, exchange.abort)
    deadline.start()
    try:
        status = tell(receiver, _notice(), exchange)
    except (OSError, ValueError, HTTPException, subprocess.SubprocessError) as failure:
        error, advice = reason_of(failure), advice_of(failure)
    finally:
        deadline.cancel()
    return _listed(receiver) | {"status": status, "error": error, "advice": advice}


def _notice() -> Any:
    from remuda.boss.attention.model import BossSession, Item, Reason
    from remuda.boss.notices.notification import Notice, words

    item = Item("test", "test", Reason.STOPPED, 0.0, "This is a test notice from Remuda.")
    return Notice(words(item, BossSession("test", name="test", cwd=os.getcwd())))


def _browsers(test: bool) -> list[dict[str, Any]]:
    """Ask the boss, which alone knows the browsers. Without a boss, or with an older one, there are none."""
    boss = BossClient()
    try:
        if not test:
            return [_browser(one) for one in boss.get("push")["browsers"]]
        return [
            _browser(one) | {name: one[name] for name in ("status", "error", "advice")}
            for one in boss.post("push", "test", timeout=_PUSH_TIMEOUT)["browsers"]
        ]
    except (BossDown, NotInQueue):
        return []
    except RemudaError as error:
        if type(error) is RemudaError:  # an older boss, which does not know the path
            return []
        return [
            {"to": "browsers", "reasons": [], "status": None, "error": error.message, "advice": error.hint}
        ]


def _browser(one: dict[str, Any]) -> dict[str, Any]:
    return {"to": f"the browser of login {one['id']} ({one['host']})", "reasons": []}


def _line(one: dict[str, Any]) -> str:
    if "error" not in one:
        return f"{one['to']}: {', '.join(one['reasons']) or 'as [push] in the file says'}"
    if one["error"] is None:
        status = f" (status {one['status']})" if one["status"] is not None else ""
        return f"{style('ok', fg='green')}    {one['to']} accepted the test notice{status}"
    return f"{style('fail', fg='red')}  {one['to']}: {one['error']}"
