"""Another user who listens where the user's tmux server, keeper or boss would: nothing is sent to it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import remuda
from remuda.agents.claude.setup.boss_hooks import make_hooks
from remuda.boss.evidence import detector, reconcile
from remuda.errors import SessionUnreachable, TmuxGone
from remuda.keeper.aclient import AsyncKeeperClient
from remuda.keeper.client import KeeperClient
from remuda.tmux.address import Address
from remuda.tmux.command import Tmux
from support.tmux_attention import TmuxBench

NOBODY = 65534
SECRET = "sk-ant-SECRET"
# Listens at argv[1] as another user, and writes everything that it gets to its standard output.
_LISTENER = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534); os.umask(0)
folder = os.path.dirname(sys.argv[1])
if not os.path.exists(folder):
    os.mkdir(folder, 0o755)
server = socket.socket(socket.AF_UNIX); server.bind(sys.argv[1]); server.listen()
print("ready", flush=True)
while True:
    peer, _ = server.accept()
    peer.settimeout(5)
    try:
        while data := peer.recv(65536):
            sys.stdout.buffer.write(data); sys.stdout.flush()
    except OSError:
        pass
    peer.close()
"""

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: only root can become another user")


class Stranger:
    """A process of another user that listens where the user's tmux server would."""

    def __init__(self, path: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _LISTENER, path], stdout=subprocess.PIPE, cwd="/"
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def heard(self) -> bytes:
        self._process.kill()
        heard, _ = self._process.communicate()
        return heard

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def strangers() -> Iterator[list[Stranger]]:
    made: list[Stranger] = []
    yield made
    for one in made:
        one.close()


@pytest.fixture
def open_folder(home: Path) -> Path:
    """As /tmp is."""
    folder = home / "open"
    folder.mkdir()
    home.chmod(0o755)
    folder.chmod(0o1777)
    return folder


def _environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "TMUX_TMPDIR": str(folder), "ANTHROPIC_API_KEY": SECRET}


def _refused(address: Address, env: dict[str, str]) -> str:
    with pytest.raises(TmuxGone) as refused:
        Tmux(address, env).command("list-sessions", timeout=2)
    return str(refused.value.hint)


def test_folder_taken_by_another_user_gets_nothing(open_folder: Path, strangers: list[Stranger]) -> None:
    env = _environment(open_folder)
    address = Address.named("default", env)
    strangers.append(Stranger(address.path))
    assert "belongs to another user" in _refused(address, env)
    assert strangers[0].heard() == b""


def test_folder_of_ours_that_is_open_is_not_used(open_folder: Path, strangers: list[Stranger]) -> None:
    env = _environment(open_folder)
    address = Address.named("default", env)
    Path(address.path).parent.mkdir()
    Path(address.path).parent.chmod(0o777)
    strangers.append(Stranger(address.path))
    assert "is open to other users" in _refused(address, env)
    assert strangers[0].heard() == b""


def test_peer_of_another_user_gets_nothing(open_folder: Path, strangers: list[Stranger]) -> None:
    """All that the file system says is right: the kernel says who listens."""
    path = open_folder / "s"
    strangers.append(Stranger(str(path)))
    os.chown(path, 0, 0)
    open_folder.chmod(0o755)
    assert f"uid {NOBODY} listens" in _refused(Address.of(str(path)), _environment(open_folder))
    assert strangers[0].heard() == b""


def test_boss_that_looks_for_servers_sends_another_user_nothing(
    open_folder: Path, strangers: list[Stranger]
) -> None:
    env = _environment(open_folder)
    path = Address.named("default", env).path
    strangers.append(Stranger(path))
    assert detector.scan_panes(env, ("@tb-",)).panes == {}
    assert reconcile._snapshots(env, {path}, []) == []
    assert strangers[0].heard() == b""


def test_server_of_this_user_in_an_open_folder_is_used(open_folder: Path, tmux: TmuxBench) -> None:
    """`tmux -S /tmp/name` is a common way."""
    tmux.address = Address.of(str(open_folder / "s"))
    tmux.start("work")
    assert Tmux(tmux.address, tmux.env).command("list-sessions", "-F", "#{session_name}") == ["work"]


def test_tmux_that_is_run_gets_no_secrets(home: Path, tmux: TmuxBench) -> None:
    tmux.start("work")
    (home / "bin").mkdir()
    real, fake = shutil.which("tmux"), home / "bin" / "tmux"
    fake.write_text(f'#!/bin/sh\nenv > "{home}/seen"\nexec {real} "$@"\n')
    fake.chmod(0o755)
    path = f"{fake.parent}:{os.environ['PATH']}"
    program = (
        "import os, sys\nfrom remuda.tmux.address import Address\nfrom remuda.tmux.command import Tmux\n"
        "Tmux(Address(sys.argv[1])).command('list-sessions')\n"
    )
    env = {**tmux.env, "PATH": path, "ANTHROPIC_API_KEY": SECRET}
    subprocess.run([sys.executable, "-c", program, tmux.address.path], env=env, check=True, timeout=30)
    seen = (home / "seen").read_text()
    assert f"PATH={path}" in seen
    assert SECRET not in seen


# ── keepers and the boss, in a folder that another user took first ──


def test_keeper_socket_of_another_user_gets_nothing(open_folder: Path, strangers: list[Stranger]) -> None:
    strangers.append(Stranger(str(open_folder / "s.sock")))
    with pytest.raises(SessionUnreachable, match=f"uid {NOBODY}"):
        KeeperClient.connect("s", open_folder)
    with pytest.raises(SessionUnreachable, match=f"uid {NOBODY}"):
        asyncio.run(AsyncKeeperClient.connect("s", open_folder, lambda _event: None, lambda: None))
    assert strangers[0].heard() == b""


@pytest.fixture
def taken(open_folder: Path, strangers: list[Stranger]) -> Path:
    """The folder of a boss, with a socket, a token and a spool; all of it another user's."""
    folder = open_folder / "boss"
    strangers.append(Stranger(str(folder / "boss.sock")))
    (folder / "spool").mkdir()
    for path in (folder / "token", folder / "spool" / ".watched"):
        path.write_text("x")
    for path in (folder / "token", folder / "spool" / ".watched", folder / "spool"):
        os.chown(path, NOBODY, NOBODY)
    return folder


PROGRAMS = Path(remuda.__file__).parent
PAYLOAD = json.dumps({"session_id": "a", "hook_event_name": "PermissionRequest", "tool_name": "Bash"})


def _run(*argv: str, **env: str) -> None:
    done = subprocess.run(
        argv,
        input=PAYLOAD,
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_hook_in_a_folder_of_another_user_leaves_nothing(taken: Path, strangers: list[Stranger]) -> None:
    quick = make_hooks(sys.executable, str(PROGRAMS / "boss"), str(taken))["Stop"]["command"]
    _run("/bin/sh", "-c", quick)
    for words in ([], ["--wait", "2"]):
        _run(sys.executable, "-I", "-S", str(PROGRAMS / "boss" / "hook.py"), str(taken), *words)
    _run(sys.executable, "-I", "-S", str(PROGRAMS / "keeper" / "emit.py"), str(taken / "boss.sock"))
    assert os.listdir(taken / "spool") == [".watched"]
    assert strangers[0].heard() == b""


def test_key_in_a_folder_of_another_user_asks_no_one(taken: Path, strangers: list[Stranger]) -> None:
    key = PROGRAMS / "boss" / "key.py"
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(key), "segment"],
        env={"REMUDA_HOME": str(taken.parent)}, capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    assert "down" in done.stdout
    assert strangers[0].heard() == b""
