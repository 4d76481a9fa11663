"""Links that answer one request, once. The link itself is what lets one in."""

from __future__ import annotations

import html
import json

from remuda.boss.attention.model import Approval, document
from remuda.boss.ports import Boss
from remuda.errors import NotInQueue

from .ledger import BARE_ANSWER
from .route import Call, Reply, Route
from .schema import ref

_PAGE = """<!doctype html><meta charset=utf-8><meta name=viewport content="width=device-width">
<meta name=referrer content=no-referrer><title>{title}</title>
<style>body{{font:16px system-ui;margin:1em;max-width:50em}}
pre{{white-space:pre-wrap;background:#eee;padding:.5em}}
button{{font:inherit;padding:.5em 2em;margin-right:1em}}</style>
<h1>{title}</h1><pre>{what}</pre>
<p><button onclick="say('allow')">Allow</button><button onclick="say('deny')">Deny</button> <b id=told></b>
<script>async function say(behavior){{const a=await fetch(location.href,{{method:'POST',
headers:{{'Content-Type':'application/json'}},body:JSON.stringify({{behavior}})}});const d=await a.json();
document.getElementById('told').textContent=a.ok?d.answer.behavior+': done':d.error.message}}</script>
"""


def page(approval: Approval) -> str:
    what = str(approval.detail.get("diff") or json.dumps(dict(approval.input), indent=2, ensure_ascii=False))
    if approval.detail.get("diff"):
        what = f"{approval.detail.get('message', '')}\n\n{what}"
    title = f"{approval.tool} · {approval.reason} · {approval.state}"
    return _PAGE.format(title=html.escape(title), what=html.escape(what))


async def get_answer(boss: Boss, call: Call) -> Reply:
    if boss.links is None:
        raise NotInQueue("this boss makes no links")
    return Reply(text=page(boss.links.request(call.path["secret"])))


async def post_link_answer(boss: Boss, call: Call) -> Reply:
    if boss.links is None:
        raise NotInQueue("this boss makes no links")
    return Reply(document(await boss.links.answer(call.path["secret"], call.body)))


ROUTES = (
    Route(
        "GET",
        "/v1/answer/{secret}",
        get_answer,
        "A page that shows what a link is about. Looking at it uses nothing up. It needs no token.",
        media="text/html; charset=utf-8",
        errors=(404,),
        open=True,
    ),
    Route(
        "POST",
        "/v1/answer/{secret}",
        post_link_answer,
        "Answer by a link: once. It needs no token.",
        body=BARE_ANSWER,
        answer=ref("Approval"),
        errors=(400, 404, 409, 413, 415, 502, 507),
        open=True,
    ),
)
