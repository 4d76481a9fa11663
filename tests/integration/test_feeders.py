"""The examples of docs/how-to/feed-from-cron.md, run in a home of their own in place of /home/me."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from remuda.inbox.journal import Inbox
from support.commands import COMMAND, Commands
from support.heimdall_client import PATIENCE

DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "feed-from-cron.md"
MAIL = b"""From: =?utf-8?q?J=C3=BCrgen?= <j@example.org>
To: agent@example.org
Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=
Message-ID: <1@example.org>
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: 8bit

sch\xf6n
"""


class Feeding:
    """A user's home with the command installed, a session `work` that has ended, and the examples."""

    def __init__(self, remuda: Commands) -> None:
        self.remuda = remuda
        self.home = remuda.home / "me"
        self.inbox = Inbox(self.home / ".local/state/remuda/sessions/work.inbox")
        self.env = {
            **{name: value for name, value in remuda.env.items() if name != "REMUDA_HOME"},
            "HOME": str(self.home),
            "PATH": f"{self.home}/.local/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        remuda.env.update(self.env)
        del remuda.env["REMUDA_HOME"]
        self.write(".local/bin/remuda", f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
        remuda("start", "work", "--detach", "--agent", "demo")
        remuda("kill", "work")

    def write(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def example(self, kind: str) -> str:
        """The block of the document whose fence says so."""
        found = re.search(rf"^```{re.escape(kind)}\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S)
        assert found is not None, kind
        return found[1].replace("/home/me", str(self.home))

    def run(self, *argv: str, data: bytes = b"", code: int = 0) -> str:
        done = subprocess.run(
            argv, env=self.env, cwd=self.home, input=data, capture_output=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout.decode()

    def prompts(self) -> list[str]:
        return [entry.text for entry in self.inbox.waiting()]


@pytest.fixture
def feeding(home: Path) -> Iterator[Feeding]:
    commands = Commands(home)
    (home / "me").mkdir()
    yield Feeding(commands)
    commands.close()


def test_cron_line_puts_one_message_a_day(feeding: Feeding) -> None:
    line = feeding.example("cron").splitlines()[-1]
    command = line.split(maxsplit=5)[5].replace(r"\%", "%")
    before = date.today()
    for _ in range(2):
        assert feeding.run("sh", "-c", command) == ""
    if date.today() == before:
        assert feeding.prompts() == ["Triage the new issues."]


def test_timer_starts_a_service_that_puts_a_message(feeding: Feeding) -> None:
    timer = configparser.ConfigParser(interpolation=None)
    timer.read_string(feeding.example("systemd-timer"))
    assert (timer["Timer"]["OnCalendar"], timer["Install"]["WantedBy"]) == ("Mon..Fri 09:00", "timers.target")
    feeding.run(*service(feeding, "systemd-service"))
    assert feeding.prompts() == ["Triage the new issues."]


def service(feeding: Feeding, kind: str) -> list[str]:
    """What that unit starts."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string(feeding.example(kind))
    return shlex.split(unit["Service"]["ExecStart"].replace("%h", str(feeding.home)))


@pytest.mark.parametrize("kind", ["procmail", "maildrop", "forward"])
def test_mail_filter_puts_a_mail_once(feeding: Feeding, kind: str) -> None:
    feeding.write("bin/mail-to-work", feeding.example("python mail-to-work"))
    piped = re.search(r"\|\s*([^\s\"]+)", feeding.example(kind))
    assert piped is not None
    for _ in range(2):
        feeding.run(piped[1], data=MAIL)
    (prompt,) = feeding.prompts()
    assert "From: Jürgen <j@example.org>\nSubject: Grüße\n\nschön\n" in prompt


@pytest.mark.parametrize(
    "mail",
    [
        b"From: a@b\nContent-Type: text/plain; charset=foo\n\nhi\n",
        b"From: a@b\nContent-Type: text/plain; charset=utf-7\nContent-Transfer-Encoding: 8bit\n\n+2AA- hi\n",
        b"From: a@b\nContent-Type: text/plain; charset=hex\n\nhi\n",
        b"From: \xff\xfe@b\nSubject: caf\xe9\nMessage-ID: <\xff@x>\n\nhi\n",
    ],
)
def test_mail_in_a_charset_that_cannot_be_read_is_put(feeding: Feeding, mail: bytes) -> None:
    script = feeding.write("bin/mail-to-work", feeding.example("python mail-to-work"))
    feeding.run(str(script), data=mail)
    (prompt,) = feeding.prompts()
    assert "hi" in prompt.splitlines()[-1]


def test_mail_that_cannot_be_put_stays_with_the_mail_server(feeding: Feeding) -> None:
    script = feeding.write("bin/mail-to-work", feeding.example("python mail-to-work"))
    feeding.run("prlimit", "--fsize=10", str(script), data=MAIL, code=75)


def test_webhook_is_taken_by_the_service(feeding: Feeding) -> None:
    argv = service(feeding, "systemd-service inject")
    served = subprocess.Popen(
        ["0" if word == "3457" else word for word in argv], env=feeding.env, stdout=subprocess.PIPE
    )
    with served:
        try:
            assert served.stdout is not None
            port = re.search(rb":(\d+)/inject\n", served.stdout.readline())
            assert port is not None
            example = feeding.example("text webhook").replace("3457", port[1].decode())
            assert '"duplicate": false' in feeding.run("sh", "-c", example)
            assert '"duplicate": true' in feeding.run("sh", "-c", example)
        finally:
            served.terminate()
    assert served.returncode == 0
    assert feeding.prompts() == ["The build is red."]


def test_python_line_and_an_appended_line_are_messages(feeding: Feeding) -> None:
    said = feeding.run(sys.executable, "-c", feeding.example("python line"))
    assert said.endswith(" False\n")
    feeding.run("sh", "-c", feeding.example("sh append"))
    texts = [entry.text for entry in Inbox(feeding.home / "agent/inbox").waiting()]
    assert texts == ["Triage the new issues.", "check the nightly build"]
