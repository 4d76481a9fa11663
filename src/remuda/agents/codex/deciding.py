"""How a decision about a permission request, or the answer to a question, reaches codex."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from remuda.agents.permission import PermissionDecision

from .asking import answer_for
from .notices import ThreadReader
from .rpc import CallError, RpcPeer

_REASON_PATIENCE = 5.0


async def decide(peer: RpcPeer, reader: ThreadReader, call_id: str, decision: PermissionDecision) -> None:
    """Answer the request about this tool call, unless it was decided at the terminal."""
    if call_id in reader.open and decision.message and not decision.allow and not decision.interrupt:
        await _add_reason(peer, reader, call_id, decision.message)
    if (asked := reader.open.get(call_id)) is not None:
        wire_id, _, params = asked
        await peer.answer(wire_id, answer_for(params, decision))


async def _add_reason(peer: RpcPeer, reader: ThreadReader, call_id: str, reason: str) -> None:
    """Add the reason of a denial to the turn: a decision has no room for it. After one the turn may end."""
    _, _, params = reader.open[call_id]
    with suppress(CallError, TimeoutError):
        async with asyncio.timeout(_REASON_PATIENCE):
            await peer.call(
                "turn/steer",
                threadId=reader.thread,
                expectedTurnId=params.get("turnId"),
                input=[{"type": "text", "text": reason}],
            )
