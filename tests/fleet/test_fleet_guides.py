"""The guides about several machines, command by command: each machine is a home of its own on loopback.

A line `NAME$ COMMAND` is run as the user of that machine. Only names, ports and folders are replaced.
"""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.fleet.server import find_server
from support.commands import until_line
from support.documents import ROOT, Reader, blocks
from support.fleet import free_port
from support.heimdall_client import PATIENCE
from support.keeper import until

pytestmark = pytest.mark.timeout(400)

NOT_RUN = {"loginctl enable-linger": "it changes the system"}
ASKS = ("remuda setup ",)
"""These ask on a terminal before they write; `--yes` is what the reader answers."""


class Guide:
    """Follows a page. `replaced`: what is another name, port or folder here."""

    def __init__(self, folder: Path, page: str, machines: tuple[str, ...], replaced: dict[str, str]) -> None:
        self._folder = folder
        self._page = ROOT / "docs/how-to" / page
        self._replaced = replaced
        self._processes: list[subprocess.Popen[bytes]] = []
        self.readers: dict[str, Reader] = {}
        for name in machines:
            self.add(name)

    def add(self, name: str) -> Reader:
        (self._folder / name).mkdir()
        self.readers[name] = Reader(self._folder / name)
        return self.readers[name]

    def commands(self) -> Iterator[tuple[str, str]]:
        """Return the machine and the command of each line. Writes the files that the page shows."""
        for block in blocks(self._page):
            if block.words[0] != "text":
                continue
            if len(block.words) > 1:
                self.readers["desk"].folder.joinpath(block.words[1]).write_text(
                    self.here("\n".join(block.lines))
                )
            for line in block.lines:
                if (found := re.fullmatch(r"(\w+)\$ (.+)", line)) and found[2] not in NOT_RUN:
                    yield found[1], self.here(found[2])

    def here(self, text: str) -> str:
        for old, new in self._replaced.items():
            text = text.replace(old, new)
        return text

    def run(self, machine: str, command: str) -> str:
        """Run it to its end. As a person does, run it again if what was begun before it is not done yet."""
        if command.startswith("scp "):
            *words, target = shlex.split(command)[1:]
            host, _, place = target.partition(":")
            folder = Path(place) if place else self.readers[host].folder
            command = shlex.join(["cp", *words, str(folder)])
        if command.startswith(ASKS):
            command += " --yes"
        code, output = self.readers[machine]._run_settled(command)
        assert code == 0, f"{machine}$ {command}\nexit code {code}\n{output}"
        return output

    def begin(self, machine: str, *words: str) -> subprocess.Popen[bytes]:
        """Run one next to the others, to the end of the test."""
        reader = self.readers[machine]
        log = (reader.folder / "log").open("ab")
        begun = subprocess.Popen(words, env=reader.env, cwd=reader.folder, stdout=subprocess.PIPE, stderr=log)
        log.close()
        self._processes.append(begun)
        return begun

    def close(self) -> None:
        for reader in self.readers.values():
            reader.close()
        for one in self._processes:
            one.terminate()
            one.communicate(timeout=PATIENCE)


def test_a_server_and_two_laptops(home: Path) -> None:
    port = free_port()
    there = {"tls://build7:4222": f"tls://127.0.0.1:{port}", "/srv/api": str(home / "build7" / "api")}
    guide = Guide(home, "use-several-machines.md", ("build7", "desk", "travel"), there)
    (home / "build7" / "api").mkdir()
    ran, joins = [], []
    try:
        for machine, command in guide.commands():
            ran.append(command)
            if command.startswith("remuda fleet serve"):
                serving = guide.begin(
                    machine, *command.split(), "--name", "build7", "--listen", f"127.0.0.1:{port}"
                )
                joins += [until_line(serving, b"fleet join").decode().strip() for _ in ("desk", "travel")]
                until_line(serving, b"fleet keys new NAME")
                continue
            if command.startswith("remuda approve"):
                guide.run("desk", "remuda send build7/work 'RUNBASH touch made'")
                until(lambda: "touch made" in guide.run("desk", "remuda queue"), "the request in the queue")
            output = guide.run(machine, command)
            if command.startswith("remuda start"):
                until(lambda: "build7  work" in guide.run("travel", "remuda ls"), "the session in the list")
            if command.startswith("remuda send"):
                assert "REPLY#1 to: add a changelog line" in output
            if command.startswith("remuda approve"):
                until((home / "build7" / "api" / "made").exists, "what was allowed")
    finally:
        guide.close()
    assert len(ran) > 20, ran
    assert joins == [one for one in ran if one.startswith("remuda fleet join")]  # it printed what they ran


class Servers:
    """The servers of the guide, on ports of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {f"n{at}": (free_port(), free_port()) for at in (1, 2, 3)}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def guide(self) -> Guide:
        there = {"subjectAltName=DNS:n1,DNS:n2,DNS:n3": "subjectAltName=IP:127.0.0.1"}
        for name, (port, route) in self._ports.items():
            there |= {f"{name}:4222": f"127.0.0.1:{port}", f"{name}:6222": f"127.0.0.1:{route}"}
            there[f"{name}:/etc/nats/"] = f"{name}:{self._folder / name / 'etc'}"
        made = Guide(self._folder, "run-three-servers.md", ("desk", "build7", *self._ports), there)
        for name in self._ports:
            (self._folder / name / "etc").mkdir()
            (self._folder / name / "data").mkdir()
        return made

    def start(self, guide: Guide, name: str) -> None:
        """As the page says, with the ports and folders of this one."""
        config, port = self._folder / name / "etc" / "nats.conf", self._ports[name]
        text = self.own(name, config.read_text())
        text = text.replace("0.0.0.0:4222", f"127.0.0.1:{port[0]}")
        config.write_text(text.replace("0.0.0.0:6222", f"127.0.0.1:{port[1]}"))
        self._running[name] = guide.begin(name, find_server(), "-c", str(config))
        until(lambda: _answers(port[0]), f"{name} to answer")

    def own(self, name: str, text: str) -> str:
        text = text.replace("/etc/nats", str(self._folder / name / "etc"))
        return text.replace("/var/lib/nats", str(self._folder / name / "data"))

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running[name].wait(PATIENCE)


def test_three_servers_that_may_not_fall(home: Path) -> None:
    servers = Servers(home)
    guide = servers.guide()
    ran = []
    try:
        for machine, command in guide.commands():
            ran.append(command)
            if command.startswith("nats-server -c"):
                servers.start(guide, machine)
                continue
            if command.startswith("remuda start work"):
                servers.kill("n1")
            if command.startswith("remuda fleet keys new travel"):
                servers.start(guide, "n1")
            command = servers.own(machine, command).replace("nats-server ", f"{find_server()} ")
            output = guide.run(machine, command)
            if command.startswith("remuda send"):
                assert "REPLY#1 to: are you there?" in output
        guide.add("travel")  # the servers have read its key
        guide.run("desk", "scp travel.key travel:")
        url = guide.here("tls://n2:4222,tls://n1:4222,tls://n3:4222")
        assert "joined as travel" in guide.run("travel", f"remuda fleet join {url} --key travel.key")
        servers.kill("n1")
        servers.kill("n2")
        until(
            lambda: guide.readers["desk"].run("remuda send build7/work 'lost?'")[0] != 0,
            "a message that two lost servers cannot confirm",
        )
    finally:
        guide.close()
    assert len(ran) > 25, ran


def _answers(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
