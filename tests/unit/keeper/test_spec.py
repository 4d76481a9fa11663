"""What a keeper is told: what is repeated in it is what it repeats."""

from __future__ import annotations

from typing import get_args

from remuda.keeper.spec import DEFAULT_DRAFT_PATIENCE, ON_ORPHAN
from remuda.turns.message_policy import OnOrphan
from remuda.turns.readiness import DRAFT_PATIENCE


def test_defaults_are_those_of_the_code_that_is_loaded_later() -> None:
    assert get_args(OnOrphan) == ON_ORPHAN
    assert DEFAULT_DRAFT_PATIENCE == DRAFT_PATIENCE
