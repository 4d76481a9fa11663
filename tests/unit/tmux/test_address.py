"""Where servers listen, and which versions are new enough."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from remuda.errors import TmuxTooOld
from remuda.tmux.address import (
    POPUPS,
    Address,
    check_version,
    known_addresses,
    parse_version,
    without_pane,
)

UID = os.getuid()


def test_address_inside_tmux_is_that_server(tmp_path: Path) -> None:
    assert Address.here({"TMUX": f"{tmp_path}/mine,123,4"}) == Address(f"{tmp_path}/mine")


def test_address_outside_is_the_default_server(tmp_path: Path) -> None:
    assert Address.here({"TMUX_TMPDIR": str(tmp_path)}) == Address(f"{tmp_path}/tmux-{UID}/default")
    assert Address.here({"TMUX": ""}) == Address.named("default", {})


def test_address_through_a_linked_folder_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert Address.of(f"{tmp_path}/link/s") == Address.of(f"{tmp_path}/real/s")


def test_known_addresses_are_the_sockets_and_the_own_server_once(tmp_path: Path) -> None:
    env = {"TMUX_TMPDIR": str(tmp_path)}
    assert known_addresses(env) == [Address.named("default", env)]
    folder = tmp_path / f"tmux-{UID}"
    folder.mkdir()
    (folder / "no socket").touch()
    for name in ("b", "default"):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / name))
    env["TMUX"] = f"{tmp_path}/elsewhere,1,0"
    assert known_addresses(env) == [
        Address(f"{tmp_path}/elsewhere"),
        Address.named("b", env),
        Address.named("default", env),
    ]


def test_without_pane_removes_the_variables_of_our_pane() -> None:
    assert without_pane({"TMUX": "x", "TMUX_PANE": "%1", "HOME": "/"}) == {"HOME": "/"}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("tmux 3.3a", (3, 3)), ("2.9", (2, 9)), ("3.10", (3, 10)), ("next-3.6", (3, 6)), ("3.5-rc2", (3, 5)),
        ("tmux next-3.6", (3, 6)), ("master", (99, 0)), ("openbsd-7.4", (99, 0)), ("", (99, 0)),
    ],
)  # fmt: skip
def test_parse_version(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


def test_check_version_too_old_names_both() -> None:
    check_version("3.0")
    with pytest.raises(TmuxTooOld, match=r"3\.0 or newer; this one is 2\.9a"):
        check_version("tmux 2.9a")
    with pytest.raises(TmuxTooOld, match=r"a popup needs tmux 3\.2"):
        check_version("3.1c", POPUPS, "a popup")
