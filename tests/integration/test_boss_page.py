"""The page of the boss: who may open it, and what a browser that is logged in may do."""

from __future__ import annotations

import gzip
import http.client
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from remuda.boss.http.terminal import LOGGED_OUT
from remuda.boss.logins import TRIES
from remuda.errors import InvalidOptions, NotInQueue, StoreFailed
from support.boss import RunningBoss, event
from support.commands import Commands
from support.heimdall_client import PATIENCE
from support.keeper import Start
from support.page import Browser, PageTerminal, make_link

WRONG_TRIES = 1000
BEHIND_PROXY = {"public_url": "https://boss.example.net", "trusted_proxy": "127.0.0.1"}


@pytest.fixture(scope="module")
def browser(served: RunningBoss) -> Browser:
    return Browser(served)


# ── logging in ──


def test_link_that_was_used_is_refused_and_logs_no_one_in(served: RunningBoss) -> None:
    path = make_link(served)
    first = served.ask("POST", path, token=None)
    again = served.ask("POST", path, token=None)
    assert (first.status, again.status) == (303, 404)
    assert b"already used" in again.body
    assert "set-cookie" not in again.headers
    assert b"remuda open" in again.body


def test_previews_of_a_link_do_no_harm(served: RunningBoss) -> None:
    path = make_link(served)
    for headers in (
        {},
        {"User-Agent": "Slackbot"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"},
    ):
        answer = served.ask("GET", path, headers=headers, token=None)
        assert (answer.status, "set-cookie" in answer.headers) == (200, False)
        assert b"<button" in answer.body
    assert served.ask("HEAD", path, token=None).status == 405
    assert served.ask("POST", path, token=None).status == 303


def test_link_that_is_too_old_is_refused(served: RunningBoss) -> None:
    assert served.ask("POST", make_link(served, seconds=0), token=None).status == 404


def test_link_from_another_site_or_for_another_host_is_refused_and_stays_valid(served: RunningBoss) -> None:
    path = make_link(served)
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    for headers in (foreign, {"Host": "evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "same-site"}):
        assert served.ask("POST", path, headers=headers, token=None).status == 403
    framed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe"}
    assert served.ask("GET", path, headers=framed, token=None).status == 403
    # A form of a page with `Referrer-Policy: no-referrer` sends the Origin null.
    own = {"Origin": "null", "Sec-Fetch-Site": "same-origin"}
    assert served.ask("POST", path, headers=own, token=None).status == 303


def test_cookie_cannot_be_read_by_scripts_or_sent_by_other_sites(served: RunningBoss) -> None:
    cookie = served.ask("POST", make_link(served), token=None).headers["set-cookie"]
    secret, *attributes = cookie.split("; ")
    assert re.fullmatch(rf"remuda-{served.port}=[\w-]{{43}}", secret)
    assert attributes == ["Path=/", "Max-Age=2592000", "HttpOnly", "SameSite=Strict"]
    assert secret.partition("=")[2].encode() not in served.folder.database.read_bytes()
    wal = served.folder.database.with_name("boss.db-wal")
    assert secret.partition("=")[2].encode() not in wal.read_bytes()


def test_thousand_wrong_tries_are_refused_and_bounded_and_lock_no_one_out(boss: RunningBoss) -> None:
    before = _rss_kb(boss)
    answers = [boss.ask("POST", f"/login/{number:032d}", token=None) for number in range(WRONG_TRIES)]
    assert [answer.status for answer in answers] == [404] * TRIES + [429] * (WRONG_TRIES - TRIES)
    assert answers[-1].headers["retry-after"] == "60"
    assert boss.client.get("logins")["logins"] == []
    # The tries of someone else may come from the same address: that of a proxy.
    right = boss.ask("POST", make_link(boss), token=None)
    assert (right.status, "set-cookie" in right.headers) == (303, True)
    assert _rss_kb(boss) - before < 20_000
    assert boss.client.get("health")["status"] == "ok"


def _rss_kb(boss: RunningBoss) -> int:
    assert boss.process is not None
    fields = Path(f"/proc/{boss.process.pid}/status").read_text().split("VmRSS:")[1]
    return int(fields.split()[0])


_AS_ANOTHER_USER = """
import os, socket, sys
port, method, path, cookie = sys.argv[1:]
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sock = socket.socket()  # it belongs to the user who makes it
sock.connect(("127.0.0.1", int(port)))
head = f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Cookie: {cookie}", "Content-Length: 0"
sock.sendall("\\r\\n".join([*head, "", ""]).encode())
print(sock.recv(100).split()[1].decode())
"""


def test_link_and_cookie_of_another_user_of_this_machine_are_refused(
    served: RunningBoss, browser: Browser
) -> None:
    if os.getuid() != 0:
        sys.__stderr__.write("\nNOT TESTED: only root can be another user\n")  # type: ignore[union-attr]
        return
    path = make_link(served)
    for method, where in (("POST", path), ("GET", "/v1/queue"), ("GET", "/")):
        command = [sys.executable, "-c", _AS_ANOTHER_USER, str(served.port), method, where, browser.cookie]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
        assert done.stdout == "403\n", where
    assert served.ask("POST", path, token=None).status == 303


# ── what a cookie may do ──


def test_page_without_a_login_says_how_to_log_in(served: RunningBoss, browser: Browser) -> None:
    without = served.ask("GET", "/", token=None)
    assert (without.status, without.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert b"remuda open" in without.body
    logged_in = browser.get("/")
    assert logged_in.status == 200
    assert b"remuda open" not in logged_in.body
    # Nothing is sent with a link from another site; our own page leads on.
    from_chat = served.ask(
        "GET",
        "/?a=%22%3E",
        headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"},
        token=None,
    )
    assert from_chat.status == 200
    assert b'content="0;url=/?a=%22%3E"' in from_chat.body


def test_page_cannot_be_framed_and_runs_only_its_own_scripts(served: RunningBoss, browser: Browser) -> None:
    for answer in (browser.get("/"), served.ask("GET", make_link(served), token=None)):
        policy = dict(
            one.strip().split(" ", 1) for one in answer.headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
        assert policy["form-action"] == "'self'"
        assert "unsafe" not in policy.get("script-src", "")
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    framed = browser.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Dest="iframe")
    assert framed.status == 403


def test_asset_is_packed_and_revalidated_and_nothing_else_is_served(browser: Browser) -> None:
    page = browser.get("/", Accept_Encoding="gzip")
    assert page.headers["content-encoding"] == "gzip"
    assert b"<!doctype html>" in gzip.decompress(page.body)
    again = browser.get("/", Accept_Encoding="gzip", If_None_Match=page.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    for path in (
        "/assets/../page.py",
        "/assets/%2e%2e/page.py",
        "/assets/nothing.js",
        "/icon/../../x",
        "/assets/",
    ):
        assert browser.get(path).status in (401, 404), path


def test_cookie_reads_everything_that_the_page_needs(browser: Browser) -> None:
    for path in ("/v1/queue", "/v1/sessions", "/v1/approvals", "/v1/health", "/v1/openapi.json", "/metrics"):
        assert browser.get(path).status == 200, path


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Remuda": None},
        {"X-Remuda": "0"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:{port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": None, "Sec-Fetch-Site": None},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
    ],
)
def test_change_with_a_cookie_that_our_page_did_not_send_is_refused(
    browser: Browser, headers: dict[str, str | None]
) -> None:
    given = {name: value and value.format(port=browser.boss.port) for name, value in headers.items()}
    assert browser.post("/v1/logout", headers=given).status == 403
    assert browser.get("/v1/health").status == 200


def test_cookie_in_a_request_of_another_site_opens_nothing(browser: Browser) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Sec_Fetch_Site": "cross-site"}, {"Host": "evil:1"}):
        assert browser.get("/v1/queue", **headers).status == 403


def test_cookie_manages_no_logins_and_is_no_token(browser: Browser) -> None:
    assert browser.get("/v1/logins").json["error"]["code"] == "NEEDS_TOKEN"
    assert browser.post("/v1/logins/links").status == 403
    assert browser.post("/v1/logins/all/revoke").status == 403
    secret = browser.cookie.partition("=")[2]
    assert browser.boss.ask("POST", f"/t/{secret}/event", b"{}", token=None).status == 401
    assert browser.boss.ask("GET", "/v1/queue", token=secret).status == 401
    wrong = {"Cookie": browser.cookie, "Authorization": "Bearer wrong"}
    assert browser.boss.ask("GET", "/v1/queue", headers=wrong, token=None).status == 401


def test_no_get_by_cookie_changes_anything(boss: RunningBoss) -> None:
    boss.tell(event("stopped", 10, session="a", message="m", pane="%1"))
    browser = Browser(boss)
    before = boss.client.get("queue")
    for path, methods in boss.client.get("openapi.json")["paths"].items():
        if "get" in methods and path != "/v1/events":
            filled = re.sub(r"{\w+}", "a", path)
            known = (403,) if path == "/v1/logins" else (200, 400, 404, 409, 502)  # no tmux runs here
            assert browser.get(filled).status in known, path
    assert boss.client.get("queue") == before


# ── the end of a login ──


def test_cookie_that_was_revoked_opens_nothing_and_its_stream_ends(boss: RunningBoss) -> None:
    browser, other = Browser(boss), Browser(boss)
    listed = boss.client.get("logins")["logins"]
    assert [(one["client"], one["address"]) for one in listed] == [("Firefox", "127.0.0.1")] * 2
    connection = http.client.HTTPConnection("127.0.0.1", boss.port, timeout=PATIENCE)
    connection.request("GET", "/v1/events", headers={"Cookie": browser.cookie})
    stream = connection.getresponse()
    assert b"hello" in stream.read1()
    assert boss.client.post("logins", listed[0]["id"], "revoke") == {"revoked": 1}
    stream.read()  # to its end
    connection.close()
    refused = browser.get("/v1/queue")
    assert (refused.status, refused.json["error"]["code"]) == (401, "LOGGED_OUT")
    assert browser.get("/").status == 401
    assert other.get("/v1/queue").status == 200
    with pytest.raises(NotInQueue):
        boss.client.post("logins", listed[0]["id"], "revoke")


def test_logout_ends_this_login_alone(boss: RunningBoss) -> None:
    browser, other = Browser(boss), Browser(boss)
    answer = browser.post("/v1/logout")
    assert (answer.status, answer.json) == (200, {"revoked": 1})
    assert f"remuda-{boss.port}=; Path=/; Max-Age=0" in answer.headers["set-cookie"]
    assert (browser.get("/v1/queue").status, other.get("/v1/queue").status) == (401, 200)


def test_login_survives_the_boss_and_its_end_does_too(boss: RunningBoss) -> None:
    browser, revoked = Browser(boss), Browser(boss)
    link = make_link(boss)
    boss.client.post("logins", boss.client.get("logins")["logins"][1]["id"], "revoke")
    port = boss.port
    boss.end(signal.SIGKILL)
    boss.start(port)
    assert (browser.get("/v1/queue").status, revoked.get("/v1/queue").status) == (200, 401)
    assert boss.ask("POST", link, token=None).status == 404
    boss.client.post("logins", "all", "revoke")
    assert browser.get("/v1/queue").status == 401


def test_login_and_its_end_on_a_full_disk(boss: RunningBoss) -> None:
    boss.may_complain = True
    browser, port = Browser(boss), boss.port
    assert boss.process is not None
    full, free = (1, resource.RLIM_INFINITY), (resource.RLIM_INFINITY,) * 2
    path = make_link(boss)
    resource.prlimit(boss.process.pid, resource.RLIMIT_FSIZE, full)
    refused = boss.ask("POST", path, token=None)
    assert (refused.status, "set-cookie" in refused.headers) == (507, False)
    assert len(boss.client.get("logins")["logins"]) == 1
    with pytest.raises(StoreFailed):
        boss.client.post("logins", "all", "revoke")
    assert browser.get("/v1/queue").status == 401
    resource.prlimit(boss.process.pid, resource.RLIMIT_FSIZE, free)
    assert boss.ask("POST", path, token=None).status == 404
    boss.client.post("logins", "all", "revoke")
    boss.end(signal.SIGKILL)
    boss.start(port)
    assert browser.get("/v1/queue").status == 401


def test_login_link_on_the_socket_is_for_a_browser(boss: RunningBoss) -> None:
    path = make_link(boss)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(boss.folder.socket))
        sock.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
        assert sock.recv(100).split()[1] == b"400"
    assert boss.ask("POST", path, token=None).status == 303  # it was not spent


# ── remuda open ──


def test_open_starts_the_boss_and_lists_and_revokes_logins(remuda: Commands) -> None:
    url = remuda("open", "--print").out.strip()
    try:
        matched = re.fullmatch(r"http://(127\.0\.0\.1:\d+)(/login/[\w-]{32})", url)
        assert matched is not None
        connection = http.client.HTTPConnection(matched[1], timeout=PATIENCE)
        connection.request("POST", matched[2], headers={"User-Agent": "Phone\x9b31m"})
        assert connection.getresponse().status == 303
        connection.close()
        listed = remuda("open", "--logins").out.splitlines()
        assert re.search(r"ID +CREATED +LAST USED +EXPIRES +ADDRESS +BROWSER", listed[0])
        assert "\x9b" not in listed[1]
        login = listed[1].split()[0]
        assert remuda("open", "--revoke", login).out == "ended 1 login\n"
        assert remuda("open", "--revoke", login, code=3).err
        code = remuda("open", "--qr").out.splitlines()
        assert code[0] == "█" * len(code[0])
        assert code[-1].startswith("http://127.0.0.1:")
        assert remuda("open", "--qr", "--print", code=2).err
    finally:
        remuda("boss", "down")


# ── beyond loopback ──


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
    ]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


@pytest.fixture
def encrypted(home: Path, certificate: tuple[Path, Path]) -> Iterator[tuple[RunningBoss, int]]:
    cert, key = certificate
    port = _free_port()
    access = {"listen": f"127.0.0.2:{port}", "tls_cert": str(cert), "tls_key": str(key)}
    with RunningBoss(home, access=access) as one:
        yield one, port


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.2", 0))
        return int(sock.getsockname()[1])


def test_boss_with_a_certificate_serves_the_page_with_a_secure_cookie(
    encrypted: tuple[RunningBoss, int],
) -> None:
    boss, port = encrypted
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    link = boss.client.post("logins", "links")
    here, there = link["urls"]
    assert here.startswith(f"http://127.0.0.1:{boss.port}/login/")
    assert there == f"https://127.0.0.2:{port}{link['path']}"

    def ask(method: str, path: str, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPSConnection("127.0.0.2", port, timeout=PATIENCE, context=trusting)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer

    cookie = ask("POST", link["path"]).headers["set-cookie"]
    assert cookie.startswith("__Host-remuda=")
    assert cookie.endswith("; Secure")
    assert ask("GET", "/v1/queue", Cookie=cookie.partition(";")[0]).status == 200
    assert ask("GET", "/v1/queue", Host=f"127.0.0.1:{boss.port}").status == 401
    assert ask("GET", "/", Host="evil.example").status == 403
    # What is for https does not come unencrypted.
    assert boss.ask("GET", "/v1/queue", headers={"Host": f"127.0.0.2:{port}"}).status == 403
    plain = http.client.HTTPConnection("127.0.0.2", port, timeout=PATIENCE)
    plain.request("GET", "/")
    with pytest.raises((http.client.HTTPException, OSError)):
        plain.getresponse()
    plain.close()
    assert boss.client.get("health")["status"] == "ok"


def test_terminal_by_tls_needs_its_own_origin_and_ends_with_the_login(
    encrypted: tuple[RunningBoss, int], start: Start
) -> None:
    boss, port = encrypted
    start("a", ["sh", "-c", "echo ready; read -r line"])
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.2", port, timeout=PATIENCE, context=trusting)
    connection.request("POST", make_link(boss))
    cookie = connection.getresponse().headers["set-cookie"].partition(";")[0]
    connection.close()

    def opened(origin: str) -> ClientConnection:
        return connect(
            f"wss://127.0.0.2:{port}/v1/sessions/a/terminal",
            ssl=trusting,
            origin=Origin(origin),
            additional_headers={"Cookie": cookie},
            open_timeout=PATIENCE,
            proxy=None,
        ).__enter__()

    for origin in (f"http://127.0.0.2:{port}", f"http://127.0.0.1:{boss.port}", "https://evil.example"):
        with pytest.raises(InvalidStatus) as refused:
            opened(origin)
        assert refused.value.response.status_code == 403
    with PageTerminal(opened(f"https://127.0.0.2:{port}")) as terminal:
        terminal.until_output(b"ready")
        boss.client.post("logins", "all", "revoke")
        with pytest.raises(ConnectionClosed) as closed:
            terminal.until_said("nothing")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == LOGGED_OUT


def test_proxy_that_is_named_serves_the_page_under_its_own_address(home: Path) -> None:
    with RunningBoss(home, access=BEHIND_PROXY) as boss:
        link = boss.client.post("logins", "links")
        assert link["urls"][1] == f"https://boss.example.net{link['path']}"
        forwarded = {"Host": "boss.example.net", "X-Forwarded-For": "10.9.9.9, 203.0.113.7"}
        answer = boss.ask("POST", link["path"], headers=forwarded, token=None)
        cookie = answer.headers["set-cookie"].partition(";")[0]
        assert cookie.startswith("__Host-remuda=")
        assert boss.client.get("logins")["logins"][0]["address"] == "203.0.113.7"
        assert boss.ask("GET", "/v1/queue", headers={**forwarded, "Cookie": cookie}, token=None).status == 200
        own = {**forwarded, "Cookie": cookie, "Origin": "https://boss.example.net", "X-Remuda": "1"}
        assert boss.ask("POST", "/v1/logout", {}, headers=own, token=None).status == 200


def test_link_of_loopback_is_none_behind_the_proxy(home: Path) -> None:
    """Other users see it on the command line of a browser. At the proxy the boss cannot tell who they are."""
    with RunningBoss(home, access=BEHIND_PROXY) as boss:
        here, there = (
            f"/login/{url.rpartition('/')[2]}" for url in boss.client.post("logins", "links")["urls"]
        )
        secure = {"Host": "boss.example.net"}
        refused = boss.ask("POST", here, headers=secure, token=None)
        assert (refused.status, "set-cookie" in refused.headers) == (404, False)
        assert b"on this machine only" in refused.body
        assert boss.client.get("logins")["logins"] == []
        assert boss.ask("POST", here, token=None).status == 303
        assert boss.ask("POST", there, headers=secure, token=None).status == 303


def test_cookie_of_loopback_is_none_behind_the_proxy(home: Path) -> None:
    """A browser sends it to all ports of this machine: another user's server could use it there."""
    with RunningBoss(home, access=BEHIND_PROXY) as boss:
        browser = Browser(boss)
        secret = browser.cookie.partition("=")[2]
        assert browser.get("/v1/queue").status == 200
        for cookie in (f"__Host-remuda={secret}", browser.cookie):
            headers = {"Host": "boss.example.net", "Cookie": cookie}
            assert boss.ask("GET", "/v1/queue", headers=headers, token=None).status == 401


def test_proxy_that_is_not_named_chooses_no_address(home: Path) -> None:
    with RunningBoss(home, access={**BEHIND_PROXY, "trusted_proxy": "127.0.0.9"}) as boss:
        path = make_link(boss)
        forged = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Host": "boss.example.net"}
        forged |= {"X-Forwarded-Proto": "https", "Forwarded": "for=203.0.113.7;proto=https"}
        secure = {**forged, "Host": "boss.example.net"}
        assert boss.ask("POST", path, headers=secure, token=None).status == 403
        assert boss.ask("POST", path, headers=forged, token=None).status == 303
        assert boss.client.get("logins")["logins"][0]["address"] == "127.0.0.1"


@pytest.mark.parametrize(
    "access",
    [
        {"listen": "0.0.0.0:0"},
        {"listen": "0.0.0.0:4443"},
        {"public_url": "https://boss.example.net"},
        {"listen": "127.0.0.2:4443", "tls_cert": "/nonexistent", "tls_key": "/nonexistent"},
        {"listen": "192.0.2.1:4443", "public_url": "https://x.example", "trusted_proxy": "127.0.0.1"},
    ],
)
def test_boss_that_would_be_open_to_others_does_not_start_and_says_why(
    home: Path, access: dict[str, Any]
) -> None:
    boss = RunningBoss(home, access=access)
    with pytest.raises(InvalidOptions) as refused:
        boss.start()
    assert "[boss]" in str(refused.value)
    assert not boss.folder.socket.exists()


def test_configuration_of_a_working_folder_cannot_open_the_boss(remuda: Commands, tmp_path: Path) -> None:
    (tmp_path / "remuda.toml").write_text('[boss]\nlisten = "0.0.0.0:4443"\n')
    refused = remuda("up", "--detach", code=2, cwd=tmp_path)
    assert "'boss', which a file in a working folder may not set" in refused.err
