"""A turn of a kept agent as the messages that `claude -p --output-format stream-json` would have printed.

They are made from the transcript when the turn is over, and so come all at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remuda.oneshot.conversation import Summary
from remuda.oneshot.messages import init_message, to_messages
from remuda.oneshot.result import Ended, make_result
from remuda.oneshot.tail import Tail

from .types import Raw


def raw_messages(
    path: Path, prompt_id: str | None, answer: str, *, failed: bool, model: str | None, seconds: float
) -> list[Raw]:
    """Reads the transcript."""
    return [Raw(message) for message in _messages(path, prompt_id, answer, failed, model, seconds)]


def _messages(
    path: Path, prompt_id: str | None, answer: str, failed: bool, model: str | None, seconds: float
) -> Iterator[dict[str, Any]]:
    summary = Summary(model=model)
    records = Tail(path, prompt_id).read()
    messages = []
    for record in records:
        summary.take(record)
        model = model or summary.model  # a keeper that was asked early does not know it yet
        messages += to_messages(record, summary.tool_uses)
    if records:
        yield init_message(records[0], model)
    yield from messages
    ended = Ended("api_error", is_error=True, text=answer) if failed else Ended(text=answer)
    yield make_result(summary, ended, round(seconds * 1000), "terminal")
