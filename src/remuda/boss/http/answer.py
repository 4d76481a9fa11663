"""Links that answer one request, once. The link itself is what lets one in."""

from __future__ import annotations

from remuda.boss.attention.model import document
from remuda.boss.attention.naming import label
from remuda.boss.ports import Boss
from remuda.errors import NotInQueue

from .ledger import LINK_ANSWER
from .page import request_page
from .route import Call, Reply, Route
from .schema import ref


async def get_answer(boss: Boss, call: Call) -> Reply:
    if boss.links is None:
        raise NotInQueue("this boss does not make links")
    approval = boss.links.request(call.path["secret"])
    try:
        session = boss.desk.session(approval.session_id)
    except NotInQueue:  # forgotten, its ledger is not
        return Reply(text=request_page(approval, approval.session_id))
    who = label(session.name, session.repo or session.cwd, session.id)
    return Reply(text=request_page(approval, who, session.cwd))


async def post_link_answer(boss: Boss, call: Call) -> Reply:
    if boss.links is None:
        raise NotInQueue("this boss does not make links")
    return Reply(document(await boss.links.answer(call.path["secret"], call.body)))


ROUTES = (
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
