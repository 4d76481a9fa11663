"""`remuda doctor --agent codex` on the real binary."""

from __future__ import annotations

import pytest

from remuda.testing.real_cli import OTHER_VERSIONS, binary_of
from support.commands import Commands
from support.self_tests import PATIENCE, check_self_test

pytestmark = pytest.mark.real


@pytest.mark.soak(only=True)
@pytest.mark.timeout(PATIENCE + 60)
def test_self_test_holds_and_leaves_nothing(remuda: Commands) -> None:
    check_self_test(remuda, "codex", OTHER_VERSIONS["codex"], binary_of("codex"))
