"""The page over time: reloaded, without a boss, and with one that came back."""

from __future__ import annotations

import signal

import pytest
from playwright.sync_api import ViewportSize, expect

from remuda.errors import NotSafe
from support.browser import PHONE, WIDE, PageBench, live, ready, take_control
from support.keeper import until


def test_boss_that_is_killed_and_comes_back(bench: PageBench) -> None:
    """The page says at once that it shows the past, and then what happened meanwhile."""
    bench.may_fail = bench.boss.may_complain = True
    post = bench.agent("work")
    page = bench.open()
    message = post.put("RUNBASH touch made")
    ready(page)
    port = bench.boss.port
    bench.boss.end(signal.SIGKILL)
    expect(page.get_by_role("alert")).to_contain_text("everything below is as it was then")
    expect(page.locator("main")).to_have_class("old")
    page.locator(".actions").get_by_role("button", name="Allow").click(force=True)
    expect(page.locator(".actions .note")).to_contain_text("Not connected")
    post.watcher.answer(b"1")  # meanwhile, in the terminal
    post.ended(message)
    bench.boss.start(port)
    live(page)
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator("main")).to_have_class("")
    expect(page.locator(".list .row", has_text="permission")).to_have_count(0)


def test_reload_keeps_the_login_and_the_place(bench: PageBench) -> None:
    bench.agent("one").send("hello")
    bench.agent("two").send("hello")
    page = bench.open()
    expect(page.locator(".list .row")).to_have_count(2)
    page.keyboard.press("j")
    expect(page.locator(".item h2")).to_contain_text("two")
    page.reload()
    live(page)
    expect(page.locator(".item h2")).to_contain_text("two")


def test_revoked_login_says_so_and_shows_nothing_new(bench: PageBench) -> None:
    bench.may_fail = True
    page = bench.open()
    (login,) = bench.boss.client.get("logins")["logins"]
    bench.boss.client.post("logins", login["id"], "revoke", body={})
    expect(page.get_by_role("alert")).to_contain_text("logged out")


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_log_out_ends_the_login_and_leaves_nothing_on_the_screen(
    bench: PageBench, size: ViewportSize
) -> None:
    bench.may_fail = True
    bench.agent("work").send("a secret word")
    page = bench.open(size)
    expect(page.locator(".list .row")).to_contain_text("a secret word")
    if size is WIDE:
        page.goto(f"{bench.address}/#/session/{only_session(bench)}")
        expect(page.locator(".xterm-rows")).to_contain_text("a secret word")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("alert")).to_contain_text("logged out")
    expect(page.locator("body")).not_to_contain_text("a secret word")
    expect(page).to_have_title("Remuda")
    assert until(lambda: not bench.boss.client.get("logins")["logins"], "no login")


def test_terminal_of_a_connection_that_stalls_says_that_it_is_old(bench: PageBench) -> None:
    """As after sleep: nothing comes, and nothing is closed."""
    bench.may_fail = True
    post = bench.agent("work")
    page = bench.open()
    page.clock.install()
    page.goto(f"{bench.address}/#/session/{only_session(bench)}")
    page.reload()
    expect(page.locator(".terminal .state")).to_have_text("read-only")
    take_control(page)
    assert bench.boss.process is not None
    bench.boss.process.signal(signal.SIGSTOP)
    try:
        page.clock.fast_forward(30_000)
        expect(page.get_by_role("alert")).to_contain_text("everything below is as it was then")
        expect(page.locator(".terminal .state")).to_have_text("not connected: this is old")
        post.send("meanwhile")
    finally:
        bench.boss.process.signal(signal.SIGCONT)
    live(page)
    expect(page.locator(".terminal .state")).to_have_text("read-only")  # control does not come back
    expect(page.locator(".xterm-rows")).to_contain_text("REPLY#1 to: meanwhile")


def only_session(bench: PageBench) -> str:
    (session,) = until(lambda: bench.boss.client.get("sessions")["sessions"], "the session")
    return str(session["id"])


@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_session_that_ends_while_its_terminal_is_open(bench: PageBench, how: str) -> None:
    post = bench.agent("work")
    post.send("hello")
    page = bench.open()
    page.goto(f"{bench.address}/#/session/{only_session(bench)}")
    take_control(page)
    if how == "ends":
        bench.boss.client.post("sessions", "work", "end", body={})
    else:
        post.kept.keeper.signal(signal.SIGKILL)
    expect(page.locator(".terminal .state")).to_have_text("ended: the last screen")
    expect(page.get_by_role("button", name="Take control")).to_have_count(0)
    expect(page.locator(".who .state")).to_have_text("dead")
    words = "Resume this session with" if how == "ends" else "REPLY#1 to: hello"
    expect(page.locator(".xterm-rows")).to_contain_text(words)


def test_session_that_another_one_has_replaced_leads_to_that(bench: PageBench) -> None:
    """By its name; what is shown and sent is then of that one alone."""
    bench.agent("work").send("the first")
    old = only_session(bench)
    bench.boss.client.post("sessions", "work", "end", body={})
    until(lambda: bench.boss.client.get("sessions", old)["session"]["ended"], "its end")
    bench.agent("work").send("the second")
    new = until(lambda: bench.boss.client.get("sessions")["sessions"], "the second")[0]["id"]
    page = bench.open()
    page.goto(f"{bench.address}/#/session/{old}/conversation")
    page.wait_for_url(f"**/#/session/{new}/conversation")
    expect(page.locator(".talk")).to_contain_text("the second")
    expect(page.locator(".xterm-rows")).to_contain_text("the second")
    expect(page.locator(".talk")).not_to_contain_text("the first")
    with pytest.raises(NotSafe):
        bench.boss.client.post("sessions", old, "end", body={})


def test_events_that_were_missed_are_read_again(bench: PageBench) -> None:
    """A browser that was offline continues from the last id, without a new list."""
    bench.may_fail = True
    post = bench.agent("work")
    page = bench.open()
    expect(page.get_by_text("Nothing waits for you")).to_be_visible()
    page.context.set_offline(True)
    page.evaluate("window.dispatchEvent(new Event('offline'))")
    post.send("hello")
    page.context.set_offline(False)
    expect(page.locator(".list .row")).to_contain_text("REPLY#1")
    live(page)
