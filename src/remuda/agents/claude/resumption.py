"""What `claude --resume` brings back of a process that has ended, and what it does not. Pure but for `check`.

Facts (2.1.325): the conversation comes back with its id. The permission mode is passed as an argument. Work
in the background ends with the process, and so do scheduled prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.events import CommandRun, Report, StatusReported, TurnStopped
from remuda.agents.state import Source
from remuda.errors import NotSafe

from .files import find_transcript, has_messages
from .hooks import IN_BACKGROUND
from .launch import own_arguments, wants_bypass
from .screen import read_mode

# Commands that change the process and not a file: a new process would not know of it.
_LASTING_COMMANDS = ("add-dir", "advisor", "effort", "fast", "goal", "loop", "model", "sandbox")
_BYPASS = "bypassPermissions"


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

    # ── what it did ──

    def take(self, report: Report) -> None:
        self._hooked |= report.source is Source.HOOK
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
            case CommandRun(name=name) if name in _LASTING_COMMANDS:
                self._note(f"what /{name} changed")

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
                f"the transcript of conversation {session_id} does not exist"
                + (f": {known}" if known else " yet")
            )
        if not has_messages(transcript):
            raise NotSafe(f"the transcript has no message that can be read: {transcript}")
