"""Where a tmux server listens, and which version is too old."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from typing import NamedTuple

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
    try:
        names = sorted(os.listdir(_folder(env)))
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


def without_pane(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a tmux that we run: without the variables that name our own pane."""
    return {name: value for name, value in env.items() if name not in ("TMUX", "TMUX_PANE")}


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
