"""Whatever dies or is cut off: every message ends once, in order, and its receipt says where it is."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import pytest

from remuda.errors import HostUnreachable
from remuda.fleet.exchange import FleetMessage, make_message
from remuda.fleet.hub import Hub
from remuda.inbox.receipts import read_receipts
from support import counts
from support.fleet import FleetBench, Machine, Relay
from support.keeper import until


@pytest.fixture
def relay(bench: FleetBench) -> Iterator[Relay]:
    made = Relay(bench.hub.port)
    yield made
    made.close()


def ends(machine: Machine, session: str, message: str) -> list[str]:
    """The final steps of a message in the inbox of the host: one, however often it was handed out."""
    inbox = machine.remuda.sessions / f"{session}.inbox"
    stages = [str(one["stage"]) for one in read_receipts(inbox, message)]
    return [one for one in stages if one in ("acked", "dead", "expired", "dropped")]


def test_messages_for_a_host_without_a_boss_wait_at_the_hub_in_order(bench: FleetBench) -> None:
    desk, build = bench.desk_and_build()
    desk.remuda("send", "build7/work", "before", "--wait")
    until(lambda: desk.remuda.json("queue")["items"], "the agent in the queue")
    desk.until_session("build7", "work")
    build.boss_end(signal.SIGKILL)
    done = desk.remuda("send", "build7/work", "number 0")
    assert done.out.startswith("sent ")
    assert "the message is at the hub" in done.err
    sent = [done.out.split()[1], *(desk.send("build7/work", f"number {at}") for at in (1, 2))]
    assert desk.receipt(sent[0])["where"].startswith("the hub")
    assert "it is at the hub" in desk.remuda("messages", sent[0]).out
    assert [one["stage"] for one in desk.remuda.json("messages", "build7/work")] == ["sent"] * 3
    assert "cannot be cancelled there" in desk.remuda.refused("cancel", sent[2], code=7)
    refusal = desk.remuda.refused("send", "build7/work", "too late", "--ttl", "1", code=10)
    assert "expired, build7 did not confirm it in time" in refusal
    late = refusal.split()[1]
    desk.until_host("build7", reachable=False)
    (row,) = [one for one in desk.remuda.json("ls") if one["host"] == "build7"]
    assert (row["state"], row["last_state"]) == ("unreachable", "idle")
    assert "unreachable for" in desk.remuda("fleet", "status").out
    assert "is not connected to the hub" in desk.remuda.refused("kill", "build7/work", code=7)
    # It stays in the queue, and `next` passes it.
    (item,) = desk.remuda.json("queue")["items"]
    assert (item["host"], item["session"]["reachable"]) == ("build7", False)
    assert "unreachable for" in desk.remuda("queue").out
    assert "build7 cannot be reached for" in desk.remuda.refused("next", code=4)
    for words in (("later", "build7/work"), ("status", "build7/work"), ("wait", "build7/work")):
        assert "build7 is not connected" in desk.remuda.refused(*words, code=7)
    assert desk.remuda("ls", "-q").out == "build7/work\n"
    assert desk.remuda("approvals").out == "no open permission requests\n"
    assert desk.remuda.json("receipt", "build7/work")["id"] == late
    build.boss_up()
    for message in sent:
        desk.until_stage(message, "acked")
        assert ends(build, "work", message) == ["acked"]
    assert build.prompts("work") == ["before", "number 0", "number 1", "number 2"]
    assert desk.receipt(late)["stage"] == "expired"


def test_a_message_that_the_hub_hands_out_again_is_not_put_twice(bench: FleetBench) -> None:
    desk, build = bench.desk_and_build()
    message = desk.send("build7/work", "once")
    desk.until_stage(message, "acked")
    publish_again(bench, make_message("build7", "work", message, "desk", "once", {}))
    after = desk.send("build7/work", "after")
    desk.until_stage(after, "acked")
    assert build.prompts("work") == ["once", "after"]


def test_a_message_that_has_ended_keeps_its_receipt_when_it_is_handed_out_again(bench: FleetBench) -> None:
    """After its time to live, and after its session was removed."""
    desk, build = bench.machine("desk", "operator"), bench.machine("build7", "host")
    for name in ("work", "gone"):
        build.start(name)
        desk.until_session("build7", name)
    sent = {name: desk.send(f"build7/{name}", "once") for name in ("work", "gone")}
    for message in sent.values():
        desk.until_stage(message, "acked")
    build.remuda("kill", "gone")
    for path in build.remuda.sessions.glob("gone.*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = [make_message("build7", name, one, "desk", "once", {}) for name, one in sent.items()]
    publish_again(bench, replace(again[0], options={"ttl": 0.001}), again[1])
    desk.until_stage(desk.send("build7/work", "after"), "acked")
    assert [desk.receipt(one)["stage"] for one in sent.values()] == ["acked", "acked"]
    assert build.prompts("work") == ["once", "after"]


def test_a_message_whose_host_could_not_say_in_time_that_it_takes_it_does_not_run(
    bench: FleetBench, relay: Relay
) -> None:
    """The sender has reported by then that it expired."""
    desk, build = bench.desk_and_build(url=relay.url)
    relay.stall("up")
    refusal = desk.remuda.refused("send", "build7/work", "late", "--ttl", "1", code=10)
    assert "expired" in refusal
    relay.mend()
    desk.until_stage(desk.send("build7/work", "after"), "acked")
    assert build.prompts("work") == ["after"]
    assert desk.receipt(refusal.split()[1])["stage"] == "expired"


def publish_again(bench: FleetBench, *messages: FleetMessage) -> None:
    """Store messages once more, as if their acknowledgements had been lost: without the hub's own dedup."""

    async def publish() -> None:
        hub = await Hub.connect(bench.hub.folder.admin())
        jetstream = hub._client.jetstream()
        config = (await jetstream.stream_info("INBOX")).config
        before = config.duplicate_window
        await jetstream.update_stream(config.evolve(duplicate_window=0.1))
        for one in messages:
            headers = {"Nats-Msg-Id": one.id}
            while (await jetstream.publish(one.subject, one.data(), headers=headers)).duplicate:
                await asyncio.sleep(0.1)
        await jetstream.update_stream(config.evolve(duplicate_window=before))
        await hub.close()

    asyncio.run(publish())


def test_a_message_for_an_unknown_session_is_refused_with_the_reason(bench: FleetBench) -> None:
    desk, _ = bench.desk_and_build()
    assert "session 'wrok' not found on build7" in desk.remuda.refused("send", "build7/wrok", "x", code=10)
    assert "host 'bulid7' not found; did you mean 'build7'?" in desk.remuda.refused(
        "send", "bulid7/work", "x", code=2
    )
    assert "did you mean 'build7/work'?" in desk.remuda.refused("send", "work", "x", code=3)
    assert "would run the agent's own command" in desk.remuda.refused(
        "send", "build7/work", "/clear", code=10
    )
    twice = [desk.remuda("send", "build7/work", "mail", "--dedup", "mail-1", "--wait").out]
    assert twice[0].endswith("to: mail\n")
    assert "accepted before" in desk.remuda.refused(
        "send", "build7/work", "mail", "--dedup", "mail-1", code=10
    )


@pytest.mark.soak
@pytest.mark.timeout(120 if not counts.SOAK else 3600)
def test_boss_hub_and_sender_are_killed_and_no_message_is_lost_or_repeated(bench: FleetBench) -> None:
    desk, build = bench.desk_and_build()
    rng = random.Random(17)
    accepted: dict[str, str] = {}
    unsure: dict[str, str] = {}

    def send(at: int) -> None:
        text = f"number {at}"
        begun = desk.remuda.begin("send", "build7/work", text, "--json")
        out, err = begun.communicate(timeout=60)
        if begun.returncode == 0:
            accepted[json_id(out)] = text
        elif (word := next((word for word in err.decode().split() if word.startswith("m1")), "")) != "":
            unsure[word.strip(";.,'")] = text

    def send_four(first: int) -> None:
        for at in range(first, first + 4):
            send(at)

    with ThreadPoolExecutor(1) as beside:
        for round_number in range(counts.FLEET_DEATHS):
            sending = beside.submit(send_four, 4 * round_number)
            victim = (build, bench.hub, desk)[round_number % 3]
            time.sleep(rng.uniform(0.0, 1.0))  # anywhere in the sends
            if isinstance(victim, Machine):
                victim.boss_end(signal.SIGKILL)
                victim.boss_up()
            else:
                victim.end(signal.SIGKILL)
                victim.start()
            sending.result()
            desk.until_connected()
            desk.until_host("build7")
    for message in accepted:
        desk.until_stage(message, "acked")
        assert ends(build, "work", message) == ["acked"]
    prompts = build.prompts("work")
    assert len(prompts) == len(set(prompts)), "a message was put twice"
    assert set(accepted.values()) <= set(prompts)
    order = [text for text in prompts if text in accepted.values()]
    assert order == sorted(order, key=lambda text: int(text.split()[1]))
    for message, text in unsure.items():
        until(lambda: is_true(desk, build, message, text), f"a receipt of {message} that is true")  # noqa: B023


class Sent(NamedTuple):
    sender: Machine
    receiver: Machine
    text: str
    id: str


def send(sender: Machine, receiver: Machine, text: str) -> Sent:
    """Send a message to the session `work` of another machine."""
    way = ("fleet", "hosts", receiver.name, "sessions", "work", "messages")
    return Sent(sender, receiver, text, sender.client.post(*way, body={"prompt": text})["id"])


def until_busy(sender: Machine, receiver: Machine) -> list[Sent]:
    """Give a session a turn that goes on, and messages that wait in its inbox behind it."""
    receiver.start("work")
    sender.until_session(receiver.name, "work")
    sent = [send(sender, receiver, text) for text in ("SLOW 6000", "inbox 1", "inbox 2")]
    until(lambda: sender.receipt(sent[0].id)["stage"] == "recorded", "its turn")
    for one in sent[1:]:
        sender.until_stage(one.id, "accepted")
    return sent


def test_hub_bosses_and_keepers_of_two_hosts_restart_at_once_and_every_message_ends_once(
    bench: FleetBench,
) -> None:
    desk, build = bench.machine("desk"), bench.machine("build7")
    sent = until_busy(desk, build) + until_busy(build, desk)
    build.boss_end(signal.SIGKILL)
    sent.append(send(desk, build, "at the hub"))
    assert desk.receipt(sent[-1].id)["stage"] == "sent"
    bench.hub.end(signal.SIGKILL)
    desk.boss_end(signal.SIGKILL)
    for machine in (desk, build):
        machine.remuda.kill_keeper("work")
    for restart in (bench.hub.start, desk.boss_up, build.boss_up):
        restart()
    for machine in (desk, build):
        machine.remuda("start", "work", "--resume", "--detach")
    for one in sent:
        stage = "dead" if one.text == "SLOW 6000" else "acked"  # no turn that died is repeated unasked
        one.sender.until_stage(one.id, stage)
        assert ends(one.receiver, "work", one.id) == [stage], one.text
    for machine in (desk, build):
        assert machine.prompts("work") == [one.text for one in sent if one.receiver is machine]


def is_true(desk: Machine, build: Machine, message: str, text: str) -> bool:
    """Whether the receipt of a message says what became of it."""
    return (desk.receipt(message)["stage"] == "acked") is (text in build.prompts("work"))


def json_id(out: bytes) -> str:
    return str(json.loads(out)["id"])


def test_a_host_whose_link_is_cut_works_on_and_is_caught_up_with(bench: FleetBench, relay: Relay) -> None:
    desk, build = bench.desk_and_build(url=relay.url)
    relay.stall()
    sent = desk.remuda("send", "build7/work", "over the hub").out.split()
    assert sent[0] == "sent"
    desk.until_host("build7", reachable=False)  # after the lease of its name
    assert build.remuda("send", "work", "at home", "--wait").out == "REPLY#1 to: at home\n"
    build.start("more")
    relay.cut()
    until(lambda: not build.status()["connected"], "the host to notice")
    relay.mend()
    desk.until_stage(sent[1], "acked")
    desk.until_session("build7", "more")
    desk.until_host("build7")
    assert build.prompts("work") == ["at home", "over the hub"]

    def last_message() -> str:
        return str(next(one for one in desk.remuda.json("ls") if one["name"] == "work")["last_message"])

    until(lambda: last_message() == "REPLY#2 to: over the hub", "the answer in the list")


def test_a_decision_that_the_network_held_up_is_not_carried_out_late(bench: FleetBench, relay: Relay) -> None:
    desk, _ = bench.desk_and_build(url=relay.url)
    relay.stall()
    client = desk.client
    whole = {"method": "POST", "path": "/v1/sessions/work/end", "body": {}, "timeout": 1.0}
    with pytest.raises(HostUnreachable, match="not known whether it was done"):
        client.post("fleet", "hosts", "build7", "request", body=whole)
    relay.mend()
    assert desk.remuda("send", "build7/work", "still there", "--wait").out == "REPLY#1 to: still there\n"
