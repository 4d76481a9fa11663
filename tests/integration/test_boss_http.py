"""The boss over HTTP: who is let in, what can be asked, and what is refused."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remuda.errors import AlreadyAnswered, NotInQueue, NotSafe
from support.boss import Answer, RunningBoss, event
from support.boss_stream import Stream
from support.heimdall_client import PATIENCE

BASH: dict[str, Any] = {"tool": "Bash", "input": {"command": "touch a"}}


def stop(session: str, at: float, **facts: Any) -> Any:
    return event("stopped", at, session=session, message=f"{session} is done", **facts)


# ── who is let in ──


def refusal(answer: Answer) -> str:
    """Its code; where Trail Boss's clients are answered, which know texts alone, a word of it."""
    error = answer.json["error"]
    if isinstance(error, str):
        return next(word for word in ("token", "sites") if word in error)
    return str(error["code"])


@pytest.mark.parametrize("token", [None, "wrong", "", "ü" * 20])
def test_request_without_the_token_is_refused(served: RunningBoss, token: str | None) -> None:
    for method, path in (("GET", "/v1/queue"), ("POST", "/event"), ("GET", "/metrics"), ("GET", "/nothing")):
        headers = {} if token is None else {"Authorization": f"Bearer {token}".encode().decode("latin-1")}
        answer = served.ask(method, path, headers=headers, token=None)
        assert (answer.status, refusal(answer)) == (401, "UNAUTHORIZED" if path != "/event" else "token")
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", "", "0.0.0.0:{port}"],
)
def test_foreign_host_is_refused_even_with_the_token(served: RunningBoss, host: str) -> None:
    answer = served.ask("GET", "/v1/queue", headers={"Host": host.format(port=served.port)})
    assert (answer.status, answer.json["error"]["code"]) == (403, "FOREIGN_HOST")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_this_machine_with_our_port_is_let_in(served: RunningBoss, host: str) -> None:
    assert served.ask("GET", "/v1/queue", headers={"Host": f"{host}:{served.port}"}).status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1", "http://localhost:1"])
def test_foreign_origin_is_refused_even_with_the_token(served: RunningBoss, origin: str) -> None:
    for path in ("/v1/hooks", "/event"):
        answer = served.ask("POST", f"/t/{served.token}{path}", b"{}", headers={"Origin": origin})
        assert (answer.status, refusal(answer)) == (403, "FOREIGN_ORIGIN" if path != "/event" else "sites")


def test_cross_site_request_of_a_browser_is_refused_and_our_own_page_is_not(served: RunningBoss) -> None:
    ours = {"Origin": f"http://127.0.0.1:{served.port}", "Sec-Fetch-Site": "same-origin"}
    assert served.ask("GET", "/v1/queue", headers=ours).status == 200
    assert served.ask("GET", "/v1/queue", headers={"Sec-Fetch-Site": "cross-site"}).status == 403


def test_no_answer_lets_other_sites_read_it(served: RunningBoss) -> None:
    for method, path in (("OPTIONS", "/v1/queue"), ("OPTIONS", "/event"), ("GET", "/v1/queue")):
        answer = served.ask(method, path)
        assert answer.status == (200 if method == "GET" else 404)
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_token_in_the_path_is_for_posting_events_alone(served: RunningBoss) -> None:
    payload = {"session_id": "a", "hook_event_name": "Stop"}
    posted = served.ask("POST", f"/t/{served.token}/v1/hooks", {"payload": payload}, token=None)
    assert (posted.status, posted.json["taken"]) == (200, 1)
    for method, path in (("GET", "/v1/queue"), ("GET", "/next"), ("POST", "/skip"), ("GET", "/v1/events")):
        assert served.ask(method, f"/t/{served.token}{path}", token=None).status == 401
    wrong = "x" * len(served.token)
    assert served.ask("POST", f"/t/{wrong}/v1/hooks", {"payload": payload}, token=None).status == 401


def test_socket_and_token_are_for_this_user_alone(served: RunningBoss) -> None:
    for path in (served.folder.socket, served.folder.token, served.folder.database, served.folder.log):
        assert path.stat().st_mode & 0o077 == 0, path
    assert served.folder.path.stat().st_mode & 0o777 == 0o700


_AS_ANOTHER_USER = """
import os, socket, sys
sock = socket.socket(socket.AF_UNIX)
os.chdir(sys.argv[1])
os.setuid(65534)
sock.connect("boss.sock")
head = "GET /v1/health HTTP/1.1\\r\\nHost: localhost\\r\\nAuthorization: Bearer "
try:
    sock.sendall((head + sys.argv[2] + "\\r\\n\\r\\n").encode())
    print(len(sock.recv(100)))
except ConnectionError:
    print(0)
"""


def test_another_user_on_the_socket_is_refused_even_with_the_token(served: RunningBoss) -> None:
    if os.getuid() != 0:
        sys.__stderr__.write("\nNOT TESTED: only root can be another user\n")  # type: ignore[union-attr]
        return
    # The file system would keep him out already: its doors are opened for him.
    served.folder.path.chmod(0o711)
    served.folder.socket.chmod(0o666)
    command = [sys.executable, "-c", _AS_ANOTHER_USER, str(served.folder.path), served.token]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "0\n"
    assert served.client.get("health")["status"] == "ok"


# ── bad requests ──


def _raw(boss: RunningBoss, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", boss.port), timeout=30) as sock:
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: sock.recv(65536), b""))
        except OSError:  # cut off before all was said
            return b""


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\xff\x00\n\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /event HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ],
)
def test_what_is_no_request_is_answered_with_an_error_or_nothing(served: RunningBoss, data: bytes) -> None:
    answer = _raw(served, data)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 403"))
    assert served.client.get("health")["status"] == "ok"


def test_head_without_an_end_is_cut_off(served: RunningBoss) -> None:
    head = f"GET /v1/queue HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n".encode()
    assert _raw(served, head + b"X-A: " + b"a" * (1 << 20)) == b""
    assert served.client.get("health")["status"] == "ok"


def test_two_of_a_header_that_decides_are_refused(served: RunningBoss) -> None:
    head = f"GET /v1/queue HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nHost: evil\r\n"
    assert _raw(served, f"{head}Authorization: Bearer {served.token}\r\n\r\n".encode()).startswith(
        b"HTTP/1.1 400"
    )


def test_body_that_is_too_large_is_refused_whatever_its_head_says(served: RunningBoss) -> None:
    assert served.ask("POST", "/v1/queue/x/skip", b"x" * (2 << 20)).status == 413
    head = f"POST /v1/queue/x/skip HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n"
    head += f"Authorization: Bearer {served.token}\r\n"
    told = _raw(served, f"{head}Content-Length: 999999999999\r\n\r\n".encode())
    assert told.startswith(b"HTTP/1.1 413")
    chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    chunked = _raw(served, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk + chunk)
    assert chunked == b"" or chunked.startswith(b"HTTP/1.1 413")
    # What a hook carries may be larger.
    payload = {"session_id": "a", "hook_event_name": "Stop", "last_assistant_message": "x" * (2 << 20)}
    assert served.ask("POST", "/v1/hooks", {"payload": payload}).status == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_body_that_is_not_said_to_be_json_is_refused(served: RunningBoss, kind: str) -> None:
    answer = served.ask("POST", "/v1/events", b'{"events": []}', headers={"Content-Type": kind})
    assert (answer.status, answer.json["error"]["code"]) == (415, "NOT_JSON")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"events": []}',
        b'{"events": [{}]}',
        b'{"events": [{"kind": "blocked", "session_id": "a"}]}',
        b'{"events": [{"kind": "stopped", "session_id": ""}]}',
        b'{"events": [{"kind": "stopped", "session_id": "a\\n"}]}',
        b'{"events": [{"kind": "stopped", "session_id": "a", "at": -1}]}',
        b'{"events": [{"kind": "stopped", "session_id": "a", "at": NaN}]}',
        b'{"events": [{"kind": "stopped", "session_id": "a", "at": 1e300}]}',
        b'{"events": [{"kind": "stopped", "session_id": "a", "at": true}]}',
        b'{"events": [{"kind": "stopped", "session_id": "a", "facts": []}]}',
        b'{"events": [{"kind": "stopped", "session_id": "a", "more": 1}]}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_events_that_cannot_be_are_refused_with_a_reason(served: RunningBoss, body: bytes) -> None:
    before = served.waiting()
    answer = served.ask("POST", "/v1/events", body, headers={"Content-Type": "application/json"})
    assert answer.status == 400, answer
    assert answer.json["error"]["message"]
    assert served.waiting() == before


def test_what_there_is_not_is_not_found(served: RunningBoss) -> None:
    for path in ("/v1/queue/nothing", "/v1/sessions/nobody", "/v1/approvals/none"):
        answer = served.ask("GET", path)
        assert (answer.status, answer.json["error"]["code"]) == (404, "NOT_IN_QUEUE")
    assert served.ask("GET", "/v1/nothing").json["error"]["code"] == "NOT_FOUND"
    for method, path, allowed in (("DELETE", "/v1/queue", "GET"), ("PUT", "/v1/events", "GET, POST")):
        refused = served.ask(method, path)
        assert (refused.status, refused.headers["allow"]) == (405, allowed)
        assert refused.json["error"]["code"] == "BAD_METHOD"
    body = served.ask("POST", "/v1/queue/x/snooze", {"seconds": -4}).json
    assert body["error"]["message"] == "'seconds' must be 0 or more"
    assert served.ask("GET", "/v1/queue?limit=5").status == 400
    with pytest.raises(NotInQueue):
        served.client.post("queue", "nothing", "skip")


# ── what can be asked ──


def test_queue_skip_snooze_dismiss_and_history(boss: RunningBoss) -> None:
    boss.tell(stop("a", 10, pane="%1"), stop("b", 20), stop("c", 30))
    first, second, third = boss.waiting()
    assert (first["session_id"], first["session"]["pane"]) == ("a", "%1")
    assert boss.client.get("queue", "next")["item"]["id"] == first["id"]
    boss.client.post("queue", first["id"], "skip", body={"cooldown": 0})
    assert [item["session_id"] for item in boss.waiting()] == ["b", "c", "a"]
    boss.client.post("queue", second["id"], "snooze", body={"seconds": 3600})
    assert [item["session_id"] for item in boss.waiting()] == ["c", "a"]
    assert len(boss.client.get("queue", hidden=True)["items"]) == 3
    assert boss.client.post("queue", third["id"], "dismiss")["resolution"] == "dismissed"
    assert [item["id"] for item in boss.client.get("queue", "history")["items"]] == [third["id"]]
    with pytest.raises(AlreadyAnswered):
        boss.client.post("queue", third["id"], "dismiss")
    assert boss.ask("POST", f"/v1/queue/{second['id']}/snooze", {}).status == 400


def test_hook_of_a_permission_makes_an_approval_that_the_first_answer_decides(boss: RunningBoss) -> None:
    given = {"file_path": str(boss.folder.path.parent / "a.txt"), "content": "new\n"}
    Path(given["file_path"]).write_text("old\n")
    payload = {
        "session_id": "s",
        "hook_event_name": "PermissionRequest",
        "tool_name": "Write",
        "tool_input": given,
        "cwd": "/srv",
    }
    env = {"TMUX_PANE": "%2", "TMUX": "/tmp/tmux-0/default,1,0", "CLAUDE_PID": "77"}
    told = {"payload": payload, "env": env, "at": 100.0, "id": "one"}
    number = boss.client.post("hooks", body=told)["approval"]
    (item,) = boss.waiting()
    assert (item["reason"], item["detail"]["input"], item["session"]["pid"]) == ("permission", given, 77)
    assert "-old\n+new\n" in item["detail"]["diff"]
    again = boss.client.post("hooks", body=told)
    assert (again["taken"], again["approval"]) == (0, number)
    with pytest.raises(NotSafe):  # no hook waits
        boss.client.post("approvals", number, "answer", body={"behavior": "allow", "by": "me"})
    with boss.holding(told) as hook:
        answered = boss.client.post("approvals", number, "answer", body={"behavior": "allow", "by": "me"})
        assert (answered["state"], answered["by"]) == ("answered", "api: me")
        said = hook.result(PATIENCE)
    assert (said["approval"], said["state"]) == (number, "answered")
    assert said["output"]["hookSpecificOutput"]["decision"] == {"behavior": "allow"}
    refused = boss.ask("POST", f"/v1/approvals/{number}/answer", {"behavior": "deny"})
    assert (refused.status, refused.json["error"]["code"]) == (409, "ALREADY_ANSWERED")
    assert "me has already decided: allow" in refused.json["error"]["message"]
    assert boss.waiting() == []
    (listed,) = boss.client.get("approvals", state="answered")["approvals"]
    assert listed["id"] == number


def test_reply_that_no_one_can_deliver_is_refused_with_that_reason(boss: RunningBoss) -> None:
    boss.tell(stop("a", 10))
    assert boss.ask("POST", "/v1/sessions/a/reply", {"text": "go on"}).status == 409
    assert boss.ask("POST", "/v1/sessions/nobody/reply", {"text": "go on"}).status == 404


def test_sessions_are_listed_and_found(boss: RunningBoss) -> None:
    boss.tell(stop("abcdef", 10, name="work"), event("ended", 20, session="gone"))
    assert [one["id"] for one in boss.client.get("sessions")["sessions"]] == ["abcdef"]
    assert len(boss.client.get("sessions", all=True)["sessions"]) == 2
    found = boss.client.get("sessions", "work")
    assert (found["session"]["origin"], found["item"]["reason"]) == ("kept", "stopped")


def test_figures_for_prometheus(boss: RunningBoss) -> None:
    boss.tell(stop("a", 10), event("asked", 20, session="b", **BASH))
    answer = boss.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.body.decode().splitlines()
    for line in (
        'remuda_boss_queue_items{reason="stopped"} 1',
        'remuda_boss_queue_items{reason="permission"} 1',
        'remuda_boss_agents{state="idle"} 1',
        'remuda_boss_agents{state="waiting_permission"} 1',
        'remuda_boss_sessions{state="waiting"} 1',
        "remuda_boss_approvals_open 1",
        "remuda_boss_events_total 2",
    ):
        assert line in lines


@pytest.mark.parametrize(
    ("name", "by"),
    [
        (None, "api"),
        ("my script", "api: my script"),
        ("policy: look around", "api: policy: look around"),
        ("link", "api: link"),
        ("\u202e\x1b[2J\n", "api: [2J"),
        ("\x07", "api"),
    ],
)
def test_answer_is_signed_with_its_channel_first(served: RunningBoss, name: str | None, by: str) -> None:
    session = f"signed {name}".encode().hex()
    payload = {
        "session_id": session,
        "hook_event_name": "PermissionRequest",
        "tool_name": "Bash",
        "tool_input": {"command": f"echo {session}"},
    }
    with served.holding({"payload": payload, "id": f"ask-{session}"}) as hook:
        (asked,) = [
            one
            for one in served.client.get("approvals", state="open")["approvals"]
            if one["session_id"] == session
        ]
        signed = {} if name is None else {"by": name}
        answered = served.client.post("approvals", asked["id"], "answer", body={"behavior": "deny", **signed})
        assert answered["by"] == by
        hook.result(PATIENCE)


def test_lists_and_changes_have_the_beginning_of_long_texts_if_asked(boss: RunningBoss) -> None:
    long = "a" * 5_000_000
    changes = Stream(boss, query="?cut=1000")
    boss.tell(event("stopped", 1000.0, message=long, cwd="/srv", title=long))
    given = {"command": long, "timeout": 5}
    boss.tell(event("asked", 1001.0, session="two", tool="Bash", message="Bash: x", input=given))
    assert changes.until("item").document["cut"] == ["message"]
    assert len(changes.until("approval").document["input"]["command"]) < 1000
    changes.close()
    for path in ("/v1/queue?cut=1000", "/v1/sessions?cut=1000", "/v1/approvals?cut=1000"):
        assert len(boss.ask("GET", path).body) < 20_000, path
    stopped, asks = boss.client.get("queue", cut=1000)["items"]
    assert (stopped["cut"], len(stopped["message"])) == (["message"], 1000)
    assert (stopped["session"]["cut"], len(stopped["session"]["title"])) == (["title"], 1000)
    assert asks["cut"] == ["detail"]
    (request,) = boss.client.get("approvals", cut=1000)["approvals"]
    assert (request["cut"], request["input"]["timeout"]) == (["input"], 5)
    assert asks["detail"]["ask"] == request["id"]
    # By itself, and in a list without the word, it has everything.
    for whole in (boss.client.get("queue", stopped["id"]), boss.client.get("queue")["items"][0]):
        assert (whole["cut"], whole["message"]) == ([], long)
    assert boss.client.get("approvals", request["id"])["input"]["command"] == long
    assert boss.ask("GET", "/v1/queue?cut=10").status == 400
