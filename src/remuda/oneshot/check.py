"""`remuda print --check`: does a call work here? On the scripted agent, without any account."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from remuda._version import __version__
from remuda.agents.demo import DemoAgent
from remuda.errors import RemudaError
from remuda.paths import private_folder, sessions_folder

from .output import Program, write
from .remains import YOUNG, remains, remove
from .request import Request
from .result import Ended
from .session import CallSession
from .terminal import TerminalCall

_VERSION = re.compile(r"\d+(?:\.\d+)+\S*")
_VERSION_TIMEOUT = 20.0
_TRIP_TIMEOUT = 60.0
_QUESTION = "remuda print --check"


class Step(NamedTuple):
    what: str
    failure: str = ""


def show_version(named: str | None) -> int:
    write(f"{Program.name} {__version__} (wrapping claude {claude_version(named)})\n")
    return 0


def claude_version(named: str | None) -> str:
    """`unknown` where it does not tell."""
    from .run import find_binary

    try:
        asked = subprocess.run(
            [find_binary(named), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT,
            check=False,
        )
    except (RemudaError, OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return "unknown"
    found = _VERSION.search(asked.stdout)
    return found[0] if found else "unknown"


def check(request: Request) -> int:
    """One line for each step. 0, or 2 when something does not work."""
    folder = sessions_folder()
    steps = [_claude(request.claude_binary), _terminal(), _folder(folder), round_trip()]
    for step in steps:
        write(f"FAIL: {step.what}: {step.failure}\n" if step.failure else f"OK: {step.what}\n")
    failed = any(step.failure for step in steps)
    for line, is_failure in _leftovers(folder, clean=request.clean):
        write(f"{line}\n")
        failed = failed or is_failure
    return 2 if failed else 0


def _claude(named: str | None) -> Step:
    from .run import find_binary

    try:
        return Step(f"agent: {find_binary(named)}, version {claude_version(named)}")
    except RemudaError as error:
        return Step("agent", str(error))


def _terminal() -> Step:
    try:
        for fd in os.openpty():
            os.close(fd)
    except OSError as error:
        return Step("terminal", f"cannot open a PTY: {error.strerror or error}")
    return Step("terminal: a PTY can be opened")


def _folder(folder: Path) -> Step:
    try:
        private_folder(folder)
    except RemudaError as error:
        return Step("session folder", str(error))
    return Step(f"session folder: {folder}")


def round_trip() -> Step:
    """A whole call on the scripted agent, with a home of its own: the user's is not touched."""
    what = "test run: the demo agent answers"
    with tempfile.TemporaryDirectory(prefix="remuda-check-") as home:
        env = {**os.environ, "HOME": home}
        env.pop("CLAUDE_CONFIG_DIR", None)
        request = Request(timeout=_TRIP_TIMEOUT)
        session = CallSession(
            request,
            _QUESTION,
            DemoAgent.default_argv,
            agent=DemoAgent.name,
            folder=private_folder(Path(home, "s")),
            env=env,
            cwd=private_folder(Path(home, "project")),  # hooks of the user's project are not what is tried
        )
        call = TerminalCall(session, request, lambda _: None, lambda _: None, lambda _: None)
        try:
            return _judged(what, call.run())
        except RemudaError as error:
            return Step(what, str(error))
        finally:
            call.close()
            call.wait_gone()


def _judged(what: str, ended: Ended) -> Step:
    if ended.is_error or _QUESTION not in (ended.text or ""):
        return Step(what, f"its answer was {ended.text or ended.errors!r}")
    return Step(what)


def _leftovers(folder: Path, *, clean: bool) -> Iterator[tuple[str, bool]]:
    """Lines about what is left of dead calls, and whether each tells of a failure."""
    for paths in list(remains(folder, older_than=YOUNG if clean else 0.0)):
        if not clean:
            yield (
                f"WARNING: {paths.name} is left from a killed run or pool; remove it with --check --clean",
                False,
            )
            continue
        try:
            remove(paths)
            yield f"CLEANED: {paths.name}", False
        except OSError as error:
            yield f"WARNING: cannot remove {paths.name}: {error}", True
