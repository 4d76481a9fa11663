"""What a link shows to a person: the request, whole, and what can be said to it. Pure.

A page decides nothing by being looked at: programs that preview links do that. Its buttons post JSON, as any
other client does.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from typing import Any

from remuda.boss.attention.model import Approval, ApprovalState, Reason

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Of what such a page may do."""

_FRAME = """<!doctype html><html lang=en><meta charset=utf-8>
<meta name=viewport content="width=device-width,initial-scale=1"><title>{title}</title>
<style>body{{font:16px/1.4 system-ui,sans-serif;margin:1em;max-width:50em}}h1{{font-size:1.2em}}
pre{{white-space:pre-wrap;overflow-wrap:anywhere;background:#8882;padding:.5em}}
button{{font:inherit;padding:.5em 1.5em;margin:.5em .5em 0 0}}label{{display:block;margin:.3em 0}}
input:not([type=radio],[type=checkbox]){{font:inherit;width:100%;box-sizing:border-box;margin-top:.5em}}
small{{opacity:.7}}#told{{font-weight:bold}}</style>
<h1>{title}</h1>
{body}
"""
_FORM = """<div id=form>{questions}
<input id=message placeholder="{why}">
<button onclick="say('allow')">{yes}</button><button onclick="say('deny')">{no}</button></div>
<p id=told role=status></p>
<script>
async function say(behavior) {{
  const told = document.getElementById('told'), body = {{behavior}};
  const message = document.getElementById('message').value, asked = document.querySelectorAll('fieldset');
  if (behavior == 'deny' && message) body.message = message;
  if (behavior == 'allow' && asked.length) {{
    body.answers = {{}};
    asked.forEach((one, at) => {{
      const chosen = [...one.querySelectorAll(':checked')].map(box => box.value);
      const other = one.querySelector('.other').value;
      body.answers[at + 1] = other ? [...chosen, other] : chosen;
    }});
    if (Object.values(body.answers).some(one => !one.length)) {{
      told.textContent = 'Answer every question, please.';
      return;
    }}
  }}
  told.textContent = '…';
  try {{
    const answer = await fetch(location.pathname, {{method: 'POST',
      headers: {{'Content-Type': 'application/json'}}, body: JSON.stringify(body)}});
    const found = await answer.json();
    told.textContent = answer.ok ? 'Done: ' + behavior + '.' : found.error.message;
    if (answer.ok || [404, 409].includes(answer.status)) document.getElementById('form').remove();
  }} catch (error) {{ told.textContent = 'Nothing was answered: ' + error.message; }}
}}
</script>"""
_WORDS = {
    Reason.PERMISSION: ("Allow", "Deny", "Why not, or what instead (if you deny)"),
    Reason.QUESTION: ("Answer", "Do not answer", "What to tell it (if you do not answer)"),
    Reason.PLAN: ("Agree", "Send back", "What to plan anew (if you send it back)"),
}


def request_page(approval: Approval) -> str:
    title = html.escape(f"{approval.tool}: {approval.reason}")
    shown = "" if approval.reason is Reason.QUESTION else f"<pre>{html.escape(_what(approval))}</pre>"
    if approval.state is not ApprovalState.OPEN:
        return _FRAME.format(title=title, body=f"{shown}\n<p id=told>{html.escape(_over(approval))}</p>")
    yes, no, why = _WORDS.get(approval.reason, _WORDS[Reason.PERMISSION])
    form = _FORM.format(questions="".join(_questions(approval)), yes=yes, no=no, why=why)
    return _FRAME.format(title=title, body=shown + form)


def error_page(message: str, hint: str | None = None) -> str:
    more = f"<p><small>{html.escape(hint)}</small>" if hint else ""
    return _FRAME.format(title="Nothing to answer here", body=f"<p>{html.escape(message)}</p>{more}")


def _what(approval: Approval) -> str:
    """All of it: what is not shown cannot be agreed to."""
    if diff := approval.detail.get("diff"):
        return f"{approval.detail.get('message', '')}\n\n{diff}"
    if approval.reason is Reason.PLAN and isinstance(plan := approval.input.get("plan"), str):
        return plan
    return json.dumps(dict(approval.input), indent=2, ensure_ascii=False)


def _over(approval: Approval) -> str:
    if approval.answer is None:
        return "It was answered at the terminal, or its turn is over."
    said = {"allow": "allowed", "deny": "denied"}.get(str(approval.answer.get("behavior")), "answered")
    return f"It was {said} by {approval.by}."


def _questions(approval: Approval) -> Iterable[str]:
    asked = approval.input.get("questions") if approval.reason is Reason.QUESTION else None
    for number, one in enumerate(asked if isinstance(asked, list) else []):
        if isinstance(one, dict):
            yield _question(number, one)


def _question(number: int, asked: Mapping[str, Any]) -> str:
    kind = "checkbox" if asked.get("multiSelect") else "radio"
    options = asked.get("options")
    rows = [one for one in options if isinstance(one, dict)] if isinstance(options, list) else []
    boxes = "".join(
        f'<label><input type={kind} name=q{number} value="{html.escape(str(one.get("label", "")))}"> '
        f"{html.escape(str(one.get('label', '')))} "
        f"<small>{html.escape(str(one.get('description') or ''))}</small></label>"
        for one in rows
    )
    legend = html.escape(str(asked.get("question", "")))
    other = '<input class=other placeholder="Something else">'
    return f"<fieldset><legend>{legend}</legend>{boxes}{other}</fieldset>"
