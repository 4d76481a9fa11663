"""The keeper process: claims the name, starts the program, keeps it, and cleans up afterwards.

A program with one prompt of its own is started first of all, and its keeper is loaded in parallel. Any other
program is started when everything it needs is ready.

`start.py` starts this process with the specification on standard input and one descriptor to report to:
either what runs now, or why it does not. From then on it depends on no other process: it has its own process
session, no terminal, and a parent that is already gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.errors import FolderUnusable, RemudaError, SessionDead, unusable
from remuda.paths import SessionPaths
from remuda.readable import is_readable

from .begin import begin_at_once
from .claim import Claim
from .spec import SessionSpec

if TYPE_CHECKING:
    from .prepare import Prepared


class StartReport:
    """The one message to the process that started us, on a line of its own."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        os.set_inheritable(fd, False)

    def is_wanted(self) -> bool:
        """Return whether the starter still waits for it.

        The starter never writes there; it only closes its end.
        """
        return self._fd >= 0 and not is_readable(self._fd, 0.0)

    def check_wanted(self) -> None:
        """End the process if the starter gave up: it has reported a failure."""
        if not self.is_wanted():
            raise SystemExit("the starter has given up")

    def send(self, document: dict[str, Any]) -> None:
        if (fd := self.send_first(document)) >= 0:
            os.close(fd)

    def send_first(self, document: dict[str, Any]) -> int:
        """Send the first document. Return the descriptor, so that more can follow; -1 if it was used."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):  # the starter may be gone
                os.write(fd, json.dumps(document).encode() + b"\n")
        return fd


def _detach() -> None:
    """Leave the starter for good. It began a process session for us; we give up leading it as well."""
    if os.fork():
        os._exit(0)
    settle()


def settle() -> None:
    """Close everything of the starter's: its terminal, folder and standard streams."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


@contextlib.contextmanager
def _reporting(report: StartReport) -> Iterator[None]:
    try:
        yield
    except RemudaError as error:
        report.send({"ok": False, "code": error.code, "message": error.message, "hint": error.hint})
        raise SystemExit(error.exit_code) from error
    except Exception as error:
        import logging

        logging.getLogger("remuda.keeper").exception("keeper failed")
        known = unusable(error) if isinstance(error, OSError) else RemudaError(str(error))
        said = {"message": f"keeper failed: {known.message}", "hint": known.hint}
        report.send({"ok": False, "code": "SPAWN_FAILED", **said})
        raise


def main() -> None:
    report = StartReport(int(sys.argv[1]))
    lifeline = int(sys.argv[3]) if len(sys.argv) > 3 else None
    if lifeline is not None:
        os.set_inheritable(lifeline, False)
    spec = SessionSpec.from_json(sys.stdin.buffer.read())
    _detach()
    sys.exit(run_keeper(spec, report, lifeline))


def run_keeper(spec: SessionSpec, report: StartReport, lifeline: int | None) -> int:
    """Run the session to its end, in a process that is detached already. Returns the exit code."""
    with _reporting(report):
        spec.check()
        paths = SessionPaths.of(spec.name, Path(spec.folder))
        # so that its name is not used twice
        claim = _claim(paths, spec) if not spec.ephemeral else Claim.take(paths)
        try:
            claim.write_pids(os.getpid(), 0)
            report.check_wanted()
            claim.listen()  # before the program runs, whose first hook may be quicker than the rest of us
            code = _prepare_and_keep(spec, claim, report, lifeline)
        finally:
            with contextlib.suppress(OSError):  # the log says so already
                claim.release()
    return code if 0 <= code <= 255 else 1


def _claim(paths: SessionPaths, spec: SessionSpec) -> Claim:
    """Raise `SessionExists` also when a session of that name still runs without its files, or its keeper."""
    from .hidden import check_hidden
    from .survivors import check_survivors

    check_hidden(paths)
    claim = Claim.take(paths)
    try:
        check_survivors(paths)
        if spec.unless_killed:
            _check_wanted(paths)
    except BaseException:
        claim.release()
        raise
    return claim


def _check_wanted(paths: SessionPaths) -> None:
    """Raise `SessionDead` if a user has ended the session. The claim keeps others from it."""
    from .record import SessionRecord
    from .restart import KILLED

    record = SessionRecord.load(paths.record)
    if record is None or record.killed or record.end_reason == KILLED:
        raise SessionDead(f"session '{paths.name}' was killed")


def _prepare_and_keep(spec: SessionSpec, claim: Claim, report: StartReport, lifeline: int | None) -> int:
    try:
        prepared = _prepare(spec, claim.paths)
        try:
            load_asyncio()
            from .main import run  # loading takes as long as the program needs to show itself
        except BaseException:
            prepared.begun.abandon()
            raise
        return run(spec, claim, prepared, report, lifeline)
    except BaseException:
        import shutil

        from .record import remove_traces

        shutil.rmtree(claim.paths.scratch, ignore_errors=True)
        if spec.ephemeral:
            remove_traces(claim.paths)
        raise


def load_asyncio() -> None:
    """Import asyncio without TLS, which it would load where there is any: 4 MB, and a keeper only uses
    loopback.
    """
    known = "ssl" in sys.modules
    if not known:
        sys.modules["ssl"] = None  # type: ignore[assignment]  # as where Python was built without it
    try:
        import asyncio  # noqa: F401
    finally:
        if not known:
            del sys.modules["ssl"]


def _prepare(spec: SessionSpec, paths: SessionPaths) -> Prepared:
    begun = begin_at_once(spec, paths) if spec.once else None
    try:
        _open_log(spec, paths)
        from .prepare import prepare

        return prepare(spec, paths, begun)
    except BaseException:
        if begun is not None:
            begun.abandon()
        raise


def _open_log(spec: SessionSpec, paths: SessionPaths) -> None:
    from .logfile import open_log

    path = Path(spec.log_file) if spec.log_file else paths.log
    try:
        open_log(path, spec.log_level, spec.log_filter, spec.log_max_bytes)
    except OSError as error:
        raise FolderUnusable(f"cannot write the log {path}: {error.strerror}") from error
