"""Recordings: asciicast v2, complete characters, and a failure that stays the recording's."""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.terminal.asciicast import Recorder


def read(path: Path) -> tuple[dict[str, Any], list[list[Any]]]:
    header, *events = [json.loads(line) for line in path.read_bytes().splitlines()]
    return header, events


@pytest.fixture
def clock() -> Iterator[float]:
    return itertools.count(10.0, 0.5)


def test_recorder_on_a_file_that_others_may_read_makes_a_new_one_for_us_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.cast"
    path.write_text("before")
    path.chmod(0o644)
    with path.open("rb") as reader:  # as another user may have it open
        one = Recorder(path, 80, 24, "work")
        one.output(b"secret")
        one.close()
        assert reader.read() == b"before"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read(path)[1][0][2] == "secret"


@pytest.mark.parametrize("mask", [0o000, 0o777])
def test_recorder_is_for_its_owner_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        Recorder(tmp_path / "a.cast", 80, 24, "work").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.cast").stat().st_mode) == 0o600


def test_recorder_on_a_link_replaces_it_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a.cast")
    (tmp_path / "a.cast").write_text("before")
    Recorder(tmp_path / "link", 80, 24, "work").close()
    assert not (tmp_path / "link").is_symlink()
    assert read(tmp_path / "link")[0]["version"] == 2
    assert (tmp_path / "a.cast").read_text() == "before"


def test_recorder_on_a_folder_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.cast").mkdir()
    with pytest.raises(IsADirectoryError):
        Recorder(tmp_path / "a.cast", 80, 24, "work")
    assert [one.name for one in tmp_path.iterdir()] == ["a.cast"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("kind", ["file", "link"])
def test_recorder_on_what_belongs_to_another_user_is_refused(tmp_path: Path, kind: str) -> None:
    path, target = tmp_path / "a.cast", tmp_path / "target"
    target.write_text("before")
    if kind == "link":
        path.symlink_to(target)
    else:
        path.write_text("theirs")
    os.chown(path, 65534, 65534, follow_symlinks=False)
    with pytest.raises(PermissionError, match="another user"):
        Recorder(path, 80, 24, "work")
    assert target.read_text() == "before"
    assert path.exists()


@pytest.mark.parametrize("through_link", [False, True])
def test_recorder_on_a_device_is_refused_and_leaves_it(tmp_path: Path, through_link: bool) -> None:
    master, slave = os.openpty()
    path = Path(os.ttyname(slave))
    if through_link:
        (tmp_path / "a.cast").symlink_to(path)
    with pytest.raises(OSError, match="it is a device"):
        Recorder(tmp_path / "a.cast" if through_link else path, 80, 24, "work")
    assert stat.S_ISCHR(path.stat().st_mode)
    os.close(master)
    os.close(slave)


def test_recorder_header_is_version_2_with_size_and_title(tmp_path: Path, clock: Iterator[float]) -> None:
    one = Recorder(tmp_path / "a.cast", 80, 24, "work", lambda: next(clock))
    one.close()
    header, events = read(tmp_path / "a.cast")
    assert {"version": 2, "width": 80, "height": 24, "title": "work"}.items() <= header.items()
    assert isinstance(header["timestamp"], int)
    assert events == []
    assert stat.S_IMODE((tmp_path / "a.cast").stat().st_mode) == 0o600


def test_recorder_events_carry_time_kind_and_text(tmp_path: Path, clock: Iterator[float]) -> None:
    one = Recorder(tmp_path / "a.cast", 80, 24, "work", lambda: next(clock))
    one.output(b"\x1b[1mhi\r\n")
    one.resized(100, 30)
    one.close()
    assert read(tmp_path / "a.cast")[1] == [
        [0.5, "o", "\x1b[1mhi\r\n"],
        [1.0, "r", "100x30"],
    ]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.integers(1, 7))
def test_recorder_text_cut_anywhere_is_recorded_whole(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int
) -> None:
    path = tmp_path_factory.mktemp("cast") / "a.cast"
    one = Recorder(path, 80, 24, "work")
    data = text.encode()
    for start in range(0, len(data), size):
        one.output(data[start : start + size])
    one.close()
    assert "".join(event[2] for event in read(path)[1]) == text


def test_recorder_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    one = Recorder(tmp_path / "a.cast", 80, 24, "work")
    one.output(b"a\xffb")
    one.close()
    assert read(tmp_path / "a.cast")[1][0][2] == "a\ufffdb"


def test_recorder_disk_full_stops_recording_and_says_so(tmp_path: Path) -> None:
    before_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    one = Recorder(tmp_path / "a.cast", 80, 24, "work")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before_limit[1]))
        one.output(b"x" * 2000)
        one.output(b"more")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before_limit)
        signal.signal(signal.SIGXFSZ, before_handler)
    assert one.failure is not None
    one.close()
