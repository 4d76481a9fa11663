"""Calls to codex's app-server."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from remuda.agents.codex.rpc import RpcPeer
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
