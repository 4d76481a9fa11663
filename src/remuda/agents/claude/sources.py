"""Claude Code's hooks and files, as the boss reads them.

Facts of 2.1.325: `claude agents --json` prints what two small files hold, and no more: the registry file of
each process that runs, and `jobs/<id>/state.json`. A background agent (`claude --bg`) outlives its process.
Its service ends the process of one that has been idle for long, and restarts one that died. The agent is over
when it was stopped (`claude stop`) or its folder was removed (`claude rm`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from remuda.agents.attention import Event, attention_events
from remuda.agents.permission import PermissionRequest, Refusals
from remuda.agents.sources import BackgroundJob, ConversationReader, PermissionReader, RegistryEntry
from remuda.untrusted import epoch_at, name_at, text_at

from . import asking, files
from .asking import Read, asked
from .conversation import ClaudeConversations
from .hooks import read_hook
from .prompt import ENTER, PASTE_BEGIN, PASTE_END
from .registry import is_background, read_registry
from .transcript import read_record

_SETTLED = ("done", "failed", "stopped")
_AT_WORK = ("working", "running")
_AGENT = "claude"

# ── events of the attention queue ──


def hook_events(
    payload: Mapping[str, Any],
    at: float,
    *,
    id: str = "",  # noqa: A002  # it is the event's
    env: Mapping[str, str] | None = None,
    read: Read | None = None,
) -> list[Event]:
    """Return the events of a hook's payload. `env` is the hook's environment, as far as it was passed on."""
    return attention_events(
        read_hook(payload, env, at), at, agent=_AGENT, describe=partial(asked, read=read), id=id
    )


def registry_events(document: Mapping[str, Any]) -> list[Event]:
    """Return what the registry says, dated when its status began."""
    report = read_registry(document)
    return attention_events(report, report.at or 0.0, agent=_AGENT)


def record_events(record: Mapping[str, Any], session_id: str | None = None) -> list[Event]:
    """Return the events of a record of a transcript; none of a record without a date: it may be old."""
    return attention_events(read_record(record, session_id), 0.0, agent=_AGENT, describe=asked)


# ── what the boss asks for ──


class ClaudePermissions:
    command_fields = asking.COMMAND_TOOLS
    quiet_tools = asking.QUIET_TOOLS
    reason = staticmethod(asking.reason_of)
    facts = staticmethod(asking.asked)
    is_plain = staticmethod(asking.is_plain)
    path_fields = staticmethod(asking.path_fields)
    search_pattern = staticmethod(asking.search_pattern)
    with_answers = staticmethod(asking.with_answers)

    def refusals(self, request: PermissionRequest) -> Refusals:
        from .stream.stream_protocol import for_conversation

        if for_conversation(request.tool, request.input, request.suggestions):
            return Refusals()
        why = "this command cannot be allowed always: it has a '*', which a rule reads as any text"
        return Refusals(always=f"{why}; allow it once")


class ClaudeSources:
    agent = _AGENT
    permissions: PermissionReader = ClaudePermissions()
    conversations: ConversationReader | None = ClaudeConversations()
    hook_events = staticmethod(hook_events)
    shell_variables = ("TMUX", "TMUX_PANE", "CLAUDE_PID", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_JOB_DIR")
    """As `boss/hook.sh` writes them in front of an event. `hook.py` sends the same."""

    # ── running agents ──

    def is_quick(self, payload: Mapping[str, Any]) -> bool:
        return payload.get("hook_event_name") != "PermissionRequest"

    def registry_folder(self, env: Mapping[str, str], transcript: str | None = None) -> Path:
        beside = files.registry_beside(transcript) if transcript else None
        return beside or files.registry_folder(env)

    def read_registry(self, document: Mapping[str, Any]) -> RegistryEntry | None:
        pid, events = document.get("pid"), registry_events(document)
        if type(pid) is not int or not events:
            return None
        status, start = str(document.get("status") or ""), document.get("procStart")
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
        """Skip records of another conversation: the transcript of a fork begins with those."""
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
        session_id, state, at = (
            document.get("sessionId"),
            document.get("state"),
            epoch_at(document, "updatedAt"),
        )
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
            cwd=name_at(document, "cwd") or None,
            title=name_at(document, "name") or None,
            transcript=name_at(document, "linkScanPath") or None,
            needs=text_at(document, "needs") or text_at(document, "detail") or "",
        )

    def attach_command(self, session_id: str) -> str:
        return f"claude attach {session_id[:8]}"  # the id as 'claude agents' prints it

    # ── typing into a pane ──

    def paste_text(self, data: bytes) -> bytes:
        return data.removeprefix(PASTE_BEGIN).removesuffix(PASTE_END + ENTER)
