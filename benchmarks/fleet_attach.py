"""A session of another machine: `remuda attach HOST/SESSION`, and `ssh` with `remuda attach` over there.

The machines are network namespaces with a cable between them: a far one with the hub, the host and sshd, and
a near one with an operator and the terminals that we read. Both ways use the same cable: as it is, and
through a relay that delays every byte by 50 ms.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from getpass import getuser
from pathlib import Path
from typing import NamedTuple

from benchmarks.echo import Typist, play
from benchmarks.peers import read_until
from benchmarks.report import Report, Target
from benchmarks.scene import Scene, bounded
from benchmarks.stream import END, make_stream

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from remuda.terminal.pty import Pty
from support.fleet import FleetBench, Machine, free_port
from support.keeper import until
from support.namespaces import Cable, Namespace, why_not

_DELAY = 0.05
_PAUSE = 0.02
_LINES = {"": 4, ", 50 ms": 1}
"""Lines of keys a round, by the link."""
_STREAM_BYTES = 20_000_000
_SETTLE = 0.3
_TIMEOUT = 300.0
_READ_BYTES = 65536
_TITLE = "A session of another machine, and one over ssh"
_SSHD = """\
Port {port}
HostKey {keys}/host
AuthorizedKeysFile {keys}/user.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
"""
# In a mount namespace of its own: sshd needs a folder in /run, and would write down who logged in.
_ALONE = """
mount -t tmpfs none /run && mkdir -m 755 /run/sshd && mount -t tmpfs none /var/log && exec "$@"
"""


class _Way(NamedTuple):
    """From the near machine to the far one."""

    prefix: tuple[str, ...]
    """What runs a command on the near machine."""
    desk: Machine
    ssh: list[str]


def measure(scene: Scene, report: Report, rounds: int) -> None:
    sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    why = why_not() or ("" if sshd and shutil.which("ssh") else "OpenSSH is missing")
    if why:
        report.not_measured("", f"there are no network namespaces or no ssh ({why})")
        return
    assert sshd is not None
    with bounded(_TIMEOUT, "attaching elsewhere"), _machines(scene, sshd) as (host, ways):
        for link, way in ways.items():
            report.title(f"{_TITLE}{link}: keystroke echo, typed every {_PAUSE * 1000:g} ms")
            found = _echo(scene, report, rounds, host, way, link)
            limit = Target("<=", 1.3) if link else None
            report.add(f"remuda / ssh{link}, echo", found["remuda"] / found["ssh"], "x", limit)
        stream = scene.folder / "far-stream"
        size = make_stream(stream, _STREAM_BYTES)
        report.title(f"{_TITLE}: {size / 1e6:.0f} MB to its end on the terminal")
        for link, way in ways.items():
            rates = _throughput(scene, report, rounds, host, way, link, stream)
            report.add(f"remuda / ssh{link}, throughput", rates["remuda"] / rates["ssh"], "x")


def _attach(scene: Scene, way: _Way, host: Machine, kind: str, name: str) -> Pty:
    remuda = (sys.executable, "-m", "remuda", "attach")
    if kind == "ssh":
        there = " ".join(["env", f"REMUDA_HOME={host.remuda.home}", *remuda, name])
        return scene.on_terminal([*way.prefix, *way.ssh, there])
    here = ("env", f"REMUDA_HOME={way.desk.remuda.home}", *remuda)
    return scene.on_terminal([*way.prefix, *here, f"{host.name}/{name}"])


def _knows(desk: Machine, name: str) -> bool:
    return any(one["session"]["name"] == name for one in desk.client.get("fleet", "sessions")["sessions"])


def _echo(scene: Scene, report: Report, rounds: int, host: Machine, way: _Way, link: str) -> dict[str, float]:
    with contextlib.ExitStack() as opened:
        typists = {}
        for kind in ("ssh", "remuda"):
            name = scene.name("far")
            host.remuda.start(name, "--", "sh", "-c", "printf READY; exec cat")
            until(partial(_knows, way.desk, name), f"{name} to be known elsewhere")
            pty = _attach(scene, way, host, kind, name)
            typists[f"{kind}{link}"] = opened.enter_context(_typing(scene, pty))
        found = play(report, typists, rounds, _LINES[link], _PAUSE, "")
    return {name.removesuffix(link): value for name, value in found.items()}


@contextlib.contextmanager
def _typing(scene: Scene, pty: Pty) -> Iterator[Typist]:
    try:
        read_until(pty, b"READY")
        time.sleep(_SETTLE)
        yield lambda data: _write(pty.fd, data), lambda: os.read(pty.fd, _READ_BYTES)
    finally:
        pty.close()
        scene.end(pty.pid)


def _write(fd: int, data: bytes) -> None:
    os.write(fd, data)


def _throughput(
    scene: Scene, report: Report, rounds: int, host: Machine, way: _Way, link: str, stream: Path
) -> dict[str, float]:
    size = stream.stat().st_size
    script = 'stty raw -echo; printf READY; read -r _; cat "$1"; exec sleep 1000000'
    rates: dict[str, list[float]] = {"ssh": [], "remuda": []}
    shares: dict[str, float] = {}
    for _ in range(max(1, rounds // 3)):
        for kind, some in rates.items():
            name = scene.name("far")
            host.remuda.start(name, "--", "sh", "-c", script, "sh", str(stream))
            until(partial(_knows, way.desk, name), f"{name} to be known elsewhere")
            pty = _attach(scene, way, host, kind, name)
            try:
                read_until(pty, b"READY")
                time.sleep(_SETTLE)
                seconds, got = _read_to_end(pty)
            finally:
                pty.close()
                scene.end(pty.pid)
            host.remuda("kill", name)
            some.append(size / 1e6 / seconds)
            shares[kind] = got / size
    return {
        kind: report.median(f"{kind}{link}", some, "MB/s", f"drew {shares[kind]:.1%} of the bytes")
        for kind, some in rates.items()
    }


def _read_to_end(pty: Pty) -> tuple[float, int]:
    begin, tail, total = time.monotonic(), b"", 0
    os.write(pty.fd, b"\n")
    while END not in tail:
        piece = os.read(pty.fd, _READ_BYTES)
        total += len(piece)
        tail = tail[-len(END) :] + piece
    return time.monotonic() - begin, total


# ── the machines ──


@contextlib.contextmanager
def _machines(scene: Scene, sshd: str) -> Iterator[tuple[Machine, dict[str, _Way]]]:
    with contextlib.ExitStack() as stack:
        far = stack.enter_context(contextlib.closing(Namespace()))
        near = stack.enter_context(contextlib.closing(Cable(far)))
        folder = scene.folder / scene.name("machines")
        folder.mkdir()
        bench = FleetBench(folder)
        stack.callback(bench.close)
        bench.hub.listen, bench.hub.remuda.prefix = "0.0.0.0", far.prefix
        bench.hub.start()
        port = _start_sshd(stack, sshd, folder, far)
        ports = {bench.hub.port: free_port(), port: free_port()}
        links = [f"{here}:{near.here}:{there}" for there, here in ports.items()]
        _begin(
            stack, [*near.prefix, sys.executable, _script("delayed_link.py"), str(_DELAY), *links], b"ready"
        )
        host = bench.machine("build7", "host", url=f"tls://127.0.0.1:{bench.hub.port}", prefix=far.prefix)
        ways = {}
        for link, name, address, (hub, ssh) in (
            ("", "desk", near.here, (bench.hub.port, port)),
            (", 50 ms", "sofa", "127.0.0.1", (ports[bench.hub.port], ports[port])),
        ):
            desk = bench.machine(name, "operator", url=f"tls://{address}:{hub}", prefix=near.prefix)
            desk.until_host(host.name)
            ways[link] = _Way(near.prefix, desk, _ssh(folder / "ssh", address, ssh))
        yield host, ways


def _script(name: str) -> str:
    return str(Path(__file__).with_name(name))


def _begin(stack: contextlib.ExitStack, command: list[str], wanted: bytes) -> None:
    """Start it, and wait until it says that; it is ended with the rest."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    assert process.stdout is not None
    for line in process.stdout:
        if wanted in line:
            return
    raise RuntimeError(f"{command[0]} has ended")


def _start_sshd(stack: contextlib.ExitStack, sshd: str, folder: Path, far: Namespace) -> int:
    keys, port = folder / "ssh", free_port()
    keys.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)], check=True)
    config = keys / "config"
    config.write_text(_SSHD.format(port=port, keys=keys))
    alone = [*far.prefix, "unshare", "--mount", "sh", "-c", _ALONE, "sh"]
    _begin(stack, [*alone, sshd, "-D", "-e", "-f", str(config)], b"Server listening")
    return port


def _ssh(keys: Path, address: str, port: int) -> list[str]:
    options = {
        "IdentityFile": keys / "user",
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": keys / "known",
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "no",
        "LogLevel": "ERROR",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ["ssh", "-F", "none", "-tt", *words, "-p", str(port), f"{getuser()}@{address}"]
