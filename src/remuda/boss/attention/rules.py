"""The rules of attention: how each event changes a session. Pure: no clock, no I/O; all rules are here.

Events arrive late, twice, in any order, and from sources that see more or less. `event_log` puts them in the
order in which they happened, and the rules below are applied from the first to the last. The newest event
decides; at the same time the one whose source is worth more.

| event | effect on the session |
| --- | --- |
| REGISTERED | `started`: it has no prompt yet. Ignored just after its own first prompt |
| PROMPTED | `working`; everything that it asked or said is answered |
| WORKING | `working`, but a source that lags does not wake a session that has just stopped |
| WORKING, notice | `working`: it woke itself. What it said before stays unanswered |
| WORKING, continued | `working`: a hook did not let it stop |
| STOPPED by a hook | `stopped`, or `background` while something runs that will wake it |
| STOPPED by another | the same for a working session; a session that did nothing yet is `started` |
| ASKED | a dialog on top of what it does; counted once, however often it is reported |
| ASKED, reminder | the same, but nothing if a dialog has just been closed: it is about that one |
| TOOL_BEGAN | at work; identifies the call that a dialog is about |
| TOOL_RAN | the dialog about that call is over, and this is the proof |
| ASK_ENDED | that dialog is over |
| ASK_ENDED, undecided | no one decided elsewhere: its dialog is open in the terminal now |
| FAILED, LIMITED | `failed`, `limited` |
| INTERRUPTED | `stopped`; open dialogs are over |
| HUNG | `hung`, if it was at work |
| ENDED | `ended`, in good order. Ignored if it goes on in a later process |
| GONE | `dead`, if it did not end in good order, and that process was its last |
| GONE, tries | `dead` also then: it was restarted that often, and is left alone |
| HELD | no state: it gets no message until a human allows more, or gets them again |
| DISMISSED | what it waits for now is removed from the queue |
| SEEN | nothing |

A session that is over comes back only when it is registered or prompted, or reports something much later.

A hook that the agent does not wait for is dated when it ran, and that may be late. If the transcript, which
has the right date, has reported the same before, and the session has moved on, the hook changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .model import UNDECIDED, Activity, Event, EventKind, Reason, Source, digest
from .projection import OVER, RESTING, Ask, SessionProjection, ToolCall

SAME_MOMENT = 2.0
"""Two sources that report the same within this time report one thing."""
AFTERGLOW = 0.5
"""Files and late processes show work for a moment after the end of a turn."""
LATE = 30.0
"""A hook may run this long after what it reports."""
_REVIVAL = 5.0
_ASKS = 32
_CALLS = 64
_EARLIER = 5
_TOLD = 8
_WORDS = {
    EventKind.PROMPTED: "prompt",
    EventKind.STOPPED: "message",
    EventKind.FAILED: "message",
    EventKind.LIMITED: "message",
    EventKind.TOOL_RAN: "tool_use_id",
}
"""What a record and a hook about the same thing have in common."""

Reducer = Callable[[SessionProjection, Event], SessionProjection]


# ── the beginning and the end ──


def _registered(now: SessionProjection, event: Event) -> SessionProjection:
    late = (
        now.activity not in OVER and now.activity is not Activity.SEEN and event.at - now.since < SAME_MOMENT
    )
    if late and event.facts.get("how") in ("startup", "resume", None):
        return now
    return _become(_end_asks(now, event, "registered"), Activity.STARTED, event, why="started")


def _ended(now: SessionProjection, event: Event) -> SessionProjection:
    if _is_of_another(now, event) or (now.is_left_alone and event.facts.get("comes_back")):
        return now
    detail = {"why": str(event.facts.get("why", ""))}
    return _become(_end_asks(now, event, "ended"), Activity.ENDED, event, detail=detail, why="ended")


def _gone(now: SessionProjection, event: Event) -> SessionProjection:
    is_left_alone = "tries" in event.facts and not now.is_left_alone
    if (now.activity in OVER and not is_left_alone) or _is_of_another(now, event):
        return now
    detail = {key: event.facts[key] for key in ("exit_code", "pid", "tries", "error") if key in event.facts}
    detail["was"] = str(now.state)
    return _become(
        _end_asks(now, event, "dead"),
        Activity.DEAD,
        event,
        message=now.message,
        detail=detail,
        why="dead",
    )


def _is_of_another(now: SessionProjection, event: Event) -> bool:
    """Whether the conversation goes on in a later process than the one that ended."""
    pid = event.facts.get("pid")
    return pid is not None and now.pid is not None and pid != now.pid


# ── work ──


def _prompted(now: SessionProjection, event: Event) -> SessionProjection:
    now, recorded_at = _repeated(now, event)
    if recorded_at is not None:
        return now
    now = replace(now, earlier=()) if now.earlier else now
    now = _end_asks(now, event, "prompted", lambda ask: not _led_to(event, ask))
    return _become(now, Activity.WORKING, event, why="prompted")


def _led_to(prompt: Event, ask: Ask) -> bool:
    """Whether a late hook reports the prompt that led to the dialog. Both name the prompt."""
    if prompt.source is not Source.HOOK:
        return False
    if ask.key:
        return ask.facts.get("prompt_id") == prompt.facts.get("prompt_id") is not None
    return ask.asked_at > prompt.at - SAME_MOMENT  # by a source that sees a dialog, but not which


def _working(now: SessionProjection, event: Event) -> SessionProjection:
    if event.facts.get("continued"):
        return replace(_become(now, Activity.WORKING, event, why="working"), continued_at=event.at)
    if event.facts.get("notice"):
        has_message = now.activity is Activity.STOPPED and now.message
        unread = ({"at": now.since, "message": now.message},) if has_message else ()
        now = replace(now, earlier=(*now.earlier, *unread)[-_EARLIER:])
        return (
            now if now.activity is Activity.WORKING else _become(now, Activity.WORKING, event, why="working")
        )
    if event.source is Source.REGISTRY:
        if now.activity is Activity.BACKGROUND:  # it does not say what is working
            return now
        now = _shut(now, event)
    return _at_work(now, event)


def _at_work(now: SessionProjection, event: Event) -> SessionProjection:
    lagging = now.activity in RESTING | {Activity.BACKGROUND} and event.at <= now.since + AFTERGLOW
    if now.activity is Activity.WORKING or lagging:
        return now
    return _become(now, Activity.WORKING, event, why="working")


def _tool_began(now: SessionProjection, event: Event) -> SessionProjection:
    tool_use_id, subagent = event.facts.get("tool_use_id"), bool(event.facts.get("subagent"))
    if isinstance(tool_use_id, str):
        given, asks = event.facts.get("input"), event.facts.get("asks")
        asks = asks if isinstance(asks, dict) else None
        call = ToolCall(_key(event), str(event.facts.get("tool", "")), event.at, given, subagent, asks)
        calls = {**now.calls, tool_use_id: call}
        now = replace(now, calls=dict(list(calls.items())[-_CALLS:]))
    return now if subagent else _at_work(now, event)


def _tool_ran(now: SessionProjection, event: Event) -> SessionProjection:
    tool_use_id = str(event.facts.get("tool_use_id") or "")
    call = now.calls.get(tool_use_id)
    keys = {_key(event), call.key if call else ""} - {""}
    now, recorded_at = _repeated(now, event)
    ok = bool(event.facts.get("ok", True))
    ran = not event.facts.get("denied", not ok)
    proof = {"ran": ran, "at": event.at, "by": event.source.label}
    if ran and not ok:
        proof["failed"] = True
    if tool_use_id:
        proof["tool_use_id"] = tool_use_id
    now = replace(now, calls={one: call for one, call in now.calls.items() if one != tool_use_id})

    def is_it(ask: Ask) -> bool:
        same = ask.tool_use_id == tool_use_id if ask.tool_use_id and tool_use_id else ask.key in keys
        known = ask.proof or {}
        return same and ask.asked_at <= event.at and "ran" not in known and known.get("end") != UNDECIDED

    if (dialog := next((ask for ask in now.asks if is_it(ask)), None)) is not None:
        ended = replace(dialog, ended_at=dialog.ended_at or event.at, proof=proof)
        now = replace(now, asks=tuple(ended if ask is dialog else ask for ask in now.asks), why="answered")
    return now if event.facts.get("subagent") or _is_past(now, recorded_at) else _at_work(now, event)


# ── rest ──


def _stopped(now: SessionProjection, event: Event) -> SessionProjection:
    return _stopped_by_hook(now, event) if event.source <= Source.HOOK else _rests(now, event)


def _stopped_by_hook(now: SessionProjection, event: Event) -> SessionProjection:
    now, recorded_at = _repeated(now, event)
    if 0 <= event.at - now.continued_at < AFTERGLOW or _is_past(now, recorded_at):
        return now
    facts = event.facts
    detail = {key: facts[key] for key in ("background", "shells") if facts.get(key)}
    state = Activity.BACKGROUND if facts.get("background") else Activity.STOPPED
    if state is Activity.STOPPED:
        now = _end_asks(now, event, "stopped")
    message = str(facts.get("message") or "")
    near = event.at - now.since <= SAME_MOMENT and (now.by > Source.HOOK or now.message == message)
    was_known = now.activity is Activity.STOPPED and (near or recorded_at is not None)
    return _become(now, state, event, since=now.since if was_known else None, message=message, detail=detail)


def _rests(now: SessionProjection, event: Event) -> SessionProjection:
    """Handle a source that sees an idle agent, but not the end of its turn."""
    message = str(event.facts.get("message") or "")
    if event.source is Source.REGISTRY:
        now = _shut(now, event)
    elif message:
        now = _end_asks(now, event, "stopped") if now.activity is not Activity.BACKGROUND else now
    elif any(ask.key for ask in now.open_asks):  # a dialog that is not drawn yet
        return now
    elif event.source is Source.SCREEN:  # the screen shows dialogs, and shows none now
        now = _end_asks(now, event, "answered", lambda ask: not ask.key)
    if now.activity is Activity.BACKGROUND:
        return replace(now, message=now.message or message)
    if now.activity in RESTING:
        missed = message and event.at - now.since > SAME_MOMENT and message != now.message
        if not missed:
            fills = now.activity is Activity.STOPPED and not now.message and not now.detail.get("interrupted")
            return replace(now, message=message) if fills else now
    elif now.activity in (Activity.SEEN, Activity.STARTED) and not message:
        return (
            now if now.activity is Activity.STARTED else _become(now, Activity.STARTED, event, why="started")
        )
    return _become(now, Activity.STOPPED, event, message=message)


def _interrupted(now: SessionProjection, event: Event) -> SessionProjection:
    return _come_to_rest(now, event, Activity.STOPPED, {"interrupted": True})


def _failed(now: SessionProjection, event: Event) -> SessionProjection:
    return _come_to_rest(now, event, Activity.FAILED, _picked(event, "error"))


def _limited(now: SessionProjection, event: Event) -> SessionProjection:
    return _come_to_rest(now, event, Activity.LIMITED, _picked(event, "error", "until"))


def _come_to_rest(
    now: SessionProjection, event: Event, state: Activity, detail: dict[str, Any]
) -> SessionProjection:
    now, recorded_at = _repeated(now, event)
    if _is_past(now, recorded_at):
        return now
    now = _end_asks(now, event, str(event.kind))
    near = now.activity in RESTING and (recorded_at is not None or event.at - now.since <= SAME_MOMENT)
    if near and now.activity is state and now.by < event.source and now.detail:
        return now
    message = str(event.facts.get("message") or "")
    return _become(now, state, event, since=now.since if near else None, message=message, detail=detail)


def _hung(now: SessionProjection, event: Event) -> SessionProjection:
    if now.activity not in (Activity.WORKING, Activity.BACKGROUND):
        return now
    return _become(now, Activity.HUNG, event, message=now.message, detail=_picked(event, "evidence", "quiet"))


# ── dialogs ──


def _asked(now: SessionProjection, event: Event) -> SessionProjection:
    key = _key(event) if event.facts.get("tool") else ""
    return _asked_of(now, event, key) if key else _asked_something(now, event)


def _asked_of(now: SessionProjection, event: Event, key: str) -> SessionProjection:
    if _is_reported(now, event, key):
        return now
    bare = [ask for ask in now.open_asks if _is_better(event, key, ask)]
    asked_at = min([event.at, *(ask.asked_at for ask in bare)])
    facts = dict(event.facts)
    if "tool_use_id" not in facts:
        taken = {ask.tool_use_id for ask in now.open_asks}
        calls = [
            tool_use_id
            for tool_use_id, call in now.calls.items()
            if call.key == key and tool_use_id not in taken
        ]
        facts |= {"tool_use_id": calls[0]} if len(calls) == 1 else {}
    ask = Ask(make_ask_id(event), key, _reason(event), asked_at, facts)
    kept = [ask for ask in now.asks if ask not in bare]
    return replace(now, asks=(*kept, ask)[-_ASKS:])


def _is_reported(now: SessionProjection, event: Event, key: str) -> bool:
    """Whether another source has reported this dialog. Two equal calls have one each."""
    tool_use_id = event.facts.get("tool_use_id")
    alike = [
        ask for ask in now.asks if ask.key == key and not ask.ended_at and not _is_better(event, key, ask)
    ]
    same = [ask for ask in alike if not tool_use_id or not ask.tool_use_id or ask.tool_use_id == tool_use_id]
    near = any(event.at - ask.asked_at <= SAME_MOMENT for ask in same)
    return near and sum(call.key == key for call in now.calls.values()) <= len(alike)


def _is_better(event: Event, key: str, ask: Ask) -> bool:
    """Whether it reports the same dialog with its contents, or is the first trusted report of it."""
    if not ask.key:
        return _may_be(ask, event)
    return ask.key == key and bool(ask.facts.get("hearsay")) and not event.facts.get("hearsay")


def _may_be(ask: Ask, event: Event) -> bool:
    return ask.reason is _reason(event) or event.at - ask.asked_at <= SAME_MOMENT


def _asked_something(now: SessionProjection, event: Event) -> SessionProjection:
    """Handle a source that sees a dialog, but not which: one that we know, or a new one."""
    if event.facts.get("reminder") and not now.open_asks and _has_just_closed(now, event):
        return now
    known = replace(now, shut_at=0.0)
    if known.open_asks:
        return _described(known, event)
    # A decision from elsewhere may be quicker than the report of the dialog.
    if any(ask.key and ask.ended_at and event.at - ask.asked_at <= SAME_MOMENT for ask in now.asks):
        return now
    facts = dict(event.facts)
    pending = [(tool_use_id, call) for tool_use_id, call in now.calls.items() if not call.subagent]
    if len(pending) == 1:
        tool_use_id, call = pending[0]
        if call.asks is not None:
            facts |= {**call.asks, "tool_use_id": tool_use_id}
        elif _reason(event) is Reason.PERMISSION and call.input is not None:
            facts |= {"tool": call.tool, "input": call.input, "tool_use_id": tool_use_id}
    ask = Ask(make_ask_id(event), "", _reason_of(facts), event.at, facts)
    return replace(known, asks=(*now.asks, ask)[-_ASKS:])


def _has_just_closed(now: SessionProjection, event: Event) -> bool:
    """Whether a dialog was open just before: the reminder of it may be sent as it is answered."""
    ends = [now.shut_at, *(ask.ended_at for ask in now.asks if ask.ended_at is not None)]
    return any(event.at - SAME_MOMENT <= end for end in ends)


def _described(now: SessionProjection, event: Event) -> SessionProjection:
    """Add the message of a report to the open dialog, if the reports before it had none."""
    message, last = event.facts.get("message"), now.open_asks[-1]
    if not message or last.key or last.facts.get("message") or last.reason is not _reason(event):
        return now
    described = replace(last, facts={**last.facts, "message": message})
    return replace(now, asks=tuple(described if ask is last else ask for ask in now.asks))


def _ask_ended(now: SessionProjection, event: Event) -> SessionProjection:
    facts = event.facts
    key = _key(event) if facts.get("tool") else ""

    def is_it(ask: Ask) -> bool:
        by_tool_use_id = facts.get("tool_use_id") is not None and ask.tool_use_id == facts["tool_use_id"]
        return ask.id == facts.get("ask") or by_tool_use_id or bool(key and ask.key == key)

    if now.hold is not None and now.hold.id == facts.get("ask"):
        proof = {"end": str(facts.get("why", "answered")), "at": event.at}
        return replace(now, hold=replace(now.hold, ended_at=event.at, proof=proof), why="answered")
    ended = _end_asks(now, event, str(facts.get("why", "answered")), is_it)
    open_before = next((ask for ask in now.asks if ask.ended_at is None and is_it(ask)), None)
    if open_before is None or facts.get("why") != UNDECIDED:
        return ended
    kept = {name: value for name, value in open_before.facts.items() if name != "keeper_ask"}
    dialog = Ask(
        make_ask_id(event), open_before.key, open_before.reason, event.at, {**kept, "at_terminal": True}
    )
    return replace(ended, asks=(*ended.asks, dialog)[-_ASKS:])


def _held(now: SessionProjection, event: Event) -> SessionProjection:
    if not event.facts.get("tool"):
        return replace(now, hold=None, why="answered")
    hold = Ask(make_ask_id(event), _key(event), Reason.BUDGET, event.at, dict(event.facts))
    return replace(now, hold=hold)


def _dismissed(now: SessionProjection, event: Event) -> SessionProjection:
    return replace(now, dismissed_at=max(now.dismissed_at, event.at), why="dismissed")


def _seen(now: SessionProjection, _event: Event) -> SessionProjection:
    return now


RULES: dict[EventKind, Reducer] = {
    EventKind.REGISTERED: _registered,
    EventKind.PROMPTED: _prompted,
    EventKind.WORKING: _working,
    EventKind.STOPPED: _stopped,
    EventKind.ASKED: _asked,
    EventKind.ASK_ENDED: _ask_ended,
    EventKind.TOOL_BEGAN: _tool_began,
    EventKind.TOOL_RAN: _tool_ran,
    EventKind.FAILED: _failed,
    EventKind.LIMITED: _limited,
    EventKind.INTERRUPTED: _interrupted,
    EventKind.HUNG: _hung,
    EventKind.ENDED: _ended,
    EventKind.GONE: _gone,
    EventKind.HELD: _held,
    EventKind.DISMISSED: _dismissed,
    EventKind.SEEN: _seen,
}
_RETURN = (EventKind.REGISTERED, EventKind.PROMPTED)
_LAST = (EventKind.ENDED, EventKind.GONE, EventKind.DISMISSED)


def step(now: SessionProjection, event: Event) -> SessionProjection:
    """Apply one event, which is not older than any before it."""
    if now.activity in OVER and event.kind not in _LAST:
        heard_again = event.kind not in (EventKind.SEEN, EventKind.HELD) and event.at > now.since + _REVIVAL
        if event.kind not in _RETURN and not heard_again:
            return now
        now = SessionProjection(
            since=event.at,
            pid=now.pid,
            scripted=now.scripted,
            dismissed_at=now.dismissed_at,
            hold=now.hold,
        )
    if event.kind not in (EventKind.GONE, EventKind.ENDED) and not event.facts.get("hearsay"):
        now = _note(now, event.facts)
    if event.source is Source.TRANSCRIPT and (words := _words(event)):
        now = replace(now, unrepeated=(*now.unrepeated, (words, event.at))[-_TOLD:])
    return RULES[event.kind](now, event)


# ── parts ──


def _become(
    now: SessionProjection,
    state: Activity,
    event: Event,
    *,
    since: float | None = None,
    message: str = "",
    detail: Mapping[str, Any] | None = None,
    why: str = "",
) -> SessionProjection:
    return replace(
        now,
        activity=state,
        since=event.at if since is None else since,
        by=event.source,
        message=message,
        detail=detail or {},
        why=why or str(state),
    )


def _note(now: SessionProjection, facts: Mapping[str, Any]) -> SessionProjection:
    pid, entrypoint = facts.get("pid"), facts.get("entrypoint")
    if isinstance(pid, int) and pid != now.pid:
        now = replace(now, pid=pid)
    scripted = facts.get("scripted") is True or (
        entrypoint.startswith("sdk") if isinstance(entrypoint, str) else now.scripted
    )
    return replace(now, scripted=scripted) if scripted != now.scripted else now


def _words(event: Event) -> str:
    words = event.facts.get(_WORDS[event.kind]) if event.kind in _WORDS else None
    return digest(event.kind, words) if words else ""


def _repeated(now: SessionProjection, event: Event) -> tuple[SessionProjection, float | None]:
    """Return when the transcript reported what this hook repeats; None if it did not.

    Each record is repeated once.
    """
    if event.source is not Source.HOOK or not now.unrepeated:
        return now, None
    words = _words(event)
    record = next((one for one in now.unrepeated if one[0] == words and event.at - one[1] <= LATE), None)
    if record is None:
        return now, None
    return replace(now, unrepeated=tuple(one for one in now.unrepeated if one is not record)), record[1]


def _is_past(now: SessionProjection, recorded_at: float | None) -> bool:
    """Whether something has happened since."""
    return recorded_at is not None and now.since > recorded_at


def _shut(now: SessionProjection, event: Event) -> SessionProjection:
    return replace(now, shut_at=event.at, why="answered") if now.open_asks else now


def _end_asks(
    now: SessionProjection, event: Event, end: str, which: Callable[[Ask], bool] | None = None
) -> SessionProjection:
    def ended(ask: Ask) -> Ask:
        over = ask.ended_at is not None or ask.asked_at > event.at or (which is not None and not which(ask))
        return ask if over else replace(ask, ended_at=event.at, proof={"end": end, "at": event.at})

    asks = tuple(ended(ask) for ask in now.asks)
    return replace(now, asks=asks, why="answered") if asks != now.asks else now


def _key(event: Event) -> str:
    key = event.facts.get("digest")
    if isinstance(key, str):
        return key
    return digest(event.facts["tool"], event.facts.get("input")) if event.facts.get("tool") else ""


def _reason(event: Event) -> Reason:
    return _reason_of(event.facts)


def _reason_of(facts: Mapping[str, Any]) -> Reason:
    reason = str(facts.get("reason", "permission"))
    return Reason(reason) if reason in ("permission", "question", "plan") else Reason.QUESTION


def make_ask_id(event: Event) -> str:
    """Return the id of the dialog that this event reports. An event that was redated has kept its id."""
    kept = event.facts.get("ask")
    return kept if isinstance(kept, str) else digest(event.session_id, [event.id, event.at])[:10]


def _picked(event: Event, *names: str) -> dict[str, Any]:
    return {name: event.facts[name] for name in names if event.facts.get(name) is not None}
