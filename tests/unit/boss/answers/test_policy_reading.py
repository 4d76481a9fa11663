"""Shell commands are read as bash reads them, or not understood."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.boss.answers.reading import LONGEST, UNKNOWN, read_command
from support.shell_commands import CONTEXTS, NOT_UNDERSTOOD

U = UNKNOWN


def parts(text: str) -> list[tuple[str, ...]] | None:
    reading = read_command(text)
    return [part.words for part in reading.parts] if reading.is_understood else None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git status", [("git", "status")]),
        ("  git\tstatus  ", [("git", "status")]),
        ("a && b || c; d | e", [("a",), ("b",), ("c",), ("d",), ("e",)]),
        ("a&&b", [("a",), ("b",)]),
        ("a\nb\n", [("a",), ("b",)]),
        ("a &&\n b", [("a",), ("b",)]),
        ("a & b", [("a",), ("b",)]),
        ("a |& b", [("a",), ("b",)]),
        ("echo 'x; rm -rf ~' \"a b\"", [("echo", "x; rm -rf ~", "a b")]),
        ("echo 'a'\"b\"c", [("echo", "abc")]),
        ("grep 'a$b`c\\'", [("grep", "a$b`c\\")]),
        ('grep "foo$" "a\\$b" "c\\d"', [("grep", "foo$", "a$b", "c\\d")]),
        ("ls ü", [("ls", "ü")]),
        ("r''m x; \\rm y; \"rm\" z", [("rm", "x"), ("rm", "y"), ("rm", "z")]),
        ("echo a\\ b \\; c", [("echo", "a b", ";", "c")]),
        ("ls -la 2>&1 >/dev/null", [("ls", "-la")]),
        ("ls &>/dev/null; ls </dev/null", [("ls",), ("ls",)]),
        ("echo a2>/dev/null", [("echo", "a2")]),
        ("npm test \\\n  --watch", [("npm", "test", "--watch")]),
        ("[ ! -f x ] && [ a = b ]", [("[", "!", "-f", "x", "]"), ("[", "a", "=", "b", "]")]),
        ("ls *.py src/*.js ~/x HEAD~1", [("ls", f"{U}.py", f"src/{U}.js", f"~{U}/x", "HEAD~1")]),
        ("ls a{b,c}d [x]y stash@{0}", [("ls", f"a{U}", U, f"stash@{U}")]),
        ("find . -exec cat {} \\;", [("find", ".", "-exec", "cat", "{}", ";")]),
        ('git commit -m "Fix it!"', [("git", "commit", "-m", "Fix it!")]),
    ],
)
def test_command_that_is_certain_is_understood(text: str, expected: list[tuple[str, ...]]) -> None:
    assert parts(text) == expected


def test_part_after_a_pipe_is_fed() -> None:
    assert [part.is_fed for part in read_command("a | b |\n c; d || e").parts] == [0, 1, 1, 0, 0]


@pytest.mark.parametrize("text", NOT_UNDERSTOOD)
def test_command_that_is_not_certain_is_not_understood_and_says_why(text: str) -> None:
    reading = read_command(text)
    assert not reading.is_understood
    assert reading.doubt


@pytest.mark.parametrize(
    "text",
    [
        *(
            "X='1' rm y",
            "echo $(rm y)",
            'echo "$(rm y)"',
            "echo `rm y`",
            "(rm y)",
            "if a; then rm y; fi",
            "! rm y",
        ),
        *(
            "cat <<E\n$(rm y)\nE",
            "f() { rm y; }; f",
            "echo ${X:-$(rm y)}",
            "diff <(rm y) z",
            "rm y > z",
            "a=$(rm y)",
        ),
    ],
)
def test_command_that_is_not_understood_shows_the_parts_in_it(text: str) -> None:
    assert ("rm", "y") in [part.words for part in read_command(text).parts]


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8), min_size=1, max_size=4
    )
)
def test_quoted_words_come_back_as_they_were(words: list[str]) -> None:
    found = parts(shlex.join(words))
    assert found is None or found == [tuple(words)]


_PIECES = st.sampled_from([*" ;&|\n\t'\"\\$`(){}<>*#!=~\ré[]", *CONTEXTS, "<<E\n", "\nE\n", "$((", "rm x"])


@given(st.lists(_PIECES, max_size=12).map("".join))
def test_no_text_makes_the_reader_raise(text: str) -> None:
    assert read_command(text).doubt or read_command(text).parts


@pytest.mark.parametrize(
    "piece",
    [
        "$(",
        "(",
        "{ ",
        '"',
        "'",
        "<<E\n",
        "a|",
        "a;",
        "`",
        "[[ ",
        "${x:-",
        "a ",
        "\\\n",
        "if a; then ",
        "<(",
        "<<$(",
        "((",
    ],
)
def test_deep_or_long_text_is_read_in_bounded_time(piece: str) -> None:
    """With 64 KiB one of them took four minutes, and the timeout of the test ended it."""
    assert read_command((piece * LONGEST)[:LONGEST]).doubt or piece in ("a ", "a;")


def test_without_the_grammar_nothing_is_understood_and_commands_are_asked() -> None:
    code = """
import sys
sys.modules["tree_sitter_bash"] = None
from remuda.boss.answers.permission_policy import read_policy
from remuda.boss.answers.policy_request import PolicyRequest
def decide(*rules):
    policy = read_policy({"rule": list(rules)}, "/", str)
    return str(policy.decide(PolicyRequest("Bash", command="ls")).decision)
everything = {"decision": "allow", "tool": "Bash"}
print(decide({"decision": "deny", "command": "rm *"}, everything))
print(decide({"decision": "allow", "command": "ls"}))
print(decide(everything), decide({"decision": "deny", "tool": "Bash"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ask", "ask", "allow", "deny"]


def test_grammar_is_loaded_only_for_rules_with_a_command() -> None:
    code = """
import sys
import remuda.cli.boss
from remuda.boss.answers.permission_policy import read_policy
from remuda.boss.answers.policy_request import PolicyRequest
def loaded(*rules):
    read_policy({"rule": list(rules)}, "/", str).decide(PolicyRequest("Bash", command="ls"))
    return "tree_sitter" in sys.modules
print(loaded({"decision": "allow", "tool": "Bash"}), loaded({"decision": "allow", "command": "ls"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
