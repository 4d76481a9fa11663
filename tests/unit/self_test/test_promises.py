"""Which promises are tried on an agent, and what is said of those for which the time was not enough."""

from __future__ import annotations

import pytest

from remuda.agents import find_self_test
from remuda.self_test.promises import (
    TIME_OVER,
    PromiseResult,
    PromiseVerdict,
    completed,
    find_promise,
    offered,
)

_LIMITS = {"claude": 45.0, "codex": 120.0, "opencode": 120.0, "copilot": 120.0}


@pytest.mark.parametrize("agent", _LIMITS)
def test_promise_without_an_outcome_is_not_known_and_the_limit_is_what_the_docs_say(agent: str) -> None:
    plan = find_self_test(agent)
    assert plan is not None
    assert plan.time_limit <= _LIMITS[agent]
    start, exact = (
        PromiseResult(find_promise(key), PromiseVerdict.HOLDS, "seen") for key in ("start", "exact")
    )
    found = completed([exact, start], plan)
    assert [one.promise.key for one in found] == offered(plan)
    assert [one for one in found if one.verdict is PromiseVerdict.HOLDS] == [start, exact]
    assert {one.detail for one in found} == {"seen", TIME_OVER}
    failed = start._replace(verdict=PromiseVerdict.FAILS)
    assert completed([failed], plan) == [failed]


def test_only_what_the_agent_has_is_tried() -> None:
    plan = find_self_test("opencode")
    assert plan is not None
    assert {"hooks", "calls", "trust", "pool_stream"}.isdisjoint(offered(plan))
    assert {"clear", "bang", "pool_terminal", "print"} <= {*offered(plan)}
