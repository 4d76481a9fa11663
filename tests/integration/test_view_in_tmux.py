"""The view on a real terminal emulator that is not ours: tmux shows what the session's screen says."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from remuda.terminal.ghostty import GhosttyScreen
from remuda.terminal.view import ScreenView, bar_text
from support.heimdall_client import PATIENCE

SESSION_COLS, SESSION_ROWS = 40, 10
BAR = ("work", "idle")
_numbers = itertools.count()

FEEDS = [
    b"one\r\ntwo\r\n\x1b[31mthree\x1b[0m",
    "中文 é🙂 \x1b[7minverse\x1b[0m\r\n".encode(),
    b"\x1b[?1049h\x1b[2J\x1b[Halternate\x1b[10;30Hlow right\x1b[5;5H",
    b"\x1b[2;4r\x1b[?6h\x1b[99;99Hbottom\n\n\n",
    b"\x1bc\x1b#8",
    b"\x1b[44m\x1b[2J\x1b[3;3Hgap\x1b[5Cgap\x1b[0m",
    b"\n" * 30 + b"\x1b[999;999Hx",
    b"\x1b]0;the title\x07\x1b[?1000h\x1b[?25l\x1b[4;4H",
    b"\x1b[!p\x1b[?25h\x1b[?1000l\x1b[2J\x1b[1;1Hlast",
]

PROGRAM = """
import sys, time
from pathlib import Path
from remuda.terminal.ghostty import GhosttyScreen
from remuda.terminal.view import ScreenView

def write(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()

def wait(name):
    while not (folder / name).exists():
        time.sleep(0.005)

folder, cols, rows = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
write(b"shell prompt")
screen = GhosttyScreen({cols}, {rows})
view = ScreenView(screen, cols, rows, bar=True)
write(view.enter())
for step in range({steps}):
    wait(f"go-{{step}}")
    screen.feed((folder / f"go-{{step}}").read_bytes())
    write(view.render(*{bar!r}))
wait("leave")
write(view.leave())
wait("end")
"""


class Tmux:
    """A tmux server of its own, with one pane that runs one program."""

    def __init__(self, folder: Path, cols: int, rows: int) -> None:
        self._socket = f"remuda-view-{os.getpid()}-{next(_numbers)}"
        self._env = {name: value for name, value in os.environ.items() if name not in ("TMUX", "TMUX_PANE")}
        self._env["LC_ALL"] = "C.UTF-8"
        config, program = folder / "tmux.conf", folder / "program.py"
        config.write_text("set -g status off\nset -g exit-empty on\n")
        steps = len(FEEDS)
        program.write_text(PROGRAM.format(cols=SESSION_COLS, rows=SESSION_ROWS, steps=steps, bar=BAR))
        arguments = [sys.executable, str(program), str(folder), str(cols), str(rows)]
        self.run("-f", str(config), "new-session", "-d", "-x", str(cols), "-y", str(rows), *arguments)

    def run(self, *arguments: str) -> str:
        command = ["tmux", "-u", "-L", self._socket, *arguments]
        done = subprocess.run(command, env=self._env, capture_output=True, timeout=PATIENCE, check=True)
        return done.stdout.decode()

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.run("capture-pane", "-p").split("\n")[:-1]]

    def asks(self, *names: str) -> list[str]:
        return self.run("display-message", "-p", " ".join(f"#{{{name}}}" for name in names)).split()

    def close(self) -> None:
        self.run("kill-server")
        Path(f"/tmp/tmux-{os.getuid()}", self._socket).unlink(missing_ok=True)


@pytest.fixture
def tmux(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Tmux]:
    cols, rows = request.param
    tmux = Tmux(tmp_path, cols, rows)
    yield tmux
    tmux.close()


def until(seen: Callable[[], object], wanted: object) -> None:
    """Waits until `seen()` is `wanted`; the comparison at the deadline says what was missing."""
    deadline = time.monotonic() + PATIENCE
    while seen() != wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    assert seen() == wanted


def go(folder: Path, name: str, data: bytes = b"") -> None:
    (folder / f".{name}").write_bytes(data)
    (folder / f".{name}").rename(folder / name)


@pytest.mark.parametrize(
    "tmux", [(40, 11), (25, 6), (60, 15)], indirect=True, ids=["same", "smaller", "larger"]
)
def test_view_in_tmux_shows_session_and_bar_and_gives_the_pane_back(tmux: Tmux, tmp_path: Path) -> None:
    cols, rows = (int(number) for number in tmux.asks("pane_width", "pane_height"))
    screen = GhosttyScreen(SESSION_COLS, SESSION_ROWS)
    view = ScreenView(screen, cols, rows, bar=True)
    for step, data in enumerate(FEEDS):
        go(tmp_path, f"go-{step}", data)
        screen.feed(data)
        view.render(*BAR)
        until(tmux.lines, shown(screen, view, cols, rows))
        if screen.cursor.visible:
            place = [str(screen.cursor.x - view.area.left), str(screen.cursor.y - view.area.top)]
            until(partial(tmux.asks, "cursor_x", "cursor_y"), place)
        flags = [str(int(flag)) for flag in (True, screen.cursor.visible, 1000 in screen.modes.dec)]
        until(partial(tmux.asks, "alternate_on", "cursor_flag", "mouse_any_flag"), flags)
    until(partial(tmux.asks, "pane_title"), ["the", "title"])
    go(tmp_path, "leave")
    until(tmux.lines, ["shell prompt"] + [""] * (rows - 1))
    restored = ["alternate_on", "cursor_flag", "mouse_any_flag", "wrap_flag", "cursor_x"]
    until(partial(tmux.asks, *restored), ["0", "1", "0", "1", "12"])
    until(lambda: tmux.asks("pane_title") != ["the", "title"], True)
    screen.close()


def shown(screen: GhosttyScreen, view: ScreenView, cols: int, rows: int) -> list[str]:
    """The rows that the pane must have: cut out of the session's text, then the bar."""
    area = view.area
    seen = [cut(line, area.left, area.cols) for line in screen.lines()[area.top : area.top + area.rows]]
    return seen + [""] * (rows - 1 - len(seen)) + [bar_text(*BAR, cols).rstrip()]


def cut(line: str, left: int, cols: int) -> str:
    """Columns of a line; the feeds have wide characters at the left only, where nothing is cut."""
    if left == 0 and not line.isascii():
        return line
    return line[left : left + cols].rstrip()
