"""One request of a peer that takes its time, and what he says while it is carried out."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from typing import Any

from remuda.errors import InvalidOptions

from .codec import event_message, read_decision
from .peer import Peer
from .protocol import Message
from .types import Decision, Deny, Done, Failed, PermissionRequest, Raw, StreamEvent

_PERMISSIONS = ("deny", "allow", "ask")


class Visit:
    """One request, and what the peer says while it is carried out."""

    def __init__(self, peer: Peer, request: Message, facts: Mapping[str, Any]) -> None:
        self.peer, self.request, self._facts = peer, request, facts
        self.cancelled = asyncio.Event()
        self._undecided: dict[str, asyncio.Future[Decision]] = {}

    def options(self) -> dict[str, Any]:
        """For the client, which refuses what it does not know. Folder and environment must be his own."""
        options = dict(self.request.get("options") or {})
        if not isinstance(options.get("cwd"), str) or not os.path.isabs(options["cwd"]):
            raise InvalidOptions("a request needs an absolute path in options.cwd")
        if not isinstance(options.get("env"), Mapping):
            raise InvalidOptions("a request needs the environment of its caller in options.env")
        for name in ("signal", "permissions"):
            if name in options:
                raise InvalidOptions(f"{name} cannot be sent to a pool server")
        self._check_requirements(options["env"])
        permissions = self.request.get("permissions")
        if permissions is not None and permissions not in _PERMISSIONS:
            raise InvalidOptions(
                f"permissions must be one of {', '.join(_PERMISSIONS)}, not {permissions[:40]!r}"
            )
        if permissions is not None:
            options["permissions"] = self._ask if permissions == "ask" else permissions
        return {**options, "signal": self.cancelled}

    def _check_requirements(self, env: Mapping[str, str]) -> None:
        for name, wanted in (self.request.get("requires") or {}).items():
            have = self._facts.get(name)
            if name == "claude_binary" and isinstance(have, str) and os.sep not in have:
                have = shutil.which(have, path=env.get("PATH", os.defpath))
            if have != wanted:
                raise InvalidOptions(f"the pool's {name} is {have or 'not set'}, not {wanted}")

    async def hear(self) -> None:
        """Decisions, until he cancels or hangs up. Raises `RemoteProtocolError`."""
        while True:
            try:
                message = await self.peer.receive()
            except ConnectionError:
                return
            if message["type"] == "cancel":
                return
            decision = read_decision(message)
            waiting = self._undecided.pop(message["id"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result(decision)

    async def _ask(self, request: PermissionRequest) -> Decision:
        decided: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._undecided[request.id] = decided
        try:
            await self.peer.send({**event_message(request), "decide": True})
            return await decided
        except ConnectionError:
            return Deny("Permission was not granted: no one is available to decide.")
        finally:
            self._undecided.pop(request.id, None)

    def told(self, event: StreamEvent | Raw) -> Message | None:
        """None for what he is told otherwise: a failure as an error, a question when it is asked."""
        if isinstance(event, Raw):
            return {"type": "raw", "message": dict(event.message)}
        if isinstance(event, Done | Failed) or not self.request.get("stream"):
            return None
        if isinstance(event, PermissionRequest) and self.request.get("permissions") == "ask":
            return None
        return event_message(event)
