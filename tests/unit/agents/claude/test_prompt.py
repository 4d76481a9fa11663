"""What Claude Code makes of a prompt, and what is refused before it gets that far."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agents.claude import prompt as prompts
from remuda.errors import InputError

INVISIBLE = [
    *("\u200b", "\u200c", "\u200d", "\u200e", "\u202e", "\u2060", "\u2063", "\ufeff", "\u00ad", "\ufe0f"),
    *("\u034f", "\u3164", "\u180e", "\U000e0101", "\U000e0041", "\u2065", "\ufff0"),
]


def body(prompt: str, *, command: bool = False) -> str:
    """What is pasted, without the marks around it."""
    data = prompts.paste(prompt, command=command).data
    assert data.startswith(prompts.PASTE_BEGIN)
    assert data.endswith(prompts.PASTE_END + prompts.ENTER)
    return data[len(prompts.PASTE_BEGIN) : -len(prompts.PASTE_END + prompts.ENTER)].decode()


def reported(prompt: str) -> str:
    return prompts.paste(prompt, command=False).reported


def refusal(prompt: str, *, command: bool = False, literal: bool = False) -> str:
    with pytest.raises(InputError) as caught:
        prompts.check(prompt, command=command, literal=literal)
    return caught.value.message


def accepted(prompt: str, *, command: bool = False, literal: bool = False) -> bool:
    try:
        prompts.check(prompt, command=command, literal=literal)
    except InputError:
        return False
    return True


# ── a shell command ──


@pytest.mark.parametrize("before", ["", *INVISIBLE, "\u200e\u200d", "\u200d\u200d", "\ufe0f\u00ad\u2060"])
def test_paste_leading_bang_goes_after_a_newline(before: str) -> None:
    carried = prompts.paste(f"{before}!touch x", command=False)
    assert body(f"{before}!touch x").startswith("\n")
    assert prompts.visible(carried.reported) == "\n!touch x"


@pytest.mark.parametrize("prompt", [" !x", "\n!x", "\t!x", "say !x", "?!x"])
def test_paste_bang_after_something_stays_where_it_is(prompt: str) -> None:
    assert body(prompt) == prompt


# ── a command of the agent's ──


@pytest.mark.parametrize(
    "before",
    ["", " ", "\n", "\t\r\n ", "\u00a0", "\u3000", "\u2028", *INVISIBLE, " \u200b\t\u2060", "\ufe0f \ufe0f"],
)
@pytest.mark.parametrize(
    "word",
    ["/clear", "/compact now", "/plugin:do it", "/mcp__a__b", "/", "/dep.prod now", "/v1.2", "/\u00fcber\nx"],
)
def test_check_slash_word_is_refused_and_allowed_as_a_command(before: str, word: str) -> None:
    assert "would run the agent's own command" in refusal(before + word)
    assert accepted(before + word, command=True) == ("\n" not in word)


def test_check_slash_word_hidden_inside_is_refused() -> None:
    assert "own command" in refusal("/\u200bcle\u2060ar")


@pytest.mark.parametrize(
    "prompt",
    ["/tmp/foo is full", "/etc/passwd", "/a/b", "/notes/a.txt please", "a /clear", "\\/clear", "//x"],
)
def test_check_a_path_or_a_word_before_it_is_text(prompt: str) -> None:
    assert accepted(prompt)
    assert body(prompt) == prompt


@pytest.mark.parametrize("prompt", ["clear", "!ls", "see /clear", "/tmp/foo"])
def test_check_command_that_is_none_is_refused(prompt: str) -> None:
    assert refusal(prompt, command=True) == "--command is for a prompt that begins with /word"


def test_check_command_of_two_lines_is_refused() -> None:
    assert refusal("/compact\nrm -rf", command=True) == "a command must be a single line"
    assert accepted("  /compact \n", command=True)


@pytest.mark.parametrize("around", ["", " ", "\n", "\u00a0", "\u200b"])
@pytest.mark.parametrize("word", ["exit", "quit", ":q", ":q!", ":wq", ":wq!"])
def test_check_word_that_ends_the_agent_is_refused(word: str, around: str) -> None:
    assert refusal(around + word + around).startswith(f"a prompt that is only '{word}' would end the agent")


@pytest.mark.parametrize("prompt", ["EXIT", "exit now", "exit.", "exit()", "quit!", ":x", "q", "please exit"])
def test_check_word_that_only_looks_like_one_that_ends_the_agent_is_text(prompt: str) -> None:
    assert accepted(prompt)


def test_paste_command_is_stripped() -> None:
    assert body("  /compact now \n", command=True) == "/compact now"


# ── control characters ──

CONTROLS = [chr(code) for code in [*range(0x20), *range(0x7F, 0xA0)] if chr(code) not in "\t\n\r"]


@pytest.mark.parametrize("character", CONTROLS, ids=lambda one: f"{ord(one):02x}")
def test_check_control_character_is_refused_with_its_place(character: str) -> None:
    assert f"U+{ord(character):04X} at position 3" in refusal(f"abc{character}[201~!touch x\r")


def test_check_line_ends_and_tabs_are_no_control_characters() -> None:
    assert accepted("a\tb\nc\r\nd\re")


# ── what a paste changes ──


@pytest.mark.parametrize(
    ("prompt", "pasted", "taken"),
    [
        ("a\r\nb", "a\nb", "a\nb"),
        ("a\rb", "a\nb", "a\nb"),
        ("\u2028a\u2029b", "\na\nb", "\na\nb"),
        ("a\tb", "a\tb", "a    b"),
        ("a  \n\t\n", "a  \n\t\n", "a"),
        ("  a", "  a", "  a"),
        ("a\u200bb", "ab", "ab"),
        ("a\u200eb\u202e", "ab", "ab"),
        ("a\u200db", "ab", "ab"),
        ("\ufeffa", "a", "a"),
    ],
)
def test_paste_what_the_agent_changes_is_expected(prompt: str, pasted: str, taken: str) -> None:
    carried = prompts.paste(prompt, command=False)
    assert body(prompt) == pasted
    assert carried.reported == taken
    assert prompts.same(taken, prompt)


@pytest.mark.parametrize(
    "prompt",
    [
        "family \U0001f468\u200d\U0001f469",
        "heart \u2764\ufe0f",
        "fire \u2764\ufe0f\u200d\U0001f525",
        "key 1\ufe0f\u20e3",
        "flag \U0001f3f4\U000e0067\U000e0062\U000e007f",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u0915\u094d\u200d\u0937",
        "no\u00a0break e\u0301",
    ],
)
def test_paste_joiners_of_a_visible_character_stay(prompt: str) -> None:
    carried = prompts.paste(prompt, command=False)
    assert (body(prompt), carried.reported) == (prompt, prompt)


@pytest.mark.parametrize("prompt", ["back\\", "two\\\\", "!\\"])
def test_paste_backslash_at_the_end_does_not_eat_enter(prompt: str) -> None:
    assert body(prompt).endswith("\\ ")
    assert reported(prompt).endswith(prompt)


def test_check_nothing_visible_is_refused() -> None:
    for prompt in ("", "  \n", "\u200b", " \u2060\n\ufe0f", "\u3164"):
        assert "the prompt is empty" in refusal(prompt)


def test_check_half_a_surrogate_pair_is_refused() -> None:
    assert "not valid UTF-8" in refusal("a\ud800b")


# ── mentions ──


@pytest.mark.parametrize(
    "prompt",
    ["@a.txt", "read @a.txt", "x\n@a", "\u200b@a", "read \u2060@a", "@\u200ba", "@@a", '@"a b"', "a\t@b"],
)
def test_check_mention_is_refused_where_it_is_to_be_literal(prompt: str) -> None:
    assert accepted(prompt)
    assert "would attach a file" in refusal(prompt, literal=True)


@pytest.mark.parametrize("prompt", ["me@example.org", "5 @ 3", "a@", "@ home", "(@x"])
def test_check_at_sign_that_is_no_mention_is_literal_already(prompt: str) -> None:
    assert accepted(prompt, literal=True)


# ── sizes ──


def test_check_size_is_in_bytes_and_bounded() -> None:
    assert accepted("ü" * (prompts.MAX_PASTE_BYTES // 2))
    assert "cannot be pasted" in refusal("ü" * (prompts.MAX_PASTE_BYTES // 2) + "x")


def test_argument_too_long_is_left_to_the_paste() -> None:
    longest = "ü" * (prompts.MAX_ARGUMENT_BYTES // 2)
    assert prompts.argument(longest, command=False) is not None
    assert prompts.argument(longest + "xx", command=False) is None


def test_argument_is_exact_but_for_what_is_dropped() -> None:
    carried = prompts.argument("!a\tb\r\n \u200bc\n", command=False)
    assert carried is not None
    assert carried.data.decode() == "!a\tb\r\n \u200bc\n"
    assert carried.reported == "!a\tb\r\n c\n"


def test_argument_of_a_command_is_left_to_the_paste() -> None:
    assert prompts.argument("/clear", command=True) is None


# ── telling prompts apart ──


def test_holds_is_a_prompt_with_something_before_or_after_it() -> None:
    assert prompts.holds("my draft do it", "do it")
    assert prompts.holds("do it\nmy draft", "do it")
    assert not prompts.holds("do it", "do it")
    assert not prompts.holds(" do   it ", "do it")
    assert not prompts.holds("do what", "do it")
    assert not prompts.holds("anything", "")


texts = st.text(st.characters(exclude_categories=["Cs"]))
prompt_texts = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]), st.sampled_from([*"!/@\\ \n\r\t~[", "\x1b", *INVISIBLE])
    )
)


@given(prompt_texts, st.booleans())
def test_paste_holds_no_control_byte_but_line_ends_and_tabs(prompt: str, command: bool) -> None:
    if accepted(prompt, command=command):
        for character in body(prompt, command=command):
            assert unicodedata.category(character) != "Cc" or character in "\n\t"


@given(prompt_texts)
def test_paste_first_characters_are_never_live(prompt: str) -> None:
    if accepted(prompt):
        pasted = prompts.visible(body(prompt))
        assert not pasted.startswith("!")
        assert not re.match(r"\s*/[A-Za-z:_-]*(\s|$)", pasted)
        assert not body(prompt).endswith("\\")


@given(prompt_texts)
def test_same_knows_a_prompt_again_whatever_was_normalised(prompt: str) -> None:
    for carried in (prompts.paste(prompt, command=False), prompts.argument(prompt, command=False)):
        assert carried is not None
        assert prompts.same(carried.reported, prompt)
        assert prompts.same(carried.reported.rstrip(), prompt)
        assert prompts.same(carried.reported.replace("\t", "    "), prompt)
        assert not prompts.holds(carried.reported, prompt)


@given(texts, texts)
def test_same_distinguishes_prompts_that_differ_in_what_is_seen(one: str, other: str) -> None:
    seen = [unicodedata.normalize("NFC", "".join(prompts.visible(text).split())) for text in (one, other)]
    assert prompts.same(one, other) == (seen[0] == seen[1])


def test_same_knows_a_prompt_again_that_was_composed() -> None:
    assert prompts.same("d\u00e9j\u00e0 \u00c5", "de\u0301ja\u0300 \u212b")
    assert not prompts.same("deja", "de\u0301ja\u0300")


@given(texts, st.integers(0, 50), st.characters(categories=["L", "N", "P", "S"]))
def test_same_a_visible_character_more_is_another_prompt(text: str, place: int, more: str) -> None:
    if more not in ("\u115f", "\u1160", "\u3164", "\uffa0"):  # letters that no one sees
        assert not prompts.same(text[:place] + more + text[place:], text)


# ── pictures ──


def pastes(prompt: str) -> list[str]:
    data = prompts.paste(prompt, command=False).data.removesuffix(b"\r").decode()
    return data.removeprefix("\x1b[200~").removesuffix("\x1b[201~").split("\x1b[201~\x1b[200~")


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [
        ("/a/b.png", ["/a/b.pn", "g"]),
        ("see\n '/a/b c.JPEG' \nand", ["see\n '/a/b c.JPE", "G' \nand"]),
        ("/a.png /b.webp\n/c.gif", ["/a.pn", "g /b.web", "p\n/c.gi", "f"]),
        ("/a.png.jpg", ["/a.pn", "g.jp", "g"]),
        ("see /a/b.png", ["see /a/b.png"]),
        ("b.png", ["b.png"]),
        ("/a/b.pdf", ["/a/b.pdf"]),
    ],
)
def test_paste_path_of_a_picture_comes_in_two(prompt: str, wanted: list[str]) -> None:
    assert pastes(prompt) == wanted
    assert prompts.paste(prompt, command=False).reported == prompt


def test_check_more_pictures_than_can_be_pasted_are_refused() -> None:
    assert accepted("/x/a.png\n" * 1000)
    assert "more than 1000 pictures" in refusal("/x/a.png\n" * 1001)
