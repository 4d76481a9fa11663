"""Hub, link, bosses, keepers, agents, senders die at random: each message and request ends once, truthfully.

Run with REMUDA_SOAK=1 for at least 300 messages and 200 requests.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from remuda.inbox.receipts import read_receipts
from remuda.paths import SessionPaths
from support import counts
from support.fleet import FleetBench, Relay
from support.keeper import Process, until

_MESSAGES, _REQUESTS = 4, 3
_FINAL = ("acked", "dead", "expired", "dropped")


class Chaos:
    """A machine that sends, and two that run agents; the link of the first can be cut."""

    def __init__(self, bench: FleetBench) -> None:
        self.bench = bench
        self.relay = Relay(bench.hub.port)
        self.desk = bench.machine("desk", "operator")
        self.build = bench.machine("build7", "host", url=self.relay.url)
        self.other = bench.machine("build8", "host")
        for host in (self.build, self.other):
            host.remuda.may_complain = host.may_complain = True
            words = ("--demo", "--fleet", "--detach", "--size", "2", "--prewarm", "0")
            host.remuda("pool", "serve", *words)
        self.build.start("work")
        self.desk.until_session("build7", "work")
        until(lambda: sum(one["pool"] for one in self.desk.status()["hosts"]) == 2, "two pools")
        self.accepted: dict[str, str] = {}
        self.unsure: dict[str, str] = {}
        self.prompts: list[str] = []

    # ── what is sent ──

    def send(self, first: int) -> None:
        for at in range(first, first + _MESSAGES):
            text = f"number {at}"
            begun = self.desk.remuda.begin("send", "build7/work", text, "--json")
            out, err = begun.communicate(timeout=90)
            if begun.returncode == 0:
                self.accepted[str(json.loads(out)["id"])] = text
            elif word := next((word for word in err.decode().split() if word.startswith("m1")), ""):
                self.unsure[word.strip(";.,'")] = text

    def request(self, first: int) -> None:
        for at in range(first, first + _REQUESTS):
            prompt = f"request-{at:05}-end"
            self.prompts.append(prompt)
            words = ("--fleet", "--demo", "--timeout", "10m", "--cwd", "/")
            self.desk.remuda.begin("run", prompt, *words)

    # ── what dies ──

    def kill_hub(self) -> None:
        self.bench.hub.end(signal.SIGKILL)
        self.bench.hub.start()

    def kill_host(self) -> None:
        self.build.boss_end(signal.SIGKILL)
        self.build.boss_up()

    def kill_keeper(self) -> None:
        self.build.remuda.kill_keeper("work")
        self.resume()

    def cut_link(self) -> None:
        self.relay.stall()
        self.desk.until_host("build7", reachable=False)  # the lease is longer than every other timeout
        self.relay.cut()
        self.relay.mend()

    def kill_agent(self) -> None:
        holder = json.loads(self.build.remuda("show", "work", "--json").out)
        agent = Process(int(holder["pid"]))
        agent.signal(signal.SIGKILL)
        assert agent.ended()
        agent.close()
        self.resume()

    def kill_sender(self) -> None:
        self.desk.boss_end(signal.SIGKILL)
        self.desk.boss_up()

    def kill_command(self) -> None:
        for begun in self.desk.remuda._running[-2:]:
            begun.kill()

    def resume(self) -> None:
        inbox = SessionPaths.of("work", self.build.remuda.sessions)
        until(lambda: not inbox.socket.exists() or "dead" in self.build.remuda("ls", "-a").out, "its end")
        self.build.remuda("start", "work", "--resume", "--detach")

    @property
    def victims(self) -> list[Callable[[], None]]:
        first = [self.kill_hub, self.kill_host, self.kill_keeper, self.cut_link]
        return [*first, self.kill_agent, self.kill_sender, self.kill_command]

    # ── what became of it ──

    def ends(self, message: str) -> list[str]:
        inbox = SessionPaths.of("work", self.build.remuda.sessions).inbox
        return [str(one["stage"]) for one in read_receipts(inbox, message) if one["stage"] in _FINAL]

    def is_true(self, message: str, text: str) -> bool:
        """Whether the receipt at the sender says what became of a message."""
        put = text in self.build.prompts("work")
        stage = self.desk.receipt(message)["stage"]
        return [stage] == self.ends(message) if put else stage in ("sent", "expired")

    def runs(self, prompt: str) -> int:
        """How often an agent of any host was given that prompt, by their transcripts."""
        count = 0
        for host in (self.build, self.other):
            for path in (host.remuda.home / "claude" / "projects").rglob("*.jsonl"):
                records = [json.loads(line) for line in path.read_text().splitlines() if prompt in line]
                count += sum(one.get("type") == "user" for one in records)
        return count


@pytest.fixture
def chaos(bench: FleetBench) -> Iterator[Chaos]:
    made = Chaos(bench)
    yield made
    for host in (made.build, made.other):
        host.remuda("pool", "stop")
    made.relay.close()


@pytest.mark.soak
@pytest.mark.timeout(900 if not counts.SOAK else 7200)
def test_whatever_dies_every_message_and_request_ends_once(chaos: Chaos) -> None:
    rng = random.Random(17)
    desk = chaos.desk
    with ThreadPoolExecutor(1) as beside:
        for number in range(counts.FLEET_CHAOS):
            sending = beside.submit(chaos.send, _MESSAGES * number)
            chaos.request(_REQUESTS * number)
            time.sleep(rng.uniform(0.0, 2.0))  # anywhere in what runs
            chaos.victims[number % len(chaos.victims)]()
            sending.result()
            desk.until_connected()
            desk.until_host("build7")
    for message, text in [*chaos.accepted.items(), *chaos.unsure.items()]:
        until(lambda: chaos.is_true(message, text), f"a receipt of {message} that is true")  # noqa: B023
    put = chaos.build.prompts("work")
    assert len(put) == len(set(put)), "a message was put twice"
    assert set(chaos.accepted.values()) <= set(put), "a message was lost"

    def ended() -> bool:
        listed = desk.client.get("fleet", "requests")["requests"]
        return bool(listed) and all(one["outcome"] is not None for one in listed)

    deadline = time.monotonic() + 300
    while not ended():
        assert time.monotonic() < deadline, desk.client.get("fleet", "requests")
        time.sleep(0.2)
    listed = desk.client.get("fleet", "requests")["requests"]
    assert len(listed) <= len(chaos.prompts)
    answered = [one["outcome"]["result"]["text"] for one in listed if "result" in one["outcome"]]
    assert len(answered) == len(set(answered)), "a request was answered twice"
    for one in listed:
        text = str(one["outcome"].get("result", {}).get("text", ""))
        prompt = next((prompt for prompt in chaos.prompts if prompt in text), "")
        if prompt:
            assert 1 <= chaos.runs(prompt) <= one["attempts"], (prompt, one)
