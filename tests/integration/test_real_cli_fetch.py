"""How the pinned binary is brought, and what is never taken for it. No test here downloads from anywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from remuda.testing.real_cli import OPT_OUT, VERSION

OLDER = "2.1.300"
HAS_PINS = sys.platform == "linux" and os.uname().machine == "x86_64"


def fetch(cache: Path, *versions: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it with an empty cache and no package index."""
    env = {
        name: value for name, value in os.environ.items() if not name.startswith("PIP_") and name != OPT_OUT
    }
    env |= {"XDG_CACHE_HOME": str(cache), "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", **variables}
    command = [sys.executable, "-m", "remuda.testing.real_cli", "fetch", *versions]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def left_in(cache: Path) -> list[str]:
    folder = cache / "remuda" / "claude-code" / VERSION
    return sorted(path.name for path in folder.iterdir())


def test_fetch_without_a_source_exits_1_with_the_reason(tmp_path: Path) -> None:
    done = fetch(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "No matching distribution" in done.stderr
    assert OPT_OUT in done.stderr
    assert left_in(tmp_path) == [".lock"]


def test_fetch_opted_out_says_what_is_not_tested(tmp_path: Path) -> None:
    done = fetch(tmp_path, **{OPT_OUT: "1"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    assert "nothing is tested" in done.stdout
    assert not (tmp_path / "remuda").exists()


def test_fetch_opted_out_of_one_agent_says_which(tmp_path: Path) -> None:
    done = fetch(tmp_path, "codex", "2.1.9", **{OPT_OUT: "codex,copilot"})
    assert "real CLI of codex" in done.stdout
    assert "no hash is pinned for claude 2.1.9" in done.stderr


@pytest.mark.skipif(not HAS_PINS or shutil.which("setarch") is None, reason="needs setarch on Linux x86_64")
def test_other_agents_are_left_out_by_name_where_no_package_is_pinned(tmp_path: Path) -> None:
    """Without this each of their tests would fail on such a machine: `make test` fetches nothing there."""
    program = (
        "from remuda.testing.real_cli import left_out\nfor one in ('codex', 'claude'): print(left_out(one))"
    )
    command = [sys.executable, "-c", program]
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), OPT_OUT: ""}
    said = [
        subprocess.run(words, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
        for words in (["setarch", "i686", *command], command)
    ]
    assert said[0].startswith("codex ")
    assert said[0].endswith("nothing is tested against its real CLI on Linux i686\n\n")
    assert said[1] == "\n\n"


def test_fetch_into_an_unwritable_cache_exits_1(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    done = fetch(in_the_way)
    assert done.returncode == 1
    assert "cannot be brought" in done.stderr


def test_fetch_version_without_a_pinned_hash_exits_1_and_lists_those_that_have_one(tmp_path: Path) -> None:
    done = fetch(tmp_path, "2.1.9")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no hash is pinned for claude 2.1.9" in done.stderr
    assert OLDER in done.stderr


@pytest.mark.skipif(not HAS_PINS, reason="no sha256 is pinned here")
@pytest.mark.parametrize(
    ("npm", "said"),
    [
        ("echo no registry here >&2; exit 1", "no registry here"),
        ('for to do [ -d "$to" ] && echo no > "$to/x.tgz"; done; exit 0', "is not the pinned package"),
        (None, "npm is not on the PATH"),
    ],
    ids=["no registry", "another package", "no npm"],
)
@pytest.mark.parametrize("name", [OLDER, "codex"])
def test_fetch_package_that_cannot_be_had_exits_1_and_keeps_nothing(
    tmp_path: Path, name: str, npm: str | None, said: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    if npm is not None:
        (programs / "npm").write_text(f"#!/bin/sh\n{npm}\n")
        (programs / "npm").chmod(0o755)
    done = fetch(tmp_path / "cache", name, PATH=str(programs))
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    [folder] = (tmp_path / "cache" / "remuda").glob("*/*")
    assert [path.name for path in folder.iterdir()] == [".lock"]


@pytest.mark.skipif(not HAS_PINS, reason="no sha256 is pinned here")
def test_fetch_foreign_binary_is_refused_and_not_kept(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_wheel(wheels)
    done = fetch(tmp_path / "cache", PIP_FIND_LINKS=str(wheels))
    assert done.returncode == 1
    assert "is not the pinned binary" in done.stderr
    assert left_in(tmp_path / "cache") == [".lock"]


def make_wheel(folder: Path) -> None:
    """As much of a wheel as pip needs to download it."""
    info = "claude_agent_sdk-0.2.182.dist-info"
    with zipfile.ZipFile(folder / "claude_agent_sdk-0.2.182-py3-none-any.whl", "w") as wheel:
        wheel.writestr("claude_agent_sdk/_bundled/claude", "#!/bin/sh\necho not the real one\n")
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: claude-agent-sdk\nVersion: 0.2.182\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
