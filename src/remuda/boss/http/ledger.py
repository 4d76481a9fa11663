"""Approvals and replies."""

from __future__ import annotations

from remuda.boss.answers.reply import MAX_WAIT
from remuda.boss.attention.model import ApprovalState, document
from remuda.boss.ports import Boss
from remuda.errors import NotSafe
from remuda.untrusted import one_line

from .route import Call, Reply, Route
from .schema import ANYTHING, BOOLEAN, LIMIT, TEXT, TIME, Schema, one_of, record, ref, several

_APPROVAL = ref("Approval")
_BY: Schema = {
    "by": {
        "type": "string",
        "minLength": 1,
        "maxLength": 100,
        "description": "name of the caller; the ledger shows it as 'api: NAME'",
    }
}
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
"""What a link takes (`answers.ruling.LINK_FIELDS`): no other input, no rule for later."""


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
    by = _signature(call.body.get("by", ""))
    return Reply(document(await carrier.answer(call.path["approval"], answer, by)))


def _signature(name: str) -> str:
    """The channel, which the boss knows, and then the name that the client gives itself."""
    name = one_line(name)
    return f"api: {name}" if name else "api"


async def post_reply(boss: Boss, call: Call) -> Reply:
    session = boss.desk.session(call.path["session"])
    if boss.replies is None:
        raise NotSafe("this boss cannot send replies")
    options = {name: value for name, value in call.body.items() if name != "text"}
    return Reply(await boss.replies.reply(session, call.body["text"], options))


ROUTES = (
    Route(
        "GET",
        "/v1/approvals",
        get_approvals,
        "All permission requests, newest first.",
        query={"state": one_of(ApprovalState), "limit": LIMIT, "before": TIME},
        answer=record({"approvals": several(_APPROVAL)}),
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
            },
        ),
        answer=ANYTHING,
        errors=(400, 404, 409, 413, 415, 502, 504, 507),
    ),
)
