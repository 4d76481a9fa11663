"""The probe reads files that others are writing: complete lines, never pieces of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from remuda.testing.scripted_agent.probe import Probe, note_command, whole_records
from support.heimdall_client import PATIENCE


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[Probe]:
    """A probe around a program that writes nothing, so that a test can."""
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    with Probe(["sh", "-c", "cat > /dev/null"], home=tmp_path, project=tmp_path, env=env) as probe:
        yield probe


def test_records_last_line_is_left_out_until_it_has_an_end(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    assert whole_records(path) == []
    path.write_text('{"n": 1}\n{"n": 2}')
    assert whole_records(path) == [{"n": 1}]
    path.write_text('{"n": 1}\n{"n": 2}\n')
    assert whole_records(path) == [{"n": 1}, {"n": 2}]


def test_hooks_line_counts_once_it_has_an_end(idle: Probe, tmp_path: Path) -> None:
    assert idle.hooks == []
    with (tmp_path / "hooks.jsonl").open("w") as log:
        for piece, seen in (('{"hook_event_name": "St', 0), ('op"}', 0), ('\n\n{"hook_', 1)):
            log.write(piece)
            log.flush()
            assert idle.count("Stop") == seen
        log.write('event_name": "Stop"}\n')
    assert idle.count("Stop") == 2


def test_entry_that_is_being_written_is_read_when_it_is_whole(idle: Probe, tmp_path: Path) -> None:
    path = tmp_path / ".claude" / "sessions" / f"{idle.terminal.process.pid}.json"
    path.parent.mkdir(parents=True)
    assert idle.entry == {}
    path.write_text('{"status"')
    with ThreadPoolExecutor(1) as reader:
        reading = reader.submit(lambda: idle.status)
        assert not wait([reading], 0.2).done
        path.write_text('{"status": "busy"}')
        assert reading.result() == "busy"


def test_notes_of_many_hooks_at_once_do_not_mix(tmp_path: Path) -> None:
    log = tmp_path / "hooks.jsonl"
    payloads = [{"number": number, "text": "x" * 200_000} for number in range(16)]

    def note(payload: object) -> None:
        command = ["sh", "-c", note_command(log)]
        subprocess.run(command, input=json.dumps(payload).encode(), timeout=PATIENCE, check=True)

    with ThreadPoolExecutor(len(payloads)) as hooks:
        list(hooks.map(note, payloads))
    noted = sorted(whole_records(log), key=lambda payload: int(payload["number"]))
    assert noted == payloads
