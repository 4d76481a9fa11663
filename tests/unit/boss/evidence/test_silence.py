"""Agents at work of which nothing is heard: when they hang, and when they do not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from remuda.boss.attention.model import EventKind, Reason
from remuda.boss.evidence.silence import CALL_FACTOR, HUNG_AFTER, Sign, Silence, SilentSession, hung_after
from remuda.boss.navigator import reason
from remuda.boss.service import BossService
from support.boss import Clock, event, with_service

LIMIT = 600.0
PROMPT = event("prompted", 10)
CALL: dict[str, Any] = {"tool": "Bash", "input": {"command": "make"}, "tool_use_id": "t1"}


class Bench:
    """A service whose sessions are looked at when the test says so; `wait` lets that time pass."""

    def __init__(self, service: BossService, clock: Clock) -> None:
        self.service = service
        self.clock = clock
        self._silence = Silence(service, {"REMUDA_HUNG_AFTER": "10m"}, lambda: round(clock.now, 1))

    async def poll(self) -> list[str]:
        await self._silence.poll()
        self.clock.now += 0.001  # no two things happen in one moment
        return [item.reason for item in self.service.queue()]

    async def wait(self, seconds: float) -> list[str]:
        await self.poll()
        self.clock.now += seconds
        return await self.poll()


def bench(folder: Path, steps: Callable[[Bench], Awaitable[None]]) -> None:
    clock = Clock()
    with_service(folder, lambda service: steps(Bench(service, clock)), clock)


def test_agent_at_work_that_is_not_heard_of_hangs_once(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.service.take(PROMPT)
        assert await bench.wait(LIMIT - 1) == []
        assert await bench.wait(1) == [Reason.HUNG]
        (item,) = bench.service.queue()
        assert item.detail["quiet"] == LIMIT
        assert reason({"reason": "hung", "detail": item.detail}) == "hung: silent for 10m"
        await bench.wait(LIMIT)
        assert [one.id for one in bench.service.queue()] == [item.id]

    bench(tmp_path, steps)


@pytest.mark.parametrize("sign", ["hook", "transcript"])
def test_sign_of_life_ends_it_and_is_waited_for_anew(tmp_path: Path, sign: str) -> None:
    transcript = tmp_path / "s.jsonl"
    transcript.write_text("{}\n")

    async def steps(bench: Bench) -> None:
        await bench.service.take(event("prompted", 10, transcript_path=str(transcript)))
        assert await bench.wait(LIMIT) == [Reason.HUNG]
        if sign == "hook":
            await bench.service.take(event("tool_ran", 10**12, **CALL))
        else:
            transcript.write_text("{}\n{}\n")
        assert await bench.poll() == []
        assert await bench.wait(LIMIT - 1) == []
        assert await bench.wait(1) == [Reason.HUNG]

    bench(tmp_path, steps)


@pytest.mark.parametrize(
    "told",
    [[event("tool_began", 11, **CALL)], [event("stopped", 11, background=[{"id": "a"}])]],
    ids=["call", "background"],
)
def test_call_or_work_in_the_background_may_take_its_time(tmp_path: Path, told: list[Any]) -> None:
    async def steps(bench: Bench) -> None:
        await bench.service.take(PROMPT, *told)
        assert await bench.wait(CALL_FACTOR * LIMIT - 1) == []
        assert await bench.wait(1) == [Reason.HUNG]

    bench(tmp_path, steps)


@pytest.mark.parametrize(
    "last", [event("stopped", 11), event("asked", 11, **CALL), event("ended", 11), event("registered", 11)]
)
def test_one_that_is_not_at_work_does_not_hang(tmp_path: Path, last: Any) -> None:
    async def steps(bench: Bench) -> None:
        await bench.service.take(*([last] if last.kind is EventKind.REGISTERED else [PROMPT, last]))
        assert Reason.HUNG not in await bench.wait(100 * LIMIT)

    bench(tmp_path, steps)


def test_programs_that_report_nothing_of_themselves_do_not_hang(tmp_path: Path) -> None:
    async def steps(bench: Bench) -> None:
        await bench.service.take(event("prompted", 10, agent="other"))
        assert await bench.wait(100 * LIMIT) == []

    bench(tmp_path, steps)


def test_one_that_hung_when_the_boss_ended_still_does_and_is_set_free_by_a_sign(tmp_path: Path) -> None:
    async def before(bench: Bench) -> None:
        await bench.service.take(PROMPT)
        assert await bench.wait(LIMIT) == [Reason.HUNG]

    async def after(bench: Bench) -> None:
        assert await bench.wait(LIMIT) == [Reason.HUNG]
        await bench.service.take(event("stopped", 10**12, message="at last"))
        assert await bench.poll() == [Reason.STOPPED]

    bench(tmp_path, before)
    bench(tmp_path, after)


def test_quiet_is_measured_from_the_last_change() -> None:
    first, second = Sign("a", None), Sign("a", (1, 5))
    quiet = SilentSession(first, 0.0)
    assert quiet.see(first, 9.0, 10.0) is None
    assert quiet.see(second, 12.0, 10.0) is None
    assert quiet.see(second, 21.0, 10.0) is None
    assert quiet.see(second, 22.0, 10.0) is EventKind.HUNG
    assert quiet.see(second, 90.0, 10.0) is None
    assert quiet.see(first, 91.0, 10.0) is EventKind.WORKING


def test_how_long_is_said_by_a_variable() -> None:
    assert hung_after({}) == hung_after({"REMUDA_HUNG_AFTER": "soon"}) == HUNG_AFTER
    assert hung_after({"REMUDA_HUNG_AFTER": "90s"}) == 90.0
    assert hung_after({"REMUDA_HUNG_AFTER": "0"}) == hung_after({"REMUDA_HUNG_AFTER": "never"}) == 0.0


def test_never_is_never_looked_for(tmp_path: Path) -> None:
    async def steps(service: BossService) -> None:
        silence = Silence(service, {"REMUDA_HUNG_AFTER": "never"})
        await silence.start()
        assert len(asyncio.all_tasks()) == 3  # this one, and the two of the service
        await silence.close()

    with_service(tmp_path, steps)
