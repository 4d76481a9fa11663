"""Histories of sessions, as hypothesis makes them up, and what they come to."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from remuda.agents.state import Source
from remuda.boss.attention.model import ApprovalState, Event, EventKind
from remuda.boss.attention.session_index import SessionIndex

_CALLS = [{"tool": "Bash", "input": {"command": name}} for name in "ab"]
_FACTS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "prompted": st.sampled_from([{"prompt": "p"}, {}]),
    "registered": st.sampled_from([{"how": "startup"}, {"how": "clear"}, {}]),
    "working": st.sampled_from([{}, {"notice": True}, {"continued": True}]),
    "stopped": st.sampled_from([{"message": "a"}, {"message": "b", "background": [{"id": "x"}]}, {}]),
    "asked": st.sampled_from([*_CALLS, {"reason": "question"}, {**_CALLS[0], "tool_use_id": "t0"}]),
    "tool_began": st.sampled_from([{**call, "tool_use_id": f"t{n}"} for n, call in enumerate(_CALLS)]),
    "tool_ran": st.sampled_from([{**_CALLS[1], "tool_use_id": "t0"}, {"tool_use_id": "t1"}, _CALLS[0]]),
    "limited": st.just({"until": 5.0, "message": "l"}),
    "failed": st.just({"error": "e", "message": "f"}),
}
_PLACES = st.fixed_dictionaries(
    {}, optional={"pane": st.sampled_from(["%1", "%2"]), "pid": st.integers(1, 3)}
)


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    found = []
    for number in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from([kind.value for kind in EventKind]))
        at = 10 + number * draw(st.sampled_from([0.1, 1.0, 7.0])) + number / 1024  # all of them differ
        source = draw(st.sampled_from([Source.HOOK, Source.REGISTRY, Source.TRANSCRIPT, Source.PROCESS]))
        facts = {**draw(_FACTS.get(kind, st.just({}))), **draw(_PLACES)}
        session = draw(st.sampled_from(["s", "s", "other", "%1"]))
        found.append(Event(EventKind(kind), session, at, source, f"e{number}", facts))
    return found


def outcome(index: SessionIndex) -> Any:
    items = [(one.session_id, one.reason, one.since, one.message, one.detail) for one in index.queue()]
    approvals = {
        (approval.id, approval.state, str(approval.proof))
        for known in index.entries.values()
        for approval in known.approvals.values()
        if approval.state is ApprovalState.OPEN or approval.proof
    }
    places = {one.session.id: (one.session.pane, one.session.replaced_by) for one in index.entries.values()}
    return items, {one for one in approvals if one[1] is ApprovalState.OPEN}, places
