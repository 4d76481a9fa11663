"""A hub whose disk is really full or read-only: each command says so, and nothing is lost afterwards."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.fleet import FleetBench, Machine
from support.keeper import until

pytestmark = pytest.mark.soak(
    only=True
)  # each time `test_fleet_bad_input` does it with a limit of the process
IN_MEMORY = ("unshare", "-rm"), "mount -t tmpfs -o size=160m,mode=700 none '{store}'"
# Without a journal, which needs 16 MiB. An error makes it read-only, whoever has a file open there.
ON_A_DISK = (
    ("unshare", "-m"),
    (
        "truncate -s 400M '{image}' && mkfs.ext4 -q -O ^has_journal '{image}'"
        " && mount -o loop,errors=remount-ro '{image}' '{store}'"
    ),
)


@contextmanager
def storing_on(how: tuple[tuple[str, ...], str], home: Path) -> Iterator[tuple[FleetBench, Path]]:
    """A hub that stores on a file system that only it sees; gives also that folder as the hub sees it."""
    bench = FleetBench(home)
    store = bench.hub.folder.data
    store.mkdir(parents=True, mode=0o700)
    for folder in (bench.hub.folder.path, bench.hub.folder.path.parent):
        folder.chmod(0o700)
    begin, mount = how
    script = f"{mount.format(store=store, image=home / 'image')} && echo ready && exec cat"
    holder = subprocess.Popen([*begin, "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        if holder.stdout.readline() != b"ready\n":
            pytest.skip("this user can mount nothing")
        user = ("-U", "--preserve-credentials") if "-rm" in begin else ()
        bench.hub.remuda.prefix = ("nsenter", "-t", str(holder.pid), "-m", *user)
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


def check_nothing_is_lost(bench: FleetBench, desk: Machine, build: Machine, before: str) -> None:
    """The hub can write again: what it had taken runs, and what is sent from now on."""
    bench.hub.start()
    desk.until_connected()
    after = desk.send("build7/work", "after")
    build.boss_up()
    for message in (before, after):
        desk.until_stage(message, "acked")
    assert build.prompts("work") == ["before", "after"]


def test_a_full_disk_of_the_hub_refuses_messages_and_requests_and_loses_none(home: Path) -> None:
    with storing_on(IN_MEMORY, home) as (bench, store):
        desk, build = bench.machine("desk", "operator"), bench.machine("build7", "host")
        build.start("work")
        desk.until_session("build7", "work")
        build.remuda("pool", "serve", "--demo", "--fleet", "--detach", "--size", "1", "--prewarm", "0")
        until(lambda: any(one["pool"] for one in desk.status()["hosts"]), "the pool")
        build.boss_end(9)
        before = desk.send("build7/work", "before")
        fill(store / "filler")
        run = ("run", "--fleet", "--demo", "--cwd", str(build.remuda.cwd), "hello")
        send = ("send", "build7/work", "x" * 100_000)
        for words, code, what in ((send, 7, "message"), (run, 2, "request")):
            refusal = desk.remuda.refused(*words, code=code)
            assert f"the hub did not confirm within 5 s that it stored the {what}" in refusal
            assert "look for a full or read-only disk there, and restart 'fleet serve'" in refusal
        assert "did not confirm" in desk.remuda("fleet", "requests").out
        (store / "filler").unlink()
        bench.hub.end()
        check_nothing_is_lost(bench, desk, build, before)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a disk")
def test_a_disk_of_the_hub_that_becomes_read_only_is_named_by_each_command_and_loses_none(
    home: Path,
) -> None:
    with storing_on(ON_A_DISK, home) as (bench, _):
        desk, build = bench.machine("desk", "operator"), bench.machine("build7", "host")
        build.start("work")
        desk.until_session("build7", "work")
        build.boss_end(9)
        before = desk.send("build7/work", "before")
        store, image, hub = str(bench.hub.folder.data), str(home / "image"), bench.hub.remuda.prefix
        subprocess.run([*hub, "mount", "-o", "remount,abort", store], check=True)
        refusal = desk.remuda.refused("send", "build7/work", "not stored", code=7)
        assert "did not confirm within 5 s that it stored the message, so it is not known whether" in refusal
        # The hub does not even store that a machine is there. So no one is shown as connected or idle.
        until(lambda: not desk.status()["connected"], "the desk to notice")
        why = "the hub did not confirm within 5 s that it stored the presence of this machine"
        hint = "look for a full or read-only disk there, and restart 'fleet serve'"
        listed = desk.remuda("ls")
        assert "unreachable" in listed.out
        assert "idle" not in listed.out
        for said in (listed.err, desk.remuda("queue").err, desk.remuda("fleet", "status").out):
            assert why in said
            assert hint in said
        assert why in desk.remuda.refused("send", "build7/work", "not stored either", code=7)
        assert "it is at the hub or build7: the hub does not answer now" in desk.remuda("receipt", before).out
        bench.hub.end()
        subprocess.run([*hub, "umount", store], check=True)
        subprocess.run([*hub, "mount", "-o", "loop,ro", image, store], check=True)
        said = bench.hub.remuda.refused("fleet", "serve", "--no-join", code=4)
        assert said == f"folder {store} is not writable"
        subprocess.run([*hub, "umount", store], check=True)
        subprocess.run([*hub, "mount", "-o", "loop", image, store], check=True)
        check_nothing_is_lost(bench, desk, build, before)
