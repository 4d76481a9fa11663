"""A program that prints more than a page can draw: the page shows its end, in bounded memory."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import CDPSession, Page, expect

from remuda.wire.connection import ClientConnection
from support.browser import PageBench, live, take_control
from support.keeper import Kept, Start, until

MEGABYTES = 20
# Reports its end in a file: it is not the page's to slow it down.
FLOOD = """
import os, sys
sys.stdin.readline()
line = b"\\x1b[32mline\\x1b[0m " + b"x" * 85 + b"\\r\\n"
for number in range(int(sys.argv[1])):
    os.write(1, line * (1_000_000 // len(line)))
os.write(1, b"the end of it\\r\\n")
open(sys.argv[2], "w").write("done")
sys.stdin.readline()
print("typed after it", flush=True)
sys.stdin.readline()
"""


def flooding(start: Start, done: Path) -> Kept:
    return start("flood", [sys.executable, "-c", FLOOD, str(MEGABYTES), str(done)], cols=100, rows=30)


def open_terminal(bench: PageBench) -> tuple[Page, CDPSession]:
    sessions = bench.boss.client
    found = until(
        lambda: [one["id"] for one in sessions.get("sessions")["sessions"] if one["name"] == "flood"], "it"
    )
    page = bench.open()
    page.goto(f"{bench.address}/#/session/{found[0]}")
    live(page)
    take_control(page)
    return page, page.context.new_cdp_session(page)


def heap_bytes(session: CDPSession) -> float:
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"])


def test_end_of_a_flood_is_drawn_and_memory_stays(bench: PageBench, start: Start, tmp_path: Path) -> None:
    flooding(start, tmp_path / "done")
    page, session = open_terminal(bench)
    before, boss_before = heap_bytes(session), bench.boss.peak_kb
    page.keyboard.press("Enter")
    expect(page.locator(".xterm-rows")).to_contain_text("the end of it")
    assert bench.boss.peak_kb - boss_before < 16_000
    # The lines that it can scroll back in are counted: 5,000 of them.
    assert heap_bytes(session) - before < 20_000_000
    page.keyboard.press("Enter")
    expect(page.locator(".xterm-rows")).to_contain_text("typed after it")


def test_page_that_stands_still_does_not_hold_the_program(
    bench: PageBench, start: Start, tmp_path: Path
) -> None:
    """As a laptop that was closed: its code does not run, and it acknowledges nothing."""
    done = tmp_path / "done"
    kept = flooding(start, done)
    page, session = open_terminal(bench)
    paused: list[object] = []
    session.on("Debugger.paused", lambda event: paused.append(event))
    session.send("Debugger.enable")
    session.send("Debugger.pause")
    until(lambda: session.send("Debugger.enable") and paused, "a page that stands still")
    before = bench.boss.peak_kb
    kept.hello().send(ClientConnection.input(b"\r"))
    until(done.exists, "the end of the program")
    assert bench.boss.peak_kb - before < 16_000
    session.send("Debugger.resume")
    session.send("Debugger.disable")
    expect(page.locator(".xterm-rows")).to_contain_text("the end of it")
    page.keyboard.press("Enter")
    expect(page.locator(".xterm-rows")).to_contain_text("typed after it")
