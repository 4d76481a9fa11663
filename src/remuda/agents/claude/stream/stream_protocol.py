"""Claude Code's stream-json protocol (2.1.325): messages to events, and lines to send. Pure.

A message of an unknown type gives no events, and is not an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from remuda.agents.claude.asking import shell_command
from remuda.errors import InputError
from remuda.untrusted import as_object, as_objects

from .stream_events import (
    ApiRetry,
    BackgroundTask,
    ControlReply,
    ConversationReset,
    Event,
    MessagePart,
    MessageUsed,
    PermissionAsked,
    PermissionWithdrawn,
    PromptMoved,
    StateChanged,
    StreamTurnBegun,
    Surroundings,
    TasksChanged,
    TextPiece,
    ToolCalled,
    ToolReturned,
    TurnResult,
    UnsupportedRequest,
)

Message: TypeAlias = dict[str, Any]


# ── messages to events ──


def events_of(message: Mapping[str, Any]) -> list[Event]:
    """Return what a message means, in order. Never raises, whatever the message holds."""
    reader = _READERS.get(_text(message.get("type")))
    return list(reader(message)) if reader else []


def _stream_event(message: Mapping[str, Any]) -> Iterator[Event]:
    event = as_object(message.get("event"))
    delta = as_object(event.get("delta"))
    if message.get("parent_tool_use_id") is not None:
        return
    if event.get("type") == "message_delta" and delta.get("stop_reason"):  # the last one has it all
        yield MessageUsed(as_object(event.get("usage")))
    text = _text(delta.get("text")) if delta.get("type") == "text_delta" else ""
    if event.get("type") == "content_block_delta" and text:
        yield TextPiece(text)


def _assistant(message: Mapping[str, Any]) -> Iterator[Event]:
    nested = message.get("parent_tool_use_id") is not None
    body = as_object(message.get("message"))
    if not nested and (model := _text(body.get("model"))):
        yield MessagePart(model)
    for block in as_objects(body.get("content")):
        if block.get("type") == "tool_use":
            name, given = _text(block.get("name")), as_object(block.get("input"))
            yield ToolCalled(_text(block.get("id")), name, given, nested)


def _user(message: Mapping[str, Any]) -> Iterator[Event]:
    nested = message.get("parent_tool_use_id") is not None
    for block in as_objects(as_object(message.get("message")).get("content")):
        if block.get("type") == "tool_result":
            failed = block.get("is_error") is True
            yield ToolReturned(_text(block.get("tool_use_id")), block.get("content"), failed, nested)


def _system(message: Mapping[str, Any]) -> Iterator[Event]:
    match message.get("subtype"):
        case "init":
            yield StreamTurnBegun(_text(message.get("session_id")), _surroundings(message))
        case "api_retry":
            status = message.get("error_status")
            yield ApiRetry(
                _number(message.get("attempt")) or 0,
                status if isinstance(status, int) else None,
                _text(message.get("error")),
            )
        case "background_tasks_changed":
            listed = as_objects(message.get("tasks"))
            kinds = ((_text(task.get("task_id")), _text(task.get("task_type"))) for task in listed)
            yield TasksChanged(tuple(BackgroundTask(*one) for one in kinds))
        case "session_state_changed":
            yield StateChanged(_text(message.get("state")))


def _surroundings(message: Mapping[str, Any]) -> Surroundings:
    return Surroundings(
        cwd=_text(message.get("cwd")),
        model=_text(message.get("model")),
        permission_mode=_text(message.get("permissionMode")),
        output_style=_text(message.get("output_style")),
        directories=tuple(_texts(message.get("additional_directories"))),
    )


def _control_request(message: Mapping[str, Any]) -> Iterator[Event]:
    request_id, request = _text(message.get("request_id")), as_object(message.get("request"))
    if request.get("subtype") != "can_use_tool":
        yield UnsupportedRequest(request_id, _text(request.get("subtype")))
        return
    suggestions = tuple(as_objects(request.get("permission_suggestions")))
    yield PermissionAsked(
        request_id, _text(request.get("tool_name")), as_object(request.get("input")), suggestions
    )


def _control_response(message: Mapping[str, Any]) -> Iterator[Event]:
    response = as_object(message.get("response"))
    failed = response.get("subtype") != "success"
    error = _text(response.get("error")) or "refused without a reason" if failed else None
    yield ControlReply(_text(response.get("request_id")), as_object(response.get("response")), error)


def _result(message: Mapping[str, Any]) -> Iterator[Event]:
    cost = message.get("total_cost_usd")
    usage = message.get("usage")
    yield TurnResult(
        conversation_id=_text(message.get("session_id")),
        command_id=_text(message.get("user_message_uuid")) or None,
        text=_text(message.get("result")),
        is_error=message.get("is_error") is True,
        subtype=_text(message.get("subtype")),
        reason=_text(message.get("terminal_reason")),
        errors=tuple(_texts(message.get("errors"))),
        usage=usage if isinstance(usage, dict) else None,
        num_turns=_number(message.get("num_turns")),
        denials=tuple(as_objects(message.get("permission_denials"))),
        cost_usd=cost if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
    )


_READERS: dict[str, Callable[[Mapping[str, Any]], Iterator[Event]]] = {
    "assistant": _assistant,
    "command_lifecycle": lambda m: iter((PromptMoved(_text(m.get("command_uuid")), _text(m.get("state"))),)),
    "control_cancel_request": lambda m: iter((PermissionWithdrawn(_text(m.get("request_id"))),)),
    "control_request": _control_request,
    "control_response": _control_response,
    "conversation_reset": lambda m: iter((ConversationReset(_text(m.get("user_message_uuid")) or None),)),
    "result": _result,
    "stream_event": _stream_event,
    "system": _system,
    "user": _user,
}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


# ── lines to send ──

_COMMAND = re.compile(r"/[^\s/]*(?:\s|$)")


def check_prompt(text: str) -> None:
    """Raise `InputError` for a prompt that the CLI would take as a command.

    Everything else arrives byte for byte: `!` runs nothing here, and a blank before `/` makes it text.
    """
    if _COMMAND.match(text):
        raise InputError(
            f"a prompt that begins with {text.split(None, 1)[0]} would run the agent's own command",
            hint="put a word or a space before it",
        )


def prompt(text: str, command_id: str) -> bytes:
    """Return a user's message. Two that are sent before the first has ended become two turns."""
    return _line({"type": "user", "uuid": command_id, "message": {"role": "user", "content": text}})


def clear(command_id: str) -> bytes:
    """Clear the conversation. `ConversationReset` follows, then a turn of the new one with `TurnResult`."""
    return prompt("/clear", command_id)


def initialize(request_id: str) -> bytes:
    return _request(request_id, {"subtype": "initialize"})


def interrupt(request_id: str) -> bytes:
    """Stop the turn, which then has its `TurnResult`.

    A prompt that has not started has none: the reply lists it as `cancelled`. Without `cancel_queued` it
    would still run.
    """
    return _request(request_id, {"subtype": "interrupt", "cancel_queued": True})


def allow(request_id: str, given: Mapping[str, Any], permissions: Sequence[Mapping[str, Any]] = ()) -> bytes:
    answer: Message = {"behavior": "allow", "updatedInput": dict(given)}
    if permissions:
        answer["updatedPermissions"] = list(permissions)
    return _response({"subtype": "success", "request_id": request_id, "response": answer})


def deny(request_id: str, message: str, *, interrupt: bool = False) -> bytes:
    answer: Message = {"behavior": "deny", "message": message or "denied"}
    if interrupt:
        answer["interrupt"] = True
    return _response({"subtype": "success", "request_id": request_id, "response": answer})


def refuse(request_id: str, why: str) -> bytes:
    return _response({"subtype": "error", "request_id": request_id, "error": why})


def for_conversation(
    tool: str, given: Mapping[str, Any], suggestions: Sequence[Mapping[str, Any]], *, edited: bool = False
) -> list[Message]:
    """Return the rules for a permission that is given with `always`, for this conversation only.

    They are the rules that the agent suggests, else those of its own dialog, else one for this command or
    tool. They are never written to a settings file, which every other conversation would read. A rule for a
    shell always has a command: without one it would allow every command. Suggestions are for the input that
    the agent asked for, so they are not used for an `edited` input.

    Empty for a command with a `*`: in a rule it stands for any text, and `:*` at the end for more words. That
    is so in the rule that the agent itself suggests for `chmod 600 a*` (2.1.325, where `\\*` is a plain star;
    other versions may differ). Such a command can be allowed once.
    """
    command = shell_command(tool, given)
    offered = [] if edited else [dict(one) for one in suggestions]
    rules = [one for one in offered if one.get("type") == "addRules"] or [
        one for one in offered if one.get("type") == "addDirectories" or one.get("mode") == "acceptEdits"
    ]
    if not rules:
        rule = {"toolName": tool} | ({} if command is None else {"ruleContent": command})
        rules = [{"type": "addRules", "rules": [rule], "behavior": "allow"}]
    if command is not None and "*" in command and any(_has_wildcard(one) for one in rules):
        return []
    return [{**one, "destination": "session"} for one in rules]


def _has_wildcard(update: Mapping[str, Any]) -> bool:
    return any("*" in _text(rule.get("ruleContent")) for rule in as_objects(update.get("rules")))


def _request(request_id: str, request: Message) -> bytes:
    return _line({"type": "control_request", "request_id": request_id, "request": request})


def _response(response: Message) -> bytes:
    return _line({"type": "control_response", "response": response})


def _line(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"
