"""Send one notice to the desktop, to an address, to ntfy or to a browser. Blocks for at most `TIMEOUT`."""

from __future__ import annotations

import errno
import html
import http.client
import shutil
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from remuda.untrusted import dump_json, one_line, printable

from . import ntfy
from .notification import Notice, fill, fill_all
from .notify_file import PushSettings, Receiver
from .public_address import PrivateAddress, connect_public

TIMEOUT = 10.0
"""For all of the exchange. A socket's own timeout starts again with each byte."""
_TITLE, _MESSAGE = 200, 1000
"""Characters shown on a desktop."""
_OSASCRIPT = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")


class NoticeExchange:
    """One request to a receiver. `abort` ends it from another thread; then `check` raises `TimeoutError`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._is_aborted = False

    def abort(self) -> None:
        with self._lock:
            self._is_aborted = True
            self._shut_down()

    def check(self) -> None:
        if self._is_aborted:
            raise TimeoutError(errno.ETIMEDOUT, f"no complete answer within {TIMEOUT:g} s")

    def close(self) -> None:
        with self._lock:
            if self._sock is not None:
                self._sock.close()
            self._sock = None

    def handlers(
        self, create: Callable[..., socket.socket] = socket.create_connection
    ) -> tuple[urllib.request.BaseHandler, ...]:
        """Return handlers for an opener whose connections `abort` ends; `create` makes them."""

        def connect(*args: Any, **named: Any) -> socket.socket:
            return self._hold(create(*args, **named))

        class Plain(http.client.HTTPConnection):
            def __init__(self, *args: Any, **named: Any) -> None:
                super().__init__(*args, **named)
                self._create_connection = connect

        class Secure(http.client.HTTPSConnection):
            def __init__(self, *args: Any, **named: Any) -> None:
                super().__init__(*args, **named)
                self._create_connection = connect

        class PlainHandler(urllib.request.HTTPHandler):
            def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
                return self.do_open(Plain, req)

        class SecureHandler(urllib.request.HTTPSHandler):
            def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
                return self.do_open(Secure, req)

        return PlainHandler(), SecureHandler()

    def _hold(self, sock: socket.socket) -> socket.socket:
        with self._lock:
            self._sock = sock.dup()  # TLS takes the descriptor away from the socket
            if self._is_aborted:
                self._shut_down()
        return sock

    def _shut_down(self) -> None:
        if self._sock is not None:
            try:
                self._sock.shutdown(socket.SHUT_RDWR)
            except OSError:  # its peer has closed it
                pass


def place_of(receiver: Receiver) -> str:
    """Return what a log may show of the receiver: the rest of its address is often a password, as with
    Telegram."""
    if receiver.desktop:
        return "the desktop"
    if receiver.push is not None:
        return f"the browser of login {receiver.push.id} ({host_of(receiver)})"
    address = urlsplit(receiver.url)
    host = address.netloc.rpartition("@")[2]
    return one_line(f"{address.scheme}://{host}")


def host_of(receiver: Receiver) -> str:
    address = receiver.push.endpoint if receiver.push is not None else receiver.url
    return one_line(urlsplit(address).netloc)[:100]


def reason_of(error: Exception) -> str:
    """Return why it failed, without the address: the text of many errors holds it."""
    if isinstance(error, urllib.error.HTTPError):
        redirect = ", a redirect; redirects are not followed" if 300 <= error.code < 400 else ""
        return f"it answered with status {error.code}{redirect}"
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError):
        error = error.reason
    if isinstance(error, subprocess.CalledProcessError):
        return f"the program exited with {error.returncode}"
    text = error.strerror if isinstance(error, OSError) else ""
    return one_line(str(text or type(error).__name__))[:200]


_ADVICE = {
    401: "check the password or token in its headers",
    403: "check the password or token in its headers, and whether it may write there",
    404: "check the address: the topic, chat or webhook may be gone",
    410: "check the address: the topic, chat or webhook is gone",
    413: "it takes smaller notices: shorten the template",
    429: "it has got too many notices: raise threshold or cooldown, or wait",
}


def advice_of(error: Exception) -> str:
    """Return what the user can do about it."""
    if isinstance(error, urllib.error.HTTPError):
        if 300 <= error.code < 400:
            return "write the new address into the file"
        return _ADVICE.get(error.code, "try again later" if error.code >= 500 else "check its settings")
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError):
        error = error.reason
    if isinstance(error, ssl.SSLError):
        return "check its certificate; SSL_CERT_FILE names a file with one of your own authority"
    if isinstance(error, PrivateAddress):
        return "name the host in [push] hosts if you trust it"
    if isinstance(error, FileNotFoundError):
        return "install notify-send (the package is often called libnotify-bin)"
    if isinstance(error, subprocess.SubprocessError):
        return "check that a desktop runs, and that this shell belongs to it"
    return "check the address, the network, and whether the server runs"


def tell(
    receiver: Receiver,
    notice: Notice,
    exchange: NoticeExchange,
    push: PushSettings | None = None,
    key: Path | None = None,
) -> int | None:
    """Send a notice the way that the receiver takes it; a browser needs `push` and our `key`.

    Returns the status of the answer; None for a desktop. Raises as `send`, and `InvalidOptions` if a browser
    cannot be notified.
    """
    if receiver.desktop:
        show(notice.fields)
        return None
    if receiver.is_ntfy:
        data = dump_json(ntfy.document(receiver, notice)).encode()
        return _send_ntfy(receiver, "POST", ntfy.server_of(receiver), data, exchange)
    if receiver.push is None:
        return send(receiver, notice.fields, exchange)
    assert push is not None
    assert key is not None
    return _send_push(receiver, lock_screen(receiver, notice), notice.tag, exchange, push, key)


def show(fields: Mapping[str, str]) -> None:
    """Show it on the desktop, if there is one."""
    title, message = one_line(fields["title"])[:_TITLE], printable(fields["message"])[:_MESSAGE]
    if program := shutil.which("notify-send"):
        # What follows the title is Pango markup.
        command = [program, "--app-name=remuda", "--", title, html.escape(message, quote=False)]
    elif program := shutil.which("osascript"):
        command = [program, *(word for line in _OSASCRIPT for word in ("-e", line)), title, message]
    else:
        raise FileNotFoundError(errno.ENOENT, "neither notify-send nor osascript is installed")
    subprocess.run(command, check=True, timeout=TIMEOUT, capture_output=True)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the headers, and the password among them, to another host."""

    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        return None


def send(receiver: Receiver, fields: Mapping[str, str], exchange: NoticeExchange) -> int:
    """Send it, and return the status.

    Raises OSError or HTTPException if it was refused, ValueError if it cannot be sent.
    """
    headers = {name: _header(fill(value, fields)) for name, value in receiver.headers.items()}
    if receiver.json is not None:
        data = dump_json(fill_all(receiver.json, fields)).encode()
        headers.setdefault("Content-Type", "application/json")
    else:
        text = fill(receiver.body if receiver.body is not None else "{message}\n{link}", fields)
        data = text.encode("utf-8", "replace")
        headers.setdefault("Content-Type", "text/plain; charset=utf-8")
    request = urllib.request.Request(receiver.url, data, headers, method=receiver.method)  # noqa: S310
    return _exchange(request, exchange, exchange.handlers())


def clear(receiver: Receiver, tag: str, exchange: NoticeExchange, push: PushSettings, key: Path) -> None:
    """Remove a notice from the phones of an ntfy topic, or from a browser. Raises as `tell`.

    A server of ntfy before 2.16 answers with 404.
    """
    if receiver.push is None:
        _send_ntfy(receiver, "PUT", ntfy.clear_address(receiver, tag), b"", exchange)
    else:
        _send_push(receiver, {"item": tag, "over": True}, tag, exchange, push, key)


def _send_ntfy(receiver: Receiver, method: str, url: str, data: bytes, exchange: NoticeExchange) -> int:
    headers = {name: _header(value) for name, value in receiver.headers.items()}
    headers.setdefault("Content-Type", "application/json")
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310
    return _exchange(request, exchange, exchange.handlers())


def _send_push(
    receiver: Receiver,
    document: Mapping[str, Any],
    tag: str,
    exchange: NoticeExchange,
    push: PushSettings,
    key: Path,
) -> int:
    from . import webpush

    assert receiver.push is not None
    webpush.check_installed()
    data = webpush.encrypt(receiver.push, dump_json(document).encode())
    topic = ntfy.sequence_of(tag) if tag else ""
    headers = webpush.headers(receiver.push, key, push.contact, topic)
    request = urllib.request.Request(receiver.push.endpoint, data, headers, method="POST")  # noqa: S310
    # Without a proxy: it would connect to any address for us.
    handlers = (urllib.request.ProxyHandler({}), *exchange.handlers(connect_public(push.hosts)))
    return _exchange(request, exchange, handlers)


def lock_screen(receiver: Receiver, notice: Notice) -> dict[str, str]:
    """Return what a browser shows, also while it is locked: no command and no message, unless asked for."""
    fields = notice.fields
    body = fields["message"] if receiver.details else fields["tool"]
    return {"title": fields["title"], "body": body, "item": notice.tag}


def _exchange(
    request: urllib.request.Request,
    exchange: NoticeExchange,
    handlers: tuple[urllib.request.BaseHandler, ...],
) -> int:
    """Return the status of a successful answer."""
    opener = urllib.request.build_opener(_NoRedirect, *handlers)
    try:
        with opener.open(request, timeout=TIMEOUT) as answer:  # http alone was let in
            answer.read(1 << 16)
            status = int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        raise
    except (OSError, ValueError, HTTPException):
        exchange.check()
        raise
    finally:
        exchange.close()
    exchange.check()
    return status


def _header(text: str) -> str:
    """Return one line, in characters that a header may have."""
    return " ".join(text.split()).encode("ascii", "replace").decode()
