"""`remuda print` under test: calls on the scripted agent, calls next to the test, and what they leave."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.keeper.claim import read_holder
from remuda.paths import SessionPaths
from remuda.process_table import with_variable
from support.commands import COMMAND, Commands, Done
from support.keeper import Process, until

PATIENCE = 60.0
_NAME = re.compile(r"(?:print|kept)-\d+-[0-9a-f]{6}")
TAIL = "exec tail -f /dev/null"
"""A tool that ends only when it is ended."""
ORDERLY_TRIES = 4
"""An agent that takes longer than it may is killed, and out of a tool it may take nearly that long."""


def processes_of(name: str) -> Iterator[int]:
    """All that the agent of that session started, in any folder."""
    return with_variable("REMUDA_SESSION", name)


@contextlib.contextmanager
def no_reader() -> Iterator[int]:
    """A pipe that no one reads from."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)


def write_program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def scripted_agent(home: Path) -> Path:
    """The scripted agent as a program, which also writes its environment down."""
    return write_program(
        home / "claude",
        f"#!/bin/sh\nenv > {home}/agent.env\n"
        f'exec {sys.executable} -P -m remuda.testing.scripted_agent "$@"\n',
    )


class Calls:
    """Calls of `remuda print`; by default on the scripted agent, whose home is that of the commands."""

    def __init__(
        self,
        remuda: Commands,
        binary: Path | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.remuda = remuda
        self.home = remuda.home
        self.sessions = remuda.sessions
        self.cwd = cwd or remuda.cwd
        self.binary = binary or scripted_agent(self.home)
        inherited = {name: value for name, value in remuda.env.items() if not name.startswith("CLAUDE")}
        self.env = inherited if env is None else {**env, "REMUDA_HOME": str(self.home)}
        self._running: list[Call] = []

    def words(self, *words: str) -> list[str]:
        return [*COMMAND, "print", "--claude-binary", str(self.binary), *words]

    def __call__(
        self,
        *words: str,
        code: int = 0,
        stdin: bytes | None = b"",
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        cwd: Path | None = None,
    ) -> Done:
        done = subprocess.run(
            [*prefix, *self.words(*words)],
            input=stdin,
            env={**self.env, **(env or {})},
            cwd=cwd or self.cwd,
            capture_output=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert done.returncode == code, (words, done.returncode, out, err)
        return Done(out, err)

    def json(self, *words: str, **more: Any) -> dict[str, Any]:
        found = json.loads(self("--output-format", "json", *words, **more).out)
        assert isinstance(found, dict)
        return found

    def hangs(self, *words: str, on: str, **more: Any) -> str:
        """A call that runs out of time says what it hung on; on a busy machine it may come there late."""
        said = ""
        for seconds in (3, 12, 50):
            said = self(*words, "--timeout", str(seconds), code=124, **more).err
            if on in said:
                return said
        raise AssertionError(f"never hung on {on!r}: {said}")

    def begin(self, *words: str, env: Mapping[str, str] | None = None, **more: Any) -> Call:
        """A call beside the test; `--trace` says how far it is."""
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **more}
        process = subprocess.Popen(
            self.words("--trace", *words),
            env={**self.env, **(env or {})},
            cwd=self.cwd,
            stderr=subprocess.PIPE,
            **given,
        )
        call = Call(self, process)
        self._running.append(call)
        return call

    def left(self) -> list[str]:
        """Files and processes of calls that are over."""
        names = set()
        if self.sessions.exists():
            names = {found[0] for entry in os.listdir(self.sessions) if (found := _NAME.search(entry))}
        names |= {call.name for call in self._running if call.name}
        files = list(os.listdir(self.sessions)) if self.sessions.exists() else []
        processes = [f"process {pid} of {name}" for name in names for pid in processes_of(name)]
        return files + processes

    def assert_nothing_left(self) -> float:
        """Waits for it; how long that took."""
        began = time.monotonic()
        until(lambda: not self.left(), "the end of all that calls had started")
        return time.monotonic() - began

    def close(self) -> None:
        for call in self._running:
            call.close()


class Call:
    """One that runs next to the test."""

    def __init__(self, calls: Calls, process: subprocess.Popen[bytes]) -> None:
        self._calls = calls
        self.process = process
        self.name = ""
        self.said: list[str] = []

    def until(self, stage: str) -> Call:
        """Read what it says of itself up to this stage."""
        for line in self._lines():
            if stage in line:
                return self
        raise AssertionError(f"it ended before it was {stage!r}: {self.said}")

    def _lines(self) -> Iterator[str]:
        assert self.process.stderr is not None
        for data in self.process.stderr:
            line = data.decode().rstrip("\n")
            self.said.append(line)
            if found := _NAME.search(line):
                self.name = found[0]
            yield line

    @property
    def paths(self) -> SessionPaths:
        assert self.name
        return SessionPaths(self._calls.sessions, self.name)

    def keeper(self) -> Process:
        def known() -> int:
            holder = read_holder(self.paths)
            return holder.keeper_pid if holder is not None else 0

        return Process(until(known, "the keeper"))

    def agent(self) -> Process:
        def known() -> int:
            holder = read_holder(self.paths)
            return holder.child_pid if holder is not None else 0

        return Process(until(known, "the agent"))

    def ended(self) -> tuple[int, str, str]:
        """Its exit code, and what it printed and said from now on."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, (out or b"").decode(), "\n".join([*self.said, err.decode()])

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


_AT_ITS_SETTINGS = """#!/bin/sh
previous=
for word; do
    if [ "$previous" = --settings ]; then
        settings=$word
    fi
    previous=$word
done
{step}
exec {binary} "$@"
"""


def without_hooks(home: Path, binary: Path, port: int) -> Path:
    """The agent, its hooks pointed at another port: as if ours could not be reached."""
    step = f'sed -i "s#127.0.0.1:[0-9]*/hook#127.0.0.1:{port}/hook#" "$settings"'
    (folder := home / "unreachable").mkdir()
    return write_program(folder / "claude", _AT_ITS_SETTINGS.format(step=step, binary=binary))


class HeldStart:
    """The agent, which names the port of its hooks and starts when it is let go."""

    def __init__(self, home: Path, binary: Path) -> None:
        (folder := home / "held").mkdir()
        self._settings, self._go = folder / "settings", folder / "go"
        for path in (self._settings, self._go):
            os.mkfifo(path)
        step = f'cat "$settings" > {self._settings}; read _ < {self._go}'
        self.binary = write_program(folder / "claude", _AT_ITS_SETTINGS.format(step=step, binary=binary))

    def port(self) -> int:
        found = re.search(r"127\.0\.0\.1:(\d+)/hook", self._settings.read_text())
        assert found
        return int(found[1])

    def let_go(self) -> None:
        self._go.write_text("\n")


def transcripts(calls: Calls) -> list[list[dict[str, Any]]]:
    found = sorted((calls.home / ".claude" / "projects").glob("*/*.jsonl"))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in found]


def prompts(calls: Calls) -> list[str]:
    """What the agent took as prompts, by conversation."""
    return [
        record["message"]["content"]
        for records in transcripts(calls)
        for record in records
        if record["type"] == "user" and isinstance(record["message"]["content"], str)
    ]
