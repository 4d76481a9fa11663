"""A hook that asks leave, and waits here for the answer."""

from __future__ import annotations

from remuda.boss.answers.approvals import MAX_HOLD, Approvals
from remuda.boss.ports import Boss

from .events import HOOK_FIELDS, asked_of, take_hook
from .route import EVENT_BYTES, Call, Reply, Route
from .schema import ANYTHING, PAYLOAD, TEXT, nullable, record

DEFAULT_WAIT = 3600.0

_STATES = ["answered", "ended", "open", "closing"]


async def post_permission(boss: Boss, call: Call) -> Reply:
    """Held until it is answered. A hook that asks again with the same id finds its request again."""
    events, _ = await take_hook(boss, call.body)
    approval = asked_of(boss, events)
    if approval is None or not isinstance(boss.answers, Approvals):
        return Reply({"approval": approval.id if approval else None, "state": "ended", "output": None})
    wait = float(call.body.get("wait", DEFAULT_WAIT))
    state, output = await boss.answers.hold(approval.id, wait, call.gone)
    return Reply({"approval": approval.id, "state": state, "output": output})


ROUTES = (
    Route(
        "POST",
        "/v1/hooks/permission",
        post_permission,
        "Report a permission request and wait for the decision. 'output' is what the hook must print. It"
        " is null if the dialog is closed (ended), no one decided in time (open), or the boss"
        " is shutting down (closing).",
        body=record(
            {"payload": PAYLOAD},
            {**HOOK_FIELDS, "wait": {"type": "number", "minimum": 0, "maximum": MAX_HOLD}},
        ),
        answer=record(
            {
                "approval": nullable(TEXT),
                "state": {"type": "string", "enum": _STATES},
                "output": nullable(ANYTHING),
            }
        ),
        errors=(400, 413, 415, 507),
        limit=EVENT_BYTES,
        token_in_path=True,
    ),
)
