"""`remuda doctor --agent claude` on the real Claude Code: the pinned version; in a soak run, seven."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.testing.real_cli import OLDER, OTHER_VERSIONS, PINNED, VERSION, binary_of, binary_path, left_out
from support.commands import Commands
from support.counts import SOAK
from support.print_calls import write_program
from support.self_tests import PATIENCE, check_default_limit, check_self_test, try_binary, verdicts

pytestmark = pytest.mark.real
KNOWN = {"2.1.197": frozenset({"pool_stream"})}
"""What does not hold; docs/reference/versions.md says why."""


@pytest.mark.soak
@pytest.mark.timeout(PATIENCE + 60)
@pytest.mark.parametrize("version", [*OLDER, PINNED] if SOAK else [VERSION])
def test_self_test_knows_what_holds_and_leaves_nothing(remuda: Commands, version: str) -> None:
    check_self_test(remuda, "claude", version, binary_path(version), KNOWN.get(version, frozenset()))


@pytest.mark.soak(only=True)
@pytest.mark.timeout(PATIENCE + 60)
@pytest.mark.parametrize("agent", ["claude", *OTHER_VERSIONS])
def test_self_test_within_the_limit_that_users_have(
    remuda: Commands, agent: str, record_property: Callable[[str, object], None]
) -> None:
    if why := left_out(agent):
        pytest.skip(why)
    check_default_limit(remuda, agent, binary_of(agent), record_property)


@pytest.mark.soak(only=True)  # it takes as long as a test of a version
@pytest.mark.timeout(PATIENCE + 60)
def test_self_test_names_hooks_that_do_not_come(remuda: Commands, tmp_path: Path) -> None:
    """The program gets none of our hooks, as on a version that knows no such settings."""
    program = (
        "#!/usr/bin/env python3\nimport os, sys\nwords = sys.argv[1:]\n"
        "while '--settings' in words:\n    at = words.index('--settings')\n    del words[at : at + 2]\n"
        f"os.execv({str(binary_path())!r}, ['claude', *words])\n"
    )
    found = try_binary(remuda, "claude", write_program(tmp_path / "claude", program))
    assert {"sources", "hooks"} <= verdicts(found, "does not hold")
    (hooks,) = [one for one in found["outcomes"] if one["promise"] == "hooks"]
    assert "UserPromptSubmit" in hooks["detail"]
    assert not [one for one in found["outcomes"] if one["safety"] and one["verdict"] == "does not hold"]
