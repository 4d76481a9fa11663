"""Hook payloads, transcript records and registry files of any shape: every reader takes or refuses them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from remuda.agents.attention import Event, EventKind
from remuda.agents.claude.hooks import read_hook
from remuda.agents.claude.observer import ClaudeObserver
from remuda.agents.claude.prompting import ClaudePrompts
from remuda.agents.claude.sources import ClaudeSources, hook_events, record_events, registry_events
from remuda.agents.events import Report
from remuda.agents.permission import PermissionTracker
from remuda.agents.progress import Progress
from remuda.agents.unattended import Unattended
from remuda.boss.attention.model import document
from remuda.boss.attention.session_index import SessionEntry, SessionIndex
from remuda.boss.evidence import kept_events
from remuda.boss.evidence.jobs import ended_event, rests_event
from remuda.boss.http.page import request_page
from remuda.boss.navigator import reason
from remuda.boss.records import rows
from remuda.boss.service import check
from remuda.errors import InvalidOptions
from remuda.untrusted import BadJson, dump_json, parse_json, parse_object
from support.counts import PAYLOADS

NOW = 1_700_000_000.0
EVENTS = (
    "SessionStart",
    "SessionEnd",
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "PermissionDenied",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "MessageDisplay",
    "Notification",
    "Stop",
    "StopFailure",
)
TOOLS = ("Bash", "Edit", "MultiEdit", "Write", "NotebookEdit", "AskUserQuestion", "ExitPlanMode", "Agent")
QUESTION = {"question": "Which?", "header": "W", "options": [{"label": "a", "description": "b"}]}
PAYLOAD: dict[str, Any] = {
    "session_id": "s",
    "transcript_path": "/none",
    "cwd": "/srv",
    "hook_event_name": "Stop",
    "prompt_id": "p",
    "prompt": "hello",
    "permission_mode": "default",
    "tool_name": "Bash",
    "tool_use_id": "t1",
    "tool_input": {"command": "ls", "file_path": "/a", "questions": [QUESTION], "plan": "do", "edits": [{}]},
    "tool_response": {"isAsync": True, "agentId": "a"},
    "tool_calls": [{"tool_use_id": "t1", "tool_name": "Bash", "tool_response": "x"}],
    "permission_suggestions": [{"type": "addRules"}],
    "notification_type": "permission_prompt",
    "message": "words",
    "source": "startup",
    "reason": "other",
    "error": "rate_limit",
    "last_assistant_message": "API Error: 429 try again in 5 hours, resets 5pm (UTC)",
    "background_tasks": [{"id": "b", "type": "agent", "status": "running"}],
    "agent_id": "",
    "claude_pid": 17,
    "delta": "d",
    "index": 0,
    "message_id": "m",
    "final": True,
    "session_crons": [],
}
RECORD: dict[str, Any] = {
    "type": "assistant",
    "timestamp": "2026-02-03T04:05:06.789Z",
    "sessionId": "s",
    "uuid": "u",
    "cwd": "/srv",
    "isSidechain": False,
    "isMeta": False,
    "isApiErrorMessage": True,
    "apiErrorStatus": 429,
    "error": "rate_limit",
    "quotaLimits": {"resetsAt": 1_800_000_000},
    "toolDenialKind": None,
    "promptId": "p",
    "subtype": "informational",
    "content": "Unknown slash command: x",
    "promptSubmitEnding": {"ending": {"kind": "blocked_by_hook", "reason": "no"}},
    "message": {
        "id": "m",
        "model": "x",
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1},
        "content": [
            {"type": "text", "text": "words"},
            {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}},
            {"type": "tool_result", "tool_use_id": "t1", "is_error": True},
        ],
    },
}
REGISTRY: dict[str, Any] = {
    "pid": 17,
    "sessionId": "s",
    "cwd": "/srv",
    "kind": "bg",
    "entrypoint": "cli",
    "name": "n",
    "status": "waiting",
    "waitingFor": "permission prompt",
    "statusUpdatedAt": 1_700_000_000_000,
    "procStart": "1",
    "state": "blocked",
    "tempo": "idle",
    "updatedAt": "2026-02-03T04:05:06Z",
    "linkScanPath": "/none",
    "needs": "x",
}
STATUS: dict[str, Any] = {
    "name": "work",
    "agent": "claude",
    "cwd": "/srv",
    "pid": 17,
    "hooks": True,
    "conversation": {"session_id": "s", "transcript_path": "/none"},
    "state": "waiting_permission",
    "since": NOW,
    "source": "hook",
    "detail": "x",
    "id": "1",
    "tool": "Bash",
    "input": {"command": "ls"},
    "suggestions": [],
    "tool_use_id": "t1",
    "at": NOW,
    "ended_at": NOW,
    "exit_code": 1,
    "end_reason": "exited",
}
FACTS: dict[str, Any] = {
    "pane": "%1",
    "tmux": "/tmp/tmux",
    "pid": 17,
    "name": "work",
    "cwd": "/srv",
    "repo": "/srv",
    "transcript_path": "/none",
    "agent": "claude",
    "entrypoint": "cli",
    "title": "t",
    "origin": "kept",
    "prompt": "x",
    "prompt_id": "p",
    "continued": False,
    "notice": False,
    "message": "words",
    "background": [{}],
    "shells": [{}],
    "reason": "permission",
    "tool": "Bash",
    "input": {"command": "ls"},
    "suggestions": [],
    "options": [],
    "diff": "-a\n+b",
    "ask": "x",
    "tool_use_id": "t1",
    "digest": "d",
    "subagent": "",
    "ok": True,
    "denied": False,
    "error": "e",
    "until": 1.0,
    "how": "resume",
    "why": "x",
    "evidence": "x",
    "quiet": 600,
    "expires_at": 1.0,
    "exit_code": 1,
    "waiting_for": "x",
}
WORDS = {
    "hook_event_name": EVENTS,
    "tool_name": TOOLS,
    "type": ("user", "assistant", "system", "text", "tool_use", "tool_result"),
    "source": ("startup", "resume", "clear", "compact"),
    "notification_type": ("permission_prompt", "idle_prompt", "elicitation_dialog"),
    "status": ("waiting", "idle", "busy", "shell", "running"),
    "subtype": ("informational", "local_command", "turn_duration"),
}
ODD = (
    *("null", "true", "false", "0", "-1", "1", "2.5", "17", "9223372036854775808"),
    *("1e308", "-1e308", "1e999", "NaN", "-Infinity"),
    *('""', '"x"', '"t1"', '"NaN"', '"1e999"', '"rate_limit"', '"\\ud800"', '"\\u0000\\u001b[2J"'),
    *("[]", "{}", "[[]]", "[null]", '[1,"a",{}]', '{"a":{"b":[{}]}}', '{"id":{}}', '[{"id":[]}]'),
    *('{"\\ud800":"\\udfff"}', '"0001-01-01"', '"0001-01-01T00:00:00+00:00"', '"9999-12-31T23:59:59-12:00"'),
)
LONG = ("9" * 5000, '"' + "9" * 5000 + '"', "[" * 700 + "]" * 700, '"' + "x" * 20_000 + '"')


class Shapes:
    """Documents that begin as the CLI writes them, with some of their parts replaced, lost or odd."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def text(self, snapshot: dict[str, Any]) -> str:
        roll = self._random.random()
        if roll < 0.01:
            return self._odd()
        text = self._changed(snapshot, self._random.choice((0.02, 0.1, 0.4)))
        return text[: self._random.randrange(len(text))] if roll < 0.02 else text

    def _changed(self, value: Any, rate: float, key: str = "") -> str:
        if self._random.random() < rate:
            return self._odd()
        if key in WORDS and isinstance(value, str):
            return json.dumps(self._random.choice(WORDS[key]))
        if isinstance(value, dict):
            kept = [name for name in value if self._random.random() > rate / 2]
            fields = (f"{json.dumps(name)}:{self._changed(value[name], rate, name)}" for name in kept)
            return "{" + ",".join(fields) + "}"
        if isinstance(value, list):
            return "[" + ",".join(self._changed(one, rate) for one in value) + "]"
        return json.dumps(value)

    def _odd(self) -> str:
        return self._random.choice(LONG if self._random.random() < 0.02 else ODD)


class Readers:
    """All that read what an agent tells, as the keeper and the boss have them."""

    def __init__(self) -> None:
        self.index = SessionIndex()
        self.observer = ClaudeObserver(17, {}, has_screen=True, start_of=lambda _pid: "1")
        self.prompts = ClaudePrompts()
        self.progress = Progress()
        self.permissions = PermissionTracker()
        self.unattended = Unattended(deny_permissions=True, max_turns=1000)
        self.at = NOW
        self.refused = self.taken = 0

    def hook(self, text: str) -> None:
        payload = self._parsed(text)
        if payload is None:
            return
        for event in hook_events(payload, self.at, id=str(self.at), env={"TMUX_PANE": "%1"}):
            self._take(event)
        self._reduce(read_hook(payload, at=self.at))
        assert self.progress.last_shown is None or isinstance(self.progress.last_shown, str)

    def _reduce(self, report: Report) -> None:
        self.observer.take(report, self.at, self.at)
        self.progress.take(report)
        self.permissions.take(report)
        self.unattended.take(report)

    def record(self, text: str) -> None:
        record = self._parsed(text)
        if record is None:
            return
        for event in record_events(record, "s"):
            self._take(event)
        self._reduce(self.observer.read_record(record))
        self.prompts.past([record, record], "words", self.at)

    def registry(self, text: str) -> None:
        found = self._parsed(text)
        if found is None:
            return
        for event in registry_events(found):
            self._take(event)
        self._reduce(self.observer.read_registry(found))
        if (job := ClaudeSources().read_job(found)) is not None:
            self._take(rests_event(job))
            self._take(ended_event(job, self.at, "it was removed"))

    def kept(self, text: str) -> None:
        status = self._parsed(text)
        if status is None:
            return
        facts = kept_events.identity(status)
        session = kept_events.session_id_of(status) or "s"
        for event in kept_events.state_events(session, status, facts):
            self._take(event)
        self._take(kept_events.ask_event(session, status, facts))
        self._take(kept_events.ask_ended_event(session, status, self.at))
        self._take(kept_events.end_event(session, status, facts))

    def facts(self, text: str) -> None:
        """As a client of the API may tell them."""
        facts = self._parsed(text)
        if facts is None:
            return
        kind = list(EventKind)[int(self.at) % len(EventKind)]
        self._take(Event(kind, f"s{self.at % 3}", self.at, id=f"{kind}:{self.at}", facts=facts))

    def _parsed(self, text: str) -> dict[str, Any] | None:
        self.at += 1.0
        try:
            found = parse_object(text)
        except BadJson:
            self.refused += 1
            return None
        self.taken += 1
        return found

    def _take(self, event: Event) -> None:
        try:
            check(event)
        except InvalidOptions:
            return
        changes = self.index.take(event, self.at)
        for _, values in rows.statements(changes):
            for value in values:
                if isinstance(value, str):
                    value.encode()
        for one in (*changes.sessions.values(), *changes.items.values(), *changes.approvals.values()):
            parse_json(dump_json(document(one)), depth=600)
        for approval in changes.approvals.values():
            request_page(approval, "work").encode()
        for item in changes.items.values():
            reason({**document(item), "session": None})

    def known(self) -> Iterator[SessionEntry]:
        return iter(self.index.entries.values())


KINDS = {"hook": PAYLOAD, "record": RECORD, "registry": REGISTRY, "kept": STATUS, "facts": FACTS}


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_document_of_any_shape_is_taken_or_refused_by_every_reader(kind: str) -> None:
    shapes, readers = Shapes(17), Readers()
    for _ in range(PAYLOADS):
        getattr(readers, kind)(shapes.text(KINDS[kind]))
    assert readers.taken > PAYLOADS / 3
    assert readers.refused > PAYLOADS / 100
    assert list(readers.known())


@pytest.mark.parametrize("number", [[], {}, [1], {"a": 1}, 17, None, True])
def test_observer_takes_a_call_whose_id_is_not_a_text(number: object) -> None:
    observer = ClaudeObserver(17, {}, has_screen=False)
    for event in ("PreToolUse", "PostToolUse", "PostToolUseFailure"):
        payload = {"session_id": "s", "hook_event_name": event, "tool_name": "Bash", "tool_use_id": number}
        assert observer.take(read_hook(payload), 1.0, 1.0)
    Progress().take(read_hook({"hook_event_name": "PostToolBatch", "tool_calls": [{"tool_use_id": number}]}))
    observer.take(read_hook({"hook_event_name": "Stop", "background_tasks": number}), 2.0, 2.0)
    block = {"type": "tool_result", "tool_use_id": number}
    observer.take(observer.read_record({"type": "user", "message": {"content": [block]}}), 3.0, 3.0)


def test_path_with_a_nul_in_a_hook_is_not_followed() -> None:
    """`os.stat` refuses it with ValueError, and the reducers after the observer got nothing of the hook."""
    observer = ClaudeObserver(17, {}, has_screen=False)
    payload = {"session_id": "s", "hook_event_name": "Stop", "transcript_path": "/a\0b", "cwd": "/\0"}
    assert observer.take(read_hook(payload), 1.0, 1.0)
    assert observer.transcript_path() is None
    assert read_hook(payload).conversation == {"session_id": "s"}
