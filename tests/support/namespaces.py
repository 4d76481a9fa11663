"""Network namespaces of the test's own: machines that share only a cable, which can be pulled.

Needs root and iproute2. Nothing outside of these namespaces is changed: other tests run beside this one, and
some only where there is no network but loopback.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from support.fleet import FleetBench, Machine, Relay
from support.keeper import until

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_NUMBERS = count(1)


def why_not() -> str:
    """Return why namespaces cannot be had here; empty if they can."""
    missing = [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


def _ip(*words: str, prefix: tuple[str, ...] = ()) -> None:
    subprocess.run([*prefix, "ip", *words], check=True, capture_output=True)


class Namespace:
    """A network of its own, with nothing in it but loopback."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self.pid = self._holder.pid
        space = f"/proc/{self.pid}/ns/net"
        until(lambda: os.path.exists(space) and os.readlink(space) != os.readlink("/proc/self/ns/net"), space)
        self.prefix = ("nsenter", f"--net={space}")
        """What runs a command there."""
        _ip("link", "set", "lo", "up", prefix=self.prefix)

    def enter(self) -> None:
        """Move the calling thread there, for good; threads that it starts are there too."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open(self.prefix[1].partition("=")[2]) as space:
            if libc.setns(space.fileno(), 0):
                raise OSError(ctypes.get_errno(), f"cannot enter {space.name}")

    def call(self, make: Callable[[], T]) -> T:
        """Return what a function makes there, such as a server that listens."""
        with ThreadPoolExecutor(1, initializer=self.enter) as inside:
            return inside.submit(make).result()

    def close(self) -> None:
        self._holder.send_signal(signal.SIGKILL)
        self._holder.wait()


class Cable(Namespace):
    """A namespace with a cable to another one, where its address is `here`."""

    def __init__(self, other: Namespace) -> None:
        super().__init__()
        number = next(_NUMBERS)
        self._other, self._name, self.here = other, f"cable{number}", f"10.77.{number}.1"
        end = ("peer", "name", "eth0", "netns", str(self.pid))
        _ip("link", "add", self._name, "type", "veth", *end, prefix=other.prefix)
        _ip("address", "add", f"{self.here}/24", "dev", self._name, prefix=other.prefix)
        _ip("address", "add", f"10.77.{number}.2/24", "dev", "eth0", prefix=self.prefix)
        _ip("link", "set", "eth0", "up", prefix=self.prefix)
        self.plug()

    def pull(self) -> None:
        """Neither end hears of it: packets are lost."""
        _ip("link", "set", self._name, "down", prefix=self._other.prefix)

    def plug(self) -> None:
        _ip("link", "set", self._name, "up", prefix=self._other.prefix)


class Network:
    """A hub and machines that reach it through one relay each, and no other way.

    With "namespaces" each is in one of its own, connected by cables; else all are on loopback. The default is
    what this machine can.
    """

    def __init__(self, bench: FleetBench, delay: float, kind: str | None = None) -> None:
        self._bench, self._delay = bench, delay
        self._stack = ExitStack()
        self.relays: dict[str, Relay] = {}
        self.spaces: dict[str, Namespace] = {}
        self.kind = kind or KIND
        if self.kind == "namespaces":
            self._hub = self._stack.enter_context(closing(Namespace()))
            bench.hub.remuda.prefix = self._hub.prefix
        bench.hub.start()
        self._stack.callback(bench.close)

    def machine(self, name: str, *roles: str) -> Machine:
        prefix: tuple[str, ...] = ()
        if self.kind == "namespaces":
            cable = self._stack.enter_context(closing(Cable(self._hub)))
            self.spaces[name] = cable
            relay = Relay(self._bench.hub.port, self._delay, cable.here, self._hub.enter)
            prefix = cable.prefix
        else:
            relay = Relay(self._bench.hub.port, self._delay)
        self.relays[name] = relay
        return self._bench.machine(name, *roles, url=relay.url, prefix=prefix)

    def close(self) -> None:
        with self._stack:
            for relay in self.relays.values():
                relay.close()


KIND = "loopback" if why_not() else "namespaces"
"""What a test of a network runs on; tests have it in their names."""
