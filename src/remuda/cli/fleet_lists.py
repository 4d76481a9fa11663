"""remuda fleet status, events and requests: what the hub says of other hosts"""

from __future__ import annotations

import time
from typing import Any

import click

from remuda.boss.client import BossClient
from remuda.duration import show_duration
from remuda.untrusted import dump_json

from .common import json_option
from .output import echo, print_fields, print_json, print_table, style

_EVENTS_WAIT = 30.0


@click.command("status", short_help="List the hosts, and who can be reached.")
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


@click.command("events", short_help="Print what happened on other hosts.")
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


@click.command("requests", short_help="List requests to any host.")
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
