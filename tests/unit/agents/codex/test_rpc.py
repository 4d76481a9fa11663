"""Calls to codex's app-server, and decisions that reach it."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pytest

from remuda.agents.codex.deciding import decide
from remuda.agents.codex.notices import ThreadReader
from remuda.agents.codex.rpc import RpcPeer
from remuda.agents.permission import PermissionDecision
from remuda.agents.prompting import ChannelLost


def test_a_connection_lost_while_a_call_is_sent_leaves_no_error_behind() -> None:
    reported: list[dict[str, Any]] = []

    async def call() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))

        async def send(_text: str) -> None:
            peer.lose("cut")
            raise ChannelLost("cut")

        peer = RpcPeer(send)
        with pytest.raises(ChannelLost, match="cut"):
            await peer.call("thread/read")
        with pytest.raises(ChannelLost, match="cut"):
            await peer.call("thread/read")

    asyncio.run(call())
    gc.collect()
    assert reported == []


@pytest.mark.parametrize("refusal", [None, "no active turn to steer"])
def test_the_reason_of_a_denial_is_added_before_the_turn_can_end(refusal: str | None) -> None:
    sent: list[dict[str, Any]] = []

    async def send(text: str) -> None:
        sent.append(message := json.loads(text))
        answer = {"result": {}} if refusal is None else {"error": {"message": refusal}}
        peer.take({"id": message["id"], **answer})

    peer, reader = RpcPeer(send), ThreadReader()
    reader.open["c"] = 7, "item/commandExecution/requestApproval", {"turnId": "a"}
    denied = PermissionDecision(allow=False, message="use the other way")
    asyncio.run(decide(peer, reader, "elsewhere", denied))
    assert sent == []
    asyncio.run(decide(peer, reader, "c", denied))
    steer, answer = sent
    assert steer["method"] == "turn/steer"
    assert steer["params"]["input"] == [{"type": "text", "text": "use the other way"}]
    assert answer == {"id": 7, "result": {"decision": "decline"}}
