"""What a kept Claude Code is doing, told by its own signs: every state, and who told it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support.keeper import Kept, Start, until
from support.real_sessions import QUESTION, MakeCli, keep
from support.watcher import Watcher

pytestmark = pytest.mark.real


@pytest.fixture
def kept(cli: RealCli, start: Start) -> Kept:
    return keep(start, cli)


@pytest.fixture
def watcher(kept: Kept) -> Watcher:
    watcher = Watcher(kept.hello())
    watcher.settled("idle")
    watcher.forget()
    return watcher


@pytest.mark.versions
def test_states_plain_turn_thinking_then_idle_by_hook(watcher: Watcher, model: LoopbackModel) -> None:
    watcher.paste("hello keeper")
    watcher.until("thinking")
    ended = watcher.until("idle", source="hook")
    assert ended["detail"] == "Stop"
    assert model.wait_for("hello keeper").prompt == "hello keeper"
    assert watcher.states()[0] == "idle"
    assert "tool_use" not in watcher.states()


@pytest.mark.versions
def test_states_slow_answer_streaming_before_its_end(watcher: Watcher) -> None:
    watcher.paste("SLOW 15 one paragraph")
    watcher.until("streaming", source="screen")
    watcher.until("idle", source="hook")
    assert watcher.states() == ["idle", "thinking", "streaming", "idle"]


@pytest.mark.versions
def test_states_long_thought_no_streaming_while_it_thinks(watcher: Watcher, model: LoopbackModel) -> None:
    with model.hold() as gate:
        watcher.paste("ponder")
        gate.wait_reached()
        watcher.until("thinking")
        assert watcher.states() == ["idle", "thinking"]
        gate.open()
    watcher.until("idle", source="hook")


@pytest.mark.versions
def test_states_allowed_tool_tool_use_by_hook(watcher: Watcher) -> None:
    watcher.paste("RUNBASH ls -d .")
    used = watcher.until("tool_use", source="hook")
    assert used["detail"] == "PreToolUse Bash"
    watcher.until("idle", source="hook")


@pytest.mark.versions
def test_states_permission_waits_until_answered_then_tool_runs(watcher: Watcher, cli: RealCli) -> None:
    watcher.paste("RUNBASH touch asked-for; echo done")
    waiting = watcher.until("waiting_permission", source="hook")
    assert waiting["detail"] == "PermissionRequest Bash"
    watcher.settled("waiting_permission")  # registry and screen see it as well
    assert not (cli.project / "asked-for").exists()
    watcher.answer(b"1")
    watcher.until("idle", source="hook")
    assert (cli.project / "asked-for").exists()
    after = watcher.states()[watcher.states().index("waiting_permission") + 1 :]
    # On a busy machine the tool and the turn may both be over before their reports are read.
    assert after[0] == "tool_use" or after == ["idle"], after


@pytest.mark.versions
def test_states_question_waits_for_an_answer(watcher: Watcher, model: LoopbackModel) -> None:
    watcher.paste(f"TOOL {json.dumps(QUESTION)}")
    watcher.until("waiting_answer", source="hook")
    watcher.settled("waiting_answer")
    watcher.answer(b"2")
    watcher.until("idle", source="hook")
    assert any("Blue" in text for _, text in model.main_requests[-1].texts)


@pytest.mark.versions
@pytest.mark.parametrize("status", [400, 529])
def test_states_api_error_reported_by_stop_failure(watcher: Watcher, status: int) -> None:
    watcher.paste(f"err {status}")
    failed = watcher.until("error", source="hook")
    assert str(status) in failed["detail"]


@pytest.mark.versions
def test_states_interrupted_while_streaming_read_from_transcript(watcher: Watcher) -> None:
    watcher.paste("SLOW 30 never mind")
    watcher.until("streaming", source="screen")
    watcher.press(b"\x1b")
    watcher.until("interrupted", source="transcript")
    assert watcher.settled("interrupted")["source"] == "transcript"


@pytest.mark.versions
def test_states_interrupted_tool_reported_by_transcript_and_its_process_is_gone(
    watcher: Watcher, kept: Kept, cli: RealCli
) -> None:
    watcher.paste('RUNBASH python3 -c "import time; time.sleep(300)"')
    watcher.until("waiting_permission")
    watcher.settled("waiting_permission")
    watcher.answer(b"1")
    watcher.until("tool_use")
    watcher.press(b"\x1b")
    watcher.until("interrupted", source="transcript")


@pytest.mark.versions
def test_states_dismissed_dialog_is_interrupted(watcher: Watcher) -> None:
    watcher.paste("RUNBASH touch never")
    watcher.until("waiting_permission")
    watcher.settled("waiting_permission")
    watcher.answer(b"\x1b")
    watcher.until("interrupted", source="transcript")


@pytest.mark.versions
def test_states_after_interrupt_next_turn_is_followed(watcher: Watcher) -> None:
    watcher.paste("SLOW 30 x")
    watcher.until("streaming")
    watcher.press(b"\x1b")
    watcher.settled("interrupted")
    watcher.paste("and now something else")
    watcher.until("thinking")
    watcher.until("idle", source="hook")


@pytest.mark.versions
def test_states_killed_agent_is_dead_by_process(watcher: Watcher, kept: Kept) -> None:
    kept.hello().request("kill")
    watcher.until("dead", source="process")


@pytest.mark.versions
def test_states_explained_with_every_source_and_its_age(watcher: Watcher, kept: Kept) -> None:
    watcher.paste("RUNBASH touch x")
    watcher.until("waiting_permission")
    watcher.settled("waiting_permission")
    votes = {vote["source"]: vote for vote in kept.hello().describe(explain=True)["votes"]}
    assert {"process", "hook", "registry", "title", "screen"} <= set(votes)
    # Mostly the hook; on a busy machine a title may have moved behind it.
    (deciding,) = [vote for vote in votes.values() if vote["decides"]]
    assert deciding["state"] == "waiting_permission"
    assert votes["registry"]["state"] == "waiting_permission"
    assert all(vote["age"] >= 0 for vote in votes.values())


@pytest.mark.versions
def test_states_clear_begins_another_conversation_in_the_record(watcher: Watcher, kept: Kept) -> None:
    watcher.paste("remember this")
    watcher.until("thinking")
    watcher.settled("idle")
    client = kept.hello()
    before = client.describe()["conversation"]["session_id"]
    watcher.paste("/clear")

    def other_session() -> str | None:
        now: str = client.describe()["conversation"]["session_id"]
        return None if now == before else now

    now = until(other_session, "another conversation")
    until(lambda: recorded_session(kept) == now, "the new conversation in the record")


def recorded_session(kept: Kept) -> object:
    return json.loads(kept.paths.record.read_text())["conversation"].get("session_id")


@pytest.mark.versions
def test_states_untrusted_folder_waits_at_the_trust_dialog(make_cli: MakeCli, start: Start) -> None:
    untrusted = make_cli(trust=False)
    kept = keep(start, untrusted)
    watcher = Watcher(kept.hello())
    asked = watcher.until("waiting_answer")
    assert (asked["source"], asked["detail"]) == ("screen", "trust dialog")


@pytest.mark.versions
def test_states_hooks_disabled_by_the_user_still_known_and_degraded(cli: RealCli, start: Start) -> None:
    settings = cli.home / ".claude" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"disableAllHooks": True}))
    kept = keep(start, cli)
    client = kept.hello()
    watcher = Watcher(client)
    watcher.settled("idle")
    watcher.paste("SLOW 2 no hooks here")
    watcher.until("thinking")
    watcher.settled("idle")
    document = client.describe(explain=True)
    assert any("disableAllHooks" in reason for reason in document["degraded"])
    assert "hook" not in {vote["source"] for vote in document["votes"]}


@pytest.mark.versions
def test_states_proxy_set_hooks_still_arrive(cli: RealCli, start: Start) -> None:
    closed = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    watcher = Watcher(keep(start, cli, env=closed).hello())
    watcher.settled("idle")
    watcher.paste("through no proxy")
    watcher.until("thinking")
    assert watcher.until("idle", source="hook")["detail"] == "Stop"


@pytest.mark.versions
def test_users_own_hooks_run_as_well_as_ours(cli: RealCli, start: Start, tmp_path: Path) -> None:
    marks = {name: tmp_path / name for name in ("user", "flag")}
    hooks = {
        name: {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": f"touch {mark}"}]}]}}
        for name, mark in marks.items()
    }
    (cli.home / ".claude").mkdir(exist_ok=True)
    (cli.home / ".claude" / "settings.json").write_text(json.dumps(hooks["user"]))
    watcher = Watcher(keep(start, cli, "--settings", json.dumps(hooks["flag"])).hello())
    watcher.settled("idle")
    watcher.paste("ring all bells")
    watcher.until("thinking")
    watcher.until("idle", source="hook")
    until(lambda: all(mark.exists() for mark in marks.values()), "the marks of both hooks")
