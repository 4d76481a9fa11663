"""The judge of the chaos is able to fail: it finds what goes wrong without the dedup, and without the fence.

Each is taken out of the boss on purpose, and the same is done as with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.fleet.exchange import make_message
from remuda.fleet.hub import Hub
from support import counts
from support.fleet import FleetBench, Machine
from support.fleet_chaos import FleetJudge
from support.keeper import until

WITHOUT = {
    "nothing": "",
    "dedup": """
from remuda.fleet import exchange, host
known, options = host.trace, exchange.put_options
def trace(*words):
    return None if sys._getframe(1).f_code.co_name == "_put" else known(*words)
host.trace = trace
exchange.put_options = lambda *words: options(*words) | {"dedup": None}
""",
    "fence": """
from remuda.fleet import held_name, hub
store = hub.Hub.store
held_name.LEASE = 0.0
hub.Hub.store = lambda *words, revision=None, **more: store(*words, **more)
""",
}
"""What a boss runs before anything else, so that it lacks something."""
IN_A_BOSS = "import sys\nif 'remuda.boss' in sys.orig_argv:\n"


def machine(bench: FleetBench, name: str, lacks: str) -> Machine:
    """A machine of the key `build7` whose boss lacks something."""
    made = Machine(bench.folder / name, name)
    lines = (IN_A_BOSS + "    pass\n" + WITHOUT[lacks]).splitlines()
    indented = [*lines[:3], *(f"    {line}" for line in lines[3:])]
    (folder := bench.folder / name / "without").mkdir()
    (folder / "sitecustomize.py").write_text("\n".join(indented) + "\n")
    made.remuda.env["PYTHONPATH"] = f"{folder}:{made.remuda.env.get('PYTHONPATH', '')}"
    bench.machines.append(made)
    made.boss_up()
    key = bench.hub.remuda.cwd / "build7.key"
    if not key.exists():
        bench.hub.new_key("build7", "host")
    made.remuda("fleet", "join", bench.hub.url, "--key", str(key))
    return made


def publish_again(bench: FleetBench, judge: FleetJudge) -> None:
    """Store all messages once more, as if acknowledgements were lost and the hub had forgotten the ids."""

    async def publish() -> None:
        hub = await Hub.connect(bench.hub.folder.admin())
        jetstream = hub._client.jetstream()
        config = (await jetstream.stream_info("INBOX")).config
        await jetstream.update_stream(config.evolve(duplicate_window=0.1))
        for one in judge.sent:
            again = make_message("build7", one.session, one.id, "desk", one.text, {})
            headers = {"Nats-Msg-Id": one.id}
            while (await jetstream.publish(again.subject, again.data(), headers=headers)).duplicate:
                await asyncio.sleep(0.1)
        await hub.close()

    asyncio.run(publish())


def deliver_again(bench: FleetBench, lacks: str) -> FleetJudge:
    desk, build = bench.machine("desk", "operator"), machine(bench, "build7", lacks)
    build.start("work")
    desk.until_session("build7", "work")
    judge = FleetJudge(desk, build)
    for at in range(2):
        judge.send("build7/work", f"message-{at}-end")
    judge.settle()
    assert judge.faults() == []
    publish_again(bench, judge)
    judge.send("build7/work", "the last")  # taken after those that came again
    until(lambda: desk.receipt(judge.sent[-1].id)["ended"], "its end")
    return judge


def share_a_name(bench: FleetBench, lacks: str) -> FleetJudge:
    desk, build = bench.machine("desk", "operator"), machine(bench, "build7", lacks)
    build.start("work")
    desk.until_session("build7", "work")
    copy = machine(bench, "copy", lacks)
    copy.start("work")
    until(lambda: copy.status()["connected"] or copy.status()["error"], "the copy to be in or out")
    judge = FleetJudge(desk, build, copy)
    for at in range(8):
        judge.send("build7/work", f"message-{at}-end")
    for one in judge.sent:
        until(lambda: desk.receipt(one.id)["ended"], f"the end of {one}")  # noqa: B023
    return judge


CASES = [(deliver_again, "dedup", "was put twice")]
if counts.SOAK:
    CASES += [
        (share_a_name, "fence", "was lost"),
        (deliver_again, "nothing", ""),
        (share_a_name, "nothing", ""),
    ]


@pytest.mark.soak
@pytest.mark.parametrize(("happen", "lacks", "fault"), CASES)
def test_the_judge_finds_what_goes_wrong_without_the_dedup_or_the_fence(
    home: Path, happen: Callable[[FleetBench, str], FleetJudge], lacks: str, fault: str
) -> None:
    bench = FleetBench(home)
    bench.hub.start()
    try:
        faults = happen(bench, lacks).faults()
        assert any(fault in one for one in faults) if fault else faults == [], faults
    finally:
        bench.close()
