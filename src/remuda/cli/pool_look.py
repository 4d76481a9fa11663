"""remuda pool warm, status, metrics and stop: what is asked of a pool that is served"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from remuda.duration import show_duration
from remuda.errors import WaitTimeout
from remuda.pool.line import Line, default_socket, request

from .common import json_option, print_json, print_table, seconds

F = TypeVar("F", bound=Callable[..., Any])


def socket_option(function: F) -> F:
    option = click.option(
        "--socket",
        type=click.Path(path_type=Path),
        help="Where the pool is served.  [default: pool.sock under $REMUDA_HOME]",
    )
    return option(function)


def _path(socket: Path | None) -> str:
    return str(socket.expanduser() if socket else default_socket())


@click.command("warm", short_help="Have agents stand ready for this folder.")
@click.argument("count", type=click.IntRange(0), required=False)
@click.option("--model", metavar="NAME")
@click.option("--allowed-tools", metavar="TOOLS", multiple=True)
@click.option("--permission-mode", metavar="MODE")
@click.option("--permissions", type=click.Choice(["deny", "allow"]), help="As the calls will have it.")
@click.option("--cwd", metavar="FOLDER", type=click.Path())
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
    """Have COUNT agents stand ready for calls from this folder with this environment, and keep so many.

    0 keeps none. Without COUNT it is as many as the pool has room for.

    \b
    Examples:
      remuda pool warm 2
      remuda pool warm 1 --model opus --allowed-tools Bash
    """
    from remuda.pool.errand import prewarm_message

    options = {
        "model": model,
        "allowed_tools": list(allowed_tools) or None,
        "permission_mode": permission_mode,
        "cwd": cwd,
    }
    message = prewarm_message(count, options, cwd=os.getcwd(), environ=os.environ, permissions=permissions)
    request(_path(socket), message)
    click.echo("warm")


@click.command("status", short_help="Say what a served pool is doing.")
@socket_option
@json_option
def status(socket: Path | None, as_json: bool) -> None:
    """Say what a served pool is doing: its agents, what they do, what waits.

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
    for label, value in _lines(path, document):
        click.echo(f"{label:<10} {value}")
    sessions = document["pool"]["sessions"]
    if sessions:
        rows = [
            [one["session_id"], one["state"], str(one["served"]), show_duration(one["age"]), one["profile"]]
            for one in sessions
        ]
        print_table(["SESSION", "STATE", "SERVED", "AGE", "PROFILE"], rows)


def _lines(path: str, document: dict[str, Any]) -> list[tuple[str, str]]:
    pool = document["pool"]
    states = Counter(one["state"] for one in pool["sessions"])
    shown = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
    return [
        ("socket", path),
        ("server", f"pid {document['pid']}, up {show_duration(document['uptime'])}, {document['state']}"),
        ("backend", str(document["backend"])),
        ("agents", f"{shown}, of {pool['pool_size']}"),
        (
            "requests",
            f"{document['requests']} on their way, {pool['waiting']} waiting, {document['served']} served",
        ),
        ("warm", f"{pool['warm_hit_ratio']:.0%} found an agent ready"),
    ]


@click.command("metrics", short_help="Print its counters, for Prometheus.")
@socket_option
def metrics(socket: Path | None) -> None:
    """Print the counters of a served pool, as Prometheus reads them.

    \b
    Example:
      remuda pool metrics > /var/lib/node_exporter/remuda.prom
    """
    click.echo(request(_path(socket), {"type": "metrics"})["text"], nl=False)


@click.command("stop", short_help="End a served pool.")
@click.option(
    "--timeout", type=seconds, default="60", show_default=True, metavar="SECONDS", help="Wait so long for it."
)
@socket_option
def stop(timeout: float, socket: Path | None) -> None:
    """End a served pool: it takes no more requests, lets those that run end, ends its agents, and is gone.

    \b
    Example:
      remuda pool stop
    """
    with Line(_path(socket)) as line:
        line.ask({"type": "shutdown"})
        line.next()
        pid = line.greeting.get("pid")
        if not line.wait_for_end(timeout):
            raise WaitTimeout(
                f"the server (pid {pid}) has not ended within {timeout:g} s", hint="it goes on ending"
            )
    click.echo(f"stopped the pool (pid {pid})")
