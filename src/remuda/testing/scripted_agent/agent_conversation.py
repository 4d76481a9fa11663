"""One conversation: its ids, its permission mode, its files, and the payloads of its hooks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import ENTRYPOINT, records
from .agent_flags import AgentFlags, Knobs, UsageError
from .records import Tail, new_id
from .transcript_file import Transcript, folder, newest, read

_EFFORT = {"level": "medium"}
# Which of the common fields an event's payload has, besides the session's own.
_IN_TOOLS = frozenset(
    {"PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "PermissionRequest"}
)
_WITH_MODE = _IN_TOOLS | {"UserPromptSubmit", "Stop"}
_WITH_EFFORT = _IN_TOOLS | {"Stop", "StopFailure"}
_WITHOUT_PROMPT = frozenset({"SessionStart", "InstructionsLoaded"})


class AgentConversation:
    """The conversation that goes on in this process; ``/clear`` begins another one with :meth:`restart`."""

    def __init__(self, options: AgentFlags, knobs: Knobs, config: Path, cwd: str, mode: str) -> None:
        self.cwd = cwd
        self.mode = mode
        self.model = options.model
        self.allowed = list(options.allowed_tools)
        self.denied = list(options.disallowed_tools)
        self.prompt_id: str | None = None
        self.turns = 0
        self.said = 0
        self.old_records: list[dict[str, Any]] = []
        self.source = "startup"
        self.title = options.name
        self._config = config
        self._knobs = knobs
        self.id = self._choose_id(options)
        self._first_id = self.id
        self.transcript = self._open_transcript()
        if self.old_records:
            self._take_up(options)

    def restart(self) -> None:
        """Begin another conversation."""
        self.id = new_id()
        self.prompt_id = None
        self.turns = self.said = 0
        self.transcript = self._open_transcript()

    def new_prompt(self) -> str:
        """Return the id for what is submitted now."""
        self.prompt_id = new_id()
        return self.prompt_id

    def payload(self, event: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return a hook's payload: the common fields that this event has, then its own."""
        payload: dict[str, Any] = {
            "session_id": self.id,
            "transcript_path": str(self.transcript.path),
            "cwd": self.cwd,
        }
        if self.prompt_id and (event not in _WITHOUT_PROMPT or fields.get("source") == "compact"):
            payload["prompt_id"] = self.prompt_id
        if event in _WITH_MODE:
            payload["permission_mode"] = self.mode
        if event in _WITH_EFFORT:
            payload["effort"] = _EFFORT
        titled = self.title and event in ("SessionStart", "UserPromptSubmit")
        title = {"session_title": self.title} if titled else {}
        return {**payload, "hook_event_name": event, **fields, **title}

    def start_fields(self) -> dict[str, Any]:
        """Return what SessionStart says of how this conversation began."""
        if self.source == "startup":
            return {"source": self.source, "model": self.model}
        return {
            "source": self.source,
            "seconds_since_last_response": 0,
            "context_tokens": 22,
            "prompt_cache_likely_expired": False,
            "estimated_cache_write_usd": 0,
        }

    def hook_environ(self, event: str) -> dict[str, str]:
        """Return what a hook's environment has besides the agent's own."""
        effort = {"CLAUDE_EFFORT": _EFFORT["level"]} if event in _WITH_EFFORT else {}
        return {
            "AI_AGENT": "remuda-scripted-agent",
            "CLAUDECODE": "1",
            "CLAUDE_CODE_CHILD_SESSION": "1",
            "CLAUDE_CODE_ENTRYPOINT": ENTRYPOINT,
            "CLAUDE_CODE_SESSION_ATTENDED": "1",
            "CLAUDE_CODE_SESSION_ID": self.id,
            "CLAUDE_PID": str(os.getpid()),
            "CLAUDE_PROJECT_DIR": self.cwd,
            **effort,
        }

    def begin_file(self) -> None:
        """The lines before the first prompt."""
        if self.transcript.leaf is None:
            self.note_mode()

    def note_mode(self) -> None:
        """The mode, as it is noted at the beginning and after every turn."""
        self.transcript.helper("mode", {"mode": "normal"})
        self.transcript.helper("permission-mode", {"permissionMode": self.mode})

    def note_snapshot(self) -> None:
        """The line before every prompt."""
        message = new_id()
        snapshot = {"messageId": message, "trackedFileBackups": {}, "timestamp": records.now()}
        fields = {"messageId": message, "snapshot": snapshot, "isSnapshotUpdate": False}
        self.transcript.note({"type": "file-history-snapshot", **fields})

    def _path(self, session_id: str) -> Path:
        return folder(self._config, self.cwd) / f"{session_id}.jsonl"

    def _open_transcript(self) -> Transcript:
        tail = Tail(self.cwd, self.id, self._first_id)
        return Transcript(self._path(self.id), tail, writes=self._knobs.writes_transcript)

    def _choose_id(self, options: AgentFlags) -> str:
        resumed = options.resume or (newest(self._config, self.cwd) if options.continues else None)
        if resumed is None:
            if options.continues or options.resume is not None:
                raise UsageError("No conversation found to continue")
            return self._fresh_id(options)
        if not self._path(resumed).exists():
            raise UsageError(f"No conversation found with session ID: {resumed}")
        self.old_records = list(read(self._path(resumed)))
        return self._fresh_id(options) if options.fork else resumed

    def _fresh_id(self, options: AgentFlags) -> str:
        if options.session_id and self._path(options.session_id).exists():
            raise UsageError(f"Error: Session ID {options.session_id} is already in use.")
        return options.session_id or new_id()

    def _take_up(self, options: AgentFlags) -> None:
        """Continue after the last line of an old conversation, copied first where it is forked."""
        self.source = "resume"
        if options.fork:
            for record in self.old_records:
                self.transcript.note({**record, "sessionId": self.id})
        chained = [record for record in self.old_records if "uuid" in record]
        self.transcript.leaf = chained[-1]["uuid"] if chained else None
        self.turns = sum("promptSource" in record for record in chained)
        answers = (record["message"].get("id") for record in chained if record.get("type") == "assistant")
        self.said = len(set(answers))
