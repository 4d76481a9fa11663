"""The connection to the server of one opencode session: prompts, decisions and interrupts in, reports out.

A prompt that opencode has stored (204) is not a turn yet. It runs when an answer to it exists. One that was
stored and did not run would be added to the next request, so it is deleted again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.events import (
    CommandRun,
    CommandUnknown,
    ConversationStarted,
    Report,
    TurnFailed,
    TurnInterrupted,
)
from remuda.agents.permission import PermissionDecision, PermissionRequest
from remuda.agents.prompting import CallAddress, CallRefused, ChannelLost, Past, PromptCall
from remuda.tasks import TaskSet, Wakeup
from remuda.untrusted import as_object, as_objects, parse_object

from .asking import answer_list
from .messages import failure, find_call, info_of, make_message_id, past_of
from .reader import EventReader
from .server import OpencodeServer, ServerAddress

log = logging.getLogger("remuda.agents.opencode")

_UNRUN_TIMEOUT = 15.0
"""Seconds after which a stored prompt of an idle server counts as one that will not run.

The first prompt of a server took 5 s on a machine with load 9.
"""
_SETTLE = 0.3
"""Seconds after a failed or aborted turn in which a prompt may be stored and never run (1.18.33)."""
_LONGEST_RETRY = 20.0
_MOST_RETRIES = 4
DENIED = "Permission denied."
CLEAR_COMMANDS = ("new", "clear")


class OpencodeChannel:
    def __init__(self, address: CallAddress) -> None:
        self._server = OpencodeServer(address)
        known = ServerAddress.read(address.url)
        self._folder = known.folder
        self._reader = EventReader(known.conversation)
        self._written: set[str] = set()
        self._reports: asyncio.Queue[Report | None] = asyncio.Queue()
        self._changed = Wakeup()
        self._tasks = TaskSet()
        self._aside = TaskSet()
        self._lost = ""
        self._rests_at = 0.0
        self._ours: str | None = None
        """Our prompt that was called last. Only its turn is given up when its service is limited."""

    # ── the connection ──

    async def connect(self, conversation: Mapping[str, Any]) -> None:
        reader = self._reader
        if isinstance(known := conversation.get("session_id"), str):
            reader.conversation = known
        events = self._server.events()
        with contextlib.suppress(StopAsyncIteration):
            await anext(events)  # it says that it listens: from here on nothing is missed
        messages = await self._messages(reader.conversation)
        busy = await self._is_busy(reader.conversation)
        children = as_objects(await self._get(f"/session/{reader.conversation}/children"))
        self._open_transcript()
        turn = conversation.get("turn")
        opened = reader.open(
            messages, busy=busy, children=children, known_turn=turn if isinstance(turn, str) else ""
        )
        self._report(opened)
        permissions, questions = await self._get("/permission"), await self._get("/question")
        for report in reader.open_requests(as_objects(permissions), as_objects(questions)):
            self._report(report)
        self._tasks.start(self._read(events))

    async def _read(self, events: AsyncIterator[Mapping[str, Any]]) -> None:
        try:
            async for event in events:
                before = self._reader.conversation
                for report in self._reader.take(event, time.time()):
                    self._report(report)
                if self._reader.conversation != before:
                    self._open_transcript()
                self._limit_retries()
                self._changed.notify()
        except ChannelLost as error:
            self._lost = str(error)
        except Exception:
            log.exception("the events of the server cannot be read")
            self._lost = "its events cannot be read"
        finally:
            self._lost = self._lost or "it is closed"
            self._reports.put_nowait(None)
            self._changed.notify()

    def _report(self, report: Report) -> None:
        if any(isinstance(event, TurnFailed | TurnInterrupted) for event in report.events):
            self._rests_at = asyncio.get_running_loop().time() + _SETTLE
        self._write_records()
        self._reports.put_nowait(report)

    def _limit_retries(self) -> None:
        """Abort our turn if its service refuses it for long: the message is then tried again later."""
        retries, turn = self._reader.retries, self._reader.turn
        if retries is None or turn is None or turn != self._ours:
            return
        if (retries.retry_after or 0.0) > _LONGEST_RETRY or self._reader.attempt >= _MOST_RETRIES:
            self._reader.give_up()
            self._ours = None
            self._aside.start(self._abort())

    async def reports(self) -> AsyncIterator[Report]:
        while (report := await self._reports.get()) is not None:
            yield report
        raise ChannelLost(f"the connection to opencode's server has ended: {self._lost}")

    async def aclose(self) -> None:
        await self._tasks.aclose()
        await self._aside.aclose()

    # ── requests ──

    async def _get(self, path: str) -> Any:
        status, document = await self._server.request("GET", path)
        if status != 200:
            raise ChannelLost(f"the server refused {path}: status {status}")
        return document

    async def _messages(self, conversation: str) -> list[dict[str, Any]]:
        return as_objects(await self._get(f"/session/{conversation}/message"))

    async def _is_busy(self, conversation: str) -> bool:
        status = as_object(as_object(await self._get("/session/status")).get(conversation))
        return bool(status.get("type", "idle") != "idle")

    async def _abort(self) -> None:
        with contextlib.suppress(ChannelLost):
            await self._server.request("POST", f"/session/{self._reader.conversation}/abort", {})

    async def _show(self, conversation: str) -> None:
        """Let the terminal show this conversation: a user may have opened another one there."""
        await self._server.request("POST", "/tui/select-session", {"sessionID": conversation})

    # ── prompts ──

    async def submit(self, call: PromptCall) -> str:
        await asyncio.sleep(max(0.0, self._rests_at - asyncio.get_running_loop().time()))
        if call.command:
            return await self._command(call)
        await self._show(self._reader.conversation)
        prompt_id = self._ours = make_message_id(call.id, time.time())
        body = {"messageID": prompt_id, "parts": [{"type": "text", "text": call.prompt}]}
        path = f"/session/{self._reader.conversation}/prompt_async"
        self._reader.error = {}
        status, document = await self._server.request("POST", path, body)
        _check(status, document)
        await self._begun(prompt_id)
        return prompt_id

    async def _begun(self, prompt_id: str) -> None:
        """Wait for the turn of a prompt. Raises `CallRefused` if none starts; the prompt is deleted then."""
        reader, loop = self._reader, asyncio.get_running_loop()
        deadline = loop.time() + _UNRUN_TIMEOUT
        while not reader.has_begun(prompt_id):
            if self._lost:
                raise ChannelLost(self._lost)
            if reader.error:
                error = failure(reader.error, prompt_id)
                await self._delete(prompt_id)
                raise CallRefused(error.text)
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError:
                deadline = loop.time() + _UNRUN_TIMEOUT
                conversation = reader.conversation
                if await self._is_busy(conversation) or reader.has_begun(prompt_id):
                    continue
                past = past_of(await self._messages(conversation), prompt_id, busy=False)
                if not past.submitted and await self._delete(prompt_id):
                    raise CallRefused("opencode stored the prompt and started no turn for it") from None

    async def _delete(self, prompt_id: str) -> bool:
        """Delete a stored prompt. Returns whether it is gone and has no answer."""
        conversation = self._reader.conversation
        await self._server.request("DELETE", f"/session/{conversation}/message/{prompt_id}")
        messages = await self._messages(conversation)
        ids = {info_of(one).get(key) for one in messages for key in ("id", "parentID")}
        return prompt_id not in ids

    async def _command(self, call: PromptCall) -> str:
        name, _, arguments = call.prompt.strip().lstrip("/").partition(" ")
        turn = f"command-{call.id}"
        if name in CLEAR_COMMANDS:
            await self._clear(name)
            return turn
        if name not in {one.get("name") for one in as_objects(await self._get("/command"))}:
            self._report(self._reader.command_report([CommandUnknown(name)]))
            return turn
        prompt_id = self._ours = make_message_id(call.id, time.time())
        body = {"messageID": prompt_id, "command": name, "arguments": arguments.strip()}
        path = f"/session/{self._reader.conversation}/command"
        self._reader.error = {}
        running = asyncio.create_task(self._server.request("POST", path, body))  # answered at its end
        self._aside.start(_ignored(running))
        await self._show(self._reader.conversation)
        await self._begun(prompt_id)
        return prompt_id

    async def _clear(self, name: str) -> None:
        """Start a new conversation, and show it."""
        status, document = await self._server.request("POST", "/session", {})
        _check(status, document)
        conversation = str(as_object(document).get("id"))
        self._reader.move(conversation)
        self._open_transcript()
        await self._show(conversation)
        run = CommandRun(name, confirmed=True, conversation=conversation)
        self._report(self._reader.command_report([ConversationStarted("clear"), run]))

    async def find(self, call: PromptCall) -> Past:
        conversation = call.conversation or self._reader.conversation
        messages, busy = await self._messages(conversation), await self._is_busy(conversation)
        prompt_id = find_call(messages, call)
        if prompt_id is None:
            return Past()
        past = past_of(messages, prompt_id, busy=busy)
        if past.stored:
            # It may be about to run, or wait for the turn before it.
            if busy or time.time() - call.since < _UNRUN_TIMEOUT:
                raise ChannelLost("opencode has the prompt and may still run it")
            return Past() if await self._delete(prompt_id) else past
        if past.submitted and not past.answered and not past.interrupted and not busy:
            self._report(self._reader.end_report(messages, prompt_id))
        return past

    async def interrupt(self, turn_id: str | None) -> None:
        if turn_id is None or turn_id == self._reader.turn:
            await self._server.request("POST", f"/session/{self._reader.conversation}/abort", {})

    # ── decisions ──

    async def decide(self, request: PermissionRequest, decision: PermissionDecision) -> None:
        request_id = request.tool_use_id or ""
        if request.reason == "question":
            path, body = f"/question/{request_id}/reject", dict[str, Any]()
            if decision.allow:
                path = f"/question/{request_id}/reply"
                body = {"answers": answer_list(decision.input or {})}
        else:
            path = f"/permission/{request_id}/reply"
            body = {"reply": ("always" if decision.always else "once") if decision.allow else "reject"}
            # Without a message the turn ends.
            if not decision.allow and not decision.interrupt:
                body["message"] = decision.message or DENIED
        status, _ = await self._server.request("POST", path, body)
        if status not in (200, 404):  # 404: it was decided before
            log.warning("opencode refused a decision on %s: status %d", request_id, status)
        if decision.interrupt and not decision.allow:
            await self._abort()

    # ── our transcript ──

    # opencode keeps its conversations in a database. `print`, the pool and the boss read this file instead.

    def _open_transcript(self) -> None:
        path = Path(self._folder, f"{self._reader.conversation}.jsonl")
        self._written.clear()
        self._reader.transcript = ""
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError, AttributeError):
                    self._written.add(str(info_of(parse_object(line)).get("id")))
            self._reader.transcript = str(path)
        except OSError as error:
            log.error("no transcript: %s", error)

    def _write_records(self) -> None:
        records: Sequence[dict[str, Any]] = self._reader.records
        self._reader.records = []
        new = [one for one in records if info_of(one).get("id") not in self._written]
        if not new or not self._reader.transcript:
            return
        self._written.update(str(info_of(one).get("id")) for one in new)
        try:
            with open(self._reader.transcript, "a") as file:
                file.write("".join(json.dumps(one) + "\n" for one in new))
        except OSError as error:
            log.error("the transcript cannot be written: %s", error)


def _check(status: int, document: Any) -> None:
    """Raise `CallRefused` unless the server took a call."""
    if status not in (200, 204):
        data = as_object(as_object(document).get("data"))
        raise CallRefused(str(data.get("message") or f"opencode's server answered with status {status}"))


async def _ignored(running: asyncio.Task[Any]) -> None:
    with contextlib.suppress(ChannelLost):
        await running
