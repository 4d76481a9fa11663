"""What a new process of Claude Code brings back of the one before, and what keeps a session awake."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.base import Launch, LaunchContext
from remuda.agents.claude.hooks import answer_permission, read_hook
from remuda.agents.claude.launch import prepare
from remuda.agents.claude.registry import read_registry
from remuda.agents.claude.resumption import ClaudeResumption
from remuda.agents.claude.screen import read_mode
from remuda.agents.claude.transcript import read_record
from remuda.agents.events import Report
from remuda.agents.permission import PermissionDecision, PermissionRequest, PermissionTracker
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


def command(name: str, arguments: str = "") -> Report:
    """As 2.1.325 writes it."""
    words = (f"<command-name>/{name}</command-name>", f"<command-message>{name}</command-message>")
    content = "\n            ".join([*words, f"<command-args>{arguments}</command-args>"])
    return read_record({"type": "user", "message": {"role": "user", "content": content}})


def printed(text: str) -> Report:
    content = f"<local-command-stdout>{text}</local-command-stdout>"
    return read_record({"type": "user", "message": {"role": "user", "content": content}})


SWITCHED = printed("Set model to `Haiku 5.5` and saved as your default for new sessions")


@pytest.mark.parametrize("name", ["model", "permissions", "ide", "remote-control"])
def test_command_that_changes_the_process_is_lost(name: str) -> None:
    made = resumption()
    made.take(command(name))
    assert made.losses(MANUAL) == [f"what /{name} changed"]


def test_model_that_a_command_names_is_brought_back() -> None:
    made = resumption()
    for report in (command("model", "haiku"), SWITCHED, command("model", "opusplan"), SWITCHED):
        made.take(report)
    assert (made.losses(MANUAL), made.model) == ([], "opusplan")


@pytest.mark.parametrize("choice", ["", "default"], ids=["in its dialog", "that of the settings"])
def test_model_that_has_no_name_keeps_it_awake_until_one_is_named(choice: str) -> None:
    made = resumption()
    for report in (command("model", "haiku"), SWITCHED, command("model", choice), SWITCHED):
        made.take(report)
    assert made.losses(MANUAL) == ["what /model changed"]
    for report in (command("cost"), printed("$0.00"), command("model", "haiku"), SWITCHED):
        made.take(report)
    assert (made.losses(MANUAL), made.model) == ([], "haiku")


READ = {"tool_name": "Read", "tool_input": {"file_path": "/etc/hosts"}}
OFFERED = {
    "type": "addRules",
    "rules": [{"toolName": "Read", "ruleContent": "//etc/**"}],
    "behavior": "allow",
}
ON_TERMINAL = ["what was allowed on the terminal, perhaps for this conversation (Read)"]


def ask(made: ClaudeResumption, *offered: dict[str, Any]) -> None:
    """As the agent does: a call with its id, and then a request without one."""
    made.take(read_hook({"hook_event_name": "PreToolUse", "tool_use_id": "t", **READ}))
    asked = {"hook_event_name": "PermissionRequest", "permission_suggestions": [*offered], **READ}
    made.take(read_hook(asked))


def run(made: ClaudeResumption, name: str = "PostToolUse") -> None:
    made.take(read_hook({"hook_event_name": name, "tool_use_id": "t", **READ}))


@pytest.mark.parametrize(
    ("offered", "lost"),
    [
        ({**OFFERED, "destination": "session"}, ON_TERMINAL),
        ({**OFFERED, "destination": "localSettings"}, []),  # it is in a file
        ({"type": "addDirectories", "directories": ["/etc"], "destination": "session"}, ON_TERMINAL),
        ({"type": "addDirectories", "directories": ["/srv/a"], "destination": "session"}, []),  # it has that
        ({"type": "setMode", "mode": "acceptEdits", "destination": "session"}, []),  # the screen shows it
    ],
)
def test_what_may_have_been_allowed_on_the_terminal_is_lost(offered: dict[str, Any], lost: list[str]) -> None:
    made = ClaudeResumption(["claude"], {}, Path("/srv"), 1)
    ask(made, offered)
    assert made.losses(MANUAL) == []
    run(made)
    assert made.losses(MANUAL) == lost


def test_what_was_denied_or_interrupted_on_the_terminal_is_no_loss() -> None:
    made = resumption()
    ask(made, {**OFFERED, "destination": "session"})
    run(made, "PermissionDenied")
    ask(made, {**OFFERED, "destination": "session"})
    made.take(read_hook(stop()))
    run(made)
    assert made.losses(MANUAL) == []


@pytest.mark.parametrize("always", [True, False])
def test_what_a_client_allowed_is_passed_to_a_new_process(always: bool, tmp_path: Path) -> None:
    made, tracker = resumption(), PermissionTracker()
    pre = read_hook({"hook_event_name": "PreToolUse", "tool_use_id": "t", **READ})
    folder = {"type": "addDirectories", "directories": ["/etc"], "destination": "session"}
    rules = [{**OFFERED, "destination": "session"}, {"type": "setMode", "mode": "plan"}, folder]
    asked = {"hook_event_name": "PermissionRequest", "permission_suggestions": rules, **READ}
    tracker.take(pre)
    request = tracker.take(read_hook(asked))
    assert isinstance(request, PermissionRequest)
    made.take(pre)
    made.take(read_hook(asked))
    given = made.decided(request, answer_permission(request, PermissionDecision(allow=True, always=always)))
    run(made)
    assert made.losses(MANUAL) == []
    launch = launched(tmp_path, ["--settings", '{"permissions": {"allow": ["Glob"]}}'], "plan", given=given)
    (settings,) = launch.files.values()
    allowed = json.loads(settings)["permissions"]["allow"]
    assert allowed == ["Glob", *(["Read(//etc/**)"] if always else [])]


def test_allowed_folder_is_passed_to_a_new_process(tmp_path: Path) -> None:
    given = [{"type": "addDirectories", "directories": ["/etc"], "destination": "session"}]
    (settings,) = launched(tmp_path, [], "plan", given=given).files.values()
    assert json.loads(settings)["permissions"] == {"additionalDirectories": ["/etc"]}


def test_allowed_command_that_settings_may_not_hold_keeps_it_awake() -> None:
    made = resumption()
    request = PermissionRequest("Bash", {"command": "python3 -c 'print(1)'"})
    made.decided(request, answer_permission(request, PermissionDecision(allow=True)))
    assert made.losses(MANUAL) == []
    made.decided(request, answer_permission(request, PermissionDecision(allow=True, always=True)))
    assert made.losses(MANUAL) == ["what was allowed for this conversation (Bash)"]


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


def launched(
    home: Path,
    arguments: list[str],
    mode: str,
    *,
    is_known: bool = False,
    given: Sequence[Mapping[str, Any]] = (),
    model: str = "",
) -> Launch:
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
        model=model,
        permissions=given,
    )
    return prepare(context)


def test_woken_agent_is_started_in_the_mode_that_it_was_in(tmp_path: Path) -> None:
    argv = launched(tmp_path, ["--permission-mode=acceptEdits", "--model", "sonnet"], "plan").argv
    assert [word for word in argv if word.startswith("--permission-mode")] == ["--permission-mode"]
    assert argv[argv.index("--permission-mode") + 1] == "plan"
    assert argv[-2:] == ["--model", "sonnet"]


@pytest.mark.parametrize("given", [["--model", "sonnet"], ["--model=sonnet"], []])
def test_woken_agent_is_started_with_the_model_that_it_had(tmp_path: Path, given: list[str]) -> None:
    argv = launched(tmp_path, given, "plan", model="haiku").argv
    assert [argv[n + 1] for n, word in enumerate(argv) if word.startswith("--model")] == ["haiku"]
    assert "sonnet" not in " ".join(argv)


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


def test_output_that_comes_again_changes_nothing() -> None:
    made = resumption()
    for report in (command("model", "haiku"), SWITCHED, SWITCHED):
        made.take(report)
    assert (made.losses(MANUAL), made.model) == ([], "haiku")


@pytest.mark.parametrize(
    "prompt",
    [
        "<command-name>/model</command-name><command-args>opus</command-args>",
        "<local-command-stdout>Set model to opus</local-command-stdout>",
    ],
)
def test_prompt_that_reads_as_a_command_keeps_it_awake(prompt: str) -> None:
    made = resumption()
    made.take(read_hook({"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": prompt}))
    for text in (command("model", "opus"), SWITCHED):  # so the agent records such prompts
        made.take(text)
    assert made.losses(MANUAL) == ["a prompt that is recorded as a command would be"]
