"""remuda budget"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from remuda.boss.budgets import BudgetAction, BudgetLimit, cost_warnings
from remuda.boss.client import BossClient
from remuda.boss.evidence.spending import budget_file, load_budget
from remuda.boss.folder import BossFolder
from remuda.boss.usage_report import Prices
from remuda.config import load_own_config
from remuda.errors import InvalidOptions, RemudaError

from .common import json_option, short_path
from .output import complain, echo, print_json, print_table

_HEAD = ("LIMIT", "FOR", "USED", "OF", "ACTION", "NOW")
Row = dict[str, Any]


@click.group("budget", invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the limits of budget.toml, and what is used of each. Reference: 'remuda help --page budget'.

    '-' is not known: then nothing is paused because of it. 'remuda approve SESSION' raises a limit by its
    step.

    \b
    Examples:
      remuda budget
      remuda budget --json | jq '.limits[] | select(.over)'
      remuda budget check
    """
    if ctx.invoked_subcommand is not None:
        return
    budget: Row = BossClient().get("budget")
    if as_json:
        print_json(budget)
        return
    if budget["error"]:
        complain(f"the limits were not changed: {budget['error']}")
    if not budget["limits"]:
        echo(f"no limits ({short_path(budget['file'])}: {'empty' if budget['exists'] else 'not found'})")
        return
    print_table(_HEAD, [_row(one) for one in budget["limits"]])
    if unknown := sorted({name for one in budget["limits"] for name in one["unknown"]}):
        complain(f"not known, and not counted: {', '.join(unknown)}")


@command.command("check")
@click.option(
    "--file", "given", type=click.Path(path_type=Path), help="File to check.  [default: the one of the boss]"
)
@json_option
def check(given: Path | None, as_json: bool) -> None:
    """Check the budget file. Needs no boss, and changes nothing.

    A limit on 'cost' holds only what has a price in the table [prices] of your configuration. The command
    warns about what has none; a running boss names the models that were used without.

    \b
    Examples:
      remuda budget check
      remuda budget check --file new.toml
    """
    path = given or budget_file(BossFolder.default(), os.environ)
    limits = load_budget(path)
    if given is not None and not path.exists():
        raise InvalidOptions(f"budget file {given} not found", hint="check the path given with --file")
    warnings = _cost_warnings(limits)
    if as_json:
        found = {"file": str(path), "exists": path.exists(), "limits": [_limit(one) for one in limits]}
        print_json(found | {"warnings": warnings})
        return
    count = f"{len(limits)} limit{'s' * (len(limits) != 1)}"
    echo(f"{short_path(str(path))}: {count if path.exists() else 'not found; nothing is limited'}")
    for one in limits:
        echo(f"  {one.name}: {one.action} at {one.show(one.most)} per {' and '.join(one.per)}")
    for warning in warnings:
        complain(warning)


def _cost_warnings(limits: Sequence[BudgetLimit]) -> list[str]:
    if all(one.measure != "cost" for one in limits):
        return []
    config = load_own_config(os.environ)
    try:
        rows: list[Row] = BossClient().get("usage", by="model")["rows"]
    except RemudaError:  # no boss, or one that does not count
        rows = []
    unpriced = [row["key"] for row in rows if row["key"] and (row["cost"] is None or row["cost_partial"])]
    return cost_warnings(limits, Prices(config.currency, config.prices), unpriced)


def _limit(limit: BudgetLimit) -> Row:
    return {
        "limit": limit.name,
        "measure": limit.measure,
        "most": limit.most,
        "per": list(limit.per),
        "action": str(limit.action),
        "step": limit.step,
    }


def _row(row: Row) -> tuple[str, ...]:
    limit = BudgetLimit(row["limit"], row["measure"], row["most"], ())
    parts = (row["session"], row["folder"] and short_path(row["folder"]), row["day"])
    used = "-" if row["used"] is None else limit.show(row["used"], row["currency"] or "")
    now = ""
    if row["over"]:
        now = "warned" if row["action"] == BudgetAction.WARN else f"paused: {len(row['paused'])}"
    whom = ", ".join(one for one in parts if one) or "all"
    return (row["limit"], whom, used, limit.show(row["allowed"], row["currency"] or ""), row["action"], now)
