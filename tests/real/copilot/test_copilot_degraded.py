"""Copilot as a later version may be: what it cannot prove is said, and nothing runs twice."""

from __future__ import annotations

import shlex
from typing import NamedTuple

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.copilot import RealCopilot
from support.copilot import keep_copilot
from support.keeper import Start, until
from support.messages import CHAIN, prompts, stages, step

pytestmark = pytest.mark.real

_NO_HOOKS = """
for word; do
    shift
    if [ "$word" = --plugin-dir ]; then skip=1; elif [ "$skip" ]; then skip=; else set -- "$@" "$word"; fi
done
"""


class Loss(NamedTuple):
    hooks: bool
    records: bool
    said: str
    stages: list[str]
    degraded: bool


LOSSES = {
    "hooks": Loss(True, False, "its state is read from transcript and screen", CHAIN, False),
    "events.jsonl": Loss(
        False, True, "the transcript cannot be read", [one for one in CHAIN if one != "recorded"], True
    ),
    "both": Loss(
        True,
        True,
        "neither hooks nor transcript can be read",
        ["accepted", "written", "ended", "dead"],
        False,
    ),
}


def lose(copilot: RealCopilot, loss: Loss) -> None:
    """Put a script in place of the program that keeps our hooks from it, or writes its files elsewhere."""
    lines = ["#!/bin/sh"]
    if loss.hooks:
        lines.append(_NO_HOOKS)
    if loss.records:
        home, other = copilot.home / ".copilot", copilot.home / "elsewhere"
        other.mkdir()
        for path in home.iterdir():
            (other / path.name).symlink_to(path)
        lines.append(f"export COPILOT_HOME={shlex.quote(str(other))}")
    script = copilot.folder / "copilot"
    script.write_text("\n".join([*lines, f'exec {shlex.quote(str(copilot.binary))} "$@"\n']))
    script.chmod(0o755)
    copilot.binary = script


_ONCE = pytest.mark.soak(only=True)


@pytest.mark.parametrize("name", [pytest.param(one, marks=() if one == "hooks" else _ONCE) for one in LOSSES])
def test_loss_of_a_source_is_said_and_a_message_runs_once(
    copilot: RealCopilot, start: Start, model: LoopbackModel, name: str
) -> None:
    loss = LOSSES[name]
    lose(copilot, loss)
    post = keep_copilot(start, copilot)
    post.kept.may_complain = True  # its log says what is missing
    for text in ("first", "second"):
        found = post.send(text)
        assert stages(found) == loss.stages, found
        assert ("degraded" in step(found, "ended")) is loss.degraded

    def said() -> str:
        return "; ".join(post.client.describe()["degraded"])

    until(lambda: loss.said in said(), f"degraded: {loss.said}")
    assert "registry" not in said()  # copilot has none
    assert prompts(model) == ["first", "second"]
