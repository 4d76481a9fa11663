"""The messages and the result of a turn, in the shape that `claude -p` gives them."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from remuda.agents.claude.print.print_messages import make_result, turn_messages
from remuda.agents.claude.print.print_transcript import TurnSummary
from remuda.agents.headless import TurnEnd

USAGE = {
    "input_tokens": 12,
    "output_tokens": 7,
    "cache_creation_input_tokens": 1,
    "cache_read_input_tokens": 3,
    "output_tokens_details": {"thinking_tokens": 2},
    "cache_creation": {"ephemeral_1h_input_tokens": 5, "ephemeral_5m_input_tokens": 4},
    "server_tool_use": {"web_search_requests": 6, "web_fetch_requests": 0},
}


def answered() -> TurnSummary:
    summary = TurnSummary(
        session_id="s", entrypoint="cli", version="2.1.325", model="opus", stop_reason="end_turn"
    )
    summary.text = "yes"
    summary.usages, summary.models = {"m": USAGE}, {"m": "opus"}
    return summary


def test_result_usage_that_is_not_known_is_null_and_said() -> None:
    result = make_result(TurnSummary(), TurnEnd(text="yes", usage_known=False), 1, "terminal")
    assert (result["result"], result["usage"], result["modelUsage"]) == ("yes", None, None)
    assert [reason.partition(":")[0] for reason in result["degraded"]] == ["usage unknown"]


def test_an_answer_has_every_field_that_can_be_known() -> None:
    result = make_result(answered(), TurnEnd(text="yes"), 1234, "terminal")
    uuid.UUID(result.pop("uuid"))
    usage = result.pop("usage")
    assert {key: usage[key] for key in USAGE} == USAGE
    assert (usage["service_tier"], usage["iterations"], usage["fallback_credit"]) == ("standard", [], None)
    assert result == {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "duration_ms": 1234,
        "num_turns": 1,
        "stop_reason": "end_turn",
        "session_id": "s",
        "total_cost_usd": None,
        "modelUsage": {
            "opus": {
                "inputTokens": 12,
                "outputTokens": 7,
                "cacheReadInputTokens": 3,
                "cacheCreationInputTokens": 1,
                "webSearchRequests": 6,
                "thinkingTokens": 2,
                "cacheCreationEphemeral5mInputTokens": 4,
                "cacheCreationEphemeral1hInputTokens": 5,
            }
        },
        "permission_denials": [],
        "terminal_reason": "completed",
        "result": "yes",
        "api_error_status": None,
        "backend": "terminal",
        "entrypoint": "cli",
        "claude_version": "2.1.325",
        "cost_usd": 0,
    }


def test_an_api_error_has_its_status_and_a_usage_of_nothing() -> None:
    summary = TurnSummary(session_id="s", stop_reason="stop_sequence", text="API Error: 529")
    summary.is_api_error, summary.api_error_status, summary.api_error_type = True, 529, "overloaded_error"
    result = make_result(summary, TurnEnd("api_error", is_error=True, text=summary.text), 1, "terminal")
    assert (result["subtype"], result["is_error"], result["terminal_reason"]) == (
        "success",
        True,
        "api_error",
    )
    assert (result["api_error_status"], result["api_error_type"]) == (529, "overloaded_error")
    assert (result["usage"]["input_tokens"], result["usage"]["speed"]) == (0, "standard")
    assert result["modelUsage"] == {}


def test_an_end_without_an_answer_has_errors_and_no_result() -> None:
    ended = TurnEnd(
        "max_turns", "error_max_turns", is_error=True, errors=("Reached maximum number of turns (2)",)
    )
    result = make_result(answered(), ended, 1, "terminal")
    assert result["errors"] == ["Reached maximum number of turns (2)"]
    assert "result" not in result
    assert "api_error_status" not in result


def test_usage_of_an_unknown_shape_is_null_and_what_is_left_out_is_zero() -> None:
    summary = answered()
    summary.usages = {"m": {"input_tokens": "many", "cache_creation": 7, "new": {"a": 1}}}
    usage = make_result(summary, TurnEnd(), 1, "terminal")["modelUsage"]["opus"]
    unknown = {"inputTokens", "outputTokens", "cacheCreationEphemeral5mInputTokens"}
    assert {name for name, value in usage.items() if value is None} == unknown | {
        "cacheCreationEphemeral1hInputTokens"
    }
    assert {value for value in usage.values() if value is not None} == {0}


# ── a finished turn from its transcript ──

_HEAD = {"sessionId": "s", "cwd": "/srv", "version": "1", "entrypoint": "cli"}
_RECORDS = [
    {**_HEAD, "type": "user", "uuid": "1", "promptId": "p", "message": {"role": "user", "content": "hello"}},
    {
        **_HEAD,
        "type": "assistant",
        "uuid": "2",
        "message": {
            "id": "m",
            "role": "assistant",
            "model": "a-model",
            "content": [{"type": "text", "text": "hi"}],
        },
    },
]


@pytest.mark.parametrize("known", [None, "a-model"])
def test_first_message_names_the_model_also_where_only_the_transcript_does(
    tmp_path: Path, known: str | None
) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in _RECORDS))
    first, *rest = turn_messages(path, "p", "hi", failed=False, model=known, seconds=1.0)
    assert (first["subtype"], first["model"]) == ("init", "a-model")
    assert [message["type"] for message in rest] == ["assistant", "result"]
