"""What was submitted while a turn ran.

Prompts typed during an answer are merged into one turn after it. Typed while a tool runs, they are told to
the model with the tool's result. Either way UserPromptSubmit fires when they are typed, not when they run.
"""

from __future__ import annotations

from . import records
from .composer import Prompt, ShellCommand, SlashCommand, Submission
from .records import new_id
from .stage import Stage


class Queue:
    """Submissions in their order."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._waiting: list[Submission] = []

    def put(self, meaning: Submission) -> None:
        """Keep a submission for later; hooks hear of a prompt at once and may refuse it."""
        self._waiting.append(meaning)
        self._show()
        if isinstance(meaning, Prompt):
            self._note("enqueue", content=meaning.text)
            self._stage.loop.spawn(self._tell_hooks(meaning))

    def take(self) -> Submission | list[str] | None:
        """What to do next: all prompts up to the next command as one list, or that command."""
        prompts = self._take_prompts()
        if prompts:
            for _ in prompts:
                self._note("dequeue")
            return prompts
        first = self._waiting.pop(0) if self._waiting else None
        self._show()
        return first

    def absorb(self) -> None:
        """The prompts become part of the running turn."""
        transcript = self._stage.session.transcript
        for text in self._take_prompts():
            ids = {"source_uuid": new_id(), "delivery_id": new_id()}
            self._note("remove", content=text, reason="absorbed_mid_turn")
            fields = {"prompt": text, **ids, "commandMode": "prompt", "origin": {"kind": "human"}}
            told = f"The user sent a new message while you were working:\n{text}"
            line = records.attachment("queued_command", fields)
            transcript.add(
                {
                    **line,
                    "rendered": [{"content": f"<system-reminder>\n{told}\n</system-reminder>"}],
                    "renderedRole": "system",
                }
            )
            self._stage.face.show(text, "❯ ")

    async def _tell_hooks(self, prompt: Prompt) -> None:
        verdict = await self._stage.fire("UserPromptSubmit", {"prompt": prompt.text})
        if verdict.reasons and prompt in self._waiting:
            self._waiting.remove(prompt)
            self._show()

    def _take_prompts(self) -> list[str]:
        prompts: list[str] = []
        while self._waiting and isinstance(first := self._waiting[0], Prompt):
            prompts.append(first.text)
            self._waiting.pop(0)
        self._show()
        return prompts

    def _note(self, operation: str, **fields: object) -> None:
        line = {"operation": operation, "timestamp": records.now(), **fields}
        self._stage.session.transcript.helper("queue-operation", line)

    def _show(self) -> None:
        self._stage.face.view.queued = [_shown(waiting) for waiting in self._waiting]
        self._stage.face.refresh()


def _shown(waiting: Submission) -> str:
    match waiting:
        case Prompt(text):
            return text
        case ShellCommand(command):
            return f"!{command}"
        case SlashCommand(name, arguments):
            return f"/{name} {arguments}".rstrip()
