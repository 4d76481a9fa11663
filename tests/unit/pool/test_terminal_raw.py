"""A kept agent's turn as messages, from its transcript."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.pool.terminal_raw import raw_messages

_HEAD = {"sessionId": "s", "cwd": "/srv", "version": "1", "entrypoint": "cli"}
_RECORDS = [
    {**_HEAD, "type": "user", "uuid": "1", "promptId": "p", "message": {"role": "user", "content": "hello"}},
    {
        **_HEAD,
        "type": "assistant",
        "uuid": "2",
        "message": {
            "id": "m",
            "role": "assistant",
            "model": "a-model",
            "content": [{"type": "text", "text": "hi"}],
        },
    },
]


@pytest.mark.parametrize("known", [None, "a-model"])
def test_first_message_names_the_model_also_where_only_the_transcript_does(
    tmp_path: Path, known: str | None
) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in _RECORDS))
    first, *rest = [
        raw.message for raw in raw_messages(path, "p", "hi", failed=False, model=known, seconds=1.0)
    ]
    assert (first["subtype"], first["model"]) == ("init", "a-model")
    assert [message["type"] for message in rest] == ["assistant", "result"]
