"""Reading a history and a log that rotate while they are read: all of it, or a gap that says how much."""

from __future__ import annotations

from pathlib import Path

from remuda.keeper.history_reader import HistoryReader
from remuda.keeper.history_stream import read_log
from remuda.keeper.rotated import RotatedFile
from remuda.paths import SessionPaths
from remuda.terminal.history_format import (
    MAGIC,
    Gap,
    HistoryEvent,
    Kind,
    Output,
    position_record,
    resized_record,
)
from remuda.wire.frames import frame


def rotate(path: Path, content: bytes) -> None:
    if path.exists():
        path.rename(f"{path}.1")
    path.write_bytes(content)


class Writer:
    """Writes one file of history after the other, as a keeper does."""

    def __init__(self, paths: SessionPaths) -> None:
        self._path = paths.history
        self._position = 0

    def write(self, data: bytes) -> None:
        head = MAGIC + resized_record(80, 24) + position_record(self._position)
        rotate(self._path, head + frame(Kind.OUTPUT, data))
        self._position += len(data)


def told(reader: HistoryReader) -> list[HistoryEvent]:
    return [event for event in reader.read() if isinstance(event, Output | Gap)]


def test_reader_behind_by_one_file_reads_it_and_behind_by_more_reports_a_gap(tmp_path: Path) -> None:
    paths = SessionPaths.of("s", tmp_path)
    writer = Writer(paths)
    writer.write(b"a")
    with HistoryReader(paths) as reader:
        assert told(reader) == [Output(b"a")]
        writer.write(b"bb")
        assert told(reader) == [Output(b"bb")]
        for data in (b"ccc", b"dddd"):
            writer.write(data)
        assert told(reader) == [Output(b"ccc"), Output(b"dddd")]
        for data in (b"eeeee", b"ffffff", b"ggggggg", b"h"):
            writer.write(data)
        assert told(reader) == [Gap(11), Output(b"ggggggg"), Output(b"h")]
        assert told(reader) == []


def test_reader_that_begins_late_has_no_gap_at_its_start(tmp_path: Path) -> None:
    paths = SessionPaths.of("s", tmp_path)
    writer = Writer(paths)
    for data in (b"a", b"b", b"c"):
        writer.write(data)
    with HistoryReader(paths) as reader:
        assert told(reader) == [Output(b"b"), Output(b"c")]


def test_damage_in_the_middle_of_a_file_is_a_gap_too(tmp_path: Path) -> None:
    paths = SessionPaths.of("s", tmp_path)
    writer = Writer(paths)
    writer.write(b"aaa")
    paths.history.write_bytes(paths.history.read_bytes()[:-8] + b"\xff" * 8)
    writer.write(b"bb")
    with HistoryReader(paths) as reader:
        assert told(reader) == [Gap(3), Output(b"bb")]
        assert reader.damaged


def test_log_is_followed_over_its_rotations_and_a_missed_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "s.log"
    rotate(path, b"1\n")
    rotate(path, b"2\n")
    with RotatedFile(path) as log:
        assert list(read_log(log)) == [b"1\n", b"2\n"]
        rotate(path, b"3\n")
        assert list(read_log(log)) == [b"3\n"]
        for content in (b"4\n", b"5\n", b"6\n"):
            rotate(path, content)
        first, *rest = list(read_log(log))
        assert b"lines are missing here" in first
        assert rest == [b"5\n", b"6\n"]
        rotate(path, b"7")
        assert list(read_log(log)) == [b"7"]
