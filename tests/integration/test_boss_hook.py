"""The hook of sessions that no one keeps, run as Claude Code runs it, with a boss and without one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import remuda
from remuda.agents.claude.setup.boss_hooks import make_hooks
from remuda.boss import hook
from remuda.untrusted import parse_json
from support.boss import RunningBoss
from support.heimdall_client import PATIENCE
from support.keeper import until

HOOK = Path(remuda.__file__).parent / "boss" / "hook.py"
QUICK = HOOK.with_suffix(".sh")
SPOOL = "remuda.boss.evidence.spool:Spool"


class Hooks:
    """Runs the hook for a session of its own."""

    shell = "/bin/sh"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[str]] = []

    def start(self, payload: object, *words: str, **env: str) -> subprocess.Popen[str]:
        return self._start([sys.executable, "-I", "-S", str(HOOK), str(self.folder), *words], payload, env)

    def quick(self, payload: object, python: str = sys.executable, before: str = ":", **env: str) -> None:
        """The quick way; without an interpreter it can do nothing else."""
        quick = make_hooks(python, str(QUICK.parent), str(self.folder))["Stop"]["command"]
        assert self.finish(self._start([self.shell, "-c", f"{before}; {quick}"], payload, env)) == ""

    def _start(self, argv: list[str], payload: object, env: dict[str, str]) -> subprocess.Popen[str]:
        with tempfile.TemporaryFile("w+") as given:  # anyone who needs nothing of it need not read it
            given.write(payload if isinstance(payload, str) else json.dumps(payload))
            given.seek(0)
            process = subprocess.Popen(
                argv,
                env={"PATH": os.environ["PATH"], "CLAUDE_CODE_ENTRYPOINT": "cli", **_mark(), **env},
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        self.running.append(process)
        return process

    def finish(self, process: subprocess.Popen[str]) -> str:
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (0, "")
        return out

    def run(self, payload: object, *words: str, **env: str) -> str:
        return self.finish(self.start(payload, *words, **env))

    def spooled(self, ending: str = "json") -> list[Path]:
        folder = self.folder / "spool"
        return sorted(folder.glob(f"[!.]*.{ending}")) if folder.exists() else []

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.communicate()


def _mark() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name == "REMUDA_TEST_RUN"}


@pytest.fixture
def boss(home: Path) -> Iterator[RunningBoss]:
    one = RunningBoss(home, (SPOOL,))
    one.folder.path.mkdir(mode=0o700)
    yield one
    one.close()


@pytest.fixture
def hooks(boss: RunningBoss) -> Iterator[Hooks]:
    one = Hooks(boss.folder.path)
    yield one
    one.close()


def payload(event: str, session: str = "s", **more: Any) -> dict[str, Any]:
    return {"session_id": session, "hook_event_name": event, "cwd": "/", "transcript_path": "/none", **more}


def stop(session: str = "s", message: str = "done") -> dict[str, Any]:
    return payload("Stop", session, last_assistant_message=message)


PERMISSION = payload("PermissionRequest", tool_name="Bash", tool_input={"command": "ls"})


def test_hook_imports_nothing_but_builtin_and_extension_modules(hooks: Hooks) -> None:
    code = (
        "import sys; before = set(sys.modules); sys.argv[1:] = [sys.argv[2]]\n"
        f"exec(compile(open({str(HOOK)!r}).read(), 'hook.py', 'exec'))\n"
        "new = [sys.modules[name] for name in set(sys.modules) - before]\n"
        "print([one.__name__ for one in new if (getattr(one, '__file__', None) or '.so')[-3:] != '.so'])\n"
    )
    command = [sys.executable, "-I", "-S", "-c", code, "x", str(hooks.folder)]
    done = subprocess.run(
        command, input=json.dumps(stop()), capture_output=True, text=True, env=_mark(), check=True
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert len(hooks.spooled()) == 1


def test_hook_reports_to_the_boss_and_where_it_runs(boss: RunningBoss, hooks: Hooks) -> None:
    boss.start()
    env = {"TMUX": "/tmp/tmux-1/work,12,0", "TMUX_PANE": "%7", "CLAUDE_PID": str(os.getpid())}
    assert hooks.run(stop(message='a "word" \u2026\n'), **env) == ""
    (item,) = until(boss.waiting, "what it told")
    assert item["message"] == 'a "word" \u2026\n'
    found = item["session"]
    assert (found["pane"], found["tmux"], found["pid"]) == ("%7", "/tmp/tmux-1/work", os.getpid())
    assert hooks.run(payload("UserPromptSubmit", prompt="go on"), **env) == ""
    until(lambda: boss.waiting() == [], "what it told then")
    until(lambda: hooks.spooled() == [], "that nothing is left to tell")  # a boss that comes up may be slow


def test_hook_of_a_kept_session_leaves_it_to_its_keeper(boss: RunningBoss, hooks: Hooks) -> None:
    boss.start()
    assert hooks.run(stop(), REMUDA_SESSION="work") == ""
    assert (boss.waiting(), hooks.spooled()) == ([], [])


@pytest.mark.parametrize(
    "given", ["", "{", "[]", '{"session_id": 5}', json.dumps({"hook_event_name": "Stop"})]
)
def test_what_is_no_payload_is_dropped_in_silence(boss: RunningBoss, hooks: Hooks, given: str) -> None:
    boss.start()
    assert hooks.run(given) == ""
    until(lambda: hooks.spooled() == [], "that nothing is left to tell")
    assert boss.waiting() == []


def test_large_output_of_a_tool_is_left_out(boss: RunningBoss, hooks: Hooks) -> None:
    boss.start()
    tool: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "t"}
    assert hooks.run(payload("PostToolUse", **tool, tool_response="x" * (20 << 20))) == ""
    assert [one["id"] for one in boss.client.get("sessions")["sessions"]] == ["s"]


# ── without a boss ──


def test_what_happens_while_no_boss_runs_is_taken_in_later_in_order_and_once(
    boss: RunningBoss, hooks: Hooks
) -> None:
    for event in (
        stop("a"),
        stop("b"),
        payload("UserPromptSubmit", "a", prompt="x"),
        stop("c"),
        stop("c", "2"),
    ):
        assert hooks.run(event) == ""
    assert len(hooks.spooled()) == 5
    boss.start()
    assert [(item["session_id"], item["message"]) for item in boss.waiting()] == [("b", "done"), ("c", "2")]
    assert hooks.spooled() == []


def test_event_that_came_both_ways_counts_once(boss: RunningBoss, hooks: Hooks) -> None:
    hooks.run(stop())
    (file,) = hooks.spooled()
    copy = file.read_bytes()
    boss.start()
    (before,) = boss.waiting()
    boss.client.post("queue", before["id"], "dismiss")
    (file.parent / file.name).write_bytes(copy)
    until(lambda: not hooks.spooled(), "the spool to be taken in")
    assert boss.waiting() == []


def test_boss_that_was_killed_or_hangs_costs_no_event(boss: RunningBoss, hooks: Hooks) -> None:
    boss.start()
    boss.end(signal.SIGKILL)
    assert boss.folder.socket.exists()
    hooks.run(stop("a"))
    assert len(hooks.spooled()) == 1
    boss.folder.socket.unlink()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(boss.folder.socket))
        silent.listen()
        hooks.run(stop("b"))
    assert len(hooks.spooled()) == 2
    boss.folder.socket.unlink()
    boss.start()
    assert [item["session_id"] for item in boss.waiting()] == ["a", "b"]


def test_spool_is_bounded_and_what_is_dropped_is_counted(boss: RunningBoss, hooks: Hooks) -> None:
    spool = boss.folder.spool
    spool.mkdir()
    for number in range(hook.SPOOL_FILES):
        (spool / f"{number:020d}-0000001-1.json").write_bytes(b"{")
    hooks.run(stop())
    assert len(hooks.spooled()) == hook.SPOOL_FILES
    assert (spool / ".dropped").stat().st_size == 1
    (spool / f"{'9' * 19:>020}-0000001-{hook.SPOOL_BYTES}.json").write_bytes(b"{")
    hooks.run(stop())
    assert [one.name[:3] for one in hooks.spooled()] == ["099"]


def test_file_in_the_spool_that_cannot_be_read_keeps_no_other_back(boss: RunningBoss, hooks: Hooks) -> None:
    boss.folder.spool.mkdir()
    (boss.folder.spool / "1.hook").mkdir()  # as one that belongs to another user
    os.utime(boss.folder.spool / "1.hook", (1, 1))
    hooks.run(stop(message="behind it"))
    boss.start()
    assert [item["message"] for item in boss.waiting()] == ["behind it"]
    hooks.run(stop(message="and later"))
    until(lambda: [item["message"] for item in boss.waiting()] == ["and later"], "the next one")
    assert boss.folder.log.read_text().count("1.hook cannot be read") == 1


def test_file_in_the_spool_that_is_no_event_is_laid_aside(boss: RunningBoss, hooks: Hooks) -> None:
    boss.folder.spool.mkdir()
    for number, text in enumerate(('{"payload"', "[]", '{"payload": {"session_id": "x"}, "at": NaN}')):
        (boss.folder.spool / f"{number}.json").write_text(text)
    hooks.run(stop())
    boss.start()
    assert [item["session_id"] for item in boss.waiting()] == ["s"]
    assert sorted(path.name for path in boss.folder.spool.iterdir()) == [".bad", ".watched"]


# ── the quick way ──

NO_PYTHON = "/nonexistent/python"
SHELLS = [found for name in ("sh", "dash", "bash", "zsh", "ksh") if (found := shutil.which(name))]


@pytest.mark.parametrize("shell", SHELLS)
def test_quick_hook_reports_to_a_boss_that_watches_and_where_it_runs(
    boss: RunningBoss, hooks: Hooks, shell: str
) -> None:
    hooks.shell = shell
    boss.start()
    env = {"TMUX": "/tmp/tmux-1/work,12,0", "TMUX_PANE": "%7", "CLAUDE_PID": str(os.getpid())}
    hooks.quick(stop(message='a "word" \\ \u2026\n'), NO_PYTHON, **env)
    (item,) = until(boss.waiting, "what the hook left")
    assert item["message"] == 'a "word" \\ \u2026\n'
    found = item["session"]
    assert (found["pane"], found["tmux"], found["pid"]) == ("%7", "/tmp/tmux-1/work", os.getpid())
    hooks.quick(payload("UserPromptSubmit", prompt="x" * 300_000), NO_PYTHON, **env)
    until(lambda: not boss.waiting(), "the prompt")
    until(lambda: not hooks.spooled("hook"), "the spool to be taken in")


def test_quick_hook_without_a_boss_is_taken_in_later_in_order_and_once(
    boss: RunningBoss, hooks: Hooks, tmp_path: Path
) -> None:
    boss.start()
    boss.end()
    for event in (stop("a"), stop("b"), payload("UserPromptSubmit", "a", prompt="x"), stop("c")):
        hooks.quick(event, NO_PYTHON)
    assert len(hooks.spooled("hook")) == 4
    for file in hooks.spooled("hook"):
        shutil.copy2(file, tmp_path)
    boss.start()
    assert [item["session_id"] for item in boss.waiting()] == ["b", "c"]
    assert hooks.spooled("hook") == []
    boss.client.post("queue", boss.waiting()[0]["id"], "dismiss")
    boss.end()
    for file in tmp_path.glob("*.hook"):  # a boss that was killed before it had removed them
        shutil.copy2(file, boss.folder.spool)
    boss.start()
    assert [item["session_id"] for item in boss.waiting()] == ["c"]
    assert b"events_repeated_total 4\n" in boss.ask("GET", "/metrics").body


def test_quick_hook_of_a_kept_session_leaves_it_to_its_keeper(boss: RunningBoss, hooks: Hooks) -> None:
    boss.start()
    boss.end()
    hooks.quick(stop(), NO_PYTHON, REMUDA_SESSION="")
    assert hooks.spooled("hook") == []


@pytest.mark.parametrize("before", ["rm -r spool", "rm spool/.watched", "touch spool/$$.hook"])
def test_quick_hook_that_cannot_write_its_file_reports_the_other_way(
    boss: RunningBoss, hooks: Hooks, before: str
) -> None:
    boss.start()
    boss.end()
    hooks.quick(stop(), before=f"cd '{hooks.folder}' && {before}")
    assert len(hooks.spooled()) == 1


def test_files_of_the_quick_way_are_bounded_with_all_others(boss: RunningBoss, hooks: Hooks) -> None:
    boss.start()
    boss.end()
    first = 1_000_000_000  # no process has such a number
    for number in range(first, first + hook.SPOOL_FILES):
        file = boss.folder.spool / f"{number}.hook"
        file.touch()
        os.utime(file, (number, number))
    hooks.quick(stop())
    left = {file.name for file in hooks.spooled("hook")}
    assert len(left) == hook.SPOOL_FILES - 1
    assert f"{first}.hook" not in left
    assert (boss.folder.spool / ".dropped").stat().st_size == 1
    # Not a tenth one: it need not look.
    hooks.quick(stop(), before=f"cd '{boss.folder.spool}' && rm {first + 1}.hook")
    assert len(hooks.spooled("hook")) == hook.SPOOL_FILES - 1


@pytest.mark.parametrize("cut", [0, 3, 5, 40], ids=["nothing", "where", "where, not what", "half"])
def test_file_that_is_being_written_is_left_until_it_is_whole(
    boss: RunningBoss, hooks: Hooks, cut: int
) -> None:
    boss.start()
    whole = b"\0" * 5 + json.dumps(stop("late")).encode()
    with (boss.folder.spool / "1.hook").open("wb", buffering=0) as file:
        file.write(whole[:cut])
        hooks.quick(stop("other"), NO_PYTHON)
        assert [item["session_id"] for item in until(boss.waiting, "the other")] == ["other"]
        until(lambda: [one.name for one in hooks.spooled("hook")] == ["1.hook"], "the other file to go")
        file.write(whole[cut:])
    until(lambda: len(boss.waiting()) == 2, "the event, once it is whole")
    until(lambda: not hooks.spooled("hook"), "the spool to be taken in")


def test_file_whose_hook_was_killed_is_laid_aside(boss: RunningBoss, hooks: Hooks) -> None:
    boss.start()
    boss.end()
    torn = boss.folder.spool / "1.hook"
    torn.write_bytes(b"\0\0\0\0\0{")
    hooks.quick("", NO_PYTHON)  # told nothing
    for file in hooks.spooled("hook"):
        os.utime(file, (1, 1))
    boss.start()
    assert boss.waiting() == []
    assert sorted(path.name for path in boss.folder.spool.iterdir()) == [".bad", ".watched"]


# ── leave ──


def open_approval(boss: RunningBoss) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        found = boss.client.get("approvals", state="open")["approvals"]
        return found[0] if found and found[0]["expires_at"] else {}

    return until(look, "a request that somebody waits for")


def allow(boss: RunningBoss, **answer: Any) -> None:
    body = {"behavior": "allow", "by": "me", **answer}
    boss.client.post("approvals", open_approval(boss)["id"], "answer", body=body, timeout=PATIENCE)


def test_permission_request_comes_after_the_prompt_that_lies_in_the_spool(
    boss: RunningBoss, hooks: Hooks
) -> None:
    boss.start()
    hooks.run(stop())
    (hidden := boss.folder.spool / ".prompt").write_bytes(
        b"\0" * 5 + json.dumps(payload("UserPromptSubmit", prompt="go on")).encode()
    )
    os.link(hidden, boss.folder.spool / "1.hook")  # of which no one tells: a look is seconds away
    waiting = hooks.start(PERMISSION, "--wait", "600")
    open_approval(boss)
    found = boss.client.get("queue", "history")["items"]
    assert [(one["reason"], one["resolution"]) for one in found] == [("stopped", "prompted")]
    assert [one["reason"] for one in boss.waiting()] == ["permission"]
    allow(boss)
    hooks.finish(waiting)


def test_answer_that_no_one_reads_is_no_error_of_the_hook(boss: RunningBoss, hooks: Hooks) -> None:
    boss.start()
    waiting = hooks.start(PERMISSION, "--wait", "600")
    assert waiting.stdout is not None
    waiting.stdout.close()
    allow(boss)
    assert (waiting.wait(PATIENCE), waiting.stderr and waiting.stderr.read()) == (0, "")


def test_answer_is_said_by_the_hook_that_waits(boss: RunningBoss, hooks: Hooks) -> None:
    boss.start()
    waiting = hooks.start(PERMISSION, "--wait", "600")
    allow(boss, updated_input={"command": "pwd"})
    said = json.loads(hooks.finish(waiting))["hookSpecificOutput"]
    assert said["decision"] == {"behavior": "allow", "updatedInput": {"command": "pwd"}}


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_hook_that_waits_comes_to_the_next_boss(boss: RunningBoss, hooks: Hooks, end: signal.Signals) -> None:
    boss.start()
    waiting = hooks.start(PERMISSION, "--wait", "600")
    number = open_approval(boss)["id"]
    boss.end(end)
    boss.start()
    until(lambda: boss.client.get("approvals", number)["expires_at"], "the hook at the next boss")
    until(lambda: _answered(boss, number), "an answer that is taken")
    assert json.loads(hooks.finish(waiting))["hookSpecificOutput"]["decision"]["behavior"] == "deny"
    assert [one["id"] for one in boss.client.get("approvals")["approvals"]] == [number]


def _answered(boss: RunningBoss, number: str) -> bool:
    """Refused until the hook is there."""
    body = {"behavior": "deny", "message": "no", "by": "me"}
    return boss.ask("POST", f"/v1/approvals/{number}/answer", body).status == 200


def test_dialog_that_is_answered_at_the_terminal_ends_the_wait_in_silence(
    boss: RunningBoss, hooks: Hooks
) -> None:
    boss.start()
    waiting = hooks.start(PERMISSION, "--wait", "600")
    open_approval(boss)
    hooks.run(payload("PostToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_use_id="t"))
    assert hooks.finish(waiting) == ""


def test_request_without_a_boss_is_left_to_the_terminal_at_once(boss: RunningBoss, hooks: Hooks) -> None:
    assert hooks.run(PERMISSION, "--wait", "600") == ""
    boss.start()
    assert [item["reason"] for item in boss.waiting()] == ["permission"]


def test_request_that_was_asked_after_a_kill_of_the_boss_is_answered_by_the_next(
    boss: RunningBoss, hooks: Hooks
) -> None:
    boss.start()
    boss.end(signal.SIGKILL)
    waiting = hooks.start(PERMISSION, "--wait", "600")
    until(hooks.spooled, "what it left")
    boss.start()
    allow(boss)
    assert json.loads(hooks.finish(waiting))["hookSpecificOutput"]["decision"] == {"behavior": "allow"}
    assert len(boss.client.get("approvals")["approvals"]) == 1


def test_program_that_reads_its_answer_is_not_held(boss: RunningBoss, hooks: Hooks) -> None:
    boss.start()
    assert hooks.run(PERMISSION, "--wait", "600", CLAUDE_CODE_ENTRYPOINT="sdk-cli") == ""
    until(lambda: len(boss.client.get("approvals")["approvals"]) == 1, "what it asked")


# ── payloads that cannot be read ──

HOSTILE = {
    "empty": "",
    "half": '{"session_id": "s", "hook_event_name": "Stop"',
    "no object": "[1]",
    "a number": "1e999",
    "not JSON": "NaN",
    "too large": '{"session_id": "s", "hook_event_name": "Stop", "x": 1e999}',
    "constant": '{"session_id": "s", "hook_event_name": "Stop", "x": [NaN, -Infinity]}',
    "many digits": '{"session_id": "s", "hook_event_name": "Stop", "x": ' + "9" * 5000 + "}",
    "deep": '{"session_id": "s", "hook_event_name": "Stop", "x": ' + "[" * 50_000 + "]" * 50_000 + "}",
    "half a character": '{"session_id": "s", "hook_event_name": "Stop", "x": "\\ud800"}',
    "no session": '{"session_id": {"a": []}, "hook_event_name": "Stop"}',
    "more behind it": '{"session_id": "s", "hook_event_name": "Stop"}} {"id": "other"',
}
LARGE = '"tool_response": "' + "x" * (hook.LARGE_BYTES + 1) + '"'


def larger(text: str) -> str:
    """With what a tool said, which the hook takes out before it hands it over."""
    return text.replace('"session_id"', f'{LARGE}, "session_id"')


@pytest.mark.parametrize("ways", [(), ("--wait", "5")], ids=["tells", "asks"])
@pytest.mark.parametrize("change", [str, larger], ids=["small", "large"])
def test_payload_that_cannot_be_read_neither_blocks_the_agent_nor_hurts_the_boss(
    boss: RunningBoss, hooks: Hooks, change: Callable[[str], str], ways: tuple[str, ...]
) -> None:
    """With a boss, without one, and with the next, which finds what was left."""
    boss.start()
    for text in HOSTILE.values():
        assert hooks.run(change(text), *ways) == ""
    hooks.run(stop("before"))
    boss.end()
    for text in HOSTILE.values():
        assert hooks.run(change(text), *ways) == ""
    hooks.run(stop("after"))
    boss.start()
    until(lambda: {"before", "after"} <= {one["session_id"] for one in boss.waiting()}, "all that is right")
    until(lambda: not hooks.spooled(), "an empty spool")
    queue = boss.ask("GET", "/v1/queue")
    assert {one["session_id"] for one in parse_json(queue.body)["items"]} <= {"before", "after", "s"}


def test_large_output_of_a_tool_is_taken_out_whatever_else_is_odd() -> None:
    document = {"session_id": "s", "tool_response": "x", "more": ["\ud800", 1e300]}
    assert json.loads(hook.without_output(json.dumps(document).encode())) == {
        "session_id": "s",
        "more": ["\ud800", 1e300],
    }
    for text in (b"{", b"[1]", b"1", b'{"a": 1e999}', b'{"a": NaN}', b"[" * 100_000):
        assert hook.without_output(text) == text


def test_fifo_and_link_in_the_spool_stop_nothing(boss: RunningBoss, hooks: Hooks, tmp_path: Path) -> None:
    assert hooks.run(stop(message="well")) == ""
    assert len(hooks.spooled()) == 1
    os.mkfifo(hooks.folder / "spool" / "0.json")
    os.mkfifo(tmp_path / "elsewhere")
    (hooks.folder / "spool" / "1.json").symlink_to(tmp_path / "elsewhere")
    boss.start()
    (item,) = until(boss.waiting, "what the hook told")
    assert item["message"] == "well"
    until(
        lambda: "0.json cannot be read: it is not a regular file" in boss.folder.log.read_text(),
        "a line in the log",
    )
