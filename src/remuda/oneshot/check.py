"""`remuda print --check` and `--version`: try a call with the scripted agent, which needs no account."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from remuda._version import __version__
from remuda.agents import agent_setups, find_agent, find_headless
from remuda.agents.headless import TurnEnd
from remuda.errors import RemudaError
from remuda.paths import private_folder, sessions_folder

from .leftovers import MIN_AGE, leftovers, remove
from .output import PrintProgram, write
from .print_request import PrintRequest
from .print_session import CallSession
from .run import find_binary, find_command
from .terminal_call import TerminalCall

_VERSION = re.compile(r"\d+(?:\.\d+)+\S*")
_VERSION_TIMEOUT = 20.0
_CALL_TIMEOUT = 60.0
_PROMPT = "remuda print --check"


class CheckStep(NamedTuple):
    """One line of the check."""

    what: str
    failure: str = ""


def show_version(request: PrintRequest) -> int:
    program = find_headless(request.agent).program
    write(f"{PrintProgram.name} {__version__} (wrapping {program} {agent_version(request)})\n")
    return 0


def agent_version(request: PrintRequest) -> str:
    """Return the version that the agent prints, or `unknown`."""
    try:
        done = subprocess.run(
            [*find_command(request), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT,
            check=False,
        )
    except (RemudaError, OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return "unknown"
    version = _VERSION.search(done.stdout)
    return version[0] if version else "unknown"


def check(request: PrintRequest) -> int:
    """Print one line for each step. Return 0, or 2 when something does not work."""
    folder = sessions_folder()
    steps = [_agent(request), _terminal(), _folder(folder), try_call()]
    for step in steps:
        write(f"FAIL: {step.what}: {step.failure}\n" if step.failure else f"OK: {step.what}\n")
    failed = any(step.failure for step in steps)
    for line, is_failure in _leftovers(folder, clean=request.clean):
        write(f"{line}\n")
        failed = failed or is_failure
    return 2 if failed else 0


def _agent(request: PrintRequest) -> CheckStep:
    try:
        return CheckStep(f"agent: {find_binary(request)}, version {agent_version(request)}")
    except RemudaError as error:
        return CheckStep("agent", str(error))


def _terminal() -> CheckStep:
    try:
        for fd in os.openpty():
            os.close(fd)
    except OSError as error:
        return CheckStep("terminal", f"cannot open a PTY: {error.strerror or error}")
    return CheckStep("terminal: a PTY can be opened")


def _folder(folder: Path) -> CheckStep:
    try:
        private_folder(folder)
    except RemudaError as error:
        return CheckStep("session folder", str(error))
    return CheckStep(f"session folder: {folder}")


def try_call() -> CheckStep:
    """Run a call with the scripted agent, with a home of its own: the user's is not touched."""
    what = "test run: the demo agent answers"
    with tempfile.TemporaryDirectory(prefix="remuda-check-") as home:
        folders = {name for setup in agent_setups() for name in setup.folder_variables}
        env = {name: value for name, value in os.environ.items() if name not in folders} | {"HOME": home}
        request = PrintRequest(timeout=_CALL_TIMEOUT, demo=True)
        session = CallSession(
            request,
            _PROMPT,
            find_agent(request.agent).default_argv,
            agent=request.agent,
            folder=private_folder(Path(home, "s")),
            env=env,
            cwd=private_folder(Path(home, "project")),  # hooks of the user's project are not checked here
        )
        call = TerminalCall(session, request, lambda _: None)
        try:
            return _judge(what, call.run())
        except RemudaError as error:
            return CheckStep(what, str(error))
        finally:
            call.close()
            call.wait_gone()


def _judge(what: str, ended: TurnEnd) -> CheckStep:
    if ended.is_error or _PROMPT not in (ended.text or ""):
        return CheckStep(what, f"its answer was {ended.text or ended.errors!r}")
    return CheckStep(what)


def _leftovers(folder: Path, *, clean: bool) -> Iterator[tuple[str, bool]]:
    """Yield a line about each session that a killed call left, and whether it is a failure."""
    for paths in list(leftovers(folder, min_age=MIN_AGE if clean else 0.0)):
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
