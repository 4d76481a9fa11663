"""What a call asks of its own keeper, beside what the keeper reports by itself."""

from __future__ import annotations

import select
import signal
from typing import Any, cast

import pytest

from remuda.keeper.client import KeeperClient
from remuda.oneshot.keeper_probe import KeeperProbe
from remuda.paths import SessionPaths
from remuda.wire.connection import ClientConnection
from support.commands import Commands
from support.heimdall_client import PATIENCE


class _Call:
    headless = None
    notices = -1

    def __init__(self, remuda: Commands, name: str) -> None:
        self.paths = SessionPaths(remuda.sessions, name)


@pytest.mark.timeout(100)
def test_what_comes_with_the_answer_to_a_request_is_not_waited_for(remuda: Commands) -> None:
    remuda.start("s", "--", "sh", "-c", "read one; echo got-$one; exec sleep 600")
    call: Any = _Call(remuda, "s")
    probe = KeeperProbe(call, None, wants_output=True)
    client = cast(KeeperClient, probe._client)
    probe.status()
    for _ in iter(lambda: client.has_waiting, False):
        probe.wait(0.0)
    with KeeperClient.connect("s", remuda.sessions) as typist:
        typist.send(ClientConnection.subscribe() + ClientConnection.input(b"hello\r"))
        output = b""
        while b"got-hello" not in output:
            for event in typist.receive(PATIENCE):
                output += getattr(event, "data", b"")
    assert select.select([client.fileno()], [], [], PATIENCE)[0]
    assert probe.status() is not None
    assert client.has_waiting
    keeper = remuda.keeper("s")
    keeper.signal(signal.SIGSTOP)  # nothing more comes
    try:
        probe.wait(1e6)
    finally:
        keeper.signal(signal.SIGCONT)
        keeper.close()
    assert b"got-hello" in probe._output
    probe.close()
