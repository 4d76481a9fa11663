"""Where the boss can be reached besides loopback, by the table `[boss]` of the user's own file. Pure.

Beyond loopback only on purpose: either the boss speaks TLS itself, or a proxy that the user named does. Half
a configuration is an error, and the boss does not start.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from remuda.errors import InvalidOptions

from .http.gate import Site, loopback_sites

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
_WHY = "the page would be reachable without encryption"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Access:
    address: tuple[str, int] | None = None
    """Where to listen besides loopback."""
    tls: tuple[str, str] | None = None
    """The files of the certificate and of its key, for `address`."""
    public: Site | None = None
    """What browsers elsewhere have in their address bar."""
    proxies: tuple[Network, ...] = ()

    def is_proxy(self, address: str) -> bool:
        """Whether a peer is the proxy that the user trusts."""
        if not self.proxies:
            return False
        try:
            peer = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(peer, "ipv4_mapped", None)
        return any((mapped or peer) in one for one in self.proxies)

    def takes(self, address: str) -> bool:
        """Whether `address` may connect where we listen besides loopback."""
        return self.tls is not None or not self._is_beyond or self.is_proxy(address)

    @property
    def _is_beyond(self) -> bool:
        return self.address is not None and not ipaddress.ip_address(self.address[0]).is_loopback

    def sites(self, port: int) -> tuple[Site, ...]:
        sites = [*loopback_sites(port), *([self.public] if self.public is not None else [])]
        if self.address is not None and not ipaddress.ip_address(self.address[0]).is_unspecified:
            scheme, usual = ("https", 443) if self.tls is not None else ("http", 80)
            host, own_port = (
                f"[{self.address[0]}]" if ":" in self.address[0] else self.address[0],
                self.address[1],
            )
            if self.tls is not None or not self._is_beyond:
                sites.append(Site(f"{scheme}://{host}" + (f":{own_port}" if own_port != usual else "")))
        return tuple(sites)

    def urls(self, port: int) -> tuple[str, ...]:
        """Return the addresses by which browsers reach it: on this machine first, then from elsewhere."""
        sites = self.sites(port)
        local, elsewhere = sites[0].origin, [site.origin for site in sites[3:]]
        return (local, *elsewhere)


def read_access(table: Mapping[str, Any]) -> Access:
    """Raises `InvalidOptions` with the reason why the boss must not start with these settings."""
    address = _address(table["listen"]) if "listen" in table else None
    cert, key = table.get("tls_cert"), table.get("tls_key")
    if (cert is None) != (key is None):
        raise InvalidOptions("[boss] tls_cert and tls_key need each other", hint="set both")
    if cert is not None and address is None:
        raise InvalidOptions(
            "[boss] tls_cert needs listen", hint='set where to listen: listen = "ADDRESS:PORT"'
        )
    files = tuple(_file(name, table[name]) for name in ("tls_cert", "tls_key") if name in table)
    public = _public(table["public_url"]) if "public_url" in table else None
    proxies = _proxies(table.get("trusted_proxy", ()))
    access = Access(address, (files[0], files[1]) if files else None, public, proxies)
    _check(access)
    return access


def _check(access: Access) -> None:
    address, public = access.address, access.public
    if access.proxies and public is None:
        raise InvalidOptions(
            "[boss] trusted_proxy needs public_url", hint="set the address that browsers use at the proxy"
        )
    if public is not None and public.is_secure and access.tls is None and not access.proxies:
        raise InvalidOptions(
            f"[boss] public_url {public.origin} needs trusted_proxy or a certificate",
            hint="set trusted_proxy to the address of your proxy, or listen, tls_cert and tls_key",
        )
    if address is None or ipaddress.ip_address(address[0]).is_loopback:
        return
    shown = f"{address[0]}:{address[1]}"
    if access.tls is None and not (access.proxies and public is not None and public.is_secure):
        raise InvalidOptions(
            f"[boss] listen = {shown!r} is not on loopback: {_WHY}",
            hint="set tls_cert and tls_key, or public_url (https) and trusted_proxy",
        )
    if ipaddress.ip_address(address[0]).is_unspecified and public is None:
        raise InvalidOptions(
            f"[boss] listen = {shown!r} has no name that a browser could use",
            hint="set public_url, or listen on one address",
        )


def _address(value: str) -> tuple[str, int]:
    host, _, port = value.rpartition(":")
    try:
        parsed = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        parsed = None
    if parsed is None or (parsed.version == 6) != host.startswith("[") or not _is_port(port):
        raise InvalidOptions(
            f"[boss] listen must be an IP address and a port, not {value!r}",
            hint='for example "192.168.1.5:4443" or "[::1]:4443"',
        )
    return str(parsed), int(port)


def _file(key: str, value: str) -> str:
    path = os.path.expanduser(value)
    if not os.path.isabs(path):
        raise InvalidOptions(f"[boss] {key} must be an absolute path, not {value!r}")
    return path


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) <= 65535


def _public(value: str) -> Site:
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    rest = (parts.path.rstrip("/"), parts.query, parts.fragment, parts.username or "")
    if parts.scheme not in ("http", "https") or not host or any(rest) or not value.isascii():
        raise InvalidOptions(
            f"[boss] public_url must be a scheme, a host and no path, not {value!r}",
            hint='for example "https://boss.example.net"',
        )
    if parts.scheme == "http" and host not in _LOOPBACK_NAMES:
        raise InvalidOptions(f"[boss] public_url must begin with https://: {_WHY}", hint=f"it is {value!r}")
    usual = {"http": 80, "https": 443}[parts.scheme]
    name = f"[{host}]" if ":" in host else host
    return Site(f"{parts.scheme}://{name}" + (f":{port}" if port not in (None, usual) else ""))


def _proxies(value: Any) -> tuple[Network, ...]:
    proxies = []
    for one in [value] if isinstance(value, str) else value:
        try:
            network = ipaddress.ip_network(one, strict=False)
        except (ValueError, TypeError):
            network = None
        if network is None or network.prefixlen < 8:
            raise InvalidOptions(
                f"[boss] trusted_proxy must be the address of your proxy, not {one!r}",
                hint='for example "127.0.0.1" or "10.0.0.0/24"',
            )
        proxies.append(network)
    return tuple(proxies)
