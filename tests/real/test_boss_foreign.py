"""Claude Code in a tmux pane, started by its user, and the boss that hears of it by the user's hooks."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.real_cli import RealCli
from support.boss import RunningBoss
from support.commands import Commands
from support.keeper import Process, until
from support.tmux_attention import TmuxBench

pytestmark = pytest.mark.real

SOURCES = ("remuda.boss.evidence.spool:Spool", "remuda.boss.evidence.reconcile:Reconcile")


class Pane:
    """The CLI in a pane, with the boss's hooks in its user's settings."""

    def __init__(self, tmux: TmuxBench, cli: RealCli, boss: RunningBoss) -> None:
        self._tmux = tmux
        self._boss = boss
        env = {**cli.env, "TERM": "xterm-256color", "REMUDA_TEST_RUN": os.environ["REMUDA_TEST_RUN"]}
        words = ["env", "-i", *(f"{name}={value}" for name, value in env.items())]
        passed = 'TMUX="$TMUX" TMUX_PANE="$TMUX_PANE" '
        command = shlex.join(words) + f" {passed}" + shlex.join(cli.argv("--permission-mode", "default"))
        tmux.run("new-session", "-d", "-s", "w", "-x", "120", "-y", "40", "-c", str(cli.project), command)
        self.id = tmux.run("display-message", "-p", "-t", "w", "#{pane_id}")
        tmux.start()
        self.until_shows("for shortcuts")

    def shown(self) -> str:
        return self._tmux.run("capture-pane", "-p", "-t", self.id)

    def until_shows(self, text: str) -> None:
        until(lambda: text in self.shown(), f"{text!r} on the screen")

    def paste(self, text: str) -> None:
        self._tmux.run("set-buffer", text)
        self._tmux.run("paste-buffer", "-p", "-d", "-t", self.id)
        until(lambda: text[:20] in self.shown(), "the prompt in the composer")
        self._tmux.run("send-keys", "-t", self.id, "Enter")

    def press(self, key: str) -> None:
        self._tmux.run("send-keys", "-t", self.id, key)

    def refused(self) -> bool:
        """Press the key that refuses, while the dialog is there: it drops what comes in its first moments."""
        if "Do you want to proceed?" in self.shown():
            self.press("Escape")
        return "Do you want to proceed?" not in self.shown()

    def item(self, reason: str, message: str = "") -> dict[str, Any]:
        def look() -> dict[str, Any]:
            found = [one for one in self._boss.waiting() if one["session"]["pane"] == self.id]
            return (
                found[0] if found and found[0]["reason"] == reason and message in found[0]["message"] else {}
            )

        return until(look, f"{reason} in the queue")

    def asked(self, command: str) -> dict[str, Any]:
        """That a dialog is open may be known a moment before what it asks."""

        def look() -> dict[str, Any]:
            found = self.item("permission")
            return found if found["detail"].get("input", {}).get("command") == command else {}

        return until(look, f"leave for {command!r} in the queue")


@pytest.fixture
def boss(home: Path) -> Iterator[RunningBoss]:
    one = RunningBoss(home, SOURCES)
    yield one
    one.close()


@pytest.fixture
def bare(cli: RealCli, boss: RunningBoss, tmux: TmuxBench, monkeypatch: pytest.MonkeyPatch) -> Pane:
    """Without any hooks."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(cli.home / ".claude"))
    monkeypatch.setenv("TMUX_TMPDIR", tmux.env["TMUX_TMPDIR"])
    boss.start()
    return Pane(tmux, cli, boss)


@pytest.fixture
def pane(cli: RealCli, home: Path, boss: RunningBoss, tmux: TmuxBench) -> Pane:
    commands = Commands(home)
    settings = cli.home / ".claude" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    commands("hooks", "install", "--boss", "--yes", "--settings", str(settings))
    commands.close()
    boss.start()
    return Pane(tmux, cli, boss)


@pytest.mark.shows("an agent that you started yourself is in the queue")
def test_hooks_of_a_foreign_session_tell_all_that_hooks_can_tell(
    cli: RealCli, boss: RunningBoss, pane: Pane
) -> None:
    pane.paste("hello boss")
    stopped = pane.item("stopped", "hello boss")
    session = stopped["session"]
    assert (session["cwd"], session["origin"]) == (str(cli.project), "hooks")
    until(Path(session["transcript_path"]).exists, "its transcript, which the agent writes a moment later")
    process = Process(session["pid"])
    pane.paste("RUNBASH touch made; echo done")
    asked = pane.asked("touch made; echo done")
    answer = {"behavior": "allow", "by": "me", "updated_input": {"command": "touch edited; echo done"}}
    path = f"/v1/approvals/{asked['detail']['ask']}/answer"
    until(lambda: boss.ask("POST", path, answer).status == 200, "a hook that waits for the answer")
    assert boss.ask("POST", path, answer).status == 409
    pane.item("stopped", "tool_result")
    assert (cli.project / "edited").exists()
    assert not (cli.project / "made").exists()
    pane.paste("err 400")
    pane.item("api_error", "400")
    boss.end(signal.SIGKILL)
    pane.paste("while nobody hears")
    pane.until_shows("to: while nobody hears")
    until(lambda: len(list(boss.folder.spool.glob("[!.]*"))) >= 2, "events in the spool")
    boss.start()
    assert pane.item("stopped", "while nobody hears")["session"]["pid"] == session["pid"]
    process.signal(signal.SIGTERM)
    process.gone()
    until(lambda: boss.waiting() == [], "the end of the session")
    assert boss.client.get("sessions", session["id"])["session"]["state"] == "ended"


def test_interrupt_refusal_and_kill_are_found_though_no_hook_tells(
    cli: RealCli, boss: RunningBoss, pane: Pane
) -> None:
    assert cli.running()
    pane.paste("SLOW 30 never mind")
    pane.until_shows("↓")
    pane.press("Escape")
    until(lambda: pane.item("stopped")["detail"].get("interrupted"), "the interrupt")
    pane.paste("RUNBASH touch made; echo done")
    asked = pane.asked("touch made; echo done")
    pane.until_shows("Do you want to proceed?")
    until(lambda: pane.refused(), "a dialog that takes the key")
    until(lambda: pane.item("stopped")["detail"].get("interrupted"), "the refusal")
    until(
        lambda: boss.client.get("approvals", asked["detail"]["ask"])["state"] == "ended",
        "the end of the request in the ledger",
    )
    assert len(boss.waiting()) == 1
    os.kill(asked["session"]["pid"], signal.SIGKILL)
    pane.item("dead")


def test_session_without_hooks_is_known_by_its_own_files(cli: RealCli, boss: RunningBoss, bare: Pane) -> None:
    bare.paste("hello boss")
    stopped = bare.item("stopped", "hello boss")
    assert (stopped["session"]["origin"], stopped["session"]["cwd"]) == ("registry", str(cli.project))
    bare.paste("RUNBASH touch made; echo done")
    bare.asked("touch made; echo done")
    bare.until_shows("Do you want to proceed?")
    until(lambda: bare.refused(), "a dialog that takes the key")
    until(lambda: bare.item("stopped")["detail"].get("interrupted"), "the refusal")
    process = Process(stopped["session"]["pid"])
    process.signal(signal.SIGTERM)
    process.gone()
    until(lambda: boss.waiting() == [], "the end of the session")
