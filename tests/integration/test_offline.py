"""Commands run with loopback as their only network."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from remuda.testing.offline import CLOSED_PROXY, closed_proxies, is_offline, proxies_closed
from support.namespaces import Cable, Namespace, why_not

OFFLINE = [sys.executable, "-m", "remuda.testing.offline", "--"]

needs_namespace = pytest.mark.skipif(not is_offline(), reason="no network namespaces on this system")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*OFFLINE, *command], capture_output=True, text=True, timeout=30, check=False)


@needs_namespace
def test_offline_command_keeps_user_and_finds_loopback_alone() -> None:
    code = (
        "import os, socket\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(server.getsockname())\n"
        "print(os.geteuid())\n"
    )
    done = run(sys.executable, "-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{os.geteuid()}\n", "")


@needs_namespace
def test_offline_other_addresses_cannot_be_reached() -> None:
    with socket.socket() as outward, pytest.raises(OSError) as caught:
        outward.connect(("192.0.2.1", 80))
    assert caught.value.errno == errno.ENETUNREACH


@needs_namespace
def test_offline_inside_offline_stays_in_its_namespace() -> None:
    here = str(Path("/proc/self/ns/net").readlink())
    assert run("readlink", "/proc/self/ns/net").stdout.strip() == here


ROUTES_OUT = [
    ("route", "{0}", "10.0.0.0/8", "via", "10.77.{1}.1"),
    ("route", "{0}", "default", "dev", "eth0"),
    ("-6", "route", "{0}", "default", "dev", "eth0"),
]


def test_a_cable_between_namespaces_is_offline_until_it_has_a_route_out() -> None:
    if why := why_not():
        pytest.skip(f"NOT TESTED: no network namespaces ({why})")
    with closing(Namespace()) as hub, closing(Cable(hub)) as machine:
        network = machine.here.split(".")[2]
        assert (hub.call(is_offline), machine.call(is_offline)) == (True, True)
        for words in ROUTES_OUT:
            for verb, offline in (("add", False), ("del", True)):
                route = [one.format(verb, network) for one in words]
                subprocess.run([*machine.prefix, "ip", *route], check=True)
                assert machine.call(is_offline) is offline, route


@pytest.mark.parametrize(("command", "status"), [(["no-such-command"], 127), (["/"], 126), ([], 2)])
def test_offline_command_that_cannot_run_gives_the_shells_status(command: list[str], status: int) -> None:
    done = run(*command)
    assert done.returncode == status
    assert done.stderr.strip()


def test_offline_status_is_the_commands_own() -> None:
    assert run("sh", "-c", "exit 7").returncode == 7


def test_closed_proxies_leave_loopback_open() -> None:
    variables = closed_proxies()
    assert proxies_closed(variables)
    assert not proxies_closed({})
    assert variables["https_proxy"] == CLOSED_PROXY
    assert variables["NO_PROXY"] == variables["no_proxy"] == "127.0.0.1,localhost"
