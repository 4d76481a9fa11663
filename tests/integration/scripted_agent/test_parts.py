"""The parts of the scripted agent that do no I/O."""

from __future__ import annotations

import pytest

from remuda.testing.scripted_agent.agent_flags import AgentFlags, UsageError, parse
from remuda.testing.scripted_agent.agent_loop import Future, Loop, LoopTask
from remuda.testing.scripted_agent.composer import (
    ShellCommand,
    SlashCommand,
    Submission,
    SubmittedPrompt,
    TextBox,
    meaning_of,
)
from remuda.testing.scripted_agent.layout import Block, ConversationView, clip, text_width, wrap
from remuda.testing.scripted_agent.painter import FullScreen, Inline, Painter
from remuda.testing.scripted_agent.terminal_keys import Decoder, Input, KeyPress, Pasted, QueryAnswered, Typed
from remuda.testing.scripted_agent.tool import decide
from remuda.testing.scripted_agent.transcript_file import slug


def typed(text: str) -> list[Input]:
    return [Typed(char) for char in text]


# --- keys


STREAMS: list[tuple[bytes, list[Input]]] = [
    (b"ab\r", [*typed("ab"), KeyPress("enter")]),
    ("é日".encode(), typed("é日")),
    (
        b"\x1b[A\x1b[B\x1bOC\x1b[1;5D\x1b[Z\x1b[3~",
        [KeyPress(k) for k in ("up", "down", "right", "left", "backtab", "delete")],
    ),
    (b"\x1b[200~a\nb\x1b[A\x1b[201~\r", [Pasted("a\nb"), KeyPress("enter")]),
    (
        b"\x1b[200~a\x1b[201~\x15!b\x1b[201~\r",
        [Pasted("a"), KeyPress("ctrl-u"), *typed("!b"), KeyPress("enter")],
    ),
    (
        b"\x1b[?62;22c\x1b[?5u\x1b[?2026;2$yx",
        [QueryAnswered("attributes"), QueryAnswered("kitty"), QueryAnswered("other"), Typed("x")],
    ),
    (b"\x1bP>|term 1\x1b\\\x1b]7501;on\x07x", [QueryAnswered("version"), QueryAnswered("other"), Typed("x")]),
    (b"\x1b[<0;10;5Mx\x1b[I\x1b[Oy\x1b[M !!z", typed("xyz")),
    (
        b"\x1b[27u\x1b[13u\x1b[99;5u\x1b[13;2u\x1b[97u",
        [KeyPress("esc"), KeyPress("enter"), KeyPress("ctrl-c"), KeyPress("newline"), Typed("a")],
    ),
    (b"\x03\x04\x7f\n\x1b\r", [KeyPress(k) for k in ("ctrl-c", "ctrl-d", "backspace", "newline", "newline")]),
]


@pytest.mark.parametrize(("stream", "inputs"), STREAMS)
def test_keys_are_the_same_however_they_are_split(stream: bytes, inputs: list[Input]) -> None:
    for cut in range(len(stream) + 1):
        decoder = Decoder()
        assert [*decoder.feed(stream[:cut]), *decoder.feed(stream[cut:])] == inputs
        assert not decoder.holds_escape


def test_lone_escape_is_a_key_once_nothing_follows() -> None:
    decoder = Decoder()
    assert list(decoder.feed(b"\x1b")) == []
    assert decoder.holds_escape
    assert list(decoder.flush()) == [KeyPress("esc")]
    assert list(decoder.feed(b"\x1b\x1b[A")) == [KeyPress("esc"), KeyPress("up")]


def test_unfinished_paste_is_held() -> None:
    decoder = Decoder()
    assert list(decoder.feed(b"\x1b[200~\x1b")) == []
    assert not decoder.holds_escape


# --- text box


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("hello", SubmittedPrompt("hello")),
        ("!ls -l", ShellCommand("ls -l")),
        (" !ls", SubmittedPrompt(" !ls")),
        ("\n!ls", SubmittedPrompt("\n!ls")),
        ("!", SubmittedPrompt("!")),
        ("/clear", SlashCommand("clear", "")),
        (" \n/clear", SlashCommand("clear", "")),
        ("/model opus now", SlashCommand("model", "opus now")),
        ("/tmp/foo bar", SubmittedPrompt("/tmp/foo bar")),
        (".\n/cost", SubmittedPrompt(".\n/cost")),
        ("/ x", SubmittedPrompt("/ x")),
        ("#note &more ?", SubmittedPrompt("#note &more ?")),
    ],
)
def test_first_characters_decide_the_meaning(text: str, meaning: Submission) -> None:
    assert meaning_of(text) == meaning


def test_bang_is_plain_in_an_argument() -> None:
    assert meaning_of("!ls", shell=False) == SubmittedPrompt("!ls")


@pytest.mark.parametrize(
    ("keys", "text", "cursor"),
    [
        ("abc", "abc", 3),
        ("abc\x7f\x7fd", "ad", 2),
        ("abc\x1b[D\x1b[DX", "aXbc", 2),
        ("one\ntwo\x15", "one\n", 4),
        ("one\ntwo\x01X", "one\nXtwo", 5),
        ("one\x1b[H\x0b", "", 0),
        ("a\x1b[D\x1b[3~", "", 0),
        ("draft\x13", "", 0),
        ("draft\x13\x13", "draft", 5),
        ("end\x02\x02\x06X", "enXd", 3),
        ("a\\\rb", "a\nb", 3),
    ],
)
def test_box_is_edited_by_keys(keys: str, text: str, cursor: int) -> None:
    composer = TextBox()
    for given in Decoder().feed(keys.encode()):
        assert composer.take(given) is None
    assert (composer.text, composer.cursor) == (text, cursor)


def test_submission_is_stripped_at_its_end_and_remembered() -> None:
    composer = TextBox()
    taken = [composer.take(given) for given in Decoder().feed(b"  one \rtwo\r \r\x1b[A\x1b[A")]
    assert [text for text in taken if text is not None] == ["  one", "two"]
    assert composer.text.strip() in ("one", "two", "")


# --- layout


@pytest.mark.parametrize(
    ("text", "columns", "lines"),
    [
        ("", 5, [""]),
        ("one two three", 7, ["one two", "three"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("a\n\nb", 4, ["a", "", "b"]),
        ("日本語", 4, ["日本", "語"]),
        ("word 日本語日本語", 6, ["word", "日本語", "日本語"]),
    ],
)
def test_text_is_wrapped_to_columns(text: str, columns: int, lines: list[str]) -> None:
    assert wrap(text, columns) == lines


def test_widths_count_columns() -> None:
    assert [text_width(text) for text in ("abc", "日本", "e\u0301", "👩‍💻", "❯ ")] == [3, 4, 1, 4, 2]
    assert clip("abcdef", 4) == "abc…"


# --- screen


@pytest.mark.parametrize("screen", [FullScreen(), Inline()], ids=["full", "inline"])
def test_screen_writes_only_what_changed(screen: Painter) -> None:
    view = ConversationView(
        header=["header"], blocks=[Block("said", "❯ ")], box="draft", cursor=5, footer="footer"
    )
    assert "draft" in screen.paint(view, 30, 10)
    assert screen.paint(view, 30, 10) == ""
    view.footer = "other"
    changed = screen.paint(view, 30, 10)
    assert "other" in changed
    assert "said" not in changed
    screen.forget()
    assert "other" in screen.paint(view, 30, 10)


# --- files


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/srv/e2/a.b_c d", "-srv-e2-a-b-c-d"),
        ("/srv/e2/.dotdir", "-srv-e2--dotdir"),
        ("/srv/e2/ünï—日本語😀", "-srv-e2--n-------"),
        ("/", "-"),
        # Measured on 2.1.325.
        (
            f"/srv/demo/{'a' * 100}/{'b.c' * 30}/ünï—日本語😀",
            f"-srv-demo-{'a' * 100}-{'b-c' * 29}b--fmz4ea",
        ),
    ],
)
def test_folder_name_follows_the_rule_of_the_real_program(path: str, name: str) -> None:
    assert slug(path) == name


# --- permission


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("ls -l; sleep 2 && echo done | wc -l", "allow"),
        ("echo hi > file", "ask"),
        ("echo $(rm x)", "ask"),
        ("touch x", "ask"),
        ("", "ask"),
    ],
)
def test_only_harmless_commands_need_no_permission(command: str, decision: str) -> None:
    decided = decide("Bash", {"command": command}, "default", allow=[], deny=[], ask=[])
    assert decided == decision


@pytest.mark.parametrize(
    ("rules", "mode", "decision"),
    [
        ({}, "default", "ask"),
        ({}, "dontAsk", "deny"),
        ({}, "auto", "allow"),
        ({"allow": ["Bash"]}, "default", "allow"),
        ({"allow": ["Bash(git:*)"]}, "default", "allow"),
        ({"allow": ["Bash(git push*)"]}, "default", "allow"),
        ({"allow": ["Bash(gitk:*)"]}, "default", "ask"),
        ({"deny": ["Bash(git push:*)"], "allow": ["Bash"]}, "bypassPermissions", "deny"),
        ({"ask": ["Bash"], "allow": ["Bash"]}, "default", "ask"),
    ],
)
def test_rules_and_mode_decide(rules: dict[str, list[str]], mode: str, decision: str) -> None:
    given = {"allow": [], "deny": [], "ask": [], **rules}
    assert decide("Bash", {"command": "git push origin"}, mode, **given) == decision


# --- options


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["hello"], AgentFlags(prompt="hello")),
        (["--model", "sonnet", "hi"], AgentFlags(model="claude-sonnet-5-5", prompt="hi")),
        (["--permission-mode=manual"], AgentFlags(mode="default")),
        (["--setting-sources", ""], AgentFlags(setting_sources=())),
        (["--setting-sources="], AgentFlags(setting_sources=())),
        (
            ["--allowedTools", "Bash(git:*) Read", "--", "hi"],
            AgentFlags(allowed_tools=["Bash(git:*)", "Read"], prompt="hi"),
        ),
        (["--allowedTools", "Read", "swallowed"], AgentFlags(allowed_tools=["Read", "swallowed"])),
        (["--resume", "abc", "hi"], AgentFlags(resume="abc", prompt="hi")),
        (["-c", "hi"], AgentFlags(continues=True, prompt="hi")),
        (["--verbose", "--mcp-config", "a", "b", "--effort", "high", "hi"], AgentFlags(prompt="hi")),
        (["--", "--not-a-flag"], AgentFlags(prompt="--not-a-flag")),
    ],
)
def test_command_line_is_read_as_the_real_one(words: list[str], expected: AgentFlags) -> None:
    assert parse(words) == expected


def test_flag_without_its_value_is_refused() -> None:
    with pytest.raises(UsageError):
        parse(["--model"])


# --- loop


def test_task_is_thrown_at_where_it_waits() -> None:
    seen: list[str] = []

    async def work(never: Future[None]) -> None:
        try:
            await never
        except KeyError as error:
            seen.append(repr(error))

    never: Future[None] = Future()
    task = LoopTask(work(never))
    task.throw(KeyError("esc"))
    assert task.done
    never.set(None)
    assert seen == ["KeyError('esc')"]


def test_loop_runs_timers_in_order_and_threads_beside_them() -> None:
    loop, seen = Loop(), list[str]()

    async def work() -> None:
        seen.append(await loop.in_thread(lambda: "thread"))
        await loop.sleep(0)
        # Far enough apart for a thread that is not always given the processor.
        loop.later(0.5, lambda: seen.append("second"))
        loop.later(0, lambda: seen.append("first"))
        loop.later(0, lambda: seen.append("never")).cancel()
        loop.later(0.5, loop.stop)

    loop.spawn(work())
    loop.run()
    assert seen == ["thread", "first", "second"]
