"""remuda pool, and its commands warm, status, metrics and stop"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import click

from remuda.duration import show_duration
from remuda.errors import PoolNotServed, WaitTimeout
from remuda.pool.pool_connection import PoolConnection, default_socket, request

from . import pool_serve
from .click_types import OrderedGroup
from .common import json_option, time_span
from .output import echo, print_fields, print_json, print_lines, print_table
from .pool_serve import socket_option


@click.group("pool", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Keep agents warm for 'remuda ask', 'remuda run' and other programs.

    'remuda help --page pool' has the guide.

    \b
    Examples:
      remuda pool serve --size 4
      remuda pool warm 2
      remuda pool status
      remuda pool stop
    """
    if ctx.invoked_subcommand is None:
        print_lines(ctx.get_help().splitlines())


command.add_command(pool_serve.command)


# ── requests to a running pool ──


def _path(socket: Path | None) -> str:
    return str(socket.expanduser() if socket else default_socket())


@command.command("warm", short_help="Keep agents ready for this folder.")
@click.argument("count", type=click.IntRange(0), required=False)
@click.option("--model", metavar="NAME", help="Model of the requests.")
@click.option(
    "--allowed-tools", metavar="TOOLS", multiple=True, help="Tools that the requests allow; repeatable."
)
@click.option("--permission-mode", metavar="MODE", help="Permission mode of the requests.")
@click.option(
    "--permissions", type=click.Choice(["deny", "allow"]), help="How the requests answer permissions."
)
@click.option("--cwd", metavar="FOLDER", type=click.Path(), help="Folder of the requests.")
@socket_option
def warm(
    count: int | None,
    model: str | None,
    allowed_tools: tuple[str, ...],
    permission_mode: str | None,
    permissions: str | None,
    cwd: str | None,
    socket: Path | None,
) -> None:
    """Keep COUNT agents ready for requests from this folder with this environment.

    Returns when they are ready. Without COUNT, as many as the pool has room for; 0 keeps none from now on. An
    agent serves only requests with the same folder, environment and options.

    \b
    Examples:
      remuda pool warm 2
      remuda pool warm 1 --model opus --allowed-tools Bash
    """
    from remuda.pool.request_builder import prewarm_message

    options = {
        "model": model,
        "allowed_tools": list(allowed_tools) or None,
        "permission_mode": permission_mode,
        "cwd": cwd,
    }
    message = prewarm_message(count, options, cwd=os.getcwd(), environ=os.environ, permissions=permissions)
    request(_path(socket), message)
    echo("ready")


@command.command("status", short_help="Show the agents and requests of a pool.")
@socket_option
@json_option
def status(socket: Path | None, as_json: bool) -> None:
    """Show the state of a pool: its agents, what each is doing, and the waiting requests.

    \b
    Examples:
      remuda pool status
      remuda pool status --json | jq .pool.waiting
    """
    path = _path(socket)
    document = request(path, {"type": "status"}).get("status") or {}
    if as_json:
        print_json({"socket": path, **document})
        return
    print_fields(_lines(path, document))
    sessions = document["pool"]["sessions"]
    if sessions:
        rows = [
            [one["session_id"], one["state"], str(one["served"]), show_duration(one["age"]), one["profile"]]
            for one in sessions
        ]
        print_table(["WORKER", "STATE", "SERVED", "AGE", "PROFILE"], rows)


def _lines(path: str, document: dict[str, Any]) -> list[tuple[str, str]]:
    pool = document["pool"]
    states = Counter(one["state"] for one in pool["sessions"])
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
    return [
        ("socket", path),
        ("server", f"pid {document['pid']}, up {show_duration(document['uptime'])}, {document['state']}"),
        ("backend", str(document["backend"])),
        ("agents", f"{counts}, of {pool['pool_size']}"),
        (
            "requests",
            f"{document['requests']} in progress, {pool['waiting']} waiting, {document['served']} served",
        ),
        ("warm", f"{pool['warm_hit_ratio']:.0%} of the requests found an agent ready"),
    ]


@command.command("metrics", short_help="Print the counters of a pool for Prometheus.")
@socket_option
def metrics(socket: Path | None) -> None:
    """Print the counters of a pool in the text format of Prometheus.

    \b
    Example:
      remuda pool metrics > /var/lib/node_exporter/remuda.prom
    """
    echo(request(_path(socket), {"type": "metrics"})["text"], nl=False)


@command.command("stop", short_help="Stop a pool.")
@click.option(
    "--timeout",
    type=time_span,
    default="60",
    show_default=True,
    metavar="TIME",
    help="Fail if the pool has not stopped after TIME (90, 45m).",
)
@socket_option
def stop(timeout: float, socket: Path | None) -> None:
    """Stop a pool: refuse new requests, let running ones finish, then end its agents.

    \b
    Example:
      remuda pool stop
    """
    try:
        line = PoolConnection(_path(socket))
    except PoolNotServed as error:
        raise PoolNotServed(error.message, hint="there is nothing to stop") from None
    with line:
        line.ask({"type": "shutdown"})
        line.next()
        pid = line.greeting.get("pid")
        if not line.wait_for_end(timeout):
            raise WaitTimeout(
                f"the pool (pid {pid}) has not stopped within {timeout:g} s", hint="it is still shutting down"
            )
    echo(f"stopped the pool (pid {pid})")
