"""remuda demo"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

import click

from remuda.agents import agent_setups, find_agent
from remuda.errors import WaitTimeout
from remuda.keeper.client import KeeperClient
from remuda.wire import connection as wire
from remuda.wire.connection import ClientConnection

from .output import echo, style, terminal_width

_NAME = "tour"
_PATIENCE = 30.0
_PRESS_INTERVAL = 1.0


@click.command("demo")
@click.option(
    "--fast", is_flag=True, help="Do not pause between steps.  [default: if stdout is not a terminal]"
)
def command(fast: bool) -> None:
    """Take a one-minute tour on a scripted agent. It needs no account and no network, and leaves no files.

    \b
    Example:
      remuda demo
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))  # so that the demo cleans up
    with tempfile.TemporaryDirectory(prefix="remuda-demo-") as folder:
        tour = Tour(Path(folder), pause=0.0 if fast or not sys.stdout.isatty() else 2.5)
        try:
            tour.run()
        finally:
            tour.close()


def _own_call() -> str:
    """Return how to call this program from the current folder: by name if it is on the PATH, else by path."""
    program = Path(sys.executable).with_name("remuda")
    on_path = shutil.which("remuda")
    if not program.exists() or (on_path and Path(on_path).resolve() == program.resolve()):
        return "remuda"
    try:
        return str(program.relative_to(Path.cwd()))
    except ValueError:
        return str(program)


class Tour:
    """Shows the real commands and runs them, in a separate home."""

    def __init__(self, folder: Path, pause: float) -> None:
        self._pause = pause
        self._sessions = folder / "home" / "sessions"
        project = folder / "project"
        project.mkdir()
        # A separate home: the demo reads and writes no files of the user.
        self._env = {**os.environ, "REMUDA_HOME": str(folder / "home"), "HOME": str(folder)}
        folders = [name for setup in agent_setups() for name in setup.folder_variables]
        for elsewhere in (*folders, "XDG_CONFIG_HOME"):
            self._env.pop(elsewhere, None)
        self._cwd = project

    def run(self) -> None:
        self._say("Remuda runs each agent in a session that keeps running. This one is a scripted agent.")
        cols = str(max(40, min(100, terminal_width())))
        self._command("start", _NAME, "--agent", "demo", "--detach", "--cols", cols, "--rows", "24")
        with KeeperClient.connect(_NAME, self._sessions) as client:
            client.request("watch")
            self._until(client, "idle")
            self._command("ls")
            self._a_turn(client)
            self._a_permission(client)
        self._a_message()
        self._a_crash()
        self._say("Every state comes with its evidence:")
        self._command("show", _NAME, "--explain")
        self._say("kill ends the agent and every process it started:")
        self._command("kill", _NAME)
        call = _own_call()
        self._say("End of the tour. Now try:")
        echo(f"  {call} start work --agent claude\n  {call} start x -- bash")
        if call != "remuda":
            self._say("Without the path:  pip install .  (or: uv tool install .)")

    def _a_turn(self, client: KeeperClient) -> None:
        self._say("You type a prompt. Remuda follows what the agent reports, step by step:")
        self._type(client, "SLOW 2 tell me a story")
        self._until(client, "thinking")
        self._until(client, "idle")
        self._command("screen", _NAME, "--plain")

    def _a_permission(self, client: KeeperClient) -> None:
        self._say("The agent requests permission. The list shows which agent is waiting, and for what:")
        self._type(client, "RUNBASH touch made-by-the-agent")
        self._until(client, "waiting_permission")
        self._command("ls")
        self._say("In the terminal you would press 1 to allow it. The tour does that now:")
        self._press(client, b"1", "waiting_permission")
        self._until(client, "idle")
        self._say(f"Files in the project now: {', '.join(sorted(os.listdir(self._cwd))) or 'nothing'}")

    def _a_message(self) -> None:
        self._say(
            "Send a prompt from anywhere. It is delivered when the agent is idle, and it has a receipt:"
        )
        said = self._command("send", _NAME, "SLOW 2 are you there?", captured=True)
        message = said.split()[-1]
        self._command("messages", message, "--wait")
        self._command("messages", message)
        self._say("A prompt is data. A text that would run a command is refused unless you pass --command:")
        self._command("send", _NAME, "/clear", fails=True)

    def _a_crash(self) -> None:
        self._say("A program that watches a session can crash. Here one is killed with SIGKILL…")
        watcher = subprocess.Popen(
            [sys.executable, "-P", "-m", "remuda", "logs", "--keeper", "-f", _NAME],
            env=self._env,
            cwd=self._cwd,
            stdout=subprocess.PIPE,
        )
        assert watcher.stdout is not None
        watcher.stdout.readline()
        watcher.kill()
        watcher.communicate()
        self._say("…and the session keeps running:")
        self._command("ls")

    # ── printing and running ──

    def _say(self, text: str) -> None:
        echo("\n" + style(textwrap.fill(text, terminal_width()), fg="cyan"))
        time.sleep(self._pause)

    def _command(self, *words: str, captured: bool = False, fails: bool = False) -> str:
        """Run it before the user's eyes; what it said, if that is wanted."""
        echo(style(f"$ remuda {shlex.join(words)}", bold=True))
        sys.stdout.flush()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "remuda", *words],
            env=self._env,
            cwd=self._cwd,
            check=not fails,
            stdout=subprocess.PIPE if captured else None,
            text=True,
        )
        if captured:
            echo(done.stdout, nl=False)
        return done.stdout or ""

    def _type(self, client: KeeperClient, prompt: str) -> None:
        echo(style(f"> {prompt}", fg="magenta"))
        client.send(ClientConnection.input(f"\x1b[200~{prompt}\x1b[201~\r".encode()))

    def _press(self, client: KeeperClient, key: bytes, state: str) -> None:
        """Press a key that ends this state; again if needed, because a dialog drops keys at first."""
        deadline = time.monotonic() + _PATIENCE
        prompts = find_agent("demo").prompts
        assert prompts is not None
        while client.request("status")["state"] == state:
            if time.monotonic() > deadline:
                raise WaitTimeout(f"the scripted agent is still {state}")
            # Without a dialog the key would be typed into a draft.
            if prompts.dialog(client.request("screen")["lines"]):
                client.send(ClientConnection.input(key))
                self._until_not(client, state)
            else:
                time.sleep(_PRESS_INTERVAL / 10)

    def _until_not(self, client: KeeperClient, state: str) -> None:
        """Wait briefly for the state to end; an accepted key ends it at once."""
        deadline = time.monotonic() + _PRESS_INTERVAL
        while (left := deadline - time.monotonic()) > 0:
            for event in client.receive(left):
                if not isinstance(event, wire.EventReceived) or "state" not in event.document:
                    continue
                if not self._show(event.document, state):
                    return

    def _until(self, client: KeeperClient, state: str) -> None:
        """Wait until the session is in this state."""
        if self._show(client.request("status"), state):
            return
        deadline = time.monotonic() + _PATIENCE
        while (left := deadline - time.monotonic()) > 0:
            for event in client.receive(left):
                if isinstance(event, wire.EventReceived) and self._show(event.document, state):
                    return
        raise WaitTimeout(f"the scripted agent never became {state}")

    def _show(self, document: dict[str, Any], state: str) -> bool:
        if "state" not in document:
            return False
        if "event" in document:
            echo(f"    {document['state']:<20} reported by {document['source']}: {document['detail']}")
        return bool(document["state"] == state)

    def close(self) -> None:
        """Remove everything that a tour left, also one that was interrupted."""
        if shutil.which(sys.executable) and (self._sessions / f"{_NAME}.sock").exists():
            words = [sys.executable, "-P", "-m", "remuda", "kill", "--grace", "0", _NAME]
            subprocess.run(words, env=self._env, capture_output=True, check=False)
