"""What the dashboard shows of one agent, as text with colours. Pure."""

from __future__ import annotations

import textwrap
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from remuda.boss.navigator import reason
from remuda.cli.output import unstyled
from remuda.cli.permission_request import hidden_reason, request_lines
from remuda.cli.queue import what
from remuda.duration import show_duration
from remuda.untrusted import one_line, printable, show_json

from .model import Document, Row

COLOURS = {
    "idle": "green",
    "interrupted": "green",
    "thinking": "cyan",
    "streaming": "cyan",
    "tool_use": "cyan",
    "active": "cyan",
    "starting": "blue",
    "asleep": "blue",
    "waiting_permission": "yellow",
    "waiting_answer": "yellow",
    "limited": "red",
    "error": "red",
    "dead": "red",
}
_ENTRY_COLOURS = {"error": "red", "thinking": "dim italic", "notice": "dim"}
_DIFF = {"+": "green", "-": "red", "@": "cyan"}
_STEPS = ("accepted", "written", "submitted", "recorded", "ended")
_BEFORE_STEP = {"accepted": "  ", "ended": "\n  → "}
"""The chain has two lines: it is read in half of 80 columns."""
_AGE_COLUMNS = 6
_NUMBER_COLUMNS = 2
_NAME_END = 5
_NOTE_COLUMNS = 44
_LONG = 20_000
"""Characters of one text that are shown; agents print megabytes."""
_MOST, _MOST_LINES = 200_000, 5_000
"""The same for what a user decides on or is asked. Drawing this much takes a tenth of a second."""
_TOO_LONG = "this request is too long to be shown here"
_NOT_READ = "the rest of this request is being read"


def ago(moment: object) -> str:
    return _age(time.time() - moment) if isinstance(moment, int | float) and moment else "-"


def _age(seconds: float) -> str:
    return show_duration(seconds)


# ── the list ──


def row_texts(rows: Sequence[Row], width: int) -> Iterator[Text]:
    """Yield the lines of the list: number, name, reason or state, and for how long."""
    room = max(10, width - _NUMBER_COLUMNS - _AGE_COLUMNS)
    name_room = min(max((cell_len(_joined(row.label)) for row in rows), default=0), room // 2)
    for number, row in enumerate(rows, 1):
        if row.item is not None:
            words, since, colour = reason(row.item), row.item["since"], "yellow"
        else:
            words = one_line(str(row.session.get("agent_state") or "unknown"))
            since, colour = row.session.get("since"), COLOURS.get(words, "")
        text = Text()
        text.append(f"{number} " if number < 10 else "  ", "dim")
        text.append_text(_fit(_short_name(row.label, name_room), name_room, "bold" if row.item else ""))
        text.append(" ")
        text.append_text(_fit(words, room - name_room - 1, colour))
        text.append(ago(since).rjust(_AGE_COLUMNS), "dim")
        yield text


def _short_name(name: str, room: int) -> str:
    """Cut a long name in the middle: names that differ often differ at the end."""
    joined = _joined(name)
    if cell_len(joined) <= room:
        return joined
    begin, end = Text(joined), joined[-_NAME_END:]
    begin.truncate(max(1, room - cell_len(end) - 1))
    return f"{begin.plain.rstrip()}…{end}"


def _fit(text: str, room: int, style: str) -> Text:
    fitted = Text(_joined(text))
    fitted.truncate(room, overflow="ellipsis", pad=True)
    fitted.stylize(style)
    return fitted


def _joined(text: str) -> str:
    """Leave out marks and joiners: terminals disagree on their width, and columns follow."""
    if text.isascii():
        return text
    return "".join(one for one in text if unicodedata.category(one) not in ("Mn", "Me", "Cf"))


# ── what it asks ──


def request_text(row: Row, request: Document | None) -> tuple[Text, str]:
    """Return the complete request of a waiting agent; else why it waits, and its last message.

    The second is why the request is not complete; empty if it is.
    """
    if request is not None:
        lines = unstyled("\n".join(request_lines(_shortened(request), row.session)))
        shown = _bounded(lines)
        hidden = hidden_reason(dict(request)) or (_TOO_LONG if shown != lines else "")
        hidden = _NOT_READ if request.get("cut") else hidden
        return _lines(shown.split("\n"), _diff_style), hidden
    if row.item is None:
        return _lines(_summary(row)), ""
    message = printable(_bounded(str(row.item.get("message") or "")))
    asked = what(row.item)[:_LONG] if row.item["reason"] != "stopped" else ""
    head = [f"{reason(row.item)}, {ago(row.item['since'])} ago", ""]
    return _lines([*head, *message.split("\n"), *(["", asked] if asked and asked not in message else [])]), ""


def _shortened(request: Document) -> dict[str, Any]:
    """Cut texts that are too long anyway before they are made printable, character by character."""
    fields = {name: _begin(value) for name, value in request["input"].items()}
    return {**request, "input": fields, "detail": {k: _begin(v) for k, v in request["detail"].items()}}


def _begin(value: object) -> object:
    return value[: _MOST + 1] if isinstance(value, str) else value


def _bounded(text: str) -> str:
    shown = "\n".join(text[:_MOST].split("\n", _MOST_LINES)[:_MOST_LINES])
    return text if shown == text else f"{shown}\n… {len(text) - len(shown):,} more characters"


def _summary(row: Row) -> Iterator[str]:
    session = row.session
    for name in ("agent", "agent_state", "source", "cwd", "pane", "pid", "title", "messages_waiting"):
        if session.get(name) not in (None, ""):
            yield f"{name.replace('_', ' '):<17} {one_line(str(session[name])[:_LONG])}"
    if tokens := session.get("tokens"):
        yield f"{'tokens':<17} {tokens_text(tokens)}"
    for word in session.get("degraded") or ():
        yield f"{'degraded':<17} {one_line(str(word))}"
    if session.get("last_message"):
        yield ""
        yield one_line(str(session["last_message"])[:_LONG])


def tokens_text(tokens: Mapping[str, Any]) -> str:
    known = [(name.replace("_", " "), value) for name, value in tokens.items() if value is not None]
    return ", ".join(f"{value:,} {name}" for name, value in known) or "unknown"


def _diff_style(line: str) -> str:
    return _DIFF.get(line[:1], "")


# ── screen, conversation, messages, evidence ──


def screen_text(lines: Sequence[str], note: str = "") -> Text:
    """Return a terminal's screen, which is not wrapped; `note`: why it is old."""
    kept = [_screen_line(line) for line in lines]
    while kept and not kept[-1].plain.strip():
        kept.pop()
    if note:
        told = textwrap.wrap(f"{one_line(note)}. This is its last screen.", _NOTE_COLUMNS)
        kept += [Text(), *(Text.styled(line, "yellow") for line in told)]
    text = Text("\n").join(kept)
    text.no_wrap = True
    return text


@lru_cache(maxsize=500)
def _screen_line(line: str) -> Text:
    text = Text.from_ansi(line)
    text.plain = printable(text.plain).replace("\t", " ").replace("\n", " ")  # as long as before
    return text


def conversation_text(document: Document) -> Text:
    text = Text()
    for entry in document["entries"]:
        kind, body = entry["kind"], printable(str(entry["text"] or "")[:_LONG])
        if kind == "usage":
            continue
        if kind == "tool_call":
            shown = show_json(entry["input"], indent=None)[:_LONG]
            text.append(f"▸ {one_line(str(entry['tool']))} ", "bold cyan")
            text.append(one_line(shown)[:500] + "\n", "cyan")
        elif kind == "tool_result":
            colour = "red" if entry["ok"] is False else "dim"
            lines = body.split("\n")
            more = f"\n  … {len(lines) - 8} more lines" if len(lines) > 8 else ""
            text.append("\n".join(f"  {line}" for line in lines[:8]) + more + "\n", colour)
            if entry["diff"]:
                text.append_text(_lines(printable(str(entry["diff"])[:_LONG]).split("\n"), _diff_style))
        elif kind == "prompt":
            text.append(f"> {body}\n", "bold")
        else:
            text.append(f"{body}\n", _ENTRY_COLOURS.get(kind, ""))
        text.append("\n" if kind in ("prompt", "answer") else "")
    return text if text.plain else Text(str(document.get("note") or "nothing recorded yet"), "dim")


def messages_text(document: Document) -> Text:
    """Return the messages, newest first, each with its receipt chain."""
    text = Text()
    if held := document.get("held"):
        text.append(f"not delivered now: {one_line(str(held))}\n\n", "yellow")
    for message in document["messages"]:
        text.append(f"{one_line(str(message['prompt'])[:500])}\n", "bold")
        done = {step["stage"]: step for step in message["steps"]}
        for stage in _STEPS:
            text.append(_BEFORE_STEP.get(stage, " → "), "dim")
            text.append(stage, "green" if stage in done else "dim")
        ends = [stage for stage in done if stage not in _STEPS]
        text.append(f" → {' → '.join(ends)}" if ends else "", "green" if "acked" in ends else "red")
        attempt = f" · attempt {message['attempt']}" if message["attempt"] > 1 else ""
        text.append(f"\n  {message['id']} · {ago(message['at'])} ago{attempt}", "dim")
        text.append(f" · {one_line(str(message['reason']))}" if message["reason"] else "", "yellow")
        text.append("\n\n")
    return text if text.plain else Text("no messages", "dim")


def evidence_text(document: Document) -> Text:
    """Return how the state is known: a line for each source, the one that decides first marked."""
    text, rows = Text(), document.get("evidence") or ()
    widths = [max((len(str(row[name])) for row in rows), default=0) for name in ("source", "state")]
    for row in rows:
        style = "bold" if row["decides"] else "" if row["counts"] else "dim"
        known = " ".join(
            str(row[name]).ljust(width) for name, width in zip(("source", "state"), widths, strict=True)
        )
        line = f"{'●' if row['decides'] else ' '} {known} {_age(row['age']):>5}"
        text.append(f"{line}  {one_line(str(row['detail']))}\n", style)
    return text if text.plain else Text("nothing is known of it yet", "dim")


def _lines(lines: Iterable[str], style: Callable[[str], str] | None = None) -> Text:
    text = Text()
    for line in lines:
        text.append(f"{printable(line)}\n", style(line) if style else "")
    return text
