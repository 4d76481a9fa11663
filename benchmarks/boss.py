"""What a report to the boss costs: a post, compared with a bare endpoint, and a flood.

Ours is on the disk when it is answered. The bare one reads the same body and says yes; a third does that and
appends the body to a file with an fsync, which is the floor of being sure.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.report import Report, Target, percentile
from benchmarks.scene import Scene

from remuda.boss.client import BossClient
from remuda.boss.detach import start_detached
from remuda.boss.folder import BossFolder

_POSTS = 300
_RATE = 1000
_SECONDS = 30.0
_SENDERS = 16
_SESSIONS = 200
_AT_MOST = Target("<=", 3.0)
_NONE = Target("<=", 0.0)

_BARE = """
import asyncio, json, os, sys
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
import uvicorn

fd = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

async def plain(request):
    await request.json()
    return JSONResponse({"ok": True})

async def synced(request):
    body = await request.body()
    json.loads(body)
    await asyncio.get_running_loop().run_in_executor(None, lambda: (os.write(fd, body), os.fsync(fd)))
    return JSONResponse({"ok": True})

app = Starlette(routes=[Route("/plain", plain, methods=["POST"]), Route("/synced", synced, methods=["POST"])])
uvicorn.run(app, port=int(sys.argv[1]), log_level="error", http="httptools", ws="none", lifespan="off")
"""


def measure(scene: Scene, report: Report, rounds: int) -> None:
    folder = BossFolder(scene.folder / scene.name("boss"))
    told = start_detached(folder, 0, sources=())
    token = folder.token.read_text().strip()
    try:
        _posts(scene, report, rounds, told["port"], token)
        _flood(report, rounds, folder, told, token)
    finally:
        _end(folder)


def _end(folder: BossFolder) -> None:
    from remuda.boss.lock import find_holder, wait_until_free

    if (holder := find_holder(folder.lock)) is not None and holder.pid:
        os.kill(holder.pid, signal.SIGKILL)
        wait_until_free(folder.lock, 10)


def _payload(session: str, number: int) -> bytes:
    name = "Stop" if number % 2 else "UserPromptSubmit"
    payload: dict[str, Any] = {
        "session_id": session,
        "hook_event_name": name,
        "cwd": "/srv/demo",
        "transcript_path": "/home/dev/.claude/projects/-srv-demo/x.jsonl",
        "prompt": "go on",
        "last_assistant_message": "done " * 20,
        "permission_mode": "default",
    }
    pane = f"%{abs(hash(session)) % 1_000_000}"
    return json.dumps({"payload": payload, "id": f"{session}-{number}", "env": {"TMUX_PANE": pane}}).encode()


def _request(port: int, path: str, token: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


# ── one after the other ──


def _posts(scene: Scene, report: Report, rounds: int, port: int, token: str) -> None:
    report.title("Posting an event, one after the other on an open connection")
    bare_port = _free_port()
    log = scene.folder / "bare-posts"
    bare = subprocess.Popen([sys.executable, "-c", _BARE, str(bare_port), str(log)], env=scene.env)
    try:
        connections = {
            "bare": (_connect(bare_port), bare_port, "/plain"),
            "bare, with an fsync": (_connect(bare_port), bare_port, "/synced"),
            "boss": (_connect(port), port, "/v1/hooks"),
        }
        taken: dict[str, list[float]] = {name: [] for name in connections}
        for number in range(rounds * _POSTS):  # turn about: the machine is not always as quick
            for name, (sock, where, path) in connections.items():
                taken[name].append(_post(sock, _request(where, path, token, _payload("one", number))))
    finally:
        bare.terminate()
        bare.wait()
    for share in (0.5, 0.99):
        found = {name: percentile(times, share) for name, times in taken.items()}
        for name, value in found.items():
            report.add(f"{name}, p{share * 100:.0f}", value, "ms")
        report.add(f"boss / bare, p{share * 100:.0f}", found["boss"] / found["bare"], "x", _AT_MOST)
        synced = found["boss"] / found["bare, with an fsync"]
        report.add(f"boss / bare with an fsync, p{share * 100:.0f}", synced, "x", _AT_MOST)


def _post(sock: socket.socket, request: bytes) -> float:
    start = time.perf_counter()
    sock.sendall(request)
    answer = sock.recv(65536)
    while not answer.endswith(b"}"):  # head and body may come apart
        answer += sock.recv(65536)
    took = (time.perf_counter() - start) * 1000
    if not answer.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"refused: {answer!r}")
    return took


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _connect(port: int) -> socket.socket:
    deadline = time.monotonic() + 20
    while True:
        try:
            sock = socket.create_connection(("127.0.0.1", port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


# ── many at once ──


def _flood(report: Report, rounds: int, folder: BossFolder, told: dict[str, Any], token: str) -> None:
    seconds = _SECONDS if rounds >= 3 else _SECONDS / 10
    title = f"{_RATE} events a second for {seconds:.0f} s, in {_SESSIONS} sessions, then SIGKILL"
    report.title(title, "an endpoint and a database of your own")
    times, last = asyncio.run(_pour(told["port"], token, seconds))
    cpu = _cpu_seconds(told["pid"])
    os.kill(told["pid"], signal.SIGKILL)
    _end(folder)
    start_detached(folder, 0, sources=())
    sessions = {one["id"]: one for one in BossClient(folder).get("sessions")["sessions"]}
    wanted = {name: "stopped" if number % 2 else "working" for name, number in last.items()}
    lost = sum(sessions.get(name, {}).get("state") != state for name, state in wanted.items())
    report.add("acknowledged", len(times), "events", Target(">=", _RATE * seconds))
    report.add("sessions that are not where their last event left them", lost, "", _NONE)
    report.add("answered, p50", percentile(times, 0.5), "ms")
    report.add("answered, p99", percentile(times, 0.99), "ms")
    report.add("processor time of the boss, an event", cpu / len(times) * 1e6, "us")


async def _pour(port: int, token: str, seconds: float) -> tuple[list[float], dict[str, int]]:
    """Each sender has its own sessions, so that what it told last is known."""
    times: list[float] = []
    last: dict[str, int] = {}
    start = time.perf_counter()

    async def send(sender: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        count = int(_RATE * seconds / _SENDERS) + 1
        for number in range(count):
            due = start + (number * _SENDERS + sender) / _RATE
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            session = f"s{sender}-{number % (_SESSIONS // _SENDERS)}"
            writer.write(_request(port, "/v1/hooks", token, _payload(session, number)))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"refused: {head!r}")
            times.append((time.perf_counter() - due) * 1000)
            last[session] = number
        writer.close()

    await asyncio.gather(*(send(sender) for sender in range(_SENDERS)))
    return times, last


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
