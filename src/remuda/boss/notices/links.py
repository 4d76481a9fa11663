"""Links that answer one request for leave, once: for whoever was sent one, and for a while."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from typing import Any

from remuda.errors import NotInQueue

from ..answers.approvals import Approvals
from ..answers.ruling import Answer
from ..attention.model import Approval
from ..desk import Desk

_NOTE = "answer_links"
_MOST = 1000


@dataclass(slots=True)
class Links:
    """What is remembered of a link is its digest: whoever reads the database can answer nothing with it."""

    desk: Desk
    approvals: Approvals

    async def make(self, approval_id: str, life: float) -> str:
        """The secret part of the link."""
        secret = secrets.token_urlsafe(24)
        known = self._known()
        known[_digest(secret)] = {"approval": approval_id, "until": self.desk.clock() + life}
        await self._save(known)
        return secret

    def request(self, secret: str) -> Approval:
        """What it would answer. Looking at it uses nothing up. Raises `NotInQueue`."""
        found = self._known().get(_digest(secret))
        if found is None:
            raise NotInQueue("this link was used, or is too old")
        return self.desk.approval(str(found["approval"]))

    async def answer(self, secret: str, answer: Answer) -> Approval:
        approval = self.request(secret)
        answered = await self.approvals.answer(approval.id, answer, "link")
        known = self._known()
        known.pop(_digest(secret), None)
        await self._save(known)
        return answered

    def _known(self) -> dict[str, dict[str, Any]]:
        now = self.desk.clock()
        found: dict[str, dict[str, Any]] = json.loads(self.desk.store.note(_NOTE) or "{}")
        return {one: what for one, what in found.items() if what["until"] > now}

    async def _save(self, known: dict[str, dict[str, Any]]) -> None:
        await self.desk.store.save_note(_NOTE, json.dumps(dict(list(known.items())[-_MOST:])))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
