"""remuda open"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.boss.client import BossClient
from remuda.duration import show_duration
from remuda.errors import BossDown, BossExists

from .boss import DEFAULT_PORT, access_table
from .common import config_option, configuration, json_option
from .output import echo, print_json, print_lines, print_table

if TYPE_CHECKING:
    from remuda.config import Config


@click.command("open")
@click.option("--print", "prints", is_flag=True, help="Print the login link instead of opening a browser.")
@click.option("--qr", is_flag=True, help="Show the login link as a QR code, for a phone.")
@click.option("--logins", is_flag=True, help="List the browsers that are logged in.")
@click.option("--revoke", metavar="ID", help="End a login, or 'all'.")
@config_option
@json_option
def command(
    prints: bool, qr: bool, logins: bool, revoke: str | None, config_file: Path | None, as_json: bool
) -> None:
    """Open the page in a browser: the queue, all agents and their terminals.

    Starts the boss if none runs. The browser gets a login link that works once, within 60 seconds, and stays
    logged in for 30 days. --print and --qr use [boss] public_url if it is set, else this machine's address.

    \b
    Examples:
      remuda open
      remuda open --print
      remuda open --logins
      remuda open --revoke all
    """
    if sum((prints, qr, logins, revoke is not None)) > 1:
        raise click.UsageError("--print, --qr, --logins and --revoke exclude each other")
    client = BossClient()
    if logins:
        _list(client.get("logins")["logins"], as_json)
        return
    if revoke is not None:
        _revoke(client, revoke, as_json)
        return
    start_boss(client, configuration(config_file, strict=False))
    link = client.post("logins", "links")
    local, *elsewhere = link["urls"]
    url = elsewhere[0] if elsewhere and (prints or qr) else local
    if as_json:
        print_json({"url": url, "seconds": link["seconds"]})
    elif qr:
        _show_code(url, is_local=not elsewhere)
    elif prints or not _open_browser(url):
        echo(url)


def start_boss(client: BossClient, config: Config) -> None:
    try:
        client.get("health")
        return
    except BossDown:
        pass
    from remuda.boss.detach import start_detached

    port = int(config.boss.get("port", DEFAULT_PORT))
    try:
        start_detached(
            client.folder,
            port,
            config.log_level,
            config.log_max_bytes,
            any_port="port" not in config.boss,
            access=access_table(config),
        )
    except BossExists:
        pass  # another command was quicker
    else:
        echo("started the boss", err=True)


def _open_browser(url: str) -> bool:
    """Return False where no browser can be opened: then the link is printed."""
    has_screen = sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if os.environ.get("SSH_CONNECTION") and not os.environ.get("BROWSER"):
        has_screen = False
    if not has_screen:
        echo("no browser can be opened from here; open this link within 60 seconds:", err=True)
        return False
    import webbrowser

    if not webbrowser.open(url):
        echo("no browser was found; open this link within 60 seconds:", err=True)
        return False
    echo("opened the page in your browser; press the button there within 60 seconds")
    return True


def _show_code(url: str, *, is_local: bool) -> None:
    import segno

    matrix = [[bool(module) for module in row] for row in segno.make(url, error="l", micro=False).matrix]
    print_lines(code_lines(matrix))
    echo(url)
    if is_local:
        echo("this link works on this machine only; for a phone see 'remuda help open-the-page'", err=True)


def code_lines(matrix: list[list[bool]]) -> list[str]:
    """Return a QR code in half blocks: two of its rows in each line.

    Light modules are drawn: most terminals are dark, and phones read inverted codes badly.
    """
    border = 2
    width = len(matrix[0]) + 2 * border
    empty = [[False] * width for _ in range(border)]
    rows = [*empty, *([False] * border + row + [False] * border for row in matrix), *empty]
    if len(rows) % 2:
        rows.append([True] * width)  # no module: nothing is drawn
    blocks = {(False, False): "█", (False, True): "▀", (True, False): "▄", (True, True): " "}
    return [
        "".join(blocks[pair] for pair in zip(upper, lower, strict=True))
        for upper, lower in zip(rows[::2], rows[1::2], strict=True)
    ]


def _list(logins: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json({"logins": logins})
        return
    if not logins:
        echo("no browser is logged in; 'remuda open' logs one in")
        return
    now = time.time()
    rows = [
        [
            login["id"],
            f"{show_duration(max(0.0, now - login['created_at']))} ago",
            f"{show_duration(max(0.0, now - login['used_at']))} ago",
            f"in {show_duration(max(0.0, login['expires_at'] - now))}",
            login["address"],
            login["client"],
        ]
        for login in logins
    ]
    print_table(["ID", "CREATED", "LAST USED", "EXPIRES", "ADDRESS", "BROWSER"], rows)


def _revoke(client: BossClient, login: str, as_json: bool) -> None:
    revoked = client.post("logins", login, "revoke")["revoked"]
    if as_json:
        print_json({"revoked": revoked})
    else:
        echo(f"ended {revoked} login{'s' if revoked != 1 else ''}")
