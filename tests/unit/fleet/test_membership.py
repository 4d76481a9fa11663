"""Key files and membership: for this user only, and anything else is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from remuda.errors import InvalidOptions
from remuda.fleet.hub_folder import HubFolder, new_seed, public_of
from remuda.fleet.membership import (
    Key,
    check_url,
    load_membership,
    member_file,
    read_key,
    remove_membership,
    save_membership,
    write_key,
)
from remuda.fleet.subjects import Role

KEY = Key("build7", (Role.HOST, Role.OPERATOR), "SUSEED", "PEM")


def test_a_key_file_is_read_as_it_was_written_and_only_by_its_user(tmp_path: Path) -> None:
    path = tmp_path / "build7.key"
    write_key(path, KEY)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_key(path) == KEY
    with pytest.raises(InvalidOptions, match="exists"):
        write_key(path, KEY)
    path.chmod(0o666)
    with pytest.raises(InvalidOptions, match="other users can write"):
        read_key(path)


@pytest.mark.parametrize(
    "text",
    [
        *("", "SUSEED", "[]", "{}", '{"remuda_fleet_key": 1, "name": "a", "seed": 1, "ca": "", "roles": []}'),
        '{"remuda_fleet_key": 1, "name": "a", "seed": "s", "ca": "", "roles": ["king"]}',
        '{"remuda_fleet_key": 1, "name": "A B", "seed": "s", "ca": "", "roles": []}',
    ],
)
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(InvalidOptions):
        read_key(path)
    with pytest.raises(InvalidOptions):
        read_key(tmp_path / "missing")


def test_a_membership_is_kept_until_it_is_removed(home: Path) -> None:
    assert load_membership() is None
    joined = save_membership(KEY, "laptop")
    assert joined.url == "tls://laptop:4222"
    assert load_membership() == joined
    assert joined.has(Role.HOST)
    assert not joined.has(Role.VIEWER)
    assert member_file().stat().st_mode & 0o777 == 0o600
    remove_membership()
    assert load_membership() is None
    assert save_membership(KEY, "laptop").machine == joined.machine


def test_a_copy_of_all_files_is_another_machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = save_membership(KEY, "laptop")
    folder = member_file().parent
    shutil.copytree(folder, home / "copy" / "fleet")
    monkeypatch.setenv("REMUDA_HOME", str(home / "copy"))
    copied = load_membership()
    assert copied is not None
    assert (copied.name, copied.url) == (joined.name, joined.url)
    assert copied.machine != joined.machine


@pytest.mark.parametrize(
    ("url", "full"),
    [
        ("h", "tls://h:4222"),
        ("tls://h:1", "tls://h:1"),
        ("tls://[::1]:5", "tls://[::1]:5"),
        ("h:7/", "tls://h:7"),
    ],
)
def test_an_address_is_completed(url: str, full: str) -> None:
    assert check_url(url) == full


@pytest.mark.parametrize(
    "url",
    ["", "http://h", "nats://h", "tls://", "tls://u@h", "tls://h:99999", "tls://h/x", "tls://h\n", "a b"],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidOptions):
        check_url(url)


def test_a_hub_keeps_only_public_keys_of_others(tmp_path: Path) -> None:
    folder = HubFolder(tmp_path / "hub")
    folder.make(("127.0.0.1", 4999))
    key = folder.new_key("build7", (Role.HOST,))
    assert key.seed not in folder.state.read_text() + folder.config.read_text()
    assert [one.public for one in folder.key_records()] == [public_of(key.seed)]
    with pytest.raises(InvalidOptions, match="there is a key for 'build7'"):
        folder.new_key("build7", (Role.HOST,))
    folder.make(None)
    assert folder.address == ("127.0.0.1", 4999)
    folder.revoke("build7")
    assert folder.key_records() == []
    assert folder.server_pid() is None


def test_what_is_no_seed_is_refused() -> None:
    assert public_of(new_seed()[0]).startswith("U")
    for text in ("", "SU", "x" * 58, "é"):
        with pytest.raises(InvalidOptions):
            public_of(text)
