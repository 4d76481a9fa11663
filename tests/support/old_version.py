"""Version 0.1 (commit 76f0a55), installed from git history, and commands of either version in one home."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from support.heimdall_client import PATIENCE

COMMIT = "76f0a55"
NEW = Path(sys.executable)
"""The interpreter that has this version."""
_ROOT = Path(__file__).resolve().parents[2]


@cache
def is_in_history() -> bool:
    """False in a shallow clone, and in a source archive."""
    command = ["git", "-C", str(_ROOT), "cat-file", "-e", f"{COMMIT}^{{commit}}"]
    return not subprocess.run(command, capture_output=True, check=False).returncode


NOT_TESTED = f"NOT TESTED: upgrades from version 0.1; git history without commit {COMMIT} (shallow clone?)"


def install_old(folder: Path) -> Path:
    """Install version 0.1 with the dependencies of this one. Returns its interpreter.

    It has a virtual environment of its own, so that everything it starts is of the same version.
    """
    source = folder / "source"
    archive = subprocess.run(["git", "-C", _ROOT, "archive", COMMIT, "src"], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(source, filter="data")
    return make_environment(folder / "venv", source / "src")


def make_environment(folder: Path, source: Path) -> Path:
    """Make a virtual environment whose `remuda` is the package in `source`. Returns its interpreter."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    # Ours is installed in editable form, through a .pth file, and such files are not read from here.
    site = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (site / "versions.pth").write_text(f"{source}\n{sysconfig.get_path('purelib')}\n")
    return python


class Machine:
    """A user's home, in which commands of any version run."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.project = home / "project"
        self.project.mkdir(parents=True, exist_ok=True)
        kept = {name: os.environ[name] for name in os.environ if name in ("PATH", "REMUDA_TEST_RUN")}
        self.env = kept | {
            "HOME": str(home),
            "REMUDA_HOME": str(home / "state"),
            "TMUX_TMPDIR": str(home),
            "TERM": "xterm-256color",
            "SHELL": "/bin/bash",
            "LC_ALL": "C.UTF-8",
            "MOCK_TIME_SCALE": "0.01",
            "MOCK_DIALOG_GUARD": "0",
        }

    def run(self, python: Path, words: Sequence[str], *, code: int | None = 0) -> str:
        """Run `remuda WORDS` to its end, which must be `code` unless that is None. Returns its output."""
        return self._ran(python, words, code).stdout

    def error(self, python: Path, words: Sequence[str], *, code: int) -> str:
        """Run a command that must fail. Returns what it says on stderr."""
        return self._ran(python, words, code).stderr

    def _ran(self, python: Path, words: Sequence[str], code: int | None) -> subprocess.CompletedProcess[str]:
        ran = subprocess.run(
            [python, "-m", "remuda", *words],
            env=self.env,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE,
            check=False,
        )
        assert code is None or ran.returncode == code, (words, ran.returncode, ran.stdout, ran.stderr)
        return ran

    def json(self, python: Path, *words: str) -> Any:
        return json.loads(self.run(python, [*words, "--json"]))

    @contextmanager
    def pool(self, python: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """Serve a pool until the end of the block. It is killed there if it still runs."""
        served = subprocess.Popen(
            [python, "-m", "remuda", "pool", "serve", *words],
            env=self.env,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert served.stdout is not None
        try:
            assert served.stdout.readline(), "the pool did not start"
            yield served
        finally:
            served.kill()
            served.communicate()

    def close(self) -> None:
        """End the boss, and every session. What runs on is reported at the end of the suite."""
        self.run(NEW, ["down", "--force"], code=None)
        self.run(NEW, ["kill", "--all", "--yes", "--grace", "0"], code=None)
