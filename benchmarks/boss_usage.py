"""What counting usage and budgets costs the boss: two hundred sessions, twenty of which write messages.

The same boss three times: without either, with usage, and with usage and three limits. The cost of one is the
difference. Sessions are events and transcripts, without agents.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

from benchmarks.report import Report
from benchmarks.scene import Scene, bounded, cpu_seconds

from remuda.boss.client import BossClient
from remuda.boss.detach import start_detached
from remuda.boss.folder import BossFolder

_SESSIONS = 200
_GROWING = 20
_SECONDS = 6.0
_PAUSE = 0.1
_TURNS = 50
"""What each session has behind it."""
_USAGE = "remuda.boss.evidence.usage:UsageReader"
_SPENDING = "remuda.boss.evidence.spending:Spending"
_LIMITS = """
[[limit]]
output_tokens = 1_000_000_000
[[limit]]
turns = 1_000_000
per = ["folder", "day"]
[[limit]]
tokens = 1_000_000_000
per = "day"
"""
_VARIANTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("without usage", ()),
    ("with usage", (_USAGE,)),
    ("with usage and three limits", (_USAGE, _SPENDING)),
)


def measure(scene: Scene, report: Report, rounds: int) -> None:
    report.title(f"usage and budgets with {_SESSIONS} sessions, {_GROWING} that write 10 messages a second")
    found: dict[str, list[float]] = {}
    with bounded(600.0, "usage"):
        for number in range(rounds):
            for name, sources in _VARIANTS:
                found.setdefault(name, []).append(_share(scene, f"usage{number}{len(sources)}", sources))
    without, usage, both = (report.median(f"of one core, {name}", found[name], "%") for name, _ in _VARIANTS)
    report.add("usage alone", usage - without, "% of one core")
    report.add("three limits alone", both - usage, "% of one core")


def _share(scene: Scene, name: str, sources: tuple[str, ...]) -> float:
    """Return the percentage of one core that the boss used."""
    home = scene.folder / name
    folder = BossFolder(home / "boss")
    folder.path.mkdir(parents=True)
    (folder.path / "budget.toml").write_text(_LIMITS)
    transcripts = [home / "projects" / "p" / f"{uuid.uuid4()}.jsonl" for _ in range(_SESSIONS)]
    transcripts[0].parent.mkdir(parents=True)
    for one in transcripts:
        one.write_text("".join(_turn(one.stem, number) for number in range(_TURNS)))
    before, os.environ["REMUDA_HOME"] = os.environ.get("REMUDA_HOME"), str(home)
    try:
        started = start_detached(folder, 0, sources=sources)
    finally:
        os.environ.pop("REMUDA_HOME")
        if before is not None:
            os.environ["REMUDA_HOME"] = before
    client = BossClient(folder)
    client.post("events", body={"events": [_event(one, "begun") for one in transcripts]})
    while sources and client.get("usage")["total"]["messages"] < _SESSIONS * _TURNS:
        time.sleep(0.1)
    cpu, began, number = cpu_seconds(started["pid"]), time.monotonic(), _TURNS
    while time.monotonic() - began < _SECONDS:
        one = transcripts[number % _GROWING]
        with one.open("a") as file:
            file.write(_turn(one.stem, number))
        client.post("events", body={"events": [_event(one, f"m{number}")]})
        number += 1
        time.sleep(_PAUSE)
    share = (cpu_seconds(started["pid"]) - cpu) / (time.monotonic() - began) * 100
    scene.end(started["pid"])
    return share


def _event(transcript: Path, message: str) -> dict[str, Any]:
    facts = {"message": message, "cwd": "/srv/demo", "transcript_path": str(transcript)}
    at = time.time()
    return {"kind": "stopped", "session_id": transcript.stem, "at": at, "source": "hook", "facts": facts}


def _turn(session: str, number: int) -> str:
    usage = {"input_tokens": 10, "output_tokens": 200, "cache_read_input_tokens": 9000}
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
    same = {"sessionId": session, "timestamp": at}
    prompt = {"type": "user", "uuid": f"u{number}", "promptId": f"p{number}", **same}
    prompt["message"] = {"role": "user", "content": "go on"}  # type: ignore[assignment]
    answer = {"type": "assistant", "uuid": f"a{number}", "parentUuid": f"u{number}", **same}
    content = [{"type": "text", "text": "well done " * 50}]
    answer["message"] = {"id": f"msg{number}", "model": "m", "content": content, "usage": usage}  # type: ignore[assignment]
    return json.dumps(prompt) + "\n" + json.dumps(answer) + "\n"
