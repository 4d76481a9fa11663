"""Pages of others in the user's browser: they open nothing, read nothing and change nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from support.browser import PageBench, launched, live
from support.keeper import until

# What a page can try against another origin. Each returns 'no' if it got nothing.
_TRY = """async (boss) => {
  const no = (work) => work().then((one) => one, () => 'no');
  const element = (tag, more) => new Promise((done) => {
    const heard = { onload: () => done('loaded'), onerror: () => done('no') };
    const one = Object.assign(document.createElement(tag), more, heard);
    document.body.append(one);
  });
  const socket = () => new Promise((done) => {
    const one = new WebSocket(`${boss.replace('http', 'ws')}/v1/sessions/work/terminal`);
    one.onopen = () => done('open'); one.onerror = () => done('no');
  });
  const stream = () => new Promise((done) => {
    const one = new EventSource(`${boss}/v1/events`, { withCredentials: true });
    one.onopen = () => done('open'); one.onerror = () => { one.close(); done('no'); };
  });
  const form = (path, type) => new Promise((done) => {
    const frame = Object.assign(document.createElement('iframe'), { name: `f${Math.random()}` });
    const sent = { method: 'post', action: boss + path, enctype: type, target: frame.name };
    const one = Object.assign(document.createElement('form'), sent);
    one.innerHTML = '<input name="{&quot;a&quot;:&quot;" value="&quot;}">';
    document.body.append(frame, one);
    one.submit();
    frame.onload = () => done('sent');
  });
  const withCookie = (path, more) => fetch(boss + path, { credentials: 'include', ...more });
  const send = (path, more) => no(async () => (await withCookie(path, more)).text());
  const json = { 'Content-Type': 'application/json', 'X-Remuda': '1' };
  const found = {
    read: await send('/v1/queue'),
    logout: await send('/v1/logout', { method: 'POST', headers: json, body: '{}' }),
    end: await send('/v1/sessions/work/end', { method: 'POST', headers: json, body: '{}' }),
    stream: await stream(),
    socket: await socket(),
    image: await element('img', { src: `${boss}/icon.svg` }),
    script: await element('script', { src: `${boss}/v1/queue` }),
    asset: await element('script', { src: `${boss}/assets/app.js`, type: 'module' }),
    style: await element('link', { href: `${boss}/assets/style.css`, rel: 'stylesheet' }),
  };
  // These are sent, and not read.
  await send('/v1/logout', { method: 'POST', mode: 'no-cors', body: '{}' });
  const plain = new Blob(['{}'], { type: 'text/plain' });
  await send('/v1/sessions/work/end', { method: 'POST', mode: 'no-cors', body: plain });
  navigator.sendBeacon(`${boss}/v1/logout`, '{}');
  await form('/v1/logout', 'text/plain');
  await form('/v1/sessions/work/end', 'application/x-www-form-urlencoded');
  return Object.entries(found).filter(([, one]) => one !== 'no');
}"""


class _Hostile(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><body>hostile")

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def hostile_server() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hostile)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def foreign(bench: PageBench, page: Page, address: str) -> Page:
    """Another tab of the same browser, with the same cookies."""
    tab = page.context.new_page()
    tab.goto(address)
    return tab


# 127.0.0.1 with another port is the same site: the browser sends it our cookie. localhost is another site.
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["port", "site"])
def test_page_of_another_origin_reads_and_changes_nothing(bench: PageBench, host: str) -> None:
    bench.agent("work")
    page = bench.open()
    with hostile_server() as port:
        tab = foreign(bench, page, f"http://{host}:{port}/")
        assert tab.evaluate(_TRY, bench.address) == []
        tab.close()
    (login,) = bench.boss.client.get("logins")["logins"]
    assert bench.boss.client.get("sessions", "work")["session"]["ended"] is None
    page.reload()
    live(page)
    assert login["id"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["port", "site"])
def test_page_of_another_origin_cannot_frame_ours_or_keep_a_hold_of_its_window(
    bench: PageBench, host: str
) -> None:
    page = bench.open()
    with hostile_server() as port:
        tab = foreign(bench, page, f"http://{host}:{port}/")
        tab.evaluate(
            """(boss) => new Promise((done) => {
              const frame = document.createElement('iframe');
              frame.onload = done; frame.src = boss; document.body.append(frame);
            })""",
            bench.address,
        )
        framed = [one for one in tab.frames if one.parent_frame is not None]
        assert all(one.locator("#page, h1").count() == 0 for one in framed)
        with tab.context.expect_page() as opened:
            tab.evaluate("(boss) => { window.ours = window.open(boss); }", bench.address)
        ours = opened.value
        live(ours)  # the user sees the page; the other page has no hold of it
        assert ours.evaluate("window.opener") is None
        until(lambda: tab.evaluate("window.ours.closed"), "a window that is out of reach")
        tab.close()


def test_host_name_that_points_here_opens_nothing(bench: PageBench) -> None:
    """As after DNS rebinding: the origin of the page is that name, and the address is ours."""
    with launched(bench.browser.browser_type, "--host-resolver-rules=MAP evil.example 127.0.0.1") as browser:
        page = browser.new_page()
        path = bench.boss.client.post("logins", "links", body={})["path"]
        for where in ("/", path, "/v1/queue", "/assets/app.js"):
            answer = page.goto(f"http://evil.example:{bench.boss.port}{where}")
            assert answer is not None
            assert answer.status == 403
        assert page.evaluate("fetch('/v1/queue').then((one) => one.status)") == 403
        opened = """() => new Promise((done) => {
          const one = new WebSocket(`ws://${location.host}/v1/sessions/work/terminal`);
          one.onopen = () => done(true); one.onerror = () => done(false); })"""
        assert page.evaluate(opened) is False
    assert bench.boss.client.get("logins")["logins"] == []


def test_page_that_was_left_shows_nothing_after_the_logout(bench: PageBench) -> None:
    """The back button brings back neither a list nor a session."""
    bench.may_fail = True
    bench.agent("work").send("a secret word")
    with launched(bench.browser.browser_type, without="--disable-back-forward-cache") as browser:
        page = bench.open(where="agents", browser=browser)
        expect(page.locator(".agent")).to_contain_text("a secret word")
        page.goto("about:blank")
        bench.boss.client.post("logins", "all", "revoke", body={})
        page.go_back(wait_until="commit")
        expect(page.locator("body")).to_contain_text("remuda open")
        expect(page.locator("body")).not_to_contain_text("a secret word")
        page.close()
