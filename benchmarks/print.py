"""How long a call of `remuda print` takes, to the last byte on its standard output, on the real CLI.

Turn about with it: `claude -p`, and the bare TUI, from its exec until its Stop hook arrives. What the
terminal backend adds to the latter is ours; what it takes more than `claude -p` is mostly the TUI's start.

And how long it takes from the SIGKILL of a call, in the middle of a tool, until nothing of it is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.report import Report, Target
from benchmarks.scene import Scene, bounded, memory_bytes

from remuda.keeper.claim import live_names, read_holder
from remuda.paths import SessionPaths
from remuda.terminal.pty import spawn
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli

_CALLS = 4
"""Of each kind in a round."""
_PATIENCE = 60.0
_MB = 1e6
_PROMPT = "hello"


def measure(scene: Scene, report: Report, rounds: int) -> None:
    report.title("A call, to the last byte on standard output, on the real CLI")
    times: dict[str, list[float]] = {"bare": [], "-p": [], "terminal": [], "json": [], "stream": []}
    with (
        bounded(600.0, "calls"),
        LoopbackModel() as model,
        RealCli(scene.folder / "cli", model.url) as cli,
        hook_listener() as listener,
    ):
        env = {**cli.env, "REMUDA_HOME": str(scene.folder), "PYTHONPATH": scene.env["PYTHONPATH"]}
        for number in range(1 + rounds * _CALLS):
            taken = {
                "bare": bare_tui(cli, listener),
                "-p": _run(cli.argv("-p", _PROMPT), cli, env),
                "terminal": _run(_ours(cli, "terminal"), cli, env),
                "json": _run(_ours(cli, "terminal", "--output-format", "json"), cli, env),
                "stream": _run(_ours(cli, "stream"), cli, env),
            }
            for kind, seconds in taken.items() if number else ():  # the first of each is colder
                times[kind].append(seconds * 1000)
            cli.settle()
        weights = _weights(scene, cli, env)
        gone = {
            backend: [_killed(scene, cli, env, backend) for _ in range(rounds)]
            for backend in ("terminal", "stream")
        }
    _tell(report, times, weights)
    for backend, ends in gone.items():
        name = f"SIGKILL in a tool until nothing is left, {backend}"
        note = f"the longest; median {statistics.median(ends):.2f}"
        report.add(name, max(ends), "s", Target("<=", 2), note, "claude -p, and kill for what it leaves")


def _tell(report: Report, times: dict[str, list[float]], weights: list[float]) -> None:
    bare = report.median("bare TUI, exec to its Stop hook", times["bare"], "ms")
    plain = report.median("claude -p", times["-p"], "ms")
    terminal = report.median("remuda print, terminal", times["terminal"], "ms")
    as_json = report.median("remuda print, terminal, --output-format json", times["json"], "ms")
    stream = report.median("remuda print, stream", times["stream"], "ms")
    report.add("terminal backend beyond the bare TUI", terminal - bare, "ms", Target("<=", 75))
    report.add("the same, json: with what the transcript has", as_json - bare, "ms")
    report.add("terminal backend / claude -p", terminal / plain, "x")
    report.add("stream backend / claude -p", stream / plain, "x", Target("<=", 1.1))
    note = "command " + ", keeper ".join(f"{one:.1f}" for one in weights)
    report.add("RSS of ours during a call", sum(weights), "MB", Target("<=", 50), note=note)


def _ours(cli: RealCli, backend: str, *flags: str) -> list[str]:
    command = [sys.executable, "-m", "remuda", "print", "--backend", backend]
    return [*command, *flags, "--claude-binary", str(cli.binary), _PROMPT]


def _run(argv: list[str], cli: RealCli, env: dict[str, str]) -> float:
    began = time.monotonic()
    process = subprocess.Popen(
        argv, cwd=cli.project, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    said, last = b"", began
    while data := os.read(process.stdout.fileno(), 65536):
        said += data
        last = time.monotonic()
        if said.endswith(b"\n"):
            break
    process.communicate()
    answer = json.loads(said)["result"] + "\n" if said.startswith(b"{") else said.decode()
    assert answer == f"REPLY#1 to: {_PROMPT}\n", said
    return last - began


# ── the bare TUI ──


@contextlib.contextmanager
def hook_listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def bare_tui(
    cli: RealCli, listener: socket.socket, event: str = "Stop", prompt: str = _PROMPT, *more: str
) -> float:
    """Seconds from exec until that hook arrives."""
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    settings = {"hooks": {event: [{"hooks": [{"type": "http", "url": url}]}]}}
    flags = ["--settings", json.dumps(settings), "--permission-mode", "manual", *more]
    began = time.monotonic()
    pty = spawn(cli.argv(*flags, "--", prompt), cwd=cli.project, env=cli.env, cols=220, rows=50)
    try:
        while True:
            ready, _, _ = select.select([listener.fileno(), pty.fd], [], [], _PATIENCE)
            if not ready:
                raise TimeoutError(f"the bare TUI never reported {event}")
            if pty.fd in ready:
                pty.drain(b"")
            if listener.fileno() in ready:
                taken = time.monotonic() - began
                _answer(listener)
                return taken
    finally:
        os.kill(pty.pid, signal.SIGTERM)
        _reap(pty.pid, pty.fd)
        pty.close()


def _answer(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")


def _reap(pid: int, fd: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        select.select([fd], [], [], 0.02)
        with contextlib.suppress(OSError):
            os.read(fd, 65536)


# ── the end ──


def _killed(scene: Scene, cli: RealCli, env: dict[str, str], backend: str) -> float:
    """Seconds until there is no process and no file of it any more."""
    marker, folder = cli.project / "in-tool", scene.folder / "sessions"
    others = _names(folder)
    prompt = f"RUNBASH touch {marker}; tail -f /dev/null"
    words = [*_ours(cli, backend, "--allowedTools", "Bash")[:-1], "--", prompt]
    null = subprocess.DEVNULL
    process = subprocess.Popen(words, cwd=cli.project, env=env, stdin=null, stdout=null, stderr=null)
    try:
        _until(marker.exists)
    finally:
        began = time.monotonic()
        process.kill()
        process.wait()
    _until(lambda: not cli.running() and _names(folder) <= others)
    marker.unlink()
    return time.monotonic() - began


def _names(folder: Path) -> set[str]:
    return set(os.listdir(folder)) if folder.exists() else set()


def _until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ── memory ──


def _weights(scene: Scene, cli: RealCli, env: dict[str, str]) -> list[float]:
    """Of the command and its keeper, while a turn runs."""
    process = subprocess.Popen(
        [*_ours(cli, "terminal")[:-1], "THINK 600 x"],
        cwd=cli.project,
        env=env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        folder = scene.folder / "sessions"
        deadline = time.monotonic() + _PATIENCE
        while not (names := list(live_names(folder))):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        holder = read_holder(SessionPaths(folder, names[0]))
        assert holder is not None
        time.sleep(3.0)  # the turn has begun
        return [memory_bytes(pid)[0] / _MB for pid in (process.pid, holder.keeper_pid)]
    finally:
        process.terminate()
        process.wait()
