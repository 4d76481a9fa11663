"""Hub, link, bosses, keepers, agents, senders die at random: each message and request ends once, truthfully.

Run with REMUDA_SOAK=1 for at least 300 messages and 200 requests, and then with the leader of three servers
among the dead.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from remuda.keeper.claim import read_holder
from remuda.paths import SessionPaths
from support import counts
from support.fleet import FleetBench, Relay
from support.fleet_chaos import FleetJudge
from support.fleet_cluster import Cluster
from support.keeper import Process, until

_MESSAGES, _REQUESTS = 4, 4
_SESSIONS = (("build7", "work"), ("build7", "asks"), ("build8", "asks"))


class Chaos:
    """A machine that sends, and two that run agents; the link of the first of these can be cut."""

    def __init__(self, bench: FleetBench, cluster: Cluster | None) -> None:
        self._rng = random.Random(17)
        self._hub, self._cluster = bench.hub, cluster
        if cluster is None:
            self.relay = Relay(bench.hub.port)
            self.desk = bench.machine("desk", "operator")
            self.build = bench.machine("build7", "host", url=self.relay.url)
            self.other = bench.machine("build8", "host")
        else:
            self.relay = Relay(cluster.ports)
            self.desk, self.other = cluster.join("desk"), cluster.join("build8")
            self.build = cluster.join("build7", self.relay.url)
        self.machines = {one.name: one for one in (self.build, self.other)}
        for host in self.machines.values():
            host.remuda.may_complain = host.may_complain = True
            words = ("--demo", "--fleet", "--detach", "--size", "2", "--prewarm", "0")
            host.remuda("pool", "serve", *words)
        for where, session in _SESSIONS:
            self.machines[where].start(session)
            self.desk.until_session(where, session)
        until(lambda: sum(one["pool"] for one in self.desk.status()["hosts"]) == 2, "two pools")
        self.judge = FleetJudge(self.desk, self.build, self.other)

    # ── what is sent ──

    def send(self, number: int) -> None:
        for at in range(_MESSAGES * number, _MESSAGES * (number + 1)):
            self.judge.send("build7/work", f"message-{at:05}-end")

    def request(self, number: int) -> None:
        for at in range(_REQUESTS * number, _REQUESTS * (number + 1)):
            self.judge.request(f"request-{at:05}-end")

    def ask(self, number: int) -> None:
        """Have an agent request a permission, and decide what is open then."""
        host = ("build7", "build8")[number % 2]
        self.judge.send(f"{host}/asks", f"RUNBASH touch made-{number:05}")
        self.judge.decide()

    # ── what dies ──

    def kill_hub(self) -> None:
        if self._cluster is None:
            self._hub.end(signal.SIGKILL)
            self._hub.start()
            return
        for name in (names := self._cluster.names):
            self._cluster.kill(name)
        for name in names:
            self._cluster.start(name)
        self._cluster.until_leader()

    def kill_leader(self) -> None:
        assert self._cluster is not None
        leader = self._cluster.leader()
        self._cluster.kill(leader)
        self._cluster.until_leader(leader)
        self._cluster.start(leader)

    def kill_host(self) -> None:
        self.build.boss_end(signal.SIGKILL)
        self.build.boss_up()

    def kill_other_host(self) -> None:
        self.other.boss_end(signal.SIGKILL)
        self.other.boss_up()

    def kill_keeper(self) -> None:
        host, session = self._rng.choice(_SESSIONS)
        self.machines[host].remuda.kill_keeper(session)
        self.resume(host, session)

    def cut_link(self) -> None:
        begun = time.monotonic()
        self.relay.stall()
        self.desk.until_host("build7", reachable=False)  # after the lease of its name
        time.sleep(max(0.0, begun + counts.LINK_CUT - time.monotonic()))
        self.relay.cut()
        self.relay.mend()

    def kill_agent(self) -> None:
        host, session = self._rng.choice(_SESSIONS)
        shown = self.machines[host].remuda("show", session, "--json").out
        self._kill(int(json.loads(shown)["pid"]))
        self.resume(host, session)

    def kill_pool_agent(self) -> None:
        """Kill one that runs a request, if there is one."""
        agents = [pid for host in self.machines.values() for pid in host.pool_agents()]
        if agents:
            with suppress(ProcessLookupError):  # it has just ended
                self._kill(self._rng.choice(agents))

    def _kill(self, pid: int) -> None:
        agent = Process(pid)
        agent.kill()
        agent.close()

    def kill_sender(self) -> None:
        self.desk.boss_end(signal.SIGKILL)
        self.desk.boss_up()

    def kill_command(self) -> None:
        for begun in self.desk.remuda._running[-2:]:
            begun.kill()

    def resume(self, host: str, session: str) -> None:
        machine = self.machines[host]
        paths = SessionPaths.of(session, machine.remuda.sessions)
        until(lambda: read_holder(paths) is None, "the end of its keeper")
        machine.remuda("start", session, "--resume", "--detach")

    @property
    def victims(self) -> list[Callable[[], None]]:
        """All kinds of deaths."""
        first = [self.kill_hub, self.kill_host, self.kill_keeper, self.cut_link, self.kill_agent]
        more = [self.kill_sender, self.kill_command, self.kill_other_host, self.kill_pool_agent]
        return [*first, *more, *([self.kill_leader] if self._cluster else [])]

    def rage(self, deaths: int) -> None:
        """Send, and let one thing after the other die meanwhile."""
        with ThreadPoolExecutor(2) as beside:
            for number in range(deaths):
                begun = [beside.submit(self.send, number), beside.submit(self.ask, number)]
                self.request(number)
                time.sleep(self._rng.uniform(0.0, 2.0))  # anywhere in what runs
                self.victims[number % len(self.victims)]()
                for one in begun:
                    one.result()
                self.desk.until_connected()
                for host in self.machines:
                    self.desk.until_host(host)

    def close(self) -> None:
        for host in (self.build, self.other):
            host.remuda("pool", "stop")
        self.relay.close()


@pytest.fixture(params=[1, 3] if counts.SOAK else [1], ids="servers-{}".format)
def chaos(home: Path, request: pytest.FixtureRequest) -> Iterator[Chaos]:
    bench = FleetBench(home)
    cluster = None
    try:
        if request.param == 3:
            cluster = Cluster(bench, {"desk": ("operator",), "build7": ("host",), "build8": ("host",)})
            cluster.prepare()
        else:
            bench.hub.start()
        made = Chaos(bench, cluster)
        yield made
        made.close()
    finally:
        try:
            bench.close()
        finally:
            if cluster is not None:
                cluster.close()


@pytest.mark.soak
@pytest.mark.timeout(900 if not counts.SOAK else 7200)
def test_whatever_dies_every_message_decision_and_request_ends_once(
    chaos: Chaos, request: pytest.FixtureRequest
) -> None:
    chaos.rage(counts.FLEET_CHAOS)
    chaos.judge.settle()
    figures = chaos.judge.figures()
    kept = request.config.rootpath / "build" / "fleet-chaos.txt"  # a worker of xdist has no terminal
    kept.parent.mkdir(exist_ok=True)
    with kept.open("a") as file:
        file.write(f"{request.node.name}: {counts.FLEET_CHAOS} deaths: {figures}\n")
    assert chaos.judge.faults() == []
    # So that this is no test of refusals: 300 messages, 200 answers and half of the decisions in a soak.
    assert figures["messages"] == counts.FLEET_CHAOS * (_MESSAGES + 1)
    assert figures["accepted"] >= counts.FLEET_CHAOS * 300 // 77
    assert figures["answered"] >= counts.FLEET_CHAOS * 200 // 77
    assert figures["decided"] >= counts.FLEET_CHAOS // 2
