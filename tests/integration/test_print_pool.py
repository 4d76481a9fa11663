"""`remuda print --pool` and `remuda ask` on a served pool of made-up agents: printed as print prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import Commands, Done
from support.pool_servers import SERVERS, bad_server, fake_pool
from support.print_calls import Calls


@pytest.fixture
def pool(remuda: Commands) -> Iterator[Path]:
    with fake_pool(remuda, "stream") as path:
        yield path


STREAM = ("--output-format", "stream-json", "--verbose")


def test_print_pool_text_is_the_answer(remuda: Commands, pool: Path) -> None:
    assert remuda("print", "--pool", "hello") == ("REPLY to: hello\n", "")
    assert remuda("print", f"--pool={pool}", "hello").out == "REPLY to: hello\n"


def test_print_pool_json_is_the_agents_own_result(remuda: Commands, pool: Path) -> None:
    found = json.loads(remuda("print", "--pool", "hello", "--output-format", "json").out)
    assert found["result"] == "REPLY to: hello"
    assert found["backend"] == "stream"
    assert found["result_index"] == 0  # of this call


def test_print_pool_stream_json_has_what_was_asked_for(remuda: Commands, pool: Path) -> None:
    def kinds(*words: str) -> list[str]:
        lines = remuda("print", "--pool", "hello", *STREAM, *words).out.splitlines()
        return [json.loads(line)["type"] for line in lines]

    assert kinds() == ["system", "assistant", "result"]
    assert kinds("--include-partial-messages") == ["system", "system", "stream_event", "assistant", "result"]


def test_print_pool_an_error_of_the_agents_is_printed_and_1(remuda: Commands, pool: Path) -> None:
    assert remuda("print", "--pool", "FAIL", code=1).out == "API Error: 400 no\n"
    found = json.loads(remuda("print", "--pool", "FAIL", "--output-format", "json", code=1).out)
    assert found["is_error"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["CRASH"], 2, "gone: exit:1"),
        (["HANG", "--timeout", "0.2"], 124, "no answer"),
        (["x", "--backend", "terminal"], 2, "backend"),
        (["x", "--keep"], 2, "--keep"),
        (["x", "--ask"], 2, "--ask"),
        (["x", "--max-turns", "3"], 2, "--max-turns"),
        (["x", "--resume", "y"], 2, "begins fresh"),
        (["x", "--continue"], 2, "begins fresh"),
        (["x", "--session-id=5"], 2, "begins fresh"),
        (["x", "--worktree"], 2, "--worktree"),
        (["x", "--show-child-output"], 2, "--show-child-output"),
        (["x", "--first-output-timeout", "5"], 2, "--timeout"),
        (["x", "--claude-binary", "/no/such"], 2, "claude_binary"),
    ],
)
def test_print_pool_what_cannot_be_is_reported(
    remuda: Commands, pool: Path, words: list[str], code: int, says: str
) -> None:
    done = remuda("print", "--pool", *words, code=code)
    assert done.out == ""
    assert done.err.startswith("remuda print: ")
    assert says in done.err


def test_print_pool_a_failure_in_json_is_a_document(remuda: Commands, pool: Path) -> None:
    found = json.loads(remuda("print", "--pool", "CRASH", "--output-format", "json", code=2).out)
    assert (found["error_code"], found["backend"]) == ("SESSION_CRASHED", "stream")


def test_print_pool_model_and_tools_are_the_profiles(remuda: Commands, pool: Path) -> None:
    words = ["WHERE", "--model", "opus", "--allowedTools", "Bash", "Read", "--effort=low"]
    assert json.loads(remuda("print", "--pool", *words).out)["model"] == "opus"
    assert json.loads(remuda("run", "WHERE", "--model=opus").out)["model"] == "opus"


def test_print_pool_what_no_pool_can_is_refused_where_none_is_served(remuda: Commands) -> None:
    assert "begins fresh" in remuda("print", "--pool", "x", "--resume", "y", code=2).err


def test_print_pool_none_served_runs_cold_and_says_so(calls: Calls) -> None:
    done = calls("--pool", "hello")
    assert done.out == "REPLY#1 to: hello\n"
    assert done.err.startswith("remuda print: no pool is served at ")
    assert "running cold" in done.err
    calls.assert_nothing_left()


@pytest.mark.parametrize("name", ["garbage", "hangs up in the middle", "another version"])
def test_print_pool_a_broken_server_is_an_error_and_never_a_cold_run(remuda: Commands, name: str) -> None:
    with bad_server(remuda.home / "pool.sock", SERVERS[name]):
        done = remuda("print", "--pool", "x", "--timeout", "1", code=2)
    assert "cold" not in done.err


# ── ask ──


def test_ask_with_a_pool_is_answered_by_it(remuda: Commands, pool: Path) -> None:
    assert remuda("ask", "hello") == ("REPLY to: hello\n", "")
    found = json.loads(remuda("ask", "hello", "--output-format", "json").out)
    assert (found["result"], found["backend"]) == ("REPLY to: hello", "stream")
    assert remuda("ask", "FAIL", code=1).out == "API Error: 400 no\n"
    assert "no answer" in remuda("ask", "HANG", "--timeout", "1s", code=124).err


def ask(calls: Calls, *words: str, code: int = 0) -> Done:
    return calls.remuda("ask", "--claude-binary", str(calls.binary), *words, code=code)


def test_ask_without_a_pool_runs_cold_and_says_nothing_of_it(calls: Calls) -> None:
    assert ask(calls, "hello") == ("REPLY#1 to: hello\n", "")
    assert ask(calls, "err 400", code=1).out.startswith("API Error: 400")
    calls.assert_nothing_left()


@pytest.mark.parametrize(
    "words",
    [
        ("--cold",),
        ("--max-turns", "3"),  # no pool can do it
        ("--backend", "terminal"),  # this pool cannot: its backend is stream
        (),  # its program is another
    ],
)
def test_ask_runs_cold_what_the_pool_cannot_do(calls: Calls, pool: Path, words: tuple[str, ...]) -> None:
    done = ask(calls, "hello", *words)
    assert done == ("REPLY#1 to: hello\n", "")
    assert "running cold" in ask(calls, "hello", "--trace", *words).err or "--cold" in words
    calls.assert_nothing_left()


def test_ask_with_a_named_pool_refuses_as_print_does(remuda: Commands, pool: Path) -> None:
    assert "--keep cannot be used with --pool" in remuda("ask", "x", "--pool", "--keep", code=2).err
    assert "cannot be combined" in remuda("ask", "x", "--pool", "--cold", code=2).err
    assert "needs 'remuda ask'" in remuda("print", "x", "--cold", code=2).err


def test_ask_names_itself_and_shows_its_help(remuda: Commands) -> None:
    assert remuda("ask", "", code=4).err.startswith("remuda ask: the prompt is empty; ")
    assert "--cold" in remuda("ask", "--help").out
    assert "did you mean '--timeout'?" in remuda("ask", "--timeuot", "1", "x", code=2).err


@pytest.mark.parametrize("name", ["garbage", "hangs up in the middle"])
def test_ask_a_broken_server_is_an_error_and_never_a_cold_run(remuda: Commands, name: str) -> None:
    with bad_server(remuda.home / "pool.sock", SERVERS[name]):
        assert "cold" not in remuda("ask", "x", "--timeout", "1", code=2).err
