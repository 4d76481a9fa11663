"""What a command line of `remuda print` asks for, and what becomes of every flag."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from remuda.agents.claude.flags import MANY_VALUES, ONE_VALUE, OPTIONAL_VALUE
from remuda.agents.claude.print.print_flags import ALIASES, FLAGS, HIDDEN, TERMINAL, terminal_arguments
from remuda.agents.headless import Handling
from remuda.cli.print import command
from remuda.errors import AgentRefused, InvalidOptions
from remuda.oneshot.print_request import OWN, OWN_ALIASES, PrintRequest, parse
from support.print_docs import NOTES, PAGE, filled

VALUES = {"--output-format": ["json"], "--input-format": ["text"], "--permission-prompts": ["none"]}


def words_for(flag: str) -> list[str]:
    """The flag with a value, where it takes one."""
    if flag in ONE_VALUE | MANY_VALUES | OPTIONAL_VALUE:
        return [flag, *VALUES.get(flag, ["1"])]
    return [flag]


def of(kind: Handling) -> list[str]:
    return sorted(flag for flag, handled in TERMINAL.items() if handled is kind)


def arguments(flags: list[str], env: dict[str, str], cwd: Path) -> list[str]:
    return terminal_arguments(flags, env, cwd, inherit_hooks=True, asks=True)


# ── reading words ──


@pytest.mark.parametrize(
    ("words", "prompt", "passed"),
    [
        (["hello"], ["hello"], []),
        (["hello", "--model", "opus"], ["hello"], ["--model", "opus"]),
        (["-m", "opus", "hello"], ["hello"], ["--model", "opus"]),
        (["--model=opus", "hello"], ["hello"], ["--model=opus"]),
        (["--allowed-tools", "Bash", "Read", "--", "hello"], ["hello"], ["--allowedTools", "Bash", "Read"]),
        (["-r", "an id", "hello"], ["hello"], ["--resume", "an id"]),
        (["-p", "--", "-p", "--keep", "-m"], ["-p", "--keep", "-m"], []),
        (["--append-system-prompt", "-c", "hello"], ["hello"], ["--append-system-prompt", "-c"]),
        (["--system-prompt", "--keep", "hello"], ["hello"], ["--system-prompt", "--keep"]),
        (["-", "--timeout", "5"], ["-"], []),
    ],
)
def test_parse_reads_a_word_as_a_flag_only_at_the_place_of_one(
    words: list[str], prompt: list[str], passed: list[str]
) -> None:
    request = parse(words)
    assert (request.prompt_words, request.passed) == (prompt, passed)
    assert not request.keep


def test_parse_takes_our_own_flags_in_both_forms() -> None:
    words = ["--timeout=5", "--first-output-timeout", "0", "--stop-hook-timeout", "1.5", "-f", "in.txt"]
    more = ["--claude-binary", "c", "--config=k", "--no-inherit-hooks", "--pretrust-cwd", "--ask", "--keep"]
    request = parse([*words, *more, "--trace", "--show-child-output", "--check"])
    limits = (request.timeout, request.first_output_timeout, request.stop_hook_timeout)
    assert limits == (5.0, 0.0, 1.5)
    assert (request.input_file, request.claude_binary, request.config) == ("in.txt", "c", "k")
    assert request.inherit_hooks is False
    assert all([request.pretrust_cwd, request.ask, request.keep, request.trace, request.check])
    assert request.show_child_output


def test_parse_asks_for_nothing_when_nothing_is_said() -> None:
    assert vars(parse([])) == vars(PrintRequest())


def test_parse_takes_no_turns_as_no_limit() -> None:
    assert parse(["--max-turns", "0"]).max_turns == 0
    assert parse(["--max-turns", "7"]).max_turns == 7


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nope"], "unknown option --nope"),
        (["-x"], "unknown option -x"),
        (["--timeout"], "--timeout needs a value"),
        (["--timeout", "soon"], "is not a time"),
        (["--timeout", "-1"], "is not a time"),
        (["--timeout", "nan"], "is not a time"),
        (["--keep=yes"], "--keep takes no value"),
        (["--backend", "tmux"], "use terminal or stream"),
        (["--model"], "--model needs a value"),
        (["--allowedTools"], "--allowedTools needs a value"),
        (["--output-format", "xml"], "text, json, stream-json"),
        (["--output-format", "stream-json"], "needs --verbose"),
        (["--include-partial-messages"], "stream-json"),
        (["--max-turns", "few"], "not an integer"),
        (["--max-turns", "9" * 5000], "not an integer"),
        (["--resume"], "--resume needs"),
        (["--input-format", "stream-json"], "--backend stream"),
        (["--permission-prompts", "host"], "--backend stream"),
        (["--backend", "stream", "--keep"], "--backend stream"),
        (["--backend", "stream", "--ask"], "--backend stream"),
    ],
)
def test_parse_says_what_is_wrong_with_a_command_line(words: list[str], says: str) -> None:
    with pytest.raises(InvalidOptions) as error:
        parse(words)
    assert says in str(error.value)
    assert error.value.exit_code == 2


# ── every flag ──


@pytest.mark.parametrize("flag", of(Handling.PASSED))
def test_a_flag_that_is_passed_on_reaches_the_cli_as_it_is(flag: str) -> None:
    for backend in ("terminal", "stream"):
        assert parse(["--backend", backend, *words_for(flag)]).passed == words_for(flag)


@pytest.mark.parametrize("flag", of(Handling.STREAM))
def test_a_flag_that_no_terminal_has_names_the_backend_that_has_it(flag: str) -> None:
    with pytest.raises(InvalidOptions, match=r"--backend stream") as error:
        parse(words_for(flag))
    assert flag in str(error.value)
    assert parse(["--backend", "stream", *words_for(flag)]).passed == words_for(flag)


@pytest.mark.parametrize("flag", of(Handling.REFUSED))
def test_a_flag_that_makes_no_call_is_refused_by_its_name(flag: str) -> None:
    for backend in ("terminal", "stream"):
        with pytest.raises(InvalidOptions, match=f"^{flag} does not work"):
            parse(["--backend", backend, *words_for(flag)])


@pytest.mark.parametrize("flag", of(Handling.OURS))
def test_a_flag_that_we_carry_out_is_not_given_to_the_terminal(flag: str) -> None:
    needed = ["--output-format", "stream-json", "--verbose"] if "partial" in flag else []
    assert parse([*needed, *words_for(flag)]).passed == []


def test_every_other_name_of_a_flag_is_known_and_none_of_ours_is_the_clis() -> None:
    assert set(ALIASES.values()) <= set(TERMINAL)
    assert set(NOTES) <= set(TERMINAL)
    assert set(OWN_ALIASES.values()) <= OWN
    assert not (OWN | set(OWN_ALIASES)) & (set(TERMINAL) | set(ALIASES))
    assert {flag for flag in HIDDEN if FLAGS.handling(flag, "terminal") is None} == set()
    assert FLAGS.handling("--nope", "stream") is None


def test_help_and_docs_have_every_flag_of_our_own() -> None:
    shown = CliRunner().invoke(command, ["--help"]).output
    page = PAGE.read_text().partition("## Remuda's own flags")[2].partition("##")[0]
    for flag in OWN - {"--cold"}:  # which is for ask
        assert f" {flag}" in shown, flag
        assert re.search(rf"`(?:--check )?{flag}\b", page), flag
    assert "three seconds" in shown


def test_docs_show_every_flag_and_every_difference_as_the_code_has_them() -> None:
    page = PAGE.read_text()
    assert filled(page) == page, "python tests/support/print_docs.py writes the tables"


# ── where the terminal takes arguments otherwise ──


def test_continue_names_the_newest_conversation_of_the_folder(tmp_path: Path) -> None:
    cwd, env = tmp_path / "a.b ü😀", {"HOME": str(tmp_path)}
    cwd.mkdir()
    assert arguments(["--continue", "--model", "x"], env, cwd) == ["--model", "x"]
    name = str(tmp_path).replace("/", "-").replace("_", "-") + "-a-b----"
    folder = tmp_path / ".claude" / "projects" / name
    folder.mkdir(parents=True)
    old, new = (f"{digit * 8}-0000-0000-0000-000000000000" for digit in "12")
    for number, stem in enumerate([old, new, "agent-7"]):
        (folder / f"{stem}.jsonl").touch()
        os.utime(folder / f"{stem}.jsonl", (number, number))
    assert arguments(["--continue", "--model", "x"], env, cwd) == ["--resume", new, "--model", "x"]


TITLED = "11111111-0000-0000-0000-000000000000"
OTHER = "22222222-0000-0000-0000-000000000000"


def conversation(home: Path, cwd: Path, stem: str, *titles: str, more: int = 0) -> None:
    folder = home / ".claude" / "projects" / re.sub("[^A-Za-z0-9]", "-", str(cwd))
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"type": "user", "text": '{"type":"custom-title","customTitle":"quoted"}'})]
    lines += [f'{{"type":"custom-title","customTitle":{json.dumps(title)}}}' for title in titles]
    lines += ["x" * more] if more else []
    (folder / f"{stem}.jsonl").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("asked", ["a title", " A Title ", "ü"])
@pytest.mark.parametrize("more", [0, 1 << 20])
def test_resume_of_a_title_names_its_conversation(tmp_path: Path, asked: str, more: int) -> None:
    env = {"HOME": str(tmp_path)}
    conversation(tmp_path, tmp_path, TITLED, "before", "ü" if asked == "ü" else "a title", more=more)
    conversation(tmp_path, tmp_path, OTHER)
    wanted = ["--resume", TITLED, "--model", "x"]
    assert arguments(["--resume", asked, "--model", "x"], env, tmp_path) == wanted
    assert arguments([f"--resume={asked}", "--model", "x"], env, tmp_path) == wanted


@pytest.mark.parametrize("asked", ["before", "a tit", "quoted", TITLED, "/some/file.jsonl"])
def test_resume_of_what_is_no_title_is_left_to_the_agent(tmp_path: Path, asked: str) -> None:
    conversation(tmp_path, tmp_path, TITLED, "before", "a title")
    given = ["--resume", asked, "--model", "x"]
    assert arguments(given, {"HOME": str(tmp_path)}, tmp_path) == given


def test_resume_of_a_title_that_several_have_is_refused_with_their_ids(tmp_path: Path) -> None:
    for stem in (TITLED, OTHER):
        conversation(tmp_path, tmp_path, stem, "a title")
    with pytest.raises(AgentRefused, match="2 conversations") as refused:
        arguments(["--resume", "a title"], {"HOME": str(tmp_path)}, tmp_path)
    assert TITLED in refused.value.message
    assert OTHER in refused.value.message


@pytest.mark.parametrize(
    "flags",
    [
        ["--dangerously-skip-permissions"],
        ["--allow-dangerously-skip-permissions"],
        ["--permission-mode", "bypassPermissions"],
        ["--permission-mode=bypassPermissions"],
        ["--settings", '{"permissions": {"defaultMode": "bypassPermissions"}}'],
    ],
)
def test_no_permission_checks_are_asked_for_once_and_not_back(flags: list[str], tmp_path: Path) -> None:
    given = arguments(flags, {"HOME": str(tmp_path)}, tmp_path)
    assert '"skipDangerousModePermissionPrompt": true' in given[given.index("--settings") + 1]


def test_permission_checks_that_no_one_waived_stay_as_they_are(tmp_path: Path) -> None:
    flags = ["--permission-mode", "manual", "--append-system-prompt", "bypassPermissions"]
    assert arguments(flags, {"HOME": str(tmp_path)}, tmp_path) == flags
