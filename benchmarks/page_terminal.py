"""The terminal in the page: what it costs the agent, how soon its end is drawn, and how soon a key is.

A program prints 50 MB and then writes into a pipe, so that its own end is known whoever reads it. Once no one
reads its terminal; once a client of the page does not read its socket; once one reads and draws nothing; once
it is shown in Chromium.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.echo import Typist, attach_remuda, on_client, play
from benchmarks.page_scene import (
    CHROMIUM,
    PageBoss,
    PageSocket,
    open_boss,
    open_browser,
    peak_bytes,
    reset_peak,
)
from benchmarks.report import Report, Target, percentile
from benchmarks.scene import Kept, Scene, bounded
from benchmarks.stream import END, make_stream
from benchmarks.watcher import connect
from playwright.sync_api import Browser, Page

from remuda.wire.connection import ClientConnection

_FLOOD_BYTES = 50_000_000
_RUNS = 4
"""A round: the runs are short."""
_ROUND_TIMEOUT = 60.0
_SETTLE = 0.3
_LINES = 4
_PAUSE = 0.02
_KEYS = 60
_KEY_PAUSE = 50
_MB = 1e6

# Notes when a text is in the terminal. The message is handled after the frame that shows it was made.
_OBSERVE = """
window.drawn = {};
window.wanted = '';
const after = new MessageChannel();
after.port1.onmessage = ({ data }) => { window.drawn[data] ??= performance.timeOrigin + performance.now(); };
const rows = document.querySelector('.xterm-rows');
new MutationObserver(() => {
  const { wanted } = window;
  if (!wanted || !rows.textContent.includes(wanted)) return;
  window.wanted = '';
  after.port2.postMessage(wanted);
}).observe(rows, { childList: true, subtree: true, characterData: true });
document.addEventListener('keydown', (event) => {
  window.pressed = performance.timeOrigin + event.timeStamp;
}, true);
"""
_WANT = "(text) => { window.wanted = text; }"
_DRAWN = "(text) => window.drawn[text]"
_HAS = "(text) => document.querySelector('.xterm-rows').textContent.includes(text)"


def measure(scene: Scene, report: Report, rounds: int) -> None:
    with open_boss(scene) as boss:
        _echo(scene, report, rounds, boss)
        flood = Flood(scene, boss)
        if CHROMIUM is None:
            report.not_measured("the terminal in a browser", "chromium is missing")
            flood.report_runs(report, rounds * _RUNS, None)
            return
        with open_browser() as browser:
            flood.report_runs(report, rounds * _RUNS, browser)
            _key_to_drawn(scene, report, boss, browser)


# ── output ──


@dataclass(frozen=True, slots=True)
class Run:
    seconds: float
    """From the line that releases the program to its end."""
    boss_bytes: int = 0
    """How far the memory of the boss rose."""
    page_bytes: int = 0
    shown: float = 0.0
    """Seconds from the end of the program until its end was on the screen."""


class Flood:
    def __init__(self, scene: Scene, boss: PageBoss) -> None:
        self._scene = scene
        self._boss = boss
        self._file = scene.folder / "flood"
        self._size = make_stream(self._file, _FLOOD_BYTES)
        self._pipe = scene.folder / "flood-end"
        os.mkfifo(self._pipe)

    def report_runs(self, report: Report, count: int, browser: Browser | None) -> None:
        report.title(f"{self._size / _MB:.0f} MB into the page, medians of {count}")
        kinds: dict[str, Callable[[], Run]] = {
            "no page": self._unwatched,
            "a page that does not read": lambda: self._stopped(reads=False),
            "a page that reads and draws nothing": lambda: self._stopped(reads=True),
        }
        if browser is not None:
            kinds["a page in Chromium"] = lambda: self._in_browser(browser)
        runs: dict[str, list[Run]] = {name: [] for name in kinds}
        for number in range(count):  # in turns, from either end: the machine is not always as quick
            for name in list(kinds) if number % 2 else reversed(kinds):
                with bounded(_ROUND_TIMEOUT, name):
                    runs[name].append(kinds[name]())
        rates = {
            name: report.median(name, [self._size / _MB / one.seconds for one in some], "MB/s")
            for name, some in runs.items()
        }
        for name, some in runs.items():
            if name == "no page":
                continue
            target = Target(">=", 0.95) if "Chromium" not in name else None
            report.add(f"{name} / no page", rates[name] / rates["no page"], "x", target)
            rise = max(one.boss_bytes for one in some) / _MB
            report.add(f"memory of the boss, {name}", rise, "MB", Target("<=", 16), "the most it rose by")
        if browser is not None:
            some = runs["a page in Chromium"]
            risen = max(one.page_bytes for one in some) / _MB
            report.add("memory of the page", risen, "MB", Target("<=", 100), "the most it rose by")
            shown = [one.shown for one in some]
            note = f"the longest; median {statistics.median(shown):.2f}"
            report.add("end of the program to end on the screen", max(shown), "s", Target("<=", 2), note)

    @contextmanager
    def _program(self) -> Iterator[Kept]:
        script = 'stty raw -echo; printf READY; read -r _; cat "$1"; echo >"$2"; exec sleep 1000000'
        kept = self._scene.keep(["sh", "-c", script, "sh", str(self._file), str(self._pipe)])
        time.sleep(_SETTLE)
        try:
            yield kept
        finally:
            self._scene.end(kept.keeper_pid)

    def _release(self, kept: Kept) -> tuple[float, float]:
        """Seconds until the end of the program, and the time of it."""
        with connect(kept.socket) as sock:
            sock.sendall(ClientConnection.hello("bench") + ClientConnection.input(b"\n"))
            start = time.perf_counter()
            self._pipe.read_bytes()
            return time.perf_counter() - start, time.time()

    def _unwatched(self) -> Run:
        with self._program() as kept:
            return Run(self._release(kept)[0])

    def _stopped(self, *, reads: bool) -> Run:
        with self._program() as kept:
            page = PageSocket(self._boss, kept.name)
            page.until_said("repaint")
            time.sleep(_SETTLE)
            reader = threading.Thread(target=_read_all, args=(page,))
            if reads:
                reader.start()
            before = self._mark()
            seconds, _ = self._release(kept)
            risen = peak_bytes(self._boss.pid) - before
            page.close()
            if reads:
                reader.join()
            return Run(seconds, risen)

    def _mark(self) -> int:
        reset_peak(self._boss.pid)
        return peak_bytes(self._boss.pid)

    def _in_browser(self, browser: Browser) -> Run:
        with self._program() as kept, _terminal(self._boss, browser, kept) as page:
            page.wait_for_timeout(_SETTLE * 1000)
            page.evaluate(_WANT, END.decode())
            renderers = _renderers(browser)
            before, page_before = self._mark(), 0
            for pid in renderers:
                reset_peak(pid)
                page_before += peak_bytes(pid)
            seconds, ended = self._release(kept)
            drawn = page.wait_for_function(_DRAWN, arg=END.decode()).json_value() / 1000
            risen = sum(map(peak_bytes, renderers)) - page_before
            return Run(seconds, peak_bytes(self._boss.pid) - before, risen, drawn - ended)


def _read_all(page: PageSocket) -> None:
    try:
        while True:
            page.read(acks=False)
    except (EOFError, OSError):
        pass


@contextmanager
def _terminal(boss: PageBoss, browser: Browser, kept: Kept) -> Iterator[Page]:
    """The terminal of a session in a browser, drawn, with `_OBSERVE` in place."""
    context = boss.context(browser)
    page = context.new_page()
    boss.show(page, f"session/{boss.session_id(kept.name)}")
    page.wait_for_selector(".terminal .state.idle")  # it is live
    page.evaluate(_OBSERVE)
    try:
        yield page
    finally:
        context.close()


def _renderers(browser: Browser) -> list[int]:
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return [one["id"] for one in processes if one["type"] == "renderer"]


# ── keys ──


def _echo(scene: Scene, report: Report, rounds: int, boss: PageBoss) -> None:
    report.title(f"Keystroke echo over the WebSocket, typed every {_PAUSE * 1000:g} ms")
    with ExitStack() as opened:
        typists: dict[str, Typist] = {
            "remuda attach, in turns": opened.enter_context(
                on_client(scene, lambda: attach_remuda(scene, scene.keep(["cat"])))
            ),
            "WebSocket": opened.enter_context(_page_socket(boss, scene.keep(["cat"]))),
        }
        seen = play(report, typists, rounds, _LINES, _PAUSE, "")
    ratio = seen["WebSocket"] / seen["remuda attach, in turns"]
    report.add("WebSocket / remuda attach", ratio, "x", Target("<=", 3))


@contextmanager
def _page_socket(boss: PageBoss, kept: Kept) -> Iterator[Typist]:
    page = PageSocket(boss, kept.name)
    page.say("take")
    page.until_said("control")
    time.sleep(_SETTLE)
    try:
        yield page.type, page.read
    finally:
        page.close()


def _key_to_drawn(scene: Scene, report: Report, boss: PageBoss, browser: Browser) -> None:
    report.title("A key in Chromium, until its echo is drawn")
    kept = scene.keep(["cat"])
    with _terminal(boss, browser, kept) as page:
        page.get_by_role("button", name="Take control").click()
        page.wait_for_selector(".terminal.held")
        taken = [_drawn_after(page, number) for number in range(_KEYS)]
    report.measurements["key to drawn"] = [round(one, 3) for one in taken]
    note = f"p95 {percentile(taken, 0.95):.1f}, {len(taken)} keys"
    report.add("key to drawn, p50", percentile(taken, 0.5), "ms", Target("<=", 40), note)


def _drawn_after(page: Page, number: int) -> float:
    """Types a line that is unique with its last key, and times that."""
    mark = f"<{number}"
    page.keyboard.type(mark)
    whole = f"{mark}>"
    page.wait_for_function(_HAS, arg=mark)
    page.wait_for_timeout(_KEY_PAUSE + number % 16)  # not in step with the frames
    page.evaluate(_WANT, whole)
    page.keyboard.press(">")
    drawn: float = page.wait_for_function(_DRAWN, arg=whole).json_value()
    return drawn - float(page.evaluate("window.pressed"))
