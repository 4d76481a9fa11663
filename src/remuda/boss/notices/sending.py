"""Send one notice to the desktop or to an address. Blocks for at most `TIMEOUT`."""

from __future__ import annotations

import errno
import html
import http.client
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from remuda.untrusted import dump_json, one_line, printable

from .notification import Receiver, fill, fill_all

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

    def handlers(self) -> tuple[urllib.request.BaseHandler, ...]:
        """Make an opener whose connections `abort` ends."""
        connect = self._connect

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

    def _connect(self, *args: Any, **named: Any) -> socket.socket:
        sock = socket.create_connection(*args, **named)
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
    address = urlsplit(receiver.url)
    host = address.netloc.rpartition("@")[2]
    return one_line(f"{address.scheme}://{host}")


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


def show(_receiver: Receiver, fields: Mapping[str, str], _exchange: NoticeExchange) -> None:
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


def send(receiver: Receiver, fields: Mapping[str, str], exchange: NoticeExchange) -> None:
    """Send it. Raises OSError or HTTPException if it was refused, ValueError if it cannot be sent."""
    headers = {name: _header(fill(value, fields)) for name, value in receiver.headers.items()}
    if receiver.json is not None:
        data = dump_json(fill_all(receiver.json, fields)).encode()
        headers.setdefault("Content-Type", "application/json")
    else:
        text = fill(receiver.body if receiver.body is not None else "{message}\n{link}", fields)
        data = text.encode("utf-8", "replace")
        headers.setdefault("Content-Type", "text/plain; charset=utf-8")
    request = urllib.request.Request(receiver.url, data, headers, method=receiver.method)  # noqa: S310
    opener = urllib.request.build_opener(_NoRedirect, *exchange.handlers())
    try:
        with opener.open(request, timeout=TIMEOUT) as answer:  # http alone was let in
            answer.read(1 << 16)
    except urllib.error.HTTPError as error:
        error.close()
        raise
    except (OSError, ValueError, HTTPException):
        exchange.check()
        raise
    finally:
        exchange.close()
    exchange.check()


def _header(text: str) -> str:
    """One line, in characters that a header may have."""
    return " ".join(text.split()).encode("ascii", "replace").decode()
