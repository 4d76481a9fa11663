"""Usage from the agents' own records: counted once, over kills and repeats, and shown by the commands."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.boss import RunningBoss, event
from support.commands import Commands
from support.keeper import until

SESSION = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def boss(remuda: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBoss]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with RunningBoss(remuda.home, ("remuda.boss.evidence.usage:UsageReader",)) as one:
        yield one


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    folder = tmp_path / "claude" / "projects" / "p"
    folder.mkdir(parents=True)
    return folder / f"{SESSION}.jsonl"


def stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())


def prompt(number: int) -> dict[str, Any]:
    message = {"role": "user", "content": f"prompt {number}"}
    return {"type": "user", "uuid": f"u{number}", "promptId": f"p{number}", "message": message}


def answer(
    number: int, output: int = 5, model: str = "claude-test-1", parent: str | None = None
) -> dict[str, Any]:
    usage = {"input_tokens": 100, "output_tokens": output, "cache_read_input_tokens": 1000,
             "cache_creation_input_tokens": 10}  # fmt: skip
    message = {
        "id": f"msg_{number}",
        "model": model,
        "content": [{"type": "text", "text": "ok"}],
        "usage": usage,
    }
    return {"type": "assistant", "uuid": f"a{number}-{output}", "parentUuid": parent, "message": message}


def write(path: Path, *records: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({**one, "sessionId": SESSION, "timestamp": stamp()}) + "\n" for one in records)
    with path.open("a") as file:
        file.writelines(lines)


def tell(boss: RunningBoss, transcript: Path, number: int = 0) -> None:
    at = time.time()
    boss.tell(
        event(
            "stopped",
            at,
            session=SESSION,
            message=f"m{number}",
            cwd="/srv/x",
            transcript_path=str(transcript),
        )
    )


def total(boss: RunningBoss, by: str = "session") -> dict[str, Any]:
    found: dict[str, Any] = boss.client.get("usage", by=by)["total"]
    return found


def until_messages(boss: RunningBoss, count: int) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        found = total(boss)
        return found if found["messages"] >= count else {}

    return until(look, f"{count} messages")


def test_message_counts_once_over_repeats_kills_and_a_file_that_is_replaced(
    boss: RunningBoss, transcript: Path
) -> None:
    # The answer before its prompt, and a message of two records whose second says more.
    write(transcript, answer(1, output=1, parent="u1"), prompt(1), answer(1, output=5))
    write(transcript, prompt(2), answer(2), answer(2), {"type": "assistant", "message": {"usage": "x"}})
    tell(boss, transcript)
    until_messages(boss, 2)
    expected = {"input": 200, "output": 10, "cache_read": 2000, "cache_write": 20}
    until(lambda: total(boss)["tokens"] == expected, "two messages, each once")
    assert (total(boss)["messages"], total(boss)["turns"]) == (2, 2)
    boss.end(signal.SIGKILL)
    write(transcript, answer(2), prompt(3), answer(3))
    boss.start()
    tell(boss, transcript, 1)
    assert until_messages(boss, 3)["tokens"]["output"] == 15
    (session,) = boss.client.get("sessions")["sessions"]
    assert session["tokens"] == total(boss)["tokens"]
    copy = transcript.with_suffix(".new")
    copy.write_bytes(transcript.read_bytes())
    later = time.time() + 1
    until(lambda: time.time() > later, "the next second")  # records are dated to the second here
    write(copy, prompt(4), answer(4))
    os.replace(copy, transcript)
    tell(boss, transcript, 2)
    assert until_messages(boss, 4)["tokens"]["output"] == 20
    assert total(boss)["messages"] == 4


def test_answers_count_to_their_own_turns_though_what_is_between_is_not_read(
    boss: RunningBoss, transcript: Path
) -> None:
    for number in (1, 2):
        note = {"type": "attachment", "uuid": f"n{number}", "parentUuid": f"u{number}"}
        write(transcript, prompt(number), note, answer(number, parent=f"n{number}"))
    tell(boss, transcript)
    assert until_messages(boss, 2)["turns"] == 2


def test_subagents_count_for_the_session(boss: RunningBoss, transcript: Path) -> None:
    write(transcript, prompt(1), answer(1))
    write(transcript.with_suffix("") / "subagents" / "agent-1.jsonl", {**answer(9), "isSidechain": True})
    tell(boss, transcript)
    assert until_messages(boss, 2)["tokens"]["output"] == 10


def test_record_of_another_user_or_of_no_shape_is_not_counted(boss: RunningBoss, transcript: Path) -> None:
    transcript.parent.mkdir(parents=True, exist_ok=True)
    transcript.write_bytes(b'\xff\x00{"usage"\n[1]\n{"type":"assistant","message":{"usage":{}}}\n"usage"\n')
    write(transcript, prompt(1), answer(1))
    tell(boss, transcript)
    assert until_messages(boss, 1)["messages"] == 1


def test_commands_show_usage_with_prices_of_the_users_own_file_alone(
    boss: RunningBoss, transcript: Path, remuda: Commands, tmp_path: Path
) -> None:
    write(transcript, prompt(1), answer(1), answer(2, model="other-1"))
    tell(boss, transcript)
    until_messages(boss, 2)
    lines = remuda("usage", "--by", "model").out.splitlines()
    assert " ".join(lines[0].split()) == "MODEL TURNS INPUT OUTPUT CACHE READ CACHE WRITE COST USD"
    assert [line.split()[0] for line in lines[1:]] == ["claude-test-1", "other-1", "total"]
    assert lines[-1].split() == ["total", "1", "200", "10", "2,000", "20", "-"]
    price = '[prices]\ncurrency = "EUR"\n[prices."claude-*"]\ninput = 10000\noutput = 0\ncache_read = 0\n'
    own = tmp_path / "config" / "remuda" / "remuda.toml"
    own.parent.mkdir(parents=True)
    own.write_text(f"{price}cache_write = 0\n")
    lines = remuda("usage", "--by", "model").out.splitlines()
    assert lines[0].endswith("COST EUR")
    assert lines[1].split()[-1] == "1.00"
    assert lines[2].split()[-1] == "-"
    assert lines[3].endswith("1.00 and more")
    (remuda.cwd / "remuda.toml").write_text(price)
    assert "'prices', which a file in a working folder may not set" in remuda.refused("start", "x", code=2)
    assert remuda.json("usage", "--since", "1h")["rows"][0]["session_id"] == SESSION
    (wide,) = remuda.json("ls", "--wide")
    assert wide["tokens"] == {"input": 200, "output": 10, "cache_read": 2000, "cache_write": 20}
    assert "CACHE READ" in remuda("ls", "--wide").out


def test_boss_that_does_not_run_is_named(remuda: Commands) -> None:
    assert "boss" in remuda.refused("usage", code=7)
