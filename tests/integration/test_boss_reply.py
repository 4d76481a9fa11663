"""`remuda reply`: through the inbox of a kept session, or into a pane that is proven to wait for a prompt."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.boss.answers.idle_proof import whole_rows
from support.boss import RunningBoss
from support.commands import Commands
from support.keeper import Process, Start, until
from support.messages import Post
from support.pane_agent import AgentPane, install_hooks
from support.tmux_attention import TmuxBench

AGENT = [sys.executable, "-P", "-m", "remuda.testing.scripted_agent", "--permission-mode", "default"]


class Bench:
    """A scripted agent in a pane, and a boss that hears of it by its hooks."""

    def __init__(self, home: Path, remuda: Commands, boss: RunningBoss, tmux: TmuxBench) -> None:
        self.remuda = remuda
        self.boss = boss
        self.tmux = tmux
        self.project = home / "project"
        self.project.mkdir()
        config = home / "claude"
        install_hooks(remuda, config / "settings.json")
        env = {name: os.environ[name] for name in ("PATH", "LC_ALL", "LANG") if name in os.environ}
        env |= {"HOME": str(home), "CLAUDE_CONFIG_DIR": str(config), "MOCK_TIME_SCALE": "0.01"}
        env |= {"MOCK_DIALOG_GUARD": "0", "REMUDA_HOME": str(home)}
        self.pane = AgentPane(tmux, boss, AGENT, env, self.project)
        self.session = self.pane.session("started", "stopped")
        self.pane.until_shows("❯")

    def reply(self, *words: str) -> str:
        return self.remuda("reply", self.pane.id, *words).out

    def refused(self) -> str:
        """Nothing is typed."""
        why = self.remuda.refused("reply", self.pane.id, "never typed", code=8)
        assert "never typed" not in self.pane.shown()
        return why


@pytest.fixture
def bench(home: Path, remuda: Commands, boss: RunningBoss, tmux: TmuxBench) -> Iterator[Bench]:
    made = Bench(home, remuda, boss, tmux)
    yield made
    tmux.close()


def test_reply_to_a_kept_session_goes_through_its_inbox(
    start: Start, home: Path, remuda: Commands, boss: RunningBoss
) -> None:
    own = {"CLAUDE_CONFIG_DIR": str(home / "claude"), "MOCK_TIME_SCALE": "0.01"}
    env = {**os.environ, **own}
    post = Post(start("work", AGENT, agent="demo", classifier="claude", env=env, cwd=str(home)))
    boss.client.post(
        "events",
        body={"events": [{"kind": "seen", "session_id": "x", "facts": {"name": "work", "origin": "kept"}}]},
    )
    assert remuda("reply", "work", "hello", "--wait").out == "REPLY#1 to: hello\n"
    said, number = remuda("reply", "work", "again").out.split()
    assert said == "accepted"
    assert post.ended(number).stage == "acked"
    assert "would run the agent's own command" in remuda.refused("reply", "work", "/clear", code=4)
    assert "the prompt is empty" in remuda.refused("reply", "work", "", code=4)


def test_reply_into_an_idle_pane_is_submitted_and_answered(bench: Bench) -> None:
    assert bench.reply("hello pane", "--wait") == "REPLY#1 to: hello pane\n"
    bench.pane.session("stopped")
    assert bench.reply("two\nlines\n!not a command").startswith("submitted to ")
    bench.pane.until_shows("REPLY#2 to: two lines !not a command")
    bench.pane.session("stopped")
    assert "REPLY#3 to: !ls" in bench.reply("!ls", "--wait")


def test_reply_is_refused_while_it_works_and_while_it_asks(bench: Bench) -> None:
    bench.reply("RUNBASH touch made")
    bench.pane.session("waiting")
    assert "is not idle: waiting; 'remuda approvals' shows the request" in bench.refused()
    assert not (bench.project / "made").exists()
    # Its registry may tell that it asks before its hook tells for what.
    until(lambda: bench.boss.client.get("approvals", state="open")["approvals"], "what it asks for")
    bench.remuda("approve", bench.pane.id, "--yes")
    bench.pane.session("stopped")
    assert (bench.project / "made").exists()
    bench.reply("SLOW 3000")
    assert "is not idle: working" in bench.refused()
    bench.pane.press("Escape")


def test_reply_is_refused_over_a_draft_and_in_copy_mode(bench: Bench) -> None:
    bench.tmux.run("copy-mode", "-t", bench.pane.id)
    assert "copy mode" in bench.refused()
    bench.tmux.run("send-keys", "-X", "-t", bench.pane.id, "cancel")
    bench.pane.press("-l", "half a thought")
    bench.pane.until_shows("half a thought")
    assert "composer holds a draft: 'half a thought'" in bench.refused()


@pytest.mark.parametrize("prompt", ["/clear", "\x1b[201~rm", "\u200b"])
def test_reply_that_would_be_something_else_is_not_typed(bench: Bench, prompt: str) -> None:
    before = bench.pane.shown()
    bench.remuda.refused("reply", bench.pane.id, prompt, code=4)
    assert "dedup works only for" in bench.remuda.refused("reply", bench.pane.id, "x", "--dedup", "k", code=2)
    assert bench.pane.shown() == before


def test_reply_is_refused_when_the_agent_is_not_what_gets_the_keys(bench: Bench) -> None:
    process = Process(bench.session["pid"])
    process.signal(signal.SIGSTOP)
    until(lambda: "$" in bench.pane.shown() or "#" in bench.pane.shown(), "the shell")
    assert "not in the foreground" in bench.refused()
    process.kill()
    process.close()
    assert bench.remuda.refused("reply", bench.pane.id, "hello", code=8)


def test_reply_to_a_conversation_that_another_has_replaced_is_refused(
    remuda: Commands, boss: RunningBoss, home: Path
) -> None:
    for at, number in ((10.0, "before"), (20.0, "after")):
        facts = {"name": "work", "origin": "kept", "how": "clear"}
        told = {"kind": "registered", "session_id": number, "at": at, "facts": facts}
        boss.client.post("events", body={"events": [told]})
    assert "now in another conversation" in remuda.refused("reply", "before", "hello", code=8)
    assert not (home / "sessions" / "work.inbox").exists()


def test_reply_that_no_pane_can_be_given_is_refused(remuda: Commands, boss: RunningBoss) -> None:
    told = {"kind": "stopped", "session_id": "nowhere", "facts": {"agent": "claude", "pid": 1}}
    boss.client.post("events", body={"events": [told]})
    assert "not in a known tmux pane" in remuda.refused("reply", "nowhere", "hello", code=8)
    told = {"kind": "stopped", "session_id": "gone", "facts": {"agent": "claude", "pid": 1, "pane": "%7"}}
    told["facts"] |= {"tmux": str(boss.folder.path / "none")}  # type: ignore[operator]
    boss.client.post("events", body={"events": [told]})
    assert "cannot read the agent's pane" in remuda.refused("reply", "gone", "hello", code=8)
    assert "not found" in remuda.refused("reply", "nobody", "hello", code=3)


def test_rows_that_tmux_reports_by_their_difference_are_read() -> None:
    rows = [b"\x1b[2mfaint", b"still", b"\x1b[0mplain", b"\x1b[31mred\x1b[1m", b"both\x1b[m", b"none"]
    assert whole_rows(rows) == [
        b"\x1b[2mfaint",
        b"\x1b[2mstill",
        b"\x1b[2m\x1b[0mplain",
        b"\x1b[0m\x1b[31mred\x1b[1m",
        b"\x1b[0m\x1b[31m\x1b[1mboth\x1b[m",
        b"\x1b[mnone",
    ]
