"""What Claude Code's hooks, registry file and transcript say, as events of the attention queue. Pure.

Facts this rests on (2.1.325): a request for permission carries no id of its call, the PreToolUse before it
and the PostToolUse after it do; an edited call ends with the edited input; no hook tells of an interrupt or
of a permission that was refused at the terminal, transcript and registry do; a UserPromptSubmit may be
the agent waking itself; a Stop may leave work running that will wake it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from remuda.agents.attention import Event, EventKind, digest
from remuda.agents.speech import CommandRun, CommandUnknown, Failed, Failure, Interrupted, Recorded, Said
from remuda.agents.state import Source
from remuda.untrusted import finite

from .answers import TASK_NOTICE
from .asking import Read, asked, needs_input, reason_of
from .limit import reset_in_words
from .speech import ClaudeSpeech

_SPEECH = ClaudeSpeech()
_FEEDBACK = "Stop hook feedback:"
_WAITING = {"permission prompt": "permission", "input needed": "question", "dialog open": "question"}
_EPOCH = re.compile(r"\|(\d{10})\b")
# A call is told from another by its digest; whole it is of use only where nobody else says what is asked.
_CALL_BYTES = 8192
_QUESTION_BYTES = 65536

Facts = dict[str, Any]


# ── hooks ──


def hook_events(
    payload: Mapping[str, Any],
    at: float,
    *,
    id: str = "",  # noqa: A002  # it is the event's
    env: Mapping[str, str] | None = None,
    read: Read | None = None,
) -> list[Event]:
    """What a hook's payload tells. `env` is the hook's environment, as far as its emitter passed it on."""
    session_id = payload.get("session_id")
    if not isinstance(session_id, str) or not session_id:
        return []
    name, env = str(payload.get("hook_event_name")), env or {}
    tells = _seen if _is_of_process(name, payload, env) else _HOOKS.get(name, _seen)
    kind, facts, source = tells(payload, at, read)
    return [Event(kind, session_id, at, source, id, _identity(payload, env) | facts)]


def _is_of_process(name: str, payload: Mapping[str, Any], env: Mapping[str, str]) -> bool:
    """A background agent is more than its process, which its service ends and starts again as it likes."""
    how = (name, payload.get("reason" if name == "SessionEnd" else "source"))
    return _is_job(env) and how in (("SessionEnd", "other"), ("SessionStart", "resume"))


def _is_job(env: Mapping[str, str]) -> bool:
    """What a background agent starts by itself has that variable too."""
    return bool(env.get("CLAUDE_JOB_DIR")) and not env.get("CLAUDE_CODE_ENTRYPOINT", "").startswith("sdk")


Told = tuple[EventKind, Facts, Source]


def _identity(payload: Mapping[str, Any], env: Mapping[str, str]) -> Facts:
    facts: Facts = {
        key: payload[key] for key in ("cwd", "transcript_path") if isinstance(payload.get(key), str)
    }
    facts["agent"] = "claude"
    if pane := env.get("TMUX_PANE"):
        facts["pane"] = pane
        if tmux := env.get("TMUX", "").partition(",")[0]:
            facts["tmux"] = tmux
    pid = str(env.get("CLAUDE_PID") or payload.get("claude_pid") or "")
    if pid.isdecimal() and len(pid) < 11 and 0 < int(pid) < 1 << 31:
        facts["pid"] = int(pid)
    if entrypoint := env.get("CLAUDE_CODE_ENTRYPOINT"):
        facts["entrypoint"] = entrypoint
    if session := env.get("REMUDA_SESSION"):
        facts["name"] = session
    elif _is_job(env):
        facts["origin"] = "background"
    return facts


def _seen(_payload: Mapping[str, Any], _at: float, _read: Read | None) -> Told:
    return EventKind.SEEN, {}, Source.HOOK


def _session_start(payload: Mapping[str, Any], at: float, read: Read | None) -> Told:
    how = str(payload.get("source", "startup"))
    if how == "compact":  # in the middle of a turn
        return _seen(payload, at, read)
    return EventKind.REGISTERED, {"how": how}, Source.HOOK


def _session_end(payload: Mapping[str, Any], _at: float, _read: Read | None) -> Told:
    return EventKind.ENDED, {"why": str(payload.get("reason", "other"))}, Source.HOOK


def _prompt(payload: Mapping[str, Any], _at: float, _read: Read | None) -> Told:
    prompt = str(payload.get("prompt", ""))
    if prompt.startswith(TASK_NOTICE):
        return EventKind.WORKING, {"notice": True}, Source.HOOK
    return EventKind.PROMPTED, {"prompt": prompt} | _turn(payload), Source.HOOK


def _turn(payload: Mapping[str, Any]) -> Facts:
    """Which prompt it is, or belongs to."""
    number = payload.get("prompt_id")
    return {"prompt_id": number} if isinstance(number, str) else {}


def _stop(payload: Mapping[str, Any], _at: float, _read: Read | None) -> Told:
    tasks = [task for task in _list(payload.get("background_tasks")) if isinstance(task, dict)]
    running = [task for task in tasks if task.get("status", "running") == "running"]
    shells = [task for task in running if "shell" in str(task.get("type")) or "bash" in str(task.get("type"))]
    facts: Facts = {"message": str(payload.get("last_assistant_message") or "")}
    if going := [task for task in running if task not in shells]:
        facts["background"] = [_short_task(task) for task in going]
    if shells:
        facts["shells"] = [_short_task(task) for task in shells]
    return EventKind.STOPPED, facts, Source.HOOK


def _short_task(task: Mapping[str, Any]) -> Facts:
    return {key: task[key] for key in ("id", "type", "description") if key in task}


def _stop_failure(payload: Mapping[str, Any], at: float, _read: Read | None) -> Told:
    signal = _SPEECH.hook_signal(payload)
    assert isinstance(signal, Failed)
    kind, facts = _failed(signal, at)
    return kind, facts, Source.HOOK


def _failed(signal: Failed, at: float) -> tuple[EventKind, Facts]:
    facts: Facts = {"message": signal.text, "error": str(signal.kind)}
    if signal.kind is not Failure.RATE_LIMITED:
        return EventKind.FAILED, facts
    if found := _EPOCH.search(signal.text):
        facts["until"] = float(found[1])
    elif signal.retry_after is not None:
        facts["until"] = at + signal.retry_after
    elif (reset := reset_in_words(signal.text, at)) is not None:
        facts["until"] = reset
    return EventKind.LIMITED, facts


def _tool_began(payload: Mapping[str, Any], _at: float, _read: Read | None) -> Told:
    return EventKind.TOOL_BEGAN, _call(payload), Source.HOOK


def _tool_ran(payload: Mapping[str, Any], _at: float, _read: Read | None) -> Told:
    event = payload.get("hook_event_name")
    facts = _call(payload) | {"ok": event == "PostToolUse", "denied": event == "PermissionDenied"}
    facts.pop("input", None)
    return EventKind.TOOL_RAN, facts, Source.HOOK


def _call(payload: Mapping[str, Any]) -> Facts:
    tool, given = str(payload.get("tool_name", "")), payload.get("tool_input")
    facts: Facts = {"tool": tool, "digest": digest(tool, given)}
    if isinstance(number := payload.get("tool_use_id"), str):
        facts["tool_use_id"] = number
    if payload.get("agent_id"):
        facts["subagent"] = str(payload["agent_id"])
    if isinstance(given, dict) and len(json.dumps(given)) <= _CALL_BYTES:
        facts["input"] = given
    return facts


def _permission(payload: Mapping[str, Any], _at: float, read: Read | None) -> Told:
    facts = _call(payload) | _turn(payload)
    facts |= asked(str(payload.get("tool_name", "")), payload.get("tool_input"), read)
    if suggestions := payload.get("permission_suggestions"):
        facts["suggestions"] = suggestions
    if mode := payload.get("permission_mode"):
        facts["permission_mode"] = mode
    return EventKind.ASKED, facts, Source.HOOK


def _notification(payload: Mapping[str, Any], at: float, read: Read | None) -> Told:
    """It says less than the hook of the thing itself, and later: for those who have only this one."""
    kind = str(payload.get("notification_type"))
    message = str(payload.get("message", ""))
    if kind == "permission_prompt":
        return EventKind.ASKED, {"reason": "permission", "message": message}, Source.TITLE
    if kind.endswith("_dialog") or needs_input(payload):
        return EventKind.ASKED, {"reason": "question", "message": message}, Source.TITLE
    if kind == "idle_prompt":
        return EventKind.STOPPED, {}, Source.TITLE
    return _seen(payload, at, read)


_HOOKS: dict[str, Callable[[Mapping[str, Any], float, Read | None], Told]] = {
    "SessionStart": _session_start,
    "SessionEnd": _session_end,
    "UserPromptSubmit": _prompt,
    "Stop": _stop,
    "StopFailure": _stop_failure,
    "PreToolUse": _tool_began,
    "PostToolUse": _tool_ran,
    "PostToolUseFailure": _tool_ran,
    "PermissionDenied": _tool_ran,
    "PermissionRequest": _permission,
    "Notification": _notification,
}


# ── registry ──


def registry_events(document: Mapping[str, Any], *, now: float | None = None) -> list[Event]:
    """What `sessions/<pid>.json`, or a row of `claude agents --json`, tells.

    A status is dated when it began. Given `now` it is told as what is true now: for a status that has
    contradicted all else for so long that something must have been missed.
    """
    session_id, pid = document.get("sessionId"), document.get("pid")
    if not isinstance(session_id, str) or not session_id:
        return []
    facts: Facts = {"agent": "claude", "origin": "background" if is_background(document) else "registry"}
    if isinstance(pid, int):
        facts["pid"] = pid
    for key, name in (("cwd", "cwd"), ("entrypoint", "entrypoint"), ("name", "title")):
        if isinstance(value := document.get(key), str):
            facts[name] = value
    changed = document.get("statusUpdatedAt") or document.get("updatedAt") or document.get("startedAt")
    at = max(0.0, finite(changed) / 1000)
    status = str(document.get("status"))
    number = f"registry:{pid}:{changed}:{status}"
    if now is not None:
        at, number = now, f"{number}:{now}"
    kind, more = _status(status, document)
    return [Event(kind, session_id, at, Source.REGISTRY, number, facts | more)]


def is_background(document: Mapping[str, Any]) -> bool:
    """The file and the command have a word of their own for it."""
    return document.get("kind") in ("bg", "background")


def _status(status: str, document: Mapping[str, Any]) -> tuple[EventKind, Facts]:
    if status == "waiting":
        what = str(document.get("waitingFor", ""))
        return EventKind.ASKED, {"reason": _WAITING.get(what, "question"), "waiting_for": what}
    if status in ("idle", "shell"):
        return EventKind.STOPPED, {}
    return (EventKind.WORKING if status == "busy" else EventKind.SEEN), {}


# ── transcript ──


def record_events(record: Mapping[str, Any], session_id: str | None = None) -> list[Event]:
    """What a line of a transcript tells. One without a date tells nothing: nobody knows how old it is."""
    at = _epoch(record)
    session_id = session_id or _text(record, "sessionId")
    if at is None or not session_id or record.get("isSidechain"):
        return []
    facts: Facts = {"cwd": record["cwd"]} if isinstance(record.get("cwd"), str) else {}
    return [
        Event(kind, session_id, at, Source.TRANSCRIPT, f"record:{record.get('uuid')}:{number}", facts | more)
        for number, (kind, more) in enumerate(_told(record, at))
    ]


def _told(record: Mapping[str, Any], at: float) -> Iterable[tuple[EventKind, Facts]]:
    yield from _calls(record)
    if record.get("type") == "user" and record.get("isMeta"):
        if _first_text(record).startswith(_FEEDBACK):
            yield EventKind.WORKING, {"continued": True}
        return
    signal = _SPEECH.record_signal(record)
    if isinstance(signal, Recorded) and not record.get("isCompactSummary"):
        notice = signal.prompt.startswith(TASK_NOTICE)
        yield (
            (EventKind.WORKING, {"notice": True})
            if notice
            else (EventKind.PROMPTED, {"prompt": signal.prompt})
        )
    elif isinstance(signal, Interrupted):
        yield EventKind.INTERRUPTED, {}
    elif isinstance(signal, Failed):
        yield _failed(signal, at)
    elif isinstance(signal, Said) and signal.final:
        yield EventKind.STOPPED, {"message": signal.text}
    elif isinstance(signal, CommandRun | CommandUnknown):
        yield EventKind.SEEN, {}


def _calls(record: Mapping[str, Any]) -> Iterable[tuple[EventKind, Facts]]:
    for block in _blocks(record):
        if block.get("type") == "tool_use":
            call = {
                "tool_name": block.get("name"),
                "tool_input": block.get("input"),
                "tool_use_id": block.get("id"),
            }
            yield EventKind.TOOL_BEGAN, _call(call) | _asks(call)
        elif block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str):
            yield (
                EventKind.TOOL_RAN,
                {
                    "tool_use_id": block["tool_use_id"],
                    "ok": not block.get("is_error"),
                    "denied": bool(record.get("toolDenialKind")),
                },
            )


def _asks(call: Mapping[str, Any]) -> Facts:
    """What a call will ask a human: no hook may be there to report that."""
    tool, given = str(call.get("tool_name", "")), call.get("tool_input")
    if reason_of(tool) == "permission" or not isinstance(given, dict):
        return {}
    facts = asked(tool, given)
    found = {name: facts[name] for name in ("reason", "options", "message") if name in facts}
    return {"asks": found} if len(json.dumps(found)) <= _QUESTION_BYTES else {}


def _blocks(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in _list(content) if isinstance(block, dict)]


def _first_text(record: Mapping[str, Any]) -> str:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    return next((str(block["text"]) for block in _blocks(record) if "text" in block), "")


def _epoch(record: Mapping[str, Any]) -> float | None:
    try:
        at = datetime.fromisoformat(str(record.get("timestamp"))).timestamp()
    except (ValueError, OverflowError):
        return None
    return at if at >= 0 else None


def _text(document: Mapping[str, Any], key: str) -> str | None:
    value = document.get(key)
    return value if isinstance(value, str) else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
