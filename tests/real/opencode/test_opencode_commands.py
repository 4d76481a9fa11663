"""The real opencode by the commands: start, resume, print and ask."""

from __future__ import annotations

import json

import pytest

from support.boss import KEPT, USAGE, RunningBoss
from support.both_sides import decide_from_both_sides
from support.commands import Commands
from support.keeper import until
from support.opencode import Opencode, bash

pytestmark = pytest.mark.real
SOURCES = (KEPT, USAGE)


def test_session_is_recognised_resumed_with_its_conversation_and_printed(
    opencode: Opencode, remuda: Commands
) -> None:
    env, cwd = opencode.env, opencode.project
    remuda("start", "work", "--detach", "--", "opencode", env=env, cwd=cwd)
    assert "to: hello" in remuda("send", "work", "hello", "--wait", env=env).out
    before = json.loads(remuda("show", "work", "--json", env=env).out)
    assert before["agent"] == "opencode"
    remuda("kill", "work", env=env)
    remuda("start", "work", "--resume", "--detach", env=env, cwd=cwd)
    assert "to: again" in remuda("send", "work", "again", "--wait", env=env).out
    after = json.loads(remuda("show", "work", "--json", env=env).out)
    assert after["conversation"]["session_id"] == before["conversation"]["session_id"]
    assert [text for _, text in opencode.model.requests[-1].texts if "hello" in text]
    decide_from_the_queue(opencode, remuda, env)
    remuda("kill", "work", env=env)
    gone = remuda("start", "x", "--detach", "--", "opencode", "-s", "ses_none", env=env, cwd=cwd, code=1)
    assert "opencode has no conversation 'ses_none'" in gone.err
    refused = remuda("start", "x", "--detach", "--", "opencode", "--fork", env=env, cwd=cwd, code=2)
    assert "a session of opencode cannot take '--fork'" in refused.err


def decide_from_the_queue(opencode: Opencode, remuda: Commands, env: dict[str, str]) -> None:
    """With a boss that starts after the session."""
    remuda.env |= {**env, "TMUX_TMPDIR": str(remuda.home)}
    with RunningBoss(remuda.home, SOURCES) as boss:
        message = remuda("send", "work", bash("touch approved"), env=env).out.split()[0]
        until(lambda: '"permission"' in remuda("queue", "--json", env=env).out, "the request")
        (item,) = json.loads(remuda("queue", "--json", env=env).out)["items"]
        assert (item["session"]["agent"], item["reason"]) == ("opencode", "permission")
        assert "touch approved" in json.dumps(item)
        until(lambda: "Permission required" in remuda("screen", "work", env=env).out, "the dialog")
        remuda("approve", "work", "--yes", env=env)
        until(lambda: "tool_result" in remuda("queue", "--json", env=env).out, f"the answer to {message}")
        assert (opencode.project / "approved").exists()
        decide_from_both_sides(remuda, boss, bash, opencode.project, "Permission required", b"\r")

        def used() -> int:  # null while it is not known
            total = json.loads(remuda("usage", "--json", env=env).out)["total"]
            return int(total["tokens"]["output"] or 0)

        assert until(used, "its usage") > 0


def test_print_answers_denies_and_reports_errors(opencode: Opencode, remuda: Commands) -> None:
    env, cwd = opencode.env, opencode.project
    asked = ["print", "--agent", "opencode", "--output-format", "json"]
    done = json.loads(remuda(*asked, bash("echo x > denied"), env=env, cwd=cwd).out)
    assert done["is_error"] is False
    assert "rejected permission" in done["result"]
    assert done["usage"]["output_tokens"] == 14
    assert not (cwd / "denied").exists()
    assert "broken" in remuda("print", "--agent", "opencode", "err 400 broken", env=env, cwd=cwd, code=1).out
