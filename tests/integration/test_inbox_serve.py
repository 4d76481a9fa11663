"""`remuda inbox serve` on real sockets: who may put what, and that an answer means the disk has it."""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remuda.inbox.journal import Inbox
from support.commands import Commands
from support.heimdall_client import PATIENCE
from support.keeper import until


class Answer(NamedTuple):
    status: int
    document: dict[str, Any]
    headers: Mapping[str, str]


class Serving:
    """One running server, and the ways to talk to it."""

    def __init__(self, commands: Commands, folder: Path, *words: str, session: str | None = None) -> None:
        self.folder = folder
        which = ["--inbox", str(folder)] if session is None else [session]
        self.process: subprocess.Popen[bytes] = commands.begin("inbox", "serve", *which, *words)
        assert self.process.stdout is not None
        first = self.process.stdout.readline().decode()
        found = re.fullmatch(r"serving (\S+) at http://(\S+):(\d+)/inject\n", first)
        assert found, (first, self.process.stderr and self.process.stderr.read())
        second = self.process.stdout.readline().decode()
        token = re.fullmatch(r"token: (\S+); stop with Ctrl-C\n", second)
        assert token, second
        self.host, self.port = found[2].strip("[]"), int(found[3])
        self.token_path = Path(token[1])
        self.token = self.token_path.read_text().strip()

    @property
    def right(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def ask(
        self,
        body: bytes | str | dict[str, Any] | None = None,
        *,
        method: str = "POST",
        path: str = "/inject",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, data, dict(self.right if headers is None else headers))
            response = connection.getresponse()
            return Answer(response.status, json.loads(response.read()), dict(response.headers))
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        """Everything that comes back for these bytes."""
        with socket.create_connection((self.host, self.port), PATIENCE) as sock:
            sock.sendall(data)
            return b"".join(iter(lambda: sock.recv(65536), b""))

    def head(self, *lines: str, host: str = "Host: localhost") -> bytes:
        fields = [*lines, f"Authorization: Bearer {self.token}", *([host] if host else [])]
        return "".join(f"{line}\r\n" for line in [*fields, ""]).encode()

    def prompts(self) -> list[str]:
        return [entry.text for entry in Inbox(self.folder).waiting()]

    def end(self, number: int = signal.SIGTERM) -> None:
        """It ends by itself, in peace."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        assert (self.process.returncode, out, err) == (0, b"", b"")


@pytest.fixture
def server(remuda: Commands) -> Iterator[Serving]:
    serving = Serving(remuda, remuda.home / "inbox")
    yield serving
    serving.end()


# ── what is taken ──


def test_prompt_is_in_the_inbox_when_it_is_answered(server: Serving) -> None:
    answer = server.ask({"prompt": "look\nat it \U0001f600", "from": "me", "max_attempts": 3})
    assert (answer.status, answer.document["ok"], answer.document["duplicate"]) == (200, True, False)
    (entry,) = Inbox(server.folder).waiting()
    assert (entry.id, entry.text) == (answer.document["id"], "look\nat it \U0001f600")
    assert (entry.fields["from"], entry.max_attempts()) == ("me", 3)


def test_prompt_of_a_dedup_key_that_was_there_has_the_id_of_the_first(server: Serving) -> None:
    first, second = (server.ask({"prompt": "x", "dedup": "k"}) for _ in range(2))
    assert second.document == {"ok": True, "id": first.document["id"], "duplicate": True}
    assert server.prompts() == ["x"]


def test_text_is_taken_as_it_is(server: Serving) -> None:
    headers = {**server.right, "Content-Type": "text/plain"}
    assert server.ask('{"not": "read"}\n', headers=headers).status == 200
    assert server.prompts() == ['{"not": "read"}']


def test_line_of_a_chat_is_taken_as_heartbeat_does(server: Serving) -> None:
    document = {"channel": "general", "author": "ann", "content": "deploy it"}
    assert server.ask(document).document["ok"] is True
    (prompt,) = server.prompts()
    assert re.fullmatch(r"\[1?\d:\d\d [AP]M\] #general ann: deploy it", prompt)


def test_prompts_of_many_at_once_are_all_there_once(server: Serving) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: server.ask({"prompt": f"p{number}"}), range(40)))
    assert {answer.status for answer in answers} == {200}
    found = Inbox(server.folder).waiting()
    assert sorted(entry.text for entry in found) == sorted(f"p{number}" for number in range(40))
    assert {entry.id for entry in found} == {answer.document["id"] for answer in answers}


def test_client_that_waits_for_100_continue_gets_it(server: Serving) -> None:
    with socket.create_connection((server.host, server.port), PATIENCE) as sock:
        head = server.head("POST /inject HTTP/1.1", "Content-Length: 15", "Expect: 100-continue")
        sock.sendall(head)
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b'{"prompt": "x"}')
        assert sock.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")


def test_request_in_single_bytes_is_taken(server: Serving) -> None:
    request = server.head("POST /inject HTTP/1.0", "Content-Length: 15") + b'{"prompt": "x"}'
    with socket.create_connection((server.host, server.port), PATIENCE) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request:
            sock.sendall(bytes([byte]))
        assert sock.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
    assert server.prompts() == ["x"]


def test_status_reports_what_waits(server: Serving) -> None:
    server.ask({"prompt": "now"})
    server.ask({"prompt": "later", "delay": "1h"})
    answer = server.ask(method="GET", path="/status")
    assert answer.status == 200
    assert {"ok": True, "waiting": 2, "delayed": 1, "dead": 0}.items() <= answer.document.items()


# ── what is refused ──


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ({}, "either 'prompt' or 'content'"),
        ({"prompt": " \n"}, "empty"),
        ({"prompt": "a\0b"}, "NUL"),
        ('{"prompt": "x", "delay": 1e999}', "too large"),
        ('{"prompt": "x", "delay": NaN}', "not JSON"),
        ({"prompt": "x", "delay": 1e300}, "'delay' is too long"),
        ({"prompt": "x", "dely": 1}, "unknown field 'dely'"),
        (b'{"prompt": "\xff"}', "UTF-8"),
    ],
)
def test_bad_body_is_a_bad_request(server: Serving, body: bytes | str | dict[str, Any], error: str) -> None:
    answer = server.ask(body)
    assert (answer.status, answer.document["ok"]) == (400, False)
    assert error in answer.document["error"]
    assert server.prompts() == []


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer nope", "Basic {}", "{}", "Bearer {}x"]
)
def test_request_without_the_token_is_unauthorized(server: Serving, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header.format(server.token)}
    for method, path in (("POST", "/inject"), ("GET", "/status")):
        answer = server.ask({"prompt": "x"}, headers=headers, method=method, path=path)
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert server.prompts() == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "192.0.2.1"},
        {"Host": ""},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "null"},
    ],
)
def test_request_that_a_web_page_could_make_is_forbidden(server: Serving, headers: dict[str, str]) -> None:
    for more in (server.right, {}):
        assert server.ask({"prompt": "x"}, headers={**more, **headers}).status == 403
    assert server.prompts() == []


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:80", "127.1.2.3", "[::1]:80", "[::1]"]
)
def test_request_for_any_name_of_this_machine_is_taken(server: Serving, host: str) -> None:
    assert server.ask({"prompt": "x"}, headers={**server.right, "Host": host}).status == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/", 404),
        ("POST", "/inject/", 404),
        ("POST", "/inject?token=x", 404),
        ("GET", "/../inject", 404),
        ("GET", "/inject", 405),
        ("PUT", "/inject", 405),
        ("OPTIONS", "/inject", 405),
        ("POST", "/status", 405),
    ],
)
def test_request_for_something_else_is_refused(server: Serving, method: str, path: str, status: int) -> None:
    answer = server.ask({"prompt": "x"}, method=method, path=path)
    assert answer.status == status
    if status == 405:
        assert answer.headers["Allow"] == ("POST" if path == "/inject" else "GET")


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["nonsense"], 400),
        (["POST /inject HTTP/2.0"], 400),
        (["POST /inject HTTP/1.1", "no colon"], 400),
        (["POST /inject HTTP/1.1", " folded: x"], 400),
        (["POST /inject HTTP/1.1", "Host: localhost"], 400),
        (["POST /inject HTTP/1.1", "Content-Length: 1", "Content-Length: 2"], 400),
        (["POST /inject HTTP/1.1", "Content-Length: -1"], 400),
        (["POST /inject HTTP/1.1", "Content-Length: ٣"], 400),
        (["POST /inject HTTP/1.1"], 411),
        (["POST /inject HTTP/1.1", "Transfer-Encoding: chunked", "Content-Length: 3"], 411),
        (["POST /inject HTTP/1.1", "Content-Length: 999999999999999999"], 413),
        (["POST /inject HTTP/1.1", "X: " + "x" * 20000], 413),
    ],
)
def test_request_that_is_invalid_http_is_refused(server: Serving, lines: list[str], status: int) -> None:
    assert server.raw(server.head(*lines)).startswith(f"HTTP/1.1 {status} ".encode())


def test_request_that_names_no_host_is_refused(server: Serving) -> None:
    answer = server.raw(server.head("POST /inject HTTP/1.1", "Content-Length: 0", host=""))
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_prompt_too_large_is_refused_with_the_reason_to_a_client_that_sends_first(remuda: Commands) -> None:
    serving = Serving(remuda, remuda.home / "inbox", "--max-bytes", "1000")
    headers = {**serving.right, "Content-Type": "text/plain"}
    assert serving.ask("x" * 1000, headers=headers).status == 200
    for size in (1001, 8_000_000):
        answer = serving.ask("x" * size, headers=headers)
        assert (answer.status, answer.document["error"]) == (413, "a prompt can have at most 1000 bytes")
    assert serving.prompts() == ["x" * 1000]
    serving.end()


def test_client_that_goes_away_in_the_middle_harms_no_one(server: Serving) -> None:
    request = server.head("POST /inject HTTP/1.1", "Content-Length: 15") + b'{"prompt": "x"}'
    for size in (0, 10, len(request) - 1):
        with socket.create_connection((server.host, server.port), PATIENCE) as sock:
            sock.sendall(request[:size])
    assert server.ask({"prompt": "y"}).status == 200
    assert server.prompts() == ["y"]


def test_disk_that_refuses_is_reported_and_what_comes_later_is_taken(server: Serving) -> None:
    assert server.ask({"prompt": "before"}).status == 200
    unlimited = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, unlimited[1]))
    answer = server.ask({"prompt": "lost"})
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)
    assert answer.status == 503
    assert "cannot write to the inbox" in answer.document["error"]
    assert server.ask({"prompt": "after"}).status == 200
    assert server.prompts() == ["before", "after"]


# ── the token ──


def test_token_is_made_once_for_its_owner_alone(remuda: Commands) -> None:
    folder = remuda.home / "inbox"
    before = os.umask(0)
    try:
        first = Serving(remuda, folder)
    finally:
        os.umask(before)
    assert first.token_path == folder / ".inject-token"
    assert first.token_path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(first.token) >= 32
    second = Serving(remuda, folder)
    assert second.token == first.token
    for serving in (first, second):
        arguments = Path(f"/proc/{serving.process.pid}/cmdline").read_bytes()
        assert serving.token.encode() not in arguments
        serving.end()


def test_token_file_of_the_user_is_used(remuda: Commands) -> None:
    path = remuda.home / "token"
    path.write_text("a-token-of-my-own\n")
    path.chmod(0o600)
    serving = Serving(remuda, remuda.home / "inbox", "--token-file", str(path))
    assert serving.token_path == path
    assert serving.ask({"prompt": "x"}, headers={"Authorization": "bearer a-token-of-my-own"}).status == 200
    serving.end()


@pytest.mark.parametrize(
    ("content", "mode", "code", "said"),
    [
        ("a-token-of-my-own\n", 0o644, 2, "other users can read the token file"),
        ("short\n", 0o600, 2, "has no valid token"),
        ("two words of a token\n", 0o600, 2, "has no valid token"),
        ("", 0o600, 2, "has no valid token"),
        (None, 0, 4, "cannot use the token file"),
    ],
)
def test_token_file_that_is_invalid_is_refused(
    remuda: Commands, content: str | None, mode: int, code: int, said: str
) -> None:
    path = remuda.home / "nowhere" / "token"
    if content is not None:
        path.parent.mkdir()
        path.write_text(content)
        path.chmod(mode)
    words = ("inbox", "serve", "--inbox", str(remuda.home / "inbox"), "--token-file", str(path))
    assert said in remuda.refused(*words, code=code)


# ── its life ──


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", "", "127.0.0.1.example.org"])
def test_host_that_others_can_reach_is_refused(remuda: Commands, host: str) -> None:
    folder = remuda.home / "inbox"
    said = remuda.refused("inbox", "serve", "--inbox", str(folder), "--host", host, code=2)
    assert said.startswith(f"'{host}' is not a loopback address; use 127.0.0.1")
    assert not folder.exists()


def test_port_that_is_taken_is_refused(remuda: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ("inbox", "serve", "--inbox", str(remuda.home / "inbox"), "--port", str(port))
        said = remuda.refused(*words, code=2)
    assert (
        said
        == f"cannot listen on port {port} of 127.0.0.1: Address already in use; choose another with --port"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_though_a_client_is_silent(remuda: Commands, number: int) -> None:
    serving = Serving(remuda, remuda.home / "inbox")
    assert serving.ask({"prompt": "x"}).status == 200
    with socket.create_connection((serving.host, serving.port), PATIENCE) as silent:
        silent.sendall(b"POST /inject HTTP/1.1\r\n")
        serving.end(number)
        try:
            assert silent.recv(100) == b""
        except ConnectionResetError:  # it had not been heard yet
            pass
    with pytest.raises(ConnectionRefusedError):
        serving.raw(b"")


def test_serve_of_a_session_feeds_its_inbox(remuda: Commands) -> None:
    remuda.start("work", "--agent", "demo")
    remuda("kill", "work")
    process = remuda.begin("inbox", "serve", "work")
    assert process.stdout is not None
    first = process.stdout.readline().decode()
    assert first.startswith(f"serving {remuda.sessions / 'work.inbox'} at http://127.0.0.1:")
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_serve_of_a_session_refuses_what_its_agent_would_run_as_a_command(remuda: Commands) -> None:
    remuda.start("work", "--agent", "demo")
    remuda("kill", "work")  # so that nothing is handed out
    serving = Serving(remuda, remuda.sessions / "work.inbox", session="work")
    try:
        for body in ({"prompt": "/clear"}, {"prompt": " \n/compact now"}):
            answer = serving.ask(body)
            assert (answer.status, answer.document["ok"]) == (400, False)
            assert "would run the agent's own command" in answer.document["error"]
        answer = serving.ask({"prompt": "see @notes.md", "literal": True})
        assert (answer.status, "@" in answer.document["error"]) == (400, True)
        text = serving.ask("/clear", headers={**serving.right, "Content-Type": "text/plain"})
        assert text.status == 400
        assert serving.prompts() == []
        for body in ({"prompt": "a /clear of the desk"}, {"content": "/clear", "author": "me"}):
            assert serving.ask(body).status == 200
        assert len(serving.prompts()) == 2
    finally:
        serving.end()


def test_serve_of_a_folder_of_no_session_takes_any_prompt(server: Serving) -> None:
    assert server.ask({"prompt": "/clear"}).status == 200


def test_serve_json_reports_where_it_is(remuda: Commands) -> None:
    folder = remuda.home / "inbox"
    process = remuda.begin("inbox", "serve", "--inbox", str(folder), "--json", "--host", "localhost")
    assert process.stdout is not None
    lines = [process.stdout.readline().decode() for _ in range(5)]
    found = json.loads("".join(lines))
    assert (found["inbox"], found["token_file"]) == (str(folder), str(folder / ".inject-token"))
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", found["url"])
    process.terminate()
    assert process.wait(PATIENCE) == 0


# ── taking back ──


def test_cancel_takes_back_a_message_of_that_id_and_no_other(server: Serving) -> None:
    first, second = (server.ask({"prompt": text}).document["id"] for text in ("one", "two"))
    answer = server.ask({"id": second}, path="/cancel")
    assert (answer.status, answer.document) == (
        200,
        {"ok": True, "id": second, "outcome": "taken_back", "reason": "taken back"},
    )
    assert server.ask({"id": second}, path="/cancel").document["outcome"] == "ended"
    assert server.ask({"id": first[:-1]}, path="/cancel").status == 404
    for body in ({}, {"id": 3}, {"id": first, "more": 1}, {"id": "x" * 129}, b"nonsense", b"[]"):
        assert server.ask(body, path="/cancel").status == 400
    assert server.ask({"id": first}, path="/cancel", headers={}).status == 401
    assert server.ask(path="/cancel", method="GET").status == 405
    assert server.prompts() == ["one"]


def test_cancel_interrupts_the_turn_of_a_kept_session(remuda: Commands) -> None:
    remuda.start("work", "--agent", "demo")
    serving = Serving(remuda, remuda.sessions / "work.inbox", session="work")
    message = serving.ask({"prompt": "SLOW 60"}).document["id"]
    until(lambda: remuda.json("status", "work")["state"] == "streaming", "the turn")
    assert serving.ask({"id": message}, path="/cancel").document["outcome"] == "interrupted"
    serving.end()
