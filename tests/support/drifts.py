"""The real Claude Code as a later version may be: a wrapper changes one thing that Remuda reads."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from remuda.testing.real_cli import RealCli

# Changes the settings that it is given, and becomes the CLI: same process, same terminal.
_WITH_SETTINGS = """#!{python}
import json, os, sys

argv = sys.argv[1:]
at = argv.index("--settings")
settings = json.load(open(argv[at + 1]))
changed = {change}(settings)
if changed is None:
    del argv[at : at + 2]
else:
    path = argv[at + 1] + ".changed"
    json.dump(changed, open(path, "w"))
    argv[at + 1] = path
os.execv({binary!r}, [{binary!r}, *argv])
"""

_STRIP = "(lambda settings: None)"
_RENAME = """(lambda settings: {{**settings, "hooks": {{
    ("ConfigChange" if name == {event!r} else name): groups for name, groups in settings["hooks"].items()
}}}})"""
_UNKNOWN_TYPE = """(lambda settings: {**settings, "hooks": {
    name: [{"hooks": [{**hook, "type": hook["type"].replace("http", "http9")} for hook in group["hooks"]]}
           for group in groups] for name, groups in settings["hooks"].items()}})"""

# Runs the CLI on a terminal of its own, and replaces each of these characters in what it prints.
_FILTERED = """#!{python}
import fcntl, os, pty, select, signal, sys, termios, tty

pid, master = pty.fork()
if pid == 0:
    os.execv({binary!r}, [{binary!r}, *sys.argv[1:]])


def resize(*_):
    fcntl.ioctl(master, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, b"\\0" * 8))


signal.signal(signal.SIGWINCH, resize)
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
signal.signal(signal.SIGHUP, lambda *_: os.kill(pid, signal.SIGHUP))
resize()
tty.setraw(0)
rest = b""
while True:
    ready, _, _ = select.select([0, master], [], [])
    if 0 in ready:
        data = os.read(0, 65536)
        while data:
            data = data[os.write(master, data) :]
    if master in ready:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        data = rest + data
        rest = b""
        # A character may be cut in two.
        try:
            data.decode()
        except UnicodeDecodeError as error:
            if error.start >= len(data) - 3:
                rest, data = data[error.start :], data[: error.start]
        for old, new in {changes!r}:
            data = data.replace(old.encode(), new.encode())
        while data:
            data = data[os.write(1, data) :]
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0x7F)
"""


class Drift(NamedTuple):
    """`wrappers` run in place of the CLI, each the next; `prepare` changes the home before it starts."""

    said: tuple[str, ...]
    """Words of `degraded` that must come within one turn."""
    wrappers: tuple[str, ...] = ()
    prepare: Callable[[RealCli], None] = lambda _: None
    typed: bool = True
    """Whether a message may be typed at all."""
    hooked: bool = True
    """Whether a hook comes."""


def _file_at(*names: str) -> Callable[[RealCli], None]:
    """A file where the CLI wants a folder: as root too it cannot write there."""

    def prepare(cli: RealCli) -> None:
        path = Path(cli.home, ".claude", *(name.format(slug=_slug(cli)) for name in names))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    return prepare


def _slug(cli: RealCli) -> str:
    return re.sub("[^A-Za-z0-9]", "-", str(cli.project.resolve()))


def _nothing_readable(cli: RealCli) -> None:
    _file_at("projects")(cli)
    _file_at("sessions")(cli)


def _settings(change: str) -> tuple[str]:
    return (_WITH_SETTINGS.replace("{change}", change),)


def _printing(*changes: tuple[str, str]) -> tuple[str]:
    """Return a wrapper that replaces the first by the second of each pair in all output."""
    return (_FILTERED.replace("{changes!r}", ascii(changes)),)


DRIFTS = {
    "no drift": Drift(()),
    "filter alone": Drift((), _printing(("☠", "☠"))),
    "no hooks": Drift(("the agent's hooks do not arrive",), _settings(_STRIP), hooked=False),
    "Stop renamed": Drift(
        ("the hook that reports the end did not arrive",), _settings(_RENAME.format(event="Stop"))
    ),
    "UserPromptSubmit renamed": Drift(
        ("the hook that reports a prompt did not arrive",),
        _settings(_RENAME.format(event="UserPromptSubmit")),
    ),
    "http hooks unknown": Drift(
        ("settings that Remuda",), _settings(_UNKNOWN_TYPE), typed=False, hooked=False
    ),
    "glyph": Drift(
        ("composer was not found",),
        _printing(("❯", "›")),
        typed=False,
    ),
    "rule": Drift(
        ("composer was not found",),
        _printing(("─", "━")),
        typed=False,
    ),
    "transcripts unwritable": Drift(
        ("the transcript cannot be read",), prepare=_file_at("projects", "{slug}")
    ),
    "projects is a file": Drift(("the transcript cannot be read",), prepare=_file_at("projects")),
    "registry unwritable": Drift(("the registry file cannot be read",), prepare=_file_at("sessions")),
    "nothing but the screen": Drift(
        ("neither hooks nor registry nor transcript",), _settings(_STRIP), _nothing_readable, hooked=False
    ),
    "nothing at all": Drift(
        ("guessed from the timing",),
        _printing(("❯", "›"), ("✳", "*")) + _settings(_STRIP),
        _nothing_readable,
        typed=False,
        hooked=False,
    ),
}


def drifted(cli: RealCli, drift: Drift) -> RealCli:
    """The same bench, with this drift between us and the CLI."""
    drift.prepare(cli)
    for number, text in reversed(list(enumerate(drift.wrappers))):
        wrapper = cli.folder / (f"claude-{number}" if number else "claude")
        wrapper.write_text(
            text.replace("{python}", sys.executable).replace("{binary!r}", json.dumps(str(cli.binary)))
        )
        wrapper.chmod(0o755)
        cli.binary = wrapper
    return cli
