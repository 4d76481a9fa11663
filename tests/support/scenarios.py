"""What is done to an inbox while a test kills it or cuts its power: the hook's part, and the journal's."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

from remuda.inbox import stop_hook
from support.crash import FAR, Box, Scenario, nothing

PUT = "print(inbox.put('new ' * 50).id, flush=True)"
WORDS = ["one " * 50, "two " * 50, "three " * 50]
PUT_SEVERAL = f"for text in {WORDS}:\n    print(inbox.put(text).id, flush=True)"
PUT_COMMAND = "print(inbox.put('/compact', command=True).id, flush=True)"
PUT_ONCE = "print(inbox.put('new', dedup='k').id, flush=True)"
NACK = (
    "with stop_hook.Lock(files):\n"
    "    one = stop_hook.HookInbox(files, 'test')\n"
    "    one.open()\n"
    "    one.nack(one.in_flight(), 30.0, 'busy')\n"
    "    one.close()\n"
)


def _three(box: Box) -> None:
    for name in ("alpha", "bravo", "charlie"):
        box.put(name)


def _handed_out(box: Box) -> None:
    _three(box)
    assert box.tick()


def _delayed_ahead(box: Box) -> None:
    box.put("later", not_before=time.time() + FAR)
    _three(box)


def _delayed_handed_out(box: Box) -> None:
    """One that was delayed is in flight, another still waits, and what is between them is acknowledged."""
    box.put("later", not_before=time.time() + FAR)
    box.put("alpha")
    box.put("last", not_before=time.time() + FAR)
    box.put("bravo")
    box.drain()
    box.make_due("later")
    assert box.tick()
    assert box.handed == ["alpha", "bravo", "later"]


def _to_be_bounced(box: Box) -> None:
    box.put("old", expires=1.0, **{"from": "me"})
    _three(box)


def _to_be_buried(box: Box) -> None:
    """Its attempts are used up."""
    box.put("poison", max_attempts=1)
    _three(box)
    assert box.tick()
    assert stop_hook.recover(box.files, "retry", [])[0] == "ReQueued"


def _buried(box: Box) -> None:
    assert box.letters() == ["poison"]


BAD = [f'{{"remuda" {number}' for number in range(3)]


def _several_to_be_buried(box: Box) -> None:
    Path(box.files.inbox).write_text("".join(f"{line}\n" for line in BAD))
    box.put("old", expires=1.0)
    _three(box)


def _several_buried(box: Box) -> None:
    assert box.letters() == BAD


def _replaced(box: Box) -> None:
    box.put("before")
    box.drain()
    Path(box.files.inbox).write_text("")
    _three(box)


RECOVER = ("recover", "--on-orphan")
HOOK = {
    "delivers": Scenario(_three),
    "acknowledges and delivers": Scenario(_handed_out),
    "passes a delayed one": Scenario(_delayed_ahead),
    "acknowledges a delayed one": Scenario(_delayed_handed_out),
    "bounces": Scenario(_to_be_bounced),
    "buries": Scenario(_to_be_buried, check=_buried),
    "buries several": Scenario(_several_to_be_buried, check=_several_buried),
    "begins a replaced inbox": Scenario(_replaced),
    "recover retry": Scenario(_handed_out, (*RECOVER, "retry")),
    "recover deadletter": Scenario(_handed_out, (*RECOVER, "deadletter")),
    "recover drop": Scenario(_handed_out, (*RECOVER, "drop")),
}


def _two(box: Box) -> None:
    box.put("alpha")
    box.put("bravo")


def _put_again(box: Box) -> None:
    """A sender that got no receipt sends it again; others go on."""
    if not box.said:
        box.journal.put("new", dedup="k")
    box.journal.put("other")


def _accepted_once(box: Box) -> None:
    assert Counter(box.handed)["new"] == 1
    assert box.handed[-1] == "other"


def _whole_or_not_at_all(box: Box) -> None:
    times = Counter(box.handed)["new " * 50]
    assert times == 1 if box.said else times <= 1
    assert set(box.handed) <= {"alpha", "bravo", "new " * 50}


def _key_alone(box: Box) -> None:
    """The inbox was removed, and its key was not."""
    box.put("before")
    for path in box.folder.iterdir():
        if path.name != ".inbox-key":
            path.unlink()


def _another_command(box: Box) -> None:
    box.journal.put("/clear", command=True)


def _commands_they_stay(box: Box) -> None:
    """The key that marks them was on the disk before them, and is the same for all of them."""
    secret = stop_hook.InboxKey(box.files.key)
    data = Path(box.files.inbox).read_bytes().replace(b"\0", b"")
    entries = [stop_hook.Entry(0, 0, line.decode(), secret) for line in data.splitlines() if line]
    whole = [entry for entry in entries if not entry.broken]
    assert [entry.text for entry in whole][-1] == "/clear"
    assert all(entry.fields.get("command") is True for entry in whole)
    assert ("/compact" in [entry.text for entry in whole]) >= bool(box.said)


def _in_their_order(box: Box) -> None:
    """As many as were told to be accepted, and at most one more."""
    came = [text for text in box.handed if text in WORDS]
    assert came == WORDS[: len(came)]
    assert len(came) - len(box.said.split()) in (0, 1)


def _in_flight(box: Box) -> None:
    _two(box)
    assert box.tick()
    Path(box.files.responded).unlink()  # a keeper has no such mark


def _last_attempt(box: Box) -> None:
    box.put("poison", max_attempts=1)
    box.put("alpha")
    assert box.tick()
    Path(box.files.responded).unlink()


def _died_once(box: Box) -> None:
    assert box.letters() == ["poison"]


def _two_dead(box: Box) -> None:
    _two(box)
    box.put("charlie")
    for _ in range(2):
        assert box.tick()
        assert stop_hook.recover(box.files, "deadletter", [])[0] == "DeadLettered"
    box.handed.clear()


def _redrive_again(box: Box) -> None:
    box.journal.redrive()


def _redriven_once(box: Box) -> None:
    assert Counter(box.handed) == {"alpha": 1, "bravo": 1, "charlie": 1}
    assert box.letters() == []
    said = [str(one["redriven"]) for one in box.receipts() if "redriven" in one]
    assert len(said) == len(set(said))


def _much_done(box: Box) -> None:
    """A long acknowledged part before and between two delayed ones, old and young receipts, one in flight."""
    for number in range(2):
        with Path(box.files.inbox).open("a") as inbox:
            inbox.write("".join(f"done {number} {'x' * 990}\n" for _ in range(150)))
        box.put(f"later{number}", not_before=time.time() + FAR)
    frontier = Path(box.files.inbox).stat().st_size
    _two(box)
    with stop_hook.Lock(box.files):
        inbox_now = stop_hook.HookInbox(box.files)
        inbox_now.open()
        assert inbox_now.reader is not None
        position, inbox_now.queue.frontier = 0, frontier
        while position < frontier:
            entry, position = inbox_now.reader.next(position)
            assert entry is not None
            if entry.fields:
                inbox_now.queue.hold(entry.start, entry.end, time.time() + FAR, 1)
        inbox_now.queue.save(inbox_now.reader)
        inbox_now.receipt("alpha", "noted")
        inbox_now.close()
    with Path(box.files.receipts).open("a") as receipts:
        for message in ("gone", "young"):
            at = 1.0 if message == "gone" else time.time()
            receipts.write(json.dumps({"id": message, "stage": "acked", "at": at}) + "\n")
    assert box.tick()


def _nothing_young_is_gone(box: Box) -> None:
    assert set(box.handed) == {"alpha", "bravo", "later0", "later1"}
    stages = {(one["id"], one["stage"]) for one in box.receipts()}
    assert {("alpha", "noted"), ("young", "acked")} <= stages


TAKE_BACK = "inbox.take_back('bravo')"


def _three_after_one(box: Box) -> None:
    """So there is a queue file, and the receipts are not asked what is done."""
    box.put("before")
    box.drain()
    _three(box)


def _never_both(box: Box) -> None:
    """What was taken back is not handed out, and has one end."""
    ends = [
        one["stage"] for one in box.receipts() if one["id"] == "bravo" and one["stage"] in stop_hook.FINAL
    ]
    assert len(ends) == 1, ends
    assert ("bravo" in box.handed) == (ends == ["acked"])


JOURNAL = {
    "put": Scenario(_two, script=PUT, check=_whole_or_not_at_all),
    "put into nothing": Scenario(nothing, script=PUT, check=_whole_or_not_at_all),
    "put beside a key": Scenario(_key_alone, script=PUT, check=_whole_or_not_at_all),
    "put a command into nothing": Scenario(
        nothing, script=PUT_COMMAND, after=_another_command, check=_commands_they_stay
    ),
    "put several": Scenario(_two, script=PUT_SEVERAL, check=_in_their_order),
    "put once": Scenario(_two, script=PUT_ONCE, after=_put_again, check=_accepted_once),
    "nack": Scenario(_in_flight, script=NACK),
    "nack to death": Scenario(_last_attempt, script=NACK, check=_died_once),
    "take back": Scenario(_three_after_one, script=TAKE_BACK, check=_never_both),
    "redrive": Scenario(_two_dead, script="inbox.redrive()", after=_redrive_again, check=_redriven_once),
    "compact": Scenario(_much_done, script="inbox.compact()", check=_nothing_young_is_gone),
}
