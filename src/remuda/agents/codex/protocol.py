"""What Remuda uses of codex's app-server, and what a version lacks of that by its own JSON schema.

`codex app-server generate-json-schema` writes the schema. The calls and notices that a version lacks are
found here without trying each of them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.untrusted import parse_object

Schema = Mapping[str, Any]

_THREAD = ("id", "path", "cwd", "ephemeral", "parentThreadId", "preview")
_ITEM = (
    *("id", "clientId", "content.text", "text", "status=completed", "status=declined", "command"),
    *("changes", "server", "tool", "arguments", "query", "aggregatedOutput", "result", "contentItems"),
    *("type=userMessage", "type=agentMessage", "type=commandExecution", "type=fileChange"),
    *("type=mcpToolCall", "type=dynamicToolCall", "type=collabAgentToolCall", "type=webSearch"),
)
_TURN = (
    *("id", "items", "completedAt", "error.message", "error.codexErrorInfo"),
    *("status=completed", "status=failed", "status=interrupted", "status=inProgress"),
)
_WINDOW = ("resetsAt", "usedPercent")
_COUNTS = ("inputTokens", "cachedInputTokens", "outputTokens")


def _under(prefix: str, fields: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{prefix}.{field}" for field in fields)


USED: Mapping[str, Mapping[str, Sequence[str]]] = {
    "ClientRequest": {
        "initialize": (
            "clientInfo.name",
            "clientInfo.title",
            "clientInfo.version",
            "capabilities.experimentalApi",
        ),
        "thread/start": (
            *("cwd", "model", "baseInstructions", "developerInstructions", "approvalPolicy", "sandbox"),
            *("config", "ephemeral"),
        ),
        "thread/resume": ("threadId", "excludeTurns"),
        "thread/read": ("threadId",),
        "thread/loaded/list": (),
        "thread/turns/list": ("threadId", "limit", "cursor", "itemsView=full"),
        "thread/unsubscribe": ("threadId",),
        "turn/start": ("threadId", "input.type=text", "input.text", "clientUserMessageId"),
        "turn/steer": ("threadId", "expectedTurnId", "input.text"),
        "turn/interrupt": ("threadId", "turnId"),
    },
    "ServerNotification": {
        "account/rateLimits/updated": (
            *_under("rateLimits.primary", _WINDOW),
            *_under("rateLimits.secondary", _WINDOW),
        ),
        "thread/started": _under("thread", _THREAD),
        "thread/status/changed": ("threadId", "status.type=active"),
        "thread/goal/cleared": ("threadId",),
        "thread/goal/updated": ("threadId",),
        "thread/tokenUsage/updated": (
            "threadId",
            "turnId",
            "tokenUsage.total",
            *_under("tokenUsage.last", _COUNTS),
        ),
        "turn/started": ("threadId", "turn.id"),
        "turn/completed": ("threadId", *_under("turn", _TURN)),
        "item/started": ("threadId", "turnId", "item.id"),
        "item/completed": ("threadId", "turnId", *_under("item", _ITEM)),
        "item/agentMessage/delta": ("threadId", "turnId", "itemId", "delta"),
        "serverRequest/resolved": ("threadId", "requestId"),
    },
    "ServerRequest": {
        "item/commandExecution/requestApproval": (
            *("threadId", "turnId", "itemId", "approvalId", "command", "reason", "networkApprovalContext"),
            "additionalPermissions",
        ),
        "item/fileChange/requestApproval": ("threadId", "turnId", "itemId", "grantRoot", "reason"),
        "item/tool/requestUserInput": (
            *("threadId", "turnId", "itemId", "questions.id", "questions.header", "questions.question"),
            "questions.options.label",
        ),
        "item/permissions/requestApproval": ("threadId", "turnId", "itemId", "reason"),
        "mcpServer/elicitation/request": ("threadId", "turnId", "message"),
    },
}
"""By the file of the schema and the method: what we write or read of it. `a.b=c`: `c` is a value of `a.b`."""
ANSWERS: Mapping[str, Sequence[str]] = {
    "v2/ThreadStartResponse": ("thread.id", "model"),
    "v2/ThreadResumeResponse": ("thread.id",),
    "v2/ThreadReadResponse": _under("thread", _THREAD),
    "v2/ThreadLoadedListResponse": ("data",),
    "v2/ThreadTurnsListResponse": ("nextCursor", *_under("data", _TURN), *_under("data.items", _ITEM)),
    "v2/TurnStartResponse": ("turn.id",),
}
"""By the file of the schema: what we read of the answers to our calls."""
DECISIONS: Mapping[str, Sequence[str]] = {
    "CommandExecutionRequestApprovalResponse": (
        *("decision=accept", "decision=acceptForSession", "decision=decline", "decision=cancel"),
    ),
    "FileChangeRequestApprovalResponse": (
        *("decision=accept", "decision=acceptForSession", "decision=decline", "decision=cancel"),
    ),
    "ToolRequestUserInputResponse": ("answers.*.answers",),
}
"""By the file of the schema: what we answer to its requests."""
_TIMEOUT = 30.0


def write_schema(binary: Path, folder: Path) -> None:
    """Let codex write its schema. Raises `subprocess.SubprocessError` or `OSError`."""
    words = [str(binary), "app-server", "generate-json-schema", "--experimental", "--out", str(folder)]
    subprocess.run(words, capture_output=True, timeout=_TIMEOUT, check=True)


def find_missing(folder: Path) -> list[str]:
    """Return what a schema lacks of what we use, in words."""
    found: list[str] = []
    for file, methods in USED.items():
        schema = _load(folder, file)
        known = dict(_methods(schema))
        for method, fields in methods.items():
            if method not in known:
                found.append(method)
            else:
                found += [f"{method} {field}" for field in fields if not _has(known[method], schema, field)]
    for file, fields in {**ANSWERS, **DECISIONS}.items():
        schema = _load(folder, file)
        found += [f"{file.rpartition('/')[2]} {field}" for field in fields if not _has(schema, schema, field)]
    return found


def _load(folder: Path, name: str) -> Schema:
    try:
        return parse_object((folder / f"{name}.json").read_bytes())
    except (OSError, ValueError):
        return {}


def _variants(schema: Schema, root: Schema, seen: frozenset[str] = frozenset()) -> Iterator[Schema]:
    """Yield a schema, what it refers to, and the members of a union or a list."""
    yield schema
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    parts = [root.get("definitions", {}).get(name, {})] if name and name not in seen else []
    parts += [one for key in ("anyOf", "oneOf", "allOf") for one in schema.get(key, ())]
    parts += [schema["items"]] if isinstance(schema.get("items"), dict) else []
    for part in parts:
        yield from _variants(part, root, seen | {name})


def _methods(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the methods of a file of the schema, with their parameters."""
    for variant in _variants(schema, schema):
        fields = variant.get("properties", {})
        for name in fields.get("method", {}).get("enum", ()):
            yield name, fields.get("params", {})


def _has(schema: Schema, root: Schema, field: str) -> bool:
    """Return whether a schema has a field: `a.b`, with `*` for any name, or `a.b=c` with a value."""
    path, _, value = field.partition("=")
    places: list[Schema] = [schema]
    for name in path.split("."):
        places = [
            next_one
            for place in places
            for one in _variants(place, root)
            if (next_one := _member(one, name)) is not None
        ]
    if not value:
        return bool(places)
    return any(
        value in (*one.get("enum", ()), one.get("const")) for at in places for one in _variants(at, root)
    )


def _member(schema: Schema, name: str) -> Schema | None:
    found = schema.get("additionalProperties") if name == "*" else schema.get("properties", {}).get(name)
    return found if isinstance(found, dict) else {} if found is True else None
