"""What a new process of Claude Code brings back of the one before, and what keeps a session awake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.base import Launch, LaunchContext
from remuda.agents.claude.hooks import read_hook
from remuda.agents.claude.launch import prepare
from remuda.agents.claude.registry import read_registry
from remuda.agents.claude.resumption import ClaudeResumption
from remuda.agents.claude.screen import read_mode
from remuda.agents.claude.transcript import read_record
from remuda.errors import NotSafe

RULE = "─" * 40
MODES = {
    "⏸ manual mode on · ? for shortcuts": "default",
    "? for shortcuts": "default",
    "⏸ plan mode on (shift+tab to cycle)": "plan",
    "⏵⏵ accept edits on (shift+tab to cycle)": "acceptEdits",
    "⏵⏵ auto mode on (shift+tab to cycle)": "auto",
    "⏵⏵ bypass permissions on (shift+tab to cycle)": "bypassPermissions",
}


def screen(footer: str, said: str = "") -> list[str]:
    return [said, RULE, "❯ ", RULE, f"  {footer}"]


MANUAL = screen("⏸ manual mode on")


def resumption(*arguments: str, home: Path | None = None) -> ClaudeResumption:
    env = {"HOME": str(home)} if home is not None else {}
    made = ClaudeResumption(["claude", *arguments], env, home or Path("/"), 1)
    made.take(read_hook({"hook_event_name": "SessionStart", "session_id": "s"}))
    return made


def stop(*tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"hook_event_name": "Stop", "session_id": "s", "background_tasks": list(tasks), **more}


@pytest.mark.parametrize(("footer", "mode"), MODES.items())
def test_mode_is_read_below_the_composer(footer: str, mode: str) -> None:
    assert read_mode(screen(footer)) == mode


def test_mode_that_the_agent_only_talks_about_is_not_its_mode() -> None:
    assert read_mode(screen("", said="bypass permissions on")) is None
    assert read_mode(screen("⏸ manual mode on", said="plan mode on")) == "default"


def test_quiet_agent_loses_nothing() -> None:
    made = resumption()
    made.take(read_hook(stop()))
    assert made.losses(MANUAL) == []
    assert made.permission_mode(MANUAL) == "default"


def test_agent_without_hooks_stays_awake() -> None:
    (why,) = ClaudeResumption(["claude"], {}, Path("/"), 1).losses(MANUAL)
    assert "no hook has arrived" in why


def test_shell_in_the_background_is_lost_until_a_stop_says_that_it_ended() -> None:
    made = resumption()
    started = {"tool_name": "Bash", "tool_response": {"backgroundTaskId": "b1"}}
    made.take(read_hook({"hook_event_name": "PostToolUse", "session_id": "s", **started}))
    assert made.losses(MANUAL) == ["something in the background"]
    made.take(read_hook(stop({"id": "b1", "type": "shell", "description": "npm run dev"})))
    assert made.losses(MANUAL) == ["shell in the background: npm run dev"]
    made.take(read_hook(stop({"id": "b1", "type": "shell", "status": "completed"})))
    assert made.losses(MANUAL) == []


def test_shell_that_only_the_registry_reports_is_lost() -> None:
    made = resumption()
    made.take(read_registry({"pid": 1, "sessionId": "s", "status": "shell"}))
    assert made.losses(MANUAL) == ["a shell in the background"]
    made.take(read_registry({"pid": 1, "sessionId": "s", "status": "idle"}))
    assert made.losses(MANUAL) == []


def test_scheduled_prompt_and_another_worktree_are_lost_for_good() -> None:
    made = resumption()
    made.take(read_hook(stop(session_crons=[{"id": "c"}])))
    made.take(read_hook({"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "EnterWorktree"}))
    made.take(read_hook(stop()))
    assert made.losses(MANUAL) == ["a scheduled prompt", "another working folder (EnterWorktree)"]


def test_command_that_changes_the_process_is_lost() -> None:
    made = resumption()
    content = "<command-name>/model</command-name>\n<command-message>model</command-message>"
    made.take(read_record({"type": "user", "message": {"role": "user", "content": content}}))
    assert made.losses(MANUAL) == ["what /model changed"]


@pytest.mark.parametrize(
    ("arguments", "mode", "is_kept"),
    [
        ((), "plan", True),
        (("--permission-mode", "bypassPermissions"), "bypassPermissions", True),
        (("--permission-mode", "bypassPermissions"), "plan", True),
        (("--dangerously-skip-permissions",), "bypassPermissions", True),
        (("--dangerously-skip-permissions",), "plan", False),
        ((), "bypassPermissions", False),
    ],
)
def test_permission_mode_is_never_widened(arguments: tuple[str, ...], mode: str, is_kept: bool) -> None:
    (footer,) = [footer for footer, one in MODES.items() if one == mode]
    assert (resumption(*arguments).losses(screen(footer)) == []) is is_kept


def launched(home: Path, arguments: list[str], mode: str, *, is_known: bool = False) -> Launch:
    context = LaunchContext(
        argv=["claude", *arguments],
        env={"HOME": str(home)},
        cwd=home,
        scratch=home,
        hook_url="",
        hook_token="",
        emit_command="emit",
        woken=True,
        is_known=is_known,
        permission_mode=mode,
    )
    return prepare(context)


def test_woken_agent_is_started_in_the_mode_that_it_was_in(tmp_path: Path) -> None:
    argv = launched(tmp_path, ["--permission-mode=acceptEdits", "--model", "sonnet"], "plan").argv
    assert [word for word in argv if word.startswith("--permission-mode")] == ["--permission-mode"]
    assert argv[argv.index("--permission-mode") + 1] == "plan"
    assert argv[-2:] == ["--model", "sonnet"]


def test_woken_agent_does_not_offer_a_summary_of_its_old_conversation(tmp_path: Path) -> None:
    assert float(launched(tmp_path, [], "plan").env["CLAUDE_CODE_RESUME_THRESHOLD_MINUTES"]) >= 1e9


@pytest.mark.parametrize(("is_known", "matcher"), [(True, "clear|compact|fork"), (False, None)])
def test_start_of_a_known_agent_is_not_reported(tmp_path: Path, is_known: bool, matcher: str | None) -> None:
    (settings,) = launched(tmp_path, [], "plan", is_known=is_known).files.values()
    (group,) = json.loads(settings)["hooks"]["SessionStart"]
    assert group.get("matcher") == matcher


def test_conversation_is_resumable_only_with_a_transcript_that_has_a_message(tmp_path: Path) -> None:
    made = resumption(home=tmp_path)
    with pytest.raises(NotSafe, match="no conversation"):
        made.check({})
    transcript = tmp_path / "s.jsonl"
    conversation = {"session_id": "s", "transcript_path": str(transcript)}
    with pytest.raises(NotSafe, match=f"does not exist: {transcript}"):
        made.check(conversation)
    transcript.write_text('{"type": "summary"}\n')
    with pytest.raises(NotSafe, match="no message"):
        made.check(conversation)
    transcript.write_text(json.dumps({"type": "user"}) + "\n")
    made.check(conversation)


def test_conversation_that_is_not_kept_is_not_resumable(tmp_path: Path) -> None:
    transcript = tmp_path / "s.jsonl"
    transcript.write_text(json.dumps({"type": "user"}) + "\n")
    made = resumption("--no-session-persistence", home=tmp_path)
    with pytest.raises(NotSafe):
        made.check({"session_id": "s", "transcript_path": str(transcript)})
