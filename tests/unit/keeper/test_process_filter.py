"""Which process a hook belongs to, where an agent has started others with its hooks."""

from __future__ import annotations

from remuda.agents.claude.hooks import read_emitted, read_hook
from remuda.agents.events import Report
from remuda.frozen import replaced
from remuda.keeper.hooks import AgentProcessFilter


def started(conversation: str, pid: object, how: str = "startup") -> Report:
    payload = {"hook_event_name": "SessionStart", "session_id": conversation, "source": how}
    report = read_emitted({"payload": payload, "claude_pid": pid})
    assert report is not None
    return report


def prompted(conversation: str) -> Report:
    return read_hook({"hook_event_name": "UserPromptSubmit", "session_id": conversation})


def test_agent_that_starts_next_to_ours_is_ours_when_it_reports_more() -> None:
    processes = AgentProcessFilter(lambda _: True)
    assert not processes.starts_another(started("ours", 10))
    assert processes.starts_another(started("again", 11))
    assert processes.starts_another(started("reserve", 12))
    assert processes.attributed(prompted("ours")) == prompted("ours")
    assert processes.attributed(prompted("again")) == replaced(prompted("again"), pid=11)
    assert processes.attributed(prompted("again")) == prompted("again")
    assert processes.starts_another(started("late reserve", 13))
    assert not processes.starts_another(started("after a clear", 11, "clear"))
    assert not processes.starts_another(started("resumed", 14, "resume"))


def test_agent_that_follows_one_that_is_gone_is_ours() -> None:
    processes = AgentProcessFilter(lambda _: False)
    assert not processes.starts_another(started("ours", 10))
    assert not processes.starts_another(started("next", 11))


def test_hook_that_does_not_say_whose_it_is_is_ours() -> None:
    processes = AgentProcessFilter(lambda _: True)
    assert not processes.starts_another(started("ours", None))
    assert not processes.starts_another(started("ours", 0))
    assert not processes.starts_another(started("next", 11))
    assert read_emitted({"payload": "no object"}) is None
