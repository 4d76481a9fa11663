"""A turn: a prompt, the model's answers, the tools between them, and the hooks that may not let it end."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from remuda.testing.script import ToolResult

from . import records
from .calls import Call
from .layout import DIM, WARN
from .model_reply import ApiFailed, ModelRequest, Said
from .records import new_id
from .stage import Stage, TurnAborted, TurnEnded

DEFAULT_BLOCK_CAP = 8
_SAY_SOMETHING = (
    "[Your previous response had no visible output. Please continue and produce a user-visible response.]"
)
_DONE_VERBS = ("Baked", "Brewed", "Churned", "Cogitated", "Cooked", "Crunched", "Sautéed", "Worked")


class _Halted(Exception):  # not an error
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AgentTurn:
    """Runs one turn. Esc throws :class:`TurnAborted` into it; no hook reports that."""

    def __init__(self, stage: Stage, prompts: Sequence[str]) -> None:
        self._stage = stage
        self._prompts = prompts
        self._started = time.monotonic()
        self._id = new_id()
        self._blocks_in_a_row = 0
        self._request: ModelRequest | None = None
        self._call: Call | None = None
        self._before = stage.session.transcript.leaf
        self._answered = False
        self._urged = False
        self._stopping = False

    async def run(self, said: str) -> None:
        """From what was said to the end of the turn."""
        try:
            await self._converse(said)
        except TurnAborted:
            self._interrupt()
        except TurnEnded:
            self._reject()
        except _Halted as halted:
            self._halt(halted.reason)
        except ApiFailed as failure:
            self._fail(failure)
        else:
            self._finish()

    async def _converse(self, said: str | ToolResult) -> None:
        while True:
            answer = await self._ask_model(said)
            if answer.calls:
                said = ToolResult(await self._run_tools(answer))
                self._stage.absorb_queue()
                continue
            again = _SAY_SOMETHING if self._is_mute(answer) else await self._stop(answer)
            if again is None:
                return
            said = again

    def _is_mute(self, answer: Said) -> bool:
        """Whether there was nothing to show, for the first time in this turn: the model is asked for more."""
        if answer.text or self._urged:
            return False
        self._urged = True
        return True

    async def _ask_model(self, said: str | ToolResult) -> Said:
        answer = Said()
        for _ in range(self._stage.knobs.turns):
            self._request = ModelRequest(self._stage, self._id)
            answer = await self._request.run(said)
            self._answered = True
        self._request = None
        return answer

    async def _run_tools(self, answer: Said) -> str:
        summaries, text = [], ""
        for used, line_id in answer.calls:
            self._call = Call(self._stage, used, line_id)
            text = await self._call.run()
            summaries.append({**self._call.summary, "tool_response": text})
            self._call = None
        verdict = await self._stage.fire("PostToolBatch", {"tool_calls": summaries})
        if verdict.halt is not None:
            raise _Halted(verdict.halt)
        return text

    async def _stop(self, answer: Said) -> str | None:
        """Fire Stop; what the model gets when a hook blocks, None when the turn may end."""
        stage = self._stage
        if stage.knobs.exit_before_stop:
            stage.die(1)
        await stage.loop.sleep(stage.knobs.delay_stop)
        stage.face.activity("running Stop hook")
        self._stopping = True
        verdict = await stage.fire("Stop", self._stop_fields(answer))
        self._stopping = False
        for _ in range(stage.knobs.extra_stops):
            await stage.fire("Stop", self._stop_fields(answer))
        stage.face.activity()
        reasons = [reason for _, reason in verdict.reasons]
        told = [f"Stop hook feedback:\n{reason}" for reason in reasons] + [
            f"<system-reminder>\nStop hook additional context: {text}\n</system-reminder>"
            for text in verdict.contexts
        ]
        for name, reason in verdict.reasons:
            self._note_block(name, reason)
        if verdict.answers:
            hooks = [(found.name, found.seconds) for found in verdict.answers]
            summary = records.stop_hook_summary(hooks, reasons, verdict.contexts)
            stage.session.transcript.add(summary)
        if not told or verdict.halt is not None or self._is_capped():
            return None
        for reason in reasons:
            stage.face.show(f"Stop hook error: {reason}", "  ⎿  ", DIM)
        return "\n".join(told)

    def _note_block(self, hook: str, reason: str) -> None:
        """The model reads twice why it must go on, the second time with the hook's own command line."""
        session = self._stage.session
        session.transcript.add(records.feedback(reason, session.prompt_id or ""))
        told = f'Stop hook blocking error from command: "{hook}": {reason}'
        error = {"blockingError": reason, "command": hook}
        fields = {"hookName": "Stop", "toolUseID": new_id(), "hookEvent": "Stop", "blockingError": error}
        line = records.attachment("hook_blocking_error", fields)
        session.transcript.add({**line, "rendered": [{"content": told}], "renderedRole": "system"})

    def _stop_fields(self, answer: Said) -> dict[str, object]:
        return {
            "stop_hook_active": self._blocks_in_a_row > 0,
            "last_assistant_message": answer.text.rstrip(),
            "background_tasks": [],
            "session_crons": [],
        }

    def _is_capped(self) -> bool:
        """Count a block; whether it is one too many, and is dropped without a word to the hook."""
        self._blocks_in_a_row += 1
        cap = block_cap(self._stage.environ.get("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", ""))
        if cap <= 0 or self._blocks_in_a_row <= cap:
            return False
        times = self._blocks_in_a_row
        self._stage.face.show(
            f"A hook blocked the turn from ending {times} consecutive times — overriding and ending turn.",
            "● ",
            WARN,
        )
        return True

    def _interrupt(self) -> None:
        """Leave the traces of an interrupt, which alone report it."""
        stage, session = self._stage, self._stage.session
        if self._call is not None and not self._call.settled:
            stage.tools.kill()
            self._call.reject()
            self._note_interrupt(records.INTERRUPTED_IN_TOOL, new_id())
        elif self._prompts and self._request is not None and not self._request.begun and not self._answered:
            # Nothing has come back yet: as if it had never been said, but for the line in the file.
            session.transcript.leaf = self._before
            session.turns -= 1
            stage.give_back(self._prompts)
            return
        elif self._request is not None and self._request.begun:
            session.transcript.add(self._request.interrupted_line())
            self._note_interrupt(records.INTERRUPTED, self._request.message_id)
        else:
            if self._stopping:
                cancelled = {"hookName": "Stop", "toolUseID": new_id(), "hookEvent": "Stop"}
                session.transcript.add(records.attachment("hook_cancelled", cancelled))
            self._note_interrupt(records.INTERRUPTED, None)
        stage.face.show("Interrupted · What should Claude do instead?", "  ⎿  ", DIM)

    def _reject(self) -> None:
        if self._call is not None and not self._call.settled:
            self._call.reject()
        self._note_interrupt(records.INTERRUPTED_IN_TOOL, None)
        self._stage.face.show("Interrupted · What should Claude do instead?", "  ⎿  ", DIM)
        self._finish()

    def _halt(self, reason: str) -> None:
        """A hook said that it must not go on: no further request, and no Stop."""
        fields = {"message": reason, "hookName": "PostToolBatch", "hookEvent": "PostToolBatch"}
        self._stage.session.transcript.add(records.attachment("hook_stopped_continuation", fields))
        self._finish()

    def _note_interrupt(self, text: str, message_id: str | None) -> None:
        session = self._stage.session
        session.transcript.add(records.interruption(text, session.prompt_id or "", message_id))

    def _fail(self, failure: ApiFailed) -> None:
        stage = self._stage
        line = records.api_error(failure.text, failure.name, failure.status, failure.kind)
        stage.session.transcript.add(line)
        stage.face.show(failure.text, "● ", WARN)
        fields = {"error": failure.name, "last_assistant_message": failure.text}
        stage.announce("StopFailure", fields, failure.name)
        self._finish()

    def _finish(self) -> None:
        stage, session = self._stage, self._stage.session
        took = time.monotonic() - self._started
        session.transcript.add(records.turn_duration(took, session.transcript.messages), both_ids=False)
        if stage.knobs.unknown_event_type:
            session.transcript.helper("remuda-mystery", {"payload": {"depth": 1}})
        if stage.knobs.is_error:
            session.transcript.helper("result", {"subtype": "error_during_execution", "is_error": True})
        last = {"lastPrompt": self._prompts[0] if self._prompts else "", "leafUuid": session.transcript.leaf}
        session.transcript.helper("last-prompt", last)
        session.note_mode()
        stage.face.show(done_line(took), "✻ ", DIM)


def block_cap(value: str) -> int:
    """Return how often in a row Stop may be blocked; nothing above zero means as often as it likes."""
    try:
        return int(value)
    except ValueError:
        return DEFAULT_BLOCK_CAP


def done_line(seconds: float) -> str:
    """Return how the end of a turn is shown."""
    verb = _DONE_VERBS[os.urandom(1)[0] % len(_DONE_VERBS)]
    clock = time.strftime("%I:%M %p", time.localtime()).lstrip("0")
    return f"{verb} for {int(seconds)}s · done {clock}"
