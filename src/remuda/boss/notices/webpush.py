"""Messages to browsers, encrypted and signed: RFC 8291 and 8292. Only this module imports pywebpush.

pywebpush is an extra, and importing it takes 0.6 s and 25 MB: it is loaded when a browser subscribes or gets
its first notice. It encrypts and signs; `sending` sends, because pywebpush follows redirects and connects to
any address.
"""

from __future__ import annotations

import importlib.util
import time
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from remuda.admission.credentials import load_token
from remuda.errors import InvalidOptions

from .notify_file import Subscription

HOW_TO_INSTALL = "pip install 'remuda[push]'"
CONTACT = "mailto:push@example.com"
"""Push services want an address; some refuse a request without one."""
_TTL = 4 * 3600
_SIGNED_FOR = 3600.0


def is_installed() -> bool:
    return importlib.util.find_spec("pywebpush") is not None


def check_installed() -> None:
    if not is_installed():
        raise InvalidOptions(
            "Web Push is not installed", hint=f"run {HOW_TO_INSTALL}, and start the boss again"
        )


@cache
def _signer(key: Path) -> Any:
    """Return what signs. The key is made once: 32 random bytes, which are a private key of P-256."""
    from py_vapid import Vapid02, VapidException

    try:
        return Vapid02.from_raw(load_token(key).encode())
    except (ValueError, VapidException):
        raise InvalidOptions(
            f"{key} is not a key for Web Push",
            hint="remove it to get a new one; every browser must subscribe again",
        ) from None


def public_key(key: Path) -> str:
    """Return what a browser needs to subscribe. Makes the key if there is none."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    from py_vapid.utils import b64urlencode

    point = _signer(key).public_key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return str(b64urlencode(point))


def encrypt(subscription: Subscription, data: bytes) -> bytes:
    """Raises `InvalidOptions` if the keys of the subscription are not valid."""
    from pywebpush import WebPusher, WebPushException

    keys = {"p256dh": subscription.p256dh, "auth": subscription.auth}
    try:
        pusher = WebPusher({"endpoint": subscription.endpoint, "keys": keys})
        if pusher.auth_key is None or len(pusher.auth_key) != 16:
            raise ValueError
        return bytes(pusher.encode(data, "aes128gcm")["body"])
    except (ValueError, TypeError, IndexError, WebPushException):
        raise InvalidOptions("the keys of the subscription are not valid") from None


def headers(subscription: Subscription, key: Path, contact: str, topic: str = "") -> dict[str, str]:
    """Return the headers of the request; a later notice with the same topic replaces this one."""
    parts = urlsplit(subscription.endpoint)
    claims = {
        "sub": contact or CONTACT,
        "aud": f"https://{parts.netloc}",
        "exp": int(time.time() + _SIGNED_FOR),
    }
    return {
        **_signer(key).sign(claims),
        "Content-Encoding": "aes128gcm",
        "Content-Type": "application/octet-stream",
        "TTL": str(_TTL),
        "Urgency": "high",
        **({"Topic": topic} if topic else {}),
    }
