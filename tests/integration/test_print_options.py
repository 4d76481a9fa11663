"""`remuda print` on the scripted agent: claude-print's flags and name, the demo agent, what `--ask` says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.keeper.client import KeeperClient
from remuda.wire.connection import ClientConnection
from support.commands import Commands
from support.keeper import event_named, until
from support.print_calls import Calls, write_program

SCRIPTS = Path(sys.executable).parent
SAY_STREAM = "using --backend stream\n"


# ── control characters ──


@pytest.mark.parametrize("prompt", ["a\x1b[201~b", "\x07", "a\u0085b"], ids=["escape", "bell", "c1"])
def test_a_prompt_that_no_terminal_can_carry_runs_on_the_stream_backend(calls: Calls, prompt: str) -> None:
    took, arguments = calls.home / "took", calls.home / "arguments"
    write_program(
        calls.binary,
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {arguments}\ncat > {took}\n'
        'echo \'{"type":"result","subtype":"success","result":"ok"}\'\n',
    )
    done = calls("--output-format", "json", "--max-turns", "7", prompt)
    assert json.loads(done.out)["backend"] == "stream"
    assert took.read_text() == prompt
    assert arguments.read_text().split("\n")[-3:] == ["--max-turns", "7", ""]
    character = next(one for one in prompt if not one.isprintable())
    assert done.err == (
        f"remuda print: the prompt contains U+{ord(character):04X} at position {prompt.index(character)}, "
        f"which a terminal cannot take; {SAY_STREAM}"
    )


def test_an_error_of_such_a_call_says_which_backend_ran(calls: Calls) -> None:
    write_program(calls.binary, "#!/bin/sh\nexec tail -f /dev/null\n")
    done = calls("\x07", "--output-format", "json", "--timeout", "0.2", code=124)
    assert json.loads(done.out)["backend"] == "stream"


# ── claude-print ──


def run(name: str, *words: str, calls: Calls) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPTS / name, *words],
        env=calls.env,
        cwd=calls.cwd,
        stdin=subprocess.DEVNULL,
        text=True,
        capture_output=True,
    )


def test_claude_print_is_print_under_its_own_name(calls: Calls) -> None:
    binary = ["--claude-binary", str(calls.binary)]
    answered = run("claude-print", "hello", *binary, calls=calls)
    assert (answered.returncode, answered.stdout, answered.stderr) == (0, "REPLY#1 to: hello\n", "")
    version = run("claude-print", "-V", *binary, calls=calls).stdout
    assert re.fullmatch(r"claude-print \S+ \(wrapping claude [\d.]+\)\n", version)
    traced = run("claude-print", "hello", "--trace", *binary, calls=calls).stderr
    assert re.match(r"\[claude-print \d+ms\] ", traced)
    for words, code in (["--nope"], 2), (["--max-turns", "x"], 2), ([], 4):
        refused = run("claude-print", *words, *binary, calls=calls)
        assert (refused.returncode, refused.stdout) == (code, "")
        assert refused.stderr.startswith("claude-print: ")
    help_text = run("claude-print", "--help", calls=calls).stdout
    assert help_text.startswith("Usage: claude-print ")
    assert 'git diff | claude-print "review this"' in help_text


@pytest.mark.parametrize("backend", ["terminal", "stream"])
def test_cost_and_version_are_in_every_result(calls: Calls, backend: str) -> None:
    found = calls.json("hello", "--backend", backend)
    assert found["cost_usd"] == (found["total_cost_usd"] or 0)
    assert isinstance(found["cost_usd"], int | float)
    assert re.fullmatch(r"[\d.]+", found["claude_version"])


@pytest.mark.parametrize(
    ("words", "env", "code"),
    [
        (["--stop-hook-timeout", "1"], {"MOCK_DELAY_STOP": "99999"}, 124),
        (["--backend", "stream"], {"MOCK_DIE_ON": "hello"}, 2),
    ],
    ids=["terminal", "stream"],
)
def test_version_is_in_an_error_too_once_the_agent_has_said_it(
    calls: Calls, words: list[str], env: dict[str, str], code: int
) -> None:
    found = calls.json("hello", *words, env=env, code=code)
    assert found["is_error"]
    assert re.fullmatch(r"[\d.]+", found["claude_version"])


def test_version_is_null_where_no_agent_was_started(calls: Calls) -> None:
    found = calls.json("hello", "--claude-binary", "/nonexistent", code=2)
    assert found["claude_version"] is None


@pytest.mark.parametrize("backend", ["terminal", "stream"])
def test_stream_json_timeout_ends_a_call_without_a_message(calls: Calls, backend: str) -> None:
    words = ["--output-format", "stream-json", "--verbose", "--backend", backend, "--stream-json-timeout"]
    assert '"result":"REPLY#1 to: hello"' in calls("hello", *words, "2m").out
    write_program(calls.binary, "#!/bin/sh\nexec tail -f /dev/null\n")
    ended = json.loads(calls("hello", *words, "0.5", code=124).out)
    assert ended["error_message"].startswith("--stream-json-timeout: no message after 0.5 s")
    assert (ended["subtype"], ended["backend"]) == ("timeout", backend)


def test_pool_socket_names_a_pool(calls: Calls) -> None:
    done = calls("hello", "--pool-socket", str(calls.home / "none.sock"))
    assert done.out == "REPLY#1 to: hello\n"
    assert f"no pool is served at {calls.home}/none.sock; running cold" in done.err


@pytest.mark.parametrize("value", ["10m", "90", "1h30m", "0"])
def test_a_time_may_be_a_duration(calls: Calls, value: str) -> None:
    assert calls("hello", "--timeout", value, "--stop-hook-timeout", value).out == "REPLY#1 to: hello\n"


# ── the demo agent ──


@pytest.mark.parametrize(
    "words",
    [["print"], ["print", "--backend", "stream"], ["run"], ["run", "--backend", "stream"]],
    ids=["print", "print-stream", "run", "run-stream"],
)
def test_demo_needs_no_claude(remuda: Commands, words: list[str]) -> None:
    env = {"PATH": "/nowhere"}
    assert remuda(*words, "--demo", "hello", env=env).out == "REPLY#1 to: hello\n"
    missing = remuda(*words, "hello", env=env, code=2)
    assert "--demo" in missing.err
    assert "cannot be combined" in remuda(*words, "--demo", "x", "--claude-binary", "y", code=2).err


# ── --ask ──


def test_ask_says_once_per_wait_what_it_waits_for_and_where_to_answer(calls: Calls) -> None:
    made = calls.home / "made"
    call = calls.begin("--ask", f"RUNBASH touch {made}", env={"MOCK_DIALOG_GUARD": "0"})
    call.until("waiting for permission")
    told = call.said[-1]
    name = call.name
    assert told.startswith("remuda print: waiting for permission")
    assert told.endswith(f"; answer with 'remuda approve {name}' or 'remuda attach {name}'")
    with KeeperClient.connect(name, calls.sessions) as human:
        if human.request("watch")["state"] != "waiting_permission":
            event_named(human, "state", state="waiting_permission")
        until(lambda: "Do you want to proceed?" in "\n".join(human.request("screen")["lines"]), "the dialog")
        human.send(ClientConnection.input(b"1"))
        code, out, err = call.ended()
    assert (code, made.exists()) == (0, True)
    assert "REPLY#2" in out
    assert err.count("waiting for") == 1
    assert "Bash" in told


def test_ask_says_nothing_of_the_trust_dialog_which_is_answered(calls: Calls) -> None:
    call = calls.begin("--ask", "hello", env={"MOCK_TRUST_DIALOG": "1"})
    code, out, err = call.ended()
    assert (code, out) == (0, "REPLY#1 to: hello\n")
    assert "waiting for" not in err
