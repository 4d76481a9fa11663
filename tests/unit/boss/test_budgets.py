"""What is used of a budget, who is paused, and a file that is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remuda.agents.state import Source
from remuda.boss.attention.model import Event, EventKind
from remuda.boss.attention.rules import make_ask_id
from remuda.boss.attention.session_index import SessionIndex
from remuda.boss.budgets import (
    BudgetAction,
    BudgetLimit,
    CountedUsage,
    LimitAccount,
    LiveSession,
    cost_warnings,
    find_accounts,
    hold_entries,
    holds,
    read_budget,
)
from remuda.boss.notices.notification import words
from remuda.boss.records.figures import UsageSum
from remuda.boss.usage_report import KINDS, Prices
from remuda.errors import InvalidOptions

NOW = 1_700_000_000.0
PRICES = Prices("USD", {"m": {"input": 1.0, "output": 10.0, "cache_read": 0.1, "cache_write": 2.0}})


def row(session: str, output: int | None = 10, folder: str | None = "/a", **more: Any) -> UsageSum:
    given: dict[str, Any] = {
        "session_id": session, "turn": "", "model": "m", "hour": 0, "agent": "claude", "folder": folder,
        "account": None, "first": NOW, "last": NOW, "messages": 1, "turns": 1, "input": 5, "output": output,
        "cache_read": 1_000_000, "cache_write": 2, "cost": None, "costed": 0,
    }  # fmt: skip
    return UsageSum(**{**given, **more})


def live(name: str, folder: str | None = "/a", *, reports: bool = True) -> LiveSession:
    return LiveSession(f"id-{name}", name, folder, name, reports)


def accounts(
    limit: BudgetLimit,
    sessions: list[LiveSession],
    usage: CountedUsage,
    raised: dict[str, float] | None = None,
) -> list[LimitAccount]:
    return find_accounts([limit], sessions, usage, raised or {}, PRICES, NOW)


@pytest.mark.parametrize(
    ("measure", "cache_reads", "used"),
    [("output_tokens", False, 10), ("tokens", False, 17), ("tokens", True, 1_000_017), ("turns", False, 1)],
)
def test_accounts_cache_reads_count_only_where_they_are_wanted(
    measure: str, cache_reads: bool, used: float
) -> None:
    limit = BudgetLimit("l", measure, 100.0, ("session",), cache_reads=cache_reads)
    (found,) = accounts(limit, [live("a")], CountedUsage([row("id-a")]))
    assert (found.used, found.unknown) == (used, ())


def test_accounts_what_is_not_known_is_never_over_and_is_named() -> None:
    limit = BudgetLimit("l", "output_tokens", 1.0, ("session",))
    silent, fresh, lost = live("silent", reports=False), live("fresh"), live("lost")
    found = accounts(limit, [silent, fresh, lost], CountedUsage([row("id-lost", None)]))
    assert [(one.used, one.unknown, one.is_over) for one in found] == [
        (None, ("silent",), False),
        (0.0, (), False),
        (None, ("the output tokens of some messages",), False),
    ]
    cost = BudgetLimit("c", "cost", 0.1, ("day",))
    rows = [row("id-a", 10_000), row("id-a", 10_000, model="without a price")]
    (found_cost,) = accounts(cost, [live("a")], CountedUsage(today=rows))
    assert found_cost.used == pytest.approx(0.200009, abs=1e-3)
    assert (found_cost.unknown, found_cost.is_over) == (("the cost of some messages",), True)


def test_request_of_a_session_over_its_budget_says_so_until_messages_flow_again() -> None:
    def event(kind: EventKind, at: float, **facts: Any) -> Event:
        return Event(kind, "s", NOW + at, Source.HOOK, f"{kind}:{at}", facts)

    index, bash = SessionIndex(), {"tool": "Bash", "input": {"command": "make"}}
    why = "budget 'small': 14 turns used of 10 turns"
    hold = event(EventKind.HELD, 3, tool="budget", input={}, message="m", over_budget=why)

    def shown() -> set[str | None]:
        index_items = [item.detail for item in index.queue()]
        requests = [one for one in index.entries["s"].approvals.values() if one.tool == "Bash"]
        return {one.get("over_budget") for one in (*index_items, *(one.detail for one in requests))}

    for one in (event(EventKind.PROMPTED, 1, prompt="go"), event(EventKind.ASKED, 2, **bash)):
        index.take(one, NOW)
    assert shown() == {None}
    index.take(hold, NOW)
    assert shown() == {why}
    [item] = index.queue()
    assert words(item, None)["title"].endswith(": permission, over budget")
    index.take(event(EventKind.ASK_ENDED, 4, ask=make_ask_id(hold)), NOW)
    assert shown() == {why}, "denied: it is still paused"
    index.take(event(EventKind.HELD, 5), NOW)
    assert shown() == {None}


def test_cost_warnings_name_what_has_no_price() -> None:
    money, tokens = BudgetLimit("money", "cost", 5, ("day",)), BudgetLimit("work", "tokens", 5, ("day",))
    known = Prices("USD", {"claude-*": dict.fromkeys(KINDS, 1.0), "gpt-*": {"input": 1.0, "output": 2.0}})
    assert cost_warnings([tokens], Prices(), ["gpt-6"]) == []
    [nothing] = cost_warnings([money, tokens], Prices())
    assert nothing.startswith("'money' may not hold: [prices] is not set")
    [used] = cost_warnings([money], Prices(), ["m2", "m1", "m2"])
    assert used.endswith("their cost is not known: m1, m2")
    [missing, other] = cost_warnings([money], known, ["grok-5"])
    assert '[prices."gpt-*"] has no cache_read and no cache_write' in missing
    assert other.endswith("grok-5")
    assert cost_warnings([money], Prices("USD", {"claude-*": dict.fromkeys(KINDS, 1.0)})) == []


def test_accounts_of_a_session_count_the_conversations_before_a_clear_and_keep_what_was_allowed() -> None:
    limit = BudgetLimit("l", "output_tokens", 15.0, ("session",), step=10.0)
    before = live("a")
    after = replace(live("b"), name="a", earlier=(before.id,))
    usage = CountedUsage([row("id-a"), row("id-b"), row("id-c")])
    (first,) = accounts(limit, [before], usage)
    (second,) = accounts(limit, [after], usage)
    assert (first.used, second.used, second.is_over, second.session_id) == (10, 20, True, "id-b")
    (allowed,) = accounts(limit, [after], usage, {first.key: 25.0})
    assert (allowed.allowed, allowed.is_over) == (25, False)


def test_accounts_per_folder_and_day_add_up_and_a_raise_counts_for_its_own_key() -> None:
    limit = BudgetLimit("l", "output_tokens", 15.0, ("folder", "day"), step=10.0)
    sessions = [live("a"), live("b"), live("c", "/b")]
    usage = CountedUsage(today=[row("id-a"), row("id-b"), row("id-c", folder="/b")])
    over, under = accounts(limit, sessions, usage)
    assert (over.used, over.is_over, over.next_allowed) == (20, True, 25)
    assert not under.is_over
    assert {*holds([over, under])} == {"id-a", "id-b"}
    assert [one["folder"] for one in hold_entries([over, under], NOW + 60)] == ["/a"]
    again, _ = accounts(limit, sessions, usage, {over.key: over.next_allowed})
    assert (again.allowed, again.is_over) == (25, False)


@pytest.mark.parametrize(
    "edited", [BudgetLimit("l", "output_tokens", 5.0, ("day",)), BudgetLimit("l", "cost", 15.0, ("day",))]
)
def test_raise_ends_when_the_amount_of_the_limit_is_edited(edited: BudgetLimit) -> None:
    usage = CountedUsage(today=[row("id-a")])
    (before,) = accounts(BudgetLimit("l", "output_tokens", 15.0, ("day",)), [live("a")], usage)
    (after,) = accounts(edited, [live("a")], usage, {before.key: 1000.0})
    assert after.allowed == edited.most


def test_accounts_time_is_what_was_seen_and_counts_by_day() -> None:
    day = accounts(BudgetLimit("l", "time", 60.0, ("day",)), [], CountedUsage())[0].day
    assert day is not None
    usage = CountedUsage(worked={("id-a", day): 61.0, ("id-a", "1999-01-01"): 600.0}, folders={"id-a": "/a"})
    (daily,) = accounts(BudgetLimit("l", "time", 60.0, ("session", "day")), [live("a")], usage)
    (ever,) = accounts(BudgetLimit("l", "time", 60.0, ("session",)), [live("a")], usage)
    assert (daily.used, ever.used) == (61, 661)


def test_holds_the_hardest_limit_counts_and_a_warning_holds_nothing() -> None:
    usage = CountedUsage([row("id-a")])
    found = [
        accounts(
            BudgetLimit(action, "output_tokens", 5.0, ("session",), BudgetAction(action)), [live("a")], usage
        )[0]
        for action in ("warn", "stop", "pause")
    ]
    assert holds(found)["id-a"].account.limit.action is BudgetAction.STOP
    assert holds(found[:1]) == {}
    assert hold_entries(found[:1], NOW) == []


def test_session_without_a_folder_holds_no_other() -> None:
    limit = BudgetLimit("l", "output_tokens", 5.0, ("folder",))
    found = accounts(limit, [live("a", None)], CountedUsage([row("id-a", folder=None)]))
    assert [one.get("session") for one in hold_entries(found, NOW)] == ["id-a"]


def test_folder_below_with_its_own_account_is_not_held_with_the_one_above() -> None:
    limit = BudgetLimit("l", "output_tokens", 5.0, ("folder",))
    usage = CountedUsage([row("id-a", folder="/a"), row("id-old", 1, folder="/a/old")])
    found = accounts(limit, [live("a", "/a"), live("b", "/a/b"), live("c", "/ab")], usage)
    (entry,) = hold_entries(found, NOW)
    assert (entry["folder"], entry["except"]) == ("/a", ["/a/b", "/a/old"])


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('[[limit]]\nturns = 1\nacton = "warn"', "line 3: unknown key 'acton'", "did you mean 'action'?"),
        ('[[limit]]\nturns = 1\n\naction = "pasue"', "line 4: action 'pasue' is not known", "'pause'?"),
        ('[[limit]]\nturns = 1\n[[limit]]\nper = "sesion"\nturns = 2', "line 4: per 'sesion'", "'session'?"),
        ("[[limits]]\nturns = 1", "line 1: unknown key 'limits'", "did you mean 'limit'?"),
        ("# none\n[[limit]]\n", "line 2: the limit has no amount", "write one of output_tokens"),
        ("[[limit]]\nturns = 1\ncost = 2.0", "line 1: the limit has cost and turns", "each [[limit]]"),
        ("[[limit]]\nturns = 1.5", "line 2: turns must be an integer, not 1.5", ""),
        ("[[limit]]\ncost = nan", "line 2: cost must be a number above 0, not nan", ""),
        ("[[limit]]\ncost = -1", "line 2: cost must be a number above 0, not -1", ""),
        (f"[[limit]]\noutput_tokens = 1{'0' * 400}", "line 2: output_tokens must be a number above 0", ""),
        (
            "[[limit]]\ncost = 20.0\nstep = 1e-320",
            "line 3: step 9.99989e-321 is too small for 20",
            "leave it",
        ),
        ('[[limit]]\ntime = "2 hours"', "line 2: time is '2 hours'", "2h30m"),
        ('[[limit]]\nturns = 1\nfolder = "src"', "line 3: folder 'src' must begin with / or ~", ""),
        ('[[limit]]\nturns = 1\nper = "day"\nsession = "a"', 'line 4: session needs per = "session"', ""),
        ("[[limit]]\nturns = 1\n[[limit]]\nturns = 2", "two limits are called 'turns per session'", "name"),
        ("[[limit]]\nturns = \n", "not TOML: Invalid value (at line 2, column 9)", ""),
        ("limit = 3", "line 1: limits must be [[limit]] tables", ""),
    ],
)
def test_read_budget_of_a_wrong_file_names_the_line_and_the_right_word(
    text: str, message: str, hint: str
) -> None:
    with pytest.raises(InvalidOptions) as caught:
        read_budget(text, "/home/u")
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_read_budget_of_a_good_file_has_everything_in_it() -> None:
    text = """
    [[limit]]
    name = "night"
    time = "1h30m"
    step = "30m"
    per = ["day", "folder"]
    folder = ["~/src/", "/srv"]
    action = "stop"
    """
    (limit,) = read_budget(text, "/home/u")
    folders = ("/home/u/src", "/srv")
    assert limit == BudgetLimit(
        "night", "time", 5400.0, ("folder", "day"), BudgetAction.STOP, 1800.0, (), folders
    )


def test_folder_of_a_limit_is_also_where_a_link_leads() -> None:
    (limit,) = read_budget('[[limit]]\nturns = 1\nfolder = "~//a/../link/"', "/home/u", lambda _: "/disk/src")
    assert limit.folders == ("/home/u/link", "/disk/src")
    assert limit.takes(live("a", "/disk/src/shop"))
    assert limit.takes(live("b", "/home/u/link"))
    assert not limit.takes(live("c", "/home/u/a"))
