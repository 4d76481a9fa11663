"""Notices to browsers: which addresses are used, how a message is sealed, and what a lock screen shows."""

from __future__ import annotations

import socket
import stat
import sys
from pathlib import Path

import pytest
from http_ece import ECEException
from py_vapid import Vapid02

from remuda.boss.attention.model import BossSession, Item, Reason
from remuda.boss.notices import webpush
from remuda.boss.notices.notification import Notice, words
from remuda.boss.notices.notify_file import Receiver, Subscription
from remuda.boss.notices.public_address import (
    PrivateAddress,
    check_endpoint,
    connect_public,
    is_public,
    resolve,
)
from remuda.boss.notices.sending import lock_screen
from remuda.errors import InvalidOptions
from support.push import PushKeys

NONE: frozenset[str] = frozenset()


# ── addresses ──


@pytest.mark.parametrize(
    "url",
    [
        "http://push.example.net/x",
        "https://",
        "https:///x",
        "https://me@push.example.net/x",
        "https://push.example.net:0/x",
        "https://push.example.net:port/x",
        "https://push.example.net/\r\nX-Evil: 1",
        "https://push.example.net/a b",
        "https://push.example.net/\x00",
        "https://püsh.example.net/x",
        "https://[::1]/x",
        "https://[::1",
        "file:///etc/passwd",
        "HTTPS://push.example.net/x",
        "//push.example.net/x",
        "https://push.example.net/" + "x" * 1000,
        "",
    ],
)
def test_what_is_not_an_address_of_a_push_service_is_refused(url: str) -> None:
    with pytest.raises(InvalidOptions, match="the endpoint must"):
        check_endpoint(url)


def test_address_of_a_push_service_is_taken() -> None:
    assert check_endpoint("https://push.example.net/wpush/v2/abc_-=") == ("push.example.net", 443)
    assert check_endpoint("https://push.example.net:8443/x") == ("push.example.net", 8443)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "2002:7f00:1::",
        "64:ff9b::7f00:1",
        "64:ff9b::a01:203",
    ],
)
def test_private_address_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "2130706433", "0x7f.1", "127.1", "0"])
def test_host_on_this_machine_is_refused_however_it_is_written(host: str) -> None:
    with pytest.raises(PrivateAddress):
        resolve(host, 443, NONE)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PrivateAddress):
            connect_public(frozenset({"localhost:1", "other"}))((host, port), 5)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()  # no one has come


def test_host_that_the_user_names_may_have_a_private_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for allowed in ("localhost", f"localhost:{port}"):
            connect_public(frozenset({allowed}))(("localhost", port), 5).close()


def test_name_that_is_too_long_or_unknown_is_an_oserror() -> None:
    for host in ("x" * 64 + ".example", "." + "x" * 200):
        with pytest.raises(OSError):
            resolve(host, 443, NONE)


# ── what is sent ──


def subscription(keys: PushKeys) -> Subscription:
    return Subscription("l1", "https://push.example.net:8443/x", keys.p256dh, keys.auth, 1.0)


def test_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "push-key"
    public = webpush.public_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    webpush._signer.cache_clear()
    assert webpush.public_key(path) == public
    assert len(public) == 87
    assert public != webpush.public_key(tmp_path / "other")


def test_key_that_others_can_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "push-key"
    path.write_text("A" * 43)  # zero is no private key
    path.chmod(0o600)
    with pytest.raises(InvalidOptions, match="is not a key for Web Push"):
        webpush.public_key(path)
    path.chmod(0o644)
    with pytest.raises(InvalidOptions, match="other users can read"):
        webpush.public_key(path)


def test_message_is_read_by_its_browser_alone_and_is_signed(tmp_path: Path) -> None:
    keys = PushKeys()
    body = webpush.encrypt(subscription(keys), b'{"title": "secret"}')
    assert b"secret" not in body
    assert keys.read(body) == {"title": "secret"}
    with pytest.raises(ECEException):
        PushKeys().read(body)
    found = webpush.headers(subscription(keys), tmp_path / "key", "mailto:me@example.net", "t1")
    assert Vapid02.verify(found["Authorization"])
    assert (found["Content-Encoding"], found["Topic"]) == ("aes128gcm", "t1")


@pytest.mark.parametrize(
    ("p256dh", "auth"),
    [("", ""), ("AAAA", "AAAA"), ("A" * 87, "A" * 22), ("B" + "A" * 86, "A" * 22), ("!", "!"), ("ü", "x")],
)
def test_keys_that_are_none_are_refused(p256dh: str, auth: str) -> None:
    with pytest.raises(InvalidOptions, match="the keys of the subscription are not valid"):
        webpush.encrypt(Subscription("l1", "https://x/", p256dh, auth, 1.0), b"x")


def test_auth_secret_of_another_length_is_refused() -> None:
    keys = PushKeys()
    with pytest.raises(InvalidOptions, match="not valid"):
        webpush.encrypt(Subscription("l1", "https://x/", keys.p256dh, "AAAA", 1.0), b"x")


def test_lock_screen_shows_the_message_only_if_asked_for() -> None:
    detail = {"tool": "Bash"}
    fields = words(
        Item("i", "s", Reason.PERMISSION, 1.0, "Bash: SECRET", detail), BossSession("s", name="work")
    )
    shown = lock_screen(Receiver(details=False), Notice(fields, "i"))
    assert shown == {"title": "work: permission", "body": "Bash", "item": "i"}
    assert lock_screen(Receiver(), Notice(fields, "i"))["body"] == "Bash: SECRET"


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pywebpush", None)
    assert not webpush.is_installed()
    with pytest.raises(InvalidOptions, match="Web Push is not installed") as refused:
        webpush.check_installed()
    assert "pip install 'remuda[push]'" in str(refused.value)
