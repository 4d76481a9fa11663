"""Which terminal shows a conversation of a shared server: the only one that can be meant, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.agents.codex.sources import CodexSources, CodexTerminals
from remuda.boss.attention.model import Item
from remuda.boss.evidence.terminals import OpenTerminal, choose_terminal
from remuda.boss.service import BossService
from remuda.errors import NotSafe
from support.boss import with_service

ONE = OpenTerminal(1, "/p", started_at=100.0)
TWO = OpenTerminal(2, "/p", started_at=200.0)
THREE = OpenTerminal(3, "/q", started_at=200.0)
NAMED = OpenTerminal(4, "/p", "s", 10.0)


@pytest.mark.parametrize(
    ("terminals", "began", "pid"),
    [
        ([], 1.0, None),
        ([THREE], 201.0, None),
        ([ONE, THREE], None, 1),
        ([ONE], 5000.0, 1),  # a new conversation in the same terminal
        ([ONE, TWO], 104.0, 1),
        ([ONE, TWO], 204.0, 2),
        ([ONE, TWO], 150.0, None),
        ([ONE, TWO], None, None),
        ([ONE, OpenTerminal(5, "/p", started_at=101.0)], 104.0, None),
        ([ONE, TWO, NAMED], 204.0, 4),
        ([NAMED, OpenTerminal(5, "/p", "s", 20.0)], None, None),
        ([OpenTerminal(5, "/p", "another", 104.0), ONE], 104.0, 1),
    ],
)
def test_terminal_is_chosen_only_if_no_other_can_be_meant(
    terminals: list[OpenTerminal], began: float | None, pid: int | None
) -> None:
    found = choose_terminal(terminals, "s", "/p", began)
    assert (None if found is None else found.pid) == pid


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["/usr/bin/codex"], ""),
        (["codex", "-m", "x", "fix it"], ""),
        (["codex", "resume", "id1"], "id1"),
        (["codex", "resume", "--last"], ""),
        (["codex", "exec", "x"], None),
        (["codex", "--no-daemon"], None),
        (["codex", "app-server", "--listen", "unix://x"], None),
        (["codex", "--remote", "unix://x"], ""),
        (["vim", "codex"], None),
        ([""], None),
        ([], None),
    ],
)
def test_command_of_a_codex_terminal_is_known(words: list[str], named: str | None) -> None:
    assert CodexTerminals().conversation_of(words) == named


def test_id_of_codex_has_the_time_of_its_conversation() -> None:
    terminals = CodexTerminals()
    assert terminals.began("0198c0f0-1000-7000-8000-000000000000") == pytest.approx(0x0198C0F01000 / 1000)
    assert terminals.began("00000000-0000-4000-8000-000000000000") is None
    assert terminals.began("x") is None
    assert terminals.folder_of(["codex", "-C", "/x"]) == "/x"
    assert terminals.folder_of(["codex"]) is None


def test_request_for_the_terminal_alone_is_in_the_queue_and_not_in_the_ledger(
    tmp_path: Path,
) -> None:
    payload = {"hook_event_name": "PermissionRequest", "session_id": "s", "cwd": "/p", "turn_id": "t"}
    asked = {**payload, "tool_name": "Bash", "tool_input": {"command": "touch a", "description": "why"}}
    ran = {
        **payload,
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "touch a"},
    }

    async def work(service: BossService) -> tuple[list[Item], str, list[Item]]:
        sources = CodexSources()
        prompt = {**payload, "hook_event_name": "UserPromptSubmit", "prompt": "x"}
        await service.take(*sources.hook_events(prompt, 100.0, id="h1"))
        await service.take(*sources.hook_events(asked, 101.0, id="h2"))
        [item] = waiting = service.queue()
        assert service.open_approvals() == []
        with pytest.raises(NotSafe) as refused:
            service.approval(str(item.detail["ask"]))
        await service.take(*sources.hook_events(ran, 102.0, id="h3"))
        return waiting, str(refused.value), service.queue()

    [item], refused, left = with_service(tmp_path, work, lambda: 110.0)
    assert (item.reason, item.message, item.detail["at_terminal"]) == ("permission", "touch a", True)
    assert "codex in a pane takes decisions only there" in refused
    assert left == []
