"""Text of agents and senders that would command the operator's terminal, in every command that shows it."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from remuda.agents.attention import digest
from remuda.agents.claude.setup.stop_hooks import make_command
from remuda.cli.app import cli
from remuda.paths import SessionPaths
from support.commands import Commands, watch
from support.envelopes import put_marked
from support.hooks import Box
from support.hostile import HOSTILE, IN_ARGUMENT, IN_JSON, IN_PATH, MARK, Terminal, offences, shown_by
from support.keeper import output_until, until
from support.queue_bench import Ranch

SHOWN = {
    *("ls", "show", "status", "screen", "logs", "clean", "doctor"),
    *("inbox ls", "inbox status", "inbox dead", "inbox redrive", "receipt", "wait", "hooks show"),
    *("messages", "cancel"),
    *("queue", "agents", "next", "preview", "popup", "skip", "snooze", "dismiss", "later", "bootstrap"),
    *("approvals", "approve", "deny", "policy check", "policy explain", "segment"),
}
"""Commands that the tests below run on a home full of hostile text."""
ONLY_WORDS = {
    "help",
    "dash",  # test_dash feeds it hostile text
    "usage",  # nothing in this home has used any
    # They print what they were given, a path or a count. The test of hostile words runs them.
    *(
        "start",
        "send",
        "attach",
        "resize",
        "kill",
        "inbox put",
        "inbox recover",
        "inbox compact",
        "inbox serve",
    ),
    *("open", "up", "down", "return", "reply", "launch", "stop-hook", "hooks install", "hooks uninstall"),
    *("demo", "completion", "version", "notify"),
    *("setup boss", "setup tmux", "setup inbox", "setup completion", "setup notify", "setup hub"),
    *("resume", "sleep", "wake", "setup mcp", "mcp check", "mcp token", "budget check"),
    "mcp ledger",  # test_mcp_commands
    # Names of hosts are checked: tests/unit/fleet/test_subjects.py.
    *("fleet serve", "fleet keys new", "fleet keys revoke", "fleet join", "fleet leave"),
    *("fleet status", "fleet config", "fleet prepare", "fleet events", "fleet requests"),
    *("boss up", "boss down", "boss status", "boss token"),
    # Answers on a terminal: tests/unit/oneshot/test_emit.py. A pool shows ids, states and counts of its own.
    *("ask", "print", "run", "pool serve", "pool warm", "pool status", "pool metrics", "pool stop"),
}


def commands() -> dict[str, click.Command]:
    """Every command, by its words."""
    context = click.Context(cli)

    def walk(group: click.Group, words: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
        for name in group.list_commands(context):
            one = group.get_command(context, name)
            if isinstance(one, click.Group):
                yield from walk(one, (*words, name))
            elif one is not None:
                yield " ".join((*words, name)), one

    return dict(walk(cli, ()))


def test_commands_without_a_case_of_hostile_text_do_not_exist() -> None:
    assert set(commands()) == SHOWN | ONLY_WORDS
    assert not SHOWN & ONLY_WORDS


def check(remuda: Commands, cases: Sequence[Sequence[str]], *, env: dict[str, str] | None = None) -> None:
    """Each on a terminal: it shows the hostile text and obeys none of it. With --json too, if it can."""
    found = {}
    for words in cases:
        code, output = shown_by(remuda, *words, env=env)
        shows = MARK.encode() in output and b"Traceback" not in output
        if bad := [
            *offences(output, drawn=words[0] == "wait"),
            *([] if shows else [f"exit code {code}: {output!r}"]),
        ]:
            found[" ".join(words)] = bad
    assert not found, "\n".join(f"{words}: {bad}" for words, bad in found.items())


def check_json(
    remuda: Commands, cases: Sequence[Sequence[str]], *, env: dict[str, str] | None = None
) -> None:
    for words in cases:
        code, output = shown_by(remuda, *words, "--json", env=env)
        assert (code, offences(output)) == (0, []), words
        assert MARK in output.decode(), words
        json.loads(output, parse_constant=pytest.fail)


@pytest.mark.parametrize("half", [0, 1])
def test_every_command_with_hostile_words_says_so_in_printable_text(remuda: Commands, half: int) -> None:
    env = {"PATH": os.environ["PATH"], "TMUX_TMPDIR": str(remuda.home)}
    found = {}
    for words in sorted(commands())[half::2]:
        code, output = shown_by(remuda, *words.split(), f"--{IN_ARGUMENT}", env=env)
        if code == 0 or b"Traceback" in output or offences(output):
            found[words] = (code, output)
    assert not found


def test_unknown_commands_and_sessions_with_hostile_names_are_reported_in_one_line(remuda: Commands) -> None:
    for words in ([HOSTILE], ["attach", IN_ARGUMENT], ["kill", IN_PATH], ["start", HOSTILE, "--", "cat"]):
        code, output = shown_by(remuda, *words)
        assert code != 0
        assert offences(output) == []
        assert output.count(b"\n") == 1, output


# ── sessions ──


@pytest.fixture
def hostile_folder(remuda: Commands) -> Path:
    """A working folder whose name commands a terminal, and is not UTF-8."""
    folder = remuda.home / (IN_PATH + "\udcff")
    folder.mkdir()
    remuda.cwd = folder
    return folder


def test_sessions_in_a_hostile_folder_are_listed_in_printable_text(
    remuda: Commands, hostile_folder: Path
) -> None:
    title = "\u202eevil"  # of more the emulator itself is wary
    remuda.start("shell", "--", "sh", "-c", f"printf '\\033]2;{title}\\007'; echo ready; exec cat")
    with watch(remuda, "shell") as client:
        output_until(client, b"ready")
    until(lambda: remuda.json("status", "shell")["title"], "its title")
    remuda.start("dead", "--", "sh", "-c", "exit 3")
    until(lambda: "dead" not in remuda("ls").out, "its end")
    cases = [["ls"], ["ls", "--all"], ["status", "shell"], ["status", "shell", "--explain"]]
    cases += [["show", "shell"], ["show", "dead"]]
    check(remuda, [*cases, ["ls", "--format", "{cwd} {title}"]])
    check_json(remuda, cases)
    _, output = shown_by(remuda, "ls", "--all")
    assert output.count(b"\n") == 3
    for words in (["doctor"], ["clean", "--older-than", "1s"]):
        assert offences(shown_by(remuda, *words)[1]) == [], words


def test_ls_watch_of_a_hostile_folder_draws_printable_text(remuda: Commands, hostile_folder: Path) -> None:
    remuda.start("shell", "--", "cat")
    with Terminal(remuda, "ls", "--watch") as terminal:
        terminal.until(MARK.encode())
        terminal.interrupt()
        assert terminal.end() == 0
    assert offences(terminal.seen, drawn=True) == []


LINKS = (
    r"printf '\033]8;;http://x.example\033\\evil link\033]8;;\033\\ \033[1;38;5;9mred\033[m done'; exec cat"
)


def test_screen_with_links_prints_text_and_colours_alone(remuda: Commands) -> None:
    remuda.start("shell", "--", "sh", "-c", LINKS)
    with watch(remuda, "shell") as client:
        output_until(client, b"done")
    code, output = shown_by(remuda, "screen", "shell")
    assert (code, offences(output, picture=True)) == (0, [])
    assert output.count(b"evil link") == 1
    assert b"\x1b[" in output
    assert b"x.example" not in output
    plain = remuda("screen", "shell", "--styled").out
    assert offences(plain.encode(), picture=True) == []
    assert "\x1b[" in plain
    assert remuda("screen", "shell").out == "evil link red done\n"


def test_logs_and_last_screen_of_hostile_output_are_text_and_colours_alone(remuda: Commands) -> None:
    attack = HOSTILE.encode() + b"\x1b]52;c;cm0=\x07\x1b[2J\x1b[?1049h\x1b[31mred\xff\x9b6n done\n"
    (remuda.home / "attack").write_bytes(attack)
    remuda.start("shell", "--", "sh", "-c", f"stty -echo; cat {remuda.home}/attack; exec cat")
    with watch(remuda, "shell") as client:
        output_until(client, b"done")
    for words in (["logs", "shell"], ["logs", "-n", "3", "shell"]):
        code, output = shown_by(remuda, *words)
        assert (code, offences(output, picture=True)) == (0, [])
        assert b"\x1b[" in output
    remuda("kill", "shell")
    for words in (
        ["logs", "-f", "shell"],
        ["screen", "shell"],
        ["show", "shell"],
        ["show", "shell", "--history"],
    ):
        code, output = shown_by(remuda, *words)
        assert (code, offences(output, picture=True)) == (0, [])
        assert b"done" in output


def test_what_a_session_leaves_after_attach_holds_no_links(remuda: Commands) -> None:
    remuda.start("shell", "--", "sh", "-c", LINKS.replace("exec cat", "read line"))
    with Terminal(remuda, "attach", "shell") as terminal:
        terminal.until(b"done")
        terminal.type(b"\r")
        assert terminal.end() == 0
    _, _, left = terminal.seen.rpartition(b"\x1b[?1049l")
    assert b"evil link" in left
    assert b"x.example" not in left


# ── messages ──


def far() -> float:
    return time.time() + 3600


def letter(box: Path, **fields: Any) -> None:
    """An entry of ours: only such a one can bring an id of its own."""
    put_marked(box / "inbox.jsonl", **fields)


@pytest.fixture
def hostile_box(remuda: Commands) -> Box:
    """An inbox in a folder with such a name: one message waits, one is in flight, one was given up."""
    folder = remuda.home / IN_PATH
    folder.mkdir(mode=0o700)
    box = Box(folder)
    facts = {"from": IN_JSON, "dedup": IN_JSON}
    letter(folder, id=f"first {IN_JSON}", prompt=IN_JSON, **facts)
    box.run(payload={"session_id": "s", "hook_event_name": "Stop"})
    box.run("recover", "--on-orphan", "deadletter")
    letter(folder, id=f"second {IN_JSON}", prompt=IN_JSON, **facts)
    box.run(payload={"session_id": "s", "hook_event_name": "Stop"})
    letter(folder, id=f"third {IN_JSON}", prompt=IN_JSON, not_before=far(), **facts)
    with open(folder / ".dead-letter.jsonl", "a") as dead:
        line = json.dumps({"remuda": 1, "id": "m0", "prompt": IN_JSON, "from": IN_JSON})
        dead.write(json.dumps({"entry_id": "e0", "raw_line": line, "reason": IN_JSON}) + "\n")
    with open(folder / "receipts.jsonl", "a") as receipts:
        step = {"id": "m9", "at": 1.0, "attempt": 2, "reason": IN_JSON, "by": IN_JSON, IN_JSON: IN_JSON}
        for stage in ("accepted", IN_JSON, "dead"):
            receipts.write(json.dumps({**step, "stage": stage}) + "\n")
        receipts.write(json.dumps({"id": "m8", "stage": "acked", "at": 1.0}) + "\n")
    with open(folder / "outbox.jsonl", "a") as outbox:
        outbox.write(json.dumps({"id": "m8", "text": IN_JSON}) + "\n")
    return box


def test_messages_with_hostile_ids_are_listed_in_printable_text(remuda: Commands, hostile_box: Box) -> None:
    where = ["--inbox", str(hostile_box.folder)]
    looks = [["inbox", "ls", *where], ["inbox", "status", *where], ["inbox", "dead", *where]]
    looks += [["inbox", "dead", "e0", *where], ["receipt", "m9", *where], ["receipt", "m8", *where]]
    looks += [["messages", *where], ["messages", "--dead", *where], ["messages", "m9", *where]]
    check(remuda, [*looks, ["wait", "m9", *where], ["wait", "m8", *where]])
    check(remuda, [["messages", "--format", "{prompt} {reason}", *where]])
    check_json(remuda, looks)
    rows = shown_by(remuda, "inbox", "ls", *where)[1].splitlines()
    assert len(rows) == 3, rows
    for words in (["inbox", "redrive", "--all"], ["cancel", "m9"], ["cancel", "m"], ["receipt"]):
        assert offences(shown_by(remuda, *words, *where)[1], drawn=True) == []


def test_policy_explain_of_hostile_text_is_printable(remuda: Commands) -> None:
    policy = remuda.home / "policy.toml"
    name = json.dumps("".join(one for one in HOSTILE if ord(one) < 0xD800))  # TOML takes no pairs of \\u
    policy.write_text(f"[[rule]]\nname = {name}\ndecision = 'deny'\ntool = ['Bash', 'Read']\n")
    policy.chmod(0o600)
    explain = ["policy", "explain", "--file", str(policy)]
    check(remuda, [[*explain, "--command", f"ls '{IN_ARGUMENT}'"]])
    check(remuda, [[*explain, "--tool", "Read", "--input", json.dumps({"file_path": IN_JSON})]])


def test_stop_hook_with_a_hostile_path_reports_in_printable_text(box: Box) -> None:
    ran = box.run("--signal-file", f"/dev/null/{IN_PATH}")
    assert ran.code == 0
    assert f"cannot touch /dev/null/{MARK}" in ran.err
    assert offences(ran.err.encode()) == []
    assert ran.err.count("\n") == 1


def test_a_hostile_id_in_flight_is_shown_and_logged_in_printable_text(remuda: Commands) -> None:
    remuda.start("work", "--agent", "demo")
    paths = SessionPaths(remuda.sessions, "work")
    until(paths.inbox.is_dir, "its inbox")
    letter(paths.inbox, id=HOSTILE, prompt="SLOW 1000 count")

    def flight() -> Any:
        return (remuda.json("status", "work").get("delivery") or {}).get("in_flight")

    until(flight, "its message in flight")  # under an id of ours: such a one is not taken over
    for words in (["status", "work"], ["inbox", "ls", "work"], ["inbox", "status", "work"]):
        assert offences(shown_by(remuda, *words)[1]) == []
    log = paths.log.read_bytes()
    assert offences(log) == []
    with open(paths.log, "ab") as old:  # as an earlier version wrote it
        old.write(HOSTILE.encode() + b"\xff\n")
    check(remuda, [["logs", "--keeper", "work"], ["logs", "--keeper", "work", "-n", "2"]])
    remuda("kill", "work", "--grace", "0")
    check(remuda, [["logs", "--keeper", "-f", "work"]])
    paths.log.write_bytes(log)


def test_hooks_with_hostile_paths_are_shown_in_printable_text(remuda: Commands) -> None:
    line = make_command(
        "/nonexistent/" + IN_PATH, "/x/remuda/inbox/stop_hook.py", ["--inbox", "/x/" + IN_PATH]
    )
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": line}]}]}
    settings = remuda.home / "settings.json"
    settings.write_text(json.dumps({"hooks": hooks}))
    check(remuda, [["hooks", "show", "--settings", str(settings)]])


# ── the boss ──


@contextmanager
def asking(ranch: Ranch, *requests: tuple[str, dict[str, Any]]) -> Iterator[None]:
    """Hooks that ask for permission, and wait for an answer."""

    def held() -> list[Any]:
        found: list[Any] = ranch.boss.get("approvals", state="open")["approvals"]
        return [one for one in found if one["expires_at"]]

    with ThreadPoolExecutor(len(requests)) as beside:
        for number, (tool, given) in enumerate(requests):
            payload = {
                "session_id": f"1111000{number}-asks",
                "hook_event_name": "PermissionRequest",
                "tool_name": tool,
                "tool_input": given,
                "cwd": f"/src/{IN_PATH}",
            }
            body = {"payload": payload, "id": f"ask:{digest(tool, given)}"}
            beside.submit(ranch.boss.post, "hooks", "permission", body=body, timeout=600.0)
        try:
            until(lambda: len(held()) == len(requests), "requests that are held")
            yield
        finally:
            for one in held():
                ranch.boss.post("approvals", one["id"], "answer", body={"behavior": "deny"})


def fill(ranch: Ranch) -> None:
    """Agents that wait for all kinds of reasons, all of them hostile."""
    facts = {"cwd": f"/src/{IN_PATH}", "title": HOSTILE, "message": HOSTILE, "agent": HOSTILE}
    ranch.waits("rests", ranch.api, 900, **facts)
    ranch.waits("works", None, 1, "prompted", **facts)
    ranch.waits("limit", ranch.docs, 800, "limited", until=time.time() + 1e30, error=HOSTILE, **facts)
    ranch.waits("fails", None, 700, "failed", error=HOSTILE, pid=os.getpid(), **facts)
    asked = {"tool": HOSTILE, "input": {HOSTILE: HOSTILE}, "tool_use_id": "1"}
    ranch.waits("asks", None, 600, "asked", reason="permission", **asked, **facts)
    ranch.waits("past", None, 500, **facts)
    ranch("dismiss", "id-past")


QUESTION = {
    "question": HOSTILE,
    "header": HOSTILE,
    "options": [{"label": HOSTILE, "description": HOSTILE}] * 2,
}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    (HOSTILE, {HOSTILE: HOSTILE, "deep": [{HOSTILE: [HOSTILE]}]}),
    ("Bash", {"command": HOSTILE, "description": HOSTILE}),
    ("Write", {"file_path": f"/src/{IN_PATH}", "content": HOSTILE}),
    ("ExitPlanMode", {"plan": HOSTILE}),
    ("AskUserQuestion", {"questions": [QUESTION]}),
]


def test_agents_with_hostile_facts_are_listed_in_printable_text(ranch: Ranch) -> None:
    fill(ranch)
    looks = [["queue"], ["queue", "--all"], ["queue", "--history"], ["agents"], ["agents", "--all"]]
    looks += [["next", "--show"], ["skip", "id-rests"], ["snooze", "id-rests", "--for", "1m"]]
    looks += [["snooze", "id-rests", "--wake"], ["later", "id-rests", "end"], ["later", "id-rests", "0"]]
    looks += [["later", "id-rests"]]
    looks += [["ls"], ["show", "id-works"]]
    check(ranch.remuda, looks, env=ranch.env)
    check_json(ranch.remuda, looks, env=ranch.env)
    check(
        ranch.remuda,
        [["next"], ["preview", "id-fails"], ["dismiss", "id-limit"], ["later", "id-asks", "never"]],
        env=ranch.env,
    )
    for words in (["segment"], ["bootstrap", "--dry-run"], ["status"]):
        assert offences(shown_by(ranch.remuda, *words, env=ranch.env)[1]) == []


def test_bootstrap_of_an_agent_in_a_hostile_folder_prints_printable_text(
    ranch: Ranch, hostile_folder: Path
) -> None:
    link = ranch.bench.folder / "claude"
    link.symlink_to("/bin/sleep")
    script = ranch.bench.folder / "script"  # tmux takes such a name in none of its own words
    script.write_bytes(os.fsencode(f"cd {shlex.quote(str(hostile_folder))} && exec {link} 1000\n"))
    ranch.bench.run("respawn-pane", "-k", "-t", ranch.api, f"exec sh {script}")
    ranch.bench.until(lambda seen: seen.panes[ranch.api].command == "claude", "the agent")
    check(ranch.remuda, [["bootstrap", "--dry-run"]], env=ranch.env)
    check_json(ranch.remuda, [["bootstrap", "--dry-run"]], env=ranch.env)


@pytest.mark.parametrize("words", [["queue", "--watch"], ["agents", "--watch"], ["popup", "--inside"]])
def test_lists_that_stay_draw_printable_text(ranch: Ranch, words: list[str]) -> None:
    fill(ranch)
    with asking(ranch, *REQUESTS[:2]), Terminal(ranch.remuda, *words, env=ranch.env) as terminal:
        terminal.until(b"\x1b[K\x1b[J")
        if "--watch" not in words:
            terminal.type(b"jjjjjj")
            terminal.until(b"a allow")  # what is marked now asks for permission, and its body is shown
            terminal.type(b"q")
        else:
            terminal.interrupt()
        assert terminal.end() == 0
    assert offences(terminal.seen, drawn=True) == []


def test_requests_with_hostile_tools_are_shown_in_printable_text(ranch: Ranch) -> None:
    (ranch.remuda.home / "policy.toml").write_text(
        '[[rule]]\nname = "no"\ntool = "Bash"\ndecision = "deny"\n'
    )
    with asking(ranch, *REQUESTS):
        found = ranch.boss.get("approvals", state="open")["approvals"]
        numbers = [one["id"] for one in found]
        looks = [["approvals"], ["approvals", "--all"], *(["approvals", one] for one in numbers)]
        policy = ["policy", "check", "--file", str(ranch.remuda.home / "policy.toml")]
        check(ranch.remuda, [*looks, policy], env=ranch.env)
        check_json(ranch.remuda, [*looks, policy], env=ranch.env)
        for number in numbers:
            with Terminal(ranch.remuda, "approve", number, env=ranch.env) as terminal:
                terminal.until(MARK.encode())
                terminal.interrupt()
                terminal.end()
            assert offences(terminal.seen) == []
        (hostile,) = (one["id"] for one in found if one["tool"] == HOSTILE)
        check(ranch.remuda, [["deny", hostile], ["approvals", hostile]], env=ranch.env)


def test_preview_of_a_pane_with_links_prints_text_and_colours_alone(ranch: Ranch) -> None:
    ranch.bench.run("respawn-pane", "-k", "-t", ranch.api, LINKS)
    ranch.bench.run("select-pane", "-t", ranch.api, "-T", "\u202eevil")
    ranch.waits("engine", ranch.api)
    until(lambda: "done" in ranch("preview", ranch.api), "its words")
    code, output = shown_by(ranch.remuda, "preview", ranch.api, env=ranch.env)
    assert (code, offences(output, picture=True)) == (0, [])
    assert output.count(b"evil link") == 1
    assert b"x.example" not in output


def test_a_key_that_goes_to_a_hostile_agent_reports_it_in_printable_text(ranch: Ranch) -> None:
    tool = f"#(touch PWNED) #{{pid}} {HOSTILE}"
    asked = {"tool": tool, "input": {HOSTILE: HOSTILE}, "tool_use_id": "1", "message": HOSTILE}
    ranch.waits("asks", ranch.api, 600, "asked", reason="permission", **asked)
    del ranch.person.seen[:]
    body = {"action": "next", "client": ranch.person.name, "tmux": ranch.bench.address.path}
    told = ranch.boss.post("navigate", body=body)["told"]
    assert told.isprintable()
    until(lambda: b"#(touch PWNED) #{pid}" in ranch.person.seen, "the line of tmux")
    assert b"\x1b]52;" not in ranch.person.seen
    assert not list(ranch.bench.folder.rglob("PWNED"))


def test_a_limit_with_a_number_without_end_does_not_break_the_queue(ranch: Ranch) -> None:
    facts = {"error": "rate_limit", "cwd": f"/src/{MARK}", "message": f"try again in {'9' * 400} hours"}
    for number, moment in enumerate((1e308, 2e22, -1e308)):
        ranch.waits(f"limit{number}", None, 100, "limited", until=moment, **facts)
    check(ranch.remuda, [["queue"], ["agents"], ["next", "--show"]], env=ranch.env)
    for number in range(3):
        ranch("dismiss", f"id-limit{number}")
    check(ranch.remuda, [["queue", "--history"]], env=ranch.env)
