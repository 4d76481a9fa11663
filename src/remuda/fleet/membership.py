"""Key files, and the file that makes this machine a member of a fleet."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from remuda.digest import sha256
from remuda.durable import replace_file
from remuda.errors import InvalidOptions, RemoteProtocolError
from remuda.paths import home, private_folder
from remuda.untrusted import dump_json

from . import subjects
from .subjects import Role, check_host

DEFAULT_PORT = 4222
_MAX_FILE_BYTES = 1 << 20
_FORMAT = 1
_MACHINE = re.compile("[0-9a-f]{32}")
_MACHINE_FILE = "machine"


def member_file() -> Path:
    return home() / "fleet" / "member.json"


@dataclass(frozen=True, slots=True)
class Key:
    """What a key file holds."""

    name: str
    roles: tuple[Role, ...]
    seed: str
    ca: str = ""
    """The hub's own certificate. Empty for a server whose certificate the system trusts."""

    def document(self) -> dict[str, Any]:
        return {
            "remuda_fleet_key": _FORMAT,
            "name": self.name,
            "roles": list(self.roles),
            "seed": self.seed,
            "ca": self.ca,
        }


@dataclass(frozen=True, slots=True)
class Membership:
    key: Key
    url: str
    machine: str
    """Identifies this machine: two machines with one key must not both have its name."""

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def servers(self) -> list[str]:
        return self.url.split(",")

    def has(self, *roles: Role) -> bool:
        return any(role in self.key.roles for role in roles)


def read_key(path: Path) -> Key:
    """Read a key file. Raises `InvalidOptions`."""
    return _key(_document(path), path)


def write_key(path: Path, key: Key) -> None:
    """Write a new key file, for this user only. Raises `InvalidOptions` if there is one."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise InvalidOptions(f"{path} exists", hint="choose another file with --out") from None
    except OSError as error:
        raise InvalidOptions(f"cannot write {path}: {error.strerror}") from error
    with open(fd, "w") as file:
        os.fchmod(fd, 0o600)
        file.write(dump_json(key.document()) + "\n")
        file.flush()
        os.fsync(fd)


def load_membership() -> Membership | None:
    """Return this machine's membership; None if it has joined no fleet. Raises `InvalidOptions`."""
    path = member_file()
    if not path.exists():
        return None
    document = _document(path)
    url, machine = document.get("url"), document.get("machine")
    if not isinstance(url, str) or not isinstance(machine, str):
        raise InvalidOptions(f"{path} is damaged", hint="join again with 'remuda fleet join'")
    return Membership(_key(document, path), check_url(url), _this_machine(machine))


def save_membership(key: Key, url: str) -> Membership:
    path = member_file()
    private_folder(path.parent)
    url, machine = check_url(url), _machine_id(path.parent / _MACHINE_FILE)
    text = dump_json({**key.document(), "url": url, "machine": machine})
    replace_file(path, text.encode() + b"\n")
    return Membership(key, url, _this_machine(machine))


def _this_machine(machine: str) -> str:
    """Return what a machine whose files are a copy of these ones has not: it runs another kernel or has other
    inodes. After a restart of this machine it is new too, and its name is free when the lease is over.
    """
    from remuda.boss.wall_clock import boot_id

    try:
        status = (member_file().parent / _MACHINE_FILE).stat()
        place = (status.st_dev, status.st_ino, status.st_ctime_ns)
    except OSError:
        place = (0, 0, 0)
    return sha256("\0".join((machine, boot_id(), *map(str, place))).encode("utf-8", "replace"))[:32]


def _machine_id(path: Path) -> str:
    """Return the same id as before: a machine that joins again need not wait until its name is free."""
    try:
        known = path.read_text().strip()
    except (OSError, ValueError):
        known = ""
    if _MACHINE.fullmatch(known):
        return known
    replace_file(path, (made := secrets.token_hex(16)).encode() + b"\n")
    return made


def remove_membership() -> None:
    member_file().unlink(missing_ok=True)


def check_url(url: str) -> str:
    """Return `tls://HOST:PORT`, with commas if there are several servers. Raises `InvalidOptions`."""
    return ",".join(_check_one(one.strip(" ")) for one in url.split(","))


def _check_one(url: str) -> str:
    try:
        parts = urlsplit(url if "://" in url else f"tls://{url}")
        host, port = parts.hostname, parts.port or DEFAULT_PORT
        right = parts.scheme == "tls" and bool(host) and parts.username is None
        right = right and url.isprintable() and " " not in url and parts.path in ("", "/")
    except ValueError:
        right, host, port = False, None, 0
    if not right or host is None:
        raise InvalidOptions(f"{url[:200]!r} is not the address of a hub", hint="write tls://HOST:4222")
    return f"tls://[{host}]:{port}" if ":" in host else f"tls://{host}:{port}"


def _document(path: Path) -> dict[str, Any]:
    from remuda.boss.folder import read_own

    try:
        return subjects.read(read_own(path)[:_MAX_FILE_BYTES])
    except OSError as error:
        raise InvalidOptions(f"cannot read {path}: {error.strerror}") from error
    except RemoteProtocolError:
        raise InvalidOptions(f"{path} is not a key file", hint="'remuda fleet keys new' makes one") from None


def _key(document: dict[str, Any], path: Path) -> Key:
    name, seed, ca = document.get("name"), document.get("seed"), document.get("ca")
    roles = document.get("roles")
    texts = isinstance(name, str) and isinstance(seed, str) and isinstance(ca, str)
    if document.get("remuda_fleet_key") != _FORMAT or not texts or not isinstance(roles, list):
        raise InvalidOptions(f"{path} is not a key file", hint="'remuda fleet keys new' makes one")
    try:
        known = tuple(Role(role) for role in roles)
    except ValueError:
        raise InvalidOptions(
            f"{path} has a role that this version does not know", hint="upgrade Remuda on this machine"
        ) from None
    return Key(check_host(str(name)), known, str(seed), str(ca))
