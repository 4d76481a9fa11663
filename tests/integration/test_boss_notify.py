"""Notices to a receiver on loopback, as the guide writes them, and the links that they carry."""

from __future__ import annotations

import json
import os
import queue
import re
import select
import signal
import socket
import sqlite3
import time
import tomllib
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import pytest

from bossing import RunningBoss, event
from commands import Commands
from heimdall_client import PATIENCE
from keeping import until
from remuda.boss.notices.notify import read_settings

GUIDE = Path(__file__).parents[2] / "docs" / "notify.md"


class Got(NamedTuple):
    path: str
    headers: dict[str, str]
    body: str


class Receiver:
    def __init__(self) -> None:
        self.got: queue.Queue[Got] = queue.Queue()
        self.failures = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the name is the library's
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                failing = receiver.failures > 0
                receiver.failures -= failing
                self.send_response(503 if failing else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                if not failing:
                    receiver.got.put(Got(self.path, dict(self.headers), body))

            def log_message(self, *_args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def next(self) -> Got:
        return self.got.get(timeout=PATIENCE)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


class Drip:
    """Answers each who comes with a drop now and then, without end: no timeout of his helps him."""

    def __init__(self) -> None:
        self.came = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ended = Event()
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        held: list[socket.socket] = []
        while not self._ended.wait(0.05):
            while select.select([self._listener], [], [], 0)[0]:
                held.append(self._listener.accept()[0])
                held[-1].sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n")
                self.came += 1
            held = [one for one in held if dripped(one)]
        for one in held:
            one.close()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._listener.close()


def dripped(one: socket.socket) -> bool:
    try:
        one.sendall(b".")
    except OSError:
        one.close()
        return False
    return True


@pytest.fixture
def drip() -> Iterator[Drip]:
    made = Drip()
    yield made
    made.close()


def examples() -> list[str]:
    """The receivers in the guide."""
    blocks = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return [block for block in blocks if "url =" in block]


def write_settings(boss: RunningBoss, text: str) -> None:
    (boss.folder.path / "notify.toml").write_text(text)


def told() -> dict[str, Any]:
    payload = {
        "session_id": "s",
        "hook_event_name": "PermissionRequest",
        "tool_name": "Bash",
        "tool_input": {"command": "echo '<b>'"},
        "cwd": "/srv",
    }
    return {"payload": payload, "id": "ask"}


def test_notices_are_posted_as_the_guide_writes_them(boss: RunningBoss, receiver: Receiver) -> None:
    blocks = examples()
    assert len(blocks) == 3
    here = [re.sub(r'url = "https://[^/"]+', f'url = "{receiver.url}', block) for block in blocks]
    write_settings(boss, "threshold = 0\n" + "\n".join(here))
    with boss.holding(told()) as hook:
        got = {one.path.split("/")[1]: one for one in (receiver.next(), receiver.next(), receiver.next())}
        ntfy = got["my-secret-topic"]
        link = ntfy.headers["Click"]
        assert ntfy.headers["Title"] == "srv: permission"
        assert ntfy.body == "Bash: echo '<b>'"
        assert json.loads(got["services"].body)["text"] == f"*srv: permission*\nBash: echo '<b>'\n{link}"
        assert json.loads(got["bot123456:TOKEN"].body)["chat_id"] == 42
        secret = link.rpartition("/")[2]
        page = boss.ask("GET", f"/v1/answer/{secret}", token=None)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert b"<h1>srv asks leave: Bash</h1>" in page.body
        assert b"&lt;b&gt;" in page.body
        assert b"<b>'" not in page.body
        # Whoever previews links looks at them, in all sorts of ways: that is no answer.
        for method, path in [("GET", f"{secret}?utm_source=chat&behavior=allow"), ("HEAD", secret)]:
            assert boss.ask(method, f"/v1/answer/{path}", token=None).status in (200, 405)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        refused = boss.ask("POST", f"/v1/answer/{secret}", b"behavior=allow", form, token=None)
        assert refused.status == 415
        assert boss.ask("POST", f"/v1/answer/{secret}", {"behavior": "maybe"}, token=None).status == 400
        assert not hook.done()
        answered = boss.ask("POST", f"/v1/answer/{secret}", {"behavior": "deny", "message": "no"}, token=None)
        assert (answered.status, answered.json["by"]) == (200, "link")
        said = hook.result(PATIENCE)["output"]["hookSpecificOutput"]["decision"]
        assert said == {"behavior": "deny", "message": "no"}
    again = boss.ask("POST", f"/v1/answer/{secret}", {"behavior": "allow"}, token=None)
    assert (again.status, again.json["error"]["code"]) == (409, "ALREADY_ANSWERED")
    assert again.json["error"]["message"] == "this link was used, and is good for one answer: it was denied"
    page = boss.ask("GET", f"/v1/answer/{secret}", token=None)
    assert (page.status, page.headers["content-type"]) == (409, "text/html; charset=utf-8")
    assert b"this link was used, and is good for one answer: it was denied" in page.body
    assert b"<button" not in page.body


def test_receiver_that_fails_is_tried_again_and_one_that_is_wrong_stops_nothing(
    boss: RunningBoss, receiver: Receiver
) -> None:
    receiver.failures = 1
    write_settings(boss, f'threshold = 0\n[[to]]\nurl = "{receiver.url}/a"\nreasons = ["stopped"]\n')
    boss.tell(event("stopped", 1000.0, session="one", message="done"))
    got = receiver.next()
    assert (got.path, got.body) == ("/a", "done\n")
    write_settings(boss, "threshold = 'x'")
    boss.tell(event("stopped", 1000.0, session="two", message="done"))
    write_settings(boss, f'threshold = 0\n[[to]]\nurl = "{receiver.url}/b"\n')
    assert receiver.next().path == "/b"


def test_what_was_told_is_not_told_again_by_the_next_boss(boss: RunningBoss, receiver: Receiver) -> None:
    write_settings(
        boss, f'threshold = 0\ncooldown = 0\n[[to]]\nurl = "{receiver.url}"\nbody = "{{session}}"\n'
    )
    boss.tell(event("stopped", 1000.0, session="one"))
    assert receiver.next().body == "one"
    until(lambda: written_down(boss), "that it was told, written down")
    boss.end(signal.SIGKILL)
    boss.start()
    boss.tell(event("stopped", 1001.0, session="two"))
    assert receiver.next().body == "two"
    assert receiver.got.empty()


def test_notice_whose_link_cannot_be_written_is_told_later_and_the_others_at_once(
    boss: RunningBoss, receiver: Receiver
) -> None:
    full = "BEFORE INSERT ON note WHEN NEW.name = 'answer_links' BEGIN SELECT RAISE(ABORT, 'no room'); END"
    alter(boss, f"CREATE TRIGGER full {full}")
    boss.tell(
        event("asked", 1000.0, session="asks", tool="Bash", input={"command": "x"}, reason="permission"),
        event("stopped", 1001.0, session="stops"),
    )
    text = 'threshold = 0\n[[to]]\nurl = "{}"\nbody = "{{session}} {{link}}"\n'
    write_settings(boss, text.format(receiver.url))
    assert receiver.next().body == "stops "
    assert "nobody is told: cannot write to" in boss.folder.log.read_text()
    alter(boss, "DROP TRIGGER full")
    assert receiver.next().body.startswith("asks http://")
    # Nothing else has suffered by it.
    boss.tell(event("stopped", 1002.0, session="later"))
    assert receiver.next().body == "later "


def alter(boss: RunningBoss, statement: str) -> None:
    with closing(sqlite3.connect(boss.folder.path / "boss.db", timeout=PATIENCE)) as database:
        database.execute(statement)


def written_down(boss: RunningBoss) -> bool:
    with closing(sqlite3.connect(boss.folder.path / "boss.db")) as database:
        return bool(database.execute("SELECT value FROM note WHERE name = 'notices'").fetchall())


@pytest.mark.parametrize("secret", ["x" * 32, "x", "x" * 31, "../queue"])
def test_link_that_nobody_made_opens_nothing(served: RunningBoss, secret: str) -> None:
    for method, body in (("GET", None), ("POST", {"behavior": "allow"})):
        answer = served.ask(method, f"/v1/answer/{secret}", body, token=None)
        assert answer.status == (404 if len(secret) == 32 else 401)


def test_settings_of_the_guide_are_right() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert all(read_settings(tomllib.loads(block)) for block in blocks)


# ── receivers that never answer ──


def write_settings_for(boss: RunningBoss, *receivers: str) -> None:
    addresses = [f'[[to]]\nurl = "{url}"\nbody = "{{session}}"\n' for url in receivers]
    write_settings(boss, "threshold = 0\ncooldown = 0\n" + "".join(addresses))


def test_receiver_that_never_answers_keeps_nothing_else_waiting(
    boss: RunningBoss, receiver: Receiver, drip: Drip
) -> None:
    # More than there are threads, on any machine; all of them are due in the same round.
    many = [f"s{number}" for number in range(40)]
    boss.tell(*(event("stopped", 1000.0, session=one) for one in many))
    write_settings_for(boss, drip.url, receiver.url)
    until(lambda: drip.came, "somebody who waits for the drip")
    for number in range(5):
        payload = {"session_id": f"new{number}", "hook_event_name": "Stop", "last_assistant_message": "x"}
        boss.client.post("hooks", body={"payload": payload})
    assert {receiver.next().body for _ in range(45)} == {*many, *(f"new{number}" for number in range(5))}
    with boss.holding(told()) as hook:
        approval = boss.client.get("approvals", state="open")["approvals"][0]["id"]
        boss.client.post("approvals", approval, "answer", body={"behavior": "deny"})
        assert hook.result(PATIENCE)["output"]["hookSpecificOutput"]["decision"]["behavior"] == "deny"


def test_boss_ends_though_a_receiver_never_answers(remuda: Commands, boss: RunningBoss, drip: Drip) -> None:
    boss.tell(event("stopped", time.time() - 60, session="one"))
    write_settings_for(boss, drip.url)
    until(lambda: drip.came, "somebody who waits for the drip")
    goes_down(remuda, boss, "notice_0")
    boss.start()
    assert [item["session_id"] for item in boss.waiting()] == ["one"]


def test_boss_ends_though_a_file_that_it_reads_never_does(remuda: Commands, boss: RunningBoss) -> None:
    pipe = boss.folder.path / "notify.toml"
    os.mkfifo(pipe)
    boss.tell(event("stopped", 1000.0, session="one"))
    writing = until(lambda: reader_of(pipe), "the boss, that waits for what is written")
    assert writing is not None
    try:
        goes_down(remuda, boss, "boss_")
    finally:
        os.close(writing)


def reader_of(pipe: Path) -> int | None:
    """A descriptor to write to it, as soon as somebody reads it."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def goes_down(remuda: Commands, boss: RunningBoss, left: str) -> None:
    process = boss.process
    assert process is not None
    assert f"the boss (pid {process.pid}) has ended" in remuda("down").out
    assert process.ended()
    assert f"threads that hang are left behind: {left}" in boss.folder.log.read_text()
    assert not boss.folder.lock.exists()
    boss.end()


def test_boss_that_ends_in_peace_leaves_no_thread_behind(boss: RunningBoss, receiver: Receiver) -> None:
    write_settings_for(boss, receiver.url)
    boss.tell(event("stopped", 1000.0, session="one", cwd="/"))
    receiver.next()
    until(lambda: written_down(boss), "that it was told, written down")
    boss.end()
    assert "left behind" not in boss.folder.log.read_text()
