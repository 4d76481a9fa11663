"""Files that a clone or another program has put in our way: no link is written through, no pipe stops us."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import COMMAND, Commands
from support.hooks import Box
from support.keeper import until
from support.print_calls import scripted_agent

MINE = "# mine\n"
KINDS = ("link", "dangling", "pipe")
PATIENCE = 60.0
BOUNDED = ("prlimit", f"--as={3 << 30}")
"""What reads without end is stopped before it has all of the memory."""
READ_BY_HOOK = (
    "inbox.jsonl",
    ".inbox-offset",
    ".inbox-queue.json",
    ".inbox-lock",
    ".inbox-consumer",
    ".inbox-options.json",
    ".inbox-key",
    ".dead-letter.jsonl",
    "receipts.jsonl",
    "outbox.jsonl",
)
WRITTEN_BY_HOOK = (
    ".responded",
    ".in-flight",
    ".inbox-lease.json",
    ".inbox-queue.json.tmp",
    ".inbox-lease.json.tmp",
    ".in-flight.tmp",
)


class Planted:
    """A path at which something of this kind is, and the user's own file that nothing may change."""

    def __init__(self, path: Path, kind: str, target: Path) -> None:
        self.path, self._target, self._kind = path, target, kind
        target.write_text(MINE)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "dangling":
            path.symlink_to(target.with_name("new"))
        else:
            path.symlink_to(target)

    @property
    def spared(self) -> bool:
        return self._target.read_text() == MINE and not self._target.with_name("new").exists()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    folder = tmp_path / "box"
    folder.mkdir()
    one = Box(folder)
    yield one
    one.end()


def plant(path: Path, kind: str) -> Planted:
    aside = path.parent.parent / "aside"
    aside.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    return Planted(path, kind, aside / "bashrc")


def fill(box: Box, name: str) -> None:
    """With a message of ours, an envelope that is a dead letter, and a plain line."""
    if name != "inbox.jsonl":
        box.envelope(id="m1-1", prompt="$(touch pwned)", max_attempts=3)
        box.put('{"remuda": 1, "id": "m1-2", "prompt": "$(touch pwned)", "max_attempts": 1e999}\nlast\n')


# ── the inbox ──


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", READ_BY_HOOK)
def test_stop_hook_with_a_planted_file_fails_open_names_it_and_writes_nothing_there(
    box: Box, name: str, kind: str
) -> None:
    fill(box, name)
    planted = plant(box.path(name), kind)
    ran = [box.run(payload={"session_id": "s", "last_assistant_message": "$(id)"}) for _ in range(4)]
    ran.append(box.run("recover"))
    assert planted.spared
    assert [one.code for one in ran[:-1]] == [0] * 4
    assert str(box.path(name)) in "".join(one.err for one in ran)
    assert "Traceback" not in "".join(one.err for one in ran)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WRITTEN_BY_HOOK)
def test_stop_hook_does_not_write_through_what_is_at_the_names_it_makes(
    box: Box, name: str, kind: str
) -> None:
    fill(box, name)
    planted = plant(box.path(name), kind)
    ran = [box.run(payload={"session_id": "s"}) for _ in range(4)]
    assert planted.spared
    assert [one.code for one in ran] == [0] * 4
    assert not any("Traceback" in one.err for one in ran)


@pytest.mark.parametrize("kind", KINDS)
def test_stop_hook_does_not_write_through_a_planted_signal_file(box: Box, kind: str) -> None:
    planted = plant(box.path("done"), kind)
    ran = box.run("--signal-file", str(planted.path))
    assert (ran.code, ran.out) == (0, "")
    assert f"cannot touch {planted.path}" in ran.err
    assert planted.spared


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    ["inbox.jsonl", ".inbox-writer", ".inbox-dedup.jsonl", ".inbox-key", ".inbox-lock", "receipts.jsonl"],
)
def test_inbox_commands_with_a_planted_file_are_refused_and_name_it(
    remuda: Commands, name: str, kind: str
) -> None:
    folder = remuda.cwd / "box"
    folder.mkdir(mode=0o700)
    planted = plant(folder / name, kind)
    words = ["put", "--dedup", "a", "run $(id)"]
    if name == "receipts.jsonl":
        (folder / "inbox.jsonl").write_text("one\n")
        words = ["compact"]
    said = remuda.refused("inbox", *words, "--inbox", str(folder), code=4)
    assert str(planted.path) in said
    assert planted.spared


@pytest.mark.parametrize("kind", KINDS)
def test_receipt_in_a_planted_file_is_refused(remuda: Commands, kind: str) -> None:
    folder = remuda.cwd / "box"
    folder.mkdir(mode=0o700)
    planted = plant(folder / "receipts.jsonl", kind)
    assert str(planted.path) in remuda.refused("receipt", "m1-1", "--inbox", str(folder), code=4)


def test_inbox_in_a_folder_that_is_a_link_is_used(remuda: Commands) -> None:
    (remuda.cwd / "real").mkdir(mode=0o700)
    (remuda.cwd / "link").symlink_to("real")
    remuda("inbox", "put", "hello", "--inbox", "link")
    box = Box(remuda.cwd / "link")
    assert box.tick(payload={"session_id": "s"}) == "hello"
    box.end()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_stop_hook_with_a_file_of_another_user_fails_open(box: Box) -> None:
    box.put("hello\n")
    os.chown(box.inbox, 65534, 65534)
    ran = box.run()
    assert (ran.code, ran.out) == (0, "")
    assert f"{box.inbox} belongs to another user" in ran.err


@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
def test_put_while_another_process_has_a_lease_on_the_inbox_waits_for_its_end(remuda: Commands) -> None:
    folder = remuda.cwd / "box"
    folder.mkdir(mode=0o700)
    (folder / "inbox.jsonl").touch(mode=0o600)
    fd = os.open(folder / "inbox.jsonl", os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_SETSIG, 23)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    putting = remuda.begin("inbox", "put", "hello", "--inbox", str(folder))
    until(lambda: fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_UNLCK, "the writer")
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    os.close(fd)
    assert putting.wait(PATIENCE) == 0
    assert b"hello" in (folder / "inbox.jsonl").read_bytes()


# ── recordings and logs ──


@pytest.mark.parametrize("kind", KINDS)
def test_start_with_a_planted_recording_replaces_what_is_there(remuda: Commands, kind: str) -> None:
    planted = plant(remuda.cwd / "a.cast", kind)
    remuda("start", "work", "--record", "a.cast", "--", "echo", "heard", code=0)
    assert planted.spared
    assert stat.S_ISREG(planted.path.lstat().st_mode)
    assert stat.S_IMODE(planted.path.lstat().st_mode) == 0o600
    assert b"heard" in planted.path.read_bytes()
    assert [one.name for one in remuda.cwd.iterdir()] == ["a.cast"]


@pytest.mark.parametrize("kind", KINDS)
def test_start_with_a_planted_log_is_refused_and_leaves_no_keeper(remuda: Commands, kind: str) -> None:
    planted = plant(remuda.cwd / "log", kind)
    said = remuda.refused("start", "work", "--detach", "--log-file", "log", "--", "cat", code=4)
    assert str(planted.path) in said
    assert planted.spared
    assert remuda.json("ls") == []
    assert not list(remuda.sessions.glob("work.pid"))


# ── settings ──


@pytest.fixture(params=["pipe", "zero"])
def settings(remuda: Commands, request: pytest.FixtureRequest) -> Path:
    path = remuda.cwd / ".claude" / "settings.json"
    path.parent.mkdir()
    if request.param == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return path


def run(remuda: Commands, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*BOUNDED, *COMMAND, *words], env=remuda.env, cwd=remuda.cwd, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


def test_hooks_show_with_planted_settings_names_the_file(remuda: Commands, settings: Path) -> None:
    done = run(remuda, "hooks", "show")
    assert done.returncode == 1
    assert ".claude/settings.json is not a JSON object" in done.stderr


def test_hooks_install_with_planted_settings_is_refused(remuda: Commands, settings: Path) -> None:
    for more in (("--inbox", "run", "--project"), ("--boss", "--yes", "--settings", str(settings))):
        done = run(remuda, "hooks", "install", *more)
        assert done.returncode == 2
        assert str(settings) in done.stderr
        assert "not a regular file" in done.stderr


def test_doctor_with_planted_settings_names_the_file(remuda: Commands, settings: Path) -> None:
    assert ".claude/settings.json" in run(remuda, "doctor").stdout


def test_start_with_planted_settings_starts_the_agent(remuda: Commands, settings: Path) -> None:
    agent = str(scripted_agent(remuda.home))
    done = run(remuda, "start", "work", "--detach", "--agent", "claude", "--", agent)
    assert (done.returncode, "never tried here" in done.stderr) == (0, True)


def test_print_with_planted_settings_answers(remuda: Commands, settings: Path) -> None:
    agent = str(scripted_agent(remuda.home))
    done = run(remuda, "print", "hello", "--claude-binary", agent, "--timeout", "30")
    assert (done.returncode, done.stderr) == (0, "")


def test_hooks_install_through_a_link_says_where_it_is_written(remuda: Commands) -> None:
    other = remuda.home / "other.json"
    other.write_text('{"mine": 1}')
    (remuda.cwd / ".claude").mkdir()
    (remuda.cwd / ".claude" / "settings.json").symlink_to(other)
    for more in (("--inbox", "run", "--project"), ("--boss", "--yes", "--settings", ".claude/settings.json")):
        assert "~/other.json" in remuda("hooks", "install", *more).out
    assert "~/other.json" in remuda("hooks", "uninstall").out
    assert '"mine": 1' in other.read_text()
