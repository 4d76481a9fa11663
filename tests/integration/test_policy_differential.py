"""The policy against a real bash: nothing that a rule denies is run by a command that was allowed."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.boss.answers.permission_policy import Policy, read_policy
from remuda.boss.answers.policy_request import PolicyRequest
from support import counts
from support.recording_bash import BASH, RecordingBash
from support.shell_commands import generate, generate_noise

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


def policy(*rules: dict[str, Any]) -> Policy:
    return read_policy({"rule": list(rules)}, "/home/me", os.path.realpath)


def decided(found: Policy, command: str) -> str:
    return str(found.decide(PolicyRequest("Bash", command=command)).decision)


@pytest.fixture
def bash() -> Iterator[RecordingBash]:
    """Not below pytest's folder: each start of pytest closes that to other users."""
    with tempfile.TemporaryDirectory() as folder:
        found = RecordingBash(Path(folder))
        yield found
        assert found.run("rm x").programs == (("rm", "x"),), "the recorders do not work any more"


GUARDED = policy(
    {"decision": "deny", "command": ["rm *", "sudo *"]},
    {"decision": "ask", "command": "git push *"},
    {"decision": "allow", "tool": "Bash"},
)


def is_guarded(call: tuple[str, ...]) -> bool:
    return call[0] in ("rm", "sudo") or (call[0] == "git" and "push" in call[1:])


def test_generated_commands_that_run_a_denied_program_are_never_allowed(
    bash: RecordingBash, record_property: Any
) -> None:
    tally: Counter[str] = Counter()
    wrong: list[str] = []
    for text in generate(counts.SHELL_COMMANDS, seed=1):
        command = text.replace("BIN", str(bash.programs)).replace("BASH", BASH)
        decision = decided(GUARDED, command)
        ran = "\0" not in command and any(map(is_guarded, bash.run(command).programs))
        tally.update(["generated", decision, *(["ran a denied program"] if ran else [])])
        if ran and decision == "allow":
            wrong.append(command)
    print(dict(tally))
    record_property("tally", dict(tally))
    assert wrong == []
    assert tally["ran a denied program"] > tally["generated"] / 4
    assert tally["allow"] > tally["generated"] / 50


ALLOWED = policy({"decision": "allow", "command": ["echo *", "git status", "git log *"]})


_REDIRECTION = re.compile(r"^(?:[0-9]*[<>]&[0-9]+\s*)+")


def is_allowed(call: tuple[str, ...]) -> bool:
    return call[0] == "echo" or call == ("git", "status") or call[:2] == ("git", "log")


def test_commands_that_an_allow_rule_passes_run_only_allowed_programs(
    bash: RecordingBash, record_property: Any
) -> None:
    words = ["echo", "git status", "git log", "rm", "a", "'b c'", "-3", "git", "status", "echo a", "x"]
    texts = list(generate_noise(counts.RANDOM_TEXTS, 2, words))
    allowed = [text for text in texts if decided(ALLOWED, text) == "allow"]
    distinct = sorted(set(allowed))[: counts.RANDOM_TEXTS // 20]
    for text in distinct:
        ran = bash.run(text, trace=True)
        assert all(map(is_allowed, ran.programs)), (text, ran)
        names = {name for one in ran.traced for name in shlex.split(_REDIRECTION.sub("", one))[:1]}
        assert names <= {"echo", "git"}, (text, ran)
        assert {path.name for path in bash.work.iterdir()} == {"x"}, text
    tally = {"texts": len(texts), "allowed": len(allowed), "run": len(distinct)}
    print(tally)
    record_property("tally", tally)
    assert len(distinct) > 20
