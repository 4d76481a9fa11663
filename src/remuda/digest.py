"""A digest without OpenSSL: `hashlib` loads that, which costs a process 3 MB and 3 ms."""

from __future__ import annotations

# Once: an import that fails is searched for again each time.
try:
    from _sha2 import sha256 as _make  # 3.12 and later
except ImportError:
    try:
        from _sha256 import sha256 as _make
    except ImportError:  # a Python without its own
        from hashlib import sha256 as _make


def sha256(data: bytes) -> str:
    """Return the digest in hexadecimal digits."""
    return str(_make(data).hexdigest())
