"""Sessions of the scripted agent that fall asleep, what keeps them awake, and what wakes them."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.errors import EXIT_CODES, NotSafe
from remuda.inbox.stop_hook import Files, Lock
from remuda.keeper.client import KeeperClient
from remuda.keeper.record import SessionRecord
from remuda.paths import connect_own
from remuda.proctree import descendants
from remuda.turns.holds import holds_file, save_holds
from remuda.wire import connection as wire
from remuda.wire.connection import ClientConnection
from support.attach import DETACH, has_bar
from support.attach import attach as attach_in
from support.boss_whole import CommandedBoss
from support.commands import Commands
from support.delivery import LISTENING, Bench, answer, idle, in_flight
from support.keeper import Kept, Process, Start, until, until_equal
from support.messages import (
    CHAIN,
    Post,
    phase,
    put_to_sleep,
    put_to_sleep_by_command,
    stages,
    stays_awake,
    step,
    why_awake,
)
from support.tmux import Pane

STUBBORN = """
import signal as _signal
_set = _signal.signal
for _one in (_signal.SIGTERM, _signal.SIGHUP):
    _set(_one, _signal.SIG_IGN)
_signal.signal = lambda n, h: None if n in (_signal.SIGTERM, _signal.SIGHUP) else _set(n, h)
"""
"""It ends by KILL alone."""


SILENT = """
import os, sys, tty
tty.setraw(0)
os.write(1, b"Delete the folder? [y/N] ")
while data := os.read(0, 99):
    open(sys.argv[2], "ab", buffering=0).write(data)
"""
"""An agent that shows a dialog that no one knows, and reports nothing."""


@pytest.fixture
def bench(start: Start, tmp_path: Path) -> Bench:
    return Bench(start, tmp_path)


@pytest.fixture
def boss(home: Path, remuda: Commands) -> Iterator[CommandedBoss]:
    one = CommandedBoss(home, remuda)
    yield one
    one.close()


def asleep(post: Post, prompt: str = "hello") -> Post:
    """With a conversation, and ended on request."""
    idle(post).send(prompt)
    idle(post)
    return put_to_sleep(post)


def falling(bench: Bench, kill_grace: float) -> Post:
    """With a conversation, and on its way to sleep for so many seconds: its agent ends by KILL alone."""
    bench._program.write_text(STUBBORN + LISTENING)
    post = idle(bench.start(kill_grace=kill_grace))
    post.send("hello")
    idle(post)
    until_equal(lambda: why_awake(post.client), "", "sleep")
    return post


def asleep_by_command(remuda: Commands, *flags: str) -> None:
    """The session `work`, with a conversation."""
    remuda.start("work", "--agent", "demo", *flags)
    remuda("send", "work", "hello", "--wait")
    put_to_sleep_by_command(remuda, "work")


def record(kept: Kept) -> SessionRecord:
    found = SessionRecord.load(kept.paths.record)
    assert found is not None
    return found


def program_pids(post: Post) -> list[int]:
    return descendants(post.kept.keeper_pid, surely=True)


# ── sleep, and what wakes it ──


def test_idle_session_falls_asleep_and_a_message_wakes_it_with_its_conversation(bench: Bench) -> None:
    post = idle(bench.start(sleep_after=0.5))
    agent = Process(post.kept.child_pid)
    first = post.send("hello")
    post.watcher.until("asleep")
    agent.gone()
    until_equal(lambda: phase(post), "asleep", "sleep")
    status = post.client.describe()
    assert (status["state"], status["alive"], status["pid"], status["dissent"]) == ("asleep", True, 0, [])
    assert any("REPLY#1 to: hello" in line for line in post.lines())  # its last screen
    assert (record(post.kept).asleep, record(post.kept).ended_at) == (True, None)
    assert program_pids(post) == []

    second = post.send("and again")
    assert stages(second) == CHAIN
    assert "to: and again" in answer(second)
    assert (step(second, "written")["woken"], step(second, "written")["transport"]) == (True, "argument")
    assert step(first, "submitted")["session_id"] == step(second, "submitted")["session_id"]
    assert bench.prompts(post) == ["hello", "and again"]
    assert "woken" not in step(post.send("awake by now"), "written")


def test_message_that_must_be_typed_wakes_it_too(bench: Bench) -> None:
    post = asleep(bench.start())
    found = post.send("/clear", command=True)
    assert stages(found)[-1] == "acked", found
    assert (step(found, "written")["transport"], step(found, "written")["woken"]) == ("paste", True)


def test_new_conversation_after_a_wake_by_a_message_is_known(bench: Bench) -> None:
    """No hook reports the start of an agent that was woken with a prompt; later starts are reported."""
    post = asleep(bench.start())
    before = step(post.send("again"), "submitted")["session_id"]
    assert stages(idle(post).send("/clear", command=True))[-1] == "acked"
    after = step(post.send("in another one"), "submitted")["session_id"]
    assert before != after
    assert post.client.describe()["degraded"] == []


def test_key_wakes_it_and_is_typed_when_the_composer_is_there(bench: Bench) -> None:
    post = asleep(bench.start())
    post.watcher.press(b"half a")
    post.watcher.press(b" thought")
    until_equal(post.draft, "half a thought", "the draft")
    assert phase(post) == "awake"


def test_key_that_wakes_it_is_not_typed_where_only_a_guess_says_that_it_is_idle(bench: Bench) -> None:
    post = asleep(bench.start())
    bench._program.write_text(SILENT)
    before = bench.typed()
    post.watcher.press(b"y")
    until_equal(lambda: post.client.describe()["source"], "timing", "the guess")
    post.watcher.until_shows("Delete the folder?")
    until(lambda: any("guessed" in one for one in post.client.describe()["degraded"]), "degraded")
    post.watcher.press(b"n")
    until(lambda: b"n" in bench.typed()[len(before) :], "the key of a user who sees the dialog")
    assert bench.typed()[len(before) :] == b"n"


def test_client_that_only_watches_does_not_wake_it(bench: Bench) -> None:
    post = asleep(bench.start())
    viewer = post.kept.hello(read_only=True)
    viewer.send(ClientConnection.subscribe())
    viewer.send(ClientConnection.input(b"x"))
    viewer.request("status")
    assert phase(post) == "asleep"


def test_attach_wakes_it_and_shows_the_terminal(remuda: Commands, pane: Pane) -> None:
    asleep_by_command(remuda)
    lines = attach_in(pane)
    assert has_bar(lines)
    pane.until(lambda lines: any("idle" in line for line in lines[-1:]))
    assert remuda.json("status", "work")["sleep"]["phase"] == "awake"
    pane.send(DETACH)
    pane.until(lambda lines: any("rc=0" in line for line in lines))


def test_permission_mode_and_size_are_as_they_were(bench: Bench) -> None:
    post = idle(bench.start())
    post.send("hello")
    idle(post).watcher.press(b"\x1b[Z")
    post.watcher.until_shows("accept edits on")
    post.client.request("resize", cols=90, rows=25)
    put_to_sleep(post)
    post.client.request("wake")
    post.watcher.settled("idle")
    post.watcher.until_shows("accept edits on")
    assert post.client.request("cleanliness")["permission_mode"] in ("acceptEdits", None)
    assert [post.client.describe()[one] for one in ("cols", "rows")] == [90, 25]
    post.send("after that")
    assert post.client.request("cleanliness")["permission_mode"] == "acceptEdits"


def test_boss_hears_of_no_end_and_no_start(bench: Bench) -> None:
    """Else it would take an agent out of the queue that no one has answered."""
    post = idle(bench.start())
    post.send("hello")
    client = post.kept.hello()
    client.request("watch", agent_events=True)
    put_to_sleep(idle(post))
    client.request("wake")
    heard: list[str] = []

    def is_done() -> bool:
        events = [one.document for one in client.receive(0.1) if isinstance(one, wire.EventReceived)]
        heard.extend(str(one["kind"]) for one in events if one["event"] == "agent")
        return "seen" in heard and phase(post) == "awake"

    until(is_done, "the start")
    assert {*heard} == {"seen"}


def test_message_that_is_due_later_wakes_it_then(bench: Bench) -> None:
    post = idle(bench.start())
    post.send("hello")
    later = post.put("later", delay=5.0)
    put_to_sleep(idle(post))
    assert stages(post.ended(later)) == CHAIN


def test_message_that_expires_before_it_is_due_does_not_wake_it(bench: Bench) -> None:
    post = asleep(bench.start())
    expired = post.put("gone", delay=1.0, ttl=0.5)
    assert post.ended(expired).stage == "expired"
    assert phase(post) == "asleep"


def test_message_that_a_budget_holds_does_not_wake_it_and_keeps_it_awake(bench: Bench) -> None:
    post = asleep(bench.start())
    save_holds(holds_file(), [{"folder": str(bench.project), "reason": "the budget is used up"}])
    message = post.put_held("later", "the budget is used up")
    assert phase(post) == "asleep"
    post.client.request("wake")
    stays_awake(idle(post), "the budget is used up")
    save_holds(holds_file(), [])
    assert stages(post.ended(message)) == CHAIN


def test_message_that_comes_while_it_falls_asleep_is_delivered(bench: Bench) -> None:
    post = falling(bench, 1.5)
    assert phase(post) == "falling"
    found = post.send("in between")
    assert stages(found) == CHAIN
    assert bench.prompts(post) == ["hello", "in between"]


def test_message_is_delivered_once_when_others_wake_the_session_at_the_same_moment(bench: Bench) -> None:
    post = asleep(bench.start())
    save_holds(holds_file(), [{"folder": str(bench.project), "reason": "the budget is used up"}])
    message = post.put_held("later", "the budget is used up", max_attempts=1)
    with Lock(Files(str(post.folder / "inbox.jsonl"))):  # the message cannot be leased
        save_holds(holds_file(), [])
        post.held("is being woken")
        post.client.request("wake")
        until_equal(lambda: phase(post), "awake", "the wake by others")
    assert post.ended(message).stage == "acked"
    assert bench.prompts(post) == ["hello", "later"]


def test_message_that_is_cancelled_while_its_wake_fails_is_dropped(bench: Bench) -> None:
    post = falling(bench, 1.5)
    message = post.put("in between")
    until(lambda: in_flight(post), "the lease")
    assert phase(post) == "falling"
    assert post.client.request("interrupt", id=message) == {"in_flight": True}
    path = Path(post.client.describe()["conversation"]["transcript_path"])
    aside = path.rename(path.with_suffix(".aside"))
    assert post.ended(message).stage == "dropped"
    aside.rename(path)
    post.client.request("wake")
    post.run("and now")
    assert bench.prompts(post) == ["hello", "and now"]


def test_session_that_is_killed_while_a_message_wakes_it_keeps_the_message_untried(bench: Bench) -> None:
    post = falling(bench, 600.0)
    message = post.put("in between", max_attempts=1)
    until(lambda: in_flight(post), "the lease")
    post.client.request("kill", grace=0.0)
    assert post.kept.keeper.ended()
    bench._program.write_text(LISTENING)
    post = bench.start(resume=True)
    assert post.ended(message).stage == "acked"
    assert bench.prompts(post) == ["hello", "in between"]


def test_session_sleeps_and_wakes_again_and_again(bench: Bench) -> None:
    post = asleep(bench.start())
    for number in range(3):
        assert stages(post.send(f"number {number}")) == CHAIN
        put_to_sleep(idle(post))
    assert bench.prompts(post) == ["hello", "number 0", "number 1", "number 2"]
    assert post.kept.descriptor_count() < 40


# ── what keeps it awake ──


def test_session_without_a_conversation_stays_awake(bench: Bench) -> None:
    stays_awake(idle(bench.start()), "does not exist")


def test_attached_client_keeps_it_awake(bench: Bench) -> None:
    post = idle(bench.start(sleep_after=0.2))
    viewer = post.kept.subscriber()
    post.send("hello")
    until_equal(lambda: post.client.describe()["sleep"]["awake_because"], "a client is attached", "why")
    stays_awake(post, "a client is attached")
    viewer.close()
    post.watcher.until("asleep")


def test_draft_keeps_it_awake(bench: Bench) -> None:
    post = idle(bench.start())
    post.send("hello")
    idle(post).watcher.press(b"half a thought")
    until_equal(post.draft, "half a thought", "the draft")
    stays_awake(post, "a draft is in the composer")


def test_process_that_the_agent_left_running_keeps_it_awake_and_show_says_so(bench: Bench) -> None:
    post = idle(bench.start("--allowedTools", "Bash", sleep_after=0.2))
    post.send("RUNBASH setsid sleep 4711 < /dev/null > /dev/null 2>&1 &")
    idle(post)

    def why() -> str:
        return str(post.client.describe()["sleep"]["awake_because"] or "")

    until(lambda: "sleep 4711" in why(), "the reason")
    (server,) = [pid for pid in program_pids(post) if b"4711" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    Process(server).signal(signal.SIGTERM)
    post.watcher.until("asleep")


def test_plain_command_cannot_sleep(start: Start) -> None:
    kept = start("p", ["cat"], sleep_after=0.2)
    with pytest.raises(NotSafe, match="plain command"):
        kept.hello().request("sleep")
    assert kept.hello().request("wake")["state"] != "asleep"


# ── failures ──


def test_deleted_transcript_is_a_clear_error_and_the_message_stays(bench: Bench) -> None:
    post = asleep(bench.start())
    other = idle(bench.start(name="other"))
    path = Path(post.client.describe()["conversation"]["transcript_path"])
    aside = path.rename(path.with_suffix(".aside"))
    message = post.put_held("are you there?", "does not exist")
    status = post.client.describe()
    assert (status["state"], str(path) in status["wake_error"]) == ("asleep", True)
    assert stages(post.trace(message))[0] == "accepted"
    assert post.inbox.overview().waiting == 1
    assert stages(other.send("hello")) == CHAIN

    aside.rename(path)
    post.client.request("wake")
    found = post.ended(message)
    assert stages(found)[-1] == "acked"
    assert "wake_error" not in post.client.describe()
    assert bench.prompts(post) == ["hello", "are you there?"]


def test_agent_that_dies_at_the_wake_is_tried_again_and_no_attempt_is_counted(bench: Bench) -> None:
    post = asleep(bench.start())
    program = bench._program.read_text()
    bench._program.write_text("import sys; sys.exit(3)")
    message = post.put_held("are you there?", "exit code 3", max_attempts=1)
    assert post.client.describe()["state"] == "asleep"
    bench._program.write_text(program)
    found = post.ended(message)
    assert stages(found)[-1] == "acked"
    assert bench.prompts(post) == ["hello", "are you there?"]
    assert post.kept.keeper.alive


def test_folder_that_is_gone_at_the_wake_is_named_and_the_message_waits_for_it(bench: Bench) -> None:
    post = asleep(bench.start())
    aside = bench.project.rename(bench.project.with_suffix(".aside"))
    message = post.put("are you there?", max_attempts=1)
    post.held(f"working folder {bench.project} does not exist")
    assert post.client.describe()["state"] == "asleep"
    aside.rename(bench.project)
    assert post.ended(message).stage == "acked"
    assert bench.prompts(post) == ["hello", "are you there?"]


@pytest.mark.parametrize("limit", [0, 1500], ids=["nothing can be written", "small files can be written"])
def test_disk_that_is_full_at_the_wake_keeps_the_message_until_there_is_space(
    bench: Bench, limit: int
) -> None:
    post = asleep(bench.start())
    post.kept.may_complain = True
    other = idle(bench.start(name="other"))
    size = resource.RLIMIT_FSIZE
    resource.prlimit(post.kept.keeper_pid, size, (limit, resource.RLIM_INFINITY))
    message = post.put_held("are you there?", "File too large", max_attempts=1)
    assert post.client.describe()["state"] == "asleep"
    assert program_pids(post) == []
    assert stages(other.send("hello")) == CHAIN
    resource.prlimit(post.kept.keeper_pid, size, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    found = post.ended(message)
    assert (found.stage, step(found, "written")["woken"]) == ("acked", True), found
    assert bench.prompts(post) == ["hello", "are you there?"]


def test_wake_that_fails_at_any_descriptor_leaves_nothing_and_can_be_tried_again(bench: Bench) -> None:
    post = asleep(bench.start())
    post.kept.may_complain = True
    keeper, files = post.kept.keeper_pid, resource.RLIMIT_NOFILE
    used, limits = {int(one) for one in os.listdir(f"/proc/{keeper}/fd")}, resource.prlimit(keeper, files)
    failed, first_free = 0, min({*range(1000)} - used)

    def is_over() -> bool:
        sleep = post.client.describe()["sleep"]
        return bool(sleep["wake_tries"] > failed or sleep["phase"] == "awake")

    for most in range(first_free, first_free + 60):
        resource.prlimit(keeper, files, (most, limits[1]))
        post.client.request("wake")
        until(is_over, "the end of the wake")
        if phase(post) == "awake":
            break
        failed += 1
        assert program_pids(post) == []
        until_equal(post.kept.descriptor_count, len(used), "descriptors that are closed")
    resource.prlimit(keeper, files, limits)
    assert failed > 1
    post.run("are you there?")
    assert bench.prompts(post) == ["hello", "are you there?"]


# ── the end, and other programs ──


def test_session_that_is_asleep_can_be_killed(remuda: Commands) -> None:
    asleep_by_command(remuda, "--restart", "on-crash")
    keeper = remuda.keeper("work")
    assert "work ended" in remuda("kill", "work").out
    keeper.gone()
    found = SessionRecord.load(remuda.sessions / "work.json")
    assert found is not None
    assert (found.end_reason, found.killed) == ("killed", True)
    assert "no session to bring back" in remuda("resume", "--all").out


def test_killed_keeper_of_a_session_that_is_asleep_comes_back_with_its_conversation(remuda: Commands) -> None:
    asleep_by_command(remuda, "--restart", "on-crash", "--sleep-after", "1h")
    before = remuda.json("status", "work")["conversation"]["session_id"]
    remuda.kill_keeper("work")
    (listed,) = remuda.json("ls", "--all")
    assert listed["state"] == "dead"
    assert "resumed work" in remuda("resume", "--all").out
    after = remuda.json("status", "work")
    assert (after["conversation"]["session_id"], after["sleep"]["after"]) == (before, 3600.0)
    assert "to: again" in remuda("send", "work", "again", "--wait").out


def test_commands_show_who_sleeps_and_who_must_not(remuda: Commands) -> None:
    remuda.start("work", "--agent", "demo")
    said = remuda.refused("sleep", "work", code=EXIT_CODES["REFUSED"])
    assert said.startswith("session 'work' stays awake: ")
    remuda("send", "work", "hello", "--wait")
    put_to_sleep_by_command(remuda, "work")
    (listed,) = remuda.json("ls")
    assert (listed["state"], listed["alive"]) == ("asleep", True)
    shown = remuda("show", "work").out
    assert "asleep for" in shown
    assert "REPLY#1 to: hello" in shown
    assert "'remuda wake work' wakes it" in shown
    assert remuda("wait", "work").out == "asleep\n"
    assert remuda("wake", "work").out == "work is idle\n"
    assert remuda("wake", "work").out == "work is idle\n"


def test_configuration_sets_the_time_and_start_overrules_it(remuda: Commands) -> None:
    folder = remuda.home / ".config" / "remuda"
    folder.mkdir(parents=True)
    (folder / "remuda.toml").write_text("sleep_after = 1800")
    remuda.start("one", "--agent", "demo")
    remuda.start("two", "--agent", "demo", "--sleep-after", "0")
    assert remuda.json("status", "one")["sleep"]["after"] == 1800.0
    assert remuda.json("status", "two")["sleep"]["after"] is None
    assert "after 30m idle" in remuda("show", "one").out


def test_client_that_does_not_know_the_state_sees_an_idle_session(bench: Bench) -> None:
    post = asleep(bench.start())
    sock = connect_own(post.kept.paths.socket)
    assert sock is not None
    sock.settimeout(30)
    with KeeperClient(sock, "d", ClientConnection.hello("remuda 0.2.0")) as old:
        assert old.describe()["state"] == "idle"
        assert old.request("watch")["state"] == "idle"


def test_boss_lists_it_as_asleep_and_a_failed_wake_is_in_the_queue(
    remuda: Commands, boss: CommandedBoss
) -> None:
    boss.start()
    remuda.start("work", "--agent", "demo")
    remuda("send", "work", "hello", "--wait")

    def item() -> dict[str, Any]:
        return next((one for one in boss.waiting() if one["session"]["name"] == "work"), {})

    until(lambda: item().get("reason") == "stopped", "work in the queue")
    put_to_sleep_by_command(remuda, "work")
    until(lambda: item()["session"]["agent_state"] == "asleep", "asleep in the queue")
    assert (item()["reason"], item()["message"]) == ("stopped", "REPLY#1 to: hello")
    remuda("wake", "work")
    until(lambda: item()["session"]["agent_state"] == "idle", "idle in the queue")
    assert item()["reason"] == "stopped"  # no one has answered it
    put_to_sleep_by_command(remuda, "work")
    path = Path(remuda.json("status", "work")["conversation"]["transcript_path"])
    path.unlink()
    said = remuda("wake", "work", code=EXIT_CODES["FAILED"]).err
    assert "does not exist" in said
    until(lambda: item().get("reason") == "api_error", "the failure in the queue")
    assert "could not be woken" in item()["message"]
    assert item()["session"]["ended"] is None
