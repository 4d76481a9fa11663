"""The output of sessions on another machine: `logs`, `show --history`, and scrolling in `attach`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remuda.keeper.history_stream import HistoryStream
from remuda.terminal.history_format import Output
from support.attach import PRINTER, tell
from support.commands import until_line
from support.fleet import Pair, two_machines
from support.keeper import until


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A machine that only looks, and one that runs sessions."""
    with two_machines(tmp_path_factory.mktemp("fleet"), "viewer") as pair:
        pair.desk.until_host("build7")
        yield pair


def test_logs_are_the_same_as_on_the_machine_itself(pair: Pair) -> None:
    build, desk = pair.build, pair.desk
    build.remuda.start("lines", "--", "sh", "-c", "seq 3000; printf '\\033[31mred\\033[0m\\n'; exec cat")
    until(lambda: build.remuda("logs", "lines", "-n", "1").out == "red\n", "all of its output")
    here = build.remuda("logs", "lines").out
    assert here.splitlines()[-2:] == ["3000", "red"]
    assert desk.remuda("logs", "build7/lines").out == here
    assert desk.remuda("logs", "build7/lines", "-n", "2").out == "3000\nred\n"
    assert desk.remuda("logs", "build7/lines", "--raw").out == build.remuda("logs", "lines", "--raw").out
    keeper = desk.remuda("logs", "--keeper", "build7/lines").out
    assert keeper
    assert build.remuda("logs", "--keeper", "lines").out.startswith(keeper)  # a line may follow at any time
    last = desk.remuda("logs", "--keeper", "-n", "1", "build7/lines").out
    assert last.count("\n") == 1
    assert last in build.remuda("logs", "--keeper", "lines").out
    assert here in desk.remuda("show", "--history", "build7/lines").out
    assert desk.remuda.json("show", "--history", "build7/lines")["history"] == here.splitlines()
    build.remuda("kill", "lines")
    assert desk.remuda("logs", "build7/lines").out == here  # also after its end
    assert "not found" in desk.remuda.refused("logs", "build7/never", code=3)


def test_logs_are_followed_to_the_end_of_the_session(pair: Pair) -> None:
    build, desk = pair.build, pair.desk
    build.remuda.start("work", "--", "sh", "-c", PRINTER)
    follower = desk.remuda.begin("logs", "-f", "build7/work")
    keeper = desk.remuda.begin("logs", "-f", "--keeper", "build7/work")
    until_line(follower, b"ready")
    tell(build.remuda, "work", b"one\\n\n")
    until_line(follower, b"one")
    build.remuda("kill", "work")
    for process in (follower, keeper):
        process.communicate(timeout=60)
        assert process.returncode == 0


def test_a_history_of_20_mb_comes_whole_and_its_reader_may_leave(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, desk = pair.build, pair.desk
    monkeypatch.setenv("REMUDA_HOME", str(desk.remuda.home))
    script = "head -c 20000000 /dev/zero | tr '\\0' x; echo; echo the-end; exec cat"
    build.remuda.start("flood", "--history-bytes", "30000000", "--", "sh", "-c", script)
    until(lambda: "the-end" in build.remuda("screen", "flood").out, "all of its output")
    with HistoryStream("build7", "flood", follow=True) as stream:
        assert any(isinstance(event, Output) for event in stream.read())
    with HistoryStream("build7", "flood") as stream:
        data = b"".join(event.data for event in stream.read() if isinstance(event, Output))
    assert data.count(b"x") == 20_000_000
    with HistoryStream("build7", "flood", last=True) as stream:
        assert sum(len(event.data) for event in stream.read() if isinstance(event, Output)) < 3_000_000
    build.remuda("kill", "flood")
