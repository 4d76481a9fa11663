"""Agents without hooks in a real tmux: a title lets them take part, silence at a prompt calls someone."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.boss import RunningBoss
from support.keeper import until
from support.tmux_attention import TmuxBench


@pytest.fixture
def boss(home: Path, tmux: TmuxBench, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBoss]:
    monkeypatch.setenv("TMUX_TMPDIR", tmux.env["TMUX_TMPDIR"])
    monkeypatch.setenv("TRAILBOSS_POLL_INTERVAL_MS", "100")
    monkeypatch.setenv("TRAILBOSS_QUIET_THRESHOLD_MS", "300")
    one = RunningBoss(home, ("remuda.boss.evidence.detector:Detector",))
    yield one
    one.close()


def waiting_pane(boss: RunningBoss, tmux: TmuxBench) -> tuple[str, dict[str, Any]]:
    """One at its prompt that takes part by its title, and its place in the queue."""
    tmux.start("plain", "work")
    pane = tmux.pane("work").id
    tmux.run("send-keys", "-t", pane, "PS1='ready> '; clear", "Enter")
    boss.start()
    tmux.run("select-pane", "-t", pane, "-T", "@tb-worker")
    stuck = until(boss.waiting, "a pane that waits")[0]
    return pane, stuck


def test_pane_takes_part_by_its_title_from_prompt_to_its_end(boss: RunningBoss, tmux: TmuxBench) -> None:
    pane, stuck = waiting_pane(boss, tmux)
    assert (stuck["session"]["pane"], stuck["session"]["title"]) == (pane, "@tb-worker")
    assert stuck["session_id"].startswith(f"tmux-{pane}-")
    assert stuck["message"].endswith("ready>")
    boss.restart(signal.SIGKILL)
    assert [item["id"] for item in boss.waiting()] == [stuck["id"]]
    tmux.run("send-keys", "-t", pane, "cat", "Enter")
    until(lambda: not boss.waiting(), "new output to set it free")
    tmux.run("send-keys", "-t", pane, "C-c", "")
    until(boss.waiting, "a pane that waits again")
    tmux.run("select-pane", "-t", pane, "-T", "mine")
    until(lambda: not boss.waiting(), "its end with its title")
    tmux.run("select-pane", "-t", pane, "-T", "@remuda-worker")
    until(boss.waiting, "another one in the same pane")
    tmux.run("kill-pane", "-t", pane)
    until(lambda: not boss.waiting(), "its end with its pane")
    assert boss.client.get("sessions")["sessions"] == []


def test_panes_of_a_server_that_does_not_answer_are_not_given_up(boss: RunningBoss, tmux: TmuxBench) -> None:
    pane, stuck = waiting_pane(boss, tmux)
    boss.end()
    assert tmux.server is not None
    tmux.server.signal(signal.SIGSTOP)
    try:
        boss.start()
        assert [item["id"] for item in boss.waiting()] == [stuck["id"]]
    finally:
        tmux.server.signal(signal.SIGCONT)
    tmux.run("send-keys", "-t", pane, "cat", "Enter")
    until(lambda: not boss.waiting(), "new output to set it free")
    assert [one["id"] for one in boss.client.get("sessions")["sessions"]] == [stuck["session_id"]]
