"""The page: how much of it there is, how soon it opens and follows, and what it costs the boss at rest.

Times are those of the browser: from the start of the navigation until the queue is complete and live, and
from the moment an event is posted until its text is in the document.
"""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from collections.abc import Iterator

from benchmarks.idle import SESSIONS, start_sessions
from benchmarks.page_scene import CHROMIUM, PageBoss, open_boss, open_browser
from benchmarks.report import Report, Target, percentile
from benchmarks.scene import Scene, cpu_seconds, memory_bytes
from playwright.sync_api import Browser, BrowserContext

from remuda.boss.http.assets import FOLDER, Assets

_WAITING = 50
_OPENED = 5
"""Times a round, with an empty cache and with a full one."""
_AWAY = 100
"""Milliseconds to a phone and back."""
_EVENTS = 40
_EVENT_PAUSE = 120
_SETTLE = 4.0
_INTERVAL = 10.0
_KB = 1e3
_MB = 1e6
_VIEWS = {
    "queue": ".list",
    "agents": ".agent",
    "usage": ".figures",
    "statistics": ".cards",
    "session/agent-1": ".talk",
}
"""Each with what it shows when its code is loaded."""

# Notes when the queue is complete and live, and when a text that is waited for appears.
_OBSERVE = """
window.seen = {};
window.wanted = '';
new MutationObserver(() => {
  const isComplete = document.querySelectorAll('.list .row').length >= %d;
  if (isComplete && document.querySelector('.connection.live')) window.seen.ready ??= performance.now();
  if (window.wanted && document.querySelector('.list')?.textContent.includes(window.wanted)) {
    window.seen[window.wanted] = performance.timeOrigin + performance.now();
    window.wanted = '';
  }
}).observe(document, { childList: true, subtree: true, characterData: true });
"""
_BARE = b"<!doctype html><title>bare</title><p>bare<script>performance.mark('shown')</script>"
_SIZE = """
[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
  .filter((one) => !new URL(one.name).pathname.startsWith('/v1/'))
  .map((one) => [new URL(one.name).pathname, one.encodedBodySize])
"""


def measure(scene: Scene, report: Report, rounds: int) -> None:
    _files(report)
    if CHROMIUM is None:
        report.not_measured("the page in a browser", "chromium is missing")
        return
    with open_browser() as browser:
        with open_boss(scene, sources=()) as boss:
            for number in range(_WAITING):
                _begin(boss, f"agent-{number}")
                _stop(boss, f"agent-{number}", "before")
            _opening(report, rounds, boss, browser)
            _following(report, rounds, boss, browser)
            _transferred(report, boss, browser)
        _at_rest(scene, report, browser)


def _begin(boss: PageBoss, session: str) -> None:
    payload = {"session_id": session, "hook_event_name": "UserPromptSubmit", "prompt": "go on"}
    boss.client.post("hooks", body={"payload": {**payload, "cwd": f"/srv/{session}"}})


def _stop(boss: PageBoss, session: str, text: str) -> None:
    payload = {"session_id": session, "hook_event_name": "Stop", "last_assistant_message": text}
    boss.client.post("hooks", body={"payload": {**payload, "cwd": f"/srv/{session}"}})


# ── how much of it there is ──


def _files(report: Report) -> None:
    report.title("Files of the page, compressed as they are sent", "a terminal, which loads nothing")
    assets, packs = Assets(), {"accept-encoding": "gzip"}
    names = [path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()]
    served = {name: found for name in names if (found := assets.find(f"/assets/{name}", packs)) is not None}
    total = sum(len(one.body) for one in served.values())
    report.add("all files", total / _KB, "kB", Target("<=", 300), f"{len(served)} files")


def _transferred(report: Report, boss: PageBoss, browser: Browser) -> None:
    context = boss.context(browser)
    page = context.new_page()
    for view, shown in _VIEWS.items():
        boss.show(page, view)
        page.wait_for_selector(shown)
    sizes = dict(page.evaluate(_SIZE))
    context.close()
    if any("xterm" in name for name in sizes) or not any(name.endswith("details.js") for name in sizes):
        raise RuntimeError(f"wanted all views without a terminal, loaded were: {sorted(sizes)}")
    total, note = sum(sizes.values()), f"{len(sizes)} files, all views"
    report.add("without a terminal, as Chromium loads it", total / _KB, "kB", Target("<=", 60), note)


# ── how soon it opens and follows ──


def _opening(report: Report, rounds: int, boss: PageBoss, browser: Browser) -> None:
    title = f"Opening the queue with {_WAITING} waiting agents, until it is complete and live"
    report.title(title, "tmux attach in a terminal")
    visits = ("first visit", "second visit", f"first visit, {_AWAY} ms away")
    taken: dict[str, list[float]] = {name: [] for name in ("a bare page", *visits)}
    with _bare_page() as address:
        for _ in range(rounds * _OPENED):
            context = browser.new_context()
            page = context.new_page()
            page.goto(address)
            taken["a bare page"].append(page.evaluate("performance.getEntriesByName('shown')[0].startTime"))
            context.close()
            with contextlib.closing(boss.context(browser)) as context:
                for visit in visits[:2]:
                    taken[visit].append(_visit(boss, context, 0))
            with contextlib.closing(boss.context(browser)) as context:
                taken[visits[2]].append(_visit(boss, context, _AWAY))
    middle = {name: report.median(f"{name}, p50", some, "ms") for name, some in taken.items()}
    report.add("first visit beyond a bare page", middle["first visit"] - middle["a bare page"], "ms")


def _visit(boss: PageBoss, context: BrowserContext, latency: int) -> float:
    page = context.new_page()
    page.add_init_script(_OBSERVE % _WAITING)
    if latency:
        far = {"offline": False, "latency": latency, "downloadThroughput": -1, "uploadThroughput": -1}
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        session.send("Network.emulateNetworkConditions", far)
    page.goto(f"{boss.address}/")
    ready: float = page.wait_for_function("() => window.seen.ready").json_value()
    page.close()
    return ready


@contextlib.contextmanager
def _bare_page() -> Iterator[str]:
    """The floor: one file and no list."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # its name there
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(_BARE)))
            self.end_headers()
            self.wfile.write(_BARE)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def _following(report: Report, rounds: int, boss: PageBoss, browser: Browser) -> None:
    report.title("From an event that is posted to its text in the queue", "a look at each pane")
    context = boss.context(browser)
    context.add_init_script(_OBSERVE % _WAITING)
    page = context.new_page()
    boss.show(page, "queue")
    page.wait_for_function("() => window.seen.ready")
    taken = []
    for number in range(rounds * _EVENTS):
        session, text = f"agent-{number % _WAITING}", f"event {number} of many"
        _begin(boss, session)
        page.evaluate("(text) => { window.wanted = text; }", text)
        page.wait_for_timeout(_EVENT_PAUSE + number % 16)  # not in step with the frames
        at = time.time() * 1000
        _stop(boss, session, text)
        taken.append(page.wait_for_function("(text) => window.seen[text]", arg=text).json_value() - at)
    context.close()
    report.measurements["event to document"] = [round(one, 2) for one in taken]
    report.add("event to document, p50", percentile(taken, 0.5), "ms", note=f"{len(taken)} events")
    report.add("event to document, p95", percentile(taken, 0.95), "ms", Target("<=", 100))


# ── what it costs ──


def _at_rest(scene: Scene, report: Report, browser: Browser) -> None:
    report.title(f"A boss with {SESSIONS} idle sessions, over {_INTERVAL:g} s", "a look at each pane")
    start_sessions(scene)
    with open_boss(scene) as boss:
        while len(boss.client.get("sessions")["sessions"]) < SESSIONS:
            time.sleep(0.1)
        time.sleep(_SETTLE)
        _rest(report, boss, "no page")
        with contextlib.closing(boss.context(browser)) as context:
            page = context.new_page()
            for view in ("queue", "agents"):
                boss.show(page, view)
                page.wait_for_timeout(_SETTLE * 1000)
                _rest(report, boss, f"page open at {view}")


def _rest(report: Report, boss: PageBoss, name: str) -> None:
    before, at = cpu_seconds(boss.pid), time.monotonic()
    time.sleep(_INTERVAL)
    share = (cpu_seconds(boss.pid) - before) / (time.monotonic() - at)
    rss, pss = memory_bytes(boss.pid)
    report.add(f"boss, {name}: of one core", 100 * share, "%")
    report.add(f"boss, {name}: RSS", rss / _MB, "MB", note=f"PSS {pss / _MB:.1f}")
