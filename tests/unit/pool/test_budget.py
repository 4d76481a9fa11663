"""A request that uses more than its caller allowed fails, and only that one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from remuda.errors import BudgetExceeded, InvalidOptions
from remuda.pool.client import Client
from remuda.pool.types import Answered, Request, SessionEvent, Spent, Token, Usage
from remuda.testing.clock import run
from remuda.testing.pool import FakeAgent, FakeSession


async def spend(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
    yield Token("begun")
    for count in (10, 20, 30):
        yield Spent(Usage(output_tokens=count))
    yield Answered(request.prompt, usage=Usage(output_tokens=40), total_cost_usd=0.5)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_output_tokens": 15}, "20 output tokens used, and max_output_tokens is 15"),
        ({"max_output_tokens": 35}, "40 output tokens used, and max_output_tokens is 35"),
        ({"max_cost": 0.4}, "0.5 USD used, and max_cost is 0.4"),
    ],
)
def test_run_over_its_budget_fails_and_the_next_request_is_served(
    limits: dict[str, float], message: str
) -> None:
    async def scene() -> None:
        agent = FakeAgent(spend)
        async with Client(session_factory=agent, backend="stream") as client:
            with pytest.raises(BudgetExceeded) as caught:
                await client.run("too much", **limits)  # type: ignore[arg-type]
            assert (caught.value.code, caught.value.message) == ("BUDGET_EXCEEDED", message)
            result = await client.run("enough", max_output_tokens=40, max_cost=0.5)
            assert result.text == "enough"
        assert len(agent.sessions) == 1

    run(scene())


@pytest.mark.parametrize("limits", [{"max_cost": 1.0}, {"max_output_tokens": 0}, {"max_output_tokens": "5"}])
def test_run_with_a_limit_that_cannot_hold_is_refused_before_anything_starts(
    limits: dict[str, float],
) -> None:
    async def scene() -> None:
        agent = FakeAgent(spend)
        async with Client(session_factory=agent) as client:
            with pytest.raises(InvalidOptions, match=next(iter(limits))):
                await client.run("hello", **limits)  # type: ignore[arg-type]
        assert not agent.sessions

    run(scene())
