"""Notices to this browser: it subscribes on the page, and can read what the boss sends.

Headless Chromium without a network has no push service, so the test has one: `subscribe` of the browser is
replaced by one that names it, with keys of the test. What the boss sends there is decrypted with them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from support.browser import PageBench
from support.keeper import until, until_equal
from support.push import PushKeys, PushService, make_certificate

_SUBSCRIBE = """
PushManager.prototype.subscribe = async function (options) {
  window.subscribed = options;
  return { toJSON: () => (%s) };
};
"""


_SHOWN = """
globalThis.shownNotices = [];
const show = registration.showNotification.bind(registration);
registration.showNotification = async (title, options) => {
  const { body, tag, silent, data } = options;
  await show(title, options);
  shownNotices.push({ title, body, tag, silent, data });
};
"""
"""Records which notices are shown. To look at those that there are would not do: while one is being shown,
Chromium forgets it if a page or a worker asks for all of them.
"""
_CLOSED = """
globalThis.closedNotices = [];
const { close } = Notification.prototype;
Notification.prototype.close = function () { closedNotices.push(this.tag); close.call(this); };
"""
"""Records which notices are closed: after half a minute this browser forgets those that are not."""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PushService]:
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    one = PushService(certificate)
    yield one
    one.close()


def open_notices(bench: PageBench, service: PushService, keys: PushKeys) -> Page:
    text = f'threshold = 0\ncooldown = 0\n[push]\nhosts = ["{service.host}"]\n'
    (bench.boss.folder.path / "notify.toml").write_text(text)
    page = bench.open()
    page.context.grant_permissions(["notifications"], origin=bench.address)
    page.add_init_script(_SUBSCRIBE % json.dumps(keys.subscription(f"{service.url}/1")))
    page.reload()
    page.get_by_role("link", name="Notices").click()
    return page


def test_browser_subscribes_and_can_read_what_the_boss_sends(service: PushService, bench: PageBench) -> None:
    keys = PushKeys()
    post = bench.agent("work")
    page = open_notices(bench, service, keys)
    page.get_by_role("button", name="Notify this browser").click()
    expect(page.get_by_role("status")).to_contain_text(["This browser is notified."])
    expect(page.get_by_text(f"This browser through {service.host}")).to_be_visible()
    options = page.evaluate("window.subscribed")
    assert options["userVisibleOnly"] is True
    assert options["applicationServerKey"] == bench.boss.client.get("push")["key"]

    message = post.put("RUNBASH touch made")
    sent = keys.read(service.next().body)
    (item,) = bench.boss.waiting()
    assert sent == {"title": "work: permission", "body": "Bash", "item": item["id"]}
    bench.boss.client.post("approvals", item["detail"]["ask"], "answer", body={"behavior": "deny"})
    post.ended(message)


def deny(bench: PageBench) -> None:
    """Deny what is asked, as someone elsewhere."""
    client = bench.boss.client
    until(lambda: client.get("approvals", state="open")["approvals"], "a request")
    (request,) = client.get("approvals", state="open")["approvals"]
    client.post("approvals", request["id"], "answer", body={"behavior": "deny"})


class Worker:
    """The service worker of the page, its push messages and its notices."""

    def __init__(self, page: Page, address: str) -> None:
        self._other = page.context.new_page()  # stays when the page is closed
        self._cdp = page.context.new_cdp_session(self._other)
        self._address = address
        found: list[str] = []
        self._cdp.on(
            "ServiceWorker.workerVersionUpdated",
            lambda told: found.extend(
                one["registrationId"] for one in told["versions"] if one["status"] == "activated"
            ),
        )
        self._cdp.send("ServiceWorker.enable")
        page.evaluate("navigator.serviceWorker.register('/sw.js').then(() => navigator.serviceWorker.ready)")
        while not found:
            self._other.wait_for_timeout(20)
        self._id = found[0]
        (self._worker,) = page.context.service_workers
        self._worker.evaluate(f"() => {{{_CLOSED}{_SHOWN}}}")

    def push(self, data: str) -> dict[str, Any]:
        """Deliver a push message, and return the notice that is then shown."""
        before = self._worker.evaluate("shownNotices.length")
        self._cdp.send(
            "ServiceWorker.deliverPushMessage",
            {"origin": self._address, "registrationId": self._id, "data": data},
        )
        until(lambda: self._worker.evaluate("shownNotices.length") > before, "a notice")
        (notice,) = self._worker.evaluate(f"shownNotices.slice({before})")
        return dict(notice)

    def shows_none(self) -> None:
        look = "registration.getNotifications().then((found) => found.map(({ title }) => title))"
        until_equal(lambda: self._worker.evaluate(look), [], "no notice")

    def closed(self) -> list[str]:
        """The tags of the notices that it closed itself."""
        found: list[str] = self._worker.evaluate("closedNotices")
        return found

    def click(self) -> None:
        """As the browser does when the user clicks on the only notice."""
        self._worker.evaluate(
            """async () => {
              const [notification] = await registration.getNotifications();
              dispatchEvent(new NotificationEvent('notificationclick', { notification }));
            }"""
        )


def test_push_message_shows_a_notice_and_a_click_on_it_opens_its_item(bench: PageBench) -> None:
    post = bench.agent("work")
    message = post.put("RUNBASH touch made")
    until(bench.boss.waiting, "an item")
    (item,) = bench.boss.waiting()
    page = bench.open(where="agents")
    page.context.grant_permissions(["notifications"], origin=bench.address)
    worker = Worker(page, bench.address)
    data = {"title": "work: permission", "body": "Bash", "item": item["id"]}
    notice = worker.push(json.dumps(data))
    assert notice == {
        "title": "work: permission",
        "body": "Bash",
        "tag": item["id"],
        "silent": False,
        "data": {"item": item["id"]},
    }
    worker.click()
    expect(page).to_have_url(f"{bench.address}/#/queue/{item['id']}")
    expect(page.locator(".item h2")).to_contain_text("work")
    worker.shows_none()
    deny(bench)
    post.ended(message)


def test_push_message_that_cannot_be_read_shows_a_plain_notice(bench: PageBench) -> None:
    page = bench.open(where="agents")
    page.context.grant_permissions(["notifications"], origin=bench.address)
    worker = Worker(page, bench.address)
    for data in ("", "no json", "[1]", '"text"', '{"title": 1, "item": {"a": 1}, "body": null}'):
        notice = worker.push(data)
        assert (notice["title"], notice["body"], notice["tag"]) == ("Remuda", "", ""), data
    worker.click()
    expect(page).to_have_url(f"{bench.address}/")


def test_notice_cannot_lead_elsewhere(bench: PageBench) -> None:
    page = bench.open(where="agents")
    page.context.grant_permissions(["notifications"], origin=bench.address)
    worker = Worker(page, bench.address)
    worker.push(json.dumps({"title": "x", "item": "/../../\\evil.example/#//evil.example"}))
    worker.click()
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    assert page.url.startswith(f"{bench.address}/#/queue/%2F..")


def test_notice_of_an_item_that_was_answered_elsewhere_goes_away(
    service: PushService, bench: PageBench
) -> None:
    keys, post = PushKeys(), bench.agent("work")
    page = open_notices(bench, service, keys)
    page.get_by_role("button", name="Notify this browser").click()
    expect(page.get_by_text(f"This browser through {service.host}")).to_be_visible()
    worker = Worker(page, bench.address)
    page.close()
    message = post.put("RUNBASH touch made")
    notice = worker.push(json.dumps(keys.read(service.next().body)))
    (item,) = bench.boss.waiting()
    assert notice["tag"] == item["id"]
    deny(bench)
    # The agent stops then, and that is notified too.
    over = next(one for one in iter(lambda: keys.read(service.next().body), None) if "over" in one)
    assert over == {"item": item["id"], "over": True}
    worker.push(json.dumps(over))
    until(lambda: worker.closed() == [item["id"]], "that it closes the notice")
    worker.shows_none()
    post.ended(message)


def test_open_page_removes_notices_of_what_no_longer_waits(bench: PageBench) -> None:
    post = bench.agent("work")
    message = post.put("RUNBASH touch made")
    until(bench.boss.waiting, "an item")
    (item,) = bench.boss.waiting()
    page = bench.open()
    page.context.grant_permissions(["notifications"], origin=bench.address)
    page.evaluate(f"() => {{{_CLOSED}}}")
    worker = Worker(page, bench.address)
    worker.push(json.dumps({"title": "work: permission", "item": item["id"]}))
    deny(bench)
    page.wait_for_function("tag => closedNotices.includes(tag)", arg=item["id"])
    worker.shows_none()
    post.ended(message)


def test_browser_is_tried_and_removed_on_the_page(service: PushService, bench: PageBench) -> None:
    keys = PushKeys()
    page = open_notices(bench, service, keys)
    page.get_by_role("button", name="Notify this browser").click()
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_role("status")).to_contain_text(["Sent."])
    assert keys.read(service.next().body)["body"] == ""
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("through localhost")).to_have_count(0)
    assert bench.boss.client.get("push")["browsers"] == []


def test_page_says_how_to_get_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['pywebpush'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(hidden))
    bench: PageBench = request.getfixturevalue("bench")
    page = bench.open(where="notices")
    expect(page.get_by_text("pip install 'remuda[push]'")).to_be_visible()
    expect(page.get_by_role("button", name="Notify this browser")).to_have_count(0)
    assert not bench.boss.folder.push_key.exists()
