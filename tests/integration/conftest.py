"""The command line in a home of its own, the Stop hook on an inbox of its own, a boss and its queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.attach import open_shell
from support.boss import RunningBoss
from support.commands import Commands
from support.hooks import Box
from support.print_calls import Calls
from support.queue_bench import Ranch
from support.tmux import Pane
from support.tmux_attention import TmuxBench


@pytest.fixture
def calls(remuda: Commands) -> Iterator[Calls]:
    made = Calls(remuda)
    yield made
    made.close()


@pytest.fixture
def pane(remuda: Commands) -> Iterator[Pane]:
    with open_shell(remuda) as pane:
        yield pane


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    one = Box(tmp_path)
    yield one
    one.end()


@pytest.fixture
def boss(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBoss]:
    """A boss that runs, without any source but what is posted, and far from anybody's tmux."""
    monkeypatch.setenv("TMUX_TMPDIR", str(home))
    monkeypatch.delenv("TMUX", raising=False)
    with RunningBoss(home) as one:
        yield one


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBoss]:
    """One for all who only knock, and are refused."""
    with RunningBoss(tmp_path_factory.mktemp("home")) as one:
        yield one


@pytest.fixture
def down(tmux: TmuxBench, remuda: Commands) -> Ranch:
    """Sessions in a tmux with someone in front of it, and no boss."""
    return Ranch(tmux, remuda)


@pytest.fixture
def ranch(down: Ranch) -> Iterator[Ranch]:
    """The same with a boss."""
    down("up", "--detach", "--port", "0")
    yield down
    down("down", "--force")
