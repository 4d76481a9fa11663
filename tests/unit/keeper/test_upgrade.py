"""What a keeper and a sender of 0.1 wrote, as this version shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.inbox.catalog import list_messages
from remuda.inbox.receipts import Trace
from remuda.keeper.cancel import Fate, _fate

OLD = '{"remuda": 1, "id": "m1a1e76e38cc-6c20761fa3", "at": 1794884122.828, "prompt": "later"}\n'


@pytest.mark.parametrize("reason", ["no longer wanted", "taken back"])
def test_message_that_a_keeper_took_back_for_us_is_reported_as_that(tmp_path: Path, reason: str) -> None:
    steps = ({"id": "m1", "stage": "accepted"}, {"id": "m1", "stage": "dropped", "reason": reason})
    assert _fate(Trace("m1", tmp_path, steps), asked=True).fate is Fate.TAKEN_BACK
    assert _fate(Trace("m1", tmp_path, steps), asked=False).fate is Fate.ENDED


def test_waiting_message_without_a_mark_was_sent_when_its_id_says(tmp_path: Path) -> None:
    (tmp_path / "inbox.jsonl").write_text(OLD)
    (found,) = list_messages(tmp_path)
    assert found.sent_at == pytest.approx(1794884122.828)
