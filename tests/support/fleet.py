"""Machines of a fleet, each with its own home and boss, and a hub: the product's own commands and the real
nats-server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from remuda.boss.client import BossClient
from remuda.boss.folder import BossFolder
from remuda.fleet.hub_folder import HubFolder
from remuda.fleet.membership import Membership, read_key
from remuda.keeper.claim import read_holder
from remuda.paths import SessionPaths
from support.commands import Commands, until_line
from support.heimdall_client import PATIENCE
from support.keeper import Process, until

T = TypeVar("T")
_PIECES_UNDER_WAY = 1000


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class HubMachine:
    """A machine that runs the hub, and nothing else."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.remuda = Commands(folder)
        self.folder = HubFolder(folder / "fleet" / "hub")
        self.port = free_port()
        self.listen = "127.0.0.1"
        self.url = f"tls://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        listen = ("--listen", f"{self.listen}:{self.port}", "--no-join")
        self._process = self.remuda.begin("fleet", "serve", *listen)
        until_line(self._process, b"fleet keys new NAME")

    def end(self, number: int = signal.SIGTERM) -> None:
        """SIGKILL is for the server itself; the command that started it ends then."""
        assert self._process is not None
        if number == signal.SIGKILL:
            pid = self.folder.server_pid()
            assert pid is not None
            os.kill(pid, number)
        else:
            self._process.send_signal(number)
        self._process.communicate(timeout=PATIENCE)
        self._process = None

    def new_key(self, name: str, *roles: str) -> Path:
        words = [word for role in roles for word in ("--role", role)]
        path = self.remuda.cwd / f"{name}.key"
        self.remuda("fleet", "keys", "new", name, "--out", str(path), *words)
        return path

    def member(self, key: Path) -> Membership:
        """A member with that key, for connections of the test itself."""
        return Membership(read_key(key), self.url, "machine")

    def close(self) -> None:
        if self._process is not None:
            self.end()
        self.remuda.close()


class Machine:
    """A machine with a boss and sessions of scripted agents."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir()
        self.name = name
        self.remuda = Commands(folder)
        own = {"CLAUDE_CONFIG_DIR": str(folder / "claude"), "MOCK_TIME_SCALE": "0.01"}
        own |= {"MOCK_DIALOG_GUARD": "0", "TMUX_TMPDIR": str(folder), "NO_COLOR": "1", "COLUMNS": "250"}
        self.remuda.env |= own
        self.client = BossClient(BossFolder(folder / "boss"), timeout=PATIENCE)
        self._boss: Process | None = None
        self.port = 0
        self.may_complain = False

    @property
    def token(self) -> str:
        return self.client.folder.token.read_text().strip()

    @property
    def boss_pid(self) -> int:
        assert self._boss is not None
        return self._boss.pid

    def boss_up(self) -> None:
        begun = self.remuda.json("up", "--detach", "--port", "0")
        self._boss, self.port = Process(begun["pid"]), int(begun["url"].rpartition(":")[2])

    def boss_end(self, number: int = signal.SIGTERM) -> None:
        assert self._boss is not None
        self._boss.signal(number)
        assert self._boss.ended()
        self._boss.close()
        self._boss = None

    def join(self, hub: HubMachine, *roles: str, url: str | None = None) -> None:
        key = hub.new_key(self.name, *roles)
        self.remuda("fleet", "join", url or hub.url, "--key", str(key))

    def start(self, name: str, *flags: str) -> None:
        """Start a scripted agent."""
        self.remuda.start(name, "--agent", "demo", "--", "--permission-mode", "default", *flags)

    def pool_agents(self) -> list[int]:
        """The processes of agents of the pool that is served here."""
        folders = {self.remuda.sessions, self.remuda.home / "boss"}
        paths = [path for path in self.remuda._files(".pid") if path.parent not in folders]
        holders = [
            read_holder(SessionPaths(one.parent, one.stem)) for one in paths if ".sock" not in one.name
        ]
        return [one.child_pid for one in holders if one is not None and one.child_pid]

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = self.client.get("fleet")
        return document

    def until_connected(self) -> None:
        until(lambda: self.status()["connected"], f"{self.name} connected to the hub")

    def until_host(self, name: str, *, reachable: bool = True) -> None:
        def look() -> bool:
            hosts = {one["name"]: one["reachable"] for one in self.status()["hosts"]}
            return hosts.get(name) is reachable

        until(look, f"{name} to be {'' if reachable else 'un'}reachable for {self.name}")

    def until_session(self, host: str, name: str) -> dict[str, Any]:
        def look() -> dict[str, Any]:
            for one in self.client.get("fleet", "sessions")["sessions"]:
                session = one["session"]
                if (one["host"], session["name"], session["agent_state"]) == (host, name, "idle"):
                    return dict(one)
            return {}

        return until(look, f"{host}/{name} to be known as idle")

    def receipt(self, message: str) -> dict[str, Any]:
        document: dict[str, Any] = self.client.get("fleet", "messages", message)
        return document

    def until_stage(self, message: str, stage: str) -> dict[str, Any]:
        def look() -> dict[str, Any]:
            found = self.receipt(message)
            return found if found["stage"] == stage else {}

        return until(look, f"message {message} to be {stage}")

    def send(self, where: str, text: str) -> str:
        """Send without waiting for the host; returns the id."""
        said, message = self.remuda("send", where, text).out.split()
        assert said in ("sent", "accepted")
        return message

    def prompts(self, session: str) -> list[str]:
        """What was put into the inbox of a session here, in that order, repetitions included."""
        lines = (self.remuda.sessions / f"{session}.inbox" / "inbox.jsonl").read_text().splitlines()
        return [str(json.loads(line)["prompt"]) for line in lines]

    def close(self) -> None:
        if self._boss is not None:
            self.boss_end(signal.SIGKILL)
        # The boss's log is read below, with what its errors were.
        self.remuda.may_complain = True
        log = BossFolder(self.remuda.home / "boss").log
        text = log.read_text() if log.exists() else ""
        self.remuda.close()
        assert self.may_complain or " ERROR " not in text, f"the boss of {self.name} logged errors: {text}"


class FleetBench:
    """A hub and machines. `close` ends all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hub = HubMachine(folder / "hub")
        self.machines: list[Machine] = []

    def bare_machine(self, name: str, folder: str = "") -> Machine:
        """A machine that has joined nothing, and runs no boss."""
        made = Machine(self.folder / (folder or name), name)
        self.machines.append(made)
        return made

    def machine(
        self,
        name: str,
        *roles: str,
        url: str | None = None,
        prefix: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> Machine:
        """A machine whose boss runs and has joined; `prefix` is what its commands are run by."""
        made = self.bare_machine(name)
        made.remuda.prefix = prefix
        made.remuda.env |= env or {}
        made.boss_up()
        made.join(self.hub, *(roles or ("host", "operator")), url=url)
        made.until_connected()
        return made

    def desk_and_build(self, *, url: str | None = None) -> tuple[Machine, Machine]:
        """A machine to act from, and `build7`, where an idle agent runs in the session `work`."""
        desk, build = self.machine("desk", "operator"), self.machine("build7", "host", url=url)
        build.start("work")
        desk.until_session("build7", "work")
        return desk, build

    def close(self) -> None:
        with ExitStack() as stack:  # whatever fails, the others are ended
            stack.callback(self.hub.close)
            for one in self.machines:
                stack.callback(one.close)


class Relay:
    """A link between a machine and the hub that can be delayed, stalled and cut.

    `up` is the way to the hub, and `down` the way to the machine. `enter` is called first, in the thread of
    the relay: it may move it into another network. Of several targets, the first that listens is used.
    """

    def __init__(
        self,
        target: int | list[int],
        delay: float = 0.0,
        here: str = "127.0.0.1",
        enter: Callable[[], None] = lambda: None,
    ) -> None:
        self._targets = [target] if isinstance(target, int) else target
        self._delay = delay
        self._here = here
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(enter,), daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows = {"up": asyncio.Event(), "down": asyncio.Event()}
        self._is_cut = False
        self.held = {"up": 0, "down": 0}
        """Bytes that came since the last stall of that way, and were not passed on."""
        self.port = 0
        self._thread.start()
        self._call(self._open())

    @property
    def url(self) -> str:
        return f"tls://{self._here}:{self.port}"

    def _run(self, enter: Callable[[], None]) -> None:
        enter()
        self._loop.run_forever()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _open(self) -> None:
        for flows in self._flows.values():
            flows.set()
        self._server = await asyncio.start_server(self._accept, self._here, 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.close()
            return
        for port in self._targets:
            try:
                there, onward = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                continue
        else:
            writer.close()
            return
        self._writers |= {writer, onward}
        await asyncio.gather(self._pump(reader, onward, "up"), self._pump(there, writer, "down"))
        self._writers -= {writer, onward}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        """Pass on what comes, each piece `delay` after it came, however many are under way."""
        line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_PIECES_UNDER_WAY)

        async def fill() -> None:
            data = b"-"
            while data:
                try:
                    data = await reader.read(1 << 16)
                except OSError:
                    data = b""
                if not self._flows[way].is_set():
                    self.held[way] += len(data)
                await line.put((self._loop.time() + self._delay, data))

        filling = asyncio.create_task(fill())
        try:
            while True:
                due, data = await line.get()
                await asyncio.sleep(due - self._loop.time())
                await self._flows[way].wait()
                if not data or writer.is_closing():
                    break
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        filling.cancel()
        writer.close()

    def stall(self, *ways: str) -> None:
        """Carry nothing, and keep the connections. Without `ways`, both."""

        async def stop() -> None:
            for way in ways or ("up", "down"):
                self.held[way] = 0
                self._flows[way].clear()

        self._call(stop())

    def cut(self) -> None:
        """End the connections with what is held, and take none."""

        async def end() -> None:
            self._is_cut = True
            for writer in list(self._writers):
                writer.transport.abort()

        self._call(end())

    def mend(self) -> None:
        async def flow() -> None:
            self._is_cut = False
            for flows in self._flows.values():
                flows.set()

        self._call(flow())

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            self._is_cut = True
            for flows in self._flows.values():
                flows.set()
            for writer in list(self._writers):
                writer.transport.abort()
            others = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
            await asyncio.gather(*others, return_exceptions=True)

        self._call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


class Pair(NamedTuple):
    """Two machines of one fleet: one to act from, and `build7`, which runs agents."""

    bench: FleetBench
    desk: Machine
    build: Machine

    def start(self, name: str) -> str:
        """Start a session on the other machine; returns its name here."""
        self.desk.until_host("build7")
        self.build.start(name)
        self.desk.until_session("build7", name)
        return f"build7/{name}"


@contextmanager
def two_machines(folder: Path, *roles: str) -> Iterator[Pair]:
    """Start a hub and both machines; `roles` are those of the first."""
    bench = FleetBench(folder)
    bench.hub.start()
    try:
        yield Pair(bench, bench.machine("desk", *roles), bench.machine("build7", "host"))
    finally:
        bench.close()
