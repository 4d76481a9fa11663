"""`remuda inbox …` as a user runs it: what each says, what it leaves on the disk, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.commands import COMMAND, Commands, Done
from support.heimdall_client import PATIENCE
from support.hooks import Box

ACCEPTED = re.compile(r"accepted ([\w-]+)\n")
SUBCOMMANDS = ("put", "ls", "status", "dead", "recover", "redrive", "compact", "serve")
# Root may write everywhere, unless it gives up the right to.
ORDINARY = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []


@pytest.fixture
def box(home: Path) -> Iterator[Box]:
    """An inbox that is no session's, and the Stop hook on it."""
    folder = home / "box"
    folder.mkdir(mode=0o700)
    one = Box(folder)
    yield one
    one.end()


def put(remuda: Commands, box: Box, *words: str) -> str:
    """Put one, and return its id."""
    said = ACCEPTED.fullmatch(remuda("inbox", "put", "--inbox", str(box.folder), *words).out)
    assert said is not None
    return said[1]


def feed(remuda: Commands, data: bytes, *words: str, code: int = 0) -> Done:
    """The same as calling it, with something on standard input."""
    done = subprocess.run(
        [*COMMAND, "inbox", "put", *words],
        env=remuda.env,
        cwd=remuda.cwd,
        input=data,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == code, (out, err)
    return Done(out, err)


def listed(remuda: Commands, box: Box) -> list[dict[str, Any]]:
    found = json.loads(remuda("inbox", "ls", "--json", "--inbox", str(box.folder)).out)
    assert isinstance(found, list)
    return found


def prompts(remuda: Commands, box: Box) -> list[str]:
    return [message["prompt"] for message in listed(remuda, box)]


def status(remuda: Commands, box: Box) -> dict[str, Any]:
    found = json.loads(remuda("inbox", "status", "--json", "--inbox", str(box.folder)).out)
    assert isinstance(found, dict)
    return found


# ── put ──


def test_put_of_a_text_says_accepted_and_is_what_the_hook_hands_out(remuda: Commands, box: Box) -> None:
    first = put(remuda, box, "look at it")
    second = put(remuda, box, "--", "--and at this")
    assert [message["id"] for message in listed(remuda, box)] == [first, second]
    assert box.drain() == ["look at it", "--and at this"]


@pytest.mark.parametrize("word", [[], ["-"]])
def test_put_of_standard_input_drops_the_last_line_end_and_nothing_else(
    remuda: Commands, box: Box, word: list[str]
) -> None:
    text = "two\r\n\tlines, “quoted” \U0001f600 \n\n"
    feed(remuda, text.encode(), "--inbox", str(box.folder), *word)
    assert box.drain() == [text[:-1]]


def test_put_json_reports_the_id_and_whether_it_is_new(remuda: Commands, box: Box) -> None:
    words = ("inbox", "put", "--json", "--inbox", str(box.folder), "x", "--dedup", "key")
    first, second = (json.loads(remuda(*words).out) for _ in range(2))
    assert (first["duplicate"], second["duplicate"]) == (False, True)
    assert first["id"] == second["id"]
    assert "duplicate" in remuda("inbox", "put", "--inbox", str(box.folder), "x", "--dedup", "key").out
    assert prompts(remuda, box) == ["x"]


def test_put_with_options_writes_them_into_the_envelope(remuda: Commands, box: Box) -> None:
    before = time.time()
    options = ["--delay", "90", "--ttl", "2h30m", "--dedup", "k", "--from", "me", "--max-attempts", "3"]
    put(remuda, box, "/compact", "--command", "--literal", *options)
    (line,) = box.inbox.read_text().splitlines()
    envelope = json.loads(line)
    wanted = {"dedup": "k", "from": "me", "max_attempts": 3, "command": True, "literal": True}
    assert wanted.items() <= envelope.items()
    assert envelope["not_before"] >= before + 89
    assert envelope["expires"] - envelope["not_before"] == pytest.approx(9000 - 90, abs=0.01)


def test_put_into_the_path_of_a_file_and_into_its_folder_is_the_same(remuda: Commands, box: Box) -> None:
    for path in (box.inbox, box.folder):
        remuda("inbox", "put", "--inbox", str(path), path.name)
    assert prompts(remuda, box) == ["inbox.jsonl", "box"]


def test_put_into_a_folder_that_is_not_there_makes_it_private(remuda: Commands) -> None:
    folder = remuda.home / "new"
    remuda("inbox", "put", "--inbox", str(folder / "inbox.jsonl"), "x")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "inbox.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([""], 4, "the prompt is empty"),
        ([" \n "], 4, "the prompt is empty"),
        ([], 4, "the prompt is empty"),  # cron's standard input
        (["\udcff"], 4, "not valid UTF-8"),
        (["12345", "--max-bytes", "4"], 4, "5 bytes, more than 4"),
        (["x", "--delay", "3x"], 2, "'3x' is not a time; write for example 90s"),
        (["x", "--ttl", "inf"], 2, "'inf' is not a time"),
        (["x", "--ttl", "-1"], 2, "'-1' is not a time"),
        (["x", "--ttl", "0"], 2, "'--ttl': the time must be longer than 0"),
        (["x", "--dedup", ""], 2, "'--dedup': the value is empty"),
        (["x", "--max-attempts", "0"], 2, "'--max-attempts'"),
        (["x", "--lines"], 2, "TEXT does not go with --lines"),
        (["--lines", "--dedup", "k"], 2, "--dedup does not go with --lines"),
        (["work", "x"], 2, "a session name does not go with --inbox"),
    ],
)
def test_put_with_bad_input_is_refused_and_leaves_nothing(
    remuda: Commands, box: Box, words: list[str], code: int, said: str
) -> None:
    assert said in remuda.refused("inbox", "put", "--inbox", str(box.folder), *words, code=code)
    assert prompts(remuda, box) == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a\xffb", "standard input is not valid UTF-8 (byte 1)"),
        (b"a\0b", "NUL"),
        (b"\n", "the prompt is empty"),
        (b"x" * 101, "101 bytes, more than 100"),
        (b"x" * 102, "more than 100 bytes"),
    ],
)
def test_put_of_bad_standard_input_is_refused(remuda: Commands, box: Box, data: bytes, said: str) -> None:
    done = feed(remuda, data, "--inbox", str(box.folder), "--max-bytes", "100", "-", code=4)
    assert done.out == ""
    assert said in done.err
    assert prompts(remuda, box) == []


def test_put_takes_as_many_bytes_as_it_may(remuda: Commands, box: Box) -> None:
    feed(remuda, b"x" * 100 + b"\n", "--inbox", str(box.folder), "--max-bytes", "100")
    assert prompts(remuda, box) == ["x" * 100]


def test_put_lines_takes_those_that_it_can_and_names_the_others(remuda: Commands, box: Box) -> None:
    data = b"one\n\n  \ntwo\xff\nthree\0\n" + b"4" * 200000 + b"\nfive\r\nlast"
    done = feed(remuda, data, "--inbox", str(box.folder), "--lines", "--max-bytes", "99", code=4)
    assert len(ACCEPTED.findall(done.out)) == 3
    assert prompts(remuda, box) == ["one", "five", "last"]
    assert [line.split(":")[1].strip() for line in done.err.splitlines()] == ["line 4", "line 5", "line 6"]


def test_put_lines_takes_each_as_it_comes(remuda: Commands, box: Box) -> None:
    feeder = subprocess.Popen(
        [*COMMAND, "inbox", "put", "--inbox", str(box.folder), "--lines", "--json"],
        env=remuda.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with feeder:
        assert feeder.stdin is not None
        assert feeder.stdout is not None
        for number in range(3):
            feeder.stdin.write(f"line {number}\n".encode())
            feeder.stdin.flush()
            said = json.loads(feeder.stdout.readline())
            assert listed(remuda, box)[-1]["id"] == said["id"]
        feeder.stdin.close()
        assert feeder.wait(PATIENCE) == 0


def test_put_by_many_at_once_loses_and_repeats_nothing(remuda: Commands, box: Box) -> None:
    def one(writer: int) -> list[str]:
        lines = "".join(f"{writer}-{number}\n" for number in range(20))
        return ACCEPTED.findall(feed(remuda, lines.encode(), "--inbox", str(box.folder), "--lines").out)

    with ThreadPoolExecutor(6) as pool:
        ids = [accepted for some in pool.map(one, range(6)) for accepted in some]
    found = listed(remuda, box)
    assert sorted(message["id"] for message in found) == sorted(ids)
    assert sorted(message["prompt"] for message in found) == sorted(
        f"{writer}-{number}" for writer in range(6) for number in range(20)
    )


def test_put_where_the_disk_refuses_reports_and_the_queue_stays_readable(remuda: Commands, box: Box) -> None:
    put(remuda, box, "before")
    size = box.inbox.stat().st_size
    words = ("inbox", "put", "--inbox", str(box.folder), "x" * 300)
    said = remuda.refused(*words, code=4, prefix=["prlimit", f"--fsize={size + 100}"])
    assert said == f"cannot write to the inbox {box.folder}: No space left on device"
    assert prompts(remuda, box)[0] == "before"
    put(remuda, box, "after")  # ends the line that was cut short
    assert [message["broken"] for message in listed(remuda, box)] == [False, True, False]
    assert " never " in remuda("inbox", "ls", "--inbox", str(box.folder)).out
    assert box.drain() == ["before", "after"]


def test_put_into_a_folder_that_is_not_writable_is_refused(remuda: Commands, box: Box) -> None:
    box.folder.chmod(0o500)
    said = remuda.refused("inbox", "put", "--inbox", str(box.folder), "x", code=4, prefix=ORDINARY)
    box.folder.chmod(0o700)
    assert said == f"folder {box.folder} is not writable"


# ── which inbox ──


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_command_on_an_unknown_session_is_refused_and_makes_nothing(remuda: Commands, command: str) -> None:
    said = remuda.refused("inbox", command, "nope", code=3)
    assert said.startswith("session 'nope' not found; 'remuda ls --all' lists all")
    assert not (remuda.sessions / "nope.inbox").exists()


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_command_without_an_inbox_is_refused(remuda: Commands, command: str) -> None:
    assert remuda.refused("inbox", command, code=2).startswith("no inbox given; name a session")


@pytest.mark.parametrize("command", ["ls", "status", "dead", "recover", "redrive", "compact"])
def test_command_on_a_folder_that_is_not_there_is_refused_and_makes_nothing(
    remuda: Commands, command: str
) -> None:
    folder = remuda.home / "nowhere"
    more = ["--all"] if command == "redrive" else []
    said = remuda.refused("inbox", command, "--inbox", str(folder), *more, code=4)
    assert said.startswith(f"no inbox at {folder}; ")
    assert not folder.exists()


@pytest.mark.parametrize("name", ["other.jsonl", "file"])
def test_inbox_file_of_another_name_is_refused(remuda: Commands, name: str) -> None:
    path = remuda.home / name
    if name == "file":
        path.touch()
    said = remuda.refused("inbox", "put", "--inbox", str(path), "x", code=2)
    assert said.startswith(f"{path} is not an inbox: its name is not inbox.jsonl")


def test_message_for_a_live_session_is_accepted_and_its_flight_is_left_alone(remuda: Commands) -> None:
    remuda.start("work", "--agent", "demo")
    assert ACCEPTED.fullmatch(remuda("inbox", "put", "work", "hello").out)
    assert "'work' is running" in remuda.refused("inbox", "recover", "work", code=8)


def test_message_for_a_dead_session_is_kept_and_says_so(remuda: Commands) -> None:
    remuda.start("work", "--agent", "demo")
    remuda("kill", "work")
    said = remuda("inbox", "put", "work", "hello").out
    assert re.fullmatch(r"accepted \S+ \(session 'work' has ended; the message waits\)\n", said)
    assert json.loads(remuda("inbox", "ls", "work", "--json").out)[0]["prompt"] == "hello"
    assert "('work' is not running)\nwaiting    1\n" in remuda("inbox", "status", "work").out


def test_inbox_of_a_session_that_never_had_a_message_is_empty(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    remuda("kill", "work")
    assert remuda("inbox", "ls", "work").out == "no messages; put one with: remuda inbox put work TEXT\n"
    assert "waiting    0\n" in remuda("inbox", "status", "work").out
    assert remuda("inbox", "dead", "work").out == "no dead letters\n"


def test_completion_offers_sessions_living_and_dead(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    remuda.start("worse", "--", "cat")
    remuda("kill", "worse")

    def offered(line: str) -> list[str]:
        variables = {
            "_REMUDA_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split()) - 1),
        }
        return remuda(env=variables).out.split()

    assert offered("remuda inbox put wo") == ["plain,work", "plain,worse"]
    assert offered("remuda inbox status worse") == ["plain,worse"]
    assert offered("remuda inbox re") == ["plain,recover", "plain,redrive"]
    assert offered("remuda inbox ls --inbox x wo") == []


# ── looking ──


def test_ls_and_status_show_what_is_in_flight_first(remuda: Commands, box: Box) -> None:
    later = put(remuda, box, "later", "--delay", "1h")
    first = put(remuda, box, "first\nof two lines")
    second = put(remuda, box, "second")
    assert box.tick() == "first\nof two lines"
    found = listed(remuda, box)
    assert [message["id"] for message in found] == [first, later, second]
    assert [message["in_flight"] for message in found] == [True, False, False]
    rows = remuda("inbox", "ls", "--inbox", str(box.folder)).out.splitlines()
    assert re.fullmatch(r"ID +AGE +DUE +ATTEMPT +TEXT", rows[0])
    assert re.fullmatch(rf"{first} +\S+ +in flight +1 +first …", rows[1])
    assert re.fullmatch(rf"{later} +\S+ +in \S+ +1 +later", rows[2])
    assert re.fullmatch(rf"{second} +\S+ +now +1 +second", rows[3])
    overview = status(remuda, box)
    assert (overview["waiting"], overview["delayed"], overview["dead"]) == (2, 1, 0)
    assert (overview["in_flight"]["id"], overview["in_flight"]["attempt"]) == (first, 1)
    said = remuda("inbox", "status", "--inbox", str(box.folder)).out
    assert "waiting    2, 1 of them delayed\n" in said
    assert re.search(rf"in flight  {first} for \S+, attempt 1\n", said)


def test_ls_of_lines_that_others_appended_shows_them(remuda: Commands, box: Box) -> None:
    box.put('plain\n"a JSON\\nstring"\n{"foreign": 1}\n')
    assert prompts(remuda, box) == ["plain", "a JSON\nstring", '{"foreign": 1}']
    assert re.search(r"line-0-\w+ +- +now +1 +plain\n", remuda("inbox", "ls", "--inbox", str(box.folder)).out)


def test_ls_prints_no_control_bytes_and_json_keeps_them(remuda: Commands, box: Box) -> None:
    text = "red \x1b[31m bell \x07"
    put(remuda, box, text)
    box.put('"half a pair \\ud800"\n')
    out = remuda("inbox", "ls", "--inbox", str(box.folder)).out
    assert "red �[31m bell �" in out
    assert "\x1b" not in out
    assert prompts(remuda, box) == [text, "half a pair \ufffd"]


def test_command_on_a_corrupt_inbox_says_what_to_do(remuda: Commands, box: Box) -> None:
    put(remuda, box, "x")
    box.path(".inbox-offset").write_text("rubbish")
    for command in ("ls", "status"):
        said = remuda.refused("inbox", command, "--inbox", str(box.folder), code=1)
        assert "corrupt offset file" in said


# ── what was given up ──


def test_recover_dead_and_redrive_bring_a_message_through_its_death(remuda: Commands, box: Box) -> None:
    where = ("--inbox", str(box.folder))
    first = put(remuda, box, "one\ntwo", "--from", "me")
    assert box.tick() == "one\ntwo"
    assert remuda("inbox", "recover", *where).out == "the message is a dead letter now\n"
    assert remuda("inbox", "recover", *where).out == "nothing to recover: no message was in flight\n"
    assert "dead       1; " in remuda("inbox", "status", *where).out
    assert re.search(
        rf"^{first} +\S+ +its session ended .* one …$", remuda("inbox", "dead", *where).out, re.M
    )
    (letter,) = json.loads(remuda("inbox", "dead", "--json", *where).out)
    assert (letter["id"], letter["prompt"], letter["from"]) == (first, "one\ntwo", "me")
    for name in (first, letter["entry_id"]):
        shown = remuda("inbox", "dead", *where, name).out
        assert shown.startswith(f"id         {first}\nreason     its session ended")
        assert shown.endswith("\n\none\ntwo\n")
    assert ACCEPTED.fullmatch(remuda("inbox", "redrive", *where, first).out)
    assert remuda("inbox", "dead", *where).out == "no dead letters\n"
    assert box.drain() == ["one\ntwo"]


def test_recover_with_each_policy(remuda: Commands, box: Box) -> None:
    where = ("--inbox", str(box.folder))
    put(remuda, box, "x")
    assert box.tick() == "x"
    assert remuda("inbox", "recover", *where, "--on-orphan", "retry").out == "the message is waiting again\n"
    assert box.tick() == "x"
    assert listed(remuda, box)[0]["attempt"] == 2
    said = json.loads(remuda("inbox", "recover", "--json", *where, "--on-orphan", "drop").out)
    assert said == {"outcome": "Dropped"}
    assert (box.drain(), status(remuda, box)["dead"]) == ([], 0)


def test_redrive_all_puts_back_every_one(remuda: Commands, box: Box) -> None:
    where = ("--inbox", str(box.folder))
    for text in ("one", "two"):
        put(remuda, box, text)
        assert box.tick() == text
        remuda("inbox", "recover", *where)
    assert len(json.loads(remuda("inbox", "redrive", "--json", "--all", *where).out)) == 2
    assert remuda("inbox", "redrive", "--all", *where).out == "no dead letters\n"
    assert box.drain() == ["one", "two"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["dead", "nope"], 3, "dead letter 'nope' not found"),
        (["redrive", "nope"], 3, "dead letter 'nope' not found"),
        (["redrive"], 2, "give either the ID of a dead letter or --all"),
        (["redrive", "x", "--all"], 2, "give either the ID of a dead letter or --all"),
        (["recover", "--on-orphan", "pray"], 2, "'pray' is not one of"),
        (["foo"], 2, "no such command 'foo'"),
    ],
)
def test_care_with_bad_input_is_refused(
    remuda: Commands, box: Box, words: list[str], code: int, said: str
) -> None:
    where = [] if words == ["foo"] else ["--inbox", str(box.folder)]
    assert said in remuda.refused("inbox", *words, *where, code=code)


def test_compact_gives_back_what_was_answered_and_keeps_what_waits(remuda: Commands, box: Box) -> None:
    where = ("--inbox", str(box.folder))
    feed(remuda, b"x" * 1_000_000, *where)
    for text in ("answered " * 2000, "in flight", "waits"):
        put(remuda, box, text)
    assert box.tick() == "x" * 1_000_000
    assert box.tick() == "answered " * 2000  # what lies just before the cursor tells the file, and stays
    assert box.tick() == "in flight"
    size, blocks = box.inbox.stat().st_size, box.inbox.stat().st_blocks
    given = json.loads(remuda("inbox", "compact", "--json", *where).out)
    assert box.inbox.stat().st_size == size
    if not given["note"]:  # not every file system makes holes
        assert given["inbox"] > 900_000
        assert box.inbox.stat().st_blocks < blocks
    assert remuda("inbox", "compact", *where).out == "freed 0 bytes\n"
    assert prompts(remuda, box) == ["in flight", "waits"]


# ── help ──


def test_help_lists_every_command_with_or_without_being_asked(remuda: Commands) -> None:
    out = remuda("inbox", "--help").out
    assert remuda("inbox").out == out
    for name in SUBCOMMANDS:
        assert re.search(rf"^  {name} +\w.*\.$", out, re.MULTILINE)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_help_of_every_command_has_an_example(remuda: Commands, name: str) -> None:
    assert re.search(rf"Examples?:\n +remuda inbox {name} ", remuda("inbox", name, "--help").out)
