"""`remuda start` as a user runs it: options, the configuration file, and what it says of bad input."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from pathlib import Path

import pytest

from remuda.wire.connection import ClientConnection
from support.commands import ORDINARY, Commands, run_to_end, watch
from support.heimdall_client import PATIENCE
from support.keeper import become, event_named, output_until, until

TELL = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"


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
    assert re.match(rf"session 'work' is already running \(keeper pid {keeper}, up \d+m?s\); ", said)
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
    said = remuda.refused("start", "work", "--resume", code=3)
    assert said == "session 'work' not found; 'remuda ls --all' lists all"


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
        (["start"], 2, "nothing to start; give --agent, or a NAME and a command: remuda start NAME -- CMD"),
        (["start", "work"], 2, "nothing to run; give a command after '--'"),
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
        (["start", "work", "--rows", "0", "--", "cat"], 2, "a terminal cannot be 220x0; the minimum is 1x1"),
        (["start", "work", "--cols", "5000", "--", "cat"], 2, "the maximum is 2000x1000"),
        (["start", "work", "--cols", "wide", "--", "cat"], 2, "--cols"),
        (["start", "work", "--grace", "-1", "--", "cat"], 2, "'-1' is not a time"),
        (["start", "work", "--grace", "nan", "--", "cat"], 2, "'nan' is not a time"),
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
    assert said == (
        "cannot use folder /dev/null/sessions: Not a directory; set REMUDA_HOME to a folder of yours"
    )


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
    assert modes == dict.fromkeys(["work.sock", "work.pid", "work.log", "work.json", "work.history"], 0o600)


def test_start_without_a_name_takes_a_free_one_of_the_folder_or_the_agent(remuda: Commands) -> None:
    odd = remuda.home / "an odd name"
    odd.mkdir()
    names = [
        remuda.json("start", "--agent", "demo", "--detach", *more)["name"]
        for more in ([], [], ["--cwd", str(odd)])
    ]
    assert names == ["cwd", "cwd-2", "demo"]
    assert "--resume needs the NAME" in remuda.refused("start", "--resume", code=2)
