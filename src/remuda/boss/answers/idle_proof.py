"""Prove that an agent in a tmux pane waits for a prompt and for nothing else. Blocking.

All of this must be true at once: its registry says that it is idle, in this conversation; its process is the
one that gets the pane's keys; and the pane shows its empty composer and no dialog. Anything that is missing
or cannot be read is a reason not to type.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from remuda.agents import find_agent, find_sources
from remuda.agents.attention import EventKind
from remuda.agents.prompting import ComposerKind, PromptProtocol
from remuda.agents.sources import AgentSources, RegistryEntry
from remuda.durable import read_regular
from remuda.errors import NotSafe, TmuxError
from remuda.tmux.address import Address
from remuda.tmux.command import Tmux
from remuda.tmux.panes import capture, take_snapshot
from remuda.untrusted import BadJson, parse_object

from ..attention.model import Activity, BossSession

_ASKS = "'remuda approvals' shows the request; decide with 'remuda approve' or 'remuda deny'"
_SETTLE_TIMEOUT = 1.0
_LOOK_INTERVAL = 0.05
_RESTING = (Activity.STOPPED, Activity.STARTED, Activity.FAILED)
_SGR = re.compile(rb"\x1b\[[\d;:]*m")
_RESET = re.compile(rb"\x1b\[(?:0?|0;[\d;:]*)m")
_ESCAPE = re.compile(r"\x1b(?:\[[\d;:?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Za-z0-9]|[\x0e\x0f])")


@dataclass(frozen=True, slots=True)
class IdlePane:
    """Where to type: the pane, and the process in it."""

    tmux: Tmux
    pane: str
    pid: int
    sources: AgentSources
    prompts: PromptProtocol


def prove(session: BossSession) -> IdlePane:
    """Return where to type. Raises `NotSafe` that says why not."""
    sources = find_sources(session.agent)
    prompts = find_agent(session.agent).prompts if sources is not None else None
    if sources is None or prompts is None:
        raise NotSafe(f"Remuda cannot see whether {session.agent} is waiting for a prompt")
    if session.ended is not None:
        raise NotSafe("the agent has ended")
    if session.pane is None or session.pid is None:
        raise NotSafe(
            "the agent is not in a known tmux pane",
            hint="only sessions of 'remuda start' and agents in panes take prompts",
        )
    if session.state not in _RESTING:
        raise NotSafe(
            f"the agent is not idle: {session.state}",
            hint=_ASKS if session.state is Activity.WAITING else None,
        )
    tmux = Tmux(Address.of(session.tmux) if session.tmux else Address.named("default", os.environ))
    _check_pane(tmux, session.pane, session.pid)
    check_registry(session, sources, _SETTLE_TIMEOUT)
    _check_pane(tmux, session.pane, session.pid)  # waiting for the registry may have taken a while
    _check_foreground(session.pid)
    where = IdlePane(tmux, session.pane, session.pid, sources, prompts)
    kind, text = read_composer(where)
    if kind is not ComposerKind.EMPTY:
        if kind is ComposerKind.ABSENT:
            raise NotSafe("the agent's composer is not on the screen")
        raise NotSafe(
            f"the agent's composer holds a draft: {text!r}", hint="submit or clear it there, then try again"
        )
    return where


def _check_pane(tmux: Tmux, pane: str, pid: int) -> None:
    try:
        panes = take_snapshot(tmux)
    except TmuxError as error:
        raise NotSafe(f"cannot read the agent's pane: {error}") from None
    shown = panes.panes.get(pane)
    if shown is None or shown.is_dead:
        raise NotSafe(f"pane {pane} no longer exists")
    if (of_it := panes.of_process(pid)) is None or of_it.id != pane:
        raise NotSafe(f"the agent's process is not running in pane {pane}")
    if shown.in_mode:
        raise NotSafe(f"pane {pane} is in copy mode", hint="leave copy mode there with 'q'")


def _check_foreground(pid: int) -> None:
    """A process that was stopped or put into the background does not get the keys: a shell does."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        stopped, foreground = fields[0] in "Tt", fields[2] == fields[5]
    except (OSError, IndexError):
        done = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, timeout=5, check=False
        )
        stopped, foreground = "T" in done.stdout, "+" in done.stdout
    if stopped or not foreground:
        raise NotSafe("the agent's process is not in the foreground of its terminal")


def check_registry(session: BossSession, sources: AgentSources, timeout: float = 0.0) -> None:
    """Raise `NotSafe` unless the registry says that the agent is idle in this conversation.

    Until `timeout` the file may be half written, or without a status, as at the agent's start, or say busy,
    as it does for a moment after a stop.
    """
    deadline = time.monotonic() + timeout
    while (
        (entry := _read_registry(session, sources)) is None
        or not entry.status
        or entry.event.kind is EventKind.WORKING
    ):
        if time.monotonic() >= deadline:
            break
        time.sleep(_LOOK_INTERVAL)
    if entry is None:
        raise NotSafe("cannot read the agent's registry file, so it is unknown whether it is idle")
    if entry.session_id != session.id:
        raise NotSafe("the agent is now in another conversation")
    if not entry.is_idle:
        raise NotSafe(f"the agent's registry file says: {entry.status}")


def _read_registry(session: BossSession, sources: AgentSources) -> RegistryEntry | None:
    folder = sources.registry_folder(os.environ, session.transcript_path)
    if folder is None:
        return None
    try:
        return sources.read_registry(parse_object(read_regular(folder / f"{session.pid}.json", own=True)))
    except (OSError, BadJson):
        return None


def read_composer(where: IdlePane) -> tuple[ComposerKind, str]:
    """Return what the composer holds. Raises `NotSafe` if a dialog is open or the pane cannot be read."""
    try:
        rows = capture(where.tmux, where.pane, styled=True)
    except TmuxError as error:
        raise NotSafe(f"cannot read the agent's pane: {error}") from None
    lines = [_ESCAPE.sub("", row).rstrip() for row in rows]
    if (dialog := where.prompts.dialog(lines)) is not None:
        raise NotSafe(f"a {dialog} is open")
    styled = whole_rows([row.encode("utf-8", "surrogateescape") for row in rows])
    composer = where.prompts.composer(lines, lambda y: styled[y])
    return composer.kind, composer.text


def whole_rows(rows: Sequence[bytes]) -> list[bytes]:
    """tmux writes only how the style of a row differs from the row before; make each row complete."""
    complete: list[bytes] = []
    carried: list[bytes] = []
    for row in rows:
        complete.append(b"".join(carried) + row)
        for sgr in _SGR.findall(row):
            carried = [sgr] if _RESET.fullmatch(sgr) else [*carried, sgr]
    return complete
