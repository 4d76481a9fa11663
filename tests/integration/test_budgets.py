"""Budgets: a session over its limit is paused and asks, whoever sends, and whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import queue
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from remuda.errors import EXIT_CODES
from remuda.keeper.environment import session_environment
from support.boss import RunningBoss
from support.budgets import SOURCES, boss_with_limit, item, limit, paused
from support.commands import Commands
from support.heimdall_client import PATIENCE
from support.keeper import Kept, Start, until, until_equal
from support.mcp_agents import bench_in
from support.messages import Post, stages

AGENT = [sys.executable, "-P", "-m", "remuda.testing.scripted_agent"]
OUTPUT = 7
"""Output tokens of each answer of the scripted agent."""
OPTIONS = [{"label": one, "description": ""} for one in ("Yes", "No")]


PRICES = """
[prices."claude-opus-*"]
input = 0
output = 1_000_000
cache_read = 0
cache_write = 0
"""
"""One dollar for each output token."""


class Bench:
    def __init__(self, boss: RunningBoss, remuda: Commands, start: Start, folder: Path) -> None:
        self.boss = boss
        self.remuda = remuda
        self.project = folder / "project"
        self.project.mkdir()
        self._start = start
        self._config = folder / "claude"
        self._config.mkdir()

    def limit(self, *lines: str) -> None:
        limit(self.boss.folder, *lines)

    def keep(
        self, name: str, cwd: Path | None = None, *, settled: bool = True, model: str = "", **spec: Any
    ) -> Post:
        (cwd or self.project).mkdir(exist_ok=True)
        own = {"CLAUDE_CONFIG_DIR": str(self._config), "MOCK_TIME_SCALE": "0.01"}
        env = session_environment({**os.environ, **own}, name, "HEIMDALL", {})
        given: dict[str, Any] = {"agent": "demo", "classifier": "claude", "cols": 100, "rows": 30, **spec}
        argv = [*AGENT, *(("--model", model) if model else ())]
        kept: Kept = self._start(name, argv, cwd=str(cwd or self.project), env=env, **given)
        post = Post(kept)
        if settled:
            post.watcher.settled("idle")
        return post

    def over(self, name: str, *lines: str) -> Post:
        """A session that is paused after its first prompt."""
        self.limit(*lines)
        post = self.keep(name)
        post.run("one")
        self.paused(name)
        return post

    def keep_with_two_conversations(self, name: str) -> Post:
        self.limit("output_tokens = 1000")
        post = self.keep(name)
        post.run("one")
        post.run("/clear", command=True)
        post.run("two")
        self.until_used(2 * OUTPUT)
        return post

    def allow(self, name: str) -> None:
        self.remuda("approve", name, "--yes")

    def item(self, name: str) -> dict[str, Any] | None:
        return item(self.boss, name)

    def paused(self, name: str) -> dict[str, Any]:
        return paused(self.boss, name)

    def row(self) -> dict[str, Any]:
        """No limit is listed while there is no session that it holds."""
        (row,) = until(lambda: self.boss.client.get("budget")["limits"], "a limit that holds a session")
        return dict(row)

    def until_used(self, amount: float) -> None:
        until_equal(lambda: self.row()["used"], amount, "what is used")


@pytest.fixture
def bench(
    home: Path, remuda: Commands, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    config = tmp_path / "config" / "remuda"
    config.mkdir(parents=True)
    (config / "remuda.toml").write_text(PRICES)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config.parent))
    with RunningBoss(home, SOURCES) as boss:
        yield Bench(boss, remuda, start, tmp_path)


def test_pause_holds_every_sender_over_kills_until_a_human_allows_more(bench: Bench) -> None:
    bench.limit('name = "small"', "output_tokens = 10", "step = 20", 'session = "work*"')
    work, other = bench.keep("work"), bench.keep("other")
    work.run("one", "two")
    asked = bench.paused("work")
    assert asked["detail"]["input"]["used"] == f"{2 * OUTPUT} output tokens"
    assert asked["detail"]["input"]["approve"] == "allows up to 30 output tokens"

    waiting = [work.put("three"), bench.remuda.json("send", "work", "four")["id"]]
    work.held("budget 'small': 14 output tokens used of 10 output tokens")
    other.run("of no budget")
    assert "budget 'small'" in bench.remuda("show", "work").out
    assert "budget 'small'" in bench.remuda("receipt", waiting[0]).out
    assert "budget: small" in bench.remuda("queue").out

    bench.boss.end(signal.SIGKILL)
    other.run("without a boss")
    work.held("budget 'small'")
    work.kept.keeper.kill()
    again = bench.keep("work", resume=True)
    again.held("budget 'small'")
    assert [stages(again.trace(one)) for one in waiting] == [["accepted"], ["accepted"]]

    bench.boss.start()
    assert bench.paused("work")["detail"]["ask"] == asked["detail"]["ask"]
    assert "small" in bench.remuda("budget").out
    bench.allow("work")
    assert [again.ended(one).stage for one in waiting] == ["acked", "acked"]
    approval = bench.boss.client.get("approvals", asked["detail"]["ask"])
    assert (approval["state"], approval["by"], approval["tool"]) == (
        "answered",
        "api: command line",
        "budget",
    )
    assert "allowed on the command line" in bench.remuda("approvals", asked["detail"]["ask"]).out
    until_equal(lambda: (bench.row()["used"], bench.row()["allowed"]), (4 * OUTPUT, 30.0), "the new limit")
    assert bench.item("work") is None


def test_money_by_configured_prices_pauses_a_session(bench: Bench) -> None:
    bench.limit("cost = 10", "step = 5")
    work = bench.keep("work")
    work.run("one")
    bench.until_used(OUTPUT)
    assert bench.item("work") is None
    work.run("two")
    assert bench.paused("work")["detail"]["input"]["used"] == f"{2 * OUTPUT:.2f} USD"
    held = work.put_held("three", "budget 'cost per session': 14.00 USD used of 10.00 USD")
    bench.allow("work")
    assert work.ended(held).stage == "acked"
    assert bench.row()["allowed"] == 15.0


def test_new_conversation_of_a_session_does_not_begin_its_budget_at_zero(bench: Bench) -> None:
    bench.limit("output_tokens = 10", "step = 10")
    post = bench.keep("work")
    post.run("one")
    for text, used in (("two", 2 * OUTPUT), ("three", 3 * OUTPUT)):
        post.run("/clear", command=True)
        post.run(text)
        assert bench.paused("work")["detail"]["input"]["used"] == f"{used} output tokens"
        bench.allow("work")
        until(lambda: bench.item("work") is None, "what was allowed")
    post.kept.keeper.signal(signal.SIGTERM)
    assert post.kept.keeper.ended()
    fresh = bench.keep("work")  # another session of that name
    fresh.run("four")
    bench.until_used(OUTPUT)


def test_session_that_is_resumed_counts_the_conversations_before_that_too(bench: Bench) -> None:
    post = bench.keep_with_two_conversations("work")
    post.kept.keeper.kill()
    post = bench.keep("work", resume=True)
    post.run("/clear", command=True)
    post.run("three")
    bench.until_used(3 * OUTPUT)


def test_conversation_that_ended_long_ago_still_counts(bench: Bench) -> None:
    post = bench.keep_with_two_conversations("work")
    bench.boss.end()
    with closing(sqlite3.connect(bench.boss.folder.path / "boss.db")) as database, database:
        changed = database.execute("UPDATE session SET ended = 1 WHERE ended IS NOT NULL").rowcount
    assert changed == 1
    bench.boss.start()
    post.run("three")
    bench.until_used(3 * OUTPUT)


def test_denied_budget_stays_paused_and_asks_no_second_time(bench: Bench) -> None:
    first = bench.over("first", "turns = 1", 'per = ["folder", "day"]')
    asked = bench.paused("first")
    held = first.put_held("two", "budget 'turns per folder and day': 1 turns used of 1 turns")
    # A session that starts later in the same folder is held from its first prompt; one elsewhere is not.
    late = bench.keep("late", prompt="passed at the start", message_id="m-late")
    late.held("budget 'turns")
    bench.keep("else", bench.project.parent / "elsewhere").run("hello")
    # One below is another folder, with an account of its own.
    bench.keep("below", bench.project / "below").run("hello")
    bench.remuda("deny", "first")
    until(lambda: bench.item("first") is None, "the queue without it")
    bench.boss.restart()
    bench.paused("late")
    assert bench.item("first") is None
    assert stages(first.trace(held)) == ["accepted"]
    (bench.boss.folder.path / "budget.toml").unlink()
    assert first.ended(held).stage == "acked"
    until(lambda: bench.item("late") is None, "no request without a limit")
    assert asked["detail"]["input"]["folder"] == str(bench.project)


def test_stop_interrupts_the_turn_and_what_is_not_known_is_not_guessed(bench: Bench) -> None:
    bench.limit("time = 1", 'action = "stop"', 'session = "slow"')
    slow = bench.keep("slow")
    endless = slow.put_until("SLOW 6000 words", "submitted")
    bench.paused("slow")
    assert "interrupted by budget 'time per session'" in str(slow.ended(endless).steps[-1])
    bench.limit("cost = 0.01", 'session = "unknown"')
    bench.keep("unknown", model="claude-sonnet-1").send("costs nothing that is known")
    until(lambda: bench.row()["unknown"], "unknown cost")
    shown = bench.remuda("budget")
    assert "not known, and not counted: the cost of some messages" in shown.err
    checked = bench.remuda("budget", "check")
    assert "these models were used, and their cost is not known: claude-sonnet-1" in checked.err
    assert bench.item("unknown") is None
    bench.boss.end()
    assert "[prices] is not set" in bench.remuda("budget", "check").err


def test_stop_at_a_permission_dialog_ends_the_turn_before_anyone_allows_it(bench: Bench) -> None:
    bench.limit("output_tokens = 5", 'action = "stop"')
    work = bench.keep("work")
    asked = work.put("RUNBASH touch made")
    assert "interrupted by budget 'output tokens per session'" in str(work.ended(asked).steps[-1])
    assert not (bench.project / "made").exists()
    bench.paused("work")


def test_stop_that_the_keeper_refuses_is_tried_again_when_the_turn_goes_on(bench: Bench) -> None:
    bench.limit("output_tokens = 5", 'action = "stop"')
    work, holds = bench.keep("work"), bench.remuda.home / "budget" / "holds.json"
    question = {"question": "Go on?", "header": "h", "multiSelect": False, "options": OPTIONS}
    calls = [("AskUserQuestion", {"questions": [question]}), ("Bash", {"command": "touch made"})]
    work.watcher.paste("TOOLS " + json.dumps([{"name": name, "input": given} for name, given in calls]))
    work.watcher.until("waiting_answer")
    until(holds.exists, "the pause")
    bench.boss.restart(signal.SIGKILL)
    until(lambda: bench.row()["paused"], "the pause, of the next boss")
    assert work.client.describe()["state"] == "waiting_answer"  # no key may answer a question
    work.watcher.answer(b"\r")
    until(lambda: work.client.describe()["state"] in ("idle", "interrupted"), "the end of the turn")
    assert not (bench.project / "made").exists()
    work.watcher.paste("typed by a human, who may")  # only the turn that passed the limit was stopped
    work.watcher.until_shows("to: typed by a human")


def test_warning_is_one_notice_and_holds_nothing(bench: Bench) -> None:
    got: queue.Queue[str] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name is the library's
            got.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        to = f'[[to]]\nurl = "http://127.0.0.1:{server.server_port}/"\nreasons = ["budget"]\n'
        (bench.boss.folder.path / "notify.toml").write_text(to)
        (bench.boss.folder.path / "notify.toml").chmod(0o600)
        bench.limit("turns = 1", 'per = "day"', 'action = "warn"')
        work = bench.keep("work")
        work.run("one")
        assert "budget 'turns per day': 1 turns used of 1 turns" in got.get(timeout=PATIENCE)
        work.run("two")
        bench.until_used(2)
        server.shutdown()
    assert got.empty()
    assert bench.item("work") is None
    assert "warned" in bench.remuda("budget").out


def test_typo_in_the_file_names_the_line_and_the_word_and_keeps_the_last_limits(bench: Bench) -> None:
    work = bench.over("work", "turns = 1")
    bench.limit("turns = 1", 'action = "puase"')
    found = bench.remuda("budget", "check", code=EXIT_CODES["INVALID_OPTIONS"])
    assert "budget.toml: line 3: action 'puase' is not known" in found.err
    assert "did you mean 'pause'?" in found.err
    until(lambda: bench.boss.client.get("budget")["error"], "the error")
    work.put_held("two", "budget 'turns per session'")
    bench.boss.restart()  # the limits stay for the next boss too
    bench.keep("other").run("one")
    bench.paused("other")
    assert "puase" in bench.remuda("budget").err
    assert json.loads(bench.remuda("budget", "--json").out)["limits"][0]["over"]


def test_pause_whose_file_is_removed_is_written_again(bench: Bench) -> None:
    bench.over("work", "output_tokens = 5")
    holds = bench.remuda.home / "budget" / "holds.json"
    before = holds.read_bytes()

    holds.unlink()
    until(holds.exists, "the file of pauses")
    assert holds.read_bytes() == before


def test_agent_cannot_raise_the_budget_of_what_it_started_whatever_the_policy_says(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench_in(home, tmp_path, monkeypatch) as agents, boss_with_limit(home, "turns = 1") as boss:
        agents.write("policy.toml", '[[rule]]\ndecision = "ask"\ntool = "budget"\nmcp = "token:ci"\n')
        ci = agents.outside("ci")
        name = ci.start("a", prompt="one")
        request = paused(boss, name)["detail"]["ask"]
        assert [(one["request"], one["may_answer"]) for one in ci.requests()] == [(request, False)]
        refused = ci.refused("answer_permission", request=request, decision="allow")
        assert refused.code == "PERMISSION_REFUSED"
        (row,) = boss.client.get("budget")["limits"]
        assert (row["allowed"], row["paused"]) == (1.0, [name])
