"""Bringing up a keeper, and hearing from it that the session runs, or why it does not."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from dataclasses import replace
from typing import Any, NamedTuple

from remuda.errors import SpawnFailed, SpawnTimeout, from_code

from .prefork import Waiting, take_waiting
from .spec import SessionSpec

DEFAULT_START_TIMEOUT = 30.0


class Started(NamedTuple):
    keeper_pid: int
    child_pid: int


class Owned(NamedTuple):
    """A session that ends when `lifeline` is closed, by its owner or by its owner's end."""

    started: Started
    lifeline: int


def start_owned(spec: SessionSpec, timeout: float = DEFAULT_START_TIMEOUT) -> Owned:
    """As `start_session`, for a session that does not outlive its owner but for its own orderly end."""
    waiting = take_waiting()
    if waiting is not None:
        return _hand_over(replace(spec, owned=True), waiting, timeout)
    read, write = os.pipe()
    try:
        return Owned(_start(replace(spec, owned=True), timeout, lifeline=read), write)
    except BaseException:
        os.close(write)
        raise
    finally:
        os.close(read)


def _hand_over(spec: SessionSpec, waiting: Waiting, timeout: float) -> Owned:
    try:
        spec.check()
        with open(waiting.specification, "wb") as file:
            file.write(spec.to_json())
        return Owned(_read_report(waiting.report, spec, timeout, b""), waiting.lifeline)
    except BrokenPipeError:
        os.close(waiting.lifeline)
        raise SpawnFailed(f"the keeper of '{spec.name}' ended before it was told what to keep") from None
    except BaseException:
        os.close(waiting.lifeline)
        raise
    finally:
        os.close(waiting.report)


def start_session(spec: SessionSpec, timeout: float = DEFAULT_START_TIMEOUT) -> Started:
    """Start a session and return when its socket answers. Raises what the keeper reports.

    The keeper is no child of the caller when this returns: nothing that happens to the caller's process,
    terminal or process session reaches it.
    """
    return _start(spec, timeout, lifeline=None)


def _start(spec: SessionSpec, timeout: float, *, lifeline: int | None) -> Started:
    import subprocess

    spec.check()
    report_read, report_write = os.pipe()
    passed = (report_write,) if lifeline is None else (report_write, lifeline)
    try:
        # -P: a json.py in the user's folder is not ours to import.
        command = [sys.executable, "-P", "-m", "remuda.keeper", str(report_write), spec.name]
        command += [str(lifeline)] if lifeline is not None else []
        starter = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=passed,
            start_new_session=True,
        )
        os.close(report_write)
        report_write = -1
        try:
            _, complaint = starter.communicate(spec.to_json(), timeout)
        except subprocess.TimeoutExpired:
            starter.kill()
            starter.communicate()
            raise SpawnTimeout(f"the keeper of '{spec.name}' did not come up within {timeout:g} s") from None
        return _read_report(report_read, spec, timeout, complaint)
    finally:
        os.close(report_read)
        if report_write >= 0:
            os.close(report_write)


def _read_report(fd: int, spec: SessionSpec, timeout: float, complaint: bytes) -> Started:
    data = _read_until_closed(fd, timeout)
    if data is None:
        raise SpawnTimeout(f"session '{spec.name}' was not ready within {timeout:g} s")
    if not data:
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        raise SpawnFailed(
            f"the keeper of '{spec.name}' ended before it reported{': ' + last if last else ''}"
        )
    report: dict[str, Any] = json.loads(data)
    if not report["ok"]:
        raise from_code(report["code"], report["message"], report["hint"])
    return Started(report["pid"], report["child_pid"])


def _read_until_closed(fd: int, timeout: float) -> bytes | None:
    """All that is written before the last writer closes; None when that takes too long."""
    deadline = time.monotonic() + timeout
    pieces: list[bytes] = []
    while True:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        piece = os.read(fd, 65536)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
