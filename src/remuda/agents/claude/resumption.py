"""What `claude --resume` brings back of a process that has ended, and what it does not. Pure but for `check`.

Facts (2.1.325): the conversation comes back with its id. The permission mode is passed as an argument, and so
is the model that `/model NAME` chose. What a client allowed for the conversation is in our settings file.
Work in the background ends with the process, and so do scheduled prompts. The terminal's dialog also offers
to allow something for the conversation. What was chosen there is not reported: only that the tool ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.events import (
    CommandRun,
    PromptSubmitted,
    Report,
    StatusReported,
    ToolFinished,
    TurnStopped,
)
from remuda.agents.permission import PermissionRequest, PermissionTracker
from remuda.agents.state import Source
from remuda.errors import NotSafe
from remuda.untrusted import as_object, as_objects

from .files import find_transcript, has_messages
from .hooks import IN_BACKGROUND
from .launch import own_arguments, wants_bypass
from .screen import read_mode
from .transcript import reads_as_command

# Commands that change the process and not a file: a new process would not know of it.
_LASTING_COMMANDS = frozenset(
    {"add-dir", "advisor", "allowed-tools", "effort", "fast", "goal", "ide", "loop", "model", "permissions"}
    | {"rc", "remote-control", "sandbox"}
)
_BYPASS = "bypassPermissions"
# The record of a `/model` that was not cancelled in its dialog (2.1.280 to 2.1.325).
_SWITCHED = "Set model to "
_LIKE_A_COMMAND = "a prompt that is recorded as a command would be"
_DEFAULT = "default"


def _changed_by(command: str) -> str:
    return f"what /{command} changed"


class ClaudeResumption:
    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, program_words: int) -> None:
        arguments, settings = own_arguments(argv, cwd, program_words)
        self._env = env
        self._may_bypass = wants_bypass(arguments, settings, env, cwd)
        self._must_bypass = "--dangerously-skip-permissions" in arguments
        self._keeps_none = "--no-session-persistence" in arguments
        self._lasting: list[str] = []
        self._background: list[str] = []
        self._has_shell = False
        self._hooked = False
        self.model = ""
        self._choice = ""
        """What the last `/model` asked for; empty if it was chosen in its dialog."""
        self._cwd = cwd
        self._tracker = PermissionTracker()
        self._undecided: dict[str, str] = {}
        """Requests that offer to allow something for the conversation: the tool, by its call."""

    # ── what it did ──

    def take(self, report: Report) -> None:
        self._hooked |= report.source is Source.HOOK
        if report.source is Source.HOOK:
            self._take_permissions(report)
        for reason in report.carry_over:
            if reason in IN_BACKGROUND:
                self._background = [reason]  # until the next stop says what still runs
            else:
                self._note(reason)
        if not report.subagent:
            for event in report.events:
                self._take(event)

    def _take(self, event: object) -> None:
        match event:
            case TurnStopped(background=tasks):
                self._background = [
                    f"{task.kind} in the background: {task.description or task.id}"
                    for task in tasks
                    if task.running
                ]
            case StatusReported(status=status):
                self._has_shell = status == "shell"
            case CommandRun(name=name, arguments=arguments) if name in _LASTING_COMMANDS:
                self._note(_changed_by(name))
                self._choice = arguments if name == "model" and arguments != _DEFAULT else ""
            case CommandRun(name="", output=output) if output.startswith(_SWITCHED) and self._choice:
                self.model, self._choice = self._choice, ""
                self._lasting.remove(_changed_by("model"))
            case PromptSubmitted(prompt=text) if reads_as_command(text):
                self._note(_LIKE_A_COMMAND)  # anyone may have sent it, and no text from outside names a model

    def _take_permissions(self, report: Report) -> None:
        asked = self._tracker.take(report)
        if isinstance(asked, PermissionRequest) and any(map(self._is_for_conversation, asked.suggestions)):
            self._undecided[asked.tool_use_id or ""] = asked.tool
        for event in report.events:
            if isinstance(event, ToolFinished) and (tool := self._undecided.pop(event.id, None)):
                if not event.denied:
                    self._note(f"what was allowed on the terminal, perhaps for this conversation ({tool})")
            elif isinstance(event, TurnStopped):
                self._undecided.clear()

    def _is_for_conversation(self, offered: Mapping[str, Any]) -> bool:
        """Return whether the dialog offers what ends with the process. A mode is read from the screen."""
        if offered.get("destination") != "session" or offered.get("type") == "setMode":
            return False
        folders = offered.get("directories")
        return not isinstance(folders, list) or any(
            not Path(str(one)).is_relative_to(self._cwd) for one in folders
        )

    def decided(self, request: PermissionRequest, answer: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        self._undecided.pop(request.tool_use_id or "", None)
        decision = as_object(as_object(answer.get("hookSpecificOutput")).get("decision"))
        allowed = [
            one for one in as_objects(decision.get("updatedPermissions")) if one.get("type") != "setMode"
        ]
        rules = [str(rule.get("ruleContent")) for one in allowed for rule in as_objects(one.get("rules"))]
        if any(character in rule for rule in rules for character in "()\\"):
            # How these are written in a settings file has not been tried.
            self._note(f"what was allowed for this conversation ({request.tool})")
        return allowed

    def _note(self, reason: str) -> None:
        if reason not in self._lasting:
            self._lasting.append(reason)

    # ── what would be lost ──

    def losses(self, lines: Sequence[str]) -> list[str]:
        if not self._hooked:
            return ["what runs in the background, which is not known: no hook has arrived"]
        mode = read_mode(lines)
        found = [*self._background, *self._lasting]
        if self._has_shell and not self._background:
            found.append("a shell in the background")
        if mode is None:
            found.append("the permission mode, which the screen does not show")
        elif (mode == _BYPASS) is not self._may_bypass and (self._must_bypass or mode == _BYPASS):
            found.append(f"the permission mode {mode}, which the arguments do not lead to")
        return found

    def permission_mode(self, lines: Sequence[str]) -> str | None:
        mode = read_mode(lines)
        return "" if mode == _BYPASS else mode  # its own arguments ask for that

    def check(self, conversation: Mapping[str, Any]) -> None:
        session_id = conversation.get("session_id")
        if not session_id or self._keeps_none:
            raise NotSafe("the agent has no conversation that can be resumed yet")
        transcript = find_transcript(self._env, conversation)
        if transcript is None:
            known = conversation.get("transcript_path")
            raise NotSafe(
                f"the transcript of conversation {session_id}, which its first message makes, does not exist"
                + (f": {known}" if known else " yet")
            )
        if not has_messages(transcript):
            raise NotSafe(f"the transcript has no message that can be read: {transcript}")
