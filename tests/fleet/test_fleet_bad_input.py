"""Wrong keys and clocks, a hub that cannot write, a host that is gone: a clear error, and nothing lost."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from remuda.errors import HubRefused
from remuda.fleet import exchange, subjects
from remuda.fleet.hub import Hub
from remuda.fleet.hub_folder import new_seed
from remuda.fleet.membership import Key, Membership, member_file, read_key
from support.commands import until_line
from support.fleet import FleetBench, HubMachine, Machine, Pair, free_port, two_machines
from support.heimdall_client import PATIENCE
from support.keeper import until

HOUR = 3600.0
SHIFTED = """
import time
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {shift}
time.time_ns = lambda: _time_ns() + int({shift} * 1e9)
"""
"""What Python runs at its start on a machine whose clock is wrong."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A machine to act from, and one that runs agents."""
    with two_machines(tmp_path_factory.mktemp("fleet"), "operator") as pair:
        yield pair


def shifted_machine(bench: FleetBench, name: str, role: str, shift: float) -> Machine:
    """A machine whose clock is wrong by `shift`."""
    folder = bench.folder / f"clock-{name}"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SHIFTED.format(shift=shift))
    return bench.machine(name, role, env={"PYTHONPATH": str(folder)})


def write_key(machine: Machine, text: str) -> str:
    path = machine.remuda.cwd / "wrong.key"
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def test_a_key_of_another_hub_is_refused_and_nothing_is_joined(pair: Pair) -> None:
    bench = pair.bench
    other = HubMachine(bench.folder / "other")
    other.start()
    try:
        document = json.loads(other.new_key("build7", "host").read_text())
    finally:
        other.close()
    document["ca"] = json.loads((bench.hub.remuda.cwd / "build7.key").read_text())["ca"]
    stranger = bench.bare_machine("build7", "stranger")
    key = write_key(stranger, json.dumps(document))
    refusal = stranger.remuda.refused("fleet", "join", bench.hub.url, "--key", key, code=8)
    assert "does not accept the key of 'build7'" in refusal
    assert not (stranger.remuda.home / "fleet" / member_file().name).exists()


def test_messages_for_a_host_whose_key_was_revoked_wait_for_its_new_key(pair: Pair) -> None:
    bench, desk, build = pair
    work = pair.start("revoked")

    def is_listed() -> bool:
        return any(one["host"] == "build7" for one in desk.remuda.json("ls"))

    until(is_listed, "the session")
    bench.hub.remuda("fleet", "keys", "revoke", "build7")
    until(lambda: "does not accept the key" in str(build.status()["error"]), "the refusal")
    # Else those of a machine that was lost would be listed for good.
    until(lambda: not is_listed(), "the removal of its sessions")
    message = desk.send(work, "for later")
    assert desk.receipt(message)["stage"] == "sent"
    listed = desk.remuda("fleet", "status").out
    assert re.search(r"build7 .* host .*1 message waits for it at the hub", listed)
    build.remuda("fleet", "leave")
    (bench.hub.remuda.cwd / "build7.key").unlink()
    build.join(bench.hub, "host")
    desk.until_stage(message, "acked")
    assert build.prompts("revoked") == ["for later"]
    until(is_listed, "the session of the new key")


@pytest.mark.parametrize("shift", [HOUR, -HOUR])
def test_a_clock_that_is_wrong_by_an_hour_changes_nothing(pair: Pair, shift: float) -> None:
    bench, desk, _ = pair
    name = "ahead" if shift > 0 else "behind"
    shifted_machine(bench, name, "host", shift).start("work")
    desk.until_session(name, "work")
    answer = desk.remuda("send", f"{name}/work", "hello", "--ttl", "5m", "--wait").out
    assert answer == "REPLY#1 to: hello\n"
    (host,) = (one for one in desk.status()["hosts"] if one["name"] == name)
    assert host["reachable"] is True
    assert abs(host["clock_ahead"] - shift) < 60
    assert f"its clock is 1h00m {name}" in desk.remuda("fleet", "status").out
    (row,) = [one for one in desk.remuda.json("ls") if one["host"] == name]
    assert 0 <= row["age"] < HOUR / 2
    (listed,) = desk.remuda.json("messages", f"{name}/work")
    receipt = desk.receipt(listed["id"])
    times = [one["at"] for one in receipt["steps"]]
    assert max(times) - min(times) < HOUR / 2
    # Requests have a deadline, in the hub's time.
    assert desk.remuda("kill", f"{name}/work").out.startswith(f"{name}/work ended")


@pytest.mark.parametrize("shift", [pytest.param(HOUR, marks=pytest.mark.soak(only=True)), -HOUR])
def test_a_sender_whose_clock_is_wrong_by_an_hour_sends_decides_and_runs(pair: Pair, shift: float) -> None:
    bench, _, build = pair
    name = "ahead" if shift > 0 else "behind"
    sender = shifted_machine(bench, f"sender-{name}", "operator", shift)
    work = pair.start(name)
    sender.until_session("build7", name)
    assert sender.remuda("send", work, "hello", "--ttl", "60", "--wait").out == "REPLY#1 to: hello\n"
    message = sender.send(work, "RUNBASH touch approved")
    until(lambda: sender.remuda.json("queue")["items"], "the request in the queue")
    sender.remuda("approve", work, "--yes")
    sender.until_stage(message, "acked")
    assert (build.remuda.cwd / "approved").exists()
    build.remuda("pool", "serve", "--demo", "--fleet", "--detach", "--size", "1", "--prewarm", "0")
    until(lambda: any(one["pool"] for one in sender.status()["hosts"]), "the pool")
    run = ("run", "--fleet", "--demo", "--cwd", str(build.remuda.cwd), "hello", "--timeout", "60")
    assert sender.remuda(*run).out == "REPLY#1 to: hello\n"
    build.remuda("pool", "stop")


def test_a_hub_that_cannot_write_refuses_a_message_and_loses_none(pair: Pair) -> None:
    bench, desk, build = pair
    work = pair.start("readonly")
    build.boss_end(signal.SIGKILL)
    before = desk.send(work, "before")
    pid = bench.hub.folder.server_pid()
    assert pid is not None
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    # Its disk refuses every write that makes a file longer, as one that is full or read-only does.
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, limits[1]))
    refusal = desk.remuda.refused("send", work, "refused", code=7)
    assert "the hub did not confirm within 5 s that it stored the message" in refusal
    assert "look for a full or read-only disk there" in refusal
    resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
    bench.hub.end()
    bench.hub.start()
    desk.until_connected()
    after = desk.send(work, "after")
    build.boss_up()
    for message in (before, after):
        desk.until_stage(message, "acked")
    assert build.prompts("readonly") == ["before", "after"]


def test_a_message_for_a_host_that_never_comes_back_bounces_once(pair: Pair) -> None:
    _, desk, build = pair
    work = pair.start("gone")
    build.boss_end(signal.SIGKILL)
    refusal = desk.remuda.refused("send", work, "too late", "--ttl", "1", code=10)
    message = refusal.split()[1]
    assert "expired, build7 did not confirm it in time" in refusal

    def bounces() -> list[dict[str, str]]:
        path = desk.remuda.home / "fleet" / "outbox.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line]

    (bounce,) = until(bounces, "the bounce")
    assert (bounce["id"], bounce["to"], bounce["bounced"]) == (message, work, "expired")
    desk.boss_end(signal.SIGKILL)
    desk.boss_up()
    desk.until_connected()
    assert desk.receipt(message)["stage"] == "expired"
    build.boss_up()
    after = desk.send(work, "after")
    desk.until_stage(after, "acked")
    assert build.prompts("gone") == ["after"]
    assert len(bounces()) == 1


def test_a_session_name_on_two_hosts_without_a_host_is_refused_with_both(pair: Pair) -> None:
    bench, desk, build = pair
    pair.start("both")
    other = bench.machine("build8", "host")
    other.start("both")
    desk.until_session("build8", "both")
    words: tuple[str, ...]
    for words in (("send", "both", "x"), *((one, "both") for one in _OF_A_SESSION)):
        refusal = desk.remuda(*words, code=3).err
        assert "did you mean 'build7/both' or 'build8/both'?" in refusal, words
    for one in (build, other):
        assert not (one.remuda.sessions / "both.inbox" / "inbox.jsonl").exists()


_OF_A_SESSION = ("kill", "show", "attach", "logs", "cancel", "messages", "approve", "deny", "approvals")


def test_a_host_with_an_older_remuda_is_listed_with_what_it_cannot_do(pair: Pair) -> None:
    bench, desk, _ = pair
    hosts: dict[str, dict[str, Any]] = {
        "older": {"machine": "m", "version": "0.2.7", "protocol": 1},
        "oldest": {"machine": "m", "version": "0.1.0"},
    }

    async def show() -> None:
        for name, presence in hosts.items():
            key = read_key(bench.hub.new_key(name, "host"))
            hub = await Hub.connect(Membership(key, bench.hub.url, "m"))
            await hub.store(subjects.host_subject(name), subjects.write(presence))
            shown = exchange.shown_session({"id": "s1", "name": "work", "agent_state": "idle"}, None)
            await hub.store(subjects.session_subject(name, "s1"), subjects.write(shown))
            await hub.close()

    asyncio.run(show())
    until(lambda: {one["name"] for one in desk.status()["hosts"]} >= {*hosts}, "both in the list")
    listed = desk.remuda("fleet", "status").out
    assert re.search(r"older .* 0\.2\.7 .*an older version: does not offer attach, logs, start", listed)
    assert re.search(r"oldest .* 0\.1\.0 .*an older version: lists its sessions, takes no requests", listed)
    assert {one["host"] for one in desk.remuda.json("ls")} >= {*hosts}
    for words, what in (
        ("logs older/work", "logs"),
        ("start x --host older -- true", "start"),
    ):
        refusal = desk.remuda.refused(*words.split(), code=7)
        assert f"older runs Remuda 0.2.7, which does not offer '{what}' to other hosts; upgrade" in refusal
    for words in ("send oldest/work x", "kill oldest/work", "logs oldest/work"):
        refusal = desk.remuda.refused(*words.split(), code=7)
        assert "oldest runs Remuda 0.1.0, which takes no requests of this version; upgrade" in refusal


def test_an_option_that_the_host_does_not_know_reaches_the_sender_as_a_reason(pair: Pair) -> None:
    bench, _, build = pair
    pair.start("newer")
    key = read_key(bench.hub.new_key("newest", "operator"))
    one = exchange.FleetMessage("build7", "newer", "m1-abc", "newest", "hello", {"colour": "blue"})

    async def send() -> str:
        hub = await Hub.connect(Membership(key, bench.hub.url, "m"))
        await hub.store(one.subject, one.data(), dedup=one.id)
        async with asyncio.timeout(PATIENCE):
            while (stored := await hub.load_last(subjects.RECEIPT, "rc.build7.m1-abc")) is None:
                await asyncio.sleep(0.05)
        await hub.close()
        return stored.data.decode()

    (step,) = json.loads(asyncio.run(send()))["steps"]
    assert (step["stage"], "the option 'colour'" in step["reason"]) == ("dead", True)
    assert not (build.remuda.sessions / "newer.inbox" / "inbox.jsonl").exists()


def test_sessions_that_have_ended_elsewhere_are_listed_with_all(pair: Pair) -> None:
    desk, build = pair.desk, pair.build
    pair.start("past")
    build.remuda("kill", "past")

    def rows(*flags: str) -> list[dict[str, object]]:
        return [one for one in desk.remuda.json("ls", *flags) if one["name"] == "past"]

    until(lambda: rows() == [], "the session to be gone")
    (row,) = rows("--all")
    assert (row["host"], row["state"], row["alive"], row["reachable"]) == ("build7", "dead", False, True)
    assert rows("--all", "--local") == []


def test_a_key_that_is_revoked_while_the_hub_is_down_has_no_sessions_after_its_start(pair: Pair) -> None:
    bench, desk, _ = pair
    gone = bench.machine("gone", "host")
    gone.start("work")
    desk.until_session("gone", "work")
    gone.boss_end(signal.SIGKILL)
    bench.hub.end()
    done = bench.hub.remuda("fleet", "keys", "revoke", "gone")
    assert done.out == "revoked the key of gone\n"
    assert "the hub is not running; start it with 'remuda fleet serve'" in done.err
    bench.hub.start()
    desk.until_connected()
    assert [one for one in desk.remuda.json("ls") if one["host"] == "gone"] == []


def test_a_hub_that_does_not_answer_is_an_error_in_words(pair: Pair) -> None:
    machine = pair.bench.bare_machine("patient")
    key = str(pair.bench.hub.new_key("patient", "host"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"tls://127.0.0.1:{silent.getsockname()[1]}"
        refusal = machine.remuda.refused("fleet", "join", url, "--key", key, code=7)
    assert f"the hub at {url} cannot be reached: no answer within 5 s; check the address" in refusal


def test_a_hub_that_is_not_there_is_an_error_that_says_why(pair: Pair) -> None:
    machine = Machine(pair.bench.folder / "lost", "lost")
    pair.bench.machines.append(machine)
    key = str(pair.bench.hub.new_key("lost", "host"))
    url = f"tls://127.0.0.1:{free_port()}"
    refusal = machine.remuda.refused("fleet", "join", url, "--key", key, code=7)
    assert f"the hub at {url} cannot be reached: Connection refused; check the address" in refusal


def test_a_key_file_that_is_cut_is_refused(pair: Pair) -> None:
    bench = pair.bench
    machine = bench.bare_machine("late")
    whole = bench.hub.new_key("late", "host").read_text()
    key = write_key(machine, whole[: len(whole) // 2])
    refusal = machine.remuda.refused("fleet", "join", bench.hub.url, "--key", key, code=2)
    assert "is not a key file" in refusal


def test_a_right_that_the_hub_does_not_give_is_named_in_the_status(bench: FleetBench) -> None:
    """As after an upgrade of a host, while the hub still has the rights of an older version."""
    build = bench.machine("build7", "host")
    config = json.loads(bench.hub.folder.config.read_bytes())
    (user,) = [
        one
        for one in config["accounts"]["MEMBERS"]["users"]
        if "ev.build7.*" in one["permissions"]["publish"]["allow"]
    ]
    user["permissions"]["publish"]["allow"].remove("ev.build7.*")
    bench.hub.folder.config.write_text(json.dumps(config))
    bench.hub.folder._reload()
    build.start("work")  # its events may not be published
    until(lambda: "ev.build7." in build.status()["problems"].get("rights", ""), "the refusal")
    assert "the hub refused" in build.remuda("fleet", "status").out


def test_what_the_hub_refused_is_in_the_status_of_the_machine_that_serves(pair: Pair) -> None:
    """A key that was revoked, one of another hub, and a host that reports in the place of another."""
    bench = pair.bench
    server = bench.bare_machine("server")
    server.boss_up()
    url = f"tls://127.0.0.1:{(port := free_port())}"
    begun = server.remuda.begin("fleet", "serve", "--listen", f"127.0.0.1:{port}", "--name", "server")

    async def attempt(key: Key, subject: str) -> None:
        hub = await Hub.connect(Membership(key, url, "machine"))
        await hub.publish(subject, b"{}")
        await hub.measure()
        await hub.close()

    try:
        until_line(begun, b"fleet keys new NAME")
        keys: list[Key] = []
        for name in ("liar", "leaver"):
            server.remuda("fleet", "keys", "new", name, "--out", str(path := bench.folder / f"{name}.key"))
            keys.append(read_key(path))
        server.remuda("fleet", "keys", "revoke", "leaver")
        asyncio.run(attempt(keys[0], "ev.server.s"))
        for key in (keys[1], replace(keys[1], seed=new_seed()[0])):
            with pytest.raises(HubRefused):
                asyncio.run(attempt(key, "x"))
        until(lambda: len(server.status()["refusals"]) == 3, "the refusals")
        listed = server.remuda("fleet", "status").out
        assert "the key of liar, from 127.0.0.1, publish to 'ev.server.s', " in listed
        assert "the revoked key of leaver, from 127.0.0.1, " in listed
        assert "an unknown key, from 127.0.0.1, " in listed
    finally:
        begun.send_signal(signal.SIGTERM)
        begun.communicate(timeout=PATIENCE)
    assert pair.desk.status()["refusals"] == []


def test_a_viewer_cannot_put_words_into_the_status_of_another_host(pair: Pair) -> None:
    bench, _, build = pair
    viewer = Membership(read_key(bench.hub.new_key("snoop", "viewer")), bench.hub.url, "snoop")
    subject = exchange.request_subject("build7", "GET", "/v1/sessions", "snoop")

    async def go() -> None:
        hub = await Hub.connect(viewer)
        try:
            data = exchange.write_request("GET", "/v1/sessions", None, hub.now() + 5.0)
            for reply in ("an.snoop.run-this.now", "an.snoop.build7.to.many"):
                await hub.publish(subject, data, reply=reply)
            answer = await hub.request(subject, data, 5.0)  # of a sender that keeps to the rules
            assert "sessions" in exchange.read_answer(answer, "build7")
        finally:
            await hub.close()

    asyncio.run(go())
    assert "rights" not in build.status()["problems"]
