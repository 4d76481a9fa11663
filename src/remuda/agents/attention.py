"""The events of the attention queue, and how they follow from an agent's reports. Pure.

`agents/events` has what any agent can report. These events are what the boss keeps on the disk and weighs
(`boss/attention/rules`): a kind, a session, a date, and facts.

`facts` are plain JSON values. Those that say which session it is may come with any event:

    pane, tmux      the tmux pane ("%3"), and the socket of its server
    pid             the agent's process
    name            of a kept session
    cwd, transcript_path, agent, entrypoint, title, origin, repo

and these belong to one kind or another:

    PROMPTED    prompt, prompt_id
    WORKING     continued (a hook did not let it stop), notice (woken by what ran in its background)
    STOPPED     message; background (tasks that go on and will wake it), shells (those that may never end)
    ASKED       reason ("permission", "question", "plan"), tool, input, suggestions, options, diff,
                prompt_id (of the prompt that led to it), at_terminal (it can be decided only there),
                reminder (it comes some seconds after the dialog)
    ASK_ENDED   ask (its id), or tool and input, or tool_use_id
    TOOL_BEGAN  tool, input or digest, tool_use_id, subagent; asks (reason, options and message of the dialog
                that the call opens)
    TOOL_RAN    the same, and ok; denied (it did not run), without which one that is not ok counts as such
    FAILED      message, error
    LIMITED     message, error, until (seconds since the epoch)
    REGISTERED  how ("startup", "resume", "clear", "fork")
    ENDED       why ("clear", "logout", "other"…)
    HELD        tool ("budget"), input (limit, used, allowed, raise_to, action), message
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from remuda.digest import sha256

from .events import (
    AgentEvent,
    CommandRun,
    CommandUnknown,
    ConversationEnded,
    ConversationStarted,
    DialogReported,
    Failure,
    MessageRecorded,
    PermissionDecided,
    PermissionRequested,
    PromptRecorded,
    PromptSubmitted,
    Report,
    RestReported,
    StatusReported,
    Task,
    ToolFinished,
    ToolStarted,
    TurnContinued,
    TurnFailed,
    TurnInterrupted,
    TurnStopped,
)
from .state import Source


class EventKind(StrEnum):
    REGISTERED = "registered"
    """A conversation starts, or continues in this process. It has no prompt yet."""
    PROMPTED = "prompted"
    """A user or a program sent it a prompt."""
    WORKING = "working"
    STOPPED = "stopped"
    ASKED = "asked"
    ASK_ENDED = "ask_ended"
    TOOL_BEGAN = "tool_began"
    TOOL_RAN = "tool_ran"
    """A tool's call is over: it ran, failed, or was denied."""
    FAILED = "failed"
    LIMITED = "limited"
    INTERRUPTED = "interrupted"
    HUNG = "hung"
    ENDED = "ended"
    """The agent reported that the conversation ended."""
    GONE = "gone"
    """Its process has ended."""
    DISMISSED = "dismissed"
    """A user dismissed what it waits for now."""
    HELD = "held"
    """A budget is used up: it gets no message until a human allows more. Without `tool`: that is over."""
    SEEN = "seen"
    """The session exists. The event has only the facts that identify it."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at `at` (seconds since the epoch), reported by `source`.

    `id` is the same for the same event, however often it comes and from which source; empty if unknown.
    """

    kind: EventKind
    session_id: str
    at: float
    source: Source = Source.HOOK
    id: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode


def digest(tool: object, given: object) -> str:
    """Return a digest that identifies a call: a permission request carries no id of its call."""
    return sha256(_encode([tool, given]).encode())[:24]


# ── from hooks ──

PID_VARIABLE = "AGENT_PID"
"""Where `boss/hook.py` passes on the process that ran it."""


def agent_pid(env: Mapping[str, str]) -> int | None:
    """Return the process that ran a hook."""
    digits = env.get(PID_VARIABLE, "")
    return int(digits) if digits.isdecimal() and len(digits) < 11 and 0 < int(digits) < 1 << 31 else None


def pane_facts(env: Mapping[str, str]) -> dict[str, Any]:
    """Return the pane of a hook with this environment."""
    pane, tmux = env.get("TMUX_PANE"), env.get("TMUX", "").partition(",")[0]
    return {} if not pane else {"pane": pane} | ({"tmux": tmux} if tmux else {})


# ── from reports ──

Facts = dict[str, Any]
Describe = Callable[[str, object], Facts]
"""What there is to decide on in a call of a tool: reason, message, options, diff."""

# The digest is enough to recognise a call. The complete input is needed only if no other source has it.
_CALL_BYTES = 8192
_QUESTION_BYTES = 65536
_WAITING = {"permission prompt": "permission", "input needed": "question", "dialog open": "question"}
_Kind = tuple[EventKind, Facts]


def attention_events(
    report: Report,
    at: float,
    *,
    agent: str,
    describe: Describe | None = None,
    id: str = "",  # noqa: A002
) -> list[Event]:
    """Return what a report means for the attention queue. `id` is used if the report has none.

    A hook is one event, also if it says only that the session exists. A record of the transcript may be
    several or none, and has its own date.
    """
    if not report.session_id:
        return []
    facts = _identity(report, agent)
    found = [_kind_of(event, report, describe) for event in report.events]
    kinds = [one for one in found if one is not None]
    if report.source is Source.TRANSCRIPT:
        if report.at is None or report.subagent:  # without a date it may be of any age
            return []
        return [
            Event(kind, report.session_id, report.at, report.source, f"{report.id}:{number}", facts | more)
            for number, (kind, more) in enumerate(kinds)
        ]
    kind, more = kinds[0] if kinds else (EventKind.SEEN, {})
    # A notification says less than the hook of the event itself, and comes later.
    is_notice = any(isinstance(event, DialogReported | RestReported) for event in report.events)
    source = Source.TITLE if is_notice else report.source
    return [Event(kind, report.session_id, at, source, id or report.id, facts | more)]


def _identity(report: Report, agent: str) -> Facts:
    facts: Facts = {
        key: report.conversation[key] for key in ("cwd", "transcript_path") if key in report.conversation
    }
    if report.source is not Source.TRANSCRIPT:
        facts["agent"] = agent
    if report.pid is not None and report.pid > 0:
        facts["pid"] = report.pid
    return facts | dict(report.facts)


def _kind_of(event: AgentEvent, report: Report, describe: Describe | None) -> _Kind | None:  # noqa: C901
    """Return the kind and facts of an event; None if it means nothing for the queue."""
    match event:
        case ConversationStarted(how):  # compacted: in the middle of a turn
            return (EventKind.SEEN, {}) if how == "compact" else (EventKind.REGISTERED, {"how": how})
        case ConversationEnded(why):
            return EventKind.ENDED, {"why": why}
        case PromptSubmitted(notice=True) | PromptRecorded(notice=True):
            return EventKind.WORKING, {"notice": True}
        case PromptSubmitted():
            return EventKind.PROMPTED, {"prompt": event.prompt} | _prompt_id(event.prompt_id)
        case PromptRecorded():
            return EventKind.PROMPTED, {"prompt": event.prompt}
        case TurnContinued():
            return EventKind.WORKING, {"continued": True}
        case TurnStopped():
            return EventKind.STOPPED, {"message": event.text} | _background(event.background)
        case TurnInterrupted():
            return EventKind.INTERRUPTED, {}
        case TurnFailed():
            return _failed(event)
        case MessageRecorded():
            return (EventKind.STOPPED, {"message": event.text}) if event.final else None
        case CommandRun() | CommandUnknown():
            return (EventKind.SEEN, {}) if report.source is Source.TRANSCRIPT else None
        case ToolStarted():
            return EventKind.TOOL_BEGAN, _call(event, report) | _dialog_of(event, describe)
        case ToolFinished():
            return EventKind.TOOL_RAN, _result(event, report)
        case PermissionRequested():
            return EventKind.ASKED, _request(event, report, describe)
        case PermissionDecided():
            return EventKind.ASK_ENDED, {"tool_use_id": event.id}
        case DialogReported():
            more = {"reminder": True} if event.reminder else {}
            return EventKind.ASKED, {"reason": event.reason, "message": event.message} | more
        case RestReported():
            return EventKind.STOPPED, {}
        case StatusReported():
            return _status(event)
    return None


def _prompt_id(prompt_id: str | None) -> Facts:
    return {} if prompt_id is None else {"prompt_id": prompt_id}


def _background(tasks: tuple[Task, ...]) -> Facts:
    running = [task for task in tasks if task.running]
    groups = {
        "background": [_task(task) for task in running if not task.is_shell],
        "shells": [_task(task) for task in running if task.is_shell],
    }
    return {name: listed for name, listed in groups.items() if listed}


def _task(task: Task) -> Facts:
    described = {} if task.description is None else {"description": task.description}
    return {"id": task.id, "type": task.kind, **described}


def _failed(event: TurnFailed) -> _Kind:
    facts: Facts = {"message": event.text, "error": str(event.kind)}
    if event.kind is not Failure.RATE_LIMITED:
        return EventKind.FAILED, facts
    return EventKind.LIMITED, facts | ({} if event.resets_at is None else {"until": event.resets_at})


def _call(event: ToolStarted | ToolFinished | PermissionRequested, report: Report) -> Facts:
    facts: Facts = {"tool": event.tool, "digest": digest(event.tool, event.input)}
    if event.id:
        facts["tool_use_id"] = event.id
    if report.subagent:
        facts["subagent"] = report.subagent
    if isinstance(event.input, dict) and len(json.dumps(event.input)) <= _CALL_BYTES:
        facts["input"] = event.input
    return facts


def _dialog_of(event: ToolStarted, describe: Describe | None) -> Facts:
    """Return what a call will ask a human: there may be no hook that reports it."""
    if not event.asks or describe is None:
        return {}
    facts = describe(event.tool, event.input)
    dialog = {name: facts[name] for name in ("reason", "options", "message") if name in facts}
    return {"asks": dialog} if len(json.dumps(dialog)) <= _QUESTION_BYTES else {}


def _result(event: ToolFinished, report: Report) -> Facts:
    facts = {"tool_use_id": event.id} if event.tool is None else _call(event, report)
    facts.pop("input", None)
    return facts | {"ok": event.ok, "denied": event.denied}


def _request(event: PermissionRequested, report: Report, describe: Describe | None) -> Facts:
    facts = _call(event, report) | _prompt_id(event.prompt_id)
    if describe is not None:
        facts |= describe(event.tool, event.input)
    else:  # the view describes it
        facts |= {"reason": event.reason, "input": event.input if isinstance(event.input, dict) else {}}
    if event.suggestions:
        facts["suggestions"] = list(event.suggestions)
    if report.permission_mode:
        facts["permission_mode"] = report.permission_mode
    return facts


def _status(event: StatusReported) -> _Kind:
    if event.status == "waiting":
        reason = _WAITING.get(event.waiting_for, "question")
        return EventKind.ASKED, {"reason": reason, "waiting_for": event.waiting_for}
    if event.status in ("idle", "shell"):
        return EventKind.STOPPED, {}
    return (EventKind.WORKING if event.status == "busy" else EventKind.SEEN), {}
