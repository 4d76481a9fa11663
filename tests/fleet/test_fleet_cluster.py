"""A cluster of three servers that someone else runs: its leader is killed, and no message is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.fleet.hub import Hub
from remuda.fleet.membership import Membership
from remuda.fleet.server import find_server
from support.fleet import FleetBench, Machine, free_port
from support.heimdall_client import PATIENCE
from support.keeper import until

pytestmark = pytest.mark.timeout(400)


class Cluster:
    """Three servers with the keys of one hub folder."""

    def __init__(self, bench: FleetBench, names: dict[str, tuple[str, ...]]) -> None:
        self._hub = bench.hub
        self._folder = bench.folder / "cluster"
        self._folder.mkdir()
        self._hub.remuda("fleet", "config")
        for name, roles in names.items():
            self._hub.new_key(name, *roles)
        self.ports = [free_port() for _ in range(3)]
        self.url = ",".join(f"tls://127.0.0.1:{port}" for port in self.ports)
        routes = [free_port() for _ in range(3)]
        accounts = json.loads(self._hub.remuda("fleet", "config").out)
        files = self._hub.folder
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        for number, (port, route) in enumerate(zip(self.ports, routes, strict=True)):
            config = {
                **accounts,
                "server_name": f"s{number}",
                "listen": f"127.0.0.1:{port}",
                "max_payload": 8 << 20,
                "log_file": str(self._folder / f"s{number}.log"),
                "tls": {"cert_file": str(files.certificate), "key_file": str(files.private_key)},
                "jetstream": {"store_dir": str(self._folder / f"s{number}"), "sync_interval": "always"},
                "cluster": {
                    "name": "three",
                    "listen": f"127.0.0.1:{route}",
                    "routes": [f"nats://127.0.0.1:{other}" for other in routes],
                },
            }
            path = self._folder / f"s{number}.conf"
            path.write_text(json.dumps(config))
            self._servers[f"s{number}"] = subprocess.Popen([find_server(), "-c", str(path)])

    def prepare(self) -> None:
        """Make the streams, as soon as the servers have agreed on a leader."""
        words = ("fleet", "prepare", "--url", self.url, "--replicas", "3")

        def try_it() -> bool:
            begun = self._hub.remuda.begin(*words)
            begun.communicate(timeout=PATIENCE)
            return begun.returncode == 0

        until(try_it, "the streams on three servers")

    def stream(self, name: str) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            hub = await Hub.connect(Membership(self._hub.folder.admin().key, self.url, ""))
            try:
                answer = await hub._client.request(f"$JS.API.STREAM.INFO.{name}", b"", timeout=5)
                document: dict[str, Any] = json.loads(answer.data)
                return document
            finally:
                await hub.close()

        return asyncio.run(ask())

    def kill(self, name: str) -> None:
        server = self._servers.pop(name)
        os.kill(server.pid, signal.SIGKILL)
        server.wait(PATIENCE)

    def close(self) -> None:
        for name in list(self._servers):
            self.kill(name)


@pytest.fixture
def cluster(home: Path) -> Iterator[tuple[FleetBench, Cluster]]:
    bench = FleetBench(home)
    made = Cluster(bench, {"desk": ("operator",), "build7": ("host",)})
    try:
        made.prepare()
        yield bench, made
    finally:
        bench.close()
        made.close()


def join(bench: FleetBench, cluster: Cluster, name: str) -> Machine:
    machine = Machine(bench.folder / name, name)
    bench.machines.append(machine)
    machine.boss_up()
    machine.remuda("fleet", "join", cluster.url, "--key", str(bench.hub.remuda.cwd / f"{name}.key"))
    machine.until_connected()
    return machine


def test_the_leader_of_three_servers_is_killed_and_no_message_is_lost(
    cluster: tuple[FleetBench, Cluster],
) -> None:
    bench, servers = cluster
    desk, build = (join(bench, servers, name) for name in ("desk", "build7"))
    build.start("work")
    desk.until_session("build7", "work")
    config = servers.stream("INBOX")["config"]
    assert config["num_replicas"] == 3
    sent = [desk.send("build7/work", f"number {at}") for at in range(2)]
    leader = servers.stream("INBOX")["cluster"]["leader"]
    servers.kill(leader)
    until(lambda: new_leader(servers, leader), "another leader")
    desk.until_connected()
    desk.until_host("build7")
    sent += [desk.send("build7/work", f"number {at}") for at in range(2, 4)]
    for message in sent:
        desk.until_stage(message, "acked")
    assert build.prompts("work") == [f"number {at}" for at in range(4)]


def new_leader(cluster: Cluster, before: str) -> bool:
    try:
        return cluster.stream("INBOX")["cluster"]["leader"] not in (None, before)
    except Exception:  # noqa: BLE001  # no server answers for a moment
        return False
