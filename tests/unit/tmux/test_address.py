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
    surroundings,
    why_unsafe,
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
    folder.mkdir(mode=0o700)
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


def test_known_addresses_in_an_open_folder_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / f"tmux-{UID}"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "b"))
    env = {"TMUX_TMPDIR": str(tmp_path)}
    assert Address.named("b", env) in known_addresses(env)
    folder.chmod(0o701)
    assert Address.named("b", env) not in known_addresses(env)


def test_why_unsafe_names_what_others_can_change(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o755)
    address = Address.of(str(folder / "s"))
    assert why_unsafe(address) is None  # nothing is there
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address.path)
    assert why_unsafe(address) is None
    folder.chmod(0o1777)  # as /tmp: others cannot replace our socket
    assert why_unsafe(address) is None
    folder.chmod(0o777)
    assert why_unsafe(address) == f"other users can write to {folder}"
    folder.chmod(0o755)
    tmp_path.chmod(0o777)
    assert why_unsafe(address) == f"other users can write to {tmp_path}"


def test_why_unsafe_link_in_place_of_a_socket_is(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "real"))
    (tmp_path / "link").symlink_to("real")
    assert why_unsafe(Address.of(str(tmp_path / "link"))) == f"{tmp_path}/link is not a socket of this user"


def test_surroundings_forget_the_pane_that_we_are_in_and_all_secrets() -> None:
    kept = {"HOME": "/", "PATH": "/bin", "LC_ALL": "C", "LANG": "C", "TERM": "xterm", "TMUX_TMPDIR": "/x"}
    dropped = {"TMUX": "x", "TMUX_PANE": "%1", "ANTHROPIC_API_KEY": "k", "SSH_AUTH_SOCK": "s", "LCX": ""}
    assert surroundings(kept | dropped) == kept


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
