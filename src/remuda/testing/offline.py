"""Runs a command with loopback as its only network: ``python -m remuda.testing.offline -- CMD…``.

On Linux the process moves into a network namespace of its own, brings ``lo`` up and becomes the command: same
process id, same user. Without root it makes a user namespace around it that maps the caller alone. No other
program is needed, neither ``unshare`` nor ``ip``; and unlike under ``unshare -r`` the command does not take
itself for root, so that everyone tests the agent that they use.

Where namespaces are not to be had (macOS, hardened kernels) it says so on stderr and points the proxy
variables at a closed port, and keeps git from ssh. That stops programs that honour them, and no others.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# Port 9 is "discard": privileged, so no ordinary process listens on it by chance.
CLOSED_PROXY = "http://127.0.0.1:9"
LOOPBACK_HOSTS = "127.0.0.1,localhost"

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_IFF_LOOPBACK = 0x8
_SIOCETHTOOL = 0x8946
_ETHTOOL_GDRVINFO = 3
_DRIVER_INFO_BYTES = 196
_RTF_GATEWAY = 0x2
_RTF_REJECT = 0x200
_IFREQ = struct.Struct("16sh14x")


def is_offline() -> bool:
    """Whether no network but loopback can be reached. Always False off Linux.

    Interfaces that are up must be loopback, or ends of veth pairs without a route that leads further than to
    the other end: namespaces that a test made and connected with each other.
    """
    if sys.platform != "linux":
        return False
    others = _interfaces()
    return all(_driver(name) == "veth" for name in others) and not (others and _has_route_out())


def proxies_closed(environ: Mapping[str, str]) -> bool:
    """Whether the fallback of this module is in force in that environment."""
    return environ.get("HTTPS_PROXY") == environ.get("HTTP_PROXY") == CLOSED_PROXY


def closed_proxies() -> dict[str, str]:
    """Return the variables that send every request, except to loopback, to a closed port.

    ssh honours no proxy, so git gets a program that fails in its place.
    """
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), CLOSED_PROXY)
    variables = {**proxies, "NO_PROXY": LOOPBACK_HOSTS}
    return (
        variables | {name.lower(): value for name, value in variables.items()} | {"GIT_SSH_COMMAND": "false"}
    )


def enter() -> None:
    """Cut this process off from every network but loopback; OSError where the system does not allow it.

    It cannot be undone. The process must have one thread only.
    """
    if sys.platform != "linux" or _interfaces():
        _probe()
        _unshare()
    _raise_loopback()


def _interfaces() -> list[str]:
    """Return those that are up, without loopback."""
    wanted = _IFF_UP | _IFF_LOOPBACK
    return [name for _, name in socket.if_nameindex() if _flags(name) & wanted == _IFF_UP]


def _driver(interface: str) -> str:
    """Return the kernel's name of what drives an interface; /sys may show those of another namespace."""
    import fcntl

    info = ctypes.create_string_buffer(struct.pack("I", _ETHTOOL_GDRVINFO), _DRIVER_INFO_BYTES)
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(info))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
            fcntl.ioctl(query, _SIOCETHTOOL, request)
    except OSError:
        return ""
    return info.raw[4:36].split(b"\0")[0].decode("ascii", "replace")


def _has_route_out() -> bool:
    """Whether a route is the default one or has a gateway. Routes that reject are not counted."""
    routes = []
    for line in Path("/proc/thread-self/net/route").read_text().splitlines()[1:]:
        words = line.split()
        routes.append((int(words[3], 16), int(words[7], 16) == 0))
    if (six := Path("/proc/thread-self/net/ipv6_route")).exists():
        for line in six.read_text().splitlines():
            words = line.split()
            routes.append((int(words[8], 16), words[1] == "00"))
    return any((flags & _RTF_GATEWAY or to_all) and not flags & _RTF_REJECT for flags, to_all in routes)


def _flags(interface: str) -> int:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        answer = fcntl.ioctl(query, _SIOCGIFFLAGS, _IFREQ.pack(interface.encode(), 0))
    flags: int = _IFREQ.unpack(answer)[1]
    return flags & 0xFFFF


def _raise_loopback() -> None:
    import fcntl

    flags = _flags("lo")
    if flags & _IFF_UP:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        fcntl.ioctl(query, _SIOCSIFFLAGS, _IFREQ.pack(b"lo", flags | _IFF_UP))


def _probe() -> None:
    """Try it in a child first: some kernels grant the namespace but no right in it, for good."""
    child = os.fork()
    if child == 0:
        try:
            _unshare()
            _raise_loopback()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno if error.errno and error.errno < 256 else 1)
    failed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if failed:
        raise OSError(failed, f"no network namespace: {os.strerror(failed)}")


def _unshare() -> None:
    uid, gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare"):
        raise OSError("no network namespaces on this system")
    if uid == 0 and libc.unshare(_CLONE_NEWNET) == 0:
        return
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    # The kernel takes a group map from an ordinary user only after setgroups is given up.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def main(arguments: Sequence[str]) -> int:
    """Become the command; returns an exit code only where that failed."""
    command = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
    if not command:
        print("usage: python -m remuda.testing.offline -- COMMAND [ARGUMENT…]", file=sys.stderr)
        return 2
    try:
        enter()
    except OSError as error:
        print(
            f"remuda.testing.offline: THE NETWORK IS NOT CUT OFF ({error}). "
            f"Only proxy variables now keep {command[0]} on loopback.",
            file=sys.stderr,
        )
        os.environ.update(closed_proxies())
    return _become(command)


def _become(command: list[str]) -> int:
    sys.stderr.flush()
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        print(f"remuda.testing.offline: {command[0]}: command not found", file=sys.stderr)
        return 127
    except OSError as error:
        print(f"remuda.testing.offline: {command[0]}: {error.strerror}", file=sys.stderr)
        return 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
