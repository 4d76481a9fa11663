"""What a keeper reports of its session, as events of the attention queue. Pure.

What the agent's hooks mean comes as events already. Here is what the keeper adds: the state as it judges it,
permissions that clients may give, and the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.agents import DEFAULT_AGENT, PLAIN_AGENTS, find_permissions
from remuda.agents.sources import ReadFile
from remuda.agents.state import RESTING, WAITING, WORKING
from remuda.agents.state import State as Seen
from remuda.untrusted import finite

from ..attention.model import Event, EventKind, Source

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
"""What a keeper of 0.1 is asked for: it sends hooks as they are."""
WITHOUT = ("tool_response",)
"""Large, and not used."""
_SOURCES = {source.label: source for source in Source}
_CALM_ENDS = ("killed", "ended with its owner", "the keeper was asked to end", "keeper was told to end")

Facts = dict[str, Any]


def hooks_expected(status: Mapping[str, Any]) -> bool:
    """Whether hooks of it will come. A keeper of 0.1 says `hooks` for that."""
    return bool(status.get("hooks_expected", status.get("hooks")))


def session_id_of(status: Mapping[str, Any]) -> str:
    """The conversation's own id. Before the agent has told it, and for a program that has none: one of ours.

    An agent that shows its trust dialog has told nothing yet, and waits for a human all the same.
    """
    conversation = status.get("conversation")
    told = conversation.get("session_id") if isinstance(conversation, dict) else None
    return told if isinstance(told, str) and told else f"kept:{status.get('name')}"


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


def first_event(session_id: str, status: Mapping[str, Any], facts: Facts, at: float) -> Event:
    """That it is there; that it began with its keeper where its agent has told no id yet."""
    name, began = status.get("name"), finite(status.get("started_at"))
    if session_id == f"kept:{name}" and status.get("agent") not in PLAIN_AGENTS and 0 < began <= at:
        event_id, facts = f"kept:{name}:began:{began}", {**facts, "how": "began"}
        return Event(EventKind.REGISTERED, session_id, began, Source.PROCESS, event_id, facts)
    return Event(EventKind.SEEN, session_id, at, Source.PROCESS, "", facts)


def state_events(
    session_id: str, state: Mapping[str, Any], facts: Facts, *, hooked: bool = False, asked: bool = False
) -> list[Event]:
    """What a state says. `hooked`: what a hook told comes by itself, and says more; `asked`: so does that."""
    source = _SOURCES.get(str(state.get("source")), Source.TIMING)
    seen, at = str(state.get("state")), max(0.0, finite(state.get("since")))
    kind, more = _KINDS.get(seen, (EventKind.SEEN, {}))
    # Of a program that speaks for itself in no way, its rhythm is no reason to call anybody.
    silent = source is Source.TIMING or seen == Seen.DEAD
    if silent or (hooked and source is Source.HOOK) or (asked and kind is EventKind.ASKED):
        kind, more = EventKind.SEEN, {}
    detail = str(state.get("detail") or "")
    if kind in (EventKind.FAILED, EventKind.LIMITED):
        more = {"message": detail}
    elif kind is EventKind.ASKED and detail:
        more = {**more, "waiting_for": detail}
    # It was judged by somebody else, and its own words are not in it: the hook itself is worth more.
    source = max(source, Source.REGISTRY)
    event_id = f"kept:{facts.get('name')}:{seen}:{at}"
    return [Event(kind, session_id, at, source, event_id, facts | dict(more))]


_KINDS: dict[str, tuple[EventKind, Mapping[str, Any]]] = {
    **{str(state): (EventKind.WORKING, {}) for state in WORKING},
    **{str(state): (EventKind.STOPPED, {}) for state in RESTING},
    **{str(state): (EventKind.ASKED, {"reason": "permission"}) for state in WAITING},
    Seen.WAITING_ANSWER: (EventKind.ASKED, {"reason": "question"}),
    Seen.INTERRUPTED: (EventKind.INTERRUPTED, {}),
    Seen.LIMITED: (EventKind.LIMITED, {}),
    Seen.ERROR: (EventKind.FAILED, {}),
}


def agent_event(document: Mapping[str, Any], name: str, agent: str, read: ReadFile | None = None) -> Event:
    """An event that the keeper made of its agent's report. Raises what a malformed one raises.

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


def ask_event(session_id: str, ask: Mapping[str, Any], facts: Facts, read: ReadFile | None = None) -> Event:
    """A permission that a client may give; `keeper_ask` is how the keeper calls it."""
    permissions = find_permissions(str(facts.get("agent", DEFAULT_AGENT)))
    more = permissions.facts(str(ask.get("tool")), ask.get("input"), read)
    more["keeper_ask"] = str(ask.get("id"))
    if ask.get("suggestions"):
        more["suggestions"] = ask["suggestions"]
    if ask.get("tool_use_id"):
        more["tool_use_id"] = ask["tool_use_id"]
    if isinstance(ask.get("cwd"), str):
        more["cwd"] = ask["cwd"]
    event_id = f"ask:{ask.get('id')}"
    at = max(0.0, finite(ask.get("at")))
    return Event(EventKind.ASKED, session_id, at, Source.HOOK, event_id, facts | more)


def ask_ended_event(session_id: str, ask: Mapping[str, Any], at: float) -> Event:
    facts: Facts = {"tool": str(ask.get("tool")), "input": ask.get("input"), "why": "answered"}
    if ask.get("tool_use_id"):
        facts["tool_use_id"] = ask["tool_use_id"]
    return Event(EventKind.ASK_ENDED, session_id, at, Source.PROCESS, f"ask_ended:{ask.get('id')}", facts)


def called_event(placeholder: str, session_id: str, at: float) -> Event:
    """That the placeholder is over: its agent has told its own id, and has the name now."""
    return Event(
        EventKind.ENDED, placeholder, at, Source.PROCESS, f"{placeholder}:is:{session_id}", {"why": "named"}
    )


def end_event(session_id: str, end: Mapping[str, Any], facts: Facts) -> Event:
    """`end` is what its record says: agent, ended_at, exit_code, end_reason; or less, of a keeper's death.

    What a human asked for, and what ended well, is no death.
    """
    at = max(0.0, finite(end.get("ended_at")))
    code, why = end.get("exit_code"), str(end.get("end_reason") or "")
    calm = end.get("agent") in PLAIN_AGENTS or why in _CALM_ENDS or (why == "exited" and code == 0)
    more: Facts = {"why": why or "its keeper was killed"}
    if code is not None:
        more["exit_code"] = code
    told = {key: value for key, value in facts.items() if key != "pid"}
    kind = EventKind.ENDED if calm else EventKind.GONE
    return Event(kind, session_id, at, Source.PROCESS, f"end:{facts.get('name')}:{at}", told | more)
