"""Approvals and replies."""

from __future__ import annotations

from remuda.boss.answers.reply import MAX_WAIT
from remuda.boss.attention.model import ApprovalState, document
from remuda.boss.ports import Boss
from remuda.errors import NotSafe

from .route import Call, Reply, Route
from .schema import ANYTHING, BOOLEAN, LIMIT, TEXT, TIME, Schema, one_of, record, ref, several

_APPROVAL = ref("Approval")
_BY = {"by": {"type": "string", "minLength": 1, "maxLength": 100}}
_ANSWERS = {
    "type": "object",
    "additionalProperties": {"anyOf": [TEXT, several(TEXT)]},
    "description": "to questions, by their text, header or number",
}
_ALWAYS = {"type": "boolean", "description": "and do not ask again in this conversation"}


def _answer(more: Schema) -> Schema:
    allow = {"updated_input": ANYTHING, "answers": _ANSWERS, "always": _ALWAYS, **more}
    deny = {"message": {"type": "string", "maxLength": 1 << 18}, "interrupt": BOOLEAN, **more}
    return {
        "anyOf": [
            record({"behavior": {"type": "string", "enum": [behavior]}}, fields)
            for behavior, fields in (("allow", allow), ("deny", deny))
        ]
    }


_ANSWER = _answer(_BY)
BARE_ANSWER = _answer({})


async def get_approvals(boss: Boss, call: Call) -> Reply:
    found = boss.desk.store.approvals(
        int(call.query.get("limit", 100)), state=call.query.get("state"), before=call.query.get("before")
    )
    return Reply({"approvals": document(found)})


async def get_approval(boss: Boss, call: Call) -> Reply:
    await boss.desk.settled()
    return Reply(document(boss.desk.approval(call.path["approval"])))


async def post_answer(boss: Boss, call: Call) -> Reply:
    answer = {name: value for name, value in call.body.items() if name != "by"}
    carrier = boss.answers or boss.desk
    return Reply(document(await carrier.answer(call.path["approval"], answer, call.body.get("by", "http"))))


async def post_reply(boss: Boss, call: Call) -> Reply:
    session = boss.desk.session(call.path["session"])
    if boss.replies is None:
        raise NotSafe("this boss carries no replies")
    options = {name: value for name, value in call.body.items() if name != "text"}
    return Reply(await boss.replies.reply(session, call.body["text"], options))


ROUTES = (
    Route(
        "GET",
        "/v1/approvals",
        get_approvals,
        "The ledger of requests for leave, the newest first.",
        query={"state": one_of(ApprovalState), "limit": LIMIT, "before": TIME},
        answer=record({"approvals": several(_APPROVAL)}),
        errors=(400,),
    ),
    Route(
        "GET",
        "/v1/approvals/{approval}",
        get_approval,
        "One request: what exactly is asked, who answered, what happened then.",
        answer=_APPROVAL,
        errors=(404,),
    ),
    Route(
        "POST",
        "/v1/approvals/{approval}/answer",
        post_answer,
        "Allow or deny. The first answer counts; every other is told so with 409.",
        body=_ANSWER,
        answer=_APPROVAL,
        errors=(400, 404, 409, 413, 415, 502, 507),
    ),
    Route(
        "POST",
        "/v1/sessions/{session}/reply",
        post_reply,
        "Hand a prompt to a session, if it is safe; 409 says why nothing was typed.",
        body=record(
            {"text": {"type": "string"}},
            {
                "dedup": {"type": "string", "minLength": 1, "maxLength": 200},
                "command": BOOLEAN,
                "literal": BOOLEAN,
                "wait": {"type": "number", "minimum": 0, "maximum": MAX_WAIT},
            },
        ),
        answer=ANYTHING,
        errors=(400, 404, 409, 413, 415, 502, 504, 507),
    ),
)
