"""remuda usage"""

from __future__ import annotations

import time
from typing import Any

import click

from remuda.boss.client import BossClient

from .common import json_option, short_path, time_span
from .output import complain, echo, print_json, table_lines

_BY = ("session", "folder", "model", "day", "account")
_LIMIT = 1000
_KINDS = ("input", "output", "cache_read", "cache_write")
Row = dict[str, Any]


@click.command("usage")
@click.option("--by", type=click.Choice(_BY), default="session", show_default=True, help="Group by this.")
@click.option(
    "--since",
    type=time_span,
    metavar="TIME",
    help="Count the last TIME (90, 45m, 2h30m).  [default: 30 days]",
)
@json_option
def command(by: str, since: float | None, as_json: bool) -> None:
    """Show what agents used: input, output, cache-read and cache-write tokens, and money if it is known.

    The figures come from the agents' own records, which the boss counts by the hour. '-' is not known: an
    agent that does not report it, or a model without a price in the table [prices] of your configuration.

    \b
    Examples:
      remuda usage
      remuda usage --by model --since 24h
      remuda usage --by day --json | jq '.rows[].tokens.output'
    """
    query: dict[str, Any] = {"by": by, "limit": _LIMIT}
    if since is not None:
        query["since"] = time.time() - since
    usage: Row = BossClient().get("usage", **query)
    if as_json:
        print_json(usage)
        return
    if not usage["rows"]:
        echo("no usage was recorded in this time")
    else:
        echo("\n".join(_lines(usage, by)))
    if usage["cut"]:
        complain(f"only the first {_LIMIT} rows are shown; use --since or --json")
    if usage["unknown"]:
        complain(f"the usage of these agents is not known: {', '.join(usage['unknown'])}")


def _lines(usage: Row, by: str) -> list[str]:
    head = (by.upper(), "TURNS", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", f"COST {usage['currency']}")
    rows = [_row(_name(row, by), row) for row in usage["rows"]]
    if len(rows) > 1:
        rows.append(_row("total", usage["total"]))
    return table_lines(head, rows)


def _name(row: Row, by: str) -> str:
    if by == "session":
        return str(row["label"] or row["key"])
    key = "-" if row["key"] is None else str(row["key"])
    return short_path(key) if by == "folder" else key


def _row(name: str, row: Row) -> tuple[str, ...]:
    counts = (row["tokens"][kind] for kind in _KINDS)
    return (name, _show_count(row["turns"]), *map(_show_count, counts), _show_cost(row))


def _show_count(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _show_cost(row: Row) -> str:
    if row["cost"] is None:
        return "-"
    return f"{row['cost']:.2f}" + (" and more" if row["cost_partial"] else "")
