"""The boss's life: one per user, killed and started again without loss, and its commands."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import plistlib
import re
import resource
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from remuda.boss.lock import BossHolder, BossLock, find_holder
from remuda.errors import BossExists, StoreFailed
from support.boss import RunningBoss, event
from support.commands import Commands, until_line
from support.keeper import Process, until


def stop(session: str, at: float, **facts: Any) -> Any:
    return event("stopped", at, session=session, message="x", **facts)


@pytest.fixture
def up(remuda: Commands, boss: RunningBoss) -> Commands:
    """The command line next to a boss that runs."""
    assert boss.folder.path == remuda.home / "boss"
    return remuda


# ── its port ──


def test_default_port_in_use_is_replaced_by_a_free_one_and_said(remuda: Commands) -> None:
    with socket.socket() as other:
        with contextlib.suppress(OSError):  # someone else has it: the same to the boss
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", 4127))
            other.listen()
        done = remuda("up", "--detach")
        try:
            port = int(re.search(r"127\.0\.0\.1:(\d+)", done.out)[1])  # type: ignore[index]
            assert port != 4127
            assert f"port 4127 is in use by another program; the boss listens on port {port}" in done.err
            assert f":{port}" in remuda("boss", "status").out
            assert f":{port}/t/" in remuda("hooks", "show", "--trail-boss").out
        finally:
            remuda("down")


def test_chosen_port_in_use_is_refused(remuda: Commands) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert f"cannot listen on port {port}" in remuda.refused(
            "up", "--detach", "--port", str(port), code=2
        )


# ── one per user ──


def test_second_boss_is_refused_and_the_first_goes_on(boss: RunningBoss) -> None:
    with pytest.raises(BossExists) as refused:
        RunningBoss(boss.folder.path.parent).start()
    assert str(boss.process.pid if boss.process else None) in str(refused.value)
    assert boss.client.get("health")["status"] == "ok"


def test_lock_of_a_dead_process_is_free_whatever_it_contains(tmp_path: Path) -> None:
    path = tmp_path / "boss.pid"
    for content in ("", "garbage", '{"pid": 1, "port": 1}'):
        path.write_text(content)
        assert find_holder(path) is None
        lock = BossLock.acquire(path)
        lock.tell(BossHolder(os.getpid(), 5))
        assert find_holder(path) == BossHolder(os.getpid(), 5)
        with pytest.raises(BossExists):
            BossLock.acquire(path)
        lock.release()
        assert not path.exists()


def test_lock_that_somebody_only_looks_at_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "boss.pid"
    path.write_text('{"pid": 2147483647, "port": 1}\n')  # of a dead one
    looking = os.open(path, os.O_RDWR)
    fcntl.flock(looking, fcntl.LOCK_SH)
    with ThreadPoolExecutor(1) as beside:
        taking = beside.submit(BossLock.acquire, path)
        with pytest.raises(TimeoutError):
            taking.result(0.1)
        os.close(looking)
        taking.result(30).release()


def test_boss_that_is_killed_and_started_again_has_lost_nothing(boss: RunningBoss) -> None:
    boss.tell(stop("a", 10, pane="%1"), event("asked", 20, session="b", tool="Bash", input={"command": "x"}))
    boss.client.post("queue", boss.waiting()[0]["id"], "snooze", body={"seconds": 3600})
    before = (boss.client.get("queue", hidden=True)["items"], boss.client.get("approvals"), boss.token)
    for number in (signal.SIGKILL, signal.SIGTERM):
        boss.end(number)
        assert boss.start()["laid_aside"] is None
        after = (boss.client.get("queue", hidden=True)["items"], boss.client.get("approvals"), boss.token)
        assert after == before


def test_signal_ends_it_and_leaves_no_socket(boss: RunningBoss) -> None:
    boss.end(signal.SIGTERM)
    assert not boss.folder.socket.exists()
    assert find_holder(boss.folder.lock) is None


def test_port_that_is_taken_is_reported(boss: RunningBoss, tmp_path: Path) -> None:
    other = RunningBoss(tmp_path)
    with pytest.raises(Exception, match=f"cannot listen on port {boss.port}"):
        other.start(boss.port)
    other.close()


def test_database_that_cannot_be_used_is_reported_at_the_start(boss: RunningBoss) -> None:
    boss.end()
    boss.may_complain = True
    boss.folder.database.write_bytes(b"no database" * 1000)
    told = boss.start()
    assert Path(told["laid_aside"]).read_bytes() == b"no database" * 1000
    assert boss.client.get("health")["laid_aside"] == told["laid_aside"]


def test_full_disk_is_reported_to_the_sender_and_the_boss_goes_on(boss: RunningBoss) -> None:
    boss.tell(stop("a", 10))
    assert boss.process is not None
    sizes = [path.stat().st_size for path in boss.folder.path.glob("boss.db*")]
    limits = (max(sizes) + 100_000, resource.RLIM_INFINITY)
    resource.prlimit(boss.process.pid, resource.RLIMIT_FSIZE, limits)
    # More than there is room for in the log that is laid out.
    big = event("stopped", 20, session="big", message="x" * 10_000_000)
    with pytest.raises(StoreFailed):
        boss.tell(big)
    assert (
        boss.ask(
            "POST",
            "/v1/hooks",
            {
                "payload": {
                    "session_id": "big2",
                    "hook_event_name": "Stop",
                    "last_assistant_message": "y" * 10_000_000,
                }
            },
        ).status
        == 507
    )
    assert [item["session_id"] for item in boss.waiting()] == ["a"]
    resource.prlimit(boss.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    boss.tell(big)
    assert [item["session_id"] for item in boss.waiting()] == ["a", "big"]


def test_home_with_a_path_too_long_for_a_socket_works(tmp_path: Path) -> None:
    home = tmp_path / ("x" * 100) / ("y" * 100)
    home.mkdir(parents=True)
    one = RunningBoss(home)
    one.start()
    one.tell(stop("a", 10))
    assert len(one.waiting()) == 1
    one.close()


# ── commands ──


def test_up_detach_status_and_down(remuda: Commands) -> None:
    told = remuda.json("up", "--detach", "--port", "0")
    process = Process(told["pid"])
    try:
        status = remuda.json("status")
        assert (status["status"], status["pid"]) == ("ok", told["pid"])
        assert told["url"].endswith(f":{status['port']}")
        text = remuda("status").out
        assert "\nwaiting    0\n" in text
        sources = "spool, kept, reconcile, detector, silence, usage, budgets, messages, plans, restarts"
        assert f"\nsources    {sources}: running\n" in text
        assert "\nhooks      none; 'remuda setup boss' lets" in text
        remuda("hooks", "install", "--boss", "--yes")
        assert re.search(r"^hooks      \d+ in ~/\.claude/settings\.json$", remuda("status").out, re.MULTILINE)
        assert "the boss is already running" in remuda.refused("up", "--detach", "--port", "0", code=5)
        again = remuda("boss", "up", "--detach").out
        assert again == f"the boss is already running at {told['url']}; nothing to do\n"
        assert json.loads(remuda("boss", "up", "--detach", "--json").out)["pid"] == told["pid"]
        assert f"pid {told['pid']}" in remuda("down").out
        assert process.ended()
    finally:
        process.signal(signal.SIGKILL)
        process.close()
    for words in (["status"], ["down"]):
        assert "the boss is not running" in remuda.refused(*words, code=7)


def test_up_in_front_ends_with_a_signal(remuda: Commands) -> None:
    process = remuda.begin("up", "--port", "0", "--json")
    line = until_line(process, b'"url"')
    assert b"http://127.0.0.1:" in line
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")


def test_down_force_kills_it_and_nothing_is_lost(up: Commands, boss: RunningBoss) -> None:
    boss.tell(stop("a", 10))
    assert boss.process is not None
    done = subprocess.Popen(
        [sys.executable, "-m", "remuda", "down", "--force"], env=up.env, stdout=subprocess.PIPE
    )
    assert boss.process.ended()
    with contextlib.suppress(ChildProcessError):  # it may be the child of another process
        os.waitpid(boss.process.pid, 0)
    done.communicate(timeout=30)
    assert done.returncode == 0
    boss.process.close()
    boss.process = None
    boss.start()
    assert [item["session_id"] for item in boss.waiting()] == ["a"]


def test_print_token_makes_it_once_and_for_this_user_alone(remuda: Commands) -> None:
    token = remuda("up", "--print-token").out.strip()
    assert len(token) >= 32
    assert remuda("up", "--print-token").out.strip() == token
    assert (remuda.home / "boss" / "token").stat().st_mode & 0o777 == 0o600


def test_token_that_others_can_read_is_refused(remuda: Commands) -> None:
    remuda("up", "--print-token")
    (remuda.home / "boss" / "token").chmod(0o644)
    assert "other users can read" in remuda.refused("up", "--print-token", code=2)
    assert "other users can read" in remuda.refused("up", "--detach", "--port", "0", code=2)


def test_port_of_the_configuration_is_used(remuda: Commands) -> None:
    folder = remuda.home / ".config" / "remuda"
    folder.mkdir(parents=True)
    (folder / "remuda.toml").write_text("[boss]\nport = 99999\n")
    assert "[boss] port cannot be 99999" in remuda.refused("up", "--detach", code=2)
    (folder / "remuda.toml").write_text("[boss]\nsing = 1\n")
    assert "[boss] has the unknown key 'sing'" in remuda.refused("up", "--detach", code=2)
    (remuda.cwd / "remuda.toml").write_text("[boss]\nport = 0\n")
    assert "which a file in a working folder may not set" in remuda.refused("up", "--detach", code=2)


def test_install_writes_a_unit_and_shows_it_and_uninstall_removes_it(remuda: Commands) -> None:
    path = remuda.home / ".config" / "systemd" / "user" / "remuda-boss.service"
    shown = remuda("up", "--install", "--port", "4200").out
    text = path.read_text()
    assert text in shown
    assert f'ExecStart="{sys.executable}" "-P" "-m" "remuda" "up" "--port" "4200"' in text
    assert f'Environment="REMUDA_HOME={remuda.home}"' in text
    assert "systemctl --user enable --now remuda-boss.service" in shown
    assert remuda("up", "--install").out  # again
    remuda("up", "--uninstall")
    assert not path.exists()
    remuda.refused("up", "--uninstall", code=2)
    path.parent.mkdir(parents=True)  # it was made for the unit, and is gone with it
    path.write_text("somebody's own")
    assert "not written by Remuda" in remuda.refused("up", "--install", code=2)
    assert "not written by Remuda" in remuda.refused("up", "--uninstall", code=2)
    assert path.read_text() == "somebody's own"


def test_service_is_given_where_files_and_programs_are(remuda: Commands) -> None:
    given = {
        "XDG_STATE_HOME": "/state",
        "XDG_CONFIG_HOME": str(remuda.home / '50% of "$it\\'),
        "CLAUDE_CONFIG_DIR": "claude",
        "TMUX_TMPDIR": "",
        "REMUDA_HUNG_AFTER": "20m",
        "TRAILBOSS_QUIET_THRESHOLD_MS": "5000",
        "TRAILBOSS_OPT_IN_PREFIX": "~mine-",
        "TELEGRAM_CHAT_ID": "-42",
        "NOTIFY_COOLDOWN_MS": "60000",
        "PATH": "/opt/homebrew/bin:/usr/bin",
    }
    told = json.loads(remuda("up", "--install", "--json", env=given).out)
    found = [line for line in told["content"].splitlines() if line.startswith("Environment=")]
    assert found == [
        f'Environment="REMUDA_HOME={remuda.home}"',
        'Environment="XDG_STATE_HOME=/state"',
        f'Environment="XDG_CONFIG_HOME={remuda.home}/50%% of \\"$it\\\\"',
        f'Environment="CLAUDE_CONFIG_DIR={remuda.cwd}/claude"',
        'Environment="REMUDA_HUNG_AFTER=20m"',
        'Environment="TRAILBOSS_QUIET_THRESHOLD_MS=5000"',
        'Environment="TRAILBOSS_OPT_IN_PREFIX=~mine-"',
        'Environment="TELEGRAM_CHAT_ID=-42"',
        'Environment="NOTIFY_COOLDOWN_MS=60000"',
        'Environment="PATH=/opt/homebrew/bin:/usr/bin"',
    ]
    assert Path(told["file"]).read_text() == told["content"]
    for odd in ("/a\nb", os.fsdecode(b"/\xff")):
        assert "PATH cannot be given" in remuda.refused("up", "--install", code=2, env={**given, "PATH": odd})
    remuda("up", "--uninstall", env={**given, "PATH": "/a\nb"})
    assert not Path(told["file"]).exists()


def test_command_of_a_unit_is_what_systemd_makes_of_it() -> None:
    from remuda.cli.boss_service import BOSS

    text = BOSS.unit_text(["/a$b%/python", "$x", '"'], {})
    assert 'ExecStart="/a$b%%/python" "$$x" "\\""\n' in text  # only behind the program $ is expanded


def test_plist_for_launchd_can_be_read() -> None:
    from remuda.cli.boss_service import BOSS

    given = {"REMUDA_HOME": "/x & <y>", "PATH": "/opt/homebrew/bin:/usr/bin"}
    found = plistlib.loads(BOSS.plist(["/a b/python", "-m", "remuda", "up"], given).encode())
    assert found["ProgramArguments"] == ["/a b/python", "-m", "remuda", "up"]
    assert found["EnvironmentVariables"] == given


def test_options_of_up_that_exclude_each_other_are_refused(remuda: Commands) -> None:
    assert "exclude each other" in remuda.refused("up", "--detach", "--install", code=2)


@pytest.mark.parametrize("words", [["--help"], ["status", "--help"], ["up", "--help"], ["down", "--help"]])
def test_commands_that_do_not_serve_load_no_web_framework(remuda: Commands, words: list[str]) -> None:
    program = f"import sys; from remuda.cli.app import run; run({words!r}); "
    program += (
        "print([name for name in ('starlette', 'uvicorn', 'sqlite3', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=remuda.env, capture_output=True, check=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_asking_the_boss_loads_no_web_framework(up: Commands) -> None:
    program = "import sys; from remuda.cli.app import run; run(['status']); "
    program += (
        "print([name for name in ('starlette', 'asyncio', 'http.client', 'ssl') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=up.env, capture_output=True, check=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_log_rotates(boss: RunningBoss) -> None:
    boss.end()
    given = {"folder": str(boss.folder.path), "port": 0, "log_level": "info", "log_max_bytes": 200}
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "remuda.boss", json.dumps({**given, "ready_fd": writing})]
    for _ in range(3):
        process = subprocess.Popen(command, pass_fds=[writing])
        assert os.read(reading, 1000)
        process.terminate()
        assert process.wait(30) == 0
    os.close(reading)
    os.close(writing)
    assert until(lambda: boss.folder.log.with_suffix(".log.1").exists(), "the rotated log")
