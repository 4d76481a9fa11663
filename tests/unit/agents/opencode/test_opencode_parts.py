"""opencode's ids and searches, its screen, its command line, and its permissions."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from remuda.agents.base import LaunchContext
from remuda.agents.conversation import MessageUsage, Tokens, TurnBegun
from remuda.agents.opencode.asking import OpencodePermissions, answer_list
from remuda.agents.opencode.conversation import OpencodeConversations
from remuda.agents.opencode.launch import find_address, make_companion, make_launch, merged, read_words
from remuda.agents.opencode.messages import find_call, make_message_id, past_of, usage_of
from remuda.agents.opencode.prompting import OpencodePrompts
from remuda.agents.opencode.server import ServerAddress
from remuda.agents.opencode.warm import OpencodeWarm
from remuda.agents.permission import PermissionRequest
from remuda.agents.prompting import CallAddress, ComposerKind, Past, PromptCall
from remuda.errors import InputError, InvalidOptions

NOW = 1_795_000_000.0


# ── messages ──


def message(role: str, message_id: str, at: float = NOW, **info: Any) -> dict[str, Any]:
    made = {"id": message_id, "role": role, "time": {"created": at * 1000}, **info}
    return {"info": made, "parts": [{"type": "text", "text": "words"}]}


def answered(parent: str) -> dict[str, Any]:
    return message("assistant", "msg_z", parentID=parent, finish="stop", time={"created": 1, "completed": 2})


def test_ids_are_in_the_order_of_time_and_keep_the_mark_of_their_message() -> None:
    first, second = make_message_id("m1", NOW), make_message_id("m1", NOW + 0.001)
    assert first < second
    assert first[16:] == second[16:] != make_message_id("m2", NOW)[16:]
    assert (len(first), first[:4]) == (30, "msg_")


def test_search_finds_this_attempt_or_one_that_was_answered() -> None:
    old, new = make_message_id("m1", NOW - 100), make_message_id("m1", NOW)
    call = PromptCall("m1", "x", since=NOW - 1)
    assert find_call([message("user", make_message_id("m2", NOW))], call) is None
    assert find_call([message("user", old, NOW - 100)], call) is None
    assert find_call([message("user", old, NOW - 100), answered(old)], call) == old
    assert find_call([message("user", old, NOW - 100), message("user", new)], call) == new


def test_past_of_a_message() -> None:
    prompt = message("user", "msg_1")
    running = message("assistant", "msg_2", parentID="msg_1")
    assert past_of([prompt], "msg_1", busy=True) == Past(stored=True)
    assert past_of([prompt, running], "msg_1", busy=True) == Past(submitted=True, prompt_id="msg_1")
    cut = past_of([prompt, running], "msg_1", busy=False)
    assert (cut.submitted, cut.answered, cut.interrupted) == (True, False, False)
    past = past_of([prompt, answered("msg_1")], "msg_1", busy=False)
    assert past == Past(True, True, "words", "msg_1", usages=(usage_of(answered("msg_1")),))
    error = {"name": "MessageAbortedError"}
    aborted = message("assistant", "msg_2", parentID="msg_1", error=error)
    assert past_of([prompt, aborted], "msg_1", busy=False).interrupted


def test_conversation_for_people_and_accounts() -> None:
    tokens = {"input": 12, "output": 7, "reasoning": 0, "cache": {"read": 3, "write": 0}}
    call = {"id": "prt_1", "type": "tool", "tool": "bash", "callID": "c1"}
    state = {"status": "error", "input": {"command": "ls"}, "error": "The user rejected permission to use it"}
    record = message("assistant", "msg_2", sessionID="ses_a", modelID="m", tokens=tokens, cost=0.5)
    record["parts"].append({**call, "state": state})
    reader = OpencodeConversations()
    kinds = [(one.kind, one.text or one.tool, one.denied) for one in reader.entries(record, "ses_a")]
    assert kinds == [
        ("answer", "words", None),
        ("tool_call", "bash", None),
        ("tool_result", "The user rejected permission to use it", True),
        ("usage", None, None),
    ]
    assert reader.usage(record, "ses_a") == MessageUsage("msg_2", "m", Tokens(12, 7, 3, 0), NOW, 0.5)
    assert reader.usage(message("user", "msg_1", sessionID="ses_a"), "ses_a") == TurnBegun("msg_1", NOW)
    assert reader.usage(record, "ses_b") is None


# ── the screen ──

FOOTER = "   /home/user/project                              22 (0%)  ctrl+p commands"
BORDER = "  ╹" + "▀" * 60


def box(*lines: str) -> list[str]:
    return ["     REPLY", "", *(f"  ┃  {line}" for line in ("", *lines, "", "Build · Model")), BORDER, FOOTER]


def kind(lines: list[str]) -> ComposerKind:
    return OpencodePrompts().composer(lines, lambda _: b"").kind


def test_composer_is_read_up_to_the_sidebar() -> None:
    assert kind(box("")) is ComposerKind.EMPTY
    assert kind(box('Ask anything… "Fix a TODO"')) is ComposerKind.EMPTY
    assert OpencodePrompts().composer(box("half", "a draft"), lambda _: b"").text == "half\na draft"
    wide = [line.ljust(70) + "Context" for line in box("")]
    assert kind(wide) is ComposerKind.EMPTY
    assert kind(["nothing"]) is ComposerKind.ABSENT


def test_composer_of_the_start_screen_is_read_in_its_middle() -> None:
    composer = [
        "  ┃",
        '  ┃  Ask anything… "Fix a TODO"',
        "  ┃",
        "  ┃  Build · Claude Sonnet",
        "  ╹▀▀▀▀▀▀▀▀▀▀▀▀▀▀",
    ]
    start = ["", "   █▀▀█ █▀▀▄", "", *composer, *[""] * 9, "  /project      1.18.33"]
    assert kind(start) is ComposerKind.EMPTY
    assert OpencodePrompts().dialog(start) is None
    dialog = ["  ┃  △ Permission required", "  ┃   Allow once   Allow always   Reject", *[""] * 9]
    for said in (["some text", *start], composer, ["", "  ┃ a message", "", *start]):
        assert kind([*said, *dialog]) is ComposerKind.ABSENT
        assert OpencodePrompts().dialog([*said, *dialog]) == "permission"


def test_dialog_is_one_only_in_the_place_of_the_composer() -> None:
    dialog = ["     words", "  ┃  △ Permission required", "  ┃   Allow once   Allow always   Reject"]
    assert OpencodePrompts().dialog(dialog) == "permission"
    assert OpencodePrompts().dialog(["  ┃  ↑↓ select  enter submit  esc dismiss"]) == "question"
    assert OpencodePrompts().dialog([*dialog, *box("")]) is None
    assert kind(dialog) is ComposerKind.ABSENT


def test_only_empty_prompts_and_commands_without_a_slash_are_refused() -> None:
    for prompt in ("!ls", "/tmp/x is a file", "\x1b[201~", "@x"):
        OpencodePrompts().check(prompt, command=False, literal=False)
    with pytest.raises(InputError):
        OpencodePrompts().check(" \n", command=False, literal=False)
    with pytest.raises(InputError):
        OpencodePrompts().check("new", command=True, literal=False)


# ── the start ──


def context(*words: str, call: CallAddress | None = None, **more: Any) -> LaunchContext:
    given: dict[str, Any] = {"env": {"PATH": "/bin"}, "cwd": Path("/"), "scratch": Path("/s c#"), **more}
    return LaunchContext(
        ("opencode", *words),
        hook_url="",
        hook_token="",
        emit_command="",
        call_secret="pw",
        call=call,
        **given,
    )


def test_address_keeps_conversation_and_folder() -> None:
    address = ServerAddress("http://127.0.0.1:4096", "ses_a", "/s c#")
    assert ServerAddress.read(address.url).url == address.url
    assert (ServerAddress.read(address.url).port, ServerAddress.read(address.url).folder) == (4096, "/s c#")


def test_server_gets_settings_and_secret_and_the_terminal_joins_it() -> None:
    env = {"OPENCODE_CONFIG_CONTENT": '{"permission": "allow", "model": "a/b"}'}
    given = context("-m", "x/y", '--settings={"permission": {"question": "deny"}}', "--agent=plan", env=env)
    server = make_companion(given, 1)
    assert server.argv[:-1] == ["opencode", "serve", "--hostname", "127.0.0.1", "--port"]
    # Not 4096, which each server of opencode would take, and no port that the system gives to a connection.
    assert 20_000 <= int(server.argv[-1]) < 32_000
    assert json.loads(server.env["OPENCODE_CONFIG_CONTENT"]) == {
        "model": "x/y",
        "default_agent": "plan",
        "permission": {"*": "allow", "question": "deny"},
    }
    assert server.env["OPENCODE_SERVER_PASSWORD"] == "pw"
    url = ServerAddress("http://127.0.0.1:5000", "ses_a", "/s").url
    again = context(call=CallAddress(url, "pw"))
    assert make_companion(again, 1).argv[-2:] == ["--port", "5000"]
    assert find_address(again, "opencode server listening on http://127.0.0.1:5000", 1) == url
    assert find_address(again, "starting", 1) is None
    launch = make_launch(again, 1)
    assert launch.argv == ["opencode", "attach", "http://127.0.0.1:5000", "--dir", "/", "--session", "ses_a"]


@pytest.mark.parametrize("words", [["--fork"], ["folder"], ["-m"], ["--settings=3"], ["--prompt", "x"]])
def test_word_that_a_session_cannot_take_is_refused(words: list[str]) -> None:
    with pytest.raises(InvalidOptions):
        read_words(words)


def test_settings_are_merged_within_objects() -> None:
    assert merged({"a": {"b": 1, "c": 2}, "d": 1}, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}, "d": 1}


# ── permissions ──


def test_permission_facts_and_what_can_be_allowed_always() -> None:
    permissions = OpencodePermissions()
    assert permissions.facts("bash", {"command": "ls"})["message"] == "bash: ls"
    edit = permissions.facts("edit", {"filepath": "/x", "diff": "-a\n+b\n"})
    assert (edit["message"], edit["diff"]) == ("edit: /x", "-a\n+b\n")
    assert permissions.is_plain({"command": "ls", "description": "d"}, "command")
    assert not permissions.is_plain({"command": "ls", "workdir": "/"}, "command")
    assert list(permissions.path_fields({"a": [{"filePath": "/x"}], "patterns": ["/y"]})) == ["/x", "/y"]

    def refused(*suggestions: dict[str, Any], command: str = "make", reason: str = "permission") -> set[str]:
        request = PermissionRequest("bash", {"command": command}, suggestions, reason=reason)
        return {*permissions.refusals(request)}

    assert refused({"always": "git *"}, command="git push") == {"always", "edit"}
    assert refused({"always": "make"}) == {"edit"}
    assert refused() == {"always", "edit"}
    assert refused(reason="question") == {"always", "message"}


def test_answers_are_given_in_the_order_of_the_questions() -> None:
    given = {"questions": [{"question": "A?"}, {"question": "B?"}]}
    answers = OpencodePermissions().with_answers(given, {"B?": ["x", "y"], "A?": "z"})
    assert answer_list(answers) == [["z"], ["x", "y"]]
    for wrong in ({"A?": "z"}, {"A?": "z", "B?": "x", "C?": "y"}):
        with pytest.raises(InvalidOptions):
            OpencodePermissions().with_answers(given, wrong)


# ── the pool ──


def options(**given: Any) -> Any:
    names = (
        "model",
        "settings",
        "permission_mode",
        "setting_sources",
        "system_prompt",
        "append_system_prompt",
    )
    lists = ("allowed_tools", "disallowed_tools", "mcp_config", "add_dirs", "extra_args")
    return SimpleNamespace(**{**dict.fromkeys(names), **dict.fromkeys(lists, ()), **given})


def test_pool_options_become_settings_or_are_refused() -> None:
    warm = OpencodeWarm()
    words = warm.arguments(
        options(model="a/b", allowed_tools=["read", "bash(git *)"], disallowed_tools=["edit"])
    )
    settings = read_words(words).settings
    assert settings["permission"] == {"read": "allow", "bash": {"git *": "allow"}, "edit": "deny"}
    assert settings["model"] == "a/b"
    with pytest.raises(InvalidOptions, match="opencode has no system_prompt"):
        warm.arguments(options(system_prompt="x"))
    assert warm.refusals(options(extra_args=["--continue"]))
    assert warm.refusals(options(extra_args=["--fork"]))
    assert warm.split_options(["-m", "a/b", "--pure"]) == ({"model": "a/b"}, ["--pure"])
