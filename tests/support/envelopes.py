"""Envelopes with any fields, marked as our own writers mark theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from remuda.inbox.stop_hook import Files
from remuda.inbox.writer import Writer


def put_marked(inbox: Path | str, **fields: Any) -> None:
    """Append an envelope with these fields. The mark says that we wrote it, not that it makes sense."""
    put_marked_line(inbox, json.dumps({"remuda": 1, **fields}).encode())


def put_marked_line(inbox: Path | str, line: bytes) -> None:
    """As `put_marked`, for an object that is written out: also with numbers that JSON does not have."""
    writer = Writer(Files(str(inbox), durable=False))
    try:
        with writer.lock():
            writer.append(line)
    finally:
        writer.close()
