"""A turn in print mode: the model's words, its tools, the permissions they need, and the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from remuda.testing.script import (
    Cut,
    Fail,
    Reply,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    filler,
    paced,
    reply_to,
)

from . import records
from .agent_conversation import AgentConversation
from .agent_flags import Knobs
from .agent_loop import Future, Loop
from .model_reply import ApiFailed, failed
from .print_voice import PrintTurnState, Voice
from .records import Record, new_id
from .settings import Settings
from .stage import TurnAborted
from .tool import ToolOutcome, Tools, decide, suggestions

_RETRIED = frozenset({401, 429, 500, 502, 503, 504, 529})
_REFUSED = "This command needs approval, and no one can give it."


class PrintStage(Protocol):
    """The program, seen from a turn."""

    loop: Loop
    voice: Voice
    session: AgentConversation
    tools: Tools
    knobs: Knobs
    environ: Mapping[str, str]

    def settings(self) -> Settings: ...
    def ask(self, request: Record) -> Future[Mapping[str, Any]] | None:
        """Ask the caller of the program. The result is None without an answer."""

    def background(self, kind: str, call: ToolUse) -> str:
        """Run it next to the turns; the text for the model."""

    def die(self, said: str) -> None:
        """Where the knobs want it, for a turn that was begun by these words."""


class PrintTurn:
    def __init__(self, stage: PrintStage, said: str, turn: PrintTurnState) -> None:
        self._stage, self._said, self._turn = stage, said, turn
        self._partial = ""
        self._running: ToolUse | None = None

    async def run(self) -> bool:
        """To its result, whatever that is. False when it was interrupted."""
        voice, turn = self._stage.voice, self._turn
        voice.state("running")
        voice.begun()
        self._stage.die(self._said)
        try:
            await self._converse()
            voice.result(turn)
        except TurnAborted:
            self._interrupted()
            return False
        except ApiFailed as failure:
            block = {"type": "text", "text": failure.text}
            voice.block(block, model="<synthetic>")
            turn.text = failure.text
            voice.result(turn, is_error=True, terminal_reason="api_error", api_error_status=failure.status)
        return True

    async def _converse(self) -> None:
        said: str | ToolResult = self._said
        while True:
            self._turn.requests += 1
            self._stage.voice.requesting()
            calls, text = await self._listen(self._reply(said))
            self._turn.text = text
            if not calls:
                return
            results = [await self._call(call) for call in calls]
            said = ToolResult(results[-1])
            self._turn.turns += 1

    def _reply(self, said: str | ToolResult) -> Reply:
        session, response = self._stage.session, self._stage.knobs.response
        return reply_to(said, session.said + 1) if response is None else Reply.of(response)

    async def _listen(self, reply: Reply) -> tuple[list[ToolUse], str]:
        calls: list[ToolUse] = []
        text = ""
        for step in reply.steps:
            match step:
                case Thinking(_, seconds):
                    await self._stage.loop.sleep(seconds)
                case Text(words, seconds):
                    await self._speak(words, seconds)
                    text = words
                case ToolUse(name, given, call_id):
                    calls.append(ToolUse(name, given, call_id or f"toolu_{new_id()[:12]}"))
                    block = {"type": "tool_use", "id": calls[-1].id, "name": name, "input": dict(given)}
                    self._stage.voice.block(block)
                case Cut(after_words):
                    await self._speak(filler(after_words), 0)
                    raise ApiFailed(
                        "API Error: Connection to the API was lost (ECONNRESET).", "server_error", 0, ""
                    )
                case Fail():
                    await self._fail(step)
                case _:
                    pass
        self._stage.session.said += 1
        self._turn.stop_reason = reply.stop_reason
        self._stage.voice.used(reply.stop_reason)
        return calls, text

    async def _speak(self, text: str, seconds: float) -> None:
        self._partial = ""
        for wait, piece in paced(text, seconds):
            if wait:
                await self._stage.loop.sleep(wait)
            self._partial += piece
            self._stage.voice.piece(piece)
        self._stage.voice.block({"type": "text", "text": text})
        self._partial = ""

    async def _fail(self, failure: Fail) -> None:
        configured = self._stage.environ.get("CLAUDE_CODE_MAX_RETRIES", "")
        most = int(configured) if configured.isdigit() else 10
        for attempt in range(1, most + 1 if failure.status in _RETRIED else 1):
            delay = max(float(failure.headers.get("retry-after") or 0), 0.5 * 2 ** (attempt - 1))
            self._stage.voice.retrying(attempt, most, delay, failure.status)
            await self._stage.loop.sleep(delay * self._stage.knobs.time_scale)
        raise failed(failure)

    # ── tools ──

    async def _call(self, call: ToolUse) -> str:
        self._running = call
        given = await self._permitted(call)
        if given is None:
            return self._told(call, ToolOutcome(_REFUSED, "", failed=True))
        if isinstance(given, str):
            return self._told(call, ToolOutcome(given, "", failed=True))
        if given.get("run_in_background") or (call.name == "Agent" and "run_in_background" not in given):
            kind = "local_agent" if call.name == "Agent" else "local_bash"
            started = self._stage.background(kind, ToolUse(call.name, given, call.id))
            return self._told(call, ToolOutcome(started, ""))
        tools = self._stage.tools
        outcome = await self._stage.loop.in_thread(lambda: tools.run(call.name, given))
        return self._told(call, outcome)

    def _told(self, call: ToolUse, outcome: ToolOutcome) -> str:
        self._running = None
        result = {"type": "tool_result", "tool_use_id": call.id, "content": outcome.text}
        self._stage.voice.user({**result, "is_error": outcome.failed})
        return outcome.text

    async def _permitted(self, call: ToolUse) -> Mapping[str, Any] | str | None:
        """Return the input to run it with, the words of who denied it, or None if no one was asked."""
        stage, session, rules = self._stage, self._stage.session, self._stage.settings()
        decision = decide(
            call.name,
            call.input,
            session.mode,
            allow=[*rules.allow, *session.allowed],
            deny=[*rules.deny, *session.denied],
            ask=rules.ask,
        )
        if decision == "allow":
            return call.input
        asked = stage.ask(self._question(call)) if decision == "ask" else None
        if asked is None:
            self._note_denial(call)
            return None
        answer = await asked
        if answer.get("behavior") == "allow":
            self._grant(answer.get("updatedPermissions"))
            changed = answer.get("updatedInput")
            return changed if isinstance(changed, dict) else call.input
        self._note_denial(call)
        if answer.get("interrupt"):
            raise TurnAborted
        return str(answer.get("message") or "denied")

    def _question(self, call: ToolUse) -> Record:
        asked = {"subtype": "can_use_tool", "tool_name": call.name, "input": dict(call.input)}
        offered = suggestions(call.name, self._stage.session.cwd)
        rule = {"toolName": call.name, "ruleContent": str(call.input.get("command", ""))}
        rules = {"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "localSettings"}
        more = {} if offered is None else {"permission_suggestions": [rules, *offered]}
        return {**asked, "tool_use_id": call.id, **more}

    def _grant(self, updates: object) -> None:
        for update in updates if isinstance(updates, list) else ():
            match update:
                case {"type": "setMode", "mode": str(mode)}:
                    self._stage.session.mode = mode
                case {"type": "addRules", "rules": list(rules)}:
                    self._stage.session.allowed += [str(rule.get("toolName")) for rule in rules]

    def _note_denial(self, call: ToolUse) -> None:
        denial = {"tool_name": call.name, "tool_use_id": call.id, "tool_input": dict(call.input)}
        self._turn.denials.append(denial)

    def _interrupted(self) -> None:
        voice = self._stage.voice
        self._stage.tools.kill()
        text = records.INTERRUPTED
        if self._running is not None:
            self._told(self._running, ToolOutcome(records.REJECTED, "", failed=True))
            text = records.INTERRUPTED_IN_TOOL
        elif self._partial:
            voice.block({"type": "text", "text": self._partial}, aborted=True)
        voice.user({"type": "text", "text": text})
        how = {"subtype": "error_during_execution", "is_error": True, "terminal_reason": "aborted_streaming"}
        voice.result(self._turn, **how, result=None, errors=["interrupted"])
