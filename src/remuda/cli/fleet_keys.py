"""remuda fleet keys, config and prepare: who may use the hub, and a NATS server of your own"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.errors import CommandNotFound, InvalidOptions, RemudaError

from .click_types import OrderedGroup
from .output import complain, echo, print_table

if TYPE_CHECKING:
    from remuda.fleet.hub_folder import HubFolder

ROLES = ("host", "operator", "viewer")
_NEEDED = ("nats", "nkeys", "cryptography")


def need_extra() -> None:
    """Raise `CommandNotFound` if the extra is not installed."""
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        raise CommandNotFound(
            "this command needs packages that are not installed",
            hint="in a clone of Remuda, run: pip install '.[fleet]'",
        )


@click.group(
    "keys", cls=OrderedGroup, invoke_without_command=True, short_help="List, make or revoke keys of the hub."
)
@click.pass_context
def keys(ctx: click.Context) -> None:
    """List the keys of the hub on this machine, make one, or revoke one.

    \b
    Examples:
      remuda fleet keys
      remuda fleet keys new build7
      remuda fleet keys new phone --role viewer
      remuda fleet keys revoke build7
    """
    if ctx.invoked_subcommand is None:
        need_extra()
        from remuda.fleet.hub_folder import HubFolder

        rows = [(one.name, ", ".join(one.roles), one.public) for one in HubFolder.default().key_records()]
        print_table(("NAME", "ROLES", "PUBLIC KEY"), rows)


@keys.command("new", short_help="Make a key for a machine.")
@click.argument("name")
@click.option(
    "--role",
    "roles",
    type=click.Choice(ROLES),
    multiple=True,
    default=("host",),
    show_default=True,
    help="What the key may do; repeatable.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write the key to this file.  [default: NAME.key]"
)
@click.option("--url", metavar="URL", help="Address of the hub in the printed command.")
def new_key(name: str, roles: tuple[str, ...], out: Path | None, url: str | None) -> None:
    """Make a key for the machine NAME, write it to a file, and print the command that joins with it.

    A 'host' offers its own sessions to others and sees no other host. An 'operator' sees all, sends messages,
    decides permission requests and ends sessions. A 'viewer' only sees. The file is the only copy of the key.

    \b
    Examples:
      remuda fleet keys new build7
      remuda fleet keys new laptop2 --role host --role operator
    """
    need_extra()
    from remuda.fleet.hub_folder import HubFolder

    make_key(HubFolder.default(), name, roles, out, url)


def make_key(
    folder: HubFolder,
    name: str,
    roles: tuple[str, ...],
    out: Path | None = None,
    url: str | None = None,
    *,
    prepare: bool = True,
) -> None:
    """Make a key, and print how to join with it. `prepare`: the hub, if it runs, makes its queue now."""
    from remuda.fleet.membership import check_url, write_key
    from remuda.fleet.subjects import Role, check_host

    path = out or Path(f"{check_host(name)}.key")
    address = check_url(url) if url is not None else folder.url
    check_free(path, name)
    key = folder.new_key(name, tuple(dict.fromkeys(Role(role) for role in roles)))
    try:
        write_key(path, key)
        if prepare:
            _make_consumer(folder)
    except RemudaError:
        folder.revoke(name)
        raise
    echo(f"wrote {path}, the only copy of this key; copy it to that machine, then run there:")
    echo(f"  remuda fleet join {address} --key {path.name}")


def check_free(path: Path, name: str) -> None:
    if path.exists():
        other = f"'remuda fleet keys new {name} --out FILE'"
        raise InvalidOptions(f"{path} exists", hint=f"remove it, or choose another file: {other}")


def _make_consumer(folder: HubFolder) -> None:
    """Give a new host its queue on the hub; 'serve' does that for those that are made while it is down."""
    if not _can_reach(folder):
        return
    from remuda.fleet.hub import Hub, prepare

    async def make() -> None:
        hub = await Hub.connect(folder.admin())
        try:
            await prepare(hub, folder.key_records(), folder.replicas, folder.stream_bytes())
        finally:
            await hub.close()

    asyncio.run(make())


def _can_reach(folder: HubFolder) -> bool:
    """Whether the hub runs here. If not, print how it gets a change of the keys."""
    own = (
        "put the output of 'remuda fleet config' on the servers, reload them, then run 'remuda fleet prepare'"
    )
    if folder.is_cluster:
        complain(own)
    elif folder.server_pid() is None:
        complain(
            f"the hub is not running; start it with 'remuda fleet serve'. For servers of your own: {own}"
        )
    else:
        return True
    return False


@keys.command("revoke", short_help="Make a key invalid.")
@click.argument("name")
def revoke(name: str) -> None:
    """Make the key of NAME invalid, disconnect it, and list its sessions no more.

    Messages for it wait, for a new key with this name. On servers of your own it is valid until they have the
    output of 'remuda fleet config'.

    \b
    Example:
      remuda fleet keys revoke build7
    """
    need_extra()
    from remuda.fleet.hub_folder import HubFolder

    folder = HubFolder.default()
    folder.revoke(name)
    echo(f"revoked the key of {name}")
    if _can_reach(folder):
        try:
            asyncio.run(_remove_revoked(folder))
        except RemudaError as error:
            complain(f"its sessions are still listed: {error}")


async def _remove_revoked(folder: HubFolder) -> None:
    from remuda.fleet.hub import Hub, remove_revoked

    hub = await Hub.connect(folder.admin())
    try:
        await remove_revoked(hub, folder.key_records())
    finally:
        await hub.close()


@click.command("config", short_help="Print keys and rights for a NATS server of your own.")
def config() -> None:
    """Print the keys of the fleet and their rights, as part of a configuration of nats-server.

    For a NATS server or cluster that you run yourself, in place of 'remuda fleet serve'. Write it to a file
    that its configuration includes, and reload it after each change of a key.

    \b
    Example:
      remuda fleet config > /etc/nats/remuda.json
    """
    need_extra()
    from remuda.fleet.hub_folder import HubFolder

    folder = HubFolder.default()
    if not folder.exists:
        folder.make(None)
    echo(folder.accounts.decode(), nl=False)


@click.command("prepare", short_help="Make the streams on a NATS server of your own.")
@click.option("--url", required=True, metavar="URL", help="Servers, such as tls://a:4222,tls://b:4222.")
@click.option(
    "--key", "path", type=click.Path(path_type=Path), metavar="FILE", help="Key file with all rights."
)
@click.option("--ca", type=click.Path(path_type=Path), metavar="FILE", help="Certificate to trust, as PEM.")
@click.option(
    "--replicas", type=click.IntRange(1, 5), default=1, show_default=True, help="Copies of each stream."
)
def prepare_own(url: str, path: Path | None, ca: Path | None, replicas: int) -> None:
    """Make the streams and queues of the fleet on a NATS server or cluster that you run yourself.

    The server must have the output of 'remuda fleet config' and JetStream. Run it again after each change of
    a key. New keys trust the certificate of --ca, or that of 'remuda fleet serve'.

    \b
    Example:
      remuda fleet prepare --url tls://n1:4222,tls://n2:4222,tls://n3:4222 --replicas 3
    """
    need_extra()
    from remuda.fleet.hub import Hub, prepare, remove_revoked
    from remuda.fleet.hub_folder import HubFolder
    from remuda.fleet.membership import Membership, check_url, read_key

    folder, servers = HubFolder.default(), check_url(url)
    key = read_key(path) if path is not None else folder.admin().key
    trusted = ca.read_text() if ca is not None else None
    if trusted is not None:
        key = dataclasses.replace(key, ca=trusted)

    async def make() -> None:
        hub = await Hub.connect(Membership(key, servers, ""))
        try:
            await prepare(hub, folder.key_records(), replicas)
            await remove_revoked(hub, folder.key_records())
        finally:
            await hub.close()

    asyncio.run(make())
    folder.use_cluster(servers, replicas, trusted)
    echo(f"the streams are ready; join with 'remuda fleet join {servers} --key FILE'")
