"""Files that are whole or as before."""

from __future__ import annotations

import os
import resource
import signal
import stat
from pathlib import Path

import pytest

from remuda.durable import read_regular, replace_file


def test_replace_file_new_and_old_has_the_data_and_nothing_else_is_left(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    replace_file(target, b"one")
    replace_file(target, b"two")
    assert target.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_replace_file_any_umask_has_its_mode(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        replace_file(tmp_path / "private", b"")
        replace_file(tmp_path / "open", b"", 0o644)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o644


def test_replace_file_disk_full_leaves_the_old_one_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    replace_file(target, b"old")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
        with pytest.raises(OSError, match="large"):
            replace_file(target, bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_replace_file_folder_missing_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "none" / "a", b"")


def test_replace_file_does_not_write_through_a_link_at_its_temporary_name(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("before")
    (tmp_path / f".a.json.{os.getpid()}.tmp").symlink_to("mine")
    replace_file(tmp_path / "a.json", b"new")
    assert (tmp_path / "mine").read_text() == "before"
    assert (tmp_path / "a.json").read_bytes() == b"new"
    assert not (tmp_path / "a.json").is_symlink()


def test_read_regular_of_a_file_or_through_a_link_is_all_of_it(tmp_path: Path) -> None:
    data = os.urandom(10_000)
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "b").symlink_to("a")
    assert read_regular(tmp_path / "a", 10_000) == read_regular(tmp_path / "b") == data


def test_read_regular_of_a_larger_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(10_001))
    with pytest.raises(OSError, match="larger than 10000 bytes"):
        read_regular(tmp_path / "a", 10_000)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_read_regular_of_what_is_not_a_file_is_an_error_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else tmp_path)
    with pytest.raises(OSError, match=f"not a regular file.*{path}"):
        read_regular(path)
