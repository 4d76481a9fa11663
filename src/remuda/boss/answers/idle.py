"""The proof that an agent in a tmux pane waits for a prompt, and for nothing else. Blocking.

All of this must be true at once: its registry says that it is idle, in this conversation; its process is the
one that the pane's keys go to; and the pane shows its empty composer and no dialog. Whatever is missing or
cannot be read is a reason not to type.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.agents.claude.files import registry_beside, registry_file
from remuda.agents.claude.speech import ClaudeSpeech
from remuda.agents.speech import ComposerKind
from remuda.durable import read_regular
from remuda.errors import NotSafe, TmuxError
from remuda.tmux.address import Address
from remuda.tmux.once import Tmux
from remuda.tmux.panes import take_snapshot
from remuda.tmux.popup import capture
from remuda.untrusted import BadJson, parse_object

from ..attention.model import Session, State

SPEECH = ClaudeSpeech()

_ASKS = "'remuda approvals' shows the request; decide with 'remuda approve' or 'remuda deny'"
_SETTLE_TIMEOUT = 1.0
_LOOK_INTERVAL = 0.05
_RESTING = (State.STOPPED, State.STARTED, State.FAILED)
_SGR = re.compile(rb"\x1b\[[\d;:]*m")
_RESET = re.compile(rb"\x1b\[(?:0?|0;[\d;:]*)m")
_ESCAPE = re.compile(r"\x1b(?:\[[\d;:?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Za-z0-9]|[\x0e\x0f])")


@dataclass(frozen=True, slots=True)
class Idle:
    """Where to type: this pane, whose program is this process."""

    tmux: Tmux
    pane: str
    pid: int


def prove(session: Session) -> Idle:
    """Raises `NotSafe` that says what is not so."""
    if session.agent != "claude":
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
            f"the agent is not idle: {session.state}", hint=_ASKS if session.state is State.WAITING else None
        )
    tmux = Tmux(Address.of(session.tmux) if session.tmux else Address.named("default", os.environ))
    _check_pane(tmux, session.pane, session.pid)
    check_registry(session, _SETTLE_TIMEOUT)
    _check_pane(tmux, session.pane, session.pid)  # that may have taken a while
    _check_foreground(session.pid)
    kind, text = look(tmux, session.pane)
    if kind is not ComposerKind.EMPTY:
        if kind is ComposerKind.ABSENT:
            raise NotSafe("the agent's composer is not on the screen")
        raise NotSafe(
            f"the agent's composer holds a draft: {text!r}", hint="submit or clear it there, then try again"
        )
    return Idle(tmux, session.pane, session.pid)


def _check_pane(tmux: Tmux, pane: str, pid: int) -> None:
    try:
        panes = take_snapshot(tmux)
    except TmuxError as error:
        raise NotSafe(f"cannot read the agent's pane: {error}") from None
    found = panes.panes.get(pane)
    if found is None or found.is_dead:
        raise NotSafe(f"pane {pane} no longer exists")
    if (of_it := panes.of_process(pid)) is None or of_it.id != pane:
        raise NotSafe(f"the agent's process is not running in pane {pane}")
    if found.in_mode:
        raise NotSafe(f"pane {pane} is in copy mode", hint="leave copy mode there with 'q'")


def _check_foreground(pid: int) -> None:
    """A program that was stopped or put into the background does not get the keys: a shell does."""
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


def check_registry(session: Session, patience: float = 0.0) -> None:
    """`patience`: for so long it may be half written, or say that it is busy, as it does behind its stop."""
    deadline = time.monotonic() + patience
    while (found := _read_registry(session)) is None or found.get("status") == "busy":
        if time.monotonic() >= deadline:
            break
        time.sleep(_LOOK_INTERVAL)
    if found is None:
        raise NotSafe("cannot read the agent's registry file, so it is unknown whether it is idle")
    if found.get("sessionId") != session.id:
        raise NotSafe("the agent is now in another conversation")
    if found.get("status") != "idle":
        what = found.get("waitingFor")
        raise NotSafe(f"the agent's registry file says: {found.get('status')}{f', {what}' if what else ''}")


def _read_registry(session: Session) -> dict[str, Any] | None:
    assert session.pid is not None
    folder = registry_beside(session.transcript_path) if session.transcript_path else None
    path = folder / f"{session.pid}.json" if folder else registry_file(os.environ, session.pid)
    try:
        return parse_object(read_regular(path, own=True))
    except (OSError, BadJson):
        return None


def look(tmux: Tmux, pane: str) -> tuple[ComposerKind, str]:
    """What the composer holds. Raises `NotSafe` for a dialog, and where nothing can be seen."""
    try:
        rows = capture(tmux, pane, styled=True)
    except TmuxError as error:
        raise NotSafe(f"cannot read the agent's pane: {error}") from None
    lines = [_ESCAPE.sub("", row).rstrip() for row in rows]
    if (dialog := SPEECH.dialog(lines)) is not None:
        raise NotSafe(f"a {dialog} is open")
    styled = whole_rows([row.encode("utf-8", "surrogateescape") for row in rows])
    composer = SPEECH.composer(lines, lambda y: styled[y])
    return composer.kind, composer.text


def whole_rows(rows: Sequence[bytes]) -> list[bytes]:
    """tmux says of a row how it differs from the one before it: here each stands for itself."""
    found: list[bytes] = []
    carried: list[bytes] = []
    for row in rows:
        found.append(b"".join(carried) + row)
        for sgr in _SGR.findall(row):
            carried = [sgr] if _RESET.fullmatch(sgr) else [*carried, sgr]
    return found
