"""One way to name an agent: `ls`, `show`, `send` and `messages` for sessions, and for agents in panes."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.boss.folder import BossFolder
from remuda.cli.outside import KEYS
from support.boss import RunningBoss
from support.commands import Commands, run_to_end
from support.hostile import Terminal, shown_by
from support.pane_agent import AgentPane, install_hooks
from support.tmux_attention import TmuxBench

AGENT = [sys.executable, "-P", "-m", "remuda.testing.scripted_agent", "--permission-mode", "default"]


@pytest.fixture
def work(remuda: Commands) -> Commands:
    """A session with one message that was answered."""
    remuda.start("work", "--agent", "demo")
    remuda("send", "work", "hello", "--wait")
    return remuda


# ── names ──


def test_the_beginning_of_a_session_name_is_enough(work: Commands) -> None:
    assert work("wait", "wo").out == "idle\n"
    done = work("send", "wo", "again", "--wait")
    assert (done.out, done.err) == ("REPLY#2 to: again\n", "remuda: 'wo' is session 'work'\n")
    assert "REPLY#2" in work("screen", "wo").out
    assert "REPLY#2" in work("logs", "wo").out
    assert work("resize", "wo", "100x30").out == "work is 100x30\n"
    assert "nothing to cancel" in work("cancel", "wo", code=3).out
    assert work("inbox", "ls", "wo").out.startswith("no messages; ")
    assert len(work("messages", "wo").out.splitlines()) == 3


def test_the_beginning_of_several_names_is_refused(work: Commands) -> None:
    work.start("word", "--", "cat")
    for words in (["show"], ["send", "wor", "x"], ["inbox", "ls"], ["logs"], ["resize", "wor", "80x24"]):
        said = work.refused(*(words if "wor" in words else [*words, "wor"]), code=2)
        assert said == "'wor' matches 2 sessions: word, work"


def test_a_name_with_a_typing_mistake_is_answered_with_the_name_that_was_meant(work: Commands) -> None:
    for words in (["show", "wrok"], ["send", "wrok", "x"], ["logs", "wrok"], ["messages", "wrok"]):
        assert "did you mean 'work'?" in work.refused(*words, code=3), words


def test_kill_takes_the_beginning_of_a_name_on_a_terminal_alone(work: Commands) -> None:
    assert work.refused("kill", "wo", code=3).startswith("session 'wo' not found")
    with Terminal(work, "kill", "wo") as terminal:
        terminal.until(b"End 1 session (work) and every process started there? [y/N]: ")
        terminal.type(b"n\r")
        assert terminal.end() != 0
    assert work("ls", "-q").out == "work\n"
    code, output = shown_by(work, "kill", "wo", "--yes")
    assert (code, b"work ended" in output) == (0, True)


def test_the_beginning_of_a_session_name_and_of_a_message_is_refused(remuda: Commands) -> None:
    remuda.start("main", "--agent", "demo")
    message = remuda("send", "main", "hello", "--delay", "1h").out.split()[1]
    said = remuda.refused("cancel", "m", code=2)
    assert said == (
        f"'m' is the beginning of a session name and of a message id; type more of it: main, {message}"
    )
    assert remuda("cancel", message[:8]).out == f"{message}: cancelled before the agent saw it\n"


def test_messages_shows_when_a_delayed_message_is_due(work: Commands) -> None:
    work("send", "work", "hello", "--delay", "2h")
    assert re.search("accepted, due in (1h59m|2h00m) ", work("messages").out)


# ── ls and --format ──


def test_ls_formats_fields_and_refuses_unknown_ones(work: Commands) -> None:
    out = work("ls", "--format", r"{name}\t{state} {kept} {delivery.held}|{argv}").out
    assert out.startswith("work\tidle true |[")
    assert work.refused("ls", "--format", "{stat}", code=2) == (
        "unknown field 'stat' in --format; did you mean 'state'?"
    )
    assert work.refused("ls", "--format", "json", code=2).startswith("--format has no field; use --json")
    assert work.refused("ls", "--format", "x", "--json", code=2).startswith(
        "--format does not go with --json"
    )
    assert work("ls", "--socket-dir", str(work.home / "none"), "--format", "{stat}").out == ""


def test_ls_says_that_sessions_are_kept(work: Commands) -> None:
    (one,) = work.json("ls")
    assert (one["kept"], one["pane"]) == (True, None)
    assert {*one} - {"kept", "pane"} == {*KEYS}


def test_messages_and_inbox_ls_format_fields(work: Commands) -> None:
    assert work("messages", "--format", "{session} {stage} {prompt}").out == "work acked hello\n"
    message = work("send", "work", "later", "--delay", "1h").out.split()[1]
    assert work("inbox", "ls", "work", "--format", "{id} {prompt}").out == f"{message} later\n"


# ── show ──


def test_show_of_a_session_has_state_messages_and_screen(work: Commands) -> None:
    out = work("show", "work").out
    assert out.startswith("session      work\nstate        idle for ")
    assert "  acked " in out
    assert "● REPLY#1 to: hello" in out.partition("── screen ")[2]
    assert "\n\n\n" not in out
    assert "evidence, the strongest source first:" in work("show", "--explain").out
    assert "● REPLY#1 to: hello" in work("show", "work", "--history").out.partition("── output ")[2]


def test_show_json_is_that_of_status_with_the_screen(work: Commands) -> None:
    shown, status = work.json("show", "work"), work.json("status", "work")
    assert {*shown} == {*status, "screen"}
    assert len(shown["screen"]) == status["rows"]
    assert "● REPLY#1 to: hello" in work.json("show", "work", "--history")["history"]


def test_show_of_a_session_that_has_ended_has_its_last_screen(remuda: Commands) -> None:
    assert run_to_end(remuda, "build", "--", "sh", "-c", "echo all is built; exit 3") == 3
    out = remuda("show", "bui").out
    assert "state      dead\nended      with exit code 3\n" in out
    assert out.partition("── last screen ")[2].endswith("\nall is built\n")
    shown = remuda.json("show", "build")
    assert (shown["state"], shown["exit_code"], shown["screen"][0]) == ("dead", 3, "all is built")


# ── messages ──


def test_messages_of_an_id_is_its_receipt_and_wait_its_end(work: Commands) -> None:
    (one,) = work.json("messages", "work")
    steps, answer = work("messages", one["id"]).out.split("\n\n")
    assert [line.split()[0] for line in steps.splitlines()][-1] == "acked"
    assert answer == "REPLY#1 to: hello\n"
    assert work.json("messages", one["id"][:14]).keys() == work.json("receipt", one["id"]).keys()
    which: list[list[str]] = [[], ["work"], [one["id"], "--timeout", "1m"]]
    for words in (["messages", *more, "--wait"] for more in which):
        assert work(*words).out == "REPLY#1 to: hello\n"
    assert work("wait", "work").out == "idle\n"
    assert work.refused("messages", one["id"], "--dead", code=2).startswith(f"'{one['id']}' is one message")
    assert work.refused("messages", "--timeout", "1", code=2) == "--timeout needs --wait"


def test_messages_dead_lists_dead_letters_without_receipts(remuda: Commands) -> None:
    where = ["--inbox", str(remuda.home / "box")]
    remuda("inbox", "put", *where, "never answered")
    box = remuda.home / "box"
    (box / ".dead-letter.jsonl").write_text(
        '{"entry_id": "e0", "raw_line": "an old letter", "reason": "it failed"}\n'
    )
    (one,) = remuda.json("messages", "--dead", *where)
    assert (one["stage"], one["reason"], one["prompt"]) == ("dead", "it failed", "an old letter")


@pytest.mark.parametrize("words", [["--timeout", "soon"], ["--timeout", "-1"]])
def test_times_are_written_alike_everywhere(work: Commands, words: list[str]) -> None:
    said = f"'{words[1]}' is not a time; write for example 90s, 45m or 2h30m"
    for command in (
        ["wait", "work"],
        ["send", "work", "x", "--wait"],
        ["messages", "--wait"],
        ["cancel", "work"],
    ):
        assert said in work.refused(*command, *words, code=2)
    for command in (["kill", "work", "--grace"], ["start", "x", "--turn-timeout"]):
        assert said in work.refused(*command, words[1], code=2)


# ── agents in panes ──


class Bench:
    """A scripted agent in a pane, and a boss that hears of it by its hooks."""

    def __init__(self, home: Path, remuda: Commands, boss: RunningBoss, tmux: TmuxBench) -> None:
        self.remuda = remuda
        project = home / "project"
        project.mkdir()
        config = home / "claude"
        install_hooks(remuda, config / "settings.json")
        env = {name: os.environ[name] for name in ("PATH", "LC_ALL", "LANG") if name in os.environ}
        env |= {"HOME": str(home), "CLAUDE_CONFIG_DIR": str(config), "MOCK_TIME_SCALE": "0.01"}
        env |= {"MOCK_DIALOG_GUARD": "0", "REMUDA_HOME": str(home)}
        self.pane = AgentPane(tmux, boss, AGENT, env, project)
        self.session: Any = self.pane.session("started", "stopped")
        self.pane.until_shows("❯")


@pytest.fixture
def bench(home: Path, remuda: Commands, boss: RunningBoss, tmux: TmuxBench) -> Iterator[Bench]:
    made = Bench(home, remuda, boss, tmux)
    yield made
    tmux.close()


def test_an_agent_in_a_pane_is_listed_shown_and_sent_to_by_its_folder(bench: Bench) -> None:
    remuda = bench.remuda
    remuda.start("work", "--agent", "demo")
    assert remuda("send", "project", "hello pane", "--wait").out == "REPLY#1 to: hello pane\n"
    bench.pane.session("stopped")
    kept, one = remuda.json("ls")
    assert (kept["name"], kept["kept"]) == ("work", True)
    assert {*one} == {*kept}
    wanted = {"name": "project", "kept": False, "pane": bench.pane.id, "state": "idle", "argv": None}
    assert wanted.items() <= one.items()
    rows = remuda("ls").out.splitlines()
    assert rows[-1].split()[:2] == ["project", "idle"]
    assert bench.pane.id in rows[-1]
    assert remuda("ls", "-q").out == "work\n"
    assert [one["name"] for one in remuda.json("ls", "--socket-dir", str(remuda.sessions))] == ["work"]

    out = remuda("show", bench.pane.id).out
    assert out.startswith("agent        project (claude)\nstate        idle for ")
    assert "REPLY#1 to: hello pane" in out.partition("── screen ")[2]
    shown = remuda.json("show", "project")
    assert {*shown} == {*one, "screen"}
    assert any("REPLY#1" in line for line in shown["screen"])
    assert "is not kept" in remuda.refused("show", "project", "--history", code=2)
    assert "did you mean 'project'?" in remuda.refused("send", "projcet", "x", code=3)


def test_ls_has_the_state_and_the_last_words_of_agents_outside(remuda: Commands, boss: RunningBoss) -> None:
    def event(who: str, kind: str, **facts: Any) -> dict[str, Any]:
        return {"kind": kind, "session_id": f"id-{who}", "facts": {"cwd": f"/src/{who}", **facts}}

    asked = {"reason": "permission", "tool": "Bash", "input": {"command": "ls"}, "tool_use_id": "1"}
    events = [
        event("api", "stopped", message="All tests\npass."),
        event("docs", "asked", message="May I?", **asked),
        event("web", "prompted", title="a title"),
        {**event("web", "ended"), "session_id": "id-gone"},
    ]
    boss.client.post("events", body={"events": events})
    words = ["--format", "{name} {state} {detail} {last_message}"]
    assert remuda("ls", *words).out.splitlines() == [
        "api idle stopped All tests pass.",
        "docs waiting_permission permission: Bash May I?",
        "web thinking  ",
    ]
    rows = {line.split()[0]: " ".join(line.split()[5:]) for line in remuda("ls").out.splitlines()[1:]}
    assert rows == {
        "api": "/src/api All tests pass.",
        "docs": "/src/docs permission: Bash",
        "web": "/src/web a title",
    }
    assert remuda("ls", "--all", "--format", "{name} {state} {alive}").out.endswith("id-gone dead false\n")


def test_send_to_a_pane_passes_the_checks_of_reply(bench: Bench) -> None:
    remuda, pane = bench.remuda, bench.pane
    assert "would run the agent's own command" in remuda.refused("send", pane.id, "/clear", code=4)
    said = remuda.refused("send", "project", "x", "--delay", "1h", code=2)
    assert said.startswith("--delay is for kept sessions, and 'project' is not one")
    assert "dedup works only for sessions" in remuda.refused("send", "project", "x", "--dedup", "k", code=2)
    pane.press("-l", "half a thought")
    pane.until_shows("half a thought")
    assert "draft" in remuda.refused("send", "project", "never typed", code=8)
    assert "never typed" not in pane.shown()


def test_ls_works_without_a_boss_and_with_one_that_hangs(work: Commands) -> None:
    assert work("ls").err == ""
    folder = BossFolder(work.home / "boss")
    folder.path.mkdir(mode=0o700, exist_ok=True)
    folder.token.write_text("t" * 43)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(folder.socket))
        deaf.listen()
        done = work("ls")
    assert done.out.splitlines()[1].startswith("work  idle")
    assert done.err.startswith("remuda: agents outside of sessions are not listed: the boss did not answer")
