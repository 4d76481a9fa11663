"""Permission requests: list them, decide, wait for a decision, and decide by a link. Also replies."""

from __future__ import annotations

from remuda.boss.answers.approvals import MAX_HOLD, Approvals
from remuda.boss.answers.reply_delivery import MAX_WAIT
from remuda.boss.attention.display import label
from remuda.boss.attention.model import ApprovalState
from remuda.boss.ports import BossParts
from remuda.duration import LONGEST
from remuda.errors import NotInQueue, NotSafe
from remuda.inbox.stop_hook import MOST_ATTEMPTS, MOST_URGENT
from remuda.untrusted import one_line

from . import elsewhere
from .brief import MOST
from .event_routes import HOOK_FIELDS, asked_of, take_hook
from .page import request_page
from .queue_routes import approval_document
from .route import EVENT_BYTES, ApiRequest, ApiResponse, Route
from .schema import (
    ANYTHING,
    BOOLEAN,
    LIMIT,
    PAYLOAD,
    TEXT,
    TIME,
    Schema,
    nullable,
    one_of,
    record,
    ref,
    several,
)

_APPROVAL = ref("Approval")
_BY: Schema = {
    "by": {
        "type": "string",
        "minLength": 1,
        "maxLength": 100,
        "description": "name of the caller; the ledger has 'api: NAME', or 'page: NAME' from a browser",
    }
}
DEFAULT_WAIT = 3600.0
_SECONDS: Schema = {"type": "number", "minimum": 0, "maximum": LONGEST}
_FAILED: Schema = {
    "type": "object",
    "additionalProperties": TEXT,
    "description": "with hosts=true: the hosts that did not answer, and why",
}
_STATES = ["answered", "ended", "open", "closing"]
_MESSAGE_LENGTH = 1 << 18
_LINK_LENGTH = 10_000


def _answers(text: Schema) -> Schema:
    return {
        "type": "object",
        "additionalProperties": {"anyOf": [text, several(text)]},
        "description": "answers to questions, by text, header or number",
    }


_ALWAYS = {"type": "boolean", "description": "also allow the same in this conversation from now on"}


def _text(most: int) -> Schema:
    return {"type": "string", "maxLength": most}


def _answer(allow: Schema, deny: Schema) -> Schema:
    return {
        "anyOf": [
            record({"behavior": {"type": "string", "enum": [behavior]}}, fields)
            for behavior, fields in (("allow", allow), ("deny", deny))
        ]
    }


_ANSWER = _answer(
    {"updated_input": ANYTHING, "answers": _answers(TEXT), "always": _ALWAYS, **_BY},
    {"message": _text(_MESSAGE_LENGTH), "interrupt": BOOLEAN, **_BY},
)
LINK_ANSWER = _answer({"answers": _answers(_text(_LINK_LENGTH))}, {"message": _text(_LINK_LENGTH)})
"""What a link takes (`answers.decision.LINK_FIELDS`): no other input, no rule for later."""


async def get_approvals(boss: BossParts, request: ApiRequest) -> ApiResponse:
    approvals = boss.service.store.approvals(
        int(request.query.get("limit", 100)),
        state=request.query.get("state"),
        before=request.query.get("before"),
    )
    query = request.query
    documents = [approval_document(one, query.get("cut")) for one in approvals]
    if not query.get("hosts"):
        return ApiResponse({"approvals": documents})
    given = {name: value for name, value in query.items() if name != "hosts"}
    there, failed = await elsewhere.approvals(boss, given, only_open=query.get("state") == ApprovalState.OPEN)
    documents = sorted([*documents, *there], key=lambda one: float(one["asked_at"]), reverse=True)
    return ApiResponse({"approvals": documents[: int(query.get("limit", 100))], "failed": failed})


async def get_approval(boss: BossParts, request: ApiRequest) -> ApiResponse:
    await boss.service.settled()
    return ApiResponse(approval_document(boss.service.approval(request.path["approval"])))


async def post_answer(boss: BossParts, request: ApiRequest) -> ApiResponse:
    answer = {name: value for name, value in request.body.items() if name != "by"}
    carrier = boss.answers or boss.service
    by = _signature("api" if request.login is None else "page", request.body.get("by", ""))
    return ApiResponse(approval_document(await carrier.answer(request.path["approval"], answer, by)))


def _signature(channel: str, name: str) -> str:
    """Return the channel, which the boss knows, and the name that the client gives itself."""
    name = one_line(name)
    return f"{channel}: {name}" if name else channel


async def post_reply(boss: BossParts, request: ApiRequest) -> ApiResponse:
    session = boss.service.session(request.path["session"])
    if boss.replies is None:
        raise NotSafe("this boss cannot send replies")
    options = {name: value for name, value in request.body.items() if name != "text"}
    receipt = await boss.replies.reply(session, request.body["text"], options)
    if receipt.get("stage") == "accepted" and not receipt.get("duplicate"):
        step = {"stage": "accepted", "at": boss.service.clock()}
        document = {"session_id": session.id, "name": session.name, "id": receipt["id"], "step": step}
        boss.service.feed.publish(
            "message", {**document, "waiting": boss.service.details(session.id).waiting}
        )
    return ApiResponse(receipt)


# ── hooks that wait for a decision ──


async def post_permission(boss: BossParts, request: ApiRequest) -> ApiResponse:
    """Wait for the decision. A hook that asks again with the same id finds its request again."""
    events, _ = await take_hook(boss, request.body)
    approval = asked_of(boss, events)
    if approval is None or not isinstance(boss.answers, Approvals):
        return ApiResponse({"approval": approval.id if approval else None, "state": "ended", "output": None})
    wait = float(request.body.get("wait", DEFAULT_WAIT))
    state, output = await boss.answers.hold(approval.id, wait, request.gone)
    return ApiResponse({"approval": approval.id, "state": state, "output": output})


# ── links that decide one request ──


async def get_answer(boss: BossParts, request: ApiRequest) -> ApiResponse:
    if boss.links is None:
        raise NotInQueue("this boss does not make links")
    secret = request.path["secret"]
    approval, is_button = boss.links.request(secret), boss.links.is_button(secret)
    try:
        session = boss.service.session(approval.session_id)
    except NotInQueue:  # the session was removed, its request was not
        return ApiResponse(text=request_page(approval, approval.session_id, is_button=is_button))
    who = label(session.name, session.repo or session.cwd, session.id)
    return ApiResponse(text=request_page(approval, who, session.cwd, is_button=is_button))


async def post_link_answer(boss: BossParts, request: ApiRequest) -> ApiResponse:
    if boss.links is None:
        raise NotInQueue("this boss does not make links")
    return ApiResponse(approval_document(await boss.links.answer(request.path["secret"], request.body)))


WAIT_ROUTES = (
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

ROUTES = (
    Route(
        "GET",
        "/v1/approvals",
        get_approvals,
        "All permission requests, newest first.",
        query={
            "state": one_of(ApprovalState),
            "limit": LIMIT,
            "before": TIME,
            "hosts": BOOLEAN,
            "cut": MOST,
        },
        answer=record({"approvals": several(_APPROVAL)}, {"failed": _FAILED}),
        errors=(400,),
    ),
    Route(
        "GET",
        "/v1/approvals/{approval}",
        get_approval,
        "One permission request: its input, who decided, and what happened then.",
        answer=_APPROVAL,
        errors=(404, 409),
    ),
    Route(
        "POST",
        "/v1/approvals/{approval}/answer",
        post_answer,
        "Allow or deny. The first decision counts; later ones get 409.",
        body=_ANSWER,
        answer=_APPROVAL,
        errors=(400, 404, 409, 413, 415, 502, 507),
    ),
    Route(
        "POST",
        "/v1/sessions/{session}/reply",
        post_reply,
        "Send a prompt to a session, if that is safe. 409 says why nothing was typed.",
        body=record(
            {"text": {"type": "string"}},
            {
                "dedup": {"type": "string", "minLength": 1, "maxLength": 200},
                "command": BOOLEAN,
                "literal": BOOLEAN,
                "wait": {"type": "number", "minimum": 0, "maximum": MAX_WAIT},
                "delay": _SECONDS,
                "ttl": _SECONDS,
                "max_attempts": {"type": "integer", "minimum": 1, "maximum": MOST_ATTEMPTS},
                "priority": {"type": "integer", "minimum": -MOST_URGENT, "maximum": MOST_URGENT},
            },
        ),
        answer=ANYTHING,
        errors=(400, 404, 409, 413, 415, 502, 504, 507),
    ),
    Route(
        "GET",
        "/v1/answer/{secret}",
        get_answer,
        "The page of an answer link. Opening it decides nothing. Needs no token.",
        media="text/html; charset=utf-8",
        errors=(404, 409),
        open=True,
    ),
    Route(
        "POST",
        "/v1/answer/{secret}",
        post_link_answer,
        "Decide the request of a link. Works once. Needs no token.",
        body=LINK_ANSWER,
        answer=ref("Approval"),
        errors=(400, 404, 409, 413, 415, 502, 507),
        open=True,
    ),
)
