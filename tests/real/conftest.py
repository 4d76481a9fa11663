"""The bench for tests on the real CLI: a loopback model, a made home, and nothing left over."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.offline import is_offline, proxies_closed
from remuda.testing.real_cli import (
    OPT_OUT,
    OTHER_VERSIONS,
    VERSION,
    RealCli,
    binary_of,
    left_out,
)
from support.real_sessions import MakeCli
from support.version_differences import DIFFERENCES


def pytest_runtest_setup(item: pytest.Item) -> None:
    # Skipped at this one place they make one line of the summary, under xdist too. A summary hook would not:
    # the process that prints the summary there never loads this file.
    folder = item.path.parent.name
    agent = folder if folder in OTHER_VERSIONS else "claude"
    if why := left_out(agent):
        pytest.skip(why)
    if not binary_of(agent).exists():
        missing = f"{agent} {OTHER_VERSIONS.get(agent, VERSION)} is not at {binary_of(agent)}"
        pytest.fail(f"{missing}: `make test` fetches it; {OPT_OUT}={agent} does without it", pytrace=False)
    if not is_offline() and not proxies_closed(os.environ):
        pytest.fail("the real CLI runs offline only: use `make test`", pytrace=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as xfail what does not hold on this version; docs/reference/versions.md lists it."""
    for item in items:
        for known in DIFFERENCES:
            if known.applies(VERSION, item.nodeid):
                item.add_marker(pytest.mark.xfail(reason=known.why, strict=known.always))


@pytest.fixture
def model() -> Iterator[LoopbackModel]:
    with LoopbackModel() as serving:
        yield serving


@pytest.fixture
def make_cli(model: LoopbackModel) -> Iterator[MakeCli]:
    """Benches on ``model``; the test fails if a process of theirs outlives it."""
    with ExitStack() as stack:

        def make(*, trust: bool = True) -> RealCli:
            # Not below tmp_path: the CLI puts a unix socket there, whose path may have 107 bytes at most.
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="remuda-", ignore_cleanup_errors=True)
            )
            bench = stack.enter_context(RealCli(Path(folder) / "bench", model.url, trust=trust))
            benches.append(bench)
            return bench

        benches: list[RealCli] = []
        yield make
        left = {pid: command for bench in benches for pid, command in bench.settle().items()}
    assert not left, f"the test left processes behind: {left}"


@pytest.fixture
def cli(make_cli: MakeCli) -> RealCli:
    """The real CLI on ``model``, with its project trusted."""
    return make_cli()
