"""A hub whose disk is really full: every command says so, and what it had confirmed is there afterwards."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fleet import FleetBench
from support.keeper import until

MOUNT = "mount -t tmpfs -o size=160m,mode=700 none '{}' && echo ready && exec cat"


@pytest.fixture
def small(home: Path) -> Iterator[tuple[FleetBench, Path]]:
    """A hub that stores on a file system of 160 MiB, and that folder as the hub sees it."""
    bench = FleetBench(home)
    store = bench.hub.folder.data
    store.mkdir(parents=True, mode=0o700)
    for folder in (bench.hub.folder.path, bench.hub.folder.path.parent):
        folder.chmod(0o700)
    words = ["unshare", "-rm", "sh", "-c", MOUNT.format(store)]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        if holder.stdout.readline() != b"ready\n":
            pytest.skip("this user can mount nothing")
        bench.hub.remuda.prefix = ("nsenter", "-t", str(holder.pid), "-U", "-m", "--preserve-credentials")
        bench.hub.start()
        yield bench, Path(f"/proc/{holder.pid}/root{store}")
    finally:
        bench.close()
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()


def fill(path: Path) -> None:
    with open(path, "wb", buffering=0) as file:
        while True:
            try:
                file.write(b"x" * (1 << 20))
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017  # the end
                return


@pytest.mark.soak(only=True)  # each time `test_fleet_bad_input` and `test_fleet_requests` do it with a limit
def test_a_full_disk_of_the_hub_refuses_messages_and_requests_and_loses_none(
    small: tuple[FleetBench, Path],
) -> None:
    bench, store = small
    desk, build = bench.machine("desk", "operator"), bench.machine("build7", "host")
    build.start("work")
    desk.until_session("build7", "work")
    build.remuda("pool", "serve", "--demo", "--fleet", "--detach", "--size", "1", "--prewarm", "0")
    until(lambda: any(one["pool"] for one in desk.status()["hosts"]), "the pool")
    build.boss_end(9)
    before = desk.send("build7/work", "before")
    fill(store / "filler")
    run = ("run", "--fleet", "--demo", "--cwd", str(build.remuda.cwd), "hello")
    for words, code in ((("send", "build7/work", "x" * 100_000), 7), (run, 2)):
        refusal = desk.remuda.refused(*words, code=code)
        assert "the hub did not confirm within 5 s that it stored the message" in refusal, words
        assert "look for a full disk there, and restart 'fleet serve'" in refusal
    assert "did not confirm" in desk.remuda("fleet", "requests").out
    (store / "filler").unlink()
    bench.hub.end()
    bench.hub.start()
    desk.until_connected()
    after = desk.send("build7/work", "after")
    build.boss_up()
    for message in (before, after):
        desk.until_stage(message, "acked")
    assert build.prompts("work") == ["before", "after"]
