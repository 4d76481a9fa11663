"""`remuda doctor --agent claude` on the real Claude Code: the pinned version; in a soak run, seven."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from remuda.process_table import read_variables
from remuda.proctree import command_lines
from remuda.testing.real_cli import OLDER, PINNED, VERSION, binary_path
from support.commands import COMMAND, Commands
from support.counts import SOAK
from support.print_calls import write_program

pytestmark = pytest.mark.real
KNOWN = {"2.1.197": {"pool_stream"}}
"""What does not hold; docs/reference/versions.md says why."""
PATIENCE = 240


def try_binary(remuda: Commands, binary: Path) -> dict[str, Any]:
    words = ["doctor", "--agent", "claude", "--json", "--binary", str(binary), "--timeout", str(PATIENCE)]
    done = subprocess.run(
        [*COMMAND, *words], env=remuda.env, capture_output=True, text=True, timeout=PATIENCE + 30, check=False
    )
    found: dict[str, Any] = json.loads(done.stdout or json.dumps({"errors": done.stderr}))
    assert done.returncode == (0 if found["holds"] else 1)
    return found


def verdicts(found: dict[str, Any], verdict: str) -> set[str]:
    # How fast the first message is taken depends on how busy this machine is.
    named = {one["promise"] for one in found["outcomes"] if one["verdict"] == verdict}
    return named - {"first_message"}


@pytest.mark.soak
@pytest.mark.parametrize("version", [*OLDER, PINNED] if SOAK else [VERSION])
def test_self_test_knows_what_holds_and_leaves_nothing(remuda: Commands, version: str) -> None:
    temporary = Path(remuda.home) / "t"  # short, as the path of a socket has to be
    temporary.mkdir()
    remuda.env["TMPDIR"] = str(temporary)
    found = try_binary(remuda, binary_path(version))
    assert verdicts(found, "does not hold") == KNOWN.get(version, set()), found
    assert verdicts(found, "not known") == set(), found
    assert len(found["outcomes"]) == 19
    assert found["version"] == version
    kept = json.loads(next((remuda.home / "self-tests").iterdir()).read_text())
    assert kept == found
    assert not [words for _, words in command_lines() if str(temporary) in " ".join(words)]
    assert not [pid for pid, has in read_variables("HOME", ()) if has["HOME"].startswith(str(temporary))]
    assert not list(temporary.iterdir())


@pytest.mark.soak
@pytest.mark.skipif(not SOAK, reason="takes as long as a test of a version")
def test_self_test_names_hooks_that_do_not_come(remuda: Commands, tmp_path: Path) -> None:
    """The program gets none of our hooks, as on a version that knows no such settings."""
    program = (
        "#!/usr/bin/env python3\nimport os, sys\nwords = sys.argv[1:]\n"
        "while '--settings' in words:\n    at = words.index('--settings')\n    del words[at : at + 2]\n"
        f"os.execv({str(binary_path())!r}, ['claude', *words])\n"
    )
    found = try_binary(remuda, write_program(tmp_path / "claude", program))
    assert {"sources", "hooks"} <= verdicts(found, "does not hold")
    (hooks,) = [one for one in found["outcomes"] if one["promise"] == "hooks"]
    assert "UserPromptSubmit" in hooks["detail"]
    assert not [one for one in found["outcomes"] if one["safety"] and one["verdict"] == "does not hold"]
