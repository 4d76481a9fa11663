"""Brings the pinned Claude Code binary into the cache, out of the PyPI wheel that carries it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

VERSION = "2.1.325"
OPT_OUT = "REMUDA_NO_REAL_CLI"
NOT_TESTED = (
    f"{OPT_OUT}=1: nothing is tested against the real Claude Code CLI ({VERSION}), tests/real is skipped"
)

_REQUIREMENT = "claude-agent-sdk==0.2.182"
_MEMBER = "claude_agent_sdk/_bundled/claude"
# Of the binary itself, where it was seen. Elsewhere the index's hash of the wheel, checked by pip, must do.
_SHA256 = {
    ("Linux", "x86_64"): "0dc4f4a9a165fc60746d7ae8489712e5fc352f1e7ad4eb22e7141bd0812eb0cf",
}
_DOWNLOAD_TIMEOUT = 1800.0
_BLOCK_BYTES = 1 << 20


class FetchError(Exception):
    """The binary cannot be had; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A binary that is in the cache, and how far it was checked."""

    path: Path
    sha256_checked: bool

    def __str__(self) -> str:
        checked = (
            "sha256 checked" if self.sha256_checked else "wheel hash checked by pip; no sha256 known here"
        )
        return f"claude {VERSION} at {self.path} ({checked})"


def opted_out() -> bool:
    """Whether the caller chose to go without the real CLI."""
    return os.environ.get(OPT_OUT) == "1"


def binary_path() -> Path:
    """Where the cached binary is, or would be."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "remuda" / "claude-code" / VERSION / "claude"


def fetch() -> Fetched:
    """The pinned binary, downloaded unless the cache has it. Safe to call in many processes at once."""
    path = binary_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.parent / ".lock"):
            if not path.exists():
                _download(path)
            return Fetched(path, _checked(path))
    except (OSError, zipfile.BadZipFile) as error:
        raise FetchError(f"claude {VERSION} cannot be brought to {path}: {error}") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(path: Path) -> None:
    """Put the binary at ``path`` by a rename from its own folder: it is never there in part or unchecked."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as folder:
        wheel = _download_wheel(Path(folder))
        part = Path(folder) / "claude"
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as packed, open(part, "wb") as out:
            while block := packed.read(_BLOCK_BYTES):
                out.write(block)
        _checked(part)
        part.chmod(0o755)
        part.replace(path)


def _download_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--quiet", "--disable-pip-version-check", "--dest", str(folder), _REQUIREMENT]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{_REQUIREMENT} was not downloaded within {_DOWNLOAD_TIMEOUT:g} s") from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        raise FetchError(
            f"{_REQUIREMENT} cannot be downloaded ({_reason(done.stderr)}). "
            f"Set {OPT_OUT}=1 to test without the real CLI."
        )
    return wheels[0]


def _reason(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.startswith("ERROR")] or stderr.splitlines()
    return lines[-1] if lines else "pip said nothing"


def _sha256(path: Path) -> str:
    with open(path, "rb") as binary:
        return hashlib.file_digest(binary, "sha256").hexdigest()


def _checked(path: Path) -> bool:
    """Whether a pinned hash vouches for the file. A wrong one is an error: such a file must not be run."""
    pinned = _SHA256.get((platform.system(), platform.machine()))
    if pinned is None:
        return False
    digest = _sha256(path)
    if digest != pinned:
        raise FetchError(f"{path} is not the pinned binary: its sha256 is {digest}, not {pinned}. Remove it.")
    return True
