"""remuda fleet: a hub for several machines, its keys, and this machine's membership"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import re
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.boss.client import BossClient
from remuda.duration import show_duration
from remuda.errors import BossDown, CommandNotFound, InvalidOptions, RemudaError
from remuda.untrusted import dump_json

from .click_types import OrderedGroup
from .common import json_option, short_path
from .output import complain, echo, print_fields, print_json, print_lines, print_table, style

if TYPE_CHECKING:
    from remuda.fleet.hub_folder import HubFolder
    from remuda.fleet.membership import Key, Membership

_ROLES = ("host", "operator", "viewer")
_NEEDED = ("nats", "nkeys", "cryptography")
_JOIN_TIMEOUT = 15.0
_EVENTS_WAIT = 30.0


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


def need_extra() -> None:
    """Raise `CommandNotFound` if the extra is not installed."""
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        raise CommandNotFound(
            "this command needs packages that are not installed",
            hint="in a clone of Remuda, run: pip install '.[fleet]'",
        )


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
    type=click.Choice(_ROLES),
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
            _make_key(folder, one, roles or ("host",), prepare=False)

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
            _check_free(Path(f"{one}.key"), one)


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


@command.group(
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
    type=click.Choice(_ROLES),
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

    _make_key(HubFolder.default(), name, roles, out, url)


def _make_key(
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
    _check_free(path, name)
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


def _check_free(path: Path, name: str) -> None:
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


@command.command("config", short_help="Print keys and rights for a NATS server of your own.")
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


@command.command("prepare", short_help="Make the streams on a NATS server of your own.")
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


@command.command("status", short_help="List the hosts, and who can be reached.")
@json_option
def status(as_json: bool) -> None:
    """Show this machine's connection to the hub, and all hosts. Exits with 7 if the boss is not running.

    \b
    Examples:
      remuda fleet status
      remuda fleet status --json | jq -r '.hosts[] | select(.reachable | not) | .name'
    """
    document = BossClient().get("fleet")
    if as_json:
        print_json(document)
        return
    now = time.time()
    ago = show_duration(max(0.0, now - document["since"]))
    fields = [("this machine", f"{document['name']} ({', '.join(document['roles'])})")]
    if document["connected"]:
        latency = document["latency"]
        took = f", answers in {1000 * latency:.1f} ms" if latency is not None else ""
        fields.append(("hub", f"{document['url']}, connected for {ago}{took}"))
    else:
        fields.append(("hub", style(f"{document['url']}, not connected for {ago}", fg="red")))
        fields.append(("why", str(document["error"] or "it does not answer")))
    fields += [("problem", f"{name}: {why}") for name, why in sorted(document.get("problems", {}).items())]
    if document.get("events_waiting"):
        fields.append(("to report", f"{document['events_waiting']} events that the hub has not got"))
    fields += [("refused", _refusal(one, now)) for one in document.get("refusals", ())]
    print_fields(fields)
    if document["hosts"]:
        echo()
        names = ("HOST", "STATE", "SESSIONS", "ROLES", "VERSION", "NOTE")
        print_table(names, [_row(one, now) for one in document["hosts"]])


@command.command("events", short_help="Print what happened on other hosts.")
@click.option("-n", "--last", type=click.IntRange(1, 5000), default=20, show_default=True, help="Print N.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens from now on.")
@click.option("--host", metavar="HOST", help="Only this host.")
@json_option
def events(last: int, follow: bool, host: str | None, as_json: bool) -> None:
    """Print the last events of other hosts: prompts, stops, permission requests, ends.

    They are in the order of each host, and also from a time when that host was cut off. With --json, one
    document for each line.

    \b
    Examples:
      remuda fleet events
      remuda fleet events --follow --host build7
    """
    from datetime import datetime

    boss = BossClient(timeout=2 * _EVENTS_WAIT)
    document = boss.get("fleet", "events", limit=last if host is None else 5000)
    listed = [one for one in document["events"] if host in (None, one["host"])][-last:]
    while True:
        for one in listed:
            if as_json:
                echo(dump_json(one))
                continue
            at = datetime.fromtimestamp(one["at"]).strftime("%Y-%m-%d %H:%M:%S")
            what = f"{one['lost']} events were lost" if one["kind"] == "gap" else one["kind"]
            echo(f"{at}  {one['host']}/{one['name'] or one['session'][:8]}  {what}")
        if not follow:
            return
        document = boss.get("fleet", "events", after=document["position"], wait=_EVENTS_WAIT)
        listed = [one for one in document["events"] if host in (None, one["host"])]


@command.command("requests", short_help="List requests to any host.")
@json_option
def requests(as_json: bool) -> None:
    """List the requests of 'remuda run --fleet' that were sent from here in the last day, the newest first.

    \b
    Example:
      remuda fleet requests
    """
    listed = BossClient().get("fleet", "requests")["requests"]
    if as_json:
        print_json(listed)
        return
    now = time.time()
    rows = []
    for one in listed:
        outcome = one["outcome"] or {}
        error = outcome.get("error") or {}
        how = "answered" if "result" in outcome else error.get("message") or one["state"]
        age = show_duration(max(0.0, now - one["created"]))
        rows.append((one["id"][:9], age, one["host"] or "", str(one["attempts"]), how))
    print_table(("ID", "AGE", "HOST", "ATTEMPTS", "STATE"), rows)


def _refusal(one: dict[str, Any], now: float) -> str:
    whose = (
        f"the {'revoked ' if one['revoked'] else ''}key of {one['key']}" if one["key"] else "an unknown key"
    )
    what = f", {one['what']} to '{one['subject']}'" if one["subject"] else ""
    times = f", {one['count']} times" if one["count"] > 1 else ""
    return f"{whose}, from {one['from']}{what}{times}, {show_duration(max(0.0, now - one['at']))} ago"


def _row(host: dict[str, Any], now: float) -> tuple[str, ...]:
    state = style("connected", fg="green")
    if not host["reachable"]:
        ago = show_duration(max(0.0, now - host["unreachable_since"]))
        state = style(f"unreachable for {ago}", fg="red")
    notes = [] if host["speaks"] else ["an older version: lists its sessions, takes no requests"]
    if host["cannot"] and host["speaks"]:
        notes.append(f"an older version: does not offer {', '.join(host['cannot'])}")
    if waiting := host.get("messages_waiting"):
        notes.append(f"{waiting} message{'s wait' if waiting > 1 else ' waits'} for it at the hub")
    if abs(host["clock_ahead"]) > 5:
        notes.append(f"its clock is {show_duration(abs(host['clock_ahead']), precise=True)} ")
        notes[-1] += "ahead" if host["clock_ahead"] > 0 else "behind"
    roles = ", ".join(host.get("roles", ()))
    return host["name"], state, str(host["sessions"]), roles, host["version"], "; ".join(notes)
