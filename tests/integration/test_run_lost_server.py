"""`remuda run` and a server that goes away: an answer that is there is printed."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from remuda.pool.protocol import encode
from support.commands import Commands
from support.heimdall_client import PATIENCE
from support.keeper import until
from support.pool_servers import HELLO, Speak, bad_server, hang, say

RESULT = {"request_id": "r", "text": "the answer", "session_id": "s", "backend": "terminal", "usage": None}
ANSWER = encode({"type": "token", "text": "the answer"}) + encode(
    {"type": "done", "result": RESULT, "more": True}
)


# ── an answer whose usage has not come ──


def test_run_json_prints_an_answer_whose_server_hangs_up_before_its_usage(remuda: Commands) -> None:
    with bad_server(remuda.home / "pool.sock", say(HELLO, ANSWER)):
        found = json.loads(remuda("run", "--json", "hello").out)
    assert (found["text"], found["usage"], found["cold"]) == ("the answer", None, False)


def silent_behind(*pieces: bytes) -> Speak:
    def speak(connection: socket.socket) -> None:
        say(*pieces)(connection)
        hang(connection)

    return speak


def test_run_json_prints_an_answer_whose_server_goes_silent_before_its_usage(remuda: Commands) -> None:
    with bad_server(remuda.home / "pool.sock", silent_behind(HELLO, ANSWER)):
        found = json.loads(remuda("run", "--json", "--server-timeout", "3", "hello").out)
    assert (found["text"], found["usage"]) == ("the answer", None)


def is_waiting(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_json_prints_an_answer_when_it_is_interrupted_before_its_usage(
    remuda: Commands, number: int
) -> None:
    with bad_server(remuda.home / "pool.sock", silent_behind(HELLO, ANSWER)):
        call = remuda.begin("run", "--json", "--stream", "hello")
        assert call.stdout is not None
        assert json.loads(call.stdout.readline())["type"] == "token"
        until(lambda: is_waiting(call.pid), "its wait")  # the answer came with the token
        call.send_signal(number)
        out, _ = call.communicate(timeout=PATIENCE)
    done = json.loads(out)
    assert (call.returncode, done["type"]) == (0, "done")
    assert (done["result"]["text"], done["result"]["usage"]) == ("the answer", None)
