"""Where a tmux server listens, and which version is too old."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from typing import Final, NamedTuple

from remuda.errors import TmuxTooOld

OLDEST = (3, 0)
POPUPS = (3, 2)


class Address(NamedTuple):
    """A server's socket. Two addresses are of the same server when their paths are equal."""

    path: str

    @classmethod
    def of(cls, path: str) -> Address:
        """Return the address that `tmux -S PATH` uses."""
        return cls(os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path)))

    @classmethod
    def named(cls, name: str, env: Mapping[str, str]) -> Address:
        """Return the address that `tmux -L NAME` uses."""
        return cls.of(os.path.join(_folder(env), name))

    @classmethod
    def here(cls, env: Mapping[str, str]) -> Address:
        """Return the server that we run in, else the user's default one."""
        inside = env.get("TMUX", "").partition(",")[0]
        return cls.of(inside) if inside else cls.named("default", env)


def _folder(env: Mapping[str, str]) -> str:
    return os.path.join(env.get("TMUX_TMPDIR") or "/tmp", f"tmux-{os.getuid()}")  # noqa: S108 - where tmux looks


def known_addresses(env: Mapping[str, str]) -> list[Address]:
    """Return the server that we run in, and all sockets in the folder of tmux. Some may have no server."""
    addresses = [Address.here(env)]
    folder = os.path.realpath(_folder(env))
    try:
        status = os.lstat(folder)
        is_ours = not (_why_not_private(folder, status) or _why_open(folder, status))
        names = sorted(os.listdir(folder)) if is_ours else []
    except OSError:
        names = []
    for name in names:
        address = Address.named(name, env)
        if address not in addresses and _is_socket(address.path):
            addresses.append(address)
    return addresses


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def why_unsafe(address: Address) -> str | None:
    """Return why another user may own this socket; None if it is safe to run `tmux -S` on it, or not there.

    With -S tmux checks nothing, and a client sends its environment to the listener. /tmp/tmux-UID belongs
    to the user who makes it first. So the socket must be ours, and only we and root may change its path.
    """
    folder = os.path.dirname(address.path)
    try:
        found = os.lstat(address.path)
        parts = [(part, os.lstat(part)) for part in _with_parents(folder)]
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"cannot check {address.path}: {error.strerror}"
    reasons = [_why_not_private(folder, parts[0][1]), *(_why_open(*part) for part in parts)]
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        reasons.append(f"{address.path} is not a socket of this user")
    return next((reason for reason in reasons if reason), None)


def _with_parents(folder: str) -> list[str]:
    found = [folder]
    while (parent := os.path.dirname(found[-1])) != found[-1]:
        found.append(parent)
    return found


def _why_not_private(folder: str, found: os.stat_result) -> str | None:
    """The folder that tmux makes for a user must be as tmux itself demands without -S."""
    if os.path.basename(folder) != f"tmux-{os.getuid()}":
        return None
    if found.st_uid != os.getuid():
        return f"{folder} belongs to another user"
    return f"{folder} is open to other users" if found.st_mode & stat.S_IRWXO else None


def _why_open(folder: str, found: os.stat_result) -> str | None:
    """In a sticky folder such as /tmp only the owner of a file can replace it."""
    root = os.stat("/")  # in a user namespace root's files may show another owner
    if found.st_uid not in (os.getuid(), 0, root.st_uid):
        return f"{folder} belongs to another user"
    group_writes = found.st_mode & stat.S_IWGRP and found.st_gid not in (os.getgid(), 0, root.st_gid)
    if (group_writes or found.st_mode & stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
        return f"other users can write to {folder}"
    return None


_PASSED_ON: Final = ("PATH", "HOME", "TERM", "LANG", "TMUX_TMPDIR", "SHELL", "USER", "LD_LIBRARY_PATH")


def surroundings(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a tmux that we run. A client sends it to the server: no keys of the user.

    Without TMUX: it must not think itself in the pane that we are in.
    """
    return {name: value for name, value in env.items() if name in _PASSED_ON or name.startswith("LC_")}


Version = tuple[int, int]


def parse_version(text: str) -> Version:
    """`3.3a`, `tmux 3.3a`, `next-3.6`. A version without a number (`master`, OpenBSD's) counts as new."""
    match = re.search(r"(?:^|[ -])(\d+)\.(\d+)", text.replace("openbsd-", "openbsd:"))
    return (int(match[1]), int(match[2])) if match else (99, 0)


def check_version(text: str, oldest: Version = OLDEST, what: str = "Remuda") -> None:
    if parse_version(text) < oldest:
        raise TmuxTooOld(
            f"{what} needs tmux {oldest[0]}.{oldest[1]} or newer; this one is {text.removeprefix('tmux ')}",
            hint="after an update, a running tmux server keeps its old version until it ends",
        )
