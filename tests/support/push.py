"""A push service with a certificate of its own authority, and a browser that can read what it is sent."""

from __future__ import annotations

import base64
import json
import os
import queue
import ssl
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import http_ece
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from support.heimdall_client import PATIENCE


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """One for localhost, which is its own authority."""
    cert, key = folder / "push-cert.pem", folder / "push-key.pem"
    words = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    command = ["openssl", *words.split(), "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


class Pushed(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class PushService:
    """Takes everything, unless `status` says otherwise."""

    def __init__(self, certificate: tuple[Path, Path]) -> None:
        self.got: queue.Queue[Pushed] = queue.Queue()
        self.status = 201
        self.location = ""
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the name is the library's
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(service.status)
                self.send_header("Content-Length", "0")
                if service.location:
                    self.send_header("Location", service.location)
                self.end_headers()
                service.got.put(Pushed(self.path, dict(self.headers), body))

            def log_message(self, *_args: Any) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.host = f"localhost:{self._server.server_port}"
        self.url = f"https://{self.host}"
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def next(self) -> Pushed:
        return self.got.get(timeout=PATIENCE)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class PushKeys:
    """The keys that a browser makes when it subscribes."""

    def __init__(self) -> None:
        self._private = ec.generate_private_key(ec.SECP256R1())
        self._auth = os.urandom(16)
        point = self._private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.p256dh, self.auth = _encode(point), _encode(self._auth)

    def subscription(self, endpoint: str) -> dict[str, Any]:
        """As the page posts it."""
        keys = {"p256dh": self.p256dh, "auth": self.auth}
        return {"endpoint": endpoint, "expirationTime": None, "keys": keys}

    def read(self, body: bytes) -> dict[str, Any]:
        data = http_ece.decrypt(body, private_key=self._private, auth_secret=self._auth, version="aes128gcm")
        found: dict[str, Any] = json.loads(data)
        return found


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
