"""Comparing what two programs print as JSON: the places where they differ, by name."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]

# Times, ids and costs: no two runs have the same. Their types are compared all the same.
_OWN_VALUE = frozenset(
    [
        *("session_id", "uuid", "id", "tool_use_id", "request_id", "messaging_socket_path"),
        *("timestamp", "duration_ms", "duration_api_ms", "thinking_duration_ms", "retry_delay_ms"),
        *("ttft_ms", "ttft_stream_ms", "time_to_request_ms", "first_content_frame_ms"),
        *("total_cost_usd", "costUSD"),
    ]
)
_BY_NAME = ("modelUsage", "model_usage_since_last_result")
# How many of them there are hangs on how the network cuts the stream.
_UNCOUNTED = ("system/thinking_tokens",)


def label(message: Message) -> str:
    kind = str(message.get("type"))
    return f"{kind}/{message.get('subtype')}" if kind == "system" else kind


def differences(theirs: Sequence[Message], ours: Sequence[Message]) -> set[str]:
    """`-` before what only they have, `+` before what only we have, nothing before another value or type."""
    found = {f"-{one}" for one in {*map(label, theirs)} - {*map(label, ours)}}
    found |= {f"+{one}" for one in {*map(label, ours)} - {*map(label, theirs)}}
    passed_over = {one[1:] for one in found} | set(_UNCOUNTED)
    left = _ordered([one for one in theirs if label(one) not in passed_over])
    right = _ordered([one for one in ours if label(one) not in passed_over])
    if [*map(label, left)] != [*map(label, right)]:
        return found | {f"order: {[*map(label, left)]} and {[*map(label, right)]}"}
    for one, other in zip(left, right, strict=True):
        found |= _compared(one, other, label(one))
    return found


def _ordered(messages: list[Message]) -> list[Message]:
    """Results of tools that ran at the same time come as they end; here, by their ids."""
    ordered: list[Message] = []
    for kind, group in itertools.groupby(_together(messages), label):
        found = list(group)
        ordered += sorted(found, key=_tool) if kind == "user" else found
    return ordered


def _together(messages: list[Message]) -> list[Message]:
    """A tool may be done before the rest of the message that called it; here, all of that is first."""
    together: list[Message] = []
    for message in messages:
        same = [place for place, one in enumerate(together) if _number(one) == _number(message) is not None]
        together.insert(same[-1] + 1 if same else len(together), message)
    return together


def _number(message: Message) -> str | None:
    return str(message["message"]["id"]) if message.get("type") == "assistant" else None


def _tool(message: Message) -> str:
    content = message["message"]["content"]
    return str(content[0].get("tool_use_id", ""))


def _compared(theirs: Any, ours: Any, path: str) -> set[str]:
    key = path.rpartition(".")[2]
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        return _compared_fields(theirs, ours, path, named=key in _BY_NAME)
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return {
            place
            for one, other in zip(theirs, ours, strict=True)
            for place in _compared(one, other, f"{path}[]")
        }
    if _kind(theirs) != _kind(ours) or (theirs != ours and key not in _OWN_VALUE):
        return {path}
    return set()


def _compared_fields(theirs: Message, ours: Message, path: str, *, named: bool) -> set[str]:
    found: set[str] = set()
    for key in {**theirs, **ours}:
        place = f"{path}.{'*' if named else key}"
        if key not in ours:
            found.add(f"-{place}")
        elif key not in theirs:
            found.add(f"+{place}")
        else:
            found |= _compared(theirs[key], ours[key], place)
    return found


def _kind(value: Any) -> str:
    return (
        "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__
    )
