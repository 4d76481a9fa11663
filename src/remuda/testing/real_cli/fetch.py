"""Brings Claude Code binaries into the cache: the pinned version, and older ones that we test as well.

The pinned version comes out of the PyPI wheel that carries it, older ones out of their npm packages. What is
downloaded must have the hash that is written here; anything else is not run.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

PINNED = "2.1.325"
VERSION_VARIABLE = "REMUDA_CLAUDE_VERSION"
VERSION = os.environ.get(VERSION_VARIABLE) or PINNED
"""The version that tests run on: the pinned one, unless the environment names another of `OLDER`."""
OPT_OUT = "REMUDA_NO_REAL_CLI"
NOT_TESTED = (
    f"{OPT_OUT}=1: nothing is tested against the real Claude Code CLI ({VERSION}), tests/real is skipped"
)

_REQUIREMENT = "claude-agent-sdk==0.2.182"
_MEMBER = "claude_agent_sdk/_bundled/claude"
_PLATFORM = ("Linux", "x86_64")
# Of the binary itself, where it was seen. Elsewhere the index's hash of the wheel, checked by pip, must do.
_SHA256 = {
    _PLATFORM: "0dc4f4a9a165fc60746d7ae8489712e5fc352f1e7ad4eb22e7141bd0812eb0cf",
}
_NPM_PACKAGE = "@anthropic-ai/claude-code-linux-x64"
_NPM_MEMBER = "package/claude"


class _Pin(NamedTuple):
    integrity: str
    """Of the npm package, as npm writes it."""
    sha256: str
    """Of the binary in it."""


_PINS = {
    "2.1.197": _Pin(
        "sha512-rIlKmrY0QMyHgPRX/MYWNj039vbypICvI9jVe3rs9Xy2RnNklySjyPxqh62QadznzoftEO23uYQ1tFePcQ//bg==",
        "f54e69cbc89b2da61a415700af7ff52a147e862517d4f1b0eecf768448cf7f83",
    ),
    "2.1.240": _Pin(
        "sha512-cyQBaMWj9svNFgO07Xu24CB2F/KMv/PTGm8KwX9mcOYR5m1VO7IQQ2HB+dWh6zG02FOfSeKLd/Rbw+wsuIecaA==",
        "1386169da77de19a655f07a86ab80f5775983a50eb0c9c27a7daf16e7320322d",
    ),
    "2.1.280": _Pin(
        "sha512-dJHWFrDSIZ26hdLucnK3ehLmzdzYl3MsPC1RzUctAUaYnZlH5kfAZxnK8qYRAQ89GX3OPrLsnFdt/QnP+0Ck6Q==",
        "1e08503dbdf3c2cb0d706d32f3408277388d1c76ef108673e8fe42c1b322925b",
    ),
    "2.1.300": _Pin(
        "sha512-oW4/i4gBd0Y7vqKToK+RaO/fZm4oZWAA81CJ1s0afg+bP+OH9QJdOXKDDwQ9eizcV78a44mQAbce5WYsN18CAw==",
        "674deba0bba9aee479f4503c438b49303b6fdd304b9a471b14977aaec5215453",
    ),
    "2.1.315": _Pin(
        "sha512-ddLOG53Qf6/mmgFG5JZ9FrKeTGvHdiiq3XOzOiQ04SA2dCcDLv3Hvolh4O18DSMMgrBIv2wNw10FIWlP/3VMzQ==",
        "a3b9d66caf61b40d6aad99ed4de80f48f17e0e024ddf1b6e4289efade06105df",
    ),
    "2.1.324": _Pin(
        "sha512-fXVJFH5sE+FmB6HQDWcYOHu5nWhJjbi8atUiBXBPsmxsiTjlbDrF+bIGD16tOc9RZKv3SbDAL0phot53Eh5tSA==",
        "bf6a59f62a3116d673260b6098cf35898cfdf336e677d73c3416fdb51f03c2f7",
    ),
}
OLDER = tuple(_PINS)
"""Versions that can be fetched in addition to the pinned one, on Linux x86-64."""
_DOWNLOAD_TIMEOUT = 1800.0
_BLOCK_BYTES = 1 << 20


class FetchError(Exception):
    """The binary cannot be had; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A binary that is in the cache, and how far it was checked."""

    path: Path
    sha256_checked: bool
    version: str = PINNED

    def __str__(self) -> str:
        checked = (
            "sha256 checked" if self.sha256_checked else "wheel hash checked by pip; no sha256 known here"
        )
        return f"claude {self.version} at {self.path} ({checked})"


def opted_out() -> bool:
    """Whether the caller chose to go without the real CLI."""
    return os.environ.get(OPT_OUT) == "1"


def binary_path(version: str = VERSION) -> Path:
    """Return where the cached binary is, or would be."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "remuda" / "claude-code" / version / "claude"


def fetch(version: str = VERSION) -> Fetched:
    """Return the binary, downloaded unless the cache has it. Safe to call in many processes at once."""
    if version not in (PINNED, *OLDER):
        raise FetchError(f"no hash is pinned for claude {version}; known are {', '.join((*OLDER, PINNED))}")
    if version != PINNED and _platform() != _PLATFORM:
        raise FetchError(f"claude {version} is pinned for {' '.join(_PLATFORM)} only")
    path = binary_path(version)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.parent / ".lock"):
            if not path.exists():
                _download(path, version)
            return Fetched(path, _checked(path, version), version)
    except (OSError, zipfile.BadZipFile, tarfile.TarError, KeyError) as error:
        raise FetchError(f"claude {version} cannot be brought to {path}: {error}") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(path: Path, version: str) -> None:
    """Put the binary at ``path`` by a rename from its own folder: it is never there in part or unchecked."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as folder:
        part = Path(folder) / "claude"
        if version == PINNED:
            with zipfile.ZipFile(_download_wheel(Path(folder))) as wheel, wheel.open(_MEMBER) as packed:
                _copy(packed, part)
        else:
            with tarfile.open(_download_package(Path(folder), version)) as package:
                _copy(_opened(package), part)
        _checked(part, version)
        part.chmod(0o755)
        part.replace(path)


def _opened(package: tarfile.TarFile) -> IO[bytes]:
    packed = package.extractfile(_NPM_MEMBER)
    if packed is None:
        raise KeyError(f"{_NPM_MEMBER} is not a file")
    return packed


def _copy(packed: IO[bytes], part: Path) -> None:
    with open(part, "wb") as out:
        while block := packed.read(_BLOCK_BYTES):
            out.write(block)


def _download_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--quiet", "--disable-pip-version-check", "--dest", str(folder), _REQUIREMENT]
    return _downloaded(command, _REQUIREMENT, folder, "*.whl")


def _download_package(folder: Path, version: str) -> Path:
    """Download the npm package and check it against our pinned hash; npm checks only the registry's."""
    name = f"{_NPM_PACKAGE}@{version}"
    if shutil.which("npm") is None:
        raise FetchError(f"npm is not on the PATH; it downloads {name}")
    command = ["npm", "pack", "--ignore-scripts", "--silent", "--pack-destination", str(folder), name]
    package = _downloaded(command, name, folder, "*.tgz")
    with open(package, "rb") as file:
        digest = base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode()
    if f"sha512-{digest}" != _PINS[version].integrity:
        raise FetchError(f"{name} is not the pinned package: its integrity is sha512-{digest}")
    return package


def _downloaded(command: list[str], what: str, folder: Path, pattern: str) -> Path:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{what} was not downloaded within {_DOWNLOAD_TIMEOUT:g} s") from error
    files = list(folder.glob(pattern))
    if done.returncode != 0 or not files:
        raise FetchError(
            f"{what} cannot be downloaded ({_reason(done.stderr)}). "
            f"Set {OPT_OUT}=1 to test without the real CLI."
        )
    return files[0]


def _reason(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.startswith("ERROR")] or stderr.splitlines()
    return lines[-1] if lines else "it said nothing"


def _sha256(path: Path) -> str:
    with open(path, "rb") as binary:
        return hashlib.file_digest(binary, "sha256").hexdigest()


def _platform() -> tuple[str, str]:
    return platform.system(), platform.machine()


def _checked(path: Path, version: str) -> bool:
    """Whether a pinned hash vouches for the file. A wrong one is an error: such a file must not be run."""
    pinned = _SHA256.get(_platform()) if version == PINNED else _PINS[version].sha256
    if pinned is None:
        return False
    digest = _sha256(path)
    if digest != pinned:
        raise FetchError(f"{path} is not the pinned binary: its sha256 is {digest}, not {pinned}. Remove it.")
    return True
