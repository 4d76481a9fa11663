"""What Claude Code's hooks and files tell the boss.

Facts of 2.1.325: `claude agents --json` prints what two small files hold, and no more: the registry file of
each process that runs, and `jobs/<id>/state.json`. A background agent (`claude --bg`) outlives its process.
Its service ends the process of one that has been idle for long, and restarts one that died. The agent is over
when it was stopped (`claude stop`) or its folder was removed (`claude rm`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from remuda.agents.attention import Event
from remuda.agents.sources import BackgroundJob, PermissionReader, RegistryEntry

from . import asking, files
from .attention import hook_events, is_background, record_events, registry_events
from .prompt import ENTER, PASTE_BEGIN, PASTE_END

_SETTLED = ("done", "failed", "stopped")
_AT_WORK = ("working", "running")


class ClaudePermissions:
    command_fields = asking.COMMAND_TOOLS
    quiet_tools = asking.QUIET_TOOLS
    reason = staticmethod(asking.reason_of)
    facts = staticmethod(asking.asked)
    is_plain = staticmethod(asking.is_plain)
    path_fields = staticmethod(asking.path_fields)
    search_pattern = staticmethod(asking.search_pattern)
    with_answers = staticmethod(asking.with_answers)

    def can_allow_always(
        self,
        tool: str,
        given: Mapping[str, Any],
        suggestions: Sequence[Mapping[str, Any]],
        *,
        edited: bool,
    ) -> bool:
        from .stream.protocol import for_conversation

        return bool(for_conversation(tool, given, suggestions, edited=edited))


class ClaudeSources:
    agent = "claude"
    permissions: PermissionReader = ClaudePermissions()
    hook_events = staticmethod(hook_events)

    # ── running agents ──

    def registry_folder(self, env: Mapping[str, str], transcript: str | None = None) -> Path:
        beside = files.registry_beside(transcript) if transcript else None
        return beside or files.registry_folder(env)

    def read_registry(self, document: Mapping[str, Any]) -> RegistryEntry | None:
        pid, events = document.get("pid"), registry_events(document)
        if type(pid) is not int or not events:
            return None
        status, start = str(document.get("status")), document.get("procStart")
        waiting_for = document.get("waitingFor")
        return RegistryEntry(
            pid,
            events[0],
            f"{status}, {waiting_for}" if waiting_for else status,
            status_since=document.get("statusUpdatedAt"),
            is_idle=status == "idle",
            outlives_process=is_background(document),
            process_start=None if start is None else str(start),
        )

    # ── conversations ──

    def find_transcript(self, env: Mapping[str, str], session_id: str) -> Path | None:
        return files.find_transcript(env, {"session_id": session_id})

    def transcript_folders(self, env: Mapping[str, str], cwd: Path) -> list[Path]:
        return files.transcript_folders(env, cwd)

    def record_events(self, record: Mapping[str, Any], session_id: str) -> list[Event]:
        """A fork's transcript begins with records of the conversation that it was forked from."""
        if record.get("sessionId") not in (None, session_id):
            return []
        return record_events(record, session_id)

    # ── background jobs ──

    def job_files(self, registry: Path) -> Iterable[Path]:
        folder = files.jobs_beside(registry)
        try:
            return [folder / name / "state.json" for name in sorted(os.listdir(folder))]
        except OSError:
            return []

    def read_job(self, document: Mapping[str, Any]) -> BackgroundJob | None:
        session_id, state, at = document.get("sessionId"), document.get("state"), _epoch(document)
        if not isinstance(session_id, str) or not session_id or not isinstance(state, str) or at is None:
            return None
        tempo = document.get("tempo")
        blocked = state == "blocked" or (tempo == "blocked" and state not in _SETTLED)
        return BackgroundJob(
            self.agent,
            session_id,
            state if state in _SETTLED else "blocked" if blocked else "working",
            rests=state in ("done", "failed", "blocked") or (state in _AT_WORK and tempo == "idle"),
            at=at,
            cwd=_text(document, "cwd"),
            title=_text(document, "name"),
            transcript=_text(document, "linkScanPath"),
            needs=_text(document, "needs") or _text(document, "detail") or "",
        )

    def attach_command(self, session_id: str) -> str:
        return f"claude attach {session_id[:8]}"  # the id as 'claude agents' prints it

    # ── typing into a pane ──

    def paste_text(self, data: bytes) -> bytes:
        return data.removeprefix(PASTE_BEGIN).removesuffix(PASTE_END + ENTER)


def _epoch(document: Mapping[str, Any]) -> float | None:
    try:
        at = datetime.fromisoformat(str(document.get("updatedAt"))).timestamp()
    except (ValueError, OverflowError):
        return None
    return at if at >= 0 else None


def _text(document: Mapping[str, Any], key: str) -> str | None:
    value = document.get(key)
    return value if isinstance(value, str) and value else None
