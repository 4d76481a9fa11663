"""Turn a keeper's reports about its session into events of the attention queue. Pure.

The keeper sends the meaning of the agent's hooks as events already. This module makes events of what the
keeper adds: the state, permission requests that clients can decide, and the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.agents import DEFAULT_AGENT, PLAIN_AGENTS, find_permissions
from remuda.agents.sources import ReadFile
from remuda.agents.state import AT_REST, WAITING, WORKING
from remuda.agents.state import State as Seen
from remuda.untrusted import finite

from ..attention.model import UNDECIDED, Event, EventKind, Source

HOOKS = (
    "SessionStart",
    "SessionEnd",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PermissionRequest",
    "PermissionDenied",
    "Notification",
    "Stop",
    "StopFailure",
)
"""Hooks to request from a keeper of 0.1, which sends them unchanged."""
WITHOUT = ("tool_response",)
"""Fields of hooks that are large and not used."""
_SOURCES = {source.label: source for source in Source}
_CALM_ENDS = ("killed", "ended with its owner", "the keeper was asked to end", "keeper was told to end")

Facts = dict[str, Any]


def hooks_expected(status: Mapping[str, Any]) -> bool:
    """Whether hooks of the session should arrive. A keeper of 0.1 calls this `hooks`."""
    return bool(status.get("hooks_expected", status.get("hooks")))


def session_id_of(status: Mapping[str, Any]) -> str:
    """Return the conversation's id, or a placeholder while the agent has not reported one.

    An agent that shows its trust dialog has reported nothing yet, but waits for a human already.
    """
    conversation = status.get("conversation")
    own_id = conversation.get("session_id") if isinstance(conversation, dict) else None
    return own_id if isinstance(own_id, str) and own_id else f"kept:{status.get('name')}"


def identity(status: Mapping[str, Any]) -> Facts:
    facts: Facts = {"origin": "kept"}
    if status.get("ephemeral"):
        facts["scripted"] = True
    for key in ("name", "agent", "cwd", "pid"):
        if status.get(key):
            facts[key] = status[key]
    conversation = status.get("conversation")
    path = conversation.get("transcript_path") if isinstance(conversation, dict) else None
    return facts | ({"transcript_path": path} if isinstance(path, str) else {})


def first_event(
    session_id: str, status: Mapping[str, Any], facts: Facts, at: float, ended: float | None = None
) -> Event:
    """Make the first event of a session: that it exists, or that it began with its keeper.

    It began if its agent has not reported an id yet, or if it had `ended` before and was resumed.
    """
    name, began = status.get("name"), finite(status.get("started_at"))
    is_new = session_id == f"kept:{name}" or (ended is not None and began > ended)
    if is_new and status.get("agent") not in PLAIN_AGENTS and 0 < began <= at:
        event_id, facts = f"kept:{name}:began:{began}", {**facts, "how": "began"}
        return Event(EventKind.REGISTERED, session_id, began, Source.PROCESS, event_id, facts)
    return Event(EventKind.SEEN, session_id, at, Source.PROCESS, "", facts)


def state_events(
    session_id: str, state: Mapping[str, Any], facts: Facts, *, hooked: bool = False, asked: bool = False
) -> list[Event]:
    """Make the event for a state.

    `hooked`: hooks report for themselves, with more detail, so a state from a hook only proves presence.
    `asked`: the same for permission requests.
    """
    source = _SOURCES.get(str(state.get("source")), Source.TIMING)
    seen, at = str(state.get("state")), max(0.0, finite(state.get("since")))
    kind, more = _KINDS.get(seen, (EventKind.SEEN, {}))
    # The output timing of a plain program is not a reason to notify a human.
    silent = source is Source.TIMING or seen == Seen.DEAD
    if silent or (hooked and source is Source.HOOK) or (asked and kind is EventKind.ASKED):
        kind, more = EventKind.SEEN, {}
    detail = str(state.get("detail") or "")
    if seen == Seen.ASLEEP and state.get("wake_error"):
        kind, detail = EventKind.FAILED, str(state["wake_error"])
    if kind in (EventKind.FAILED, EventKind.LIMITED):
        more = {"message": detail}
    elif kind is EventKind.ASKED and detail:
        more = {**more, "waiting_for": detail}
    # The keeper derived this state, and the agent's message is not in it: the hook itself ranks higher.
    source = max(source, Source.REGISTRY)
    event_id = f"kept:{facts.get('name')}:{seen}:{at}"
    return [Event(kind, session_id, at, source, event_id, facts | dict(more))]


_KINDS: dict[str, tuple[EventKind, Mapping[str, Any]]] = {
    **{str(state): (EventKind.WORKING, {}) for state in WORKING},
    **{str(state): (EventKind.STOPPED, {}) for state in AT_REST},
    **{str(state): (EventKind.ASKED, {"reason": "permission"}) for state in WAITING},
    Seen.WAITING_ANSWER: (EventKind.ASKED, {"reason": "question"}),
    Seen.INTERRUPTED: (EventKind.INTERRUPTED, {}),
    Seen.LIMITED: (EventKind.LIMITED, {}),
    Seen.ERROR: (EventKind.FAILED, {}),
}


def agent_event(document: Mapping[str, Any], name: str, agent: str, read: ReadFile | None = None) -> Event:
    """Make an event from a keeper's document. Raises `ValueError`, `KeyError` or `TypeError` if malformed.

    A permission request is described here: that reads the file that the agent wants to write.
    """
    kind, facts = EventKind(document["kind"]), dict(document["facts"])
    if kind is EventKind.ASKED and "digest" in facts:
        facts |= find_permissions(agent).facts(str(facts.get("tool")), facts.get("input"), read)
    session_id, at = document["session_id"], max(0.0, finite(document["at"]))
    if not isinstance(session_id, str) or not session_id:
        raise ValueError("an event without a session")
    source = _SOURCES[str(document["source"])]
    return Event(kind, session_id, at, source, str(document.get("id") or ""), facts | {"name": name})


def left_alone_event(session_id: str, facts: Facts, tries: int, error: str, at: float) -> Event:
    """Make the event of a session that ended again and again, and is not restarted any more."""
    more: Facts = {"tries": tries} | ({"error": error} if error else {})
    event_id = f"left:{facts.get('name')}:{tries}:{at}"
    return Event(EventKind.GONE, session_id, at, Source.PROCESS, event_id, facts | more)


def ask_event(session_id: str, ask: Mapping[str, Any], facts: Facts, read: ReadFile | None = None) -> Event:
    """Make the event of a permission request that clients can decide; `keeper_ask` is the keeper's id."""
    permissions = find_permissions(str(facts.get("agent", DEFAULT_AGENT)))
    more = permissions.facts(str(ask.get("tool")), ask.get("input"), read)
    more["keeper_ask"] = str(ask.get("id"))
    if ask.get("suggestions"):
        more["suggestions"] = ask["suggestions"]
    if ask.get("tool_use_id"):
        more["tool_use_id"] = ask["tool_use_id"]
    if isinstance(ask.get("cwd"), str):
        more["call_cwd"] = ask["cwd"]  # an agent that changes its folder does not move its session
    if ask.get("refuses"):
        more["refuses"] = ask["refuses"]
    event_id = f"ask:{ask.get('id')}"
    at = max(0.0, finite(ask.get("at")))
    return Event(EventKind.ASKED, session_id, at, Source.HOOK, event_id, facts | more)


def ask_ended_event(
    session_id: str, ask: Mapping[str, Any], at: float, *, agent: str = DEFAULT_AGENT, undecided: bool = False
) -> Event:
    """Make the event of a request that clients can no longer decide.

    `undecided`: the agent gave up waiting for them. Some agents open their dialog only then.
    """
    # Agents of other packages may not know such a name.
    opens = undecided and getattr(find_permissions(agent), "dialog_after_hook", False)
    why = UNDECIDED if opens else "answered"
    facts: Facts = {"tool": str(ask.get("tool")), "input": ask.get("input"), "why": why}
    if ask.get("tool_use_id"):
        facts["tool_use_id"] = ask["tool_use_id"]
    return Event(EventKind.ASK_ENDED, session_id, at, Source.PROCESS, f"ask_ended:{ask.get('id')}", facts)


def called_event(placeholder: str, session_id: str, at: float) -> Event:
    """Make the event that ends a placeholder: the agent has reported its own id."""
    return Event(
        EventKind.ENDED, placeholder, at, Source.PROCESS, f"{placeholder}:is:{session_id}", {"why": "named"}
    )


def end_event(session_id: str, end: Mapping[str, Any], facts: Facts, *, comes_back: bool = False) -> Event:
    """Make the event of the end. `end` has agent, ended_at, exit_code, end_reason; less if the keeper died.

    An end that a human requested, or with exit code 0, does not count as a death. `comes_back`: nor does that
    of a session which is restarted.
    """
    at = max(0.0, finite(end.get("ended_at")))
    code, why = end.get("exit_code"), str(end.get("end_reason") or "")
    calm = end.get("agent") in PLAIN_AGENTS or why in _CALM_ENDS or (why == "exited" and code == 0)
    calm = calm or comes_back
    more: Facts = {"why": why or "its keeper was killed"}
    if comes_back:
        more["comes_back"] = True
    if code is not None:
        more["exit_code"] = code
    told = {key: value for key, value in facts.items() if key != "pid"}
    kind = EventKind.ENDED if calm else EventKind.GONE
    return Event(kind, session_id, at, Source.PROCESS, f"end:{facts.get('name')}:{at}", told | more)
