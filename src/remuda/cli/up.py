"""remuda up"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.boss.folder import BossFolder
from remuda.paths import private_folder

from .common import config_option, configuration, json_option, short_path
from .output import echo, print_json

if TYPE_CHECKING:
    from remuda.boss.ports import Boss
    from remuda.config import Config

DEFAULT_PORT = 4127


@click.command("up")
@click.option("--detach", is_flag=True, help="Run in the background; return once it is ready.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"Port on 127.0.0.1; 0 picks a free one.  [default: [boss] port, else {DEFAULT_PORT} or a free one]",
)
@click.option(
    "--print-token", "show_token", is_flag=True, help="Print the token of its HTTP interface, and exit."
)
@click.option(
    "--install", is_flag=True, help="Write a systemd unit or launchd plist that starts it at login."
)
@click.option("--uninstall", is_flag=True, help="Remove that file.")
@config_option
@json_option
def command(
    detach: bool,
    port: int | None,
    show_token: bool,
    install: bool,
    uninstall: bool,
    config_file: Path | None,
    as_json: bool,
) -> None:
    """Start the boss: the process that keeps the queue of waiting agents. One runs per user.

    Stopping or killing it loses nothing. Sessions keep running, hooks store their events on disk, and the
    next boss reads them.

    \b
    Examples:
      remuda up --detach
      remuda up --port 4200
      remuda up --install          start it at every login, by systemd or launchd
      curl -H "Authorization: Bearer $(remuda up --print-token)" http://127.0.0.1:4127/v1/queue
    """
    if sum((detach, show_token, install, uninstall)) > 1:
        raise click.UsageError("--detach, --print-token, --install and --uninstall exclude each other")
    folder = BossFolder.default()
    if show_token:
        print_token()
    elif install or uninstall:
        from .up_service import install_service, uninstall_service

        uninstall_service(as_json) if uninstall else install_service(port, as_json)
    else:
        config = configuration(config_file)
        chosen = port if port is not None else int(config.boss.get("port", DEFAULT_PORT))
        any_port = port is None and "port" not in config.boss
        (_detached if detach else _in_front)(folder, chosen, config, as_json, any_port)


def print_token() -> None:
    from remuda.inbox.serve import load_token

    folder = BossFolder.default()
    private_folder(folder.path)
    echo(load_token(folder.token))


def _detached(folder: BossFolder, port: int, config: Config, as_json: bool, any_port: bool) -> None:
    from remuda.boss.detach import start_detached

    told = start_detached(folder, port, config.log_level, config.log_max_bytes, any_port=any_port)
    _announce(folder, told, as_json, port)


def _in_front(folder: BossFolder, port: int, config: Config, as_json: bool, any_port: bool) -> None:
    from remuda.boss.daemon import Settings, run

    def ready(boss: Boss) -> None:
        aside = boss.desk.store.laid_aside
        told = {"pid": os.getpid(), "port": boss.port, "laid_aside": str(aside) if aside else None}
        _announce(folder, told, as_json, port)

    run(Settings(folder, port, config.log_level, config.log_max_bytes, any_port=any_port), ready)


def _announce(folder: BossFolder, told: dict[str, Any], as_json: bool, port: int) -> None:
    url = f"http://127.0.0.1:{told['port']}"
    if port and told["port"] != port:
        note = (
            f"port {port} is in use by another program; the boss listens on port {told['port']} until it ends"
        )
        echo(note, err=True)
    if as_json:
        print_json(
            {"pid": told["pid"], "url": url, "socket": str(folder.socket), "laid_aside": told["laid_aside"]}
        )
        return
    echo(f"the boss is running (pid {told['pid']}) at {url} and {short_path(str(folder.socket))}")
    if told["laid_aside"]:
        echo(f"its database could not be read; it was moved to {told['laid_aside']}", err=True)
