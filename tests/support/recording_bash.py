"""A bash in which only recorders run."""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

NOBODY = 65534
BASH = shutil.which("bash") or "/bin/bash"
_RECORDED = ("rm", "sudo", "git", "npm", "ls", "cargo", "pytest")
_REAL = (
    *(
        "env",
        "xargs",
        "bash",
        "sh",
        "dash",
        "find",
        "awk",
        "sed",
        "nice",
        "timeout",
        "setsid",
        "nohup",
        "stdbuf",
    ),
    *(
        "cat",
        "head",
        "tail",
        "sort",
        "uniq",
        "tr",
        "wc",
        "grep",
        "cut",
        "true",
        "false",
        "setarch",
        "setpriv",
    ),
    *(
        "prlimit",
        "python3",
        "perl",
        "make",
        "script",
        "tee",
        "chmod",
        "cp",
        "ln",
        "mkdir",
        "dirname",
        "basename",
    ),
    *(
        "seq",
        "rev",
        "base64",
        "split",
        "tar",
        "xxd",
        "date",
        "ionice",
        "flock",
        "unshare",
        "printf",
        "echo",
        "test",
    ),
)


@dataclass(frozen=True, slots=True)
class Ran:
    programs: tuple[tuple[str, ...], ...]
    """What the recorders were called with, in order."""
    traced: tuple[str, ...] = ()
    """What bash itself said that it runs."""


class RecordingBash:
    """Runs commands with a PATH of recorders and of tools that run others; as root, as another user."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.programs = folder / "bin"
        self._log = folder / "log"
        self._trace = folder / "trace"
        self.work = folder / "work"
        self.programs.mkdir()
        # One write: recorders may run at the same time.
        for name in _RECORDED:
            self._write(name, f"#!{BASH} -p\nprintf '%s\\0' {name} \"$@\" $'\\036' >> {self._log}\n")
        self._write("oddrun", f'#!{BASH} -p\n"$@"\n')
        self._write("oddeval", f'#!{BASH} -p\n{BASH} -c "$*"\n')
        self._write("oddstdin", f"#!{BASH} -p\n{BASH}\n")
        for name in _REAL:
            if found := shutil.which(name):
                (self.programs / name).symlink_to(found)
        folder.chmod(0o755)

    def _write(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def run(self, command: str, *, trace: bool = False) -> Ran:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(mode=0o777)
        self.work.chmod(0o777)
        for path in (self._log, self._trace):
            path.write_bytes(b"")
            path.chmod(0o666)
        (self.work / "x").write_text("echo\n")
        line = f'set -T; trap \'printf "%s\\\\0" "$BASH_COMMAND" >> {self._trace}\' DEBUG\n' if trace else ""
        with subprocess.Popen(
            [BASH, "-c", line + command],
            cwd=self.work,
            env={"PATH": str(self.programs), "HOME": str(self.work), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_confine,
        ) as process:
            _read_to_end(process)
            # Not reaped yet: the number of its group cannot belong to another.
            os.killpg(process.pid, signal.SIGKILL)
        calls = self._log.read_bytes().decode(errors="replace").split("\x1e\0")[:-1]
        traced = self._trace.read_bytes().decode(errors="replace").split("\0")[:-1]
        return Ran(tuple(tuple(call.split("\0")[:-1]) for call in calls), tuple(traced))


def _confine() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def _read_to_end(process: subprocess.Popen[bytes]) -> None:
    """Until everything that was started has closed its stderr, jobs in the background, too; 5 s at most."""
    assert process.stderr is not None
    deadline = time.monotonic() + 5
    while select.select([process.stderr], [], [], max(0.0, deadline - time.monotonic()))[0]:
        if not os.read(process.stderr.fileno(), 1 << 16):
            break
