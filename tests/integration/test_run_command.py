"""`remuda run` on a served pool of made-up agents: what it prints, what it ends with, and whom it trusts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.pool.pool_connection import request
from support.commands import COMMAND, Commands, Done
from support.heimdall_client import PATIENCE
from support.keeper import until
from support.pool_servers import SERVERS, bad_server, fake_pool
from support.print_calls import Calls


@pytest.fixture
def pool(remuda: Commands) -> Iterator[Path]:
    """Where it is served."""
    with fake_pool(remuda) as path:
        yield path


def idle(path: Path) -> bool:
    status = request(str(path), {"type": "status"})["status"]
    return not status["requests"]


# ── what it prints ──


def test_run_prints_the_answer(remuda: Commands, pool: Path) -> None:
    done = remuda("run", "hello")
    assert done == ("REPLY to: hello\n", "")


@pytest.mark.parametrize("words", [["run", "-"], ["run"]])
def test_run_takes_its_prompt_from_standard_input(remuda: Commands, pool: Path, words: list[str]) -> None:
    done = subprocess.run(
        [*COMMAND, *words], env=remuda.env, cwd=remuda.cwd, input="ä\nb", capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "REPLY to: ä\nb\n")


def test_run_json_is_the_result_with_its_usage(remuda: Commands, pool: Path) -> None:
    for prompt in ("hello", "LATE"):
        found = json.loads(remuda("run", prompt, "--json", "--request-id", "mine").out)
        assert found["text"] == f"REPLY to: {prompt}"
        assert found["request_id"] == "mine"
        assert found["usage"]["output_tokens"] == 4
        assert found["conversation_id"] == "c1"
        assert found["cold"] is False


def test_run_stream_is_the_text_as_it_comes(remuda: Commands, pool: Path) -> None:
    assert remuda("run", "--stream", "hello").out == "REPLY to: hello\n"


def test_run_stream_json_is_an_event_a_line(remuda: Commands, pool: Path) -> None:
    lines = remuda("run", "--stream", "--json", "USE ls", "--permissions", "allow").out.splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["type"] for event in events] == [
        "permission",
        "tool_use",
        "tool_result",
        "token",
        "token",
        "done",
    ]
    assert events[-1]["result"]["text"] == "Allow"


def test_run_permissions_are_as_the_pool_has_them_or_as_asked(remuda: Commands, pool: Path) -> None:
    assert remuda("run", "USE ls").out == "Deny\n"
    assert remuda("run", "USE ls", "--permissions", "allow").out == "Allow\n"


# ── whose folder, whose environment ──


def where(remuda: Commands, *words: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(remuda("run", "WHERE", *words, **more).out)
    return found


def test_run_folder_environment_and_model_are_the_calls_own(remuda: Commands, pool: Path) -> None:
    (remuda.home / "other").mkdir()
    found = where(remuda, env={"MINE": "1", "SHLVL": "5"})
    assert found["cwd"] == str(remuda.cwd)
    assert found["env"]["MINE"] == "1"
    assert found["env"]["HOME"] == str(remuda.home)
    assert "SHLVL" not in found["env"]
    words = ["--cwd", str(remuda.home / "other"), "--env", "MINE=2", "--env", "HOME", "-m", "opus"]
    found = where(remuda, *words, env={"MINE": "1"})
    assert found["cwd"] == found["env"]["PWD"] == str(remuda.home / "other")
    assert found["env"]["MINE"] == "2"
    assert "HOME" not in found["env"]
    assert found["model"] == "opus"


# ── how it ends ──


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["FAIL"], 1, "API Error: 400 no"),
        (["CRASH"], 2, "gone: exit:1"),
        (["HANG", "--timeout", "0.2"], 124, "no answer within 0.2 s"),
        (["x", "--backend", "stream"], 2, "backend"),
        (["x", "--arg=--resume=5"], 2, "begins fresh"),
        (["x", "--cwd", "/no/such/folder"], 2, "must be a folder"),
        (["x", "--claude-binary", "/no/such"], 2, "claude_binary"),
        (["x", "--request-id", "../y"], 2, "request_id"),
        (["x", "--permissions", "perhaps"], 2, "--permissions"),
        (["x", "--timeout", "soon"], 2, "--timeout"),
        (["x", "--nonsense"], 2, "--nonsense"),
        (["x", "--json=5"], 2, "--json"),
        (["x", "--model"], 2, "--model"),
        (["x", "--env", "=1"], 2, "--env"),
        (["x", "y"], 4, "more than one"),
        (["  "], 4, "the prompt is empty"),
        (["-"], 4, "the prompt is empty"),
    ],
)
def test_run_error_is_reported_in_one_line_and_by_its_code(
    remuda: Commands, pool: Path, words: list[str], code: int, says: str
) -> None:
    assert says in remuda.refused("run", *words, code=code)


def test_run_error_in_json_is_a_document(remuda: Commands, pool: Path) -> None:
    found = json.loads(remuda("run", "FAIL", "--json", code=1).out)
    assert found["error"]["code"] == "AGENT_ERROR"
    last = remuda("run", "FAIL", "--json", "--stream", code=1).out.splitlines()[-1]
    assert json.loads(last)["code"] == "AGENT_ERROR"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_run_interrupted_ends_with_130_and_stops_the_turn(remuda: Commands, pool: Path, number: int) -> None:
    call = remuda.begin("run", "HANG", "--stream")
    assert call.stdout is not None
    assert call.stdout.read(3).decode() == "…"
    call.send_signal(number)
    _, err = call.communicate(timeout=PATIENCE)
    assert call.returncode == 130
    assert err.decode().startswith("remuda: interrupted by")
    until(lambda: idle(pool), "the end of the turn")


def test_run_killed_stops_the_turn(remuda: Commands, pool: Path) -> None:
    call = remuda.begin("run", "HANG", "--stream")
    assert call.stdout is not None
    assert call.stdout.read(3).decode() == "…"
    call.kill()
    call.communicate(timeout=PATIENCE)
    until(lambda: idle(pool), "the end of the turn")


def test_run_whose_reader_has_gone_ends_quietly(remuda: Commands, pool: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "run", "hello"], env=remuda.env, stdout=write, stderr=subprocess.PIPE, timeout=PATIENCE
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


# ── who is there ──


def test_run_no_pool_there_is_refused_when_no_cold_run_is_wanted(remuda: Commands) -> None:
    assert "no pool is served" in remuda.refused("run", "x", "--no-fallback", code=3)
    (remuda.home / "file").touch()
    assert "not a socket" in remuda.refused("run", "x", "--socket", str(remuda.home / "file"), code=4)


@pytest.mark.parametrize("name", SERVERS)
def test_run_a_broken_server_is_an_error_and_never_a_cold_run(remuda: Commands, name: str) -> None:
    with bad_server(remuda.home / "pool.sock", SERVERS[name]):
        said = remuda.refused("run", "x", "--server-timeout", "0.5", code=9)
    assert "cold" not in said


# ── the others ──


def test_pool_status_metrics_and_warm_report(remuda: Commands, pool: Path) -> None:
    remuda("run", "hello")
    assert remuda("pool", "warm", "2").out == "ready\n"
    assert "2 idle, of 4" in remuda("pool", "status").out
    found = json.loads(remuda("pool", "status", "--json").out)
    assert found["served"] == 1
    assert found["socket"] == str(pool)
    assert "remuda_pool_requests_total" in remuda("pool", "metrics").out
    assert "cannot keep 9 workers ready" in remuda.refused("pool", "warm", "9", code=2)


def test_pool_stop_returns_when_all_has_ended(remuda: Commands, pool: Path) -> None:
    assert remuda("pool", "stop").out.startswith("stopped the pool (pid ")
    assert not pool.exists()
    for command in ("status", "metrics", "stop", "warm"):
        said = remuda.refused("pool", command, code=3)
        assert "no pool is served" in said
        assert ("nothing to stop" in said) == ("start one with" not in said) == (command == "stop")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("run --allo", "--allowed-tools"),
        ("run --backend ", "stream"),
        ("pool ", "serve"),
        ("pool serve --max-", "--max-queue"),
        ("ru", "run"),
    ],
)
def test_completion_knows_the_commands_and_their_options(remuda: Commands, words: str, wanted: str) -> None:
    line = f"remuda {words}"
    env = {"_REMUDA_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    assert f"plain,{wanted}" in remuda(env=env).out.splitlines()


def test_help_has_an_example_for_each(remuda: Commands) -> None:
    for words in (
        ["ask"],
        ["run"],
        ["pool"],
        ["pool", "serve"],
        ["pool", "status"],
        ["pool", "stop"],
        ["pool", "warm"],
    ):
        assert "Example" in remuda(*words, "--help").out


# ── cold ──


def cold(calls: Calls, *words: str, code: int = 0, **more: Any) -> Done:
    done = calls.remuda("run", "--claude-binary", str(calls.binary), *words, code=code, **more)
    assert "running cold" in done.err
    calls.assert_nothing_left()
    return done


def test_cold_run_is_said_and_answers(calls: Calls) -> None:
    done = cold(calls, "hello")
    assert done.out == "REPLY#1 to: hello\n"
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("backend", ["terminal", "stream"])
def test_cold_run_json_has_the_fields_of_a_warm_one(calls: Calls, pool: Path, backend: str) -> None:
    warm = json.loads(calls.remuda("run", "--json", "hello").out)
    words = ["--json", "--backend", backend, "--request-id", "mine", "--socket", f"{pool}.none"]
    found = json.loads(cold(calls, "hello", *words).out)
    assert found.keys() == warm.keys()
    assert found["text"] == "REPLY#1 to: hello"
    assert found["cold"] is True
    assert found["warm"] is False
    assert found["request_id"] == "mine"
    assert found["backend"] == backend


@pytest.mark.parametrize("backend", ["terminal", "stream"])
def test_cold_run_stream_prints_text_as_it_comes(calls: Calls, backend: str) -> None:
    assert cold(calls, "hello", "--stream", "--backend", backend).out == "REPLY#1 to: hello\n"
    lines = cold(calls, "hello", "--stream", "--json", "--backend", backend).out.splitlines()
    events = [json.loads(line) for line in lines]
    assert (
        "".join(event["text"] for event in events if event["type"] == "token").strip() == "REPLY#1 to: hello"
    )
    assert events[-1]["result"]["text"] == "REPLY#1 to: hello"


def test_cold_run_options_reach_the_agent(calls: Calls) -> None:
    (calls.home / "other").mkdir()
    words = ["--cwd", str(calls.home / "other"), "--env", "MINE=2", "--model", "opus", "hello"]
    cold(calls, *words)
    env = (calls.home / "agent.env").read_text().splitlines()
    assert "MINE=2" in env
    assert f"PWD={calls.home}/other" in env


def test_cold_run_error_and_timeout_are_as_warm_ones(calls: Calls) -> None:
    assert "API Error: 400" in cold(calls, "err 400", code=1).err
    found = json.loads(cold(calls, "err 400", "--json", code=1).out)
    assert found["error"]["code"] == "AGENT_ERROR"
    cold(calls, "THINK 600 x", "--timeout", "3", code=124)
    assert "needs a pool" in calls.remuda("run", "x", "--permissions", "allow", code=2).err
