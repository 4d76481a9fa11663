"""Terminals over a WebSocket: who may open one, what it shows, who types, and who waits for whom."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from remuda.boss.http.server import TCP_LIMITS
from remuda.boss.http.terminal import GONE, LOGGED_OUT, NOT_FOUND, WINDOW_BYTES
from remuda.errors import NotSafe
from support.boss import RunningBoss
from support.commands import SIZER
from support.delivery import Bench, idle
from support.keeper import Kept, Start, until, until_equal
from support.messages import phase, put_to_sleep
from support.page import Browser, PageTerminal, open_socket

FLOOD_MB = 50
# Echoes lines, after a first one: `stty` is done when it is printed.
ECHO = ["sh", "-c", 'stty -echo; echo ready; while read -r line; do echo "got $line"; done']
# Reports its progress in a file, so that nobody needs to read the terminal for it.
FLOOD = """
import sys, os
sys.stdin.readline()
for number in range(int(sys.argv[1])):
    os.write(1, b"%d " % number * 2 + b"x" * 1_000_000 + b"\\r\\n")
os.write(1, b"the end of it\\r\\n")
open(sys.argv[2], "w").write("done")
sys.stdin.readline()
"""


@pytest.fixture
def browser(boss: RunningBoss) -> Browser:
    return Browser(boss)


# ── who may open one ──


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Cookie": ""}, 401),
        ({"Cookie": "remuda-{port}=wrong"}, 401),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://localhost:{port}"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Authorization": "Bearer wrong"}, 401),
    ],
)
def test_socket_without_a_login_or_from_elsewhere_is_refused(
    boss: RunningBoss, browser: Browser, start: Start, headers: dict[str, str], status: int
) -> None:
    start("a", ECHO)
    given = {name: value.format(port=boss.port) for name, value in headers.items()}
    with pytest.raises(InvalidStatus) as refused:
        browser.terminal("a", **given)
    assert refused.value.response.status_code == status
    with pytest.raises(InvalidStatus):
        open_socket(boss, "/v1/sessions/a/terminal", {"Cookie": browser.cookie})  # no Origin at all
    with pytest.raises(InvalidStatus):
        open_socket(boss, "/v1/queue", {"Cookie": browser.cookie, "Origin": browser.origin})


def test_program_with_the_token_opens_one(boss: RunningBoss, start: Start) -> None:
    start("a", ECHO)
    headers = {"Authorization": f"Bearer {boss.token}"}
    with PageTerminal(open_socket(boss, "/v1/sessions/a/terminal", headers)) as terminal:
        terminal.until_output(b"ready")


def test_terminal_of_a_login_that_was_revoked_is_closed(
    boss: RunningBoss, browser: Browser, start: Start
) -> None:
    start("a", ECHO)
    with browser.terminal("a") as terminal, Browser(boss).terminal("a") as other:
        terminal.until_output(b"ready")
        assert browser.post("/v1/logout").status == 200
        with pytest.raises(ConnectionClosed) as closed:
            terminal.until_said("nothing")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == LOGGED_OUT
        other.until_output(b"ready")


def test_terminal_is_not_that_of_a_conversation_that_another_has_replaced(
    boss: RunningBoss, browser: Browser, start: Start
) -> None:
    start("a", ECHO)
    for at, number in ((10.0, "before"), (20.0, "after")):
        facts = {"name": "a", "origin": "kept", "how": "clear"}
        told = {"kind": "registered", "session_id": number, "at": at, "facts": facts}
        boss.client.post("events", body={"events": [told]})
    with browser.terminal("before") as terminal:
        assert "now in another conversation" in terminal.until_said("error")["message"]
    with pytest.raises(NotSafe, match="now in another conversation"):
        boss.client.get("sessions", "before", "screen")
    with browser.terminal("after") as terminal:
        terminal.until_output(b"ready")


def test_session_that_is_unknown_is_named_in_the_error(boss: RunningBoss, browser: Browser) -> None:
    with browser.terminal("nobody") as terminal:
        error = terminal.until_said("error")
        assert (error["code"], "nobody" in error["message"]) == ("NOT_IN_QUEUE", True)
        with pytest.raises(ConnectionClosed) as closed:
            terminal.read()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == NOT_FOUND
    assert browser.get("/v1/sessions/nobody/terminal").status == 404


def test_plain_request_says_that_a_socket_is_meant(browser: Browser, start: Start) -> None:
    start("a", ECHO)
    answer = browser.get("/v1/sessions/a/terminal")
    assert (answer.status, answer.json["error"]["message"]) == (400, "this is a WebSocket")


# ── what it shows, and who types ──


def test_key_in_the_page_wakes_a_session_that_is_asleep(
    browser: Browser, start: Start, tmp_path: Path
) -> None:
    post = idle(Bench(start, tmp_path).start(name="a"))
    post.send("hello")
    put_to_sleep(idle(post))
    with browser.terminal("a") as terminal:
        assert terminal.until_said("state")["state"] == "asleep"
        terminal.until_output(b"REPLY#1")  # its last screen
        terminal.say("take")
        terminal.until_said("control")
        assert phase(post) == "asleep"
        terminal.type(b"half a thought")
        until_equal(post.draft, "half a thought", "the draft")
        terminal.until_output(b"thought")


def test_screen_comes_first_then_what_is_printed(browser: Browser, start: Start) -> None:
    kept = start("a", ECHO, cols=91, rows=17)
    with browser.terminal("a") as first:
        hello = first.until_said("hello")
        assert (hello["session"], hello["alive"], hello["window"]) == ("a", True, WINDOW_BYTES)
        size = first.until_said("size")
        assert (size["cols"], size["rows"]) == (91, 17)
        assert "state" in first.until_said("state")
        first.until_said("repaint")
        first.until_output(b"ready")
        first.say("take")
        assert first.until_said("control") == {"type": "control", "held": True}
        first.type(b"one\n")
        first.until_output(b"got one")
        with browser.terminal("a") as second:
            second.until_said("repaint")
            second.until_output(b"got one")
            first.type(b"two\n")
            second.until_output(b"got two")
        first.say("paste", text="th\x1b[201~ree\r\n", bracketed=False)
        first.until_output(b"got th[201~ree")
    assert kept.keeper.alive


def test_client_that_has_not_taken_control_types_nothing_and_sets_no_size(
    browser: Browser, start: Start
) -> None:
    start("a", [sys.executable, "-c", SIZER], cols=80, rows=24)
    with browser.terminal("a") as terminal:
        terminal.until_output(b"24 80")
        terminal.type(b"x")
        terminal.type(b"y")
        terminal.say("paste", text="z")
        refused = terminal.until_said("refused")
        assert refused["why"] == "take control first"
        terminal.say("resize", cols=70, rows=20)
        terminal.say("take")
        terminal.until_said("control")
        assert not [one for one in terminal.said if one["type"] == "refused"]
        terminal.say("resize", cols=60, rows=15)
        terminal.until_output(b"15 60")
        assert b"20 70" not in terminal.output
        terminal.say("release")
        assert terminal.until_said("control")["held"] is False
        terminal.say("resize", cols=50, rows=10)
        terminal.type(b"x")
        assert terminal.until_said("refused")["what"] == "input"


def test_client_that_gives_up_control_has_no_say_in_the_size(browser: Browser, start: Start) -> None:
    kept = start("a", [sys.executable, "-c", SIZER], cols=80, rows=24)
    with browser.terminal("a") as first, browser.terminal("a") as second:
        for terminal, cols in ((first, 60), (second, 50)):
            terminal.say("take")
            terminal.say("resize", cols=cols, rows=20)
            terminal.until_output(b"20 %d" % cols)
        second.say("release")
        client = kept.hello()
        until(lambda: client.describe()["cols"] == 60, "the size of the one that is left")


@pytest.mark.parametrize(
    "message",
    [
        "",
        "[]",
        "{",
        '{"type": "no such"}',
        '{"type": "ack"}',
        '{"type": "ack", "bytes": -1}',
        "[" * 10_000,
        '{"type": "resize", "cols": 1e9, "rows": 1}',
        '{"type": "history", "lines": true}',
        '{"type": "paste"}',
    ],
)
def test_message_that_is_not_understood_is_answered_with_an_error(
    browser: Browser, start: Start, message: str
) -> None:
    start("a", ECHO)
    with browser.terminal("a") as terminal:
        terminal.say("take")
        terminal.socket.send(message)
        assert terminal.until_said("error")["code"] == "BAD_MESSAGE"
        terminal.type(b"still here\n")
        terminal.until_output(b"got still here")


def test_message_over_the_limit_closes_the_socket_and_nothing_else(
    boss: RunningBoss, browser: Browser, start: Start
) -> None:
    start("a", ECHO)
    with browser.terminal("a") as terminal:
        terminal.until_said("hello")
        try:
            terminal.type(bytes(2 << 20))
        except ConnectionClosed:  # before all of it was sent
            pass
        with pytest.raises(ConnectionClosed):
            terminal.until_said("nothing")
    assert boss.client.get("health")["status"] == "ok"


@pytest.mark.parametrize(
    "frame",
    [
        b"\x81\x83\0\0\0\0\xff\xfe\xfd",  # text that is not UTF-8
        b"\xc1\x85\0\0\0\0\x4a\x04\x04\0\0",  # compressed, which was not agreed on
        b"\x83\x80\0\0\0\0",  # an opcode that does not exist
        b"\x81\x01a",  # not masked
        b"\x89\xfe\x01\x00\0\0\0\0" + bytes(256),  # a ping that is too large
        b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0",  # 16 EiB follow
        b"\x80\x80\0\0\0\0",  # a continuation of nothing
    ],
    ids=["utf-8", "packed", "opcode", "unmasked", "ping", "giant", "continuation"],
)
def test_frame_that_breaks_the_protocol_closes_the_socket_and_nothing_else(
    boss: RunningBoss, browser: Browser, start: Start, frame: bytes
) -> None:
    start("a", ECHO)
    with browser.terminal("a") as terminal, browser.terminal("a") as other:
        terminal.until_said("hello")
        terminal.socket.socket.sendall(frame)
        with pytest.raises(ConnectionClosed):
            terminal.until_said("nothing")
        other.until_output(b"ready")
    assert boss.client.get("health")["status"] == "ok"


@pytest.mark.soak(only=True)  # 192 terminals, one after the other
def test_more_terminals_than_are_served_leave_room_for_commands(
    boss: RunningBoss, browser: Browser, start: Start
) -> None:
    start("a", ECHO)
    with ExitStack() as opened:
        for _ in range(TCP_LIMITS.trusted):
            opened.enter_context(browser.terminal("a"))
        with pytest.raises(InvalidStatus) as refused:
            browser.terminal("a")
        assert refused.value.response.status_code == 503
        assert boss.client.get("health")["status"] == "ok"
    until(lambda: browser.get("/v1/health").status == 200, "room for another")


def test_history_is_reported_by_request_and_after_the_end_too(browser: Browser, start: Start) -> None:
    lines = "; ".join(f"echo line {number}" for number in range(100))
    start("a", ["sh", "-c", f"{lines}; read -r line; exit 7"])
    with browser.terminal("a") as terminal:
        terminal.until_output(b"line 99")
        terminal.say("history", lines=50)
        told = terminal.until_said("history")["lines"]
        assert [line for line in told if line.startswith("line 6")] == [f"line {n}" for n in range(60, 70)]
        assert len(told) == 50
        terminal.say("take")
        terminal.type(b"\n")
        assert terminal.until_said("exit")["code"] == 7
        assert terminal.until_said("control")["held"] is False
        terminal.say("history", lines=1000)
        assert "line 0" in terminal.until_said("history")["lines"]
        terminal.say("take")
        assert terminal.until_said("error")["code"] == "SESSION_DEAD"


def test_session_that_has_ended_shows_its_last_screen(browser: Browser, start: Start) -> None:
    kept = start("a", ["sh", "-c", "echo last words"], cols=77)
    assert kept.keeper.ended()
    with browser.terminal("a") as terminal:
        assert terminal.until_said("hello")["alive"] is False
        assert terminal.until_said("size")["cols"] == 77
        terminal.until_output(b"last words")
        assert terminal.until_said("exit")["code"] is None


def test_terminal_of_a_keeper_that_was_killed_is_closed(browser: Browser, start: Start) -> None:
    kept = start("a", ECHO)
    with browser.terminal("a") as terminal:
        terminal.until_output(b"ready")
        kept.keeper.signal(signal.SIGKILL)
        with pytest.raises(ConnectionClosed) as closed:
            terminal.until_said("nothing")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == GONE


def test_boss_that_ends_closes_its_terminals_and_the_session_goes_on(
    boss: RunningBoss, browser: Browser, start: Start
) -> None:
    kept = start("a", ECHO)
    with browser.terminal("a") as terminal:
        terminal.until_output(b"ready")
        port = boss.port
        boss.end()
        with pytest.raises(ConnectionClosed):
            terminal.until_said("nothing")
    assert kept.keeper.alive
    boss.start(port)
    with browser.terminal("a") as terminal:
        terminal.until_output(b"ready")


# ── who waits for whom ──


def flooding(start: Start, done: Path) -> Kept:
    return start("a", [sys.executable, "-c", FLOOD, str(FLOOD_MB), str(done)], cols=120, rows=40)


def test_flood_with_a_reader_that_stopped_slows_no_one_and_takes_no_memory(
    boss: RunningBoss, browser: Browser, start: Start, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    kept = flooding(start, done)
    with browser.terminal("a") as stopped, browser.terminal("a") as acks_nothing:
        stopped.until_said("repaint")
        stopped.say("take")
        stopped.until_said("control")
        before = _peak_kb(boss)
        stopped.type(b"\n")
        # One does not read its socket. The other reads all, and draws none of it.
        unread = 0
        while not done.exists():
            try:
                message = acks_nothing.socket.recv(timeout=0.05)
            except TimeoutError:
                continue
            unread += len(message)
        assert unread < 2 * WINDOW_BYTES + (1 << 20)
        assert _peak_kb(boss) - before < 16_000
        # It gets the screen, once it reads again, and not what it missed.
        stopped.until_output(b"the end of it")
        assert any(one["type"] == "lagged" for one in stopped.said)
    assert kept.keeper.alive


def _peak_kb(boss: RunningBoss) -> int:
    assert boss.process is not None
    return int(Path(f"/proc/{boss.process.pid}/status").read_text().split("VmHWM:")[1].split()[0])


def test_flood_with_a_reader_that_draws_ends_with_the_last_screen(
    boss: RunningBoss, browser: Browser, start: Start, tmp_path: Path
) -> None:
    flooding(start, tmp_path / "done")
    with browser.terminal("a") as terminal:
        terminal.say("take")
        before = _peak_kb(boss)
        terminal.type(b"\n")
        terminal.until_output(b"the end of it")
        assert _peak_kb(boss) - before < 16_000


def test_program_that_reads_nothing_does_not_fill_the_boss(
    boss: RunningBoss, browser: Browser, start: Start
) -> None:
    start("a", ["sleep", "1000"])
    with browser.terminal("a") as terminal:
        terminal.say("take")
        terminal.until_said("control")
        before = _peak_kb(boss)
        for _ in range(64):
            terminal.type(b"x" * (1 << 19))
        assert terminal.until_said("refused")["why"] == "the program does not read its input"
        assert _peak_kb(boss) - before < 16_000


def test_terminals_leave_nothing_open_in_the_boss(boss: RunningBoss, browser: Browser, start: Start) -> None:
    start("a", ECHO)
    assert boss.process is not None
    folder = Path(f"/proc/{boss.process.pid}/fd")
    with browser.terminal("a") as terminal:
        terminal.until_output(b"ready")
    before = until(lambda: len(os.listdir(folder)), "descriptors")
    for _ in range(30):
        with browser.terminal("a") as terminal:
            terminal.until_output(b"ready")
    until(lambda: len(os.listdir(folder)) <= before + 2, "closed descriptors")
