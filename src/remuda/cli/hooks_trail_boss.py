"""remuda hooks show --trail-boss: the address for Trail Boss's own clients"""

from __future__ import annotations

import click

from remuda.boss.client import BossClient
from remuda.boss.folder import BossFolder
from remuda.errors import RemudaError
from remuda.paths import private_folder

from .common import configuration, json_option
from .output import echo, print_json


@click.command("show")
@click.option("--renew", is_flag=True, help="Create a new token first; the old address stops working.")
@json_option
def show(renew: bool, as_json: bool) -> None:
    """Print the addresses for Trail Boss's own clients, as lines for your shell.

    The address contains its own token. It can post events, list the queue and skip. It cannot answer
    requests, and it opens nothing else. Other processes of yours can see it in the process list.

    \b
    Examples:
      eval "$(remuda hooks show --trail-boss)"
      remuda hooks show --trail-boss --renew
    """
    from remuda.boss.trail_token import TokenFile

    folder = BossFolder.default()
    private_folder(folder.path)
    file = TokenFile(folder.trail_token)
    base = f"http://127.0.0.1:{_port(folder)}/t/{file.renew() if renew else file.load()}"
    found = {
        "TRAILBOSS_URL": base,
        "TRAILBOSS_COLLECTOR_URL": f"{base}/event",
        "TRAILBOSS_DAEMON_URL": f"{base}/event/normalized",
    }
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        echo(f"export {name}='{value}'")


def _port(folder: BossFolder) -> int:
    """Of the boss that runs, else the one that it will have."""
    from .up import DEFAULT_PORT

    try:
        return int(BossClient(folder).get("health")["port"])
    except RemudaError:
        return int(configuration(strict=False).boss.get("port", DEFAULT_PORT))
