"""Connections for addresses that a browser chose: only to hosts of the internet.

A push service is named by the browser, so a page could make the boss connect to what only this machine can
reach. The name is resolved once, all its addresses are checked, and the connection goes to one of these.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from remuda.errors import InvalidOptions

_MOST_CHARACTERS = 1000
_MOST_ADDRESSES = 4
"""Each may take as long as the timeout."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class PrivateAddress(OSError):
    """The host is not on the internet."""


def check_endpoint(url: str) -> tuple[str, int]:
    """Return host and port of an address of a push service. Raises `InvalidOptions`."""
    parts = urlsplit("")
    host = port = None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        pass
    is_clean = len(url) <= _MOST_CHARACTERS and all("!" <= one <= "~" and one not in '"\\<>' for one in url)
    if not is_clean or host is None or port == 0 or not url.startswith("https://") or "@" in parts.netloc:
        raise InvalidOptions("the endpoint must be an https:// address of a push service")
    if ":" in host:
        raise InvalidOptions("the endpoint must have the name of a host, not an IPv6 address")
    return host, port or 443


def is_public(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour or (parsed.teredo[1] if parsed.teredo else None)
        if parsed in _NAT64:
            inner = ipaddress.IPv4Address(parsed.packed[-4:])
        if inner is not None:
            return is_public(str(inner))
    return parsed.is_global and not parsed.is_multicast


def resolve(host: str, port: int, allowed: frozenset[str]) -> list[tuple[Any, ...]]:
    """Return the addresses of a host, as `getaddrinfo`. Blocks. Raises OSError, `PrivateAddress`.

    `allowed` are hosts, or hosts with a port, that may have any address.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError(errno.EINVAL, "the name of the host is not valid") from None
    is_allowed = host in allowed or f"{host}:{port}" in allowed
    if not is_allowed and not all(is_public(str(one[4][0])) for one in found):
        raise PrivateAddress(errno.EACCES, "the push service has a private address")
    return list(found)


def connect_public(allowed: frozenset[str]) -> Callable[..., socket.socket]:
    """Return a function like `socket.create_connection`."""

    def connect(address: tuple[str, int], timeout: float | None = None, *_more: Any) -> socket.socket:
        failure: OSError = OSError(errno.EHOSTUNREACH, "the host has no address")
        for family, kind, protocol, _, where in resolve(*address, allowed)[:_MOST_ADDRESSES]:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(timeout)
                sock.connect(where)
                return sock
            except OSError as error:
                sock.close()
                failure = error
        raise failure

    return connect
