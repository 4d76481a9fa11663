"""Notices to browsers: a push service of the test's own, on https, and a browser that reads what it gets.

The boss trusts the service by SSL_CERT_FILE, as OpenSSL does everywhere, and its private address because
notify.toml names the host: both are the user's to set, and neither is set by default.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from py_vapid import Vapid02

from support.boss import RunningBoss, event
from support.commands import Commands
from support.keeper import until
from support.ntfy import is_noted
from support.page import Browser
from support.push import PushKeys, PushService, make_certificate


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("push"))


@pytest.fixture
def service(certificate: tuple[Path, Path]) -> Iterator[PushService]:
    one = PushService(certificate)
    yield one
    one.close()


@pytest.fixture
def trusting(
    home: Path, certificate: tuple[Path, Path], service: PushService, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningBoss]:
    """A boss that may use the service."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with RunningBoss(home) as one:
        configure(one, service)
        yield one


def configure(boss: RunningBoss, service: PushService, *lines: str) -> None:
    text = "\n".join(("threshold = 0", "cooldown = 0", "[push]", f'hosts = ["{service.host}"]', *lines))
    (boss.folder.path / "notify.toml").write_text(text)


def subscribe(browser: Browser, service: PushService, path: str = "/wpush/1") -> PushKeys:
    keys = PushKeys()
    answer = browser.post("/v1/push/subscribe", keys.subscription(service.url + path))
    assert answer.status == 200, answer.body
    return keys


def browsers(boss: RunningBoss) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = boss.client.get("push")["browsers"]
    return found


def stored(boss: RunningBoss) -> dict[str, Any]:
    with closing(sqlite3.connect(boss.folder.path / "boss.db")) as database:
        rows = database.execute("SELECT value FROM note WHERE name = 'push'").fetchall()
    return dict(json.loads(rows[0][0])) if rows else {}


def test_subscribed_browser_gets_sealed_and_signed_notices_also_from_the_next_boss(
    trusting: RunningBoss, service: PushService
) -> None:
    browser = Browser(trusting)
    found = browser.get("/v1/push").json
    assert (found["installed"], found["browsers"]) == (True, [])
    keys = subscribe(browser, service)
    (listed,) = browsers(trusting)
    assert (listed["client"], listed["host"]) == ("Firefox", service.host)
    assert "wpush" not in json.dumps(listed)
    trusting.tell(
        event("asked", 1000.0, tool="Bash", input={"command": "SECRET"}, message="Bash: SECRET", cwd="/srv")
    )
    got = service.next()
    (item,) = trusting.waiting()
    assert got.path == "/wpush/1"
    assert keys.read(got.body) == {"title": "srv: permission", "body": "Bash", "item": item["id"]}
    assert Vapid02.verify(got.headers["Authorization"])
    assert got.headers["Authorization"].endswith(f"k={found['key']}")
    assert got.headers["Urgency"] == "high"
    until(lambda: is_noted(trusting), "that it was sent, written down")
    trusting.end()
    trusting.start()
    configure(trusting, service, "details = true")
    trusting.tell(event("stopped", 1001.0, session="two", message="all done", cwd="/srv"))
    shown = keys.read(service.next().body)
    assert (shown["title"], shown["body"]) == ("srv: stopped", "all done")
    assert "SECRET" not in trusting.folder.log.read_text()
    assert "wpush" not in trusting.folder.log.read_text()


@pytest.mark.parametrize("status", [404, 410])
def test_browser_that_its_service_does_not_know_any_more_is_removed(
    trusting: RunningBoss, service: PushService, status: int
) -> None:
    subscribe(Browser(trusting), service)
    service.status = status
    trusting.tell(event("stopped", 1000.0, message="done"))
    service.next()
    until(lambda: not browsers(trusting) and not stored(trusting), "its end")
    assert service.got.empty()


def test_redirect_of_a_push_service_is_not_followed(
    trusting: RunningBoss, service: PushService, certificate: tuple[Path, Path]
) -> None:
    other = PushService(certificate)
    try:
        subscribe(Browser(trusting), service)
        service.status, service.location = 307, f"{other.url}/stolen"
        (result,) = trusting.client.post("push", "test")["browsers"]
        assert result["error"] == "it answered with status 307, a redirect; redirects are not followed"
        assert other.got.empty()
        assert len(browsers(trusting)) == 1
    finally:
        other.close()


def test_endpoint_on_a_private_address_is_refused_and_never_connected_to(
    trusting: RunningBoss, service: PushService
) -> None:
    """Only the host that the user named may have one; a name that is taken later is checked again."""
    browser, keys = Browser(trusting), PushKeys()
    for endpoint in (
        f"https://127.0.0.1:{service.host.partition(':')[2]}/x",
        "https://localhost:1/x",
        "https://169.254.169.254/latest",
        "https://10.0.0.1/x",
        "https://[::1]/x",
        "https://0x7f.1/x",
        f"http://{service.host}/x",
        f"https://me@{service.host}/x",
        "file:///etc/passwd",
    ):
        answer = browser.post("/v1/push/subscribe", keys.subscription(endpoint))
        assert answer.status == 400, (endpoint, answer.body)
    assert browsers(trusting) == []
    subscribe(browser, service)
    (trusting.folder.path / "notify.toml").write_text("threshold = 0\n")  # it is no longer allowed
    (result,) = trusting.client.post("push", "test")["browsers"]
    assert result["error"] == "the push service has a private address"
    assert "[push] hosts" in result["advice"]
    assert service.got.empty()


def test_service_with_an_unknown_certificate_gets_nothing(home: Path, service: PushService) -> None:
    with RunningBoss(home) as boss:
        configure(boss, service)
        subscribe(Browser(boss), service)
        (result,) = boss.client.post("push", "test")["browsers"]
        assert "certificate" in result["error"] or "SSLCertVerificationError" in result["error"]
        assert "SSL_CERT_FILE" in result["advice"]
        assert service.got.empty()


def test_subscription_ends_with_its_login_and_can_be_removed_with_another(
    trusting: RunningBoss, service: PushService
) -> None:
    first, second = Browser(trusting), Browser(trusting)
    subscribe(first, service, "/1")
    subscribe(second, service, "/2")
    subscribe(second, service, "/3")  # the same browser: it has one
    one, other = (found["id"] for found in browsers(trusting))
    assert second.post(f"/v1/push/{one}/remove").status == 200
    assert [found["id"] for found in browsers(trusting)] == [other]
    assert second.post(f"/v1/push/{one}/remove").status == 404
    assert second.post("/v1/logout").status == 200
    until(lambda: not stored(trusting), "no subscription on disk")
    assert browsers(trusting) == []
    assert second.get("/v1/push").status == 401


def test_only_a_browser_that_is_logged_in_can_subscribe(trusting: RunningBoss, service: PushService) -> None:
    browser, body = Browser(trusting), PushKeys().subscription(f"{service.url}/x")
    for headers in ({"X-Remuda": None}, {"Origin": "https://evil.example"}, {"Cookie": "remuda-1=x"}):
        assert browser.post("/v1/push/subscribe", body, headers).status in (401, 403)
    assert trusting.ask("POST", "/v1/push/subscribe", body, token=None).status == 401
    assert "logged in" in trusting.ask("POST", "/v1/push/subscribe", body).json["error"]["message"]
    for wrong in (
        {**body, "keys": {"p256dh": "AAAA", "auth": "AAAA"}},
        {**body, "keys": {"p256dh": "\r\n", "auth": "x"}},
        {**body, "more": 1},
        {"endpoint": f"{service.url}/x"},
    ):
        assert browser.post("/v1/push/subscribe", wrong).status == 400
    assert browsers(trusting) == []


def test_setup_notify_tries_browsers_through_the_boss(
    remuda: Commands, certificate: tuple[Path, Path], service: PushService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with RunningBoss(remuda.home) as boss:
        configure(boss, service)
        keys = subscribe(Browser(boss), service)
        (listed,) = browsers(boss)
        who = f"the browser of login {listed['id']} ({service.host})"
        assert who in remuda("setup", "notify").out
        assert (
            remuda("setup", "notify", "--test").out == f"ok    {who} accepted the test notice (status 201)\n"
        )
        assert keys.read(service.next().body)["title"] == "test: stopped"
        service.status = 410
        failed = remuda("setup", "notify", "--test", code=1).out
        assert "it answered with status 410" in failed
        assert "the browser has unsubscribed, and was removed" in failed
        assert browsers(boss) == []


def test_page_has_a_worker_for_the_whole_site_which_may_fetch_nothing(served: RunningBoss) -> None:
    worker = served.ask("GET", "/sw.js", token=None)
    assert (worker.status, worker.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert worker.headers["content-security-policy"] == "default-src 'none'"
    assert worker.headers["cache-control"] == "no-cache"


@pytest.mark.usefixtures("own_interpreters")
def test_boss_without_a_subscription_does_not_load_the_extra(trusting: RunningBoss) -> None:
    assert trusting.process is not None
    trusting.tell(event("stopped", 1000.0, message="done"))
    maps = Path(f"/proc/{trusting.process.pid}/maps")
    if not maps.exists():
        pytest.skip("NOT TESTED: needs /proc")
    assert "cryptography" not in maps.read_text()
    assert not trusting.folder.push_key.exists()
