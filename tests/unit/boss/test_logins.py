"""Login links and logins without HTTP, the tries of strangers, and where the boss may be reached."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remuda.boss.access import Access, read_access
from remuda.boss.http.assets import Assets, page_policy
from remuda.boss.http.gate import Site
from remuda.boss.logins import LINK_LIFE, LOGIN_LIFE, TRIES, TRIES_WINDOW, Logins, WrongTries, client_key
from remuda.boss.service import BossService
from remuda.errors import InvalidOptions, NotInQueue, StoreFailed
from support.boss import Clock, with_service
from support.heimdall_client import PATIENCE

# ── logins ──


def test_link_works_once_and_only_in_time(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        steady = Clock()
        logins = Logins(service, steady)
        late, used = logins.make_link(), logins.make_link()
        assert logins.login_of(await logins.log_in(used, "n", "Firefox", "127.0.0.1")) is not None
        steady.now += LINK_LIFE
        for secret in (used, late, "", "x" * 32):
            with pytest.raises(NotInQueue):
                await logins.log_in(secret, "n", "Firefox", "127.0.0.1")
        assert len(logins.list()) == 1
        logins.close()

    with_service(tmp_path, work)


def test_login_ends_after_its_time_and_closes_what_it_opened(tmp_path: Path) -> None:
    clock = Clock(1_000_000.0)

    async def work(service: BossService) -> None:
        logins = Logins(service, Clock())
        cookie = await logins.log_in(logins.make_link(), "n", "a\x1b[31m\nb" * 100, "127.0.0.1")
        login = logins.login_of(cookie)
        closed: list[int] = []
        logins.on_end(login, lambda: closed.append(1))
        logins.on_end(login, lambda: closed.append(2))()  # its stream has ended before
        clock.now += LOGIN_LIFE - 1
        assert logins.login_of(cookie) == login
        assert logins.list()[0].client.isprintable()
        assert len(logins.list()[0].client) <= 200
        clock.now += 1
        assert logins.login_of(cookie) is None
        assert (logins.list(), closed) == ([], [1])
        logins.on_end(login, lambda: closed.append(3))
        assert closed == [1, 3]
        logins.close()

    with_service(tmp_path, work, clock)


def test_logins_are_bounded_and_the_one_that_rested_longest_goes(tmp_path: Path) -> None:
    clock = Clock(1_000_000.0)

    async def work(service: BossService) -> None:
        logins = Logins(service, Clock())
        cookies = []
        for _ in range(65):
            clock.now += 1000
            cookies.append(await logins.log_in(logins.make_link(), "n", "b", "127.0.0.1"))
            logins.login_of(cookies[0])
        assert len(logins.list()) == 64
        assert logins.login_of(cookies[0]) is not None
        assert logins.login_of(cookies[1]) is None
        secrets = [logins.make_link() for _ in range(33)]
        with pytest.raises(NotInQueue):
            await logins.log_in(secrets[0], "n", "b", "127.0.0.1")
        logins.close()

    with_service(tmp_path, work, clock)


def test_logins_move_with_the_clock_and_survive_a_restart(tmp_path: Path) -> None:
    clock = Clock(1_000_000.0)
    cookies: list[str] = []

    async def first(service: BossService) -> None:
        logins = Logins(service, Clock())
        cookies.append(await logins.log_in(logins.make_link(), "n", "b", "127.0.0.1"))
        logins.close()

    async def later(service: BossService) -> None:
        logins = Logins(service, Clock())
        assert logins.login_of(cookies[0]) is not None
        assert logins.list()[0].expires_at <= service.clock() + LOGIN_LIFE
        await asyncio.sleep(0)  # what was moved is written
        logins.close()

    with_service(tmp_path, first, clock)
    clock.now -= 900_000  # while no boss ran
    with_service(tmp_path, later, clock)
    with_service(tmp_path, later, clock)


@pytest.mark.parametrize("stored", ["", "[]", "{", '{"a": 1, "b": {}, "c": {"expires_at": "x"}}'])
def test_note_that_is_damaged_logs_no_one_in(tmp_path: Path, stored: str) -> None:
    async def work(service: BossService) -> None:
        await service.store.save_note("logins", stored)
        logins = Logins(service, Clock())
        assert logins.list() == []
        logins.close()

    with_service(tmp_path, work)


def test_cookie_works_only_under_its_own_name(tmp_path: Path) -> None:
    """A browser sends the cookie of loopback to servers of other users on other ports of this machine."""

    async def work(service: BossService) -> None:
        logins = Logins(service, Clock())
        cookie = await logins.log_in(logins.make_link(), "remuda-4127", "b", "127.0.0.1")
        name, _, secret = cookie.partition("=")
        assert (name, logins.login_of(cookie) is not None) == ("remuda-4127", True)
        for other in (secret, f"__Host-remuda={secret}", f"remuda-4128={secret}"):
            assert logins.login_of(other) is None
        logins.close()

    with_service(tmp_path, work)


def test_link_that_comes_twice_at_the_same_moment_logs_one_in(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        logins = Logins(service, Clock())
        secret = logins.make_link()
        tries = (logins.log_in(secret, "n", str(number), "127.0.0.1") for number in range(20))
        ended = await asyncio.gather(*tries, return_exceptions=True)
        assert sorted(type(one).__name__ for one in ended) == ["NotInQueue"] * 19 + ["str"]
        assert len(logins.list()) == 1
        logins.close()

    with_service(tmp_path, work)


def test_login_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        logins = Logins(service, Clock())
        service.store._writer.execute("PRAGMA query_only=1")  # the disk takes nothing
        with pytest.raises(StoreFailed):
            await logins.log_in(logins.make_link(), "n", "b", "127.0.0.1")
        assert logins.list() == []
        logins.close()

    with_service(tmp_path, work)


def test_login_that_was_ended_while_the_disk_was_full_does_not_come_back(tmp_path: Path) -> None:
    cookies: list[str] = []

    async def work(service: BossService) -> None:
        logins = Logins(service, Clock(), 0.001)
        cookies.append(await logins.log_in(logins.make_link(), "n", "b", "127.0.0.1"))
        service.store._writer.execute("PRAGMA query_only=1")
        with pytest.raises(StoreFailed):
            await logins.revoke("all")
        assert logins.login_of(cookies[0]) is None
        service.store._writer.execute("PRAGMA query_only=0")
        async with asyncio.timeout(PATIENCE):
            while service.store.note("logins") != "{}":
                await asyncio.sleep(0.001)
        logins.close()

    async def later(service: BossService) -> None:
        logins = Logins(service, Clock())
        assert logins.login_of(cookies[0]) is None
        logins.close()

    with_service(tmp_path, work)
    with_service(tmp_path, later)


def test_tries_are_counted_by_client_and_forgotten() -> None:
    clock = Clock()
    tries = WrongTries(clock)
    for _ in range(TRIES + 1):
        assert not tries.is_limited("a")
        tries.count("a")
    assert (tries.is_limited("a"), tries.is_limited("b")) == (True, False)
    clock.now += TRIES_WINDOW
    assert not tries.is_limited("a")
    for number in range(5000):
        tries.count(str(number))
    assert len(tries._wrong) <= 1024


def test_client_is_an_address_or_its_network() -> None:
    assert client_key("203.0.113.7") == "203.0.113.7"
    assert client_key("2001:db8::1") == client_key("2001:db8::ffff") != client_key("2001:db8:0:1::1")
    assert client_key("127.0.0.1 (another user)") == "127.0.0.1 (another user)"


# ── where it may be reached ──

TLS = {"tls_cert": "/c.pem", "tls_key": "/k.pem"}
PROXY = {"public_url": "https://b.example", "trusted_proxy": "10.0.0.0/24"}


@pytest.mark.parametrize(
    ("table", "more"),
    [
        ({}, []),
        ({"listen": "127.0.0.1:5000"}, ["http://127.0.0.1:5000"]),
        ({"listen": "192.0.2.5:4443", **TLS}, ["https://192.0.2.5:4443"]),
        ({"listen": "[2001:db8::5]:443", **TLS}, ["https://[2001:db8::5]"]),
        (
            {"listen": "0.0.0.0:4443", **TLS, "public_url": "https://h.ts.net:4443/"},
            ["https://h.ts.net:4443"],
        ),
        ({"listen": "192.0.2.5:4127", **PROXY}, ["https://b.example"]),
        (PROXY, ["https://b.example"]),
        ({"public_url": "http://localhost:5000"}, ["http://localhost:5000"]),
    ],
)
def test_access_that_is_whole_is_taken(table: dict[str, Any], more: list[str]) -> None:
    access = read_access(table)
    assert access.urls(4127) == ("http://127.0.0.1:4127", *more)


@pytest.mark.parametrize(
    "table",
    [
        {"listen": "192.0.2.5:4443"},
        {"listen": "[::]:4443"},
        {"listen": "192.0.2.5:4443", "public_url": "https://b.example"},
        {"listen": "192.0.2.5:4443", "public_url": "http://localhost:1", "trusted_proxy": "127.0.0.1"},
        {"listen": "0.0.0.0:4443", **TLS},
        {"listen": "host:4443", **TLS},
        {"listen": "192.0.2.5", **TLS},
        {"listen": "192.0.2.5:99999", **TLS},
        {"listen": "2001:db8::5:443", **TLS},
        {"listen": "192.0.2.5:4443", "tls_cert": "/c.pem"},
        {"listen": "192.0.2.5:4443", "tls_cert": "c.pem", "tls_key": "/k.pem"},
        TLS,
        {"public_url": "https://b.example"},
        {"public_url": "http://b.example", "trusted_proxy": "127.0.0.1"},
        {"public_url": "https://b.example/path", "trusted_proxy": "127.0.0.1"},
        {"public_url": "https://me@b.example", "trusted_proxy": "127.0.0.1"},
        {"public_url": "b.example", "trusted_proxy": "127.0.0.1"},
        {"public_url": "https://b.example:x", "trusted_proxy": "127.0.0.1"},
        {"trusted_proxy": "127.0.0.1"},
        {"public_url": "https://b.example", "trusted_proxy": "0.0.0.0/0"},
        {"public_url": "https://b.example", "trusted_proxy": ["proxy"]},
        {"public_url": "https://b.example", "trusted_proxy": [1.5]},
    ],
)
def test_access_that_would_open_the_boss_to_others_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions) as refused:
        read_access(table)
    assert "[boss]" in refused.value.message


def test_address_without_encryption_is_for_the_proxy_alone() -> None:
    access = read_access({"listen": "192.0.2.5:4127", **PROXY})
    assert access.takes("10.0.0.9")
    assert access.takes("::ffff:10.0.0.9")
    assert not access.takes("10.0.1.9")
    assert not access.takes("nonsense")
    assert not Access().is_proxy("127.0.0.1")


def test_cookie_is_named_by_what_a_browser_would_mix_up() -> None:
    assert Site("http://127.0.0.1:4127").cookie != Site("http://127.0.0.1:4128").cookie
    assert Site("https://b.example:8443").cookie == "__Host-remuda"


# ── files of the page ──


def test_assets_are_kept_by_digest_and_follow_a_change(tmp_path: Path) -> None:
    (tmp_path / "vendor").mkdir()
    (tmp_path / "index.html").write_text(
        '<script src="/assets/a.js"></script><script type="importmap">{}</script>'
    )
    (tmp_path / "a.js").write_text("import './vendor/b.js'" * 50)
    (tmp_path / "vendor" / "b.js").write_text("1")
    (tmp_path / "secret.py").write_text("no")
    assets = Assets(tmp_path)
    index = assets.index({})
    assert index is not None
    name = index.body.decode().split('"')[1]
    assert name.startswith("/assets/")
    assert name.endswith("/a.js")
    policy = dict(index.headers)[b"content-security-policy"].decode()
    assert policy == page_policy((b"{}",))
    kept, plain = assets.find(name, {}), assets.find("/assets/a.js", {"accept-encoding": "gzip, br"})
    assert kept is not None
    assert plain is not None
    assert b"immutable" in dict(kept.headers)[b"cache-control"]
    assert dict(plain.headers)[b"cache-control"] == b"no-cache"
    assert len(plain.body) < len(kept.body)
    etag = dict(kept.headers)[b"etag"].decode()
    known = assets.find("/assets/a.js", {"if-none-match": f'W/"x", {etag}'})
    assert known is not None
    assert (known.status, known.body) == (304, b"")
    for path in (
        "/assets/secret.py",
        "/assets/../a.js",
        "/assets/index.html",
        "/index.html",
        "/assets/vendor",
        "/",
    ):
        assert assets.find(path, {}) is None, path
    (tmp_path / "vendor" / "b.js").write_text("22")
    changed = assets.index({})
    assert changed is not None
    assert changed.body != index.body
    stale = assets.find(name, {})
    assert stale is None  # a page of before the upgrade loads again, instead of mixing old and new files
