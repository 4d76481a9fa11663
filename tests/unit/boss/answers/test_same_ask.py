"""Which of the keeper's requests an approval is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.boss.answers.approvals import find_same_ask
from remuda.boss.attention.model import Approval, Reason

BASH: dict[str, Any] = {"tool": "Bash", "input": {"command": "touch a"}}


def approval(number: str | None) -> Approval:
    return Approval("a", "s", Reason.PERMISSION, "Bash", BASH["input"], 1.0, tool_use_id=number)


def test_request_is_known_by_its_call_else_by_what_it_asks() -> None:
    asks: list[Mapping[str, Any]] = [
        {"id": "k1", "tool_use_id": "t1", **BASH},
        {"id": "k2", "tool_use_id": "t2", **BASH},
    ]
    assert find_same_ask(asks, approval("t2")) == "k2"
    assert find_same_ask(asks, approval(None)) == "k1"
    assert find_same_ask(asks, approval("t3")) == "", "another call that is like it"
    assert find_same_ask([{"id": "k3", **BASH}], approval("t3")) == "k3"
    assert find_same_ask([{"id": "k3", "tool": "Bash", "input": {}}], approval("t3")) == ""
