"""Doing what was submitted: a prompt with its hooks, a slash command, a command of the shell."""

from __future__ import annotations

import re
from pathlib import Path

from . import records
from .agent_loop import Future
from .agent_turn import AgentTurn
from .composer import ShellCommand, SlashCommand, Submission, SubmittedPrompt
from .hook_runner import HookVerdict
from .layout import DIM, WARN
from .records import new_id
from .slash_command import Commands, run_shell
from .stage import Stage, TurnAborted

# ── what was submitted while a turn ran ──

# Prompts typed during an answer are merged into one turn after it. Typed while a tool runs, they go to
# the model with the tool's result. Either way UserPromptSubmit fires when they are typed, not when they run.


class PromptQueue:
    """Submissions in their order."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._waiting: list[Submission] = []

    def put(self, meaning: Submission) -> None:
        """Keep a submission for later; hooks hear of a prompt at once and may refuse it."""
        self._waiting.append(meaning)
        self._show()
        if isinstance(meaning, SubmittedPrompt):
            self._note("enqueue", content=meaning.text)
            self._stage.loop.spawn(self._tell_hooks(meaning))

    def take(self) -> Submission | list[str] | None:
        """Return what to do next: all prompts up to the next command as one list, or that command."""
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

    async def _tell_hooks(self, prompt: SubmittedPrompt) -> None:
        verdict = await self._stage.fire("UserPromptSubmit", {"prompt": prompt.text})
        if verdict.reasons and prompt in self._waiting:
            self._waiting.remove(prompt)
            self._show()

    def _take_prompts(self) -> list[str]:
        prompts: list[str] = []
        while self._waiting and isinstance(first := self._waiting[0], SubmittedPrompt):
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
        case SubmittedPrompt(text):
            return text
        case ShellCommand(command):
            return f"!{command}"
        case SlashCommand(name, arguments):
            return f"/{name} {arguments}".rstrip()


# ── doing it ──

_MENTION = re.compile(r"(?:^|\s)@([^\s]+)")
_LARGEST_MENTION = 256 * 1024


class PromptWorker:
    """Does one submission at a time, but not before ``started``: when the hooks of SessionStart are done."""

    def __init__(self, stage: Stage, commands: Commands) -> None:
        self.started: Future[HookVerdict] = Future()
        self._stage = stage
        self._commands = commands

    async def do(self, meaning: Submission) -> None:
        """Do it to its end. An interrupt is dealt with here."""
        try:
            match meaning:
                case SlashCommand():
                    await self.started
                    await self._commands.run(meaning)
                case ShellCommand(command):
                    told = await run_shell(self._stage, command)
                    await AgentTurn(self._stage, []).run(told)
                case SubmittedPrompt(text):
                    await self.converse([text], queued=False)
        except TurnAborted:
            self._stage.tools.kill()
            self._stage.face.show("Interrupted · What should Claude do instead?", "  ⎿  ", DIM)

    async def converse(self, prompts: list[str], *, queued: bool) -> None:
        """One turn for these prompts; those that were queued have reached hooks already."""
        session = self._stage.session
        if not queued:
            session.new_prompt()
        shown = [self._stage.face.show(text, "❯ ") for text in prompts]
        try:
            await self.started
            blocked = not queued and await self._is_blocked(prompts[0])
        except TurnAborted:
            self._stage.give_back(prompts)
            return
        if blocked:
            self._stage.face.view.blocks.remove(shown[0])
            return
        session.turns += 1
        turn = AgentTurn(self._stage, prompts)
        session.begin_file()
        for text in prompts:
            session.note_snapshot()
            prompt_id = session.new_prompt() if queued else session.prompt_id or ""
            source = "queued" if queued else "typed"
            line = records.prompt(text, prompt_id, session.mode, source, session.turns)
            session.transcript.add(line, both_ids=False)
            self._attach_mentions(text)
        await turn.run(prompts[-1])

    async def _is_blocked(self, prompt: str) -> bool:
        self._stage.face.activity("running UserPromptSubmit hook")
        try:
            verdict = await self._stage.fire("UserPromptSubmit", {"prompt": prompt})
        finally:
            self._stage.face.activity()
        if not verdict.reasons:
            return False
        reason = verdict.reasons[0][1]
        text = f"UserPromptSubmit operation blocked by hook:\n{reason}\n\nOriginal prompt: {prompt}"
        self._stage.face.show(text, "● ", WARN)
        return True

    def _attach_mentions(self, prompt: str) -> None:
        for name in _MENTION.findall(prompt):
            path = Path(self._stage.session.cwd, name)
            if path.is_file() and path.stat().st_size <= _LARGEST_MENTION:
                text = path.read_text("utf-8", "replace")
                content = {"filePath": str(path), "content": text, "numLines": text.count("\n") + 1}
                fields = {"filename": str(path), "content": {"type": "text", "file": content}}
                self._stage.session.transcript.add(
                    records.attachment("file", {**fields, "displayPath": name})
                )
                self._stage.face.show(f"Read {name} ({content['numLines']} lines)", "  ⎿  ", DIM)
