"""Run a self-test in a process of its own, and leave nothing of it.

That process gets nothing of the user's environment but PATH: its home, its sessions and its key are made up.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from remuda._version import __version__
from remuda.agents import find_agent, find_self_test
from remuda.agents.self_test import BenchPlace, SelfTest, remove_leftovers
from remuda.errors import CommandNotFound, InvalidOptions, RemudaError
from remuda.process_table import with_variable
from remuda.proctree import command_lines, send_signal
from remuda.readable import is_readable
from remuda.tried_program import digest_of, stamp_of
from remuda.untrusted import as_object, one_line, parse_json

from .promises import SESSIONS, PromiseResult, completed
from .results import SelfTestResult, find_binary

_CLEANING = 4.0
"""Seconds of the limit that are kept to end everything."""
_PATIENCE = 15.0
"""Seconds after the limit until the process is killed."""
_KILL_LIMIT = 10.0
_MOST_ERRORS = 4000


def run(
    agent: str,
    binary: Path | None,
    time_limit: float | None,
    progress: Callable[[PromiseResult | None], None],
) -> SelfTestResult:
    """Try the agent and return what was found. `progress` gets each outcome; None before the first.

    Raises `InvalidOptions` for an agent that offers no self-test, `CommandNotFound` if it is not installed,
    and `RemudaError` if the test itself failed.
    """
    plan = find_self_test(agent)
    if plan is None:
        raise InvalidOptions(f"agent {agent!r} offers no self-test")
    found = find_binary(agent, [str(binary)] if binary is not None else [])
    if found is None:
        what = binary if binary is not None else find_agent(agent).default_argv[0]
        raise CommandNotFound(
            f"{what}: not found, or not executable", hint="name the program with --binary PATH"
        )
    began, digest, stamp = time.monotonic(), digest_of(found), stamp_of(found)
    limit = plan.time_limit if time_limit is None else time_limit
    facts: dict[str, Any] = {}
    outcomes: list[PromiseResult] = []
    progress(None)
    for document in _documents(agent, plan, found, limit):
        outcome = PromiseResult.read(document)
        if outcome is None:
            facts.update(document)
        else:
            outcomes.append(outcome)
            progress(outcome)
    if not outcomes:
        last = one_line(str(facts.get("errors", "")).strip().rpartition("\n")[2])
        raise RemudaError(
            f"the self-test itself failed: {last or 'it said nothing'}", hint="please report it"
        )
    all_outcomes = completed(outcomes, plan)
    for outcome in all_outcomes:
        if outcome not in outcomes:
            progress(outcome)
    return SelfTestResult(
        agent=agent,
        program=plan.program,
        version=str(facts.get("version", "unknown")),
        digest=digest,
        binary=str(found),
        stamp=stamp,
        at=time.time(),
        offline=str(facts.get("offline", "unknown")),
        remuda=__version__,
        outcomes=tuple(all_outcomes),
        words=tuple(map(str, facts.get("words") or ())),
        seconds=time.monotonic() - began,
    )


def _documents(agent: str, plan: SelfTest, binary: Path, limit: float) -> Iterator[dict[str, Any]]:
    with _place() as root:
        (root / "bin").mkdir()
        (root / "bin" / find_agent(agent).default_argv[0]).symlink_to(binary)
        task = {
            "agent": agent,
            "folder": str(root),
            "binary": str(binary),
            "time_limit": max(1.0, limit - _CLEANING),
        }
        scratch = [root / "remuda" / "sessions" / f"{name}.d" for name in SESSIONS]
        place = BenchPlace(root / "home", root / "tmp", "", scratch=scratch)
        try:
            yield from _lines(root, task, time.monotonic() + limit + _PATIENCE)
        finally:
            end_all(root)
            remove_leftovers(plan, place)


@contextmanager
def _place() -> Iterator[Path]:
    # Not below $TMPDIR if that is long: the path of a unix socket may have 107 bytes at most.
    folder = Path(tempfile.mkdtemp(prefix="remuda-"))
    try:
        yield folder.resolve()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lines(root: Path, task: dict[str, Any], deadline: float) -> Iterator[dict[str, Any]]:
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(root / "home"),
        "REMUDA_HOME": str(root / "remuda"),
        "LANG": "C.UTF-8",
    }
    with open(root / "errors", "wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "remuda.self_test"],
            env=env,
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    buffer = b""
    try:
        process.stdin.write(json.dumps(task).encode())
        process.stdin.close()
        while is_readable(process.stdout.fileno(), max(0.0, deadline - time.monotonic())):
            if not (data := os.read(process.stdout.fileno(), 65536)):
                break
            *lines, buffer = (buffer + data).split(b"\n")
            yield from (as_object(parse_json(line)) for line in lines)
        with suppress(OSError):
            yield {"errors": (root / "errors").read_text(errors="replace")[-_MOST_ERRORS:]}
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def end_all(root: Path) -> None:
    """Kill what still runs with the made-up home, and the fork server, which has no variables."""
    deadline = time.monotonic() + _KILL_LIMIT
    while (left := _running(root)) and time.monotonic() < deadline:
        for pid in left:
            send_signal(pid, signal.SIGKILL)
        time.sleep(0.02)


def _running(root: Path) -> list[int]:
    named = [pid for pid, words in command_lines() if any(word.startswith(f"{root}/") for word in words)]
    return [*with_variable("HOME", str(root / "home")), *named]
