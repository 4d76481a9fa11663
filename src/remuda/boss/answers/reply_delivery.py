"""Replies: prompts for a session, from elsewhere.

A kept session gets the prompt through its inbox, with receipts. Any other agent is typed to, only here, and
only while it is proven to wait for a prompt (`idle_proof`): the prompt is pasted, and Enter is pressed when
the composer shows it and nothing else has happened. The agent's hooks confirm what it got.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remuda.agents import DEFAULT_AGENT, find_agent
from remuda.agents.prompting import ComposerKind, PromptProtocol
from remuda.errors import InvalidOptions, NotSafe
from remuda.inbox.journal import Inbox
from remuda.keeper.claim import read_holder
from remuda.keeper.sendable import find_prompts
from remuda.paths import SessionPaths, private_folder
from remuda.tmux.panes import paste
from remuda.untrusted import one_line

from ..attention.model import BossSession, Event, EventKind
from ..service import BossService
from . import idle_proof
from .idle_proof import IdlePane

log = logging.getLogger("remuda.boss.answers.reply_delivery")

SHOWN_TIMEOUT = 5.0
SUBMITTED_TIMEOUT = 15.0
MAX_WAIT = 3600.0
_LOOK_INTERVAL = 0.05
_ENDS = (EventKind.STOPPED, EventKind.FAILED, EventKind.LIMITED, EventKind.INTERRUPTED)
_INBOX_OPTIONS = ("dedup", "delay", "ttl", "max_attempts", "priority")
_GONE = (EventKind.ENDED, EventKind.GONE)


@dataclass(slots=True)
class _Receipt:
    """What is known about a prompt after it was typed.

    Hooks that the agent does not wait for may arrive out of order: the end before the beginning.
    """

    prompt: str
    prompts: PromptProtocol
    typed_at: float = math.inf
    """When Enter was pressed: an end before that belongs to something else."""
    submitted: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    other: str | None = None
    """Another prompt that came first."""
    answer: dict[str, Any] = field(default_factory=dict)

    def hear(self, event: Event) -> None:
        if event.kind is EventKind.PROMPTED and not self.submitted.is_set():
            prompt = str(event.facts.get("prompt", ""))
            if self.prompts.same(prompt, self.prompt):
                self.submitted.set()
            else:
                self.other = prompt
        elif _is_end(event) and event.at >= self.typed_at:
            self.answer = {"end": str(event.kind), "text": str(event.facts.get("message") or "")}
        elif event.kind in _GONE:
            self.answer = {"end": str(event.kind), "text": ""}
            self.ended.set()
        if self.answer and self.submitted.is_set():
            self.ended.set()


def _is_end(event: Event) -> bool:
    """Whether the turn has ended. The registry may report an idle agent first, without what it said."""
    has_message = event.kind is not EventKind.STOPPED or "message" in event.facts
    return event.kind in _ENDS and has_message and not event.facts.get("background")


class Replies:
    """A `Replier`. Use from the service's loop."""

    def __init__(self, service: BossService, folder: Path) -> None:
        self._service = service
        self._folder = folder
        self._typing: set[str] = set()

    async def reply(self, session: BossSession, text: str, options: Mapping[str, Any]) -> dict[str, Any]:
        if session.replaced_by is not None:
            raise NotSafe("the agent is now in another conversation", hint="use its name, pane or folder")
        if session.name is not None:
            return await asyncio.to_thread(self._put, session.name, text, options)
        if (hold := self._service.hold_of(session.id)) is not None:
            why = one_line(str(hold.facts.get("message", "")))
            raise NotSafe(f"the agent is paused: {why}", hint=f"'remuda approve {session.id}' allows more")
        return await self._type(session, text, options)

    # ── kept ──

    def _put(self, name: str, text: str, options: Mapping[str, Any]) -> dict[str, Any]:
        paths = SessionPaths.of(name, self._folder)
        try:
            prompts = find_prompts(paths) or find_agent(DEFAULT_AGENT).prompts
        except InvalidOptions as error:
            raise NotSafe(error.message, hint=error.hint) from error
        command, literal = bool(options.get("command")), bool(options.get("literal"))
        assert prompts is not None
        prompts.check(text, command=command, literal=literal)
        private_folder(paths.inbox)
        more = {key: options[key] for key in _INBOX_OPTIONS if options.get(key)}
        accepted = Inbox(paths.inbox).put(text, command=command, literal=literal, **more)
        return {
            "via": "inbox",
            "session": name,
            "id": accepted.id,
            "duplicate": accepted.duplicate,
            "alive": read_holder(paths) is not None,
            "inbox": str(paths.inbox),
            "stage": "accepted",
        }

    # ── any other ──

    async def _type(self, session: BossSession, text: str, options: Mapping[str, Any]) -> dict[str, Any]:
        # First: if nothing can be typed, that is the error to report.
        prompts = (await asyncio.to_thread(idle_proof.prove, session)).prompts
        if given := next((key for key in _INBOX_OPTIONS if options.get(key)), None):
            raise InvalidOptions(
                f"{given} works only for sessions of 'remuda start'",
                hint="leave it out for an agent in a pane",
            )
        command = bool(options.get("command"))
        prompts.check(text, command=command, literal=bool(options.get("literal")))
        await self._service.catch_up()  # else an earlier prompt looks like one that came first
        if session.id in self._typing:
            raise NotSafe("another reply to this agent is being typed", hint="try again in a moment")
        transport = prompts.transport
        if transport.kind != "paste":
            raise NotSafe(
                f"{session.agent} takes prompts through its own server",
                hint="only sessions of 'remuda start' reach it",
            )
        carried = transport.paste(text, command=command)
        receipt = _Receipt(carried.reported, prompts)

        def hear(event: Event) -> None:
            if event.session_id == session.id:
                receipt.hear(event)

        def hear_clock(by: float) -> None:
            receipt.typed_at += by

        self._typing.add(session.id)
        self._service.listeners.append(hear)
        self._service.on_clock_set.append(hear_clock)
        try:
            where = await asyncio.to_thread(self._prove_and_paste, session, carried.data, receipt)
            return await self._follow(where, receipt, command, float(options.get("wait", 0.0)))
        finally:
            self._service.listeners.remove(hear)
            self._service.on_clock_set.remove(hear_clock)
            self._typing.discard(session.id)

    def _prove_and_paste(self, session: BossSession, data: bytes, receipt: _Receipt) -> IdlePane:
        where = idle_proof.prove(session)
        paste(where.tmux, where.pane, where.sources.paste_text(data))
        deadline = time.monotonic() + SHOWN_TIMEOUT
        while idle_proof.read_composer(where)[0] is not ComposerKind.DRAFT:
            if time.monotonic() > deadline:
                raise NotSafe("the pasted prompt does not show in the composer, so Enter was not pressed")
            time.sleep(_LOOK_INTERVAL)
        idle_proof.check_registry(session, where.sources)
        receipt.typed_at = time.time()
        where.tmux.command("send-keys", "-t", where.pane, "Enter")
        log.info("typed a prompt into pane %s", where.pane)
        return where

    async def _follow(self, where: IdlePane, receipt: _Receipt, command: bool, wait: float) -> dict[str, Any]:
        receipt_document: dict[str, Any] = {"via": "pane", "pane": where.pane, "stage": "typed"}
        if command:  # no hook reports the agent's own commands
            return receipt_document
        if not await _happens(receipt.submitted, SUBMITTED_TIMEOUT):
            why = (
                "its hooks reported another prompt"
                if receipt.other is not None
                else "no hook has reported it"
            )
            return receipt_document | {
                "note": f"typed, but not confirmed: {why}; 'remuda setup boss' installs the hooks"
            }
        receipt_document["stage"] = "submitted"
        if wait and await _happens(receipt.ended, min(wait, MAX_WAIT)):
            receipt_document |= {"stage": "answered", "answer": receipt.answer}
        return receipt_document


async def _happens(event: asyncio.Event, timeout: float) -> bool:  # noqa: ASYNC109  # the caller's bound
    try:
        async with asyncio.timeout(timeout):
            await event.wait()
    except TimeoutError:
        return False
    return True
