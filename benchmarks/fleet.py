"""A fleet of 100 hosts with 100 sessions each on one real hub, all on this machine.

The hosts are those of `fleet_hosts`; the operator who follows them is this process, with the product's own
`EventFollower` and `RemoteHosts`. The floor is `nats-py` alone, in turns with ours: publish into a stream
with the same settings and fetch from it, on as many connections, at the same rate.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.fleet_hosts import FLOOR, SESSIONS
from benchmarks.report import Report, Target, percentile
from benchmarks.scene import Scene, bounded, cpu_seconds, memory_bytes

from remuda.fleet.events import EventFollower
from remuda.fleet.hub import Hub
from remuda.fleet.hub_folder import HubFolder
from remuda.fleet.hub_types import Stored
from remuda.fleet.membership import Membership, write_key
from remuda.fleet.remote import RemoteHosts
from remuda.fleet.subjects import EVENTS, Role
from remuda.fleet.subjects import SESSIONS as SESSIONS_STREAM

_HOSTS = 100
_PROCESSES = 2
_RATE = 200
_SLICE = 2.5
"""Seconds of ours, then of the floor."""
_IDLE = 70.0
"""Longer than the minute after which one who follows looks for what it missed."""
_AWAY = 3600
_MISSED = 4000
"""Events that are caught up with. An hour has 720,000, which would take longer to make than all the rest."""
_MESSAGES = 40
_RECEIVERS = 4
_PATIENCE = 90.0
_SETTLE = 2.0
_TWICE = Target("<=", 2)
_NOTHING = Target("<=", 0.5)
_LINEAR = Target("<=", 1.25)
_MB = 1e6


def measure(scene: Scene, report: Report, rounds: int) -> None:
    with bounded(900.0, "the fleet"), _rooms(scene) as (disk, memory):
        made = HubFolder(memory / "hub")
        made.make(("127.0.0.1", free_port()))
        for name in (f"h{number}" for number in range(_HOSTS)):
            write_key(memory / f"{name}.key", made.new_key(name, (Role.HOST,)))
        operator = made.new_key("desk", (Role.OPERATOR,))
        folder = HubFolder(disk / "fleet" / "hub")
        shutil.copytree(made.path, folder.path)  # `fleet serve` writes the configuration anew
        with serving(scene, disk, folder) as pid:
            asyncio.run(
                _play(report, rounds, folder, Membership(operator, folder.own_url, "desk"), pid, memory)
            )


@contextlib.contextmanager
def _rooms(scene: Scene) -> Iterator[tuple[Path, Path]]:
    """A folder on the disk, and one in memory for the hosts: each would have a disk of its own."""
    shm = Path("/dev/shm")
    memory = Path(tempfile.mkdtemp(prefix="rb", dir=shm if os.access(shm, os.W_OK) else scene.folder))
    disk = scene.folder / scene.name("fleet")
    disk.mkdir()
    try:
        yield disk, memory
    finally:
        shutil.rmtree(memory, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def serving(scene: Scene, home: Path, folder: HubFolder, prefix: tuple[str, ...] = ()) -> Iterator[int]:
    """`remuda fleet serve`; gives the process of nats-server."""
    command = [*prefix, sys.executable, "-m", "remuda", "fleet", "serve", "--no-join"]
    with (home / "serve.log").open("wb") as log:
        server = subprocess.Popen(
            command, env={**scene.env, "REMUDA_HOME": str(home)}, stdout=log, stderr=log
        )
    try:
        while b"keys new NAME" not in (home / "serve.log").read_bytes():
            if server.poll() is not None:
                raise RuntimeError(f"no hub: {(home / 'serve.log').read_text()}")
            time.sleep(0.02)
        pid = folder.server_pid()
        assert pid is not None
        yield pid
    finally:
        server.terminate()
        server.wait()


class _Processes:
    """The processes with the hosts, which do what they are told together."""

    def __init__(self, folder: HubFolder, memory: Path) -> None:
        keys = sorted(str(one) for one in memory.glob("h*.key"))
        program = Path(__file__).with_name("fleet_hosts.py")
        self._processes = [
            subprocess.Popen([sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(_PROCESSES)
        ]
        disk = folder.path.parent / "hosts"
        disk.mkdir()
        for number, one in enumerate(self._processes):
            begin = {"memory": str(memory), "disk": str(disk)}
            self._tell(one, {**begin, "hub": str(folder.path), "keys": keys[number::_PROCESSES]})

    def _tell(self, process: subprocess.Popen[bytes], order: dict[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()

    async def do(self, what: str, **options: Any) -> list[Any]:
        for one in self._processes:
            self._tell(one, {"do": what, **options})
        return await asyncio.gather(*(asyncio.to_thread(self._answer, one) for one in self._processes))

    def _answer(self, process: subprocess.Popen[bytes]) -> Any:
        assert process.stdout is not None
        if not (line := process.stdout.readline()):
            raise RuntimeError("a process with hosts has ended")
        return json.loads(line)

    async def times(self, what: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for one in await self.do("times"):
            found |= one[what]
        return found

    def cpu(self) -> float:
        return sum(cpu_seconds(one.pid) for one in self._processes)

    def close(self) -> None:
        for one in self._processes:
            assert one.stdin is not None
            one.stdin.close()
            one.wait()


class _TimedRemote(RemoteHosts):
    """Notes when the queue has an item, by the id of the event that made it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.queued_at: dict[str, float] = {}

    def _take(self, hub: Hub, stored: Stored) -> None:
        super()._take(hub, stored)
        if b'"item": {' in stored.data:
            event = str(json.loads(stored.data)["item"]["message"]).partition(" ")[0]
            self.queued_at.setdefault(event, time.monotonic())


class _Desk:
    """The operator. Notes when its list has an event."""

    def __init__(self, member: Membership, folder: Path) -> None:
        self._member = member
        self._follower = EventFollower(folder)
        self.remote = _TimedRemote(folder)
        self.listed_at: dict[str, float] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self._following: list[asyncio.Task[Any]] = []
        self.hub: Hub | None = None

    async def connect(self) -> None:
        """Connect anew. It has just read all sessions then."""
        await self.close()
        self.hub = await Hub.connect(self._member)
        await self.hub.measure()
        self._tasks = [asyncio.create_task(self.remote.run(self.hub))]
        async with asyncio.timeout(_PATIENCE):
            await self.remote.is_loaded.wait()

    def follow(self) -> None:
        assert self.hub is not None
        self._following = [asyncio.create_task(self._follower.run(self.hub))]
        self._following.append(asyncio.create_task(self._watch()))

    async def _watch(self) -> None:
        position = (await self._follower.listing(0, 0, 0))["position"]
        while True:
            found = await self._follower.listing(position, 60, 10_000)
            now, position = time.monotonic(), found["position"]
            for one in found["events"]:
                self.listed_at[one["id"]] = now

    async def has(self, events: Iterable[str]) -> None:
        """Wait until the list has them all."""
        missing = set(events)
        async with asyncio.timeout(_PATIENCE):
            while missing := missing - self.listed_at.keys():
                self._check()
                await asyncio.sleep(0.1)

    async def knows(self, sessions: int) -> None:
        async with asyncio.timeout(_PATIENCE):
            while len(self.remote._sessions) < sessions:
                self._check()
                await asyncio.sleep(0.1)

    def _check(self) -> None:
        for task in self._tasks + self._following:
            if task.done():
                task.result()

    async def stop_following(self) -> None:
        await _end(self._following)

    async def close(self) -> None:
        await _end(self._following + self._tasks)
        if self.hub is not None:
            await self.hub.close()


async def _end(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Floor:
    """`nats-py` alone: a stream with the settings of that for events, and a consumer that is fetched from."""

    def __init__(self, hub: Hub) -> None:
        self._jetstream = hub._jetstream
        self.delays: list[float] = []
        self._fetched = asyncio.Event()

    async def open(self) -> None:
        known = (await self._jetstream.stream_info(EVENTS)).config
        await self._jetstream.add_stream(known.evolve(name=FLOOR, subjects=["floor.*"]))
        found = (await self._jetstream.consumer_info(EVENTS, "desk")).config
        await self._jetstream.add_consumer(FLOOR, found.evolve(filter_subject="floor.*"))

    async def fetch(self) -> None:
        """Fetch until cancelled."""
        queue = await self._jetstream.pull_subscribe_bind(consumer="desk", stream=FLOOR)
        while True:
            with contextlib.suppress(TimeoutError):
                (message,) = await queue.fetch(1, timeout=5)
                at = json.loads(message.data)["at"]
                self.delays.append((time.monotonic() - at) * 1000)
                self._fetched.set()
                await message.ack()

    async def publish(self) -> float:
        """One, and the milliseconds until it was fetched."""
        self._fetched.clear()
        await self._jetstream.publish("floor.desk", json.dumps({"at": time.monotonic()}).encode())
        await self._fetched.wait()
        return self.delays[-1]


async def _play(
    report: Report, rounds: int, folder: HubFolder, member: Membership, pid: int, memory: Path
) -> None:
    desk, processes = _Desk(member, folder.path.parent / "desk"), _Processes(folder, memory)
    admin = await Hub.connect(folder.admin())
    floor = _Floor(admin)
    await floor.open()
    fetching = asyncio.create_task(floor.fetch())
    try:
        await processes.do("connect")
        idle = await _at_rest(report, desk, processes, pid)
        await _events(report, rounds, desk, processes, floor, pid)
        await _growth(report, desk, processes, pid, idle)
        await _messages(report, rounds, desk, processes, floor)
        await _catch_up(report, desk, processes)
    finally:
        await _end([fetching])
        await admin.close()
        await desk.close()
        processes.close()


async def _hub_share(pid: int, seconds: float) -> float:
    """Of one core."""
    before, at = cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - at)


async def _at_rest(report: Report, desk: _Desk, processes: _Processes, pid: int) -> float:
    """Gives the share of one core that the hub uses then."""
    report.title(f"A hub with {_HOSTS} hosts at rest, over {_IDLE:g} s")
    sessions = _HOSTS * SESSIONS
    found: list[float] = []
    for name in ("without sessions", f"with {sessions} idle sessions"):
        if found:
            await processes.do("start_sessions")
            await desk.knows(sessions)
        await desk.connect()
        await asyncio.sleep(_SETTLE)
        found.append(await _hub_share(pid, _IDLE))
        rss = memory_bytes(pid)[0] / _MB
        report.add(f"hub {name}: of one core", 100 * found[-1], "%", note=f"RSS {rss:.0f} MB")
    added = 100 * (found[1] - found[0])
    report.add("added by the idle sessions: of one core", added, "%", _NOTHING)
    assert desk.hub is not None
    before = cpu_seconds(pid)
    count = len(await desk.hub.load_all(SESSIONS_STREAM, "$KV.sessions.*.*"))
    spent = (cpu_seconds(pid) - before) * 1000
    report.add(
        "hub, one who follows reads all sessions: processor",
        spent,
        "ms",
        note=f"{count}, at the beginning and each half hour",
    )
    return found[1]


async def _events(
    report: Report, rounds: int, desk: _Desk, processes: _Processes, floor: _Floor, pid: int
) -> None:
    report.title(
        f"{_RATE} events a second of {_HOSTS} hosts with {SESSIONS} sessions each; the floor in turns"
    )
    desk.follow()
    taken: dict[str, list[float]] = {"event to list": [], "event to queue": []}
    used, follower, hosts = [], [], []
    for _ in range(2 * rounds):
        await processes.do("bare", rate=_RATE / _PROCESSES, seconds=_SLICE)
        hub, own, others = cpu_seconds(pid), time.process_time(), processes.cpu()
        at = time.monotonic()
        sent = await _pour(desk, processes, _RATE, _SLICE)
        used.append((cpu_seconds(pid) - hub) / (time.monotonic() - at) * 100)
        follower.append((time.process_time() - own) / len(sent) * 1e6)
        hosts.append((processes.cpu() - others) / len(sent) * 1e6)
        for name, came in (("event to list", desk.listed_at), ("event to queue", desk.remote.queued_at)):
            taken[name] += [(came[one] - at) * 1000 for one, at in sent.items() if one in came]
    report.median("hub: of one core", used, "%")
    report.add("hub: RSS", memory_bytes(pid)[0] / _MB, "MB")
    report.median("processor time of the one who follows, an event", follower, "us")
    report.median("processor time of its host, an event", hosts, "us", "with the boss of the host")
    for share in (0.5, 0.99):
        mark = f"p{share * 100:.0f}"
        bare = percentile(floor.delays, share)
        report.add(f"floor: publish to fetch, {mark}", bare, "ms", note=f"{len(floor.delays)} events")
        for name, some in taken.items():
            value = percentile(some, share)
            report.add(f"{name}, {mark}", value, "ms", note=f"{len(some)} events")
            report.add(f"{name} / floor, {mark}", value / bare, "x", _TWICE)
    for name, some in {"floor: publish to fetch": floor.delays, **taken}.items():
        report.measurements[name] = [round(one, 3) for one in some]


async def _pour(desk: _Desk, processes: _Processes, rate: float, seconds: float) -> dict[str, float]:
    """Make events, and wait until the list has them all. Gives when each was on the disk of its host."""
    await processes.do("events", rate=rate / _PROCESSES, seconds=seconds)
    sent = await processes.times("events")
    await desk.has(sent)
    return sent


async def _growth(report: Report, desk: _Desk, processes: _Processes, pid: int, idle: float) -> None:
    spent: dict[int, float] = {}
    for rate in (_RATE // 2, 2 * _RATE):
        before, at = cpu_seconds(pid), time.monotonic()
        count = len(await _pour(desk, processes, rate, 2 * _SLICE))
        spent[rate] = (cpu_seconds(pid) - before - idle * (time.monotonic() - at)) / count * 1e6
        report.add(f"hub, {rate} events a second: processor, an event", spent[rate], "us")
    name = f"an event at {2 * _RATE} / at {_RATE // 2} a second, processor of the hub"
    report.add(name, spent[2 * _RATE] / spent[_RATE // 2], "x", _LINEAR)


async def _messages(report: Report, rounds: int, desk: _Desk, processes: _Processes, floor: _Floor) -> None:
    report.title("A message to the disk of its host; the floor in turns", "ssh HOST tmux send-keys")
    bare, sent = [], {}
    assert desk.hub is not None
    for number in range(rounds * _MESSAGES + _RECEIVERS):
        bare.append(await floor.publish())
        at = time.monotonic()
        answer = await desk.remote.send(desk.hub, f"h{number % _RECEIVERS}", "box", "go on", {})
        if number >= _RECEIVERS:  # the first makes the files of the inbox
            sent[answer["id"]] = at
    put = await processes.times("messages")
    low = report.median("floor: publish to fetch, p50", bare, "ms")
    taken = [(put[one] - at) * 1000 for one, at in sent.items()]
    high = report.median("send to the disk of the host, p50", taken, "ms")
    report.add("send to the disk of the host / floor, p50", high / low, "x", _TWICE)


async def _catch_up(report: Report, desk: _Desk, processes: _Processes) -> None:
    title = f"Catching up with what came while no one followed: {_MISSED} events"
    report.title(title, "the logs of each machine, over ssh")
    await desk.stop_following()
    await processes.do("events", rate=_MISSED / _PROCESSES, seconds=1)
    sent = await processes.times("events")
    begin, own = time.monotonic(), time.process_time()
    desk.follow()
    await desk.has(sent)
    own = time.process_time() - own
    came = sorted(desk.listed_at[one] - begin for one in sent)
    rate = len(came) / came[-1]
    report.add("events a second", rate, "/s")
    report.add("processor time, an event", own / len(came) * 1e6, "us")
    half = came[len(came) // 2]
    report.add("second half / first half", (came[-1] - half) / half, "x", note="1 is linear")
    whole = _RATE * _AWAY
    report.add(f"so an hour away ({whole} events)", whole / rate, "s", note="from the rate above")
