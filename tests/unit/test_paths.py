"""Where files lie, and that folders are private."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remuda.errors import BadName, FolderUnusable
from remuda.paths import SOCKET_PATH_BYTES, SessionPaths, SocketAddress, home, private_folder


@contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_home_remuda_home_set_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_HOME", "/a/b")
    monkeypatch.setenv("XDG_STATE_HOME", "/c")
    assert home() == Path("/a/b")


def test_home_relative_remuda_home_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REMUDA_HOME", "here")
    assert home() == tmp_path / "here"


def test_home_only_state_home_set_is_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMUDA_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/c")
    assert home() == Path("/c/remuda")


def test_home_nothing_set_is_below_the_users_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMUDA_HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/me")
    assert home() == Path("/me/.local/state/remuda")


def test_home_of_an_unknown_user_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with a user that it does not know, and without HOME."""
    monkeypatch.setenv("REMUDA_HOME", "~no-such-user/remuda")
    with pytest.raises(FolderUnusable, match="~no-such-user/remuda"):
        home()
    for name in ("REMUDA_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with pytest.raises(FolderUnusable) as raised:
        home()
    assert raised.value.hint is not None
    assert "HOME" in raised.value.hint


def test_session_paths_lie_as_heimdall_lays_them() -> None:
    paths = SessionPaths.of("work", Path("/s"))
    assert (paths.socket, paths.pid, paths.log) == (
        Path("/s/work.sock"),
        Path("/s/work.pid"),
        Path("/s/work.log"),
    )


def test_session_paths_bad_name_is_refused() -> None:
    with pytest.raises(BadName):
        SessionPaths.of("../evil", Path("/s"))


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_private_folder_any_umask_is_0700(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        made = private_folder(tmp_path / "deep" / "er")
    assert mode(made) == 0o700


def test_private_folder_loose_one_of_our_home_is_tightened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path))
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o755)
    assert mode(private_folder(loose)) == 0o700


def test_private_folder_that_all_users_share_is_refused_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /tmp, with REMUDA_HOME=/tmp: root would take it from all others."""
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "shared"))
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(FolderUnusable, match="is shared with other users; choose"):
        private_folder(shared)
    assert mode(shared) == 0o1777


def test_private_folder_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderUnusable):
        private_folder(tmp_path / "file")
    with pytest.raises(FolderUnusable):
        private_folder(tmp_path / "file" / "below")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_private_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    with pytest.raises(FolderUnusable):
        private_folder(theirs)


def test_socket_address_short_is_the_path_itself() -> None:
    with SocketAddress(Path("/tmp/a.sock")) as address:
        assert address == "/tmp/a.sock"


def test_socket_address_too_long_reaches_the_same_file(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120) / ("e" * 120)
    folder.mkdir(parents=True)
    path = folder / "long.sock"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        with SocketAddress(path) as address:
            assert len(address) <= SOCKET_PATH_BYTES
            listener.bind(address)
        listener.listen(1)
        assert path.is_socket()
        with SocketAddress(path) as address:
            client.connect(address)


def test_socket_address_left_closes_its_descriptor(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    before = set(os.listdir("/proc/self/fd"))
    with SocketAddress(folder / "a.sock"):
        pass
    assert set(os.listdir("/proc/self/fd")) == before
