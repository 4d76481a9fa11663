"""The shapes of requests and answers as JSON Schema, and a check of the part of it that we use. Pure."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from typing import Any

from remuda.agents.state import State as AgentState
from remuda.boss.attention.model import Activity, ApprovalState, EventKind, Origin, Reason, Source
from remuda.errors import InvalidOptions

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
ANYTHING: Schema = {"type": "object", "additionalProperties": True}
# The year 2600, with a fraction that a float still holds.
TIME: Schema = {"type": "number", "minimum": 0, "maximum": 2e10, "description": "seconds since the epoch"}
# Printable, without characters that break a path or a log line.
ID: Schema = {"type": "string", "minLength": 1, "maxLength": 256, "pattern": r"^[!-~]+$"}
LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": 1000}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def one_of(kind: Any) -> Schema:
    return {"type": "string", "enum": [str(one) for one in kind]}


def record(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """Return the schema of an object with these fields, and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def several(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


LIMITED = record(
    {
        "account": TEXT,
        "until": NUMBER,
        "reason": TEXT,
        "sessions": several(TEXT),
        "messages": {"type": "integer"},
    }
)
PAYLOAD: Schema = {
    "type": "object",
    "properties": {"session_id": ID},
    "required": ["session_id"],
    "additionalProperties": True,
    "description": "input of the agent's hook",
}
_MAYBE_TEXT, _MAYBE_TIME = nullable(TEXT), nullable(NUMBER)

_CUT: Schema = several(TEXT) | {"description": "names of the fields that are not complete here"}

SESSION = record(
    {
        "id": TEXT,
        "origin": one_of(Origin),
        "agent": TEXT,
        "name": _MAYBE_TEXT,
        "pane": _MAYBE_TEXT,
        "tmux": _MAYBE_TEXT,
        "pid": nullable({"type": "integer"}),
        "cwd": _MAYBE_TEXT,
        "repo": _MAYBE_TEXT,
        "transcript_path": _MAYBE_TEXT,
        "entrypoint": _MAYBE_TEXT,
        "title": _MAYBE_TEXT,
        "state": one_of(Activity),
        "agent_state": nullable({"type": "string", "enum": [*AgentState, "unreachable"]}),
        "since": NUMBER,
        "first_seen": NUMBER,
        "last_seen": NUMBER,
        "ended": _MAYBE_TIME,
        "replaced_by": _MAYBE_TEXT,
        "label": TEXT,
        "source": _MAYBE_TEXT,
        "detail": _MAYBE_TEXT,
        "last_message": _MAYBE_TEXT,
        "messages_waiting": nullable({"type": "integer"}),
        "degraded": several(TEXT),
        "tokens": nullable(ref("Tokens")),
        "cut": _CUT,
    },
    {
        "evidence": several(ref("Evidence")),
        "host": TEXT,
        "reachable": BOOLEAN,
        "unreachable_since": _MAYBE_TIME,
    },
)
_ITEM = {
    "id": TEXT,
    "session_id": TEXT,
    "reason": one_of(Reason),
    "since": NUMBER,
    "message": TEXT,
    "detail": ANYTHING,
    "skip_until": _MAYBE_TIME,
    "skipped_at": _MAYBE_TIME,
    "snooze_until": _MAYBE_TIME,
    "resolved_at": _MAYBE_TIME,
    "resolution": _MAYBE_TEXT,
}
ITEM = record(
    {**_ITEM, "session": nullable(ref("Session")), "decision": nullable(ref("Decision")), "cut": _CUT},
    {"host": TEXT},
)
_REFUSALS = record(
    {},
    {
        name: {"type": "string", "description": f"why {what} cannot be delivered, and what works instead"}
        for name, what in {
            "allow": "'allow' (of a question: an answer)",
            "always": "'always'",
            "edit": "'updated_input'",
            "message": "the message of a denial",
        }.items()
    },
)
APPROVAL = record(
    {
        "id": TEXT,
        "session_id": TEXT,
        "reason": one_of(Reason),
        "tool": TEXT,
        "input": ANYTHING,
        "asked_at": NUMBER,
        "tool_use_id": _MAYBE_TEXT,
        "suggestions": {"type": "array"},
        "detail": ANYTHING,
        "expires_at": _MAYBE_TIME,
        "state": one_of(ApprovalState),
        "answer": nullable(ANYTHING),
        "by": _MAYBE_TEXT,
        "at": _MAYBE_TIME,
        "delivered_at": _MAYBE_TIME,
        "proof": nullable(ANYTHING),
        "decision": nullable(ref("Decision")),
        "cut": _CUT,
    },
    {"host": TEXT, "refuses": _REFUSALS},
)
ERROR = record({"error": record({"code": TEXT, "message": TEXT}, {"hint": TEXT})})
EVENT = record(
    {"kind": one_of(EventKind), "session_id": ID},
    {
        "at": TIME,
        "source": {"type": "string", "enum": [source.label for source in Source]},
        "id": ID,
        "facts": ANYTHING,
    },
)
COMPONENTS = {
    "Session": SESSION,
    "Item": ITEM,
    "Approval": APPROVAL,
    "Event": EVENT,
    "Error": ERROR,
}

# ── the check ──

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


def check(value: Any, schema: Schema, where: str = "the body") -> None:
    """Raises `InvalidOptions` that says what is wrong, and where."""
    if "$ref" in schema:
        schema = COMPONENTS[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        _check_any(value, schema["anyOf"], where)
        return
    if "type" in schema and not _is(value, schema["type"]):
        raise InvalidOptions(f"{where} must be of type {schema['type']}")
    if "enum" in schema and value not in schema["enum"]:
        raise InvalidOptions(f"{where} must be one of: {', '.join(map(str, schema['enum']))}")
    if isinstance(value, str):
        _check_text(value, schema, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(value, schema, where)
    elif isinstance(value, dict):
        _check_object(value, schema, where)
    elif isinstance(value, list):
        _check_list(value, schema, where)


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool) and name != "boolean":
        return False
    # 1.0 is an integer to JSON Schema.
    whole = name == "integer" and isinstance(value, float) and value.is_integer()
    return whole or isinstance(value, _TYPES[name])


def _check_any(value: Any, schemas: list[Schema], where: str) -> None:
    """Report the error of the choice that was meant: the one whose required fields are there."""
    problems: list[InvalidOptions] = []
    for schema in schemas:
        try:
            check(value, schema, where)
        except InvalidOptions as error:
            problems.insert(0 if _is_meant(value, schema) else len(problems), error)
        else:
            return
    if problems:
        raise problems[0]


def _is_meant(value: Any, schema: Schema) -> bool:
    """Whether it has the fields that the schema requires, with values that the schema lists."""
    required = schema.get("required", (None,))
    if not isinstance(value, dict) or not value.keys() >= set(required):
        return False
    fields = schema["properties"]
    return all(value[name] in fields[name].get("enum", (value[name],)) for name in required)


def _check_text(value: str, schema: Schema, where: str) -> None:
    if len(value) < (least := schema.get("minLength", 0)):
        raise InvalidOptions(f"{where} must have at least {least} characters")
    if len(value) > (most := schema.get("maxLength", math.inf)):
        raise InvalidOptions(f"{where} must have at most {most} characters")
    # Match the full text: to Python '$' also matches before a final newline.
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        raise InvalidOptions(f"{where} has characters that are not allowed")


def _check_number(value: float, schema: Schema, where: str) -> None:
    # An integer of 400 digits is not a number to `math`, and handlers convert it to a float.
    if not abs(value) <= sys.float_info.max:
        raise InvalidOptions(f"{where} must be a finite number")
    if value < (least := schema.get("minimum", -math.inf)):
        raise InvalidOptions(f"{where} must be {least} or more")
    if value > (most := schema.get("maximum", math.inf)):
        raise InvalidOptions(f"{where} must be {most} or less")


def _check_object(value: dict[str, Any], schema: Schema, where: str) -> None:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            raise InvalidOptions(f"{where} needs '{name}'")
    others = schema.get("additionalProperties", True)
    for name, found in value.items():
        if name in known:
            check(found, known[name], f"'{name}'")
        elif others is False:
            raise InvalidOptions(f"{where} has an unknown field '{name[:40]}'")
        elif others is not True:
            check(found, others, f"'{name[:40]}'")


def _check_list(value: list[Any], schema: Schema, where: str) -> None:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf):
        raise InvalidOptions(f"{where} has too few or too many entries")
    for number, found in enumerate(value):
        check(found, schema.get("items", {}), f"entry {number} of {where}")


def read_query(parameters: Mapping[str, str], schemas: Mapping[str, Schema]) -> dict[str, Any]:
    """Convert the strings of a query to the values that they mean."""
    if unknown := sorted(parameters.keys() - schemas.keys()):
        raise InvalidOptions(f"unknown parameter '{unknown[0][:40]}'")
    values = {name: _meant(text, schemas[name]) for name, text in parameters.items()}
    for name, value in values.items():
        check(value, schemas[name], f"'{name}'")
    return values


def _meant(text: str, schema: Schema) -> Any:
    kind = schema.get("type")
    if kind == "boolean":
        return {"true": True, "false": False, "1": True, "0": False}.get(text, text)
    if kind in ("integer", "number"):
        try:
            return int(text) if kind == "integer" else float(text)
        except ValueError:
            return text
    return text
