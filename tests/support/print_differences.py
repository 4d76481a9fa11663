"""Every place in which `remuda print` prints something else than `claude -p` (2.1.325), and why.

`-` is before what only `claude -p` prints, `+` before what only we print, nothing before another value. The
differential tests find exactly these, in the cases of each group; docs/reference/print.md shows them.
"""

from __future__ import annotations

_OURS = "Remuda adds it: what ran, and how"
_COST = "for programs written for claude-print: `total_cost_usd`, or 0 if that is null"
_NOT_TOLD = "the terminal interface does not publish it"
_ONLY_AT_END = "the CLI writes costs and API times only when it ends, after the answer was printed"
_IN_PIPES = "belongs to the CLI's own message stream; a terminal has none"
_MODEL_FACTS = "facts about a model that the CLI writes to no file"
_TIMES = "times that only the CLI itself can measure"
_FINAL = "the transcript has the complete message, with its final numbers and its stop reason"
_SHAPE = "the transcript keeps `stop_details` and not `context_management`"
_REFUSAL = "Remuda's hook refuses; a hook does not get the CLI's own reason"
_UNSEEN = "a message without content is in no transcript, so its usage is missing (the turn is counted)"
_WORDS = "the terminal interface words it differently"
_STREAMS = "Remuda always requests the CLI's message stream"
_NOT_WRITTEN = "is only on the screen, in no file"


def _places(reason: str, prefix: str, *names: str) -> dict[str, str]:
    sign, path = (prefix[0], prefix[1:]) if prefix[0] in "+-" else ("", prefix)
    return {f"{sign}{path}.{name}": reason for name in names}


_MODEL_FIELDS = ("canonicalModel", "contextWindow", "costBasis", "maxOutputTokens", "provider")
_SINCE = "model_usage_since_last_result"
_COUNTS = ("cacheReadInputTokens", "inputTokens", "outputTokens")

STREAM: dict[str, dict[str, str]] = {
    "always": {
        **_places(_OURS, "+result", "backend", "entrypoint", "claude_version"),
        **_places(_COST, "+result", "cost_usd"),
    },
    "list": _places(_STREAMS, "system/init", "capabilities"),
}

TERMINAL: dict[str, dict[str, str]] = {
    "always": {
        **_places(_OURS, "+result", "backend", "entrypoint", "claude_version"),
        **_places(_COST, "+result", "cost_usd"),
        **_places(_OURS, "+system/init", "entrypoint"),
        **_places(_NOT_TOLD, "-system/init", "tools", "mcp_servers", "slash_commands", "agents", "skills"),
        **_places(_NOT_TOLD, "-system/init", "plugins", "terminal_slash_commands", "apiKeySource"),
        **_places(_NOT_TOLD, "-system/init", "output_style", "view_mode", "memory_paths"),
        **_places(_NOT_TOLD, "-system/init", "additional_directories", "analytics_disabled"),
        **_places(_NOT_TOLD, "-system/init", "product_feedback_disabled", "per_turn_effort_active"),
        **_places(_NOT_TOLD, "-system/init", "ultrathink_available", "ultrathink_typed_raises"),
        **_places(_NOT_TOLD, "-system/init", "fast_mode_state", "fast_mode_disabled_reason"),
        **_places(_IN_PIPES, "-system/init", "capabilities", "messaging_socket_path"),
        **_places(_IN_PIPES, "-result", "queued_turn_count", "result_index"),
        **_places(_NOT_TOLD, "-result", "fast_mode_state", "fast_mode_disabled_reason"),
        **_places(_NOT_TOLD, "-result", "safety_stops", "subagent_stats"),
        **_places(_ONLY_AT_END, "-result", "duration_api_ms"),
        **_places(f"null: {_ONLY_AT_END}", "result", "total_cost_usd"),
    },
    "model": {
        **_places(_MODEL_FACTS, "-result.modelUsage.*", *_MODEL_FIELDS),
        **_places(_MODEL_FACTS, f"-result.{_SINCE}.*", *_MODEL_FIELDS),
        **_places(_ONLY_AT_END, "-result.modelUsage.*", "costUSD"),
        **_places(_ONLY_AT_END, f"-result.{_SINCE}.*", "costUSD"),
    },
    "timing": _places(
        _TIMES, "-result", "ttft_ms", "ttft_stream_ms", "time_to_request_ms", "first_content_frame_ms"
    ),
    "message": {
        **_places(_FINAL, "assistant.message", "stop_reason", "usage.output_tokens"),
        **_places(_FINAL, "+assistant.message.usage", "cache_creation", "output_tokens_details"),
        **_places(_FINAL, "+assistant.message.usage", "server_tool_use", "service_tier", "speed"),
        **_places(_FINAL, "+assistant.message.usage", "inference_geo", "iterations", "fallback_credit"),
        **_places(_SHAPE, "-assistant.message", "context_management"),
        **_places(_SHAPE, "+assistant.message", "stop_details"),
    },
    "thinking": {"-system/thinking_tokens": _NOT_WRITTEN},
    "retry": {"-system/api_retry": _NOT_WRITTEN},
    "stop hook": {"-system/notification": _NOT_WRITTEN},
    "denied": {
        **_places(_REFUSAL, "system/permission_denied", "message"),
        **_places(_REFUSAL, "user", "message.content[].content", "tool_use_result"),
        **_places(_REFUSAL, "user.tool_result_meta[]", "non_execution_kind", "permission_decision.source"),
        **_places(_REFUSAL, "+user.tool_result_meta[]", "permission_decision.reason_type"),
    },
    "empty": {
        **_places(_UNSEEN, "result.usage", "input_tokens", "output_tokens", "cache_read_input_tokens"),
        **_places(_UNSEEN, "result.modelUsage.*", *_COUNTS),
        **_places(_UNSEEN, f"result.{_SINCE}.*", *_COUNTS),
    },
    "401": {"assistant.message.content[].text": _WORDS, "result.result": _WORDS},
}

_LATER = "newer versions of `claude -p` print it too"
_AUTO = "`claude -p` runs in auto mode on 2.1.300, Remuda never does by itself"
_LONG = "`claude -p` marks the model of a long context, `claude-opus-4-8[1m]`, up to 2.1.280"

_OLDER: dict[tuple[str, ...], dict[str, str]] = {
    ("2.1.197",): {
        **_places(_LATER, "+assistant", "is_api_error_message", "timestamp"),
        **_places(_LATER, "+result", "usage.output_tokens_details"),
        "result.terminal_reason": "`api_error`, where 2.1.197 says `completed`",
    },
    ("2.1.197", "2.1.240"): _places(_LONG, "system/init", "model"),
    ("2.1.197", "2.1.240", "2.1.280"): {
        **_places(_LATER, "+assistant", "api_error_status"),
        **_places(_LATER, "+result", "usage.fallback_credit"),
        **_places(_LONG, "+result.modelUsage", "*"),
        **_places(_LONG, "-result.modelUsage", "*"),
    },
    ("2.1.197", "2.1.240", "2.1.280", "2.1.300"): {
        **_places(_LATER, "+result", _SINCE),
        **_places(_LATER, "+system/init", "original_cwd"),
    },
    ("2.1.197", "2.1.300"): {"+system/permission_denied": _LATER},
    ("2.1.300",): {
        **_places(_LATER, "+result.modelUsage.*", "cacheCreationEphemeral1hInputTokens"),
        **_places(_LATER, "+result.modelUsage.*", "cacheCreationEphemeral5mInputTokens"),
        **_places(_AUTO, "system/init", "permissionMode"),
        **_places(_AUTO, "result", "permission_denials"),
        **_places(_AUTO, "user", "message.content[].is_error"),
        **_places(_AUTO, "user.tool_result_meta[].permission_decision", "decision", "reason_type"),
        **_places(_AUTO, "+user.tool_result_meta[]", "non_execution_kind"),
        "-system/informational": _AUTO,
        "+system/informational": _AUTO,
    },
}
"""What differs besides on these older versions. What the tables above have may be missing there."""


def of_older(version: str) -> set[str]:
    """The places of an older version that the tables above do not have."""
    return {place for versions, places in _OLDER.items() if version in versions for place in places}


WHEN = {
    "list": "with `--output-format json --verbose`",
    "always": "always",
    "model": "with an answer",
    "timing": "with an answer",
    "message": "with an answer",
    "thinking": "with thinking",
    "retry": "when the API request is retried",
    "stop hook": "when a Stop hook makes the agent continue",
    "denied": "when a permission is refused",
    "empty": "after a message without content",
    "401": "not signed in (401)",
}


def table() -> str:
    """As docs/reference/print.md has it."""
    rows = ["| where | when | why |", "| --- | --- | --- |"]
    both = STREAM["always"]
    rows += _rows("both backends, always", both)
    rows += _rows(f"stream, {WHEN['list']}", STREAM["list"])
    for group, places in TERMINAL.items():
        rows += _rows(f"terminal, {WHEN[group]}", {k: v for k, v in places.items() if k not in both})
    return "\n".join(rows)


def _rows(when: str, places: dict[str, str]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for place, reason in places.items():
        by_reason.setdefault(reason, []).append(f"`{place}`")
    return [f"| {' '.join(names)} | {when} | {reason} |" for reason, names in by_reason.items()]
