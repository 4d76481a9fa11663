"""remuda fleet: the hub, and membership of this machine. Other commands: `fleet_keys`, `fleet_lists`."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.boss.client import BossClient
from remuda.errors import BossDown, InvalidOptions

from . import fleet_keys, fleet_lists
from .click_types import OrderedGroup
from .common import short_path
from .fleet_keys import ROLES, check_free, make_key, need_extra
from .output import complain, echo, print_fields, print_lines

if TYPE_CHECKING:
    from remuda.fleet.hub_folder import HubFolder
    from remuda.fleet.membership import Key, Membership

_JOIN_TIMEOUT = 15.0


@click.group("fleet", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Connect several machines: one list of sessions, one queue, and messages to any session.

    One machine runs the hub. Each machine joins it with a key of its own. Then HOST/SESSION names a session
    of another machine. 'remuda help --page fleet' has the guide.

    \b
    Examples:
      remuda fleet serve
      remuda fleet keys new build7
      remuda fleet join tls://laptop:4222 --key build7.key
      remuda send build7/work "look at the failing tests"
    """
    if ctx.invoked_subcommand is None:
        print_lines(ctx.get_help().splitlines())


# ── the hub ──


@command.command("serve", short_help="Run the hub on this machine.")
@click.option(
    "--listen",
    metavar="ADDRESS:PORT",
    help="Listen there.  [default: as last time, or 0.0.0.0:4222]",
)
@click.option("--name", metavar="NAME", help="Name of this machine in the fleet.  [default: its host name]")
@click.option("--no-join", is_flag=True, help="Do not make this machine a member.")
@click.option(
    "--add",
    "added",
    metavar="NAME",
    multiple=True,
    help="Make a key for another machine, as 'fleet keys new' does; repeatable.",
)
@click.option(
    "--role",
    "roles",
    type=click.Choice(ROLES),
    multiple=True,
    help="What the keys of --add may do; repeatable.  [default: host]",
)
def serve(
    listen: str | None, name: str | None, no_join: bool, added: tuple[str, ...], roles: tuple[str, ...]
) -> None:
    """Run the hub until you press Ctrl-C. Makes its certificate and keys at the first start.

    This machine joins too, with the right to act on all others. Connections use TLS, and each machine needs
    its own key: --add makes one, and prints the command that joins with it. Messages are on the hub's disk
    before they are confirmed.

    \b
    Examples:
      remuda fleet serve
      remuda fleet serve --add desk --role host --role operator
      remuda fleet serve --listen 10.0.0.5:4222 --name laptop
    """
    need_extra()
    from remuda.fleet.hub_folder import HubFolder
    from remuda.fleet.membership import remove_membership
    from remuda.fleet.server import serve as run
    from remuda.fleet.streams import MAX_STREAM_BYTES

    if roles and not added:
        raise InvalidOptions("--role goes with --add", hint="name a machine: --add NAME")
    folder = HubFolder.default()
    folder.must_not_run()
    address = read_address(listen) if listen is not None else None
    _check_machines(folder, name, added)
    is_up = False
    folder.make(address)
    joined, is_new = (None, False) if no_join else _join_own(folder, name)
    # Printed before the hub runs: if it cannot start, the keys and their commands are good for the next time.
    for one in dict.fromkeys(added):
        if one in {known.name for known in folder.key_records()}:  # the same command line again
            complain(f"there is a key for '{one}'; if it is lost, run 'remuda fleet keys revoke {one}' first")
        else:
            make_key(folder, one, roles or ("host",), prepare=False)

    def ready() -> None:
        nonlocal is_up
        is_up = True
        host, port = folder.address
        fields = [("hub", f"{host}:{port}"), ("data", short_path(str(folder.path)))]
        if (most := folder.stream_bytes()) < MAX_STREAM_BYTES:
            fields.append(("limit", f"{most >> 20} MiB for each kind of data, by the room on this disk"))
        if joined is not None:
            _tell_boss()
            fields.append(("this machine", joined))
        if added:
            echo()
        print_fields(fields)
        echo("\nTo add a machine later, run this here. It prints the command to run there:")
        echo("  remuda fleet keys new NAME")

    try:
        asyncio.run(run(folder, ready))
    finally:
        if joined is not None and is_new and not is_up:  # no member of a hub that never ran
            remove_membership()
            folder.revoke(joined)


def _check_machines(folder: HubFolder, name: str | None, added: tuple[str, ...]) -> None:
    """Check all names before anything is made, so that the corrected command line works as the first one."""
    from remuda.fleet.subjects import check_host

    if name is not None:
        check_host(name)
    known = {one.name for one in folder.key_records()} if folder.exists else set()
    for one in added:
        if check_host(one) not in known:
            check_free(Path(f"{one}.key"), one)


def read_address(text: str) -> tuple[str, int]:
    """Read ADDRESS:PORT. Raises `InvalidOptions`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidOptions(f"{text!r} is not an address", hint="write ADDRESS:PORT, such as 0.0.0.0:4222")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _join_own(folder: HubFolder, name: str | None) -> tuple[str, bool]:
    """Make this machine a member of its own hub. Returns its name, and False if it is a member already."""
    from remuda.fleet.membership import load_membership, save_membership
    from remuda.fleet.subjects import Role

    member = load_membership()
    if member is not None:
        if name is not None and name != member.name:
            raise InvalidOptions(
                f"this machine has joined as '{member.name}'", hint="'remuda fleet leave' first"
            )
        return member.name, False
    key = folder.new_key(name or _own_name(), (Role.HOST, Role.OPERATOR))
    return save_membership(key, folder.own_url).name, True


def _own_name() -> str:
    name = re.sub("[^a-z0-9-]+", "-", socket.gethostname().partition(".")[0].lower()).strip("-")[:32]
    return name or "host"


command.add_command(fleet_keys.keys)
command.add_command(fleet_keys.config)
command.add_command(fleet_keys.prepare_own)


# ── this machine ──


@command.command("join", short_help="Make this machine a member.")
@click.argument("url")
@click.option(
    "--key",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Key file from 'remuda fleet keys new'.",
)
def join(url: str, path: Path) -> None:
    """Join the hub at URL with a key, under the name that the key was made for.

    Checks the connection first. You can remove the key file afterwards.

    \b
    Example:
      remuda fleet join tls://laptop:4222 --key build7.key
    """
    need_extra()
    from remuda.fleet.membership import load_membership, read_key, save_membership

    key = read_key(path)
    if (member := load_membership()) is not None:
        raise InvalidOptions(
            f"this machine has joined {member.url} as '{member.name}'", hint="'remuda fleet leave' first"
        )
    asyncio.run(_try(key, url))
    save_membership(key, url)
    echo(f"joined as {key.name} ({', '.join(key.roles)})")
    _tell_boss()


async def _try(key: Key, url: str) -> None:
    from remuda.fleet.hub import Hub
    from remuda.fleet.membership import Membership, check_url

    member: Membership = Membership(key, check_url(url), "")
    hub = await Hub.connect(member)
    try:
        await hub.measure()
    finally:
        await hub.close()


@command.command("leave", short_help="End this machine's membership.")
def leave() -> None:
    """Leave the fleet. Sessions keep running; messages that the hub has for this machine wait there.

    \b
    Example:
      remuda fleet leave
    """
    from remuda.fleet.membership import load_membership, remove_membership

    member = load_membership()
    if member is None:
        raise InvalidOptions("this machine has joined no fleet")
    remove_membership()
    try:
        BossClient(timeout=_JOIN_TIMEOUT).post("fleet")
    except BossDown:
        complain("the boss is not running, so the hub lists this machine as unreachable")
    echo(f"left {member.url}")


def _tell_boss() -> None:
    """Make a running boss join or leave now."""
    try:
        BossClient(timeout=_JOIN_TIMEOUT).post("fleet")
    except BossDown:
        complain("the boss is not running, and it is what connects; start it with 'remuda boss up --detach'")


command.add_command(fleet_lists.status)
command.add_command(fleet_lists.events)
command.add_command(fleet_lists.requests)
