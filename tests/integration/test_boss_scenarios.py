"""The scenarios of Trail Boss: its acceptance tests by their numbers, its third phase, its invariants.

Each behaviour that other files show already is in `ELSEWHERE`, with the tests that show it.
"""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import remuda as package
from support.boss import RunningBoss, event
from support.commands import Commands
from support.keeper import until
from support.tmux_attention import TmuxBench

TESTS = Path(__file__).parents[1]
ELSEWHERE = {
    "a session that speaks from another pane is there": [
        "integration/test_boss_trail_boss.py::test_session_that_moves_to_another_pane_is_found_there",
        "real/test_boss_facts.py::test_session_keeps_its_id_when_resumed_and_gets_another_when_cleared_or_forked",
    ],
    "what is known survives a restart": [
        "integration/test_boss_life.py::test_boss_that_is_killed_and_started_again_has_lost_nothing",
    ],
    "a preflight of a browser gets nothing": [
        "unit/boss/http/test_http_parts.py::test_gate_answers_options_as_if_there_were_nothing",
        "integration/test_boss_http.py::test_no_answer_lets_other_sites_read_it",
    ],
    "a quiet prompt is stuck, output sets it free": [
        "integration/test_boss_detector.py::test_pane_takes_part_by_its_title_from_prompt_to_its_end",
        "unit/boss/evidence/test_detector.py::test_quiet_prompt_is_stuck_once_and_free_with_new_output",
        "unit/boss/evidence/test_detector.py::test_trail_boss_variables_are_known_and_nonsense_is_not",
        "integration/test_boss_trail_boss.py::test_normalized_events_of_its_detector",
    ],
    "the segment in the status line tells down from empty": [
        "integration/test_attention_keys.py::test_segment_shows_down_empty_and_waiting_differently",
        "unit/tmux/test_conf.py::test_segment_shows_down_empty_and_how_many_wait",
    ],
    "a record with a date after the stop takes it out of the queue": [
        "unit/boss/evidence/test_transcripts.py::test_prompt_after_the_stop_resolves_it",
    ],
    "one of the same moment or before it does not": [
        "unit/boss/evidence/test_transcripts.py::test_record_of_the_same_moment_leaves_it",
        "unit/boss/evidence/test_transcripts.py::test_prompt_before_the_stop_leaves_it",
    ],
    "lines that are no records are passed over": [
        "unit/boss/evidence/test_transcripts.py::test_lines_that_are_no_records_are_passed_over",
    ],
    "a transcript that is not there changes nothing": [
        "unit/boss/evidence/test_transcripts.py::test_missing_file_leaves_it",
    ],
    "bootstrap, then a hook from the same pane: taken, and one item": [
        "integration/test_boss_trail_boss.py::test_real_hook_after_a_bootstrap_entry_on_the_same_pane_is_taken_and_is_one_item",
        "integration/test_attention_queue.py::test_bootstrap_then_the_agents_own_hook_makes_one_item",
    ],
    "a normalized event that cannot be is refused": [
        "integration/test_boss_trail_boss.py::test_normalized_event_that_cannot_be_is_refused_and_not_taken",
    ],
    "what happens while no boss runs is kept and told later": [
        "integration/test_boss_hook.py::test_what_happens_while_no_boss_runs_is_taken_in_later_in_order_and_once",
        "integration/test_boss_hook.py::test_boss_that_was_killed_or_hangs_costs_no_event",
    ],
}
RECONCILE = "remuda.boss.evidence.reconcile:Reconcile"


def defined(path: str) -> set[str]:
    body = ast.parse((TESTS / path).read_text()).body
    return {one.name for one in body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("behaviour", ELSEWHERE)
def test_what_is_shown_elsewhere_is_there(behaviour: str) -> None:
    for name in ELSEWHERE[behaviour]:
        path, _, test = name.partition("::")
        assert test in defined(path), name


def test_table_of_questions_names_tests_that_are_there() -> None:
    page = (TESTS.parent / "docs/why/claude-code.md").read_text()
    table = page.partition("## Asked of the real CLI")[2].partition("\n## ")[0]
    rows = [row for row in table.split("\n") if row.startswith("| ") and "`test_" in row]
    assert len(rows) > 10
    for row in rows:
        for path, begin in re.findall(r"`(test_\w+\.py)?(?:::)?(test_\w+)?…?`", row.split("|")[3]):
            if path or begin:
                found = defined(f"real/{path or 'test_boss_facts.py'}")
                assert any(test.startswith(begin) for test in found), row


# ── a boss, and panes that say what Trail Boss's emitter says ──


@pytest.fixture
def boss(home: Path, tmux: TmuxBench, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBoss]:
    monkeypatch.setenv("TMUX_TMPDIR", tmux.env["TMUX_TMPDIR"])
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "claude"))
    with RunningBoss(home, (RECONCILE,)) as one:
        yield one


@pytest.fixture
def panes(tmux: TmuxBench) -> list[str]:
    tmux.start("one", "two")
    return [tmux.pane(name).id for name in ("one", "two")]


class Told:
    """A session of Trail Boss's: it has a pane, and a transcript as Claude Code writes it."""

    def __init__(self, boss: RunningBoss, session: str, pane: str, folder: Path) -> None:
        self._boss = boss
        self.id = session
        self.pane = pane
        self.transcript = folder / f"{session}.jsonl"
        self.wrote("user", "begin", time.time() - 30)

    def tells(self, hook: str, **more: Any) -> None:
        payload = {"session_id": self.id, "hook_event_name": hook, "cwd": "/srv", **more}
        payload["transcript_path"] = str(self.transcript)
        path, headers = f"/t/{self._boss.token}/event", {"X-Tmux-Pane": self.pane}
        assert self._boss.ask("POST", path, payload, headers, token=None).json == {"ok": True}

    def wrote(self, kind: str, text: str, at: float | None = None) -> None:
        at = time.time() + 0.002 if at is None else at  # its stamp has no more than milliseconds
        message: dict[str, Any] = {"role": kind, "content": [{"type": "text", "text": text}]}
        if kind == "assistant":
            message |= {"id": f"m{at}", "model": "claude", "stop_reason": "end_turn"}
        stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        record = {"type": kind, "uuid": f"{self.id}{at}", "sessionId": self.id, "timestamp": stamp}
        with self.transcript.open("a") as file:
            file.write(json.dumps({**record, "isSidechain": False, "message": message}) + "\n")


def waiting(boss: RunningBoss) -> list[str]:
    return [item["session_id"] for item in boss.ask("GET", "/queue").json["items"]]


def first_pane(boss: RunningBoss) -> str | None:
    found: str | None = boss.ask("GET", "/next").json["paneId"]
    return found


# ── its acceptance tests ──


def test_as1_permission_is_queued_and_resolved_by_the_next_prompt(
    boss: RunningBoss, panes: list[str], tmp_path: Path
) -> None:
    session = Told(boss, "a", panes[0], tmp_path)
    session.tells("PermissionRequest", tool_name="Edit", tool_input={"file_path": "/srv/test.txt"})
    assert (waiting(boss), first_pane(boss)) == (["a"], panes[0])
    session.tells("UserPromptSubmit", prompt="go on")
    assert waiting(boss) == []


def test_as2_first_come_first_served(boss: RunningBoss, panes: list[str], tmp_path: Path) -> None:
    a, b = (Told(boss, name, pane, tmp_path) for name, pane in zip("ab", panes, strict=True))
    a.tells("Stop", last_assistant_message="first")
    b.tells("Stop", last_assistant_message="second")
    assert (waiting(boss), first_pane(boss)) == (["a", "b"], a.pane)
    a.tells("UserPromptSubmit", prompt="go on")
    assert (waiting(boss), first_pane(boss)) == (["b"], b.pane)


def test_as3_answered_in_its_pane_without_a_hook(boss: RunningBoss, panes: list[str], tmp_path: Path) -> None:
    session = Told(boss, "a", panes[0], tmp_path)
    session.tells("Stop", last_assistant_message="what now?")
    assert waiting(boss) == ["a"]
    session.wrote("user", "go on")
    until(lambda: waiting(boss) == [], "the answer in the transcript")


def test_as4_stop_that_was_dropped_is_found_in_the_transcript(
    boss: RunningBoss, panes: list[str], tmp_path: Path
) -> None:
    session = Told(boss, "a", panes[1], tmp_path)
    session.tells("SessionStart", source="startup")
    assert waiting(boss) == []
    boss.end(signal.SIGKILL)
    session.wrote("assistant", "it stopped while nobody heard")
    boss.start()
    until(lambda: waiting(boss) == ["a"], "the stop in the transcript")
    assert first_pane(boss) == panes[1]
    assert boss.waiting()[0]["message"] == "it stopped while nobody heard"
    session.wrote("user", "go on")
    until(lambda: waiting(boss) == [], "the answer in the transcript")


def test_as5_skipped_one_is_out_of_sight_for_a_while(
    boss: RunningBoss, panes: list[str], tmp_path: Path
) -> None:
    a, b = (Told(boss, name, pane, tmp_path) for name, pane in zip("ab", panes, strict=True))
    a.tells("Stop", last_assistant_message="first")
    b.tells("Stop", last_assistant_message="second")
    assert first_pane(boss) == a.pane
    assert boss.ask("POST", "/skip").json["paneId"] == b.pane
    b.tells("UserPromptSubmit", prompt="go on")
    assert (waiting(boss), first_pane(boss)) == ([], None)
    (hidden,) = boss.client.get("queue", hidden=True)["items"]
    assert hidden["session_id"] == "a"
    assert 0 < hidden["skip_until"] - time.time() <= 30


def test_as6_client_that_did_not_ask_is_not_moved(
    boss: RunningBoss, panes: list[str], tmux: TmuxBench, tmp_path: Path
) -> None:
    person = tmux.person("one")
    other = Told(boss, "a", panes[1], tmp_path)
    other.tells("Stop", last_assistant_message="come here")
    assert first_pane(boss) == panes[1]
    other.tells("PermissionRequest", tool_name="Bash", tool_input={"command": "ls"})
    assert boss.ask("POST", "/skip").status == 200
    other.tells("UserPromptSubmit", prompt="go on")
    assert tmux.client(person).pane_id == panes[0]


def test_as7_pane_that_is_used_again_means_who_is_there_now(
    boss: RunningBoss, panes: list[str], tmp_path: Path
) -> None:
    old, new = (Told(boss, name, panes[0], tmp_path) for name in ("old", "new"))
    old.tells("Stop", last_assistant_message="old")
    old.tells("SessionEnd", reason="other")
    new.tells("Stop", last_assistant_message="new")
    assert boss.ask("GET", "/next").json == {"paneId": panes[0], "sessionId": "new", "reason": None}
    assert waiting(boss) == ["new"]


def test_as8_transcript_as_it_is_written_takes_out_only_what_moved_on(
    boss: RunningBoss, panes: list[str], tmp_path: Path
) -> None:
    stays, goes = (Told(boss, name, pane, tmp_path) for name, pane in zip("ab", panes, strict=True))
    for one in (stays, goes):
        one.tells("Stop", last_assistant_message="what now?")
    stays.wrote("assistant", "what now?", time.time() - 20)
    goes.wrote("user", "go on")
    until(lambda: waiting(boss) == ["a"], "the answer to the other one")
    stays.wrote("user", "go on")
    until(lambda: waiting(boss) == [], "the answer")


# ── its invariants ──


def test_boss_listens_on_loopback_alone(boss: RunningBoss) -> None:
    assert boss.process is not None
    folder = Path(f"/proc/{boss.process.pid}/fd")
    inodes = {os.readlink(link).removeprefix("socket:[").removesuffix("]") for link in folder.iterdir()}
    listening = []
    for name in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes and (fields[3] == "0A" or name.startswith("udp")):
                listening.append((name, fields[1]))
    loopback = socket.inet_aton("127.0.0.1")[::-1].hex().upper()
    assert listening == [("tcp", f"{loopback}:{boss.port:04X}")]


RECORDER = "stty raw -echo; printf 'ready> '; exec cat > {file}"


def test_nothing_is_typed_into_a_pane_that_no_one_replied_to(
    remuda: Commands, tmux: TmuxBench, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is told of it, and whatever else is asked of the boss."""
    typed = home / "typed"
    tmux.start("one")
    tmux.run("new-window", "-d", "-t", "one:1", RECORDER.format(file=typed))
    pane = tmux.pane("one:1").id
    until(lambda: "ready>" in tmux.run("capture-pane", "-p", "-t", pane), "the recorder")
    tmux.run("select-pane", "-t", pane, "-T", "@tb-worker")
    person = tmux.person("one")
    env = {
        "TMUX_TMPDIR": str(home),
        "TMUX": f"{tmux.address.path},1,0",
        "TRAILBOSS_QUIET_THRESHOLD_MS": "100",
    }
    remuda.env |= env
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with RunningBoss(home, (RECONCILE, "remuda.boss.evidence.detector:Detector")) as boss:
        until(lambda: [one["session"]["pane"] for one in boss.waiting()] == [pane], "a pane that is quiet")
        where: dict[str, Any] = {"pane": pane, "tmux": tmux.address.path}
        boss.tell(event("stopped", time.time(), session="a", message="what now?", **where))
        for words in (
            ["queue"],
            ["next", "--show"],
            ["next", "--client", person.name],
            ["return", "--client", person.name],
            ["preview", "a", "--plain"],
            ["segment"],
            ["bootstrap"],
            ["skip", "a"],
            ["snooze", "a", "--for", "0"],
            ["status"],
        ):
            remuda(*words)
        remuda.refused("reply", "a", "hello", code=8)
        boss.tell(event("asked", time.time(), session="a", tool="Bash", input={"command": "ls"}, **where))
        remuda.refused("reply", "a", "y", code=8)
        boss.tell(event("stopped", time.time(), session="a", message="done", **where))
        remuda("dismiss", "a")
        assert typed.read_bytes() == b""
        tmux.run("send-keys", "-t", pane, "x")  # the recorder would have seen it
        until(lambda: typed.read_bytes() == b"x", "a key that was pressed")


def test_one_module_alone_types_into_panes() -> None:
    source = Path(package.__file__).parent
    found = {str(path.relative_to(source)): path.read_text() for path in source.rglob("*.py")}
    assert [name for name, text in found.items() if "send-keys" in text] == ["boss/answers/reply_delivery.py"]
    assert [name for name, text in found.items() if '"load-buffer"' in text] == ["tmux/panes.py"]
    uses = [name for name, text in found.items() if re.search(r"panes import .*\bpaste\b", text)]
    assert uses == ["boss/answers/reply_delivery.py"]


# ── its doctor ──


def findings(remuda: Commands) -> dict[str, str]:
    found: list[dict[str, Any]] = json.loads(remuda("doctor", "--json").out)
    return {one["what"]: one["level"] for one in found if one["what"].startswith(("the boss", "tmux"))}


def test_doctor_reports_whether_the_boss_runs_and_what_is_left_for_it(
    remuda: Commands, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMUX_TMPDIR", str(home))
    assert findings(remuda) == {}  # no one uses one
    with RunningBoss(home) as boss:
        pid = boss.process.pid if boss.process else 0
        found = findings(remuda)
        assert found.pop(f"the boss runs (pid {pid}); agents waiting for you: 0") == "ok"
        assert [(what.split()[0], level) for what, level in found.items()] == [("tmux", "ok")]
        boss.end(signal.SIGKILL)
        boss.folder.spool.mkdir(exist_ok=True)
        for number in range(3):
            (boss.folder.spool / f"{number}.json").write_text("{}")
        told = [what for what, level in findings(remuda).items() if level == "note"]
        assert told == ["the boss is not running; 3 events of your sessions wait for it"]
