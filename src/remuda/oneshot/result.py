"""The result of a call, in the shape that `claude -p --output-format json` has. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .conversation import Summary
from .messages import new_uuid

# What `claude -p` has before the first answer, and keeps when none came (2.1.325).
_NO_USAGE: dict[str, Any] = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
    "output_tokens_details": {"thinking_tokens": 0},
    "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
    "service_tier": "standard",
    "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
    "inference_geo": "",
    "iterations": [],
    "speed": "standard",
    "fallback_credit": None,
}
_ALWAYS_TOLD = ("input_tokens", "output_tokens")
USAGE_UNKNOWN = "usage unknown: the transcript does not have the agent's last message"
_MODEL_FIELDS: dict[str, tuple[str, ...]] = {
    "inputTokens": ("input_tokens",),
    "outputTokens": ("output_tokens",),
    "cacheReadInputTokens": ("cache_read_input_tokens",),
    "cacheCreationInputTokens": ("cache_creation_input_tokens",),
    "webSearchRequests": ("server_tool_use", "web_search_requests"),
    "thinkingTokens": ("output_tokens_details", "thinking_tokens"),
    "cacheCreationEphemeral5mInputTokens": ("cache_creation", "ephemeral_5m_input_tokens"),
    "cacheCreationEphemeral1hInputTokens": ("cache_creation", "ephemeral_1h_input_tokens"),
}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended: `reason` as the CLI names it, `errors` for ends without a text."""

    reason: str = "completed"
    subtype: str = "success"
    is_error: bool = False
    text: str | None = None
    errors: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    usage_known: bool = True
    """Whether the transcript has all messages of the turn. Without them there is no usage to report."""


def make_result(summary: Summary, ended: Ended, duration_ms: int, backend: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "type": "result",
        "subtype": ended.subtype,
        "is_error": ended.is_error,
        "duration_ms": duration_ms,
        "num_turns": summary.turns,
        "stop_reason": summary.stop_reason,
        "session_id": summary.session_id,
        "total_cost_usd": None,  # the CLI writes it down only when it ends
        "usage": {**_NO_USAGE, **summary.usage()},
        "modelUsage": {name: _model_usage(one) for name, one in summary.usage_by_model().items() if name},
        "permission_denials": summary.permission_denials(),
        "terminal_reason": ended.reason,
        "uuid": new_uuid(),
    }
    if not ended.usage_known:
        result |= {"usage": None, "modelUsage": None, "degraded": [USAGE_UNKNOWN]}
    if ended.errors:
        result["errors"] = list(ended.errors)
    else:
        result["result"] = summary.text if ended.text is None else ended.text
        result["api_error_status"] = summary.api_error_status if summary.is_api_error else None
        if summary.is_api_error and summary.api_error_type:
            result["api_error_type"] = summary.api_error_type
    return {
        **result,
        **ended.facts,
        "backend": backend,
        "entrypoint": summary.entrypoint,
        "claude_version": summary.version,
        "cost_usd": 0,  # as claude-print has it: no cost is known here
    }


def _model_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _number(usage, path) for name, path in _MODEL_FIELDS.items()}


def _number(usage: Mapping[str, Any], path: tuple[str, ...]) -> int | float | None:
    """What is left out is zero. What has another shape, and tokens that nobody counted, are not known."""
    found: Any = usage
    for key in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(key, None if key in _ALWAYS_TOLD else 0 if key == path[-1] else {})
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def error_result(
    subtype: str, message: str, *, duration_ms: int, backend: str, **facts: Any
) -> dict[str, Any]:
    """For an end that is not the agent's: a timeout, an interrupt, an error of ours."""
    return {
        "type": "result",
        "subtype": subtype,
        "is_error": True,
        "error_message": message,
        "duration_ms": duration_ms,
        "backend": backend,
        **facts,
    }
