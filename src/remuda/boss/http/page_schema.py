"""The shapes of what the page shows: sessions in detail, messages, conversations, changes, usage. Pure.

What is not known is null, never 0.
"""

from __future__ import annotations

from remuda.agents.conversation import EntryKind
from remuda.agents.state import State as AgentState
from remuda.boss import budgets
from remuda.boss.attention.model import Reason

from .schema import ANYTHING, BOOLEAN, NUMBER, TEXT, Schema, nullable, one_of, record, ref, several

COUNT: Schema = {"type": "integer", "minimum": 0}
MAYBE_TEXT, MAYBE_COUNT, MAYBE_NUMBER = nullable(TEXT), nullable(COUNT), nullable(NUMBER)
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 128}

# ── sessions ──

EVIDENCE = record(
    {
        "source": TEXT,
        "state": TEXT,
        "age": NUMBER,
        "detail": TEXT,
        "decides": BOOLEAN,
        "counts": BOOLEAN,
    }
)
START = record(
    {"name": NAME},
    {
        "agent": {"type": "string", "minLength": 1, "maxLength": 40},
        "command": {"type": "array", "items": TEXT, "maxItems": 1000},
        "cwd": {"type": "string", "minLength": 1, "maxLength": 4096},
        "trust": BOOLEAN,
        "resume": BOOLEAN,
        "cols": {"type": "integer", "minimum": 1, "maximum": 1000},
        "rows": {"type": "integer", "minimum": 1, "maximum": 1000},
    },
)
STARTED = record({"name": TEXT, "session": nullable(ref("Session"))})
ENDED = record({"name": TEXT, "exit_code": nullable({"type": "integer"})})
CANCELLED = record(
    {"id": MAYBE_TEXT, "outcome": TEXT, "reason": TEXT},
)
_CURSOR = record({"x": COUNT, "y": COUNT, "visible": BOOLEAN})
SCREEN = record(
    {
        "lines": several(TEXT),
        "cols": MAYBE_COUNT,
        "rows": MAYBE_COUNT,
        "cursor": nullable(_CURSOR),
        "alternate": nullable(BOOLEAN),
        "title": MAYBE_TEXT,
        "alive": BOOLEAN,
    }
)
HISTORY = record({"lines": several(TEXT), "cut": BOOLEAN})

# ── messages ──

STEP: Schema = {
    "type": "object",
    "properties": {"stage": TEXT, "at": MAYBE_NUMBER},
    "required": ["stage", "at"],
    "additionalProperties": True,
}
MESSAGE = record(
    {
        "id": TEXT,
        "stage": TEXT,
        "ended": BOOLEAN,
        "sent_at": MAYBE_NUMBER,
        "at": MAYBE_NUMBER,
        "due": MAYBE_NUMBER,
        "attempt": COUNT,
        "reason": TEXT,
        "prompt": TEXT,
        "steps": several(STEP),
        "answer": MAYBE_TEXT,
        "cut": BOOLEAN,
    }
)
MESSAGES = record(
    {
        "session": MAYBE_TEXT,
        "messages": several(ref("Message")),
        "waiting": MAYBE_COUNT,
        "held": MAYBE_TEXT,
        "cut": BOOLEAN,
        "last_event_id": TEXT,
    }
)

# ── usage ──

TOKENS = record(
    {"input": MAYBE_COUNT, "output": MAYBE_COUNT, "cache_read": MAYBE_COUNT, "cache_write": MAYBE_COUNT}
)
BY = ("session", "folder", "model", "day", "account", "turn")
USAGE_ROW = record(
    {
        "key": MAYBE_TEXT,
        "session_id": MAYBE_TEXT,
        "label": MAYBE_TEXT,
        "agent": MAYBE_TEXT,
        "folder": MAYBE_TEXT,
        "model": MAYBE_TEXT,
        "from": MAYBE_NUMBER,
        "to": MAYBE_NUMBER,
        "messages": COUNT,
        "turns": MAYBE_COUNT,
        "tokens": ref("Tokens"),
        "cost": MAYBE_NUMBER,
        "cost_partial": BOOLEAN,
    }
)
USAGE = record(
    {
        "by": {"type": "string", "enum": list(BY)},
        "since": NUMBER,
        "until": NUMBER,
        "currency": TEXT,
        "rows": several(ref("UsageRow")),
        "total": ref("UsageRow"),
        "cut": BOOLEAN,
        "unknown": several(TEXT),
    }
)
BUDGET = record(
    {
        "file": TEXT,
        "exists": BOOLEAN,
        "error": MAYBE_TEXT,
        "limits": several(
            record(
                {
                    "limit": TEXT,
                    "measure": {"type": "string", "enum": list(budgets.MEASURES)},
                    "action": one_of(budgets.BudgetAction),
                    "per": several({"type": "string", "enum": list(budgets.PERIODS)}),
                    "session_id": MAYBE_TEXT,
                    "session": MAYBE_TEXT,
                    "folder": MAYBE_TEXT,
                    "day": MAYBE_TEXT,
                    "used": MAYBE_NUMBER,
                    "allowed": NUMBER,
                    "most": NUMBER,
                    "step": NUMBER,
                    "currency": MAYBE_TEXT,
                    "over": BOOLEAN,
                    "unknown": several(TEXT),
                    "paused": several(TEXT),
                }
            )
        ),
    }
)

# ── conversation ──

ENTRY = record(
    {
        "id": TEXT,
        "kind": one_of(EntryKind),
        "at": MAYBE_NUMBER,
        "text": TEXT,
        "tool": MAYBE_TEXT,
        "call": MAYBE_TEXT,
        "input": nullable(ANYTHING),
        "ok": nullable(BOOLEAN),
        "denied": nullable(BOOLEAN),
        "diff": MAYBE_TEXT,
        "model": MAYBE_TEXT,
        "tokens": nullable(ref("Tokens")),
        "subagent": BOOLEAN,
        "cut": BOOLEAN,
    }
)
CONVERSATION = record(
    {
        "conversation": MAYBE_TEXT,
        "entries": several(ref("Entry")),
        "before": MAYBE_TEXT,
        "after": MAYBE_TEXT,
        "note": MAYBE_TEXT,
    }
)
CURSOR: Schema = {"type": "string", "pattern": "^[0-9]{1,20}-[0-9]{1,18}$"}

# ── changes in git ──

FILE_STATUS = ("added", "modified", "deleted", "renamed", "copied", "type", "conflict", "untracked")
CHANGED_FILE = record(
    {
        "path": TEXT,
        "old_path": MAYBE_TEXT,
        "status": {"type": "string", "enum": list(FILE_STATUS)},
        "added": MAYBE_COUNT,
        "removed": MAYBE_COUNT,
        "binary": BOOLEAN,
        "diff": MAYBE_TEXT,
        "cut": BOOLEAN,
    }
)
BASES = ("start", "head", "merge_base")
CHANGES = record(
    {
        "folder": MAYBE_TEXT,
        "repository": MAYBE_TEXT,
        "branch": MAYBE_TEXT,
        "base": {"type": "string", "enum": list(BASES)},
        "commit": MAYBE_TEXT,
        "files": several(CHANGED_FILE),
        "cut": BOOLEAN,
        "note": MAYBE_TEXT,
    }
)

# ── states over time ──

SEGMENT = record({"state": nullable(one_of(AgentState)), "from": NUMBER, "to": NUMBER})
STATES = record(
    {
        "from": NUMBER,
        "to": NUMBER,
        "sessions": several(record({"id": TEXT, "segments": several(SEGMENT)})),
        "cut": BOOLEAN,
    }
)
RANGES = ("day", "week", "month")
_WAIT = {"count": COUNT, "median": MAYBE_NUMBER, "p90": MAYBE_NUMBER}
_DECIDED = {"rule": COUNT, "human": COUNT, "terminal": COUNT, "timeout": COUNT, "open": COUNT}
STATISTICS = record(
    {
        "range": {"type": "string", "enum": list(RANGES)},
        "from": NUMBER,
        "to": NUMBER,
        "step": NUMBER,
        "states": several(
            record({"at": NUMBER, "agents": {"type": "object", "additionalProperties": NUMBER}})
        ),
        "waits": record(
            {
                **_WAIT,
                "reasons": several(record({"reason": one_of(Reason), **_WAIT})),
                "over_time": several(record({"at": NUMBER, **_WAIT})),
            }
        ),
        "usage": record(
            {
                "currency": TEXT,
                "models": several(ref("UsageRow")),
                "folders": several(ref("UsageRow")),
                "over_time": several(record({"at": NUMBER, "tokens": ref("Tokens"), "cost": MAYBE_NUMBER})),
            }
        ),
        "permissions": several(
            record({"tool": TEXT, "count": COUNT, **_DECIDED, "allowed": COUNT, "denied": COUNT})
        ),
        "pool": nullable(record({"requests": COUNT, "warm_hits": COUNT})),
        "known_since": MAYBE_NUMBER,
        "cut": BOOLEAN,
    }
)

# ── who was first ──

DECIDED_BY = ("terminal", "page", "link", "notice", "cli", "api", "policy", "timeout", "unknown")
OUTCOMES = ("ran", "failed", "denied", "ended", "unknown")
DECISION = record(
    {
        "by": {"type": "string", "enum": list(DECIDED_BY)},
        "name": MAYBE_TEXT,
        "behavior": MAYBE_TEXT,
        "at": MAYBE_NUMBER,
        "outcome": {"type": "string", "enum": list(OUTCOMES)},
        "outcome_at": MAYBE_NUMBER,
        "outcome_source": MAYBE_TEXT,
    }
)

COMPONENTS = {
    "Evidence": EVIDENCE,
    "Message": MESSAGE,
    "Tokens": TOKENS,
    "UsageRow": USAGE_ROW,
    "Entry": ENTRY,
    "Decision": DECISION,
}
