"""Every command of version 0.1 (commit 76f0a55), run one after the other, and what each gave.

`python tests/support/old_commands.py PROGRAM` runs them on that `remuda` and prints the record, with the
flags of each command. That of version 0.1 is tests/data/old_commands.json; the test runs the same on this
version.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_LIMIT = 60.0
_FLAGS = """
import json, click
from remuda.cli.app import cli
found = {}
def walk(command, words):
    context = click.Context(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if inner := command.get_command(context, name):
                walk(inner, [*words, name])
    else:
        opts = {o for p in command.params for o in [*p.opts, *p.secondary_opts]}
        found[" ".join(words)] = sorted(o for o in opts if o[0] == "-")
walk(cli, [])
print(json.dumps(found))
"""


class Runner:
    """Runs commands in a home of their own, and records what each gave under its own words."""

    def __init__(self, program: str, home: Path) -> None:
        self._program, self._home = program, home
        self._cwd = home / "project"
        self._cwd.mkdir(parents=True)
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.env = {
            **kept,
            "HOME": str(home),
            "REMUDA_HOME": str(home / "state"),
            "TMUX_TMPDIR": str(home),
            "TERM": "xterm-256color",
            "SHELL": "/bin/bash",
        }
        self.record: dict[str, dict[str, Any]] = {}

    def __call__(self, *words: str, shown: str = "") -> Any:
        ran = subprocess.run(
            [self._program, *words],
            env=self.env,
            cwd=self._cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=False,
        )
        try:
            document = json.loads(ran.stdout) if "--json" in words else None
        except ValueError:
            document = None
        name = shown or " ".join(words).replace(str(self._home), "~")
        self.record[name] = {"code": ran.returncode, "keys": sorted(keys(document))}
        return document

    def until(self, *words: str, shown: str) -> None:
        """Ask until a list in the answer holds something."""
        deadline = time.monotonic() + _LIMIT
        while not any("[]" in key for key in keys(self(*words, shown=shown))):
            assert time.monotonic() < deadline, (words, self.record[shown])
            time.sleep(0.1)


def keys(document: Any, path: str = "") -> set[str]:
    """The names of all values in a document: `[].name`. Entries of a list count as one."""
    if isinstance(document, dict):
        found = {f"{path}.{name}" for name in document}
        return found.union(*(keys(value, f"{path}.{name}") for name, value in document.items()))
    if isinstance(document, list):
        return set[str]().union(*(keys(value, f"{path}[]") for value in document))
    return set()


def run_all(remuda: Runner) -> None:
    try:
        _sessions(remuda)
        _inboxes(remuda)
        _attention(remuda)
        _rest(remuda)
    finally:
        remuda("down", shown="down at the end")
        remuda("kill", "--all", "--yes", "--grace", "0", shown="kill --all at the end")
        remuda("kill", "--all", "--grace", "0", shown="kill --all as before")


def _sessions(remuda: Runner) -> None:
    remuda("start", "a", "--agent", "demo", "--detach", "--json")
    remuda("start", "a", "--agent", "demo", "--detach", "--json", shown="start, a name that is taken")
    remuda("start", "b", "--detach", "--", "cat")
    remuda("wait", "a", "--json", shown="wait for a session")
    for words in (["ls", "--json"], ["status", "a", "--json"], ["status", "a", "--explain", "--json"]):
        remuda(*words)
    remuda("status", "nosuch", "--json")
    remuda("screen", "a", "--json")
    remuda("resize", "b", "100x30")
    message = remuda("send", "a", "hello", "--json")["id"]
    remuda("wait", message, "--json", shown="wait for a message")
    remuda("receipt", message, "--json", shown="receipt")
    remuda("receipt", "m-nosuch", "--json")
    remuda("send", "a", "/clear", "--json", shown="send a command that is not meant as one")
    remuda("send", "nosuch", "hello", "--json")
    remuda("kill", "b")
    remuda("ls", "--all", "--json")
    remuda("clean")


def _inboxes(remuda: Runner) -> None:
    box = ["--inbox", "box"]
    remuda("inbox", "put", *box, "one", "--json")
    remuda("inbox", "ls", *box, "--json")
    remuda("inbox", "status", *box, "--json")
    remuda("inbox", "dead", *box, "--json")
    remuda("inbox", "recover", *box, "--json")
    remuda("inbox", "redrive", *box, "--json")
    remuda("inbox", "compact", *box, "--json")
    remuda("inbox", "ls", "nosuch", "--json")
    remuda("stop-hook", "--inbox", "box/inbox.jsonl", shown="stop-hook")
    remuda("launch", "--", "true")
    remuda("launch", "--", "false")


def _attention(remuda: Runner) -> None:
    remuda("queue", "--json", shown="queue without a boss")
    remuda("up", "--detach", "--port", "0", "--json")
    remuda("status", "--json", shown="status of the boss")
    remuda.until("queue", "--json", shown="queue")
    remuda("agents", "--json")
    remuda("send", "a", "RUNBASH touch one", "--json", shown="send for a permission")
    remuda.until("approvals", "--json", shown="approvals")
    remuda("approvals", "a", "--json")
    remuda("preview", "a", "--json")
    remuda("reply", "a", "hello", "--json", shown="reply at a dialog")
    remuda("skip", "a", "--json")
    remuda("approve", "a", "--yes", "--json")
    remuda("approve", "a", "--yes", "--json", shown="approve a second time")
    remuda("wait", "a", "--json", shown="wait until it has run")
    remuda("send", "a", "RUNBASH touch two", "--json", shown="send for another permission")
    remuda.until("approvals", "--json", shown="approvals again")
    remuda("deny", "a", "--message", "no", "--json")
    remuda("wait", "a", "--json", shown="wait until it was denied")
    remuda.until("queue", "--json", shown="queue after that")
    remuda("snooze", "a", "10m", "--json", shown="snooze")
    remuda("snooze", "a", "--for", "10m", "--json", shown="snooze --for")
    remuda("dismiss", "a", "--json")
    remuda("reply", "a", "hello again", "--json", shown="reply")
    remuda("queue", "--history", "--json")
    remuda("segment", "--json")
    remuda("bootstrap", "--json")
    remuda("preview", "nosuch", "--json")
    remuda("approve", "nosuch", "--yes", "--json")
    remuda("down", "--json")
    remuda("down", "--json", shown="down a second time")


def _rest(remuda: Runner) -> None:
    remuda("policy", "check", "--json")
    remuda("hooks", "show", "--json")
    remuda("hooks", "show", "--boss", "--json")
    remuda("hooks", "show", "--tmux", "--json")
    remuda("hooks", "install", "--inbox", "box/inbox.jsonl")
    remuda("hooks", "show", "--json", shown="hooks show of one")
    remuda("hooks", "uninstall")
    remuda("pool", "status", "--json")
    remuda("pool", "metrics")
    remuda("pool", "stop")
    remuda("version", "--json")
    remuda("completion", "bash")
    remuda("completion")
    remuda("doctor", "--json")
    remuda("nosuch")
    remuda("ls", "--nosuch")


def main() -> None:
    program = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="rmd-old-") as folder:
        runner = Runner(program, Path(folder))
        run_all(runner)
    python = Path(program).with_name("python")
    flags = json.loads(subprocess.run([python, "-c", _FLAGS], capture_output=True, check=True).stdout)
    print(json.dumps({"flags": flags, "commands": runner.record}, indent=1, sort_keys=True))


def flags_now() -> dict[str, list[str]]:
    ran = subprocess.run([sys.executable, "-c", _FLAGS], capture_output=True, check=True)
    found: dict[str, list[str]] = json.loads(ran.stdout)
    return found


if __name__ == "__main__":
    main()
