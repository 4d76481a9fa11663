"""Three machines in network namespaces of their own, whose cables are pulled: nothing is lost or repeated."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from support.fleet import FleetBench
from support.keeper import until
from support.namespaces import Cable, Namespace, why_not


@pytest.fixture
def network() -> Iterator[tuple[Namespace, list[Cable]]]:
    if why := why_not():
        pytest.skip(f"NOT TESTED: no network namespaces ({why}); over loopback: test_fleet_deaths.py")
    with ExitStack() as stack:
        hub = stack.enter_context(closing(Namespace()))
        yield hub, [stack.enter_context(closing(Cable(hub))) for _ in range(2)]


@pytest.mark.soak(only=True)  # it waits for every timeout of a connection; in pieces: test_fleet_deaths.py
def test_machines_whose_cables_are_pulled_are_caught_up_with(
    home: Path, network: tuple[Namespace, list[Cable]]
) -> None:
    space, cables = network
    to_desk, to_build = cables
    bench = FleetBench(home)
    bench.hub.listen, bench.hub.remuda.prefix = "0.0.0.0", space.prefix
    bench.hub.start()
    try:
        there = [f"tls://{one.here}:{bench.hub.port}" for one in cables]
        desk = bench.machine("desk", "operator", url=there[0], prefix=to_desk.prefix)
        build = bench.machine("build7", "host", url=there[1], prefix=to_build.prefix)
        build.start("work")
        desk.until_session("build7", "work")
        assert desk.remuda("send", "build7/work", "hello", "--wait").out == "REPLY#1 to: hello\n"

        to_build.pull()  # longer than every timeout of the connection
        sent = [desk.send("build7/work", f"number {at}") for at in range(3)]
        assert desk.receipt(sent[0])["stage"] == "sent"
        desk.until_host("build7", reachable=False)
        assert "build7 did not answer" in desk.remuda.refused("kill", "build7/work", code=7)
        (row,) = desk.remuda.json("ls")
        assert row["state"] == "unreachable"
        build.remuda("send", "work", "at home", "--wait")
        until(lambda: not build.status()["connected"], "the host to notice")

        to_desk.pull()
        until(lambda: not desk.status()["connected"], "the other to notice")
        assert "the hub" in desk.remuda.refused("send", "build7/work", "refused", code=7)
        bench.hub.end(signal.SIGKILL)
        bench.hub.start()
        to_build.plug()
        to_desk.plug()
        for message in sent:
            desk.until_stage(message, "acked")
        assert build.prompts("work") == ["hello", "at home", *(f"number {at}" for at in range(3))]
    finally:
        bench.close()
