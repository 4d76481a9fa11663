"""codex's screen, command line, hooks and files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from remuda.agents import find_agent, guess_agent
from remuda.agents.base import LaunchContext
from remuda.agents.codex.exec_messages import ExecReader
from remuda.agents.codex.launch import companion, launch, split_words
from remuda.agents.codex.prompting import CodexPrompts
from remuda.agents.codex.rollout import CodexConversations, read_past
from remuda.agents.codex.screen import open_dialog, read_composer, read_trust_choice
from remuda.agents.codex.sources import CodexSources
from remuda.agents.codex.warm import CodexWarm, thread_options
from remuda.agents.conversation import EntryKind, MessageUsage, Tokens
from remuda.agents.prompting import CallAddress, Choice, ComposerKind, Past
from remuda.errors import InputError, InvalidOptions, SpawnFailed
from remuda.frozen import replaced
from remuda.pool.options import PartialProfile, read_client

# ── the screen ──

FOOTER = ["", "  loopback-model default · /p"]
TRUST = [
    "  Trust this folder? Codex can read, edit, and run files here",
    "› 1. Trust and continue",
    "  2. Back to Agent Command Center",
    "",
    "  enter continue · esc back",
]
PERMISSION = [
    "  Would you like to run the following command?",
    "  $ touch m1",
    "› 1. Yes, proceed (y)",
    "  3. No, and tell Codex what to do differently (esc)",
    "",
    "  Press enter to confirm or esc to cancel",
]
NUDGE = ["  Approaching rate limits", "› 1. Switch to gpt-6-luna", "", "  enter select · esc back"]


def test_composer_is_empty_with_a_faint_suggestion_only() -> None:
    lines = ["› earlier prompt", "", "› Ask Codex to do anything", *FOOTER]
    faint = "\x1b[1m›\x1b[0m \x1b[7mA\x1b[0;2msk Codex to do anything\x1b[0m".encode()
    typed = "\x1b[1m›\x1b[0m Ask Codex to do anything".encode()
    assert read_composer(lines, lambda _: faint).kind is ComposerKind.EMPTY
    assert read_composer(lines, lambda _: typed).kind is ComposerKind.DRAFT
    assert read_composer(FOOTER, lambda _: b"").kind is ComposerKind.ABSENT
    assert read_composer(PERMISSION, lambda _: b"").kind is ComposerKind.ABSENT


def test_dialogs_are_named_and_the_offer_of_another_model_stops_no_one() -> None:
    assert open_dialog(TRUST) == "trust dialog"
    assert open_dialog(PERMISSION) == "permission"
    assert open_dialog(["Pick one", "› 1. a", "  enter confirm · esc skip"]) == "dialog"
    assert open_dialog(NUDGE) is None
    assert read_composer(NUDGE, lambda _: b"").kind is ComposerKind.EMPTY
    assert open_dialog(["› press enter to confirm", *FOOTER, "x"]) is None
    assert read_trust_choice(TRUST) == Choice(0, 0)
    assert read_trust_choice(PERMISSION) is None


# ── the command line ──


def context(*words: str, **more: Any) -> LaunchContext:
    given: dict[str, Any] = {"argv": ["codex", *words], "env": {"A": "1"}, "cwd": Path("/p"), **more}
    base = LaunchContext(scratch=Path("/s"), hook_url="", hook_token="", emit_command="", **given)
    return replaced(base, call=CallAddress("unix:///s/s", ""))


def test_server_and_terminal_get_the_same_configuration() -> None:
    words = ("-c", "a=1", "--enable=x", "-m", "gpt", "--no-daemon", "do it")
    assert companion(context(*words)).argv == [
        *("codex", "app-server", "--listen", "unix:///s/s", "-c", "a=1", "--enable=x")
    ]
    assert launch(context(*words)).argv == [
        *("codex", "--remote", "unix:///s/s", "-c", "a=1", "--enable=x", "-m", "gpt", "-C", "/p"),
        *("--", "do it"),
    ]


def test_resume_keeps_the_options_and_drops_the_first_prompt(tmp_path: Path) -> None:
    rollout = tmp_path / "r.jsonl"
    known = {"session_id": "id1", "transcript_path": str(rollout)}
    assert "resume" not in launch(context("do it", conversation=known)).argv  # codex kept nothing
    assert companion(replaced(context(conversation=known), call=None)).argv
    had_turn = context(conversation={**known, "had_turn": "id1"})
    for resume in (launch, companion):
        with pytest.raises(SpawnFailed, match="codex has no conversation 'id1'"):
            resume(had_turn if resume is launch else replaced(had_turn, call=None))
    assert companion(had_turn).argv  # a server that is started again
    rollout.touch()
    argv = launch(context("-C", "/q", "do it", conversation=known)).argv
    assert argv == ["codex", "resume", "--remote", "unix:///s/s", "-C", "/q", "--", "id1"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("exec", "hi"), "'codex exec' is not a conversation"),
        (("--remote", "ws://x"), "--remote cannot be combined"),
        (("-p", "work"), "--profile does not reach"),
    ],
)
def test_what_is_not_a_session_is_refused(words: Sequence[str], why: str) -> None:
    with pytest.raises(InvalidOptions, match=why):
        companion(context(*words))


def test_words_after_two_dashes_are_never_options() -> None:
    words = split_words(["-c", "a=1", "--", "-m", "exec"])
    assert (words.options, words.command, words.rest) == ([["-c", "a=1"]], "", ["-m", "exec"])


def test_codex_is_recognised_by_its_command() -> None:
    assert guess_agent(["/usr/bin/codex", "-m", "x"]) == "codex"
    assert find_agent("codex").takes_argument(["codex"]) is False


# ── prompts ──


def test_commands_and_empty_prompts_are_refused_and_all_else_is_exact() -> None:
    prompts = CodexPrompts()
    prompts.check("!rm -rf / \x1b[201~\n/new", command=False, literal=False)
    with pytest.raises(InputError, match="only at its terminal"):
        prompts.check("/new", command=True, literal=False)
    with pytest.raises(InputError, match="empty"):
        prompts.check(" \n", command=False, literal=False)


@pytest.mark.parametrize(
    ("words", "least", "most"),
    [
        ("or try again at 7:41 AM.", 60, 86_460),
        ("Try again at Nov 20th, 2026 7:41 AM.", 60, 4 * 86_400),
        ("no date", None, None),
    ],
)
def test_limits_end_when_the_words_say(words: str, least: float | None, most: float | None) -> None:
    found = CodexPrompts().limited_for(words, 1795003932.0)  # 2026-11-18
    assert (found is None) is (least is None)
    assert found is None or (least or 0) <= found <= (most or 0)


# ── files and hooks ──


def record(kind: str, at: str = "2026-11-16T06:19:31.406Z", **payload: Any) -> dict[str, Any]:
    return {"timestamp": at, "type": "event_msg", "payload": {"type": kind, "turn_id": "a", **payload}}


def message(role: str, text: str) -> dict[str, Any]:
    return record("item_completed", item={"type": role, "id": role, "content": [{"text": text}]})


AT = 1794809971.406


def test_past_by_the_file_of_the_conversation() -> None:
    asked, answered = message("UserMessage", "hello"), record("task_complete", last_agent_message="yes")
    assert read_past([asked, answered], "hello", AT) == Past(True, True, "yes", "a")
    assert read_past([asked, answered], "hello", AT + 1) == Past()
    assert read_past([asked, record("turn_aborted")], "hello", AT).interrupted
    assert read_past([asked], "hello", AT) == Past(True, prompt_id="a")
    failed = record("task_complete", error={"message": "no"})
    assert not read_past([asked, failed], "hello", AT).answered


def test_past_has_the_usage_of_its_own_turn() -> None:
    def used(turn: str, count: int) -> dict[str, Any]:
        counts = {"input_tokens": 15, "cached_input_tokens": 3, "output_tokens": count}
        return {"type": "token_usage_record", "payload": {"turn_id": turn, "usage": counts}}

    end = record("task_complete", last_agent_message="yes")
    past = read_past([message("UserMessage", "hello"), used("a", 7), used("b", 70), end], "hello", AT)
    assert [usage["output_tokens"] for usage in past.usages] == [7]
    assert past.usages[0]["input_tokens"] == 12


def test_entries_and_usage_of_a_conversation() -> None:
    reader = CodexConversations()
    tool = record(
        "item_completed",
        item={"type": "CommandExecution", "id": "c", "command": ["/bin/sh", "-lc", "ls"], "status": "failed"},
    )
    kinds = [
        entry.kind
        for one in (message("UserMessage", "hi"), tool, message("AgentMessage", "ho"), record("turn_aborted"))
        for entry in reader.entries(one, "t1")
    ]
    assert kinds == [
        *(EntryKind.PROMPT, EntryKind.TOOL_CALL, EntryKind.TOOL_RESULT, EntryKind.ANSWER, EntryKind.NOTICE)
    ]
    counts = {"input_tokens": 15, "cached_input_tokens": 3, "output_tokens": 7}
    used = {"type": "token_usage_record", "payload": {"thread_id": "t1", "response_id": "r", "usage": counts}}
    assert reader.usage(used, "t1") == MessageUsage("r", "", Tokens(12, 7, 3, 0), None)
    assert reader.usage(used, "t2") is None


def test_hooks_of_a_users_own_codex() -> None:
    sources = CodexSources()
    base = {"session_id": "s", "turn_id": "a", "cwd": "/p"}
    tool = {"tool_name": "Bash", "tool_input": {"command": "touch x"}}
    payloads: list[dict[str, Any]] = [
        {"hook_event_name": "UserPromptSubmit", "prompt": "hi"},
        {"hook_event_name": "PermissionRequest", **tool},
        {"hook_event_name": "Interrupt"},
        {"hook_event_name": "Stop", "last_assistant_message": "done"},
    ]
    found = [sources.hook_events({**base, **payload}, 5.0)[0] for payload in payloads]
    assert [event.kind for event in found] == ["prompted", "asked", "interrupted", "stopped"]
    assert found[1].facts["message"] == "touch x"
    assert {event.facts["agent"] for event in found} == {"codex"}


# ── print and the pool ──


def test_exec_prints_messages_and_a_result_in_any_pieces() -> None:
    lines = [
        {"type": "thread.started", "thread_id": "t"},
        {"type": "item.completed", "item": {"id": "1", "type": "agent_message", "text": "hi"}},
        {
            "type": "turn.completed",
            "usage": {"input_tokens": 5, "cached_input_tokens": 2, "output_tokens": 1},
        },
    ]
    data = b"noise\n" + b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    for size in (1, 7, len(data)):
        reader = ExecReader()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        messages = [one for piece in pieces for one in reader.feed(piece)]
        assert [one["type"] for one in messages] == ["system", "assistant", "result"]
        assert (messages[-1]["result"], messages[-1]["usage"]["input_tokens"]) == ("hi", 3)


def test_a_pool_of_codex_has_no_terminal_and_refuses_what_codex_does_not_have() -> None:
    assert read_client({"agent": "codex"}).backend == "stream"
    assert read_client({}).backend == "terminal"
    warm = CodexWarm()
    assert "no terminal" in warm.refusals(PartialProfile(), terminal=True)[0]
    assert "allowed tools" in warm.refusals(PartialProfile(allowed_tools=("Bash",)))[0]
    assert "--oss" in warm.refusals(PartialProfile(extra_args=("--oss",)))[0]
    options = PartialProfile(model="m", add_dirs=("/d",), extra_args=("-s", "read-only", "-c", "a=1"))
    assert warm.arguments(options) == ["-c", "a=1"]
    made = thread_options(options, "/p")
    assert (made["model"], made["sandbox"], made["cwd"], made["ephemeral"]) == ("m", "read-only", "/p", True)
