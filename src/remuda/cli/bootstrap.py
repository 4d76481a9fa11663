"""remuda bootstrap"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from remuda.agents import find_agent, guess_agent
from remuda.agents.state import RESTING, WAITING, WORKING, State
from remuda.boss.client import BossClient
from remuda.boss.navigator import QueueNavigator
from remuda.proctree import descendants
from remuda.tmux.address import Address, known_addresses
from remuda.tmux.command import Tmux
from remuda.tmux.panes import Pane, Snapshot, capture

from .common import json_option, time_span
from .output import echo, print_json, print_table
from .waiting import make_guide

_QUIET = 1.0
_LINES = 20


class FoundAgent(NamedTuple):
    """An agent in a pane. `state`: known, working, resting, waiting."""

    address: Address
    snapshot: Snapshot
    pane: Pane
    agent: str
    state: str
    agent_state: State | None
    """The state in the words of `remuda ls`; None for an agent that the boss knows."""
    shown: str = ""
    """The last lines of its screen."""


@click.command("bootstrap")
@click.option("--dry-run", is_flag=True, help="Only print what would be added.")
@click.option(
    "--quiet", type=time_span, default=_QUIET, metavar="TIME",
    help="Without other signs, count an agent as idle if its screen does not change for TIME.  [default: 1]",
)  # fmt: skip
@json_option
def command(dry_run: bool, quiet: float, as_json: bool) -> None:
    """Add agents in tmux panes that the boss does not know yet, because their hooks have not reported.

    A working agent is listed. An agent that is idle or asks something is also put into the queue. Later
    reports of its hooks replace this. Exits with 7 if the boss is not running.

    \b
    Examples:
      remuda bootstrap --dry-run
      remuda bootstrap
    """
    boss = BossClient()
    guide = make_guide()
    known = boss.get("sessions")["sessions"]
    found = [one for address in known_addresses(os.environ) for one in _agents(guide, address, known, quiet)]
    news = [event for one in found if one.state != "known" for event in _events(one)]
    if news and not dry_run:
        boss.post("events", body={"events": news})
    if as_json:
        print_json({"told": not dry_run, "panes": [_document(one) for one in found]})
        return
    if not found:
        echo("no agents in tmux panes")
        return
    print_table(("PANE", "AGENT", "STATE", "CWD"), [_row(one) for one in found])


def _agents(
    guide: QueueNavigator, address: Address, known: Sequence[Mapping[str, Any]], quiet: float
) -> list[FoundAgent]:
    view = guide.view(address)
    if view is None:
        return []
    snapshot = view.snapshot
    panes = {session["pane"] for session in known if session["pane"] and guide.address_of(session) == address}
    pids = [session["pid"] for session in known if session["pid"]]
    panes |= {pane.id for pid in pids if (pane := snapshot.of_process(pid)) is not None}
    agents = []
    for pane in snapshot.panes.values():
        agent = guess_agent([pane.command])
        if pane.is_dead or agent == "simple":
            continue
        state, seen, shown = "known", None, ""
        if pane.id not in panes:
            state, seen, shown = _read_screen(guide.tmux(address), pane, agent, quiet)
        agents.append(FoundAgent(address, snapshot, pane, agent, state, seen, shown))
    return agents


def _read_screen(tmux: Tmux, pane: Pane, agent: str, quiet: float) -> tuple[str, State, str]:
    """Return the state by the screen, or by whether the screen changes for a while; and the screen."""
    observer = find_agent(agent).observer(pane.pid, os.environ, has_screen=True)
    lines = capture(tmux, pane.id)
    shown = "\n".join([line.rstrip() for line in lines if line.strip()][-_LINES:])
    votes = [*observer.screen(lines, 0.0), *observer.title(pane.title, 0.0)] if observer else []
    for state, meant in (("waiting", WAITING), ("working", WORKING), ("resting", RESTING)):
        if seen := [vote.state for vote in votes if vote.state in meant]:
            return state, seen[0], shown
    select.select([], [], [], quiet)
    if capture(tmux, pane.id) == lines:
        return "resting", State.IDLE, shown
    return "working", State.ACTIVE, shown


def _events(one: FoundAgent) -> list[dict[str, Any]]:
    """Return the events for a placeholder session. The agent's own session replaces it.

    That it exists is true now. What it is doing may have begun long ago.
    """
    now = time.time()
    identity = {"session_id": f"{one.pane.id}@{one.snapshot.server_pid}", "source": "screen"}
    facts: dict[str, Any] = {
        "pane": one.pane.id,
        "tmux": one.address.path,
        "cwd": one.pane.cwd,
        "title": one.pane.title,
        "agent": one.agent,
    }
    pid = _process(one.pane)
    seen = {**identity, "kind": "seen", "at": now, "facts": facts | ({"pid": pid} if pid else {})}
    at = min(float(one.pane.activity or now), now)
    if one.state == "working":
        return [seen, {**identity, "kind": "working", "at": at}]
    # Without a message it would count as an agent that has had no prompt yet.
    message_facts = {"message": one.shown or "[no message]"}
    return [seen, {**identity, "kind": "stopped", "at": at, "facts": message_facts}]


def _process(pane: Pane) -> int | None:
    """Return the pid of the agent, if it can be distinguished from its shell. It ends with this process."""
    for pid in (pane.pid, *descendants(pane.pid)):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.path.basename(words[0]) == os.fsencode(pane.command):
            return pid
    return None


def _document(one: FoundAgent) -> dict[str, Any]:
    return {
        "pane": one.pane.id,
        "address": one.pane.address,
        "tmux": one.address.path,
        "agent": one.agent,
        "state": one.state,
        "agent_state": one.agent_state,
        "cwd": one.pane.cwd,
    }


def _row(one: FoundAgent) -> tuple[str, ...]:
    return (one.pane.address, one.agent, one.agent_state or "known to the boss", one.pane.cwd)
