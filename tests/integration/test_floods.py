"""Another user holds connections to our servers and opens them again: what is ours still works."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import remuda as package
from remuda.boss.http.server import TCP_LIMITS
from remuda.errors import PoolBroken, PoolExhausted, RemudaError
from remuda.inbox.journal import Inbox
from remuda.keeper.client import KeeperClient
from support.boss import RunningBoss
from support.commands import Commands
from support.counts import FLOOD, HALF_FRAMES
from support.floods import HELD_OPEN, flood
from support.heimdall_client import PATIENCE
from support.keeper import event_named, until
from support.pool_in_loop import served, within

pytestmark = pytest.mark.soak

HOOK = Path(package.__file__).parent / "boss" / "hook.py"
PERMISSION = {
    "session_id": "s",
    "hook_event_name": "PermissionRequest",
    "cwd": "/",
    "transcript_path": "/none",
    "tool_name": "Bash",
    "tool_input": {"command": "ls"},
}
QUESTIONS = 20
each_flood = pytest.mark.parametrize("data", HELD_OPEN.values(), ids=HELD_OPEN.keys())


# ── the boss ──


@each_flood
def test_boss_flooded_by_another_user_answers_on_both_sockets(boss: RunningBoss, data: str) -> None:
    with flood(boss.port, FLOOD, data):
        for _ in range(QUESTIONS):
            assert boss.client.get("queue")["items"] == []
            assert boss.ask("GET", "/v1/queue").status == 200


def test_boss_flooded_by_our_own_user_answers_by_the_rule_of_age(boss: RunningBoss) -> None:
    """A connection can be displaced before its request is sent: then the client tries again."""

    def answers() -> bool:
        try:
            return boss.ask("GET", "/v1/queue").status == 200
        except OSError:
            return False

    with flood(boss.port, FLOOD, uid=os.getuid()):
        for _ in range(QUESTIONS):
            assert boss.client.get("queue")["items"] == []
            until(answers, "an answer over TCP")


def test_commands_of_a_flooded_boss_work(remuda: Commands, boss: RunningBoss) -> None:
    with flood(boss.port, FLOOD):
        assert "boss" in remuda("status").out
        remuda("queue")
        remuda("approvals")


@contextlib.contextmanager
def permission_hook(folder: Path, wait: str) -> Iterator[subprocess.Popen[str]]:
    """The boss's hook with a permission request, as the agent runs it."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(HOOK), str(folder), "--wait", wait],
        env={name: value for name, value in os.environ.items() if name in ("PATH", "REMUDA_TEST_RUN")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(json.dumps(PERMISSION))
        process.stdin.close()
        process.stdin = None
        yield process
    finally:
        process.kill()
        process.communicate()


def test_permission_hook_of_a_flooded_boss_waits_for_its_answer(boss: RunningBoss) -> None:
    def is_held() -> bool:
        return any(one["expires_at"] for one in boss.client.get("approvals", state="open")["approvals"])

    with flood(boss.port, FLOOD), permission_hook(boss.folder.path, "600") as hook:
        until(lambda: hook.poll() is not None or is_held(), "a hook that is held")
        assert hook.poll() is None, hook.communicate()
        (asked,) = boss.client.get("approvals", state="open")["approvals"]
        boss.client.post("approvals", asked["id"], "answer", body={"behavior": "allow"})
        out, err = hook.communicate(timeout=PATIENCE)
        assert (hook.returncode, err) == (0, "")
        assert json.loads(out)["hookSpecificOutput"]["decision"]["behavior"] == "allow"


def test_stream_of_changes_over_tcp_outlives_a_flood(boss: RunningBoss) -> None:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", boss.port, timeout=PATIENCE)) as asking:
        asking.request("GET", "/v1/events", headers={"Authorization": f"Bearer {boss.token}"})
        stream = asking.getresponse()
        with flood(boss.port, FLOOD):
            boss.client.post("hooks", body={"payload": {**PERMISSION, "hook_event_name": "Stop"}})
            while line := stream.readline():
                if b"stopped" in line:
                    return
    raise AssertionError("the stream has ended")


def test_boss_with_too_many_streams_says_so_and_serves_the_private_socket(boss: RunningBoss) -> None:
    request = f"GET /v1/events HTTP/1.1\r\nHost: localhost:{boss.port}\r\nAuthorization: Bearer {boss.token}"
    with contextlib.ExitStack() as held:
        for _ in range(TCP_LIMITS.trusted):
            one = held.enter_context(socket.create_connection(("127.0.0.1", boss.port), PATIENCE))
            one.sendall(f"{request}\r\n\r\n".encode())
            assert one.recv(12) == b"HTTP/1.1 200"
        refused = boss.ask("GET", "/v1/queue")
        assert (refused.status, refused.json["error"]["code"]) == (503, "BUSY")
        assert "too many connections" in refused.json["error"]["message"]
        assert boss.client.get("queue")["items"] == []
    until(lambda: boss.ask("GET", "/v1/queue").status == 200, "room for another")


def test_hook_that_a_busy_boss_turns_away_comes_again_and_says_so(home: Path) -> None:
    """The boss is played here: a real one has room on its private socket for more than a test can open."""
    (home / "token").write_text("t")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "boss.sock"))
        listener.listen(8)
        listener.settimeout(PATIENCE)
        with permission_hook(home, "1.5") as hook:
            for _ in range(2):
                sock, _ = listener.accept()
                with sock:
                    sock.recv(1 << 16)
                    sock.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}")
            listener.close()
            out, err = hook.communicate(timeout=PATIENCE)
    assert (hook.returncode, out) == (0, "")
    assert "cannot reach the boss" in err
    assert (home / "unreached").read_text().split(" ", 1)[1] == "it is too busy\n"
    assert len(list((home / "spool").glob("*.json"))) == 1


def test_doctor_shows_that_a_request_did_not_reach_the_boss(remuda: Commands, boss: RunningBoss) -> None:
    (boss.folder.path / "unreached").write_text("99999999999 it is too\x1b[31m busy\n")
    said = remuda("doctor").out
    assert "did not reach the boss" in said
    assert "\x1b[31m" not in said


def test_boss_with_few_descriptors_outlives_a_flood(home: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    boss = RunningBoss(home)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        boss.start()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        with flood(boss.port, FLOOD):
            for _ in range(QUESTIONS):
                assert boss.client.get("queue")["items"] == []
                assert boss.ask("GET", "/v1/queue").status == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        boss.close()


# ── a session's hooks ──


def hook_port(remuda: Commands, name: str) -> int:
    for path in (remuda.sessions / f"{name}.d").iterdir():
        if found := re.search(rb"http://127\.0\.0\.1:(\d+)/hook", path.read_bytes()):
            return int(found[1])
    raise AssertionError("no hook of the session names its port")


@each_flood
def test_hooks_of_a_session_arrive_while_its_port_is_flooded(remuda: Commands, data: str) -> None:
    remuda.start("work", "--agent", "demo")
    client = KeeperClient.connect("work", remuda.sessions)
    try:
        with flood(hook_port(remuda, "work"), FLOOD, data):
            client.request("watch", hooks=["UserPromptSubmit", "Stop"])
            remuda("send", "work", "hello")
            for name in ("UserPromptSubmit", "Stop"):
                assert event_named(client, "hook")["payload"]["hook_event_name"] == name
    finally:
        client.close()


# ── inbox serve ──


@each_flood
def test_inject_is_answered_while_its_port_is_flooded(remuda: Commands, data: str) -> None:
    folder = remuda.home / "inbox"
    process = remuda.begin("inbox", "serve", "--inbox", str(folder))
    assert process.stdout is not None
    found = re.search(r":(\d+)/inject", process.stdout.readline().decode())
    assert found
    headers = {"Authorization": f"Bearer {(folder / '.inject-token').read_text().strip()}"}
    with flood(int(found[1]), FLOOD, data):
        for number in range(QUESTIONS):
            connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=PATIENCE)
            connection.request("POST", "/inject", json.dumps({"prompt": f"p{number}"}), headers)
            assert connection.getresponse().status == 200
            connection.close()
    assert len(list(Inbox(folder).waiting())) == QUESTIONS
    process.terminate()
    assert process.wait(PATIENCE) == 0


# ── private sockets ──


def half_frames(path: Path, held: contextlib.ExitStack) -> None:
    """Connections that have begun a frame and say no more."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for _ in range(min(HALF_FRAMES, most - 200)):
        sock = held.enter_context(socket.socket(socket.AF_UNIX))
        sock.connect(str(path))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused already
            sock.sendall(b"\0\0")


def test_keeper_with_many_half_frames_serves_status_send_and_ls(remuda: Commands) -> None:
    remuda.start("work", "--agent", "demo")
    with contextlib.ExitStack() as held:
        half_frames(remuda.sessions / "work.sock", held)
        assert "REPLY#1 to: hello" in remuda("send", "work", "hello", "--wait").out
        assert "work" in remuda("status", "work").out
        assert "work" in remuda("ls").out


def test_boss_with_many_half_heads_on_its_private_socket_answers(boss: RunningBoss) -> None:
    with contextlib.ExitStack() as held:
        half_frames(boss.folder.socket, held)
        for _ in range(QUESTIONS):
            assert boss.client.get("queue")["items"] == []


def test_pool_with_many_half_frames_says_so_and_serves_when_they_are_gone(tmp_path: Path) -> None:
    async def steps() -> None:
        async with served(tmp_path) as pool:
            with contextlib.ExitStack() as held:
                await asyncio.to_thread(half_frames, pool.path, held)
                with pytest.raises(RemudaError):
                    await pool.remote.run("x", cwd="/")
            while True:
                with contextlib.suppress(PoolExhausted, PoolBroken):
                    assert (await pool.remote.run("x", cwd="/")).text
                    return

    within(steps())
