"""What a notice says of a request, and what it can decide. Pure.

A notice is small and is read in passing, so it offers to allow only what it shows completely: a request that
is longer, or has a character that is not seen, can be denied there, or opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.untrusted import dump_json, is_seen, one_line, printable

from ..attention.display import why_hidden
from ..attention.model import Approval, Reason

MOST = 3
"""ntfy 2 shows this many buttons."""
LABEL = 40
_TEXT = 300
_QUESTION_TEXT = 600
_LINES = 8
_OPTION = 60
_BLANK = re.compile(r"[ \t]{9}|\n\s*\n\s*\n")
"""A gap that could move the rest of a text off the screen."""
_CUT = "\n(Cut. Open it to read the rest and to allow it.)"


@dataclass(frozen=True, slots=True)
class Button:
    label: str
    answer: Mapping[str, Any]
    """As `answers.decision` reads it."""


_ALLOW, _DENY = {"behavior": "allow"}, {"behavior": "deny"}
_WORDS = {Reason.PLAN: ("Approve", "Send back"), Reason.PERMISSION: ("Allow", "Deny")}


def offer(approval: Approval) -> tuple[str, tuple[Button, ...]]:
    """Return what a notice says of a request, and the decisions that it offers; without any, it is opened."""
    if approval.reason is Reason.QUESTION:
        asked = approval.input.get("questions")
        asked = asked if isinstance(asked, list) else []
        buttons = () if approval.refuses.get("allow") else tuple(_options(asked))
        return question_text(asked) or one_line(approval.tool), buttons
    whole = "\n".join(_lines(approval))
    yes, no = _WORDS.get(approval.reason, _WORDS[Reason.PERMISSION])
    hidden = why_hidden(approval.reason, approval.tool, approval.input)
    if hidden := hidden or approval.refuses.get("allow", ""):
        return f"{hidden[0].upper()}{hidden[1:]}.", (Button(no, _DENY),)
    if not _is_shown(whole):
        return short(printable(whole), _TEXT) + _CUT, (Button(no, _DENY),)
    return whole, (Button(yes, _ALLOW), Button(no, _DENY))


def _lines(approval: Approval) -> Iterator[str]:
    """Yield all of the input: what is not shown is not allowed."""
    fields = [(name, one if isinstance(one, str) else dump_json(one)) for name, one in approval.input.items()]
    if len(fields) == 1 and fields[0][0] in ("command", "plan"):
        yield f"{approval.tool}: {fields[0][1]}"
        return
    yield approval.tool
    for name, value in fields:
        yield f"{name}: {value}"


def _is_shown(text: str) -> bool:
    """Whether a person sees all of this text in a notice."""
    return (
        len(text) <= _TEXT
        and text.count("\n") < _LINES
        and _BLANK.search(text) is None
        and all(is_seen(one) or one in "\n\t" for one in text)
    )


# ── questions ──


def question_text(questions: Sequence[object]) -> str:
    """Return questions with their options, bounded and printable."""
    lines = []
    for one in questions:
        if isinstance(one, Mapping):
            lines.append(short(printable(str(one.get("question", ""))), _TEXT))
            for number, option in enumerate(_listed(one), 1):
                more = short(one_line(str(option.get("description") or "")), _OPTION)
                text = short(one_line(str(option.get("label", ""))), _OPTION)
                lines.append(f"{number}. {text}" + (f": {more}" if more else ""))
    return short("\n".join(lines), _QUESTION_TEXT)


def _options(questions: Sequence[object]) -> Iterator[Button]:
    """Yield a button for each option of a single question that is shown completely, with all its options."""
    one = questions[0] if len(questions) == 1 else None
    if not isinstance(one, Mapping) or one.get("multiSelect") or not _is_shown(str(one.get("question", ""))):
        return
    labels = [str(option.get("label", "")) for option in _listed(one)]
    if len(question_text(questions)) >= _QUESTION_TEXT or len({*labels}) < len(labels):
        return
    if not all(
        text and text == one_line(text) and len(text) <= _OPTION and _is_shown(text) for text in labels
    ):
        return
    for number, text in enumerate(labels[:MOST], 1):
        shown = text if len(text) <= LABEL else short(f"{number}. {text}", LABEL)
        yield Button(shown, {"behavior": "allow", "answers": {"1": text}})


def _listed(question: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    options = question.get("options")
    return [one for one in options if isinstance(one, Mapping)] if isinstance(options, list) else []


def short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
