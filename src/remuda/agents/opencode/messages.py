"""The messages of an opencode conversation: their ids, and how a turn ended by them. Pure.

A turn is a message of a user, with its id, and the answers whose `parentID` is that id. An answer that calls
tools is followed by another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from remuda.agents.events import Failure, TurnFailed, TurnInterrupted, TurnStopped
from remuda.agents.prompting import Past, PromptCall
from remuda.digest import sha256
from remuda.untrusted import as_object, as_objects, finite

Document = Mapping[str, Any]
End = TurnStopped | TurnFailed | TurnInterrupted

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_MARK_LETTERS = 14
_CLOCK_SLACK = 5.0
_STATUS_FAILURES = {
    401: Failure.AUTHENTICATION,
    403: Failure.AUTHENTICATION,
    429: Failure.RATE_LIMITED,
    503: Failure.OVERLOADED,
    529: Failure.OVERLOADED,
}
_NAMED_FAILURES = {
    "ProviderAuthError": Failure.AUTHENTICATION,
    "ContextOverflowError": Failure.INVALID,
    "ContentFilterError": Failure.INVALID,
    "MessageOutputLengthError": Failure.INVALID,
}
_LIMIT_WORDS = ("rate", "limit", "quota", "too many", "429", "usage")


# ── ids ──


def _mark(call_id: str) -> str:
    """Return what the id of our message ends with, at every attempt."""
    number = int(sha256(call_id.encode())[:24], 16)
    letters = []
    for _ in range(_MARK_LETTERS):
        number, rest = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[rest])
    return "".join(letters)


def make_message_id(call_id: str, now: float) -> str:
    """Return an id for a prompt, made as opencode makes its own.

    It begins with the time: opencode compares ids to see which message is newer.
    """
    return f"msg_{(int(now * 1000) << 12 | 1) & (1 << 48) - 1:012x}{_mark(call_id)}"


# ── one message ──


def info_of(message: Document) -> dict[str, Any]:
    return as_object(message.get("info"))


def parts_of(message: Document) -> list[dict[str, Any]]:
    return as_objects(message.get("parts"))


def text_of(message: Document) -> str:
    """Return the text that was written by a person or the model, not what opencode added itself."""
    texts = [part.get("text") for part in parts_of(message) if part.get("type") == "text"]
    synthetic = [part.get("synthetic") for part in parts_of(message) if part.get("type") == "text"]
    return "\n".join(
        text for text, made in zip(texts, synthetic, strict=True) if isinstance(text, str) and not made
    )


def is_prompt(message: Document) -> bool:
    """Return whether a message of a user is a prompt, not one that opencode wrote to itself."""
    return any(
        part.get("type") in ("text", "file", "agent", "subtask") and not part.get("synthetic")
        for part in parts_of(message)
    )


def is_over(message: Document) -> bool:
    info = info_of(message)
    return bool(as_object(info.get("time")).get("completed") or info.get("error"))


def usage_of(message: Document) -> dict[str, int]:
    tokens = as_object(info_of(message).get("tokens"))
    cache = as_object(tokens.get("cache"))
    return {
        "input_tokens": _count(tokens.get("input")),
        "output_tokens": _count(tokens.get("output")) + _count(tokens.get("reasoning")),
        "cache_creation_input_tokens": _count(cache.get("write")),
        "cache_read_input_tokens": _count(cache.get("read")),
    }


def _count(value: object) -> int:
    return max(0, int(finite(value)))


# ── the end of a turn ──


def failure(error: Document, turn: str | None) -> TurnFailed:
    """Return what an error of opencode means."""
    data = as_object(error.get("data"))
    name, status = str(error.get("name")), data.get("statusCode")
    kind = _NAMED_FAILURES.get(name, Failure.OTHER)
    if isinstance(status, int):
        kind = _STATUS_FAILURES.get(status, Failure.INVALID if 400 <= status < 500 else Failure.OTHER)
    headers = as_object(data.get("responseHeaders"))
    wait = finite(_number(headers.get("retry-after")), -1.0)
    text = str(data.get("message") or name).split("\n    at ")[0]
    return TurnFailed(kind, text, turn, wait if wait >= 0 else None)


def limit(status: Document, turn: str | None, now: float) -> TurnFailed:
    """Return what it means that opencode will repeat a request to its model."""
    text = str(status.get("message") or "the model's service refused the request")
    kind = Failure.OTHER
    if status.get("action") or any(word in text.lower() for word in _LIMIT_WORDS):
        kind = Failure.RATE_LIMITED
    if "overload" in text.lower() or "529" in text:
        kind = Failure.OVERLOADED
    wait = max(0.0, finite(status.get("next")) / 1000 - now)
    return TurnFailed(kind, text, turn, wait)


def _number(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None


def end_of(answers: Sequence[Document], turn: str, conversation: str) -> End:
    """Return how a turn ended whose last answer is over, or was cut off."""
    last = answers[-1] if answers else {}
    info = info_of(last)
    error = as_object(info.get("error"))
    if error and error.get("name") != "MessageAbortedError":
        return failure(error, turn)
    # An abort while it waits to repeat a request leaves no error. "tool-calls" at the end: a person rejected
    # a permission, which ends the turn.
    if error or not is_over(last) or info.get("finish") in (None, "tool-calls"):
        return TurnInterrupted(turn)
    return TurnStopped(text_of(last), turn, conversation=conversation)


# ── search ──


def answers_to(messages: Iterable[Document], turn: str) -> list[Document]:
    return [
        message
        for message in messages
        if info_of(message).get("role") == "assistant" and info_of(message).get("parentID") == turn
    ]


def find_call(messages: Sequence[Document], call: PromptCall) -> str | None:
    """Return the id of the message that a call made; None if there is none.

    An earlier attempt of the same message may be there too. It counts if it was answered.
    """
    mark = _mark(call.id)
    found = None
    for message in messages:
        info = info_of(message)
        message_id = str(info.get("id"))
        if info.get("role") != "user" or not message_id.endswith(mark):
            continue
        created = finite(as_object(info.get("time")).get("created")) / 1000
        is_answered = isinstance(end_of(answers_to(messages, message_id), message_id, ""), TurnStopped)
        if is_answered or created >= call.since - _CLOCK_SLACK:
            found = message_id
    return found


def past_of(messages: Sequence[Document], turn: str, *, busy: bool) -> Past:
    """Return what became of a message that is in the conversation. `busy`: a turn may run now."""
    answers = answers_to(messages, turn)
    if not answers:
        return Past(stored=True)
    if busy and (not is_over(answers[-1]) or info_of(answers[-1]).get("finish") == "tool-calls"):
        return Past(submitted=True, prompt_id=turn)
    end = end_of(answers, turn, "")
    if isinstance(end, TurnStopped):
        return Past(True, True, end.text, turn, usages=tuple(map(usage_of, answers)))
    cut = not is_over(answers[-1])
    return Past(True, False, "", turn, interrupted=isinstance(end, TurnInterrupted) and not cut)
