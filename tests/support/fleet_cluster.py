"""A cluster of three servers that someone else than Remuda runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from typing import Any

from remuda.fleet.hub import Hub
from remuda.fleet.membership import Membership
from remuda.fleet.server import find_server
from support.fleet import FleetBench, Machine, free_port
from support.heimdall_client import PATIENCE
from support.keeper import until


class Cluster:
    """Three servers with the keys of one hub folder."""

    def __init__(self, bench: FleetBench, names: dict[str, tuple[str, ...]]) -> None:
        self._bench, self._hub = bench, bench.hub
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
            self.start(f"s{number}")

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

    @property
    def names(self) -> list[str]:
        """Those that run."""
        return list(self._servers)

    def leader(self) -> str:
        """The server that decides about messages."""
        return str(self.stream("INBOX")["cluster"]["leader"])

    def until_leader(self, before: str = "") -> None:
        """Wait until one leads, and not the one that led before."""

        def look() -> bool:
            try:
                return self.leader() not in ("None", before)
            except Exception:  # noqa: BLE001  # no server answers for a moment
                return False

        until(look, "a leader")

    def join(self, name: str, url: str | None = None) -> Machine:
        """Start the machine of a key, which joins the three servers."""
        machine = self._bench.bare_machine(name)
        machine.boss_up()
        key = str(self._hub.remuda.cwd / f"{name}.key")
        machine.remuda("fleet", "join", url or self.url, "--key", key)
        machine.until_connected()
        return machine

    def start(self, name: str) -> None:
        self._servers[name] = subprocess.Popen([find_server(), "-c", str(self._folder / f"{name}.conf")])

    def kill(self, name: str) -> None:
        server = self._servers.pop(name)
        os.kill(server.pid, signal.SIGKILL)
        server.wait(PATIENCE)

    def close(self) -> None:
        for name in self.names:
            self.kill(name)
