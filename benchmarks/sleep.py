"""What a session costs awake and asleep, and how long a message takes that wakes it, on the real CLI.

Turn about with the latter: `claude --resume ID PROMPT` on a bare terminal, from its exec until its
UserPromptSubmit hook arrives. The message's time begins before it is written to the disk and ends when the
keeper heard that hook, by the date of the receipt.
"""

from __future__ import annotations

import time

from benchmarks.kept_agent import KeptAgent
from benchmarks.print import bare_tui, hook_listener
from benchmarks.report import Report, Target
from benchmarks.scene import Scene, bounded, memory_bytes

from remuda.errors import NotSafe
from remuda.keeper.client import KeeperClient
from remuda.proctree import descendants
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli

_WAKES = 4
"""In a round."""
_MB = 1e6
_PATIENCE = 60.0


def measure(scene: Scene, report: Report, rounds: int) -> None:
    report.title("A session asleep, and its wake, on the real CLI")
    awake: list[float] = []
    asleep: list[float] = []
    woken: list[float] = []
    resumed: list[float] = []
    with (
        bounded(600.0, "sleeping"),
        LoopbackModel() as model,
        RealCli(scene.folder / "bare", model.url) as bare,
        RealCli(scene.folder / "kept", model.url) as kept,
        hook_listener() as listener,
    ):
        assert bare.run_print("hello").returncode == 0
        conversation = bare.transcripts()[0].stem
        session = _Session(scene, kept)
        session.send("hello")
        for number in range(1 + rounds * _WAKES):
            weights = session.weight(), session.sleep()
            wake = session.send(f"wake {number}")
            own = bare_tui(bare, listener, "UserPromptSubmit", f"again {number}", "--resume", conversation)
            bare.settle()
            if number:  # the first of each is colder
                awake.append(weights[0] / _MB)
                asleep.append(weights[1] / _MB)
                woken.append(wake * 1000)
                resumed.append(own * 1000)
        session.client.close()
        scene.end_all()
    report.median("PSS of keeper and agent, awake", awake, "MB")
    report.median("PSS of the keeper, asleep", asleep, "MB")
    report.add("the most of these", max(asleep), "MB", Target("<=", 30))
    floor = report.median("claude --resume ID PROMPT to submitted", resumed, "ms")
    whole = report.median("message to submitted, asleep", woken, "ms")
    report.add("wake / the agent's own resume", whole / floor, "x", Target("<=", 1.3))


class _Session(KeptAgent):
    def __init__(self, scene: Scene, cli: RealCli) -> None:
        super().__init__(scene, cli, kill_grace=5.0)
        self.client = KeeperClient.connect(self.paths.name, scene.sessions)

    def weight(self) -> float:
        return sum(memory_bytes(pid)[1] for pid in (self.keeper_pid, *descendants(self.keeper_pid)))

    def sleep(self) -> float:
        """End the agent; the weight after that."""
        deadline = time.monotonic() + _PATIENCE
        while (phase := self._try_to_sleep()) != "asleep":
            assert time.monotonic() < deadline, phase
            time.sleep(0.05)
        return self.weight()

    def _try_to_sleep(self) -> str:
        try:
            self.client.request("sleep")
        except NotSafe as error:
            return str(error)
        return str(self.client.describe()["sleep"]["phase"])
