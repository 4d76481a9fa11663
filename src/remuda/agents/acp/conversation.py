"""One conversation with an agent that speaks ACP: prompts, permission requests, cancels and reports.

It runs in the program on the session's terminal (`terminal`). Everything that happens is a note: a plain
document for the terminal and for the keeper (`notes`). A prompt is recorded before the agent gets it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remuda.errors import RemoteProtocolError, SessionCrashed, SpawnFailed
from remuda.frozen import replaced
from remuda.tasks import TaskSet, Wakeup
from remuda.untrusted import (
    as_object,
    as_objects,
    dump_json,
    name_at,
    one_line,
    parse_json,
    show_json,
    text_at,
)

from . import asking, protocol
from .client import AcpClient, RpcRefused
from .notes import NO_LOAD
from .protocol import Call, Notification, TextPiece, ToolBegan, ToolEnded
from .records import CLOCK_SLACK, file_name, find_past

Note = dict[str, Any]

START_TIMEOUT = 120.0
"""Seconds for each step of the start: a command such as npx may fetch the agent first."""
PROOF_TIMEOUT = 3.0
"""Seconds to wait for the first report of a turn, before the caller gets the answer that none came."""
MOST_BYTES = 16 << 20
"""Of one message of the agent."""
MOST_ANSWER = 1 << 20
_MOST_CONTENT = 1 << 16
_MOST_ASKS = 64
_MOST_KNOWN = 4096
_END_TIMEOUT = 5.0
_CUT = " … (cut)"
_ANSWERED = ("end_turn", "max_tokens", "max_turn_requests")
# A turn has begun when one of these comes. Others come at any time.
_OF_A_TURN = frozenset(
    ("agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan")
)


class PromptNotSent(Exception):
    """The prompt was not sent. Nothing of it will run."""


@dataclass(slots=True)
class PromptTurn:
    id: str
    text: str
    message: str | None
    """The message that it is; None for a line that was typed in the terminal."""
    begun: bool = False
    answer: str = ""
    """The text after the last tool."""
    block: str = ""
    """Text that is not recorded yet."""
    blocks: int = 0
    pieces: int = 0
    tools: dict[str, ToolBegan] = field(default_factory=dict)


@dataclass(slots=True)
class OpenRequest:
    """A permission request that is open."""

    call: object
    options: list[dict[str, str]]
    note: Note


class AcpConversation:
    """`tell` gets every note. `ended` is called once, with the reason, when the agent has ended."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        folder: Path,
        tell: Callable[[Note], None],
        ended: Callable[[str], None],
    ) -> None:
        self._argv, self._cwd, self._env, self._folder = argv, cwd, env, folder
        self._listener, self._ended = tell, ended
        self._client = AcpClient(self._take, self._exited, self._skipped, MOST_BYTES)
        self._tasks = TaskSet()
        self._changed = Wakeup()
        self._ids = itertools.count(1)
        self._run_id = os.urandom(4).hex()
        self._why_ended = ""
        self._loading = self._garbled = False
        self._ready: Note | None = None
        self._last_end: Note | None = None
        self._past: dict[str, Note] = {}
        """How the turns of this process ended, by their message."""
        self.id = ""
        self.turn: PromptTurn | None = None
        self.asks: dict[str, OpenRequest] = {}

    # ── the start ──

    async def open(self, resumed: str = "") -> None:
        """Start the agent, and a conversation or the one to resume. Raises `SpawnFailed` with the reason."""
        self._client.start(self._argv, self._cwd, self._env)
        try:
            said = await self._step("initialize", protocol.initialize("1"))
            version = said.get("protocolVersion")
            if version != protocol.VERSION:
                raise SpawnFailed(f"the agent speaks version {one_line(str(version))[:40]} of ACP, not 1")
            can_load = as_object(said.get("agentCapabilities")).get("loadSession") is True
            if resumed and not can_load:
                raise SpawnFailed(NO_LOAD)
            where = {"cwd": self._cwd, "mcpServers": []}
            if resumed:
                self.id, self._loading = resumed, True
                made = await self._step("session/load", {"sessionId": resumed, **where})
            else:
                made = await self._step("session/new", where)
                self.id = name_at(made, "sessionId") or ""
        finally:
            self._loading = False
        if not self.id:
            raise SpawnFailed("the agent started a conversation without an id")
        mode = name_at(as_object(made.get("modes")), "currentModeId") or ""
        how, able = ("resume" if resumed else "startup"), ("yes" if can_load else "no")
        self._ready = {"note": "ready", "how": how, "resumable": able, "mode": mode}
        self._tell(self._ready)

    async def _step(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(START_TIMEOUT):
                return await self._client.call(method, params)
        except TimeoutError:
            complaint = self._client.process.complaint()
            words = f"; it printed: {one_line(complaint)}" if complaint else ""
            late = f"the agent has not answered {method} within {START_TIMEOUT:g} s"
            raise SpawnFailed(late + words) from None
        except RpcRefused as error:
            hint = None
            if error.code == protocol.AUTHENTICATION_REQUIRED:
                hint = "sign in with the agent's own command first"
            raise SpawnFailed(f"the agent refused {method}: {error}", hint=hint) from None
        except SessionCrashed as crash:
            detail = one_line(str(crash.detail))
            raise SpawnFailed(f"the agent exited before it was ready: {detail}") from None
        except RemoteProtocolError as error:
            raise SpawnFailed(error.message) from None

    @property
    def came_up(self) -> bool:
        return self._ready is not None

    @property
    def ready(self) -> bool:
        return self.came_up and not self._why_ended

    def present(self) -> list[Note]:
        """Return notes that say what goes on now, for a keeper that has just connected."""
        notes = [one for one in (self._ready, self._last_end) if one is not None]
        if self.turn is not None and self.turn.begun:
            notes.append(self._begun_note(self.turn))
        return [*notes, *(ask.note for ask in self.asks.values())]

    # ── a turn ──

    def prompt(self, text: str, message: str | None = None) -> PromptTurn:
        """Send a prompt. Raises `PromptNotSent`. Its turn ends with a note."""
        if not self.ready:
            raise PromptNotSent(self._why_ended or "the agent is still starting")
        if self.turn is not None:
            raise PromptNotSent("a turn is running")
        turn = PromptTurn(f"{self._run_id}-{next(self._ids)}", text, message)
        try:
            self._record("prompt", sync=True, turn=turn.id, message=message, text=text)
        except OSError as error:
            raise PromptNotSent(f"the prompt cannot be recorded: {error.strerror}") from error
        self.turn = turn
        self._tell({"note": "sent", "turn": turn.id, "text": text})
        if message is None:
            self._begin(turn)  # nothing has to be proven to the user who typed it
        self._tasks.start(self._run(turn))
        return turn

    async def _run(self, turn: PromptTurn) -> None:
        try:
            result = await self._client.call("session/prompt", protocol.prompt(self.id, turn.text))
        except RpcRefused as error:
            is_login = error.code == protocol.AUTHENTICATION_REQUIRED
            self._end(turn, "failed", f"the agent answered with an error: {error}", signed_out=is_login)
        except RemoteProtocolError as error:
            self._why_ended = error.message
            self._client.process.end()
        except SessionCrashed:
            pass  # it is reported when its process has ended
        else:
            why = result.get("stopReason")
            if why == "cancelled":
                self._end(turn, "interrupted")
            elif why in _ANSWERED:
                self._end(turn, "answered", turn.answer, usage=protocol.read_usage(result))
            else:
                self._end(turn, "failed", f"the agent stopped: {one_line(str(why))[:80]}")

    async def proven(self, turn: PromptTurn) -> bool:
        """Return whether the agent has begun this turn, or ended it. Waits for a while."""
        try:
            async with asyncio.timeout(PROOF_TIMEOUT):
                while not turn.begun and not self._why_ended:
                    await self._changed.wait()
        except TimeoutError:
            pass
        return turn.begun

    def _begin(self, turn: PromptTurn) -> None:
        if not turn.begun:
            turn.begun = True
            self._tell(self._begun_note(turn))
            self._changed.notify()

    def _begun_note(self, turn: PromptTurn) -> Note:
        return {"note": "began", "turn": turn.id, "text": turn.text}

    def _end(self, turn: PromptTurn, how: str, text: str = "", **more: Any) -> None:
        if self.turn is not turn:
            return
        self._begin(turn)
        self._close_block(turn)
        for ask_id in list(self.asks):
            self.decide(ask_id, None, "the turn has ended")
        facts = {"turn": turn.id, "how": how, "text": text, **more}
        self._record("end", **facts)
        self.turn, self._last_end = None, {"note": "ended", **facts}
        if turn.message is not None:
            self._past[turn.message] = self._last_end
            _forget_oldest(self._past)
        self._tell(self._last_end)
        self._changed.notify()

    def cancel(self, turn_id: str | None) -> None:
        """Stop a turn, by its id or that of its message; None for the one that runs."""
        turn = self.turn
        if turn is None or turn_id not in (None, turn.id, turn.message):
            return
        self._client.send(protocol.notify("session/cancel", {"sessionId": self.id}))
        for ask_id in list(self.asks):
            self.decide(ask_id, None, "the turn was cancelled")

    def find(self, message: str, conversation: str, since: float) -> Note:
        """Return what is known of a message: `unproven`, or a `Past` as a document."""
        turn = self.turn
        if turn is not None and turn.message == message:
            return {"turn": turn.id} if turn.begun else {"unproven": True}
        if (end := self._past.get(message)) is not None and end["at"] >= since - CLOCK_SLACK:
            self._tell(end)  # the caller has missed it
            return {"turn": end["turn"]}
        path = self._folder / file_name(conversation or self.id)
        past = find_past(_read(path), since, message=message)
        return {
            "turn": past.prompt_id,
            "answered": past.answered,
            "interrupted": past.interrupted,
            "text": past.text,
            "usages": past.usages,
        }

    # ── permission requests ──

    def decide(self, ask_id: str, option: str | None, by: str) -> bool:
        """Choose an option; None for none of them. Return whether the request was open: the first counts."""
        ask = self.asks.pop(ask_id, None)
        if ask is None:
            return False
        chosen = next((one["name"] for one in ask.options if one["optionId"] == option), None)
        outcome = {"outcome": "cancelled"} if option is None else {"outcome": "selected", "optionId": option}
        self._client.send(protocol.answer(ask.call, {"outcome": outcome}))
        self._tell({"note": "decided", "id": ask_id, "chosen": chosen, "by": by})
        self._record("notice", text=f"{chosen or 'not decided'}: {by}")
        return True

    def _ask(self, turn: PromptTurn, call: Call) -> None:
        fields = as_object(call.params.get("toolCall"))
        tool = self._merged(turn, fields)
        options = asking.read_options(call.params)
        if len(self.asks) >= _MOST_ASKS or not options:
            self._client.send(protocol.answer(call.id, {"outcome": {"outcome": "cancelled"}}))
            self._tell(
                {"note": "said", "text": "refused a permission request without options, or too many at once"}
            )
            return
        ask_id = tool.id or f"ask-{next(self._ids)}"
        while ask_id in self.asks:
            ask_id = f"{tool.id}#{next(self._ids)}"
        if tool.id not in turn.tools:
            self._tool_began(turn, replaced(tool, id=ask_id))
        note = {
            "note": "asked",
            "id": ask_id,
            "turn": turn.id,
            "title": tool.title or tool.name,
            **asking.request_of(tool, options, fields),
        }
        self.asks[ask_id] = OpenRequest(call.id, options, note)
        self._tell(note)

    # ── what the agent says ──

    def _take(self, message: Call | Notification) -> None:
        params, turn = message.params, self.turn
        if isinstance(message, Call):
            if message.method != "session/request_permission":
                self._client.send(protocol.refuse(message.id, message.method))
            elif turn is None or params.get("sessionId") != self.id:
                self._client.send(protocol.answer(message.id, {"outcome": {"outcome": "cancelled"}}))
            else:
                self._begin(turn)
                self._ask(turn, message)
        elif message.method == "session/update" and params.get("sessionId") == self.id:
            self._update(as_object(params.get("update")), params)

    def _update(self, update: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        kind, turn = update.get("sessionUpdate"), self.turn
        if kind == "current_mode_update":
            self._tell({"note": "mode", "mode": name_at(update, "currentModeId") or ""})
            return
        if turn is None:
            self._show_outside(kind, update)
            return
        if kind in _OF_A_TURN:
            self._begin(turn)
        match protocol.read_update(params):
            case TextPiece(text):
                self._text(turn, text)
            case ToolBegan() as tool:
                self._tool_began(turn, tool)
                if (status := update.get("status")) in ("completed", "failed"):
                    content = protocol.tool_content(update)
                    self._tool_ended(turn, ToolEnded(tool.id, content, ok=status == "completed"))
            case ToolEnded() as ended:
                self._tool_ended(turn, ended)
            case None if kind == "tool_call_update":
                self._merged(turn, update)
            case None:
                self._show_aside(turn, kind, update)

    def _show_aside(self, turn: PromptTurn, kind: object, update: Mapping[str, Any]) -> None:
        """Show what is neither the answer nor a tool: thoughts and the plan."""
        if kind == "agent_thought_chunk":
            thought = text_at(as_object(update.get("content")), "text") or ""
            self._tell({"note": "thought", "turn": turn.id, "text": thought})
        elif kind == "plan":
            entries = as_objects(update.get("entries"))[:_MOST_ASKS]
            lines = [f"  {one_line(str(one.get('content')))[:200]}" for one in entries]
            self._tell({"note": "said", "text": "\n".join(["plan:", *lines])})

    def _show_outside(self, kind: object, update: Mapping[str, Any]) -> None:
        """Show what comes without a turn: the history of a resumed conversation, or a word of the agent's."""
        if kind in ("user_message_chunk", "agent_message_chunk"):
            text = text_at(as_object(update.get("content")), "text")
            if text:
                who = "user" if kind == "user_message_chunk" else "agent"
                self._tell({"note": "earlier" if self._loading else "stray", "who": who, "text": text})
        elif kind == "tool_call" and self._loading:
            tool = protocol.read_tool(update)
            self._tell({"note": "earlier", "who": "tool", "text": tool.title or tool.name})

    def _text(self, turn: PromptTurn, text: str) -> None:
        turn.answer = _bounded(turn.answer, text)
        turn.block = _bounded(turn.block, text)
        note = {"note": "text", "turn": turn.id, "block": turn.blocks, "index": turn.pieces, "text": text}
        turn.pieces += 1
        self._tell(note)

    def _close_block(self, turn: PromptTurn) -> None:
        """Record the text so far: something else follows it."""
        if turn.block:
            self._record("text", turn=turn.id, text=turn.block)
        turn.block, turn.pieces = "", 0
        turn.blocks += 1

    def _tool_began(self, turn: PromptTurn, tool: ToolBegan) -> None:
        self._close_block(turn)
        turn.answer = ""  # what follows the last tool is the answer
        turn.tools[tool.id] = tool
        _forget_oldest(turn.tools)
        given = _small(tool.input)
        self._record("tool", turn=turn.id, call=tool.id, tool=tool.name, text=tool.title, input=given)
        facts = {"id": tool.id, "tool": tool.name, "title": tool.title, "input": given}
        self._tell({"note": "tool", "turn": turn.id, **facts})

    def _tool_ended(self, turn: PromptTurn, ended: ToolEnded) -> None:
        tool = turn.tools.get(ended.id, ToolBegan(ended.id, "", {}))
        self._close_block(turn)
        turn.answer = ""
        content = ended.content if isinstance(ended.content, str) else show_json(ended.content)
        content = _bounded("", content, _MOST_CONTENT)
        self._record("tool_result", turn=turn.id, call=ended.id, tool=tool.name, ok=ended.ok, text=content)
        facts = {"id": ended.id, "tool": tool.name, "ok": ended.ok, "text": content}
        self._tell({"note": "tool_ended", "turn": turn.id, **facts})

    def _merged(self, turn: PromptTurn, fields: Mapping[str, Any]) -> ToolBegan:
        """Return a tool with what was said of it before: an update has only what changed."""
        new = protocol.read_tool(fields)
        known = turn.tools.get(new.id)
        if known is None:
            return new
        named = new.name if name_at(fields, "kind") or not known.name else known.name
        merged = ToolBegan(new.id, named, new.input or known.input, new.title or known.title)
        turn.tools[new.id] = merged
        return merged

    # ── notes and records ──

    def _tell(self, note: Note) -> None:
        note.setdefault("at", time.time())
        note.setdefault("conversation", self.id)
        note.setdefault("transcript", str(self._folder / file_name(self.id)))
        note.setdefault("cwd", self._cwd)
        self._listener(note)

    def _record(self, kind: str, *, sync: bool = False, **facts: Any) -> None:
        """Append a record. Raises `OSError` if it must be on the disk and cannot be."""
        record = {"type": kind, "id": f"{self._run_id}.{next(self._ids)}", "conversation": self.id, **facts}
        line = dump_json({**record, "at": time.time()}).encode() + b"\n"
        try:
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self._folder / file_name(self.id), how, 0o600)
            try:
                if os.write(fd, line) != len(line):
                    raise OSError(28, "no space left")
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            if sync:
                raise
            self._tell({"note": "said", "text": f"the record cannot be written: {error.strerror}"})

    # ── the end ──

    def _skipped(self, line: bytes) -> None:
        if not self._garbled:
            self._garbled = True
            shown = one_line(line.decode(errors="replace"))[:200]
            words = f"the agent printed what is not a message, and more may follow: {shown}"
            self._tell({"note": "said", "text": words})

    def _exited(self) -> None:
        detail = one_line(self._client.process.detail())
        self._why_ended = self._why_ended or f"the agent exited: {detail}"
        if self.turn is not None:
            self._close_block(self.turn)
        if self.id:
            self._record("notice", text=self._why_ended)
        self._changed.notify()
        self._ended(self._why_ended)

    @property
    def returncode(self) -> int | None:
        return self._client.process.returncode

    async def close(self) -> None:
        """End the agent and everything it started."""
        await self._client.process.close(_END_TIMEOUT)
        await self._tasks.aclose()


def _bounded(before: str, text: str, most: int = MOST_ANSWER) -> str:
    if len(before) >= most:
        return before
    whole = before + text
    return whole if len(whole) <= most else whole[: most - len(_CUT)] + _CUT


def _forget_oldest(known: dict[str, Any]) -> None:
    if len(known) > _MOST_KNOWN:
        del known[next(iter(known))]


def _small(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input of a tool, or its beginning if it is large."""
    text = show_json(dict(given))
    return dict(given) if len(text) <= _MOST_CONTENT else {"cut": text[:_MOST_CONTENT]}


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            found.append(as_object(parse_json(line)))
        except ValueError:  # a kill cut it short
            continue
    return found
