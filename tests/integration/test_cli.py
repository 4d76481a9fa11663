"""Every command as a user runs it: real processes on real keepers, and what each says of bad input."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import COMMAND, SIZER, Commands
from heimdall_client import PATIENCE
from keeping import Process, become, end_processes, event_named, output_until, until
from remuda._version import __version__
from remuda.cli.app import SECTIONS
from remuda.keeper.client import KeeperClient
from remuda.proctree import descendants
from remuda.wire.connection import ClientConnection

ALL_COMMANDS = [name for section in SECTIONS.values() for name in section]
# Root may write everywhere, unless it gives up the right to.
ORDINARY = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
# A state that lasts for as long as a test may take on a busy machine.
LIVELY = ("--idle-threshold-ms", "600000")
TELL = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"


@pytest.fixture
def remuda(home: Path) -> Iterator[Commands]:
    commands = Commands(home)
    yield commands
    commands.close()


def watch(remuda: Commands, name: str) -> KeeperClient:
    client = KeeperClient.connect(name, remuda.sessions)
    client.send(ClientConnection.subscribe())
    client.request("watch")
    return client


def run_to_end(remuda: Commands, name: str, *words: str) -> int | None:
    """Start a session and wait for its end and its keeper's; returns its exit code."""
    # It waits to be told to go on: else it may have ended before it is watched.
    gate = remuda.home / f"{name}.gate"
    os.mkfifo(gate)
    head, command = words[: words.index("--")], words[words.index("--") + 1 :]
    remuda.start(name, *head, "--", "sh", "-c", 'read go < "$0"; exec "$@"', str(gate), *command)
    keeper = remuda.keeper(name)
    with watch(remuda, name) as client:
        gate.write_text("go\n")
        code = client.wait_exit(PATIENCE)
    assert keeper.ended()
    keeper.close()
    return code


# ── start ──


def test_start_of_a_command_keeps_it_and_says_how_to_attach(remuda: Commands) -> None:
    said = remuda("start", "work", "--", "cat").out
    assert re.fullmatch(r"started work \(pid \d+\); attach with: remuda attach work\n", said)
    status = remuda.json("status", "work")
    assert (status["argv"], status["cwd"], status["agent"]) == (["cat"], str(remuda.cwd), "simple")
    assert (status["cols"], status["rows"]) == (220, 50)


def test_start_json_names_keeper_and_program(remuda: Commands) -> None:
    said = remuda.json("start", "work", "-d", "--", "cat")
    status = remuda.json("status", "work")
    assert said == {"name": "work", "keeper_pid": status["keeper_pid"], "pid": status["pid"]}


def test_start_with_size_policy_and_folder_has_them(remuda: Commands) -> None:
    (remuda.cwd / "in").mkdir()
    remuda.start("work", "--cols", "100", "--rows", "30", "--size", "fixed", "--cwd", "in", "--", "cat")
    status = remuda.json("status", "work")
    assert (status["cols"], status["rows"], status["size_policy"]) == (100, 30, "fixed")
    assert status["cwd"] == str(remuda.cwd / "in")


def test_start_with_env_gives_the_program_its_variables_and_its_session(remuda: Commands) -> None:
    out = remuda.home / "env.json"
    options = ["--env", "A=1=2", "--env", "EMPTY=", "--session-env-var", "MINE"]
    assert run_to_end(remuda, "work", *options, "--", sys.executable, "-c", TELL, str(out)) == 0
    found = json.loads(out.read_text())
    wanted = {"A": "1=2", "EMPTY": "", "MINE": "work", "REMUDA_SESSION": "work", "TERM": "xterm-256color"}
    assert wanted.items() <= found.items()


def test_start_with_record_writes_an_asciicast(remuda: Commands) -> None:
    assert run_to_end(remuda, "work", "--record", "out.cast", "--", "sh", "-c", "echo heard; exit 3") == 3
    head, *events = [json.loads(line) for line in (remuda.cwd / "out.cast").read_text().splitlines()]
    assert (head["version"], head["width"], head["height"]) == (2, 220, 50)
    assert "heard" in "".join(event[2] for event in events if event[1] == "o")


def test_start_of_a_taken_name_is_refused_with_pid_and_uptime(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    said = remuda.refused("start", "work", "--", "cat", code=5)
    keeper = remuda.json("status", "work")["keeper_pid"]
    assert re.match(rf"session 'work' is already running \(pid {keeper}, up \d+m?s\); ", said)
    assert "remuda kill work" in said


def test_start_by_many_at_once_gives_the_name_to_one(remuda: Commands) -> None:
    begun = [remuda.begin("start", "work", "--", "cat") for _ in range(4)]
    codes = []
    for process in begun:
        process.communicate(timeout=PATIENCE)
        codes.append(process.returncode)
    assert sorted(codes) == [0, 5, 5, 5]


def test_start_resume_of_a_plain_command_runs_it_again_where_it_ran(remuda: Commands) -> None:
    (remuda.cwd / "in").mkdir()
    remuda.start("work", "--cwd", "in", "--", "sh", "-c", "pwd; exec cat")
    remuda("kill", "work")
    remuda("start", "work", "--resume", cwd=remuda.home)
    with watch(remuda, "work") as client:
        output_until(client, f"{remuda.cwd}/in".encode())
    status = remuda.json("status", "work")
    assert (status["argv"], status["cwd"]) == (["sh", "-c", "pwd; exec cat"], str(remuda.cwd / "in"))


def test_start_resume_of_a_name_that_never_was_is_refused(remuda: Commands) -> None:
    assert "no session 'work' to resume" in remuda.refused("start", "work", "--resume", code=3)


def test_start_resume_of_a_live_session_is_refused(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    remuda.refused("start", "work", "--resume", code=5)


def test_start_of_the_demo_agent_and_resume_goes_on_with_its_conversation(remuda: Commands) -> None:
    remuda.start("work", "--agent", "demo", "--cols", "100", "--rows", "24")
    with watch(remuda, "work") as client:
        become(client, "idle")
        client.send(ClientConnection.input(b"\x1b[200~tell me of horses\x1b[201~\r"))
        event_named(client, "state", state="thinking")
        event_named(client, "state", state="idle")
    talk = remuda.json("status", "work")["conversation"]["session_id"]
    remuda("kill", "work")
    (dead,) = remuda.json("ls", "--all")
    assert dead["conversation"]["session_id"] == talk

    remuda("start", "work", "--resume")
    with watch(remuda, "work") as client:
        become(client, "idle")
    status = remuda.json("status", "work")
    assert (status["agent"], status["conversation"]["session_id"]) == ("demo", talk)
    until(lambda: "tell me of horses" in remuda("screen", "work").out, "the conversation on the screen")


# ── start: the configuration file ──


def users_config(remuda: Commands) -> Path:
    path = remuda.home / ".config" / "remuda" / "remuda.toml"
    path.parent.mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    "text",
    ['socket_dir = "elsewhere"', 'log_file = "somewhere"', '[[env]]\nname = "LD_PRELOAD"\nvalue = "evil.so"'],
)
def test_config_in_the_working_folder_may_not_reach_out_of_it(remuda: Commands, text: str) -> None:
    path = remuda.cwd / "remuda.toml"
    path.write_text(text)
    assert "working folder" in remuda.refused("start", "work", "--detach", "--", "cat", code=2)
    named = ["--config", str(path), "--socket-dir", str(remuda.sessions)]
    remuda("start", "work", "--detach", *named, "--", "cat")


def test_config_file_of_the_user_sets_what_the_command_line_leaves_open(remuda: Commands) -> None:
    out = remuda.home / "env.json"
    users_config(remuda).write_text(
        f'socket_dir = "{remuda.sessions}"\nsession_env_var = "SID"\nsize = "smallest"\nlog_level = "debug"\n'
        '[[env]]\nname = "FROM_FILE"\nvalue = "yes"\n[[env]]\nname = "BOTH"\nvalue = "file"\n'
        "[classifier.claude]\nidle_threshold_ms = 77\n"
    )
    options = ["--env", "BOTH=command line", "--size", "fixed"]
    run_to_end(remuda, "work", *options, "--", sys.executable, "-c", TELL, str(out))
    found = json.loads(out.read_text())
    assert {"SID": "work", "FROM_FILE": "yes", "BOTH": "command line"}.items() <= found.items()
    assert "HEIMDALL_SESSION_ID" not in found


def test_config_socket_dir_is_where_every_command_looks(remuda: Commands) -> None:
    elsewhere = remuda.home / "elsewhere"
    users_config(remuda).write_text(f'socket_dir = "{elsewhere}"\n')
    remuda.start("work", "--", "cat")
    assert (elsewhere / "work.sock").is_socket()
    assert [one["name"] for one in remuda.json("ls")] == ["work"]
    assert remuda.json("status", "work")["name"] == "work"
    assert [one["name"] for one in remuda.json("ls", "--socket-dir", str(remuda.sessions))] == []


def test_config_named_wins_over_the_folders_and_the_command_line_over_both(remuda: Commands) -> None:
    (remuda.cwd / "remuda.toml").write_text('size = "smallest"\n')
    (remuda.cwd / "named.toml").write_text('size = "fixed"\n')
    remuda.start("folder", "--", "cat")
    remuda.start("named", "--config", "named.toml", "--", "cat")
    remuda.start("line", "--config", "named.toml", "--size", "latest", "--", "cat")
    found = {one["name"]: one["size_policy"] for one in remuda.json("ls")}
    assert found == {"folder": "smallest", "named": "fixed", "line": "latest"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("colour = 1", "colour"),
        ("size = 3", "size"),
        ('size = "huge"', "huge"),
        ('log_level = "loud"', "loud"),
        ("kill_grace = nan", "kill_grace"),
        ("a = = 1", "line 1"),
    ],
)
def test_config_that_is_wrong_is_refused_and_starts_nothing(remuda: Commands, text: str, named: str) -> None:
    (remuda.cwd / "remuda.toml").write_text(text)
    assert named in remuda.refused("start", "work", "--", "cat", code=2)
    (remuda.cwd / "remuda.toml").unlink()
    assert remuda.json("ls", "--all") == []


def test_config_named_and_missing_is_refused(remuda: Commands) -> None:
    assert "nope.toml" in remuda.refused("start", "work", "--config", "nope.toml", "--", "cat", code=2)


# ── start: bad input ──


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["start"], 2, "missing argument 'NAME'; usage: remuda start "),
        (["start", "work"], 2, "nothing to run; name a command behind '--'"),
        (["start", "work", "--agent", "simple"], 2, "nothing to run"),
        (["start", "work", "--agent", "clever"], 2, "'clever' is not one of"),
        (["start", "work", "--bogus", "--", "cat"], 2, "--bogus"),
        (["start", "../evil", "--", "cat"], 4, "'../evil' cannot name a session"),
        (["start", "", "--", "cat"], 4, "a session needs a name"),
        (["start", ".hidden", "--", "cat"], 4, "cannot name a session"),
        (["start", "x" * 65, "--", "cat"], 4, "longer than 64 bytes"),
        (["start", "work", "--", "no-such-command"], 127, "no-such-command: command not found"),
        (["start", "work", "--", "/no/such"], 127, "/no/such"),
        (["start", "work", "--", "./text"], 126, "./text: not an executable file"),
        (["start", "work", "--", "/"], 126, "/"),
        (["start", "work", "--cwd", "nowhere", "--", "cat"], 4, "nowhere does not exist"),
        (["start", "work", "--cwd", "text", "--", "cat"], 4, "text"),
        (["start", "work", "--cols", "-3", "--", "cat"], 2, "a terminal cannot be -3x50"),
        (["start", "work", "--rows", "0", "--", "cat"], 2, "a terminal cannot be 220x0"),
        (["start", "work", "--cols", "5000", "--", "cat"], 2, "up to 2000x1000"),
        (["start", "work", "--cols", "wide", "--", "cat"], 2, "--cols"),
        (["start", "work", "--grace", "-1", "--", "cat"], 2, "'-1' is not a number of seconds"),
        (["start", "work", "--grace", "nan", "--", "cat"], 2, "not a number of seconds"),
        (["start", "work", "--env", "=1", "--", "cat"], 2, "--env '=1' is not NAME=VALUE"),
        (["start", "work", "--env", "A", "--", "cat"], 2, "--env 'A' is not NAME=VALUE"),
        (["start", "work", "--session-env-var", "A=B", "--", "cat"], 2, "--session-env-var cannot be 'A=B'"),
        (["start", "work", "--log-level", "loud", "--", "cat"], 2, "unknown log level 'loud'"),
        (["start", "work", "--record", "no/where.cast", "--", "cat"], 1, "cannot record to"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_start_with_bad_input_is_refused_in_one_line_and_leaves_nothing(
    remuda: Commands, words: list[str], code: int, said: str
) -> None:
    (remuda.cwd / "text").write_text("no program")
    assert said in remuda.refused(*words, code=code)
    left = list(remuda.sessions.glob("*")) if remuda.sessions.exists() else []
    assert [path.name for path in left if path.suffix in (".sock", ".pid", ".json", ".d")] == []


def test_start_in_a_folder_that_is_not_writable_is_refused(remuda: Commands) -> None:
    remuda.sessions.mkdir(mode=0o500)
    said = remuda.refused("start", "work", "--", "cat", code=4, prefix=ORDINARY)
    assert said == f"folder {remuda.sessions} is not writable"


def test_start_where_the_folder_cannot_be_made_is_refused(remuda: Commands) -> None:
    said = remuda.refused("start", "work", "--", "cat", code=4, env={"REMUDA_HOME": "/dev/null"})
    assert said == "cannot use folder /dev/null/sessions: Not a directory"


def test_start_in_a_folder_of_another_user_is_refused(remuda: Commands) -> None:
    other = Path("/")
    if os.getuid() == 0:
        other = remuda.home / "theirs"
        other.mkdir()
        os.chown(other, 65534, 65534)
    said = remuda.refused("start", "work", "--socket-dir", str(other), "--", "cat", code=4)
    assert f"folder {other} belongs to another user" in said


def test_start_with_a_path_too_long_for_a_socket_works_all_the_same(remuda: Commands) -> None:
    folder = remuda.home / ("long-" * 20) / ("longer-" * 20)
    remuda.start("work", "--socket-dir", str(folder), "--", "cat")
    assert remuda.json("status", "work", "--socket-dir", str(folder))["state"] in ("idle", "starting")
    remuda("kill", "work", "--socket-dir", str(folder))


def test_files_of_a_session_are_private_whatever_the_umask(remuda: Commands) -> None:
    remuda("start", "work", "--", "cat", prefix=["sh", "-c", 'umask 000; exec "$@"', "sh"])
    assert stat.S_IMODE(remuda.sessions.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in remuda.sessions.iterdir()}
    assert modes == dict.fromkeys(["work.sock", "work.pid", "work.log", "work.json"], 0o600)


# ── ls ──


def test_ls_of_nothing_says_how_to_begin(remuda: Commands) -> None:
    assert remuda("ls").out == "no sessions; start one with: remuda start NAME -- COMMAND\n"
    assert remuda.json("ls") == []


def test_ls_shows_a_row_for_each_session_by_name(remuda: Commands) -> None:
    (remuda.home / "there").mkdir()
    remuda.start(
        "b", "--cwd", str(remuda.home / "there"), *LIVELY, "--", "sh", "-c", "echo the last line; exec cat"
    )
    remuda.start("a", "--", "cat")
    with watch(remuda, "b") as client:
        output_until(client, b"the last line")
    until(lambda: remuda.json("status", "b")["clients"] == 0, "the leave of the one who watched")
    head, first, second = remuda("ls").out.splitlines()
    assert head.split() == ["NAME", "STATE", "SINCE", "AGENT", "CWD", "CLIENTS", "LAST", "LINE"]
    assert first.split()[:2] == ["a", "idle"]
    assert re.fullmatch(r"b     active  \S+ +simple  ~/there  0        the last line", second)


def test_ls_json_has_one_document_a_session(remuda: Commands) -> None:
    pid = remuda.start("work", "--", "cat")
    (document,) = remuda.json("ls")
    wanted = {"name": "work", "pid": pid, "alive": True, "argv": ["cat"], "keeper_version": __version__}
    assert wanted.items() <= document.items()


def test_ls_all_shows_the_dead_with_how_they_ended(remuda: Commands) -> None:
    assert run_to_end(remuda, "ended", "--", "sh", "-c", "exit 7") == 7
    remuda.start("crashed", "--", "cat")
    remuda.kill_keeper("crashed")
    remuda.start("alive", "--", "cat")
    assert [one["name"] for one in remuda.json("ls")] == ["alive"]
    rows = {line.split()[0]: line for line in remuda("ls", "--all").out.splitlines()}
    assert rows["ended"].endswith("exit code 7")
    assert "dead" in rows["ended"]
    assert rows["crashed"].endswith("its keeper was killed")


def test_ls_sweeps_the_files_of_a_killed_keeper(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    remuda.kill_keeper("work")
    remuda("ls")
    assert sorted(path.name for path in remuda.sessions.iterdir()) == ["work.json", "work.log"]


def test_ls_watch_goes_on_with_the_sessions_and_ends_on_an_interrupt(remuda: Commands) -> None:
    remuda.start("first", "--", "cat")
    watching = remuda.begin("ls", "--watch")
    assert watching.stdout is not None
    assert b"first" in until_line(watching, b"first")
    remuda.start("second", "--", "cat")
    assert b"second" in until_line(watching, b"second")
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=PATIENCE)
    assert (watching.returncode, err) == (0, b"")


def until_line(process: subprocess.Popen[bytes], wanted: bytes) -> bytes:
    assert process.stdout is not None
    for line in process.stdout:
        if wanted in line:
            return bytes(line)
    raise AssertionError(f"ended without {wanted!r}")


# ── status ──


def test_status_tells_state_source_and_terminal(remuda: Commands) -> None:
    pid = remuda.start("work", "--", "sh", "-c", "exec cat 'a b' -")
    lines = dict(line.split(None, 1) for line in remuda("status", "work").out.splitlines())
    assert lines["session"] == "work"
    assert re.fullmatch(r"\w+ for \S+ \(by \w+.*\)", lines["state"])
    assert lines["pid"] == str(pid)
    assert lines["command"] == """sh -c 'exec cat '"'"'a b'"'"' -'"""
    assert lines["terminal"] == "220x50 (latest), 0 watching"


def test_status_explain_shows_every_vote_and_which_decided(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    out = remuda("status", "work", "--explain").out
    assert re.search(r"^ +process +starting +\S+ ago  started$", out, re.MULTILINE)
    assert re.search(r"^ +▶ timing +idle +\S+ ago  silence$", out, re.MULTILINE)
    votes = remuda.json("status", "work", "--explain")["votes"]
    assert [(vote["source"], vote["decides"]) for vote in votes] == [("process", False), ("timing", True)]


# ── screen, logs, resize ──


def test_screen_prints_what_is_shown_and_no_more(remuda: Commands) -> None:
    remuda.start("work", "--cols", "40", "--", "sh", "-c", r"printf '\033[31mred\033[0m\nlast'; exec cat")
    with watch(remuda, "work") as client:
        output_until(client, b"last")
    assert remuda("screen", "work").out == "red\nlast\n"
    assert remuda("screen", "work", "--styled").out.startswith("\x1b[")
    shown = remuda.json("screen", "work")
    assert (shown["lines"][:2], shown["cols"]) == (["red", "last"], 40)
    assert (shown["cursor"]["x"], shown["cursor"]["y"]) == (4, 1)


def test_logs_print_the_last_lines(remuda: Commands) -> None:
    assert run_to_end(remuda, "work", "--", "true") == 0
    lines = remuda("logs", "work").out.splitlines()
    assert "started pid" in "\n".join(lines)
    assert lines[-1].endswith("exit code 0")
    assert remuda("logs", "work", "-n", "1").out.splitlines() == lines[-1:]
    assert remuda("logs", "work", "-n", "0").out == ""


def test_logs_follow_ends_with_the_session(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    following = remuda.begin("logs", "-f", "work")
    until_line(following, b"started pid")
    remuda("kill", "work")
    out, err = following.communicate(timeout=PATIENCE)
    assert out.splitlines()[-1].endswith(b"exit code 143")
    assert (following.returncode, err) == (0, b"")


def test_resize_gives_the_program_its_size(remuda: Commands) -> None:
    remuda.start("work", "--", sys.executable, "-c", SIZER)
    with watch(remuda, "work") as client:
        output_until(client, b"50 220")
        assert remuda("resize", "work", "100x30").out == "work is 100x30\n"
        output_until(client, b"30 100")
    status = remuda.json("status", "work")
    assert (status["cols"], status["rows"]) == (100, 30)


def test_resize_to_what_is_no_size_is_refused(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    for size in ("80", "0x0", "80x-3", "99999x10", "80x24x3", ""):
        remuda.refused("resize", "work", "--", size, code=2)
    assert remuda.json("status", "work")["cols"] == 220


# ── kill ──


def test_kill_ends_the_program_and_says_how(remuda: Commands) -> None:
    process = Process(remuda.start("work", "--", "cat"))
    assert remuda("kill", "work").out == "work ended with exit code 143\n"
    assert process.ended(0)
    process.close()
    assert not (remuda.sessions / "work.sock").exists()


def test_kill_of_several_ends_all_that_there_are(remuda: Commands) -> None:
    for name in ("a", "b"):
        remuda.start(name, "--", "cat")
    done = remuda("kill", "a", "nope", "b", "a", code=3)
    assert done.out.splitlines() == ["a ended with exit code 143", "b ended with exit code 143"]
    assert done.err == "remuda: no session named 'nope'; 'remuda ls' shows those there are\n"


def test_kill_all_ends_every_session(remuda: Commands) -> None:
    for name in ("a", "b", "c"):
        remuda.start(name, "--", "cat")
    assert remuda("kill", "--all").out.count("ended with exit code 143") == 3
    assert remuda.json("ls") == []
    assert remuda("kill", "--all").out == "no sessions\n"


def test_kill_with_no_grace_ends_what_ignores_term_and_all_its_children(remuda: Commands) -> None:
    # The grandchild is in a process session of its own, as an agent's tools are.
    script = "trap '' TERM HUP; setsid sleep 1000 & echo $! > child; echo ready; while :; do read x; done"
    process = Process(remuda.start("work", "--grace", "1000", "--", "bash", "-c", script))
    with watch(remuda, "work") as client:
        output_until(client, b"ready")
    child = Process(int((remuda.cwd / "child").read_text()))
    assert remuda("kill", "--grace", "0", "work").out == "work ended with exit code 137\n"
    assert process.ended(0)
    assert child.ended(0)
    process.close()
    child.close()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["kill"], 2, "no session was named; name at least one, or give --all"),
        (["kill", "--all", "x"], 2, "names and --all together; give one or the other"),
        (["kill", "--grace", "-1", "x"], 2, "'-1' is not a number of seconds"),
        (["kill", "--grace", "soon", "x"], 2, "'soon' is not a number of seconds"),
    ],
)
def test_kill_with_bad_input_is_refused(remuda: Commands, words: list[str], code: int, said: str) -> None:
    assert said in remuda.refused(*words, code=code)


# ── clean ──


def age(path: Path, seconds: float) -> None:
    then = path.lstat().st_mtime - seconds
    os.utime(path, (then, then))


@pytest.fixture
def dead_and_alive(remuda: Commands) -> Commands:
    """A session that ended two days ago, one that ended now, one that lives and is older than both."""
    for name in ("old", "young", "alive"):
        remuda.start(name, "--", "cat")
    keepers = [remuda.keeper(name) for name in ("old", "young")]
    remuda("kill", "old", "young")
    for keeper in keepers:
        assert keeper.ended()  # it writes to its log no more
        keeper.close()
    for path in [*remuda.sessions.glob("old.*"), *remuda.sessions.glob("alive.*")]:
        age(path, 2 * 86400)
    return remuda


def names(remuda: Commands) -> list[str]:
    return sorted(path.name for path in remuda.sessions.iterdir() if path.suffix in (".log", ".json"))


def test_clean_shows_and_removes_nothing(dead_and_alive: Commands) -> None:
    remuda = dead_and_alive
    before = names(remuda)
    lines = remuda("clean").out.splitlines()
    assert lines == [
        f"would remove: {remuda.sessions}/old.json",
        f"would remove: {remuda.sessions}/old.log",
        "dry run: 2 files; --force removes them (1 live, 2 files within the window)",
    ]
    assert names(remuda) == before


def test_clean_force_removes_what_is_old_and_dead_alone(dead_and_alive: Commands) -> None:
    remuda = dead_and_alive
    assert remuda("clean", "--force").out.splitlines()[-1] == "cleaned 2 files"
    assert names(remuda) == ["alive.json", "alive.log", "young.json", "young.log"]
    assert remuda("clean", "--older-than", "3d").out.startswith("nothing to clean (1 live, 2 files")
    assert remuda.json("status", "alive")["state"] == "idle"


def test_clean_removes_what_a_killed_keeper_of_an_agent_left(remuda: Commands) -> None:
    pid = remuda.start("work", "--agent", "demo")
    remuda.kill_keeper("work")
    end_processes([pid])
    assert (remuda.sessions / "work.d").is_dir()
    for path in remuda.sessions.iterdir():
        age(path, 2 * 86400)
    remuda("clean", "--force")
    assert not (remuda.sessions / "work.d").exists()


def test_clean_in_a_folder_with_other_things_leaves_them(remuda: Commands) -> None:
    folder = remuda.home / "mine"
    (folder / "conf.d").mkdir(parents=True)
    (folder / "package.json").write_text('{"name": "package"}')
    (folder / "link.log").symlink_to("/etc/hostname")
    for path in folder.iterdir():
        os.utime(path, (1, 1), follow_symlinks=False)
    out = remuda("clean", "--force", "--socket-dir", str(folder)).out
    assert out.startswith("nothing to clean")
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize("duration", ["0s", "5", "5w", "-1h"])
def test_clean_with_a_bad_duration_is_refused(remuda: Commands, duration: str) -> None:
    remuda.refused("clean", "--older-than", duration, code=2)


# ── doctor ──


def findings(remuda: Commands, level: str, code: int = 0, **env: str) -> list[str]:
    found: list[dict[str, Any]] = json.loads(remuda("doctor", "--json", code=code, env=env).out)
    return [f"{one['what']}: {one['fix']}" for one in found if one["level"] == level]


def test_doctor_of_a_sound_place_finds_no_failure_and_changes_nothing(remuda: Commands) -> None:
    out = remuda("doctor").out
    assert f"ok    remuda {__version__} on Python " in out
    assert "FAIL" not in out
    assert not remuda.sessions.exists()


def test_doctor_of_a_place_that_cannot_work_fails_and_says_what_to_do(remuda: Commands) -> None:
    (said,) = findings(remuda, "fail", 1, REMUDA_HOME="/dev/null")
    assert (
        said
        == "cannot make /dev/null/sessions: /dev/null is not writable: set REMUDA_HOME to a folder of yours"
    )
    assert "FAIL  cannot make" in remuda("doctor", code=1, env={"REMUDA_HOME": "/dev/null"}).out


def test_ls_and_doctor_tell_of_a_keeper_that_does_not_answer(remuda: Commands) -> None:
    for name in ("mute", "work"):
        remuda.start(name, "--", "cat")
    keeper = remuda.keeper("mute")
    keeper.signal(signal.SIGSTOP)
    try:
        asking = [remuda.begin(command, "--json") for command in ("ls", "doctor")]
        listed, found = (json.loads(process.communicate(timeout=PATIENCE)[0]) for process in asking)
    finally:
        keeper.signal(signal.SIGCONT)
        keeper.close()
    assert [process.returncode for process in asking] == [0, 1]
    assert {one["name"]: one["state"] for one in listed} == {"mute": "unreachable", "work": "idle"}
    (said,) = [one["what"] for one in found if one["level"] == "fail"]
    assert said.startswith("session 'mute': the keeper of 'mute' does not answer")


def test_doctor_finds_what_a_killed_keeper_left_running(remuda: Commands) -> None:
    pid = remuda.start("work", "--", "sh", "-c", "trap '' HUP; sleep 1000; true")
    (sleeping,) = until(lambda: descendants(pid), "the program's child")
    remuda.kill_keeper("work")
    left = [line for line in findings(remuda, "note") if "left of" in line]
    end_processes([pid, sleeping])
    assert f"process {pid} is left of the dead session 'work': kill {pid}" in left


def test_doctor_takes_no_live_session_of_another_folder_for_a_leftover(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    remuda("kill", "work")
    remuda.start("work", "--socket-dir", str(remuda.home / "elsewhere"), "--", "cat")
    assert [line for line in findings(remuda, "note") if "left of" in line] == []


def test_doctor_finds_hooks_whose_program_is_gone(remuda: Commands) -> None:
    gone = {"type": "command", "command": "/gone/venv/bin/python -m hook"}
    there = {"type": "command", "command": "/bin/sh -c true"}
    odd: list[Any] = [3, {"hooks": None}, {"hooks": [None, {"command": 3}, {"command": "'"}]}]
    hooks = {"Stop": [{"hooks": [there, gone]}, *odd], "Odd": None}
    settings = remuda.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"hooks": hooks}))
    said = [line for line in findings(remuda, "note") if line.startswith("hook")]
    assert said == [f"hook for Stop runs /gone/venv/bin/python, which does not exist: edit {settings}"]


@pytest.mark.parametrize("text", ["[]", "nonsense", '{"hooks": 3}', '{"hooks": {"Stop": 3}}'])
def test_doctor_takes_any_settings_file(remuda: Commands, text: str) -> None:
    settings = remuda.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(text)
    remuda("doctor")


# ── demo, completion, version, help ──


def test_demo_runs_to_its_end_and_leaves_nothing(remuda: Commands) -> None:
    # Neither a configuration of the user's nor the session that it runs in is the demo's business.
    config = remuda.home / "config"
    (config / "remuda").mkdir(parents=True)
    (config / "remuda" / "remuda.toml").write_text('socket_dir = "/nowhere"\n')
    temporary = remuda.home / "tmp"
    temporary.mkdir()
    out = remuda("demo", env={"XDG_CONFIG_HOME": str(config), "TMPDIR": str(temporary)}).out
    for shown in (
        "waiting_permission",
        "made-by-the-agent",
        "tour ended with exit code",
        "That was the tour",
    ):
        assert shown in out
    assert list(temporary.iterdir()) == []
    assert not remuda.sessions.exists()


def test_demo_that_is_told_to_end_leaves_nothing(remuda: Commands) -> None:
    temporary = remuda.home / "tmp"
    temporary.mkdir()
    remuda.env["TMPDIR"] = str(temporary)
    tour = remuda.begin("demo")
    until_line(tour, b"started tour (pid ")
    (session,) = temporary.glob("*/home/sessions/tour.pid")
    keeper = Process(int(session.read_text().split()[0]))
    tour.terminate()
    _, err = tour.communicate(timeout=PATIENCE)
    assert (tour.returncode, err) == (143, b"")
    assert keeper.ended()
    keeper.close()
    assert list(temporary.iterdir()) == []


def complete(remuda: Commands, *words: str) -> list[str]:
    """What a real bash offers for that line, by the script that `completion bash` prints."""
    (remuda.cwd / "remuda").write_text(f'#!/bin/sh\nexec {COMMAND[0]} -m remuda "$@"\n')
    (remuda.cwd / "remuda").chmod(0o755)
    (remuda.cwd / "script").write_text(remuda("completion", "bash").out)
    last = len(words) - 1
    program = (
        f'. ./script || exit 9; COMP_WORDS=("$@"); COMP_CWORD={last}; '
        '_remuda_completion remuda; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", program, "bash", *words],
        env={**remuda.env, "PATH": f"{remuda.cwd}:{remuda.env['PATH']}"},
        cwd=remuda.cwd,
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stderr == b""
    return done.stdout.decode().split()


def test_completion_in_bash_completes_commands_and_sessions(remuda: Commands) -> None:
    for name in ("work", "worse", "other"):
        remuda.start(name, "--", "cat")
    assert complete(remuda, "remuda", "st") == ["start", "status"]
    assert complete(remuda, "remuda", "attach", "wo") == ["work", "worse"]
    assert complete(remuda, "remuda", "kill", "work", "o") == ["other"]


def test_completion_looks_where_the_line_says(remuda: Commands) -> None:
    folder = str(remuda.home / "elsewhere")
    remuda.start("there", "--socket-dir", folder, "--", "cat")
    assert complete(remuda, "remuda", "status", "--socket-dir", folder, "t") == ["there"]
    assert complete(remuda, "remuda", "status", "t") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_every_shell(remuda: Commands, shell: str) -> None:
    assert "_REMUDA_COMPLETE" in remuda("completion", shell).out


def test_version_names_all_that_matters(remuda: Commands) -> None:
    facts = remuda.json("version")
    assert facts["remuda"] == __version__
    said = remuda("version").out
    assert said == f"remuda {__version__} (Python {facts['python']}, protocol {facts['protocol']})\n"
    assert remuda("--version").out == f"remuda, version {__version__}\n"


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_help_of_every_command_has_an_example(remuda: Commands, name: str) -> None:
    out = remuda(name, "--help").out
    assert f"Usage: remuda {name}" in out
    assert re.search(rf"Examples?:\n +remuda {name}", out)


def test_help_lists_every_command_with_or_without_being_asked(remuda: Commands) -> None:
    out = remuda("--help").out
    assert remuda().out == out
    for name in ALL_COMMANDS:
        assert re.search(rf"^  {name} +\w", out, re.MULTILINE)


# ── what is the same for all ──


@pytest.mark.parametrize("words", [["status"], ["screen"], ["kill"], ["resize", "80x24"]])
def test_command_on_an_unknown_session_is_refused(remuda: Commands, words: list[str]) -> None:
    command, *more = words
    said = remuda.refused(command, "nope", *more, code=3)
    assert said == "no session named 'nope'; 'remuda ls' shows those there are"


def test_logs_of_an_unknown_session_are_refused(remuda: Commands) -> None:
    assert "no log of a session 'nope'" in remuda.refused("logs", "nope", code=3)


@pytest.mark.parametrize("command", ["status", "screen", "kill"])
def test_command_on_a_dead_session_says_how_it_ended_and_how_to_bring_it_back(
    remuda: Commands, command: str
) -> None:
    run_to_end(remuda, "work", "--", "sh", "-c", "exit 9")
    said = remuda.refused(command, "work", code=6)
    assert said == "session 'work' has ended with exit code 9; 'remuda start work --resume' brings it back"


@pytest.mark.parametrize("command", ["status", "screen", "kill", "logs"])
def test_command_on_a_bad_name_is_refused(remuda: Commands, command: str) -> None:
    assert "'../x' cannot name a session" in remuda.refused(command, "../x", code=4)


def test_attach_without_a_terminal_is_refused_and_says_what_else_there_is(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    said = remuda.refused("attach", "work", code=4)
    assert said.startswith("attach needs a terminal on standard input and output; in a script use ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["foo"], "there is no command 'foo'; 'remuda --help' lists the commands"),
        (["attch"], "there is no command 'attch'; did you mean attach?"),
        (["--bogus"], "no such option"),
        (["ls", "extra"], "got unexpected extra argument (extra); usage: remuda ls"),
    ],
)
def test_command_line_that_is_wrong_is_refused_in_one_line(
    remuda: Commands, words: list[str], said: str
) -> None:
    assert said in remuda.refused(*words, code=2)


@pytest.mark.parametrize("command", ["ls", "clean", "logs"])
def test_folder_that_cannot_be_read_is_an_error_without_a_traceback(remuda: Commands, command: str) -> None:
    remuda.sessions.mkdir(mode=0o000)
    words = [command, "work"] if command == "logs" else [command]
    said = remuda.refused(*words, code=4, prefix=ORDINARY)
    assert "Permission denied" in said
    assert str(remuda.sessions) in said


def test_keeper_that_dies_while_it_is_asked_is_an_error_without_a_traceback(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    keeper = remuda.keeper("work")
    keeper.signal(signal.SIGSTOP)
    asking = remuda.begin("status", "work")
    wait_for_connection(remuda.sessions, asking)
    keeper.signal(signal.SIGKILL)
    out, err = asking.communicate(timeout=PATIENCE)
    keeper.close()
    assert (asking.returncode, out) == (7, b"")
    assert err.startswith(b"remuda: ")
    assert err.count(b"\n") == 1


def wait_for_connection(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Until it is connected: the kernel lists the accepting end as well, by the path that was bound."""
    while process.poll() is None:
        if Path("/proc/net/unix").read_text().count(f" {folder}/.work.") > 1:
            return
        os.sched_yield()
    raise AssertionError("ended before it was connected")


@pytest.mark.parametrize("words", [["ls"], ["ls", "--json"], ["status", "work"], ["screen", "work"]])
def test_broken_pipe_is_silent(remuda: Commands, words: list[str]) -> None:
    remuda.start("work", "--", "sh", "-c", "seq 100; exec cat")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, *words], env=remuda.env, cwd=remuda.cwd, stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def on_a_terminal(remuda: Commands, *words: str) -> bytes:
    """The same, with its output on a terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *words], env=remuda.env, cwd=remuda.cwd, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    pieces = []
    try:
        while piece := os.read(master, 65536):
            pieces.append(piece)
    except OSError:  # its last writer is gone
        pass
    os.close(master)
    assert process.wait(PATIENCE) == 0
    return b"".join(pieces)


@pytest.mark.parametrize("words", [["ls"], ["status", "work", "--explain"], ["doctor"], ["screen", "work"]])
def test_colours_are_for_terminals_alone(remuda: Commands, words: list[str]) -> None:
    remuda.start("work", "--", "sh", "-c", r"printf '\033[31mred\033[0m'; exec cat")
    with watch(remuda, "work") as client:
        output_until(client, b"red")
    assert "\x1b" not in remuda(*words).out
    assert b"\x1b[" in on_a_terminal(remuda, *words)


def test_session_outlives_the_process_group_that_started_it(remuda: Commands) -> None:
    script = f"{COMMAND[0]} -m remuda start work -d -- cat; kill -HUP 0"
    shell = subprocess.Popen(
        ["sh", "-c", script],
        env=remuda.env,
        cwd=remuda.cwd,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert shell.wait(PATIENCE) == -signal.SIGHUP
    assert remuda.json("status", "work")["alive"]
