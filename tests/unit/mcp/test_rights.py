"""What an agent may do through MCP: whom it reaches, its limits, and the file about it."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from remuda.errors import InvalidOptions
from remuda.mcp.rights import (
    Caller,
    Rights,
    StartLimits,
    caller_with,
    names_for,
    read_rights,
    why_not_spend,
    why_not_start,
)

LEAD = Caller("session", "lead", "k1", "/work")
OTHER = Caller("session", "other", "k2", "/work")
CI = Caller("token", "ci", folder="/work")


def rights(text: str) -> Rights:
    return read_rights(tomllib.loads(text), "/home/me")


def start(limits: StartLimits = StartLimits(), caller: Caller = LEAD, **more: Any) -> str:  # noqa: B008
    given = {"agent": "claude", "folder": "/work", "running": 0, "resolve": lambda path: path, **more}
    why = why_not_start(limits, caller, **given)
    return "" if why is None else why[0]


@pytest.mark.parametrize("right", ["read", "send", "control", "kill"])
def test_agent_reaches_what_it_started_and_what_that_started(right: Any) -> None:
    assert Rights().may(LEAD, right, "lead.a", [LEAD.id])
    assert Rights().may(LEAD, right, "lead.a.b", ["session:lead.a:k9", LEAD.id])
    assert not Rights().may(OTHER, right, "lead.a", [LEAD.id])
    assert not Rights().may(LEAD, right, "mine", [])
    assert not Rights().may(LEAD, right, "lead", [])


def test_session_with_the_name_of_an_earlier_one_does_not_inherit_its_agents() -> None:
    assert not Rights().may(Caller("session", "lead", "k7"), "read", "lead.a", [LEAD.id])


def test_file_lets_an_agent_reach_more_but_never_kill() -> None:
    found = rights('[[agent]]\nname = "lead"\nreach = ["build-*"]\nmay = ["read", "send"]')

    assert found.may(LEAD, "read", "build-7", [])
    assert found.may(LEAD, "send", "build-7", [])
    assert not found.may(LEAD, "control", "build-7", [])
    assert not found.may(LEAD, "kill", "build-7", [])
    assert not found.may(LEAD, "read", "mine", [])
    assert not found.may(OTHER, "read", "build-7", [])


def test_file_names_sessions_of_other_hosts_with_the_host_and_a_star_stands_for_no_host() -> None:
    found = rights('[[agent]]\nname = "lead"\nreach = ["build*/work-*", "mine-*"]\nmay = ["read", "send"]')

    assert found.may(LEAD, "send", "build7/work-1", [])
    assert found.reaches_hosts(LEAD)
    for name in ("other/work-1", "build7/mine-1", "work-1", "build7/x/work-1"):
        assert not found.may(LEAD, "read", name, []), name
    assert not found.may(LEAD, "kill", "build7/work-1", [])
    assert not found.may(OTHER, "read", "build7/work-1", [])
    all_here = rights('[[agent]]\nname = "*"\nreach = "*"')
    assert not all_here.may(LEAD, "read", "build7/work-1", [])
    assert not all_here.reaches_hosts(LEAD)


def test_folder_of_an_agent_may_be_written_as_a_link_or_with_a_slash() -> None:
    text = '[[agent]]\nname = "folder:~/link/"\nmax_sessions = 1'
    agent = Caller("folder", "/disk/work")
    linked = read_rights(tomllib.loads(text), "/home/me", {"/home/me/link/": "/disk/work"}.__getitem__)
    assert linked.limits_of(agent).max_sessions == 1
    assert rights(text).limits_of(Caller("folder", "/home/me/link")).max_sessions == 1


def test_limits_of_the_first_table_that_names_the_agent_count() -> None:
    found = rights(
        'max_depth = 1\nmax_sessions = 3\n[[agent]]\nname = "token:*"\nmax_depth = 4\nfolders = "~/x"\n'
        '[[agent]]\nname = "*"\nmax_depth = 9\nmax_messages = 7'
    )

    assert found.limits_of(CI) == StartLimits(4, 3, 7, folders=("/home/me/x",))
    assert found.limits_of(LEAD) == StartLimits(9, 3, 7)


def test_start_is_limited_in_depth_number_agent_and_folder() -> None:
    assert start() == ""
    assert start(folder="/work/sub") == ""
    assert "deep" in start(caller=Caller("session", "lead.a.b", "k", "/work", depth=2))
    assert "at once" in start(running=8)
    assert "may not be started" in start(StartLimits(agents=("demo",)))
    assert "not in a folder" in start(folder="/workshop")
    assert "not in a folder" in start(folder="/work/link", resolve=lambda p: p.replace("/work/link", "/etc"))
    assert start(StartLimits(folders=("/srv",)), folder="/srv/a") == ""
    assert "not in a folder" in start(caller=Caller("token", "ci"))


def test_messages_and_tokens_are_limited_by_what_is_known() -> None:
    assert why_not_spend(StartLimits(), 499, None) is None
    assert why_not_spend(StartLimits(), 500, None) is not None
    assert why_not_spend(StartLimits(max_output_tokens=10), 0, None) is None
    assert why_not_spend(StartLimits(max_output_tokens=10), 0, 9) is None
    assert why_not_spend(StartLimits(max_output_tokens=10), 0, 10) is not None


@pytest.mark.parametrize("caller", [LEAD, CI, Caller("folder", "/a b/ü"), Caller("session", "x" * 64, "k")])
def test_names_of_sessions_are_valid_and_begin_with_the_agents(caller: Caller) -> None:
    from remuda.names import is_name

    names = names_for(caller, "t" * 32)
    assert all(map(is_name, names))
    assert len(set(names)) == len(names)
    assert names[0].startswith(caller.prefix[:10])
    assert caller_with(caller.id).id == caller.id


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("max_dept = 1", "unknown key 'max_dept'"),
        ("max_depth = -1", "max_depth"),
        ("max_depth = true", "max_depth"),
        ("max_sessions = 1.5", "max_sessions"),
        ("agent = 1", "tables"),
        ("[[agent]]\nreach = 'x'", "name is missing"),
        ("[[agent]]\nname = 'a'\nmay = ['kill']", "kill cannot be granted"),
        ("[[agent]]\nname = 'a'\nmay = ['approve']", "unknown right 'approve'"),
        ("[[agent]]\nname = 'a'\nreach = []", "reach"),
        ("[[agent]]\nname = ''", "name"),
        ("[[agent]]\nname = 'a'\nreach = 'Build7/work'", "neither SESSION nor HOST/SESSION"),
        ("[[agent]]\nname = 'a'\nreach = ['x', 'build7/']", "agent 1: reach: 'build7/' is neither"),
        ("[[agent]]\nname = 'a'\nreach = 'build7/a/b'", "neither"),
        ("folders = ['src']", "begins with / or ~"),
    ],
)
def test_file_with_a_mistake_is_refused_and_says_where(text: str, what: str) -> None:
    with pytest.raises(InvalidOptions, match=what):
        rights(text)
