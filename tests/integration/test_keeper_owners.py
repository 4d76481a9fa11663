"""Sessions that end with their starter: how long they may take for that, and what they report."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from remuda.keeper.prefork import FAREWELL
from remuda.keeper.start import start_attended
from support.keeper import AWAKE, Kept, make_spec, until

IGNORES = "trap '' TERM HUP INT; "
STAYS = "while :; do sleep 60; done"
PATIENCE = 30.0


class Owned(Kept):
    """One that we are the owner of."""

    lifeline: int
    news: int

    def leave(self, *, word: bytes = b"") -> None:
        os.write(self.lifeline, word)
        os.close(self.lifeline)
        self.lifeline = -1

    def end(self) -> None:
        super().end()
        for fd in (self.lifeline, self.news):
            if fd >= 0:
                os.close(fd)


Own = Callable[..., Owned]


@pytest.fixture
def own(home: Path) -> Iterator[Own]:
    begun: list[Owned] = []

    def one(argv: Sequence[str], **more: Any) -> Owned:
        spec = make_spec(home / "sessions", "owned", argv, owned=True, **more)
        attended = start_attended(spec)
        kept = Owned(spec, attended.started)
        kept.lifeline, kept.news = attended.lifeline, attended.news
        begun.append(kept)
        return kept

    yield one
    for kept in begun:
        kept.end()


def test_a_session_whose_owner_is_gone_without_a_word_has_less_than_two_seconds(own: Own) -> None:
    kept = own(["sh", "-c", f"{IGNORES} printf READY; {STAYS}"], kill_grace=1000.0)
    kept.subscriber().read_until(b"READY")
    kept.leave()
    assert kept.keeper.ended()
    assert "still running after 1.7 s, killing" in kept.log()
    assert "ended with its owner" in kept.log()


def test_a_session_whose_owner_left_in_order_has_its_own_time(own: Own) -> None:
    kept = own(["sh", "-c", f"{IGNORES} printf READY; {STAYS}"], kill_grace=0.3)
    kept.subscriber().read_until(b"READY")
    kept.leave(word=FAREWELL)
    assert kept.keeper.ended()
    assert "still running after 0.3 s, killing" in kept.log()


def test_what_a_program_starts_for_its_own_end_is_not_hung_up(own: Own, tmp_path: Path) -> None:
    """Half a second after the TERM comes a HUP: not for those who were started since."""
    begun, hung_up, go, done = (tmp_path / name for name in ("begun", "hung-up", "go", "done"))
    last = f"touch {begun}; until [ -e {go} ]; do sleep 0.02; done; touch {done}"
    program = (
        f"trap 'touch {hung_up}' HUP; trap 'setsid sh -c \"{last}\" & wait; wait; exit 7' TERM; "
        f"printf READY; {AWAKE}"
    )
    kept = own(["sh", "-c", program], kill_grace=1000.0)
    kept.subscriber().read_until(b"READY")
    kept.leave(word=FAREWELL)
    until(begun.exists, "what is started for the end")
    until(hung_up.exists, "the hangup")
    go.touch()
    until(done.exists, "the end of what was started for it")
    assert kept.keeper.ended()
    assert "exit code 7" in kept.log()


def test_session_for_one_message_wakes_who_waits_and_reports_its_end(own: Own) -> None:
    kept = own(["cat"], once=True)
    kept.hello().request("resize", cols=90, rows=30)
    assert select.select([kept.news], [], [], PATIENCE)[0]
    assert os.read(kept.news, 64).strip() == b""
    kept.leave()
    while os.read(kept.news, 64):  # up to its end
        pass
    assert kept.keeper.ended()
