"""Doing what was submitted: a prompt with its hooks, a slash command, a command of the shell."""

from __future__ import annotations

import re
from pathlib import Path

from . import records
from .command import Commands, run_shell
from .composer import Prompt, ShellCommand, SlashCommand, Submission
from .hooks import Verdict
from .layout import DIM, WARN
from .loop import Future
from .stage import Interrupted, Stage
from .turn import Turn

_MENTION = re.compile(r"(?:^|\s)@([^\s]+)")
_LARGEST_MENTION = 256 * 1024


class Worker:
    """Does one submission at a time, but not before ``started``: when the hooks of SessionStart are done."""

    def __init__(self, stage: Stage, commands: Commands) -> None:
        self.started: Future[Verdict] = Future()
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
                    await Turn(self._stage, []).run(told)
                case Prompt(text):
                    await self.converse([text], queued=False)
        except Interrupted:
            self._stage.tools.kill()
            self._stage.face.show("Interrupted · What should Claude do instead?", "  ⎿  ", DIM)

    async def converse(self, prompts: list[str], *, queued: bool) -> None:
        """One turn for these prompts; those that were queued have been told to hooks already."""
        session = self._stage.session
        if not queued:
            session.new_prompt()
        shown = [self._stage.face.show(text, "❯ ") for text in prompts]
        try:
            await self.started
            blocked = not queued and await self._is_blocked(prompts[0])
        except Interrupted:
            self._stage.give_back(prompts)
            return
        if blocked:
            self._stage.face.view.blocks.remove(shown[0])
            return
        session.turns += 1
        turn = Turn(self._stage, prompts)
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
