"""A bench of the real opencode for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remuda.testing.loopback_model import LoopbackModel
from support.opencode import Opencode, opencode_bench


@pytest.fixture
def opencode(model: LoopbackModel) -> Iterator[Opencode]:
    with opencode_bench(model) as bench:
        yield bench
