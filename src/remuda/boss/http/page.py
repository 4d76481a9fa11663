"""The page of a link: who asks, the complete request, and how to decide. Pure.

Opening a page decides nothing: programs that preview links open it. Its buttons post JSON, like any other
client. Nothing of a request can hide in it: an invisible character is shown by its number.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from typing import Any

from remuda.boss.attention.display import why_hidden
from remuda.boss.attention.model import Approval, ApprovalState, Reason
from remuda.untrusted import dump_json, is_seen

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What such a page may do."""

_FRAME = """<!doctype html><html lang=en><meta charset=utf-8>
<meta name=viewport content="width=device-width,initial-scale=1"><title>{title}</title>
<style>:root{{color-scheme:light dark}}
body{{font:16px/1.4 system-ui,sans-serif;margin:1em auto;padding:0 1em;max-width:50em}}
h1{{font-size:1.3em;margin:0;overflow-wrap:anywhere}}h2{{font:inherit;margin:1em 0 .2em;opacity:.7}}
pre{{white-space:pre-wrap;overflow-wrap:anywhere;background:#8882;padding:.6em;margin:0;border-radius:.4em}}
ins,del{{display:block;text-decoration:none}}ins{{background:#2a42}}del{{background:#d332}}
.where{{margin:.2em 0 1em;overflow-wrap:anywhere}}.where,small{{opacity:.7}}details{{margin-top:1em}}
button{{font:inherit;font-weight:bold;padding:.7em 1.5em;margin:.7em .7em 0 0;min-width:8em;color:#fff;
background:#1a7f37;border:0;border-radius:.4em}}.no{{background:#b62324}}button:disabled{{opacity:.5}}
fieldset{{border:1px solid #8886;border-radius:.4em;margin:0 0 1em;padding:.6em}}
legend{{font-weight:bold;float:left;width:100%;padding:0}}legend+*{{clear:both}}
label{{display:flex;gap:.6em;padding:.4em 0;align-items:baseline}}small{{display:block}}
input:not([type=radio],[type=checkbox]),textarea{{font:inherit;width:100%;box-sizing:border-box;padding:.5em;
margin-top:.5em}}#message{{margin-top:1em}}::placeholder{{color:inherit;opacity:.65}}#result{{font-weight:bold}}</style>
<h1>{title}</h1>
{body}
"""
_FORM = """<div id=form>{questions}
<textarea id=message {hidden}rows=2 maxlength=10000 aria-label="{why}" placeholder="{why}"></textarea>
{allow}<button class=no onclick="say('deny')">{no}</button></div>
<p id=result role=status></p>
<script>
const result = document.getElementById('result'), asked = document.querySelectorAll('fieldset');
asked.forEach(one => one.addEventListener('input', event => {{
  // Of several answers to a question that has one, the last counts.
  const other = one.querySelector('.other');
  result.textContent = '';
  if (event.target == other) one.querySelectorAll('[type=radio]').forEach(box => box.checked = false);
  else if (event.target.type == 'radio') other.value = '';
}}));
function answers() {{
  const found = {{}};
  asked.forEach((one, at) => {{
    const chosen = [...one.querySelectorAll(':checked')].map(box => box.value);
    const other = one.querySelector('.other').value.trim();
    found[at + 1] = other ? [...chosen, other] : chosen;
  }});
  return found;
}}
async function say(behavior) {{
  const body = {{behavior}}, message = document.getElementById('message').value.trim();
  if (behavior == 'deny' && message) body.message = message;
  if (behavior == 'allow' && asked.length) body.answers = answers();
  if (Object.values(body.answers || {{}}).some(one => !one.length)) {{
    result.textContent = 'Please answer every question.';
    return;
  }}
  const buttons = document.querySelectorAll('button');
  buttons.forEach(one => one.disabled = true);
  result.textContent = '…';
  try {{
    const answer = await fetch(location.pathname, {{method: 'POST',
      headers: {{'Content-Type': 'application/json'}}, body: JSON.stringify(body)}});
    const found = await answer.json();
    result.textContent = answer.ok ? {{allow: '{done}', deny: '{undone}'}}[behavior] : found.error.message;
    if (answer.ok || [404, 409].includes(answer.status)) document.getElementById('form').remove();
  }} catch (error) {{ result.textContent = 'Sending failed; it may have arrived: ' + error.message; }}
  buttons.forEach(one => one.disabled = false);
}}
</script>"""
_ALLOW = """<button onclick="say('allow')">{yes}</button>"""
_WORDS = {
    Reason.PERMISSION: (
        "Allow",
        "Deny",
        "Reason, or what to do instead (if you deny)",
        "Allowed.",
        "Denied.",
    ),
    Reason.QUESTION: (
        "Answer",
        "Do not answer",
        "Message to the agent (if you do not answer)",
        "Answered.",
        "Not answered. The agent was notified.",
    ),
    Reason.PLAN: ("Approve", "Send back", "What to change (if you send it back)", "Approved.", "Sent back."),
}
_TITLES = {Reason.QUESTION: "{who} has a question", Reason.PLAN: "{who} wants its plan approved"}
_IN_DIFF = frozenset({"old_string", "new_string", "edits", "new_source", "content"})


_BUTTON = "<p>This link belongs to a button of a notice. Opening it decides nothing.</p>"


def request_page(approval: Approval, who: str, where: str | None = None, *, is_button: bool = False) -> str:
    """`who` asks, and the folder that it works in. The page of a button's link has no form."""
    title = _TITLES.get(approval.reason, "{who} requests permission: {tool}").format(
        who=who, tool=approval.tool
    )
    head = f"<p class=where>{_text(where)}</p>\n" if where else ""
    if over := approval.detail.get("over_budget"):
        head += f"<p>Over budget: {_text(str(over))}</p>\n"
    questions = "" if approval.refuses.get("allow") else "".join(_questions(approval))
    offered = bool(questions) and approval.state is ApprovalState.OPEN and not is_button
    shown = head + ("" if offered else "".join(_asked(approval)))
    if approval.state is not ApprovalState.OPEN:
        return _FRAME.format(title=_text(title), body=f"{shown}\n<p id=result>{_text(_over(approval))}</p>")
    if is_button:
        return _FRAME.format(title=_text(title), body=f"{shown}\n{_BUTTON}")
    yes, no, why, done, undone = _WORDS.get(approval.reason, _WORDS[Reason.PERMISSION])
    unseen = why_hidden(approval.reason, approval.tool, approval.input) or approval.refuses.get("allow", "")
    shown += f"<p>{_text(unseen[0].upper() + unseen[1:])}. Decide there.</p>\n" if unseen else ""
    allow = "" if unseen else _ALLOW.format(yes=yes)
    hidden = "hidden " if approval.refuses.get("message") else ""
    form = _FORM.format(
        questions=questions, hidden=hidden, allow=allow, no=no, why=why, done=done, undone=undone
    )
    return _FRAME.format(title=_text(title), body=shown + form)


def error_page(message: str, hint: str | None = None) -> str:
    more = f"<p><small>{_text(hint)}</small>" if hint else ""
    return _FRAME.format(title="This did not work", body=f"<p>{_text(message)}</p>{more}")


def _text(text: str) -> str:
    """Text from outside: without HTML, invisible characters, or marks that reverse the text next to it."""
    kept = (one if is_seen(one) or one in "\n\t" else f"\\u{ord(one):04x}" for one in text)
    return html.escape("".join(kept))


def _asked(approval: Approval) -> Iterable[str]:
    """Shows everything: what is not shown cannot be allowed."""
    diff, tool_input = approval.detail.get("diff"), approval.input
    for name, value in tool_input.items():
        if not diff or name not in _IN_DIFF:
            alone = len(tool_input) == 1 or name in ("command", "plan")
            yield _field("" if alone else name, value)
    if isinstance(diff, str):
        yield f"<h2>changes</h2><pre>{''.join(_coloured(line) for line in diff.splitlines())}</pre>"
        whole = dump_json(dict(tool_input), indent=2, ascii_only=False)
        yield f"<details><summary>complete input</summary><pre>{_text(whole)}</pre></details>"


def _field(name: str, value: object) -> str:
    text = value if isinstance(value, str) else dump_json(value, indent=2, ascii_only=False)
    head = f"<h2>{_text(name)}</h2>" if name else ""
    return f"{head}<pre>{_text(text)}</pre>"


def _coloured(line: str) -> str:
    tag = {"+": "ins", "-": "del"}.get(line[:1]) if line[:5] not in ("--- a", "+++ b") else None
    return f"<{tag}>{_text(line)}</{tag}>" if tag else f"{_text(line)}\n"


def _over(approval: Approval) -> str:
    if approval.answer is None:
        return "It was decided in the terminal, or its turn has ended."
    outcome = {"allow": "allowed", "deny": "denied"}.get(str(approval.answer.get("behavior")), "answered")
    return f"It was {outcome} by {approval.by}."


def _questions(approval: Approval) -> Iterable[str]:
    asked = approval.input.get("questions") if approval.reason is Reason.QUESTION else None
    for number, one in enumerate(asked if isinstance(asked, list) else []):
        if isinstance(one, dict):
            yield _question(number, one)


def _question(number: int, asked: Mapping[str, Any]) -> str:
    kind = "checkbox" if asked.get("multiSelect") else "radio"
    options = asked.get("options")
    rows = [one for one in options if isinstance(one, dict)] if isinstance(options, list) else []
    boxes = "".join(_option(f"<input type={kind} name=q{number}", one) for one in rows)
    other = '<input class=other maxlength=10000 aria-label="Your own answer" placeholder="Your own answer">'
    return f"<fieldset><legend>{_text(str(asked.get('question', '')))}</legend>{boxes}{other}</fieldset>"


def _option(box: str, option: Mapping[str, Any]) -> str:
    label, more = str(option.get("label", "")), str(option.get("description") or "")
    # The value is sent as the answer, so it stays as it was; only the label is made visible.
    value = html.escape(label.encode("utf-8", "replace").decode())
    return f'<label>{box} value="{value}"><span>{_text(label)} <small>{_text(more)}</small></span></label>'
