"""What print mode prints: the messages of the stream, in the shapes of the real program."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from remuda.testing.script import Usage

from . import VERSION
from .agent_conversation import AgentConversation
from .agent_flags import AgentFlags
from .records import Record, new_id, now

_TOOLS = ["Task", "AskUserQuestion", "Bash", "CronCreate", "Edit", "Read", "Write"]


@dataclass(slots=True)
class PrintTurnState:
    """What a turn's messages say of it: the prompt that began it, and what it came to."""

    command: str | None = None
    origin: Record | None = None
    requests: int = 0
    turns: int = 1
    denials: list[Record] = field(default_factory=list)
    text: str = ""
    stop_reason: str | None = None

    def marks(self) -> Record:
        return {} if self.command is None else {"user_message_uuid": self.command}

    def usage(self) -> Record:
        return {name: count * self.requests for name, count in asdict(Usage()).items()}


class Voice:
    """Prints messages, each in full. Nothing but the result where the stream was not asked for."""

    def __init__(self, options: AgentFlags, session: AgentConversation, *, tells_state: bool) -> None:
        self._format = options.output_format
        self._partial = options.partial
        self._session = session
        self._tells_state = tells_state

    def say(self, message: Mapping[str, Any]) -> None:
        if self._format == "stream-json":
            common = {"session_id": self._session.id, "uuid": new_id()}
            self.write(json.dumps({**common, **message}).encode() + b"\n")

    @staticmethod
    def write(data: bytes) -> None:
        while data:
            data = data[os.write(1, data) :]

    # ── a turn ──

    def moved(self, command: str | None, state: str) -> None:
        if command is not None:
            self.say({"type": "command_lifecycle", "command_uuid": command, "state": state})

    def state(self, state: str) -> None:
        if self._tells_state:
            self.say({"type": "system", "subtype": "session_state_changed", "state": state})

    def begun(self) -> None:
        session = self._session
        self.say(
            {
                "type": "system",
                "subtype": "init",
                "cwd": session.cwd,
                "tools": _TOOLS,
                "mcp_servers": [],
                "model": session.model,
                "permissionMode": session.mode,
                "claude_code_version": VERSION,
                "output_style": "default",
                "additional_directories": [],
            }
        )

    def requesting(self) -> None:
        if self._partial:
            self.say({"type": "system", "subtype": "status", "status": "requesting"})

    def piece(self, text: str) -> None:
        if self._partial:
            delta = {"type": "text_delta", "text": text}
            event = {"type": "content_block_delta", "index": 0, "delta": delta}
            self.say({"type": "stream_event", "event": event, "parent_tool_use_id": None})

    def used(self, stop_reason: str) -> None:
        """The end of a message, which has what it used."""
        if self._partial:
            event = {"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": asdict(Usage())}
            self.say({"type": "stream_event", "event": event, "parent_tool_use_id": None})

    def block(self, block: Record, *, aborted: bool = False, model: str | None = None) -> None:
        message = {
            "id": f"msg_{new_id()[:8]}",
            "type": "message",
            "role": "assistant",
            "model": model or self._session.model,
            "content": [block],
            "stop_reason": None,
            "usage": {**asdict(Usage()), "output_tokens": 1},
        }
        more = {"aborted": True} if aborted else {}
        line = {"type": "assistant", "message": message, "parent_tool_use_id": None, "timestamp": now()}
        self.say({**line, **more})

    def user(self, block: Record) -> None:
        message = {"role": "user", "content": [block]}
        self.say({"type": "user", "message": message, "parent_tool_use_id": None, "timestamp": now()})

    def retrying(self, attempt: int, most: int, delay: float, status: int) -> None:
        fields = {"attempt": attempt, "max_retries": most, "retry_delay_ms": round(delay * 1000)}
        self.say(
            {"type": "system", "subtype": "api_retry", **fields, "error_status": status, "error": "server"}
        )

    def tasks(self, tasks: Sequence[Mapping[str, str]]) -> None:
        self.say({"type": "system", "subtype": "background_tasks_changed", "tasks": list(tasks)})

    def reset(self, command: str | None) -> None:
        marks = {} if command is None else {"user_message_uuid": command}
        self.say({"type": "conversation_reset", "new_conversation_id": new_id(), "trigger": "clear", **marks})

    def result(self, turn: PrintTurnState, **fields: object) -> None:
        """The last message of a turn; ``fields`` say how it ended where it was not well."""
        result = {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "num_turns": turn.turns,
            "result": turn.text,
            "stop_reason": turn.stop_reason,
            "session_id": self._session.id,
            "total_cost_usd": 0.0,
            "usage": turn.usage(),
            "permission_denials": turn.denials,
            "terminal_reason": "completed",
            **turn.marks(),
            **({"origin": turn.origin} if turn.origin else {}),
            **fields,
        }
        if self._format == "json":
            self.write(json.dumps(result).encode() + b"\n")
        elif self._format == "text":
            self.write(str(result["result"] or "").encode() + b"\n")
        else:
            self.say(result)

    # ── between two programs ──

    def ask(self, request_id: str, request: Record) -> None:
        self.say({"type": "control_request", "request_id": request_id, "request": request})

    def withdraw(self, request_id: str) -> None:
        self.say({"type": "control_cancel_request", "request_id": request_id})

    def reply(self, request_id: object, answer: Mapping[str, Any]) -> None:
        response = {"subtype": "success", "request_id": request_id, "response": answer}
        self.say({"type": "control_response", "response": response})

    def refuse(self, request_id: object, error: str) -> None:
        response = {"subtype": "error", "request_id": request_id, "error": error}
        self.say({"type": "control_response", "response": response})
