"""`remuda doctor --agent` on real programs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda.process_table import read_variables
from remuda.proctree import command_lines
from support.commands import COMMAND, Commands

PATIENCE = 900
"""Seconds for all promises: on a machine with load 13 opencode took 400 s for what it does in 60."""
RECORDED = Path(__file__).parents[1] / "data" / "canary.json"


def try_binary(remuda: Commands, agent: str, binary: Path, limit: int | None = PATIENCE) -> dict[str, Any]:
    """Return the result. Without a limit it is the one that users have."""
    words = ["doctor", "--agent", agent, "--json", "--binary", str(binary)]
    words += [] if limit is None else ["--timeout", str(limit)]
    done = subprocess.run(
        [*COMMAND, *words], env=remuda.env, capture_output=True, text=True, timeout=PATIENCE + 30, check=False
    )
    found: dict[str, Any] = json.loads(done.stdout or json.dumps({"errors": done.stderr}))
    assert done.returncode == (0 if found["holds"] else 1)
    return found


def check_default_limit(
    remuda: Commands, agent: str, binary: Path, record_property: Callable[[str, object], None]
) -> None:
    """All holds within the limit that users have, if this machine does little else; else it is recorded.

    With a load of 20 on two cores opencode had no time for `print`, and its pool did not answer in time.
    """
    is_busy = os.getloadavg()[0] > 2 * (os.cpu_count() or 1)
    found = try_binary(remuda, agent, binary, None)
    late = verdicts(found, "not known") | verdicts(found, "too slow here")
    record_property("seconds", found["seconds"])
    record_property("not known, or too slow", sorted(late))
    failed = verdicts(found, "does not hold")
    record_property("does not hold", sorted(failed))
    assert not [one for one in found["outcomes"] if one["safety"] and one["promise"] in failed], found
    assert is_busy or not (failed or late), found


def verdicts(found: dict[str, Any], verdict: str) -> set[str]:
    # How fast the first message is taken depends on how busy this machine is.
    named = {one["promise"] for one in found["outcomes"] if one["verdict"] == verdict}
    return named - {"first_message"}


def check_self_test(
    remuda: Commands, agent: str, version: str, binary: Path, known: frozenset[str] = frozenset()
) -> None:
    """All promises but `known` hold, the recorded table says the same, and nothing is left of the test."""
    temporary = Path(remuda.home) / "t"  # short, as the path of a socket has to be
    temporary.mkdir()
    remuda.env["TMPDIR"] = str(temporary)
    found = try_binary(remuda, agent, binary)
    assert verdicts(found, "does not hold") == known, found
    assert verdicts(found, "not known") | verdicts(found, "too slow here") == set(), found
    assert found["version"] == version
    recorded = json.loads(RECORDED.read_text())[agent][version]
    for verdict in ("holds", "does not hold", "not known"):
        assert verdicts(found, verdict) == verdicts(recorded, verdict), f"python scripts/canary.py {agent}"
    kept = json.loads(next((remuda.home / "self-tests").iterdir()).read_text())
    assert kept == found
    assert not [words for _, words in command_lines() if str(temporary) in " ".join(words)]
    assert not [pid for pid, has in read_variables("HOME", ()) if has["HOME"].startswith(str(temporary))]
    assert not list(temporary.iterdir())
