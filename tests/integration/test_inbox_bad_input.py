"""Disks that are full or read-only, corrupt files, prompts that are too long, lines that are no text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remuda.errors import InputError
from remuda.inbox.journal import Inbox
from support.hooks import HOOK, Box

HELPERS = f"""
import json, os, subprocess, sys
from pathlib import Path
from remuda.errors import FolderUnusable
from remuda.inbox.journal import Inbox
folder = Path(sys.argv[1])
inbox = Inbox(folder)

def refused(text):
    try:
        inbox.put(text)
    except FolderUnusable as error:
        return str(error)

def tick():
    argv = [sys.executable, "-I", "-S", {str(HOOK)!r}, "--inbox", str(folder / "inbox.jsonl")]
    ran = subprocess.run(argv, input="", capture_output=True, text=True)
    assert ran.returncode == 0
    return json.loads(ran.stdout)["reason"] if ran.stdout else ran.stderr

def waiting():
    return [entry.text[:9] for entry in inbox.waiting()]
"""


def on_a_disk(folder: Path, options: list[str], script: str) -> Any:
    """What a script prints as JSON, run on a filesystem of its own, which is gone with it."""
    mount = f'mount {" ".join(options)} none "$1" && exec "$2" -c "$3" "$1"'
    words = ["unshare", "-rm", "sh", "-c", mount, "sh", str(folder), sys.executable, HELPERS + script]
    ran = subprocess.run(words, capture_output=True, text=True)
    if ran.returncode and ("unshare" in ran.stderr or "mount" in ran.stderr):
        pytest.skip(f"no mounts here: {ran.stderr.strip()}")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


COMMANDS = """
import shutil, tempfile, time
from remuda.inbox.receipts import trace
elsewhere = tempfile.mkdtemp()
env = {**os.environ, "REMUDA_HOME": str(folder), "HOME": elsewhere, "MOCK_TIME_SCALE": "0.01"}
env.pop("CLAUDE_CONFIG_DIR", None)

def remuda(*words):
    argv = [sys.executable, "-P", "-m", "remuda", *words]
    return subprocess.run(argv, env=env, cwd=elsewhere, capture_output=True, text=True, input="")

def fill():
    with open(folder / "filler", "ab", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(1024))
        except OSError:
            pass

"""
"""Ours on that disk, run by a user whose home is elsewhere."""


def test_full_disk_the_sender_gets_an_error_and_the_queue_goes_on_with_space(tmp_path: Path) -> None:
    said = on_a_disk(
        tmp_path,
        ["-t", "tmpfs", "-o", "size=256k,mode=700"],
        """
inbox.put("before")
filler = os.open(folder / "filler", os.O_WRONLY | os.O_CREAT)
try:
    while True:
        os.write(filler, bytes(4096))
except OSError:
    pass
os.ftruncate(filler, os.fstat(filler).st_size - 8192)
said = {"long": refused("cut short " * 2000), "waiting": waiting()}
while refused("x" * 4000) is None:
    pass
said["short"] = refused("x")
said["still"] = waiting()[0]
said["tick"] = tick()
os.unlink(folder / "filler")
os.close(filler)
os.utime(folder / "inbox.jsonl", (1, 1))
inbox.put("after")
handed = []
while (text := tick()):
    handed.append(text[:9])
said["handed"] = [text for text in handed if text[0] != "x"]
print(json.dumps(said))
""",
    )
    assert "No space left" in said["long"]
    assert said["waiting"][0] == said["still"] == "before"
    assert "No space left" in said["tick"]
    assert said["handed"] == ["before", "after"]


def test_full_disk_under_a_kept_agent_loses_no_accepted_message_and_repeats_none(tmp_path: Path) -> None:
    said = on_a_disk(
        tmp_path,
        ["-t", "tmpfs", "-o", "size=600k,mode=700"],
        COMMANDS
        + """
def send(number):
    ran = remuda("send", "a", f"message {number:02} of many", "--json")
    return json.loads(ran.stdout)["id"] if ran.returncode == 0 else None

def stage(message):
    found = trace(folder / "sessions" / "a.inbox", message)
    return found.stage if found and found.ended else None

started = remuda("start", "a", "--agent", "demo", "--detach")
assert started.returncode == 0, started.stderr
try:
    sent = {number: send(number) for number in range(6)}
    fill()
    sent |= {number: send(number) for number in range(6, 12)}
    (folder / "filler").unlink()
    sent |= {number: send(number) for number in range(12, 17)}
    accepted = {number: message for number, message in sent.items() if message}
    deadline = time.monotonic() + 60
    while (left := [one for one in accepted.values() if not stage(one)]) and time.monotonic() < deadline:
        time.sleep(0.2)
    outcomes = sorted({str(stage(one)) for one in accepted.values()})
finally:
    remuda("kill", "a", "--grace", "0")
text = "".join(path.read_text() for path in Path(elsewhere).rglob("*.jsonl"))
answers = {number: text.count(f" to: message {number:02} of many") for number in sent}
shutil.rmtree(elsewhere)
print(json.dumps({"accepted": sorted(accepted), "left": left, "outcomes": outcomes, "answers": answers}))
""",
    )
    assert said["left"] == []
    assert {*range(6), *range(12, 17)} <= {*said["accepted"]}, said
    assert said["outcomes"] == ["acked"]
    answered = {int(number): count for number, count in said["answers"].items()}
    assert {number for number, count in answered.items() if count} == {*said["accepted"]}
    assert max(answered.values()) == 1, answered


def test_full_disk_at_the_wake_is_a_clear_error_and_nothing_is_lost(tmp_path: Path) -> None:
    said = on_a_disk(
        tmp_path,
        ["-t", "tmpfs", "-o", "size=900k,mode=700"],
        COMMANDS
        + """
def until(look):
    deadline = time.monotonic() + 60
    while not (seen := look()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return seen

for name in "ab":
    assert remuda("start", name, "--agent", "demo", "--detach").returncode == 0
try:
    assert remuda("send", "a", "hello", "--wait").returncode == 0
    until(lambda: remuda("sleep", "a").returncode == 0)
    fill()
    woken = remuda("wake", "a")
    state = json.loads(remuda("status", "a", "--json").stdout)["state"]
    other = json.loads(remuda("status", "b", "--json").stdout)["state"]
    begun = remuda("start", "c", "--agent", "demo", "--detach").stderr
    (folder / "filler").unlink()
    answer = remuda("send", "a", "again", "--wait", "--timeout", "60")
finally:
    remuda("kill", "a", "b", "--grace", "0")
shutil.rmtree(elsewhere)
print(json.dumps([woken.returncode, woken.stderr, begun, state, other, answer.stdout, answer.stderr]))
""",
    )
    code, error, begun, state, other, text, complaint = said
    assert (code, state, other) == (1, "asleep", "idle"), said
    assert "could not be woken" in error
    assert "No space left on device; free space on the disk with $REMUDA_HOME" in begun
    assert "No space left on device" in error
    assert "to: again" in text, complaint


def test_boss_on_a_disk_with_little_room_does_not_take_all_of_it(tmp_path: Path) -> None:
    said = on_a_disk(
        tmp_path,
        ["-t", "tmpfs", "-o", "size=6m,mode=700"],
        """
env = {**os.environ, "REMUDA_HOME": str(folder), "TMUX_TMPDIR": str(folder)}
def remuda(*words):
    argv = [sys.executable, "-P", "-m", "remuda", *words]
    return subprocess.run(argv, env=env, capture_output=True, text=True, input="")

up = remuda("up", "--detach", "--port", "0")
room = os.statvfs(folder)
down = remuda("down")
print(json.dumps({"up": up.returncode, "down": down.returncode, "free": room.f_bavail * room.f_frsize}))
""",
    )
    assert (said["up"], said["down"]) == (0, 0)
    assert said["free"] > 4 << 20


def test_doctor_reports_a_full_disk(tmp_path: Path) -> None:
    said = on_a_disk(
        tmp_path,
        ["-t", "tmpfs", "-o", "size=64k,mode=700"],
        """
(folder / "sessions").mkdir(mode=0o700)
def doctor():
    argv = [sys.executable, "-m", "remuda", "doctor", "--json"]
    ran = subprocess.run(argv, env={**os.environ, "REMUDA_HOME": str(folder)}, capture_output=True, text=True)
    failed = [one["what"] for one in json.loads(ran.stdout) if one["level"] == "fail"]
    return [what for what in failed if "is full" in what]

said = {"before": doctor()}
try:
    (folder / "filler").write_bytes(bytes(1 << 20))
except OSError:
    pass
said["full"] = doctor()
print(json.dumps(said))
""",
    )
    assert said["before"] == []
    assert [text.startswith("the disk of ") for text in said["full"]] == [True]


def test_read_only_folder_can_be_looked_at_and_nothing_else(tmp_path: Path) -> None:
    said = on_a_disk(
        tmp_path,
        ["-t", "tmpfs", "-o", "mode=700"],
        """
inbox.put("before")
inbox.put("once", dedup="k")
inbox.close()
subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
said = {"put": refused("x"), "waiting": waiting(), "count": inbox.overview().waiting, "tick": tick()}
for name in ("compact", "redrive"):
    try:
        getattr(inbox, name)()
    except FolderUnusable as error:
        said[name] = str(error)
print(json.dumps(said))
""",
    )
    for name in ("put", "tick", "redrive"):
        assert "read-only" in said[name].lower() or "not writable" in said[name]
    assert said["waiting"] == ["before", "once"]
    assert said["count"] == 2


def test_filesystem_without_holes_says_so_and_all_else_works(tmp_path: Path) -> None:
    said = on_a_disk(
        tmp_path,
        ["-t", "ramfs", "-o", "mode=700"],
        """
inbox.put("y" * 300_000)
inbox.put("z" * 5_000)
inbox.put("last")
handed = [tick()[:9], tick()[:9], tick()]
given = inbox.compact()
print(json.dumps([given.inbox, given.note, handed, tick()]))
""",
    )
    given, note, handed, rest = said
    assert (given, handed, rest) == (0, ["y" * 9, "z" * 9, "last"], "")
    assert "cannot be freed here" in note


GARBAGE = [
    "",
    "{",
    "null",
    "[]",
    "{}",
    "\0\0\0\0",
    '{"cursor": "x", "frontier": 1, "held": []}',
    '{"cursor": 0, "frontier": -5, "held": []}',
    '{"cursor": 0, "frontier": 0, "held": [1, {}, {"start": "x"}]}',
    '{"start_offset": null, "end_offset": [], "flight": 7, "attempt": {}, "id": 3}',
]


@pytest.mark.parametrize("name", [".inbox-queue.json", ".inbox-lease.json", "receipts.jsonl", "outbox.jsonl"])
@pytest.mark.parametrize("garbage", GARBAGE)
def test_corrupt_file_of_ours_costs_no_message(box: Box, name: str, garbage: str) -> None:
    box.put("alpha\nbravo\ncharlie\n")
    assert box.tick() == "alpha"
    box.path(name).write_text(garbage)
    handed = []
    for _ in range(3):
        ran = box.run()
        assert ran.code == 0
        assert "Traceback" not in ran.err
        handed.append(ran.reason)
    assert handed == ["bravo", "charlie", None]
    assert box.offset() == 20


@pytest.mark.parametrize("garbage", ["{", '{"key": 1}\n', "\0\0"])
def test_corrupt_dedup_file_still_knows_what_is_in_the_inbox(tmp_path: Path, garbage: str) -> None:
    inbox = Inbox(tmp_path / "inbox")
    first = inbox.put("once", dedup="k")
    (inbox.folder / ".inbox-dedup.jsonl").write_text(garbage)
    assert inbox.put("once", dedup="k") == (first.id, True)
    assert not inbox.put("other", dedup="l").duplicate
    assert inbox.put("other", dedup="l").duplicate


def test_prompt_of_10_mib_is_carried_and_one_byte_more_is_refused(box: Box) -> None:
    inbox = Inbox(box.folder)
    longest = "ä" + "x" * ((10 << 20) - 2)
    inbox.put(longest)
    with pytest.raises(InputError) as refused:
        inbox.put(longest + "x")
    assert "10485760" in str(refused.value)
    Inbox(box.folder, max_bytes=11 << 20).put(longest + "x")
    assert [len(text) for text in box.drain()] == [(10 << 20) - 1, 10 << 20]


def test_foreign_lines_that_are_no_text_are_handed_out_as_well_as_they_can_be(box: Box) -> None:
    box.inbox.write_bytes(b"\xff\xfe\n\0\0after nul\na\0b\n\xed\xa0\x80\n\r\n \x0b\n\xc3\xa4\n")
    handed = box.drain()
    assert handed[1:3] == ["after nul", "a\0b"]
    assert handed[-1] == "ä"
    assert len(handed) == 5
    assert all("\ufffd" in handed[index] for index in (0, 3))
