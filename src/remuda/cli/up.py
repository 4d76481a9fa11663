"""remuda up"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.boss.folder import BossFolder
from remuda.paths import private_folder

from .common import config_option, configuration, json_option, print_json, short_path

if TYPE_CHECKING:
    from remuda.boss.ports import Boss
    from remuda.config import Config

DEFAULT_PORT = 4127


@click.command("up")
@click.option("--detach", is_flag=True, help="Return when it serves; it goes on in the background.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"Port on 127.0.0.1; 0 takes a free one.  [default: [boss] port, else {DEFAULT_PORT}]",
)
@click.option("--print-token", is_flag=True, help="Print the token of its HTTP endpoint, and end.")
@click.option("--install", is_flag=True, help="Write a systemd unit or launchd plist for it, and show it.")
@click.option("--uninstall", is_flag=True, help="Take that file away again.")
@config_option
@json_option
def command(
    detach: bool,
    port: int | None,
    print_token: bool,
    install: bool,
    uninstall: bool,
    config_file: Path | None,
    as_json: bool,
) -> None:
    """Start the boss: one queue of all agents that wait for you, for this user, on this machine.

    It can be ended or killed at any moment, and loses nothing: sessions go on without it, hooks keep for it
    what they have to tell, and when it is started again it finds everything.

    \b
    Examples:
      remuda up --detach
      remuda up --port 4200
      remuda up --install          at every login, by systemd or launchd
      curl -H "Authorization: Bearer $(remuda up --print-token)" http://127.0.0.1:4127/v1/queue
    """
    if sum((detach, print_token, install, uninstall)) > 1:
        raise click.UsageError("--detach, --print-token, --install and --uninstall exclude each other")
    folder = BossFolder.default()
    if print_token:
        _print_token(folder)
    elif install or uninstall:
        from .up_service import install_service, uninstall_service

        uninstall_service(as_json) if uninstall else install_service(port, as_json)
    else:
        config = configuration(config_file)
        chosen = port if port is not None else int(config.boss.get("port", DEFAULT_PORT))
        (_detached if detach else _in_front)(folder, chosen, config, as_json)


def _print_token(folder: BossFolder) -> None:
    from remuda.inbox.serve import load_token

    private_folder(folder.path)
    click.echo(load_token(folder.token))


def _detached(folder: BossFolder, port: int, config: Config, as_json: bool) -> None:
    from remuda.boss.detach import start_detached

    _announce(folder, start_detached(folder, port, config.log_level, config.log_max_bytes), as_json)


def _in_front(folder: BossFolder, port: int, config: Config, as_json: bool) -> None:
    from remuda.boss.daemon import Settings, run

    def ready(boss: Boss) -> None:
        aside = boss.desk.store.laid_aside
        told = {"pid": os.getpid(), "port": boss.port, "laid_aside": str(aside) if aside else None}
        _announce(folder, told, as_json)

    run(Settings(folder, port, config.log_level, config.log_max_bytes), ready)


def _announce(folder: BossFolder, told: dict[str, Any], as_json: bool) -> None:
    url = f"http://127.0.0.1:{told['port']}"
    if as_json:
        print_json(
            {"pid": told["pid"], "url": url, "socket": str(folder.socket), "laid_aside": told["laid_aside"]}
        )
        return
    click.echo(f"the boss runs (pid {told['pid']}) at {url} and {short_path(str(folder.socket))}")
    if told["laid_aside"]:
        click.echo(f"its database could not be used; it is kept as {told['laid_aside']}", err=True)
