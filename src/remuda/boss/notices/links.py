"""Links that decide one permission request, once, and expire.

The link of a button has its answer from the start, and takes no other.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.duration import show_duration
from remuda.errors import AlreadyAnswered, InvalidOptions, NotInQueue, NotSafe, StoreFailed
from remuda.tasks import TaskSet
from remuda.untrusted import BadJson, dump_json, finite, parse_object

from ..answers.approvals import Approvals
from ..answers.decision import Answer, check_link
from ..attention.model import Approval
from ..attention.redate import AHEAD, UNSEEN
from ..service import BossService
from .notification import LINK_LIFE

log = logging.getLogger("remuda.boss.notices.links")

_NOTE = "answer_links"
_MOST = 2000
_REMEMBERED = 7 * 86400.0
"""An expired link explains itself for this long."""
READ = 0.7
"""Seconds after which a button counts, as in the queue: a tap before that was meant for something else."""

SessionEntry = dict[str, dict[str, Any]]


@dataclass(slots=True)
class Links:
    """Only the digest of a link is stored: reading the database does not help to use one."""

    service: BossService
    approvals: Approvals
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _redating: TaskSet = field(default_factory=TaskSet)

    def __post_init__(self) -> None:
        self.service.on_clock_set.append(self._redate)
        ahead = max((what["at"] for what in self._known().values()), default=0.0) - self.service.clock()
        if ahead > AHEAD:  # the clock was set back while no boss ran
            self._redate(-ahead - UNSEEN)

    async def make(self, approval_id: str, life: float) -> str:
        """Make a link; returns its secret part."""
        return (await self._make(approval_id, life, [{}]))[0]

    async def make_buttons(
        self, approval_id: str, life: float, answers: Sequence[Answer], by: str
    ) -> list[str]:
        """Make a link for each answer, which decides nothing else; `by` is what the ledger says."""
        return await self._make(approval_id, life, [{"answer": dict(one), "by": by} for one in answers])

    async def _make(self, approval_id: str, life: float, more: Sequence[dict[str, Any]]) -> list[str]:
        now, made = self.service.clock(), [secrets.token_urlsafe(24) for _ in more]
        link = {"approval": approval_id, "at": now, "until": now + life}
        await self._write({_digest(one): link | own for one, own in zip(made, more, strict=True)})
        return made

    def request(self, secret: str) -> Approval:
        """Return the request that the link decides. Does not use the link up.

        Raises `AlreadyAnswered` for a used link, `NotInQueue` for one that has expired or never existed.
        """
        link = self._known().get(_digest(secret))
        if link is None:
            raise NotInQueue("link not found", hint="links are forgotten after a week")
        approval = self.service.approval(str(link["approval"]))
        if link.get("used"):
            raise AlreadyAnswered(f"this link was already used; it works once: {_said(approval)}")
        if link["until"] <= self.service.clock():
            life = show_duration(link["until"] - link["at"])
            raise NotInQueue(
                f"this link has expired: it was valid for {life}", hint="'remuda approvals' lists the request"
            )
        return approval

    def is_button(self, secret: str) -> bool:
        """Whether the link belongs to a button of a notice."""
        return "answer" in self._read().get(_digest(secret), {})

    def dates(self, secret: str) -> tuple[float, float]:
        """Return when the link was made and when it expires. Raises `KeyError` for an unknown link."""
        link = self._read()[_digest(secret)]
        return link["at"], link["until"]

    async def answer(self, secret: str, answer: Answer) -> Approval:
        """Decide the request.

        Raises as `request`, `check_link` and `Approvals.answer`: then the link stays valid.
        """
        approval, link_id = self.request(secret), _digest(secret)
        link = self._known()[link_id]
        if "answer" in link:
            self._check_button(approval, link, answer)
        check_link(approval, answer)
        answered = await self.approvals.answer(approval.id, answer, str(link.get("by") or "link"))
        await self._write({link_id: self._known().get(link_id, {}) | {"used": self.service.clock()}})
        return answered

    def _check_button(self, approval: Approval, link: dict[str, Any], answer: Answer) -> None:
        if link["answer"] != dict(answer):
            raise InvalidOptions(
                "this link belongs to a button of a notice, which has another answer",
                hint="tap the notice itself, or 'Open', to choose",
            )
        self.service.open_approval(approval.id)  # who was first matters more than how new it is
        if self.service.clock() - link["at"] < READ:
            raise NotSafe("this request is new, and nothing was decided", hint="read it, then tap again")

    def _known(self) -> SessionEntry:
        oldest = self.service.clock() - _REMEMBERED
        return {one: what for one, what in self._read().items() if what["until"] > oldest}

    def _read(self) -> SessionEntry:
        """Drop entries that are not ours."""
        try:
            stored = parse_object(self.service.store.note(_NOTE) or "{}")
        except BadJson:
            return {}
        known = {one: what for one, what in stored.items() if isinstance(what, dict)}
        return {one: what | _dates(what) for one, what in known.items() if "approval" in what}

    async def _write(self, changed: SessionEntry) -> None:
        async with self._writing:  # two at once would each forget the other
            await self._save(self._known() | changed)

    async def _save(self, known: SessionEntry) -> None:
        await self.service.store.save_note(_NOTE, dump_json(dict(list(known.items())[-_MOST:])))

    def _redate(self, by: float) -> None:
        """Move all dates by that many seconds: a link is valid for as long as it was."""
        self._redating.start(self._move(by))

    async def _move(self, by: float) -> None:
        async with self._writing:
            moved = {
                one: what | {"at": what["at"] + by, "until": what["until"] + by}
                for one, what in self._read().items()
            }
            try:
                await self._save(moved)
            except StoreFailed as error:
                log.warning("cannot write the moved times of links: %s", error)


def _dates(what: dict[str, Any]) -> dict[str, float]:
    until = finite(what.get("until"))
    return {"until": until, "at": finite(what.get("at"), until - LINK_LIFE)}


def _said(approval: Approval) -> str:
    behavior = (approval.answer or {}).get("behavior")
    return {"allow": "the request was allowed", "deny": "the request was denied"}.get(
        str(behavior), "the request is closed"
    )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
