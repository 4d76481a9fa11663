"""A cluster of three servers that someone else runs: its leader is killed, and no message is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.fleet import FleetBench
from support.fleet_cluster import Cluster

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def cluster(home: Path) -> Iterator[Cluster]:
    bench = FleetBench(home)
    with closing(Cluster(bench, {"desk": ("operator",), "build7": ("host",)})) as made, closing(bench):
        made.prepare()
        yield made


def test_the_leader_of_three_servers_is_killed_and_no_message_is_lost(cluster: Cluster) -> None:
    desk, build = (cluster.join(name) for name in ("desk", "build7"))
    build.start("work")
    desk.until_session("build7", "work")
    config = cluster.stream("INBOX")["config"]
    assert config["num_replicas"] == 3
    sent = [desk.send("build7/work", f"number {at}") for at in range(2)]
    cluster.kill(leader := cluster.leader())
    cluster.until_leader(leader)
    desk.until_connected()
    desk.until_host("build7")
    sent += [desk.send("build7/work", f"number {at}") for at in range(2, 4)]
    for message in sent:
        desk.until_stage(message, "acked")
    assert build.prompts("work") == [f"number {at}" for at in range(4)]
