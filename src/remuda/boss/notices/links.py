"""Links that answer one request for leave, once: for whoever was sent one, and for a while."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from remuda.duration import show_duration
from remuda.errors import AlreadyAnswered, NotInQueue

from ..answers.approvals import Approvals
from ..answers.ruling import Answer
from ..attention.model import Approval
from ..desk import Desk

_NOTE = "answer_links"
_MOST = 1000
_REMEMBERED = 7 * 86400.0
"""So long one that is good for nothing any more is told why."""

Known = dict[str, dict[str, Any]]


@dataclass(slots=True)
class Links:
    """What is remembered of a link is its digest: whoever reads the database can answer nothing with it."""

    desk: Desk
    approvals: Approvals
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def make(self, approval_id: str, life: float) -> str:
        """The secret part of the link."""
        secret, now = secrets.token_urlsafe(24), self.desk.clock()
        await self._write(_digest(secret), {"approval": approval_id, "at": now, "until": now + life})
        return secret

    def request(self, secret: str) -> Approval:
        """What it would answer. Looking at it uses nothing up.

        Raises `AlreadyAnswered` for one that was used, `NotInQueue` for one that is too old or never was.
        """
        found = self._known().get(_digest(secret))
        if found is None:
            raise NotInQueue("there is no such link", hint="it was never made, or a week ago and more")
        approval = self.desk.approval(str(found["approval"]))
        if found.get("used"):
            raise AlreadyAnswered(f"this link was used, and is good for one answer: {_said(approval)}")
        if found["until"] <= self.desk.clock():
            life = show_duration(found["until"] - found.get("at", found["until"] - 3600))
            raise NotInQueue(
                f"this link is too old: it was good for {life}", hint="'remuda approvals' lists it"
            )
        return approval

    async def answer(self, secret: str, answer: Answer) -> Approval:
        approval = self.request(secret)
        answered = await self.approvals.answer(approval.id, answer, "link")
        number = _digest(secret)
        await self._write(number, self._known().get(number, {}) | {"used": self.desk.clock()})
        return answered

    def _known(self) -> Known:
        oldest = self.desk.clock() - _REMEMBERED
        found: Known = json.loads(self.desk.store.note(_NOTE) or "{}")
        return {one: what for one, what in found.items() if what["until"] > oldest}

    async def _write(self, number: str, what: dict[str, Any]) -> None:
        async with self._writing:  # two at once would each forget the other
            known = self._known() | {number: what}
            await self.desk.store.save_note(_NOTE, json.dumps(dict(list(known.items())[-_MOST:])))


def _said(approval: Approval) -> str:
    said = (approval.answer or {}).get("behavior")
    return {"allow": "it was allowed", "deny": "it was denied"}.get(str(said), "it is over")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
