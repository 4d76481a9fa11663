"""remuda mcp: tools by which an agent runs agents, the tokens for them, and the ledger"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import stat
import sys
import time

import click

from remuda.errors import CommandNotFound, InvalidOptions
from remuda.untrusted import one_line

from .click_types import OrderedGroup
from .common import json_option, short_path
from .output import complain, echo, print_json, print_table


def need_extra() -> None:
    """Raise `CommandNotFound` if the extra is not installed."""
    if any(importlib.util.find_spec(name) is None for name in ("mcp", "mcp_types")):
        raise CommandNotFound(
            "this command needs packages that are not installed",
            hint="in a clone of Remuda, run: pip install '.[mcp]'",
        )


@click.group("mcp", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Serve MCP on standard input and output: tools by which an agent runs other agents.

    An agent starts it; 'remuda setup mcp' writes that into the agent's configuration. The agent can start
    sessions, send them messages, wait for answers and end them. It reaches only what it started, unless
    mcp.toml says more. The boss serves the same at /mcp, for agents with a token.

    \b
    Examples:
      remuda mcp check
      remuda mcp token ci
      remuda mcp ledger
    """
    if ctx.invoked_subcommand is not None:
        return
    need_extra()
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):  # a file or /dev/null cannot be waited for
        what = "a terminal" if sys.stdin.isatty() else "no pipe"
        raise InvalidOptions(
            f"standard input is {what}, but an agent talks to this command",
            hint="run 'remuda setup mcp', and the agent starts it",
        )
    from remuda.mcp.caller import find_caller
    from remuda.mcp.server import serve_stdio
    from remuda.mcp.tools import AgentTools

    # Found at the first call: an agent may start us before its keeper has written that it runs.
    cwd = os.getcwd()
    asyncio.run(serve_stdio(AgentTools(lambda: find_caller(os.environ, cwd))))


@command.command("check")
@json_option
def check(as_json: bool) -> None:
    """Check mcp.toml, and show what it says. Exits with 2 if it is not valid.

    \b
    Example:
      remuda mcp check
    """
    from dataclasses import asdict

    from remuda.keeper.elsewhere import own_host
    from remuda.mcp.caller import load_rights, rights_file

    path = rights_file(os.environ)
    rights = load_rights(path)
    if as_json:
        print_json({"file": str(path), "exists": path.exists(), **asdict(rights)})
        return
    echo(f"{short_path(str(path))}: {'valid' if path.exists() else 'not found; these are the defaults'}")
    for name, value in asdict(rights.limits).items():
        if value or name in ("max_depth", "max_sessions", "max_messages"):  # 0 allows none
            echo(f"  {name} = {', '.join(value) if isinstance(value, tuple) else value}")
    for grant in rights.grants:
        reach = f" reaches {', '.join(grant.reach)} ({', '.join(grant.may)})" if grant.reach else ""
        limits = "".join(f" {name}={value}" for name, value in (grant.changes or {}).items())
        echo(f"  {', '.join(grant.names)}:{reach}{limits}")
    if own_host() is None and any("/" in one for grant in rights.grants for one in grant.reach):
        complain("this machine has joined no fleet: HOST/SESSION reaches nothing")


@command.command("token", short_help="Print the token of an agent at the boss.")
@click.argument("name", required=False)
@click.option("--remove", is_flag=True, help="Remove the token; its agent loses access at once.")
def token(name: str | None, remove: bool) -> None:
    """Print the token of agent NAME for MCP at the boss, and make it if needed. Without NAME, list them.

    The agent sends it as 'Authorization: Bearer TOKEN' to http://127.0.0.1:4127/mcp. A client with it can
    start agents as you, within the limits of mcp.toml.

    \b
    Examples:
      remuda mcp token ci
      remuda mcp token ci --remove
    """
    from remuda.mcp.caller import make_token, remove_token, token_names

    if name is None:
        if remove:
            raise InvalidOptions("--remove needs the NAME of a token")
        for one in token_names():
            echo(one)
    elif remove:
        remove_token(name)
        echo(f"removed token {name}")
    else:
        echo(make_token(name))


@command.command("ledger", short_help="Show what agents did through MCP.")
@click.option(
    "-n", "count", type=click.IntRange(1, 100_000), default=50, help="Show the last N calls.  [default: 50]"
)
@json_option
def ledger(count: int, as_json: bool) -> None:
    """Show what agents did through MCP: who asked, for what, and whether it was refused.

    \b
    Examples:
      remuda mcp ledger
      remuda mcp ledger --json | jq '.[] | select(.outcome != "ok")'
    """
    from remuda.mcp.ledger import read_ledger

    calls = read_ledger(count)
    if as_json:
        print_json(calls)
    elif not calls:
        echo("no agent has called a tool")
    else:
        print_table(
            ("WHEN", "WHO", "TOOL", "SESSION", "MESSAGE", "OUTCOME"),
            [
                (
                    time.strftime("%m-%d %H:%M:%S", time.localtime(float(one.get("at") or 0))),
                    *(
                        one_line(str(one.get(key) or "-"))
                        for key in ("who", "tool", "session", "message", "outcome")
                    ),
                )
                for one in calls
            ],
        )
