"""The files of the page, as they are installed in `boss/web`.

`index.html` names them as `/assets/NAME`. It is served with `/assets/DIGEST/NAME` instead, with the digest of
all files: a browser keeps these for good, and an upgraded boss has other names. Modules import each other by
relative paths, so they stay under the same digest. All other paths are revalidated by ETag. Comments of our
own modules are not sent: they are 6 % of the page without its terminal.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "web"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_PACKED = frozenset({".css", ".html", ".js", ".json", ".mjs", ".svg", ".txt", ".webmanifest"})
_INLINE = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL)
_COMMENT = {
    ".js": re.compile(rb"^[ \t]*(?://.*|/\*\*[^*]*\*/)$|(?<=[;{,]) // .*$", re.MULTILINE),
    ".css": re.compile(rb"/\*[^*\n]*\*/|(?<=[{;:,]) | (?=[{}])"),
}
_INDENT = re.compile(rb"^[ \t]+", re.MULTILINE)
"""Neither is sent of our own files, nor are spaces of CSS: 5 KB of 60 less. Lines stay: errors name them."""
_INDEX = "index.html"
_WORKER = "sw.js"
_WORKER_POLICY = ((b"content-security-policy", b"default-src 'none'"),)
"""A service worker has the policy of its own file. Ours shows notices, and fetches nothing."""
_FOR_GOOD = "public, max-age=31536000, immutable"
_REVALIDATED = "no-cache"

HARDENING: tuple[tuple[bytes, bytes], ...] = (
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
"""With every page. `nosniff` is on every answer."""


def page_policy(scripts: Iterator[bytes] | tuple[bytes, ...] = ()) -> str:
    """Return the Content-Security-Policy of the page; `scripts` are the inline ones that may run.

    xterm.js 6 sets styles of elements through the DOM, and adds <style> elements for its theme and size: only
    the latter need 'unsafe-inline'.
    """
    hashes = "".join(f" 'sha256-{digest64(one)}'" for one in scripts)
    return (
        f"default-src 'none'; script-src 'self'{hashes}; style-src 'self' 'unsafe-inline'; "
        "connect-src 'self'; img-src 'self' data:; font-src 'self'; manifest-src 'self'; worker-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    )


def digest64(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


@dataclass(frozen=True, slots=True)
class Asset:
    data: bytes
    media: str
    etag: str
    packed: bytes | None
    """With gzip; None if that is not smaller."""


@dataclass(frozen=True, slots=True)
class Served:
    """An answer: 200 or 304, its headers and its body."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Assets:
    """Reads a file when it is first requested, and again when it has changed."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._seen: tuple[tuple[str, int, int], ...] = ()
        self._digest = ""
        self._read: dict[str, Asset] = {}

    def find(self, path: str, headers: Mapping[str, str]) -> Served | None:
        """Return the answer for a path that begins with a slash; None if the file does not exist."""
        self._look()
        name, kept = path.lstrip("/"), _REVALIDATED
        if name.startswith("assets/"):
            name = name.removeprefix("assets/")
            if name.startswith(f"{self._digest}/"):
                name, kept = name.removeprefix(f"{self._digest}/"), _FOR_GOOD
        if name == _INDEX or all(name != one for one, _, _ in self._seen):
            return None
        return _answer(self._asset(name), headers, kept, _WORKER_POLICY if name == _WORKER else ())

    def index(self, headers: Mapping[str, str]) -> Served | None:
        """Return the answer for the page itself; None if it is not installed."""
        self._look()
        if all(name != _INDEX for name, _, _ in self._seen):
            return None
        asset = self._asset(_INDEX)
        policy = page_policy(tuple(one[1] for one in _INLINE.finditer(asset.data)))
        more = ((b"content-security-policy", policy.encode()), *HARDENING)
        return _answer(asset, headers, _REVALIDATED, more)

    def _look(self) -> None:
        """Find changed files: an upgrade replaces them while the boss runs."""
        seen = tuple(sorted(self._files()))
        if seen == self._seen:
            return
        self._seen = seen
        self._read.clear()
        digest = hashlib.sha256()
        for name, _, _ in seen:
            digest.update(
                f"{name}\0{hashlib.sha256((self._folder / name).read_bytes()).hexdigest()}\0".encode()
            )
        self._digest = digest.hexdigest()[:16]

    def _files(self) -> Iterator[tuple[str, int, int]]:
        for path in self._folder.rglob("*"):
            if path.suffix in _TYPES and path.is_file():
                status = path.stat()
                yield path.relative_to(self._folder).as_posix(), status.st_mtime_ns, status.st_size

    def _asset(self, name: str) -> Asset:
        if name not in self._read:
            data, suffix = (self._folder / name).read_bytes(), Path(name).suffix
            if name == _INDEX:
                data = data.replace(b"/assets/", f"/assets/{self._digest}/".encode())
            elif suffix in _COMMENT and not name.startswith("vendor/"):
                data = _INDENT.sub(b"", _COMMENT[suffix].sub(b"", data))
            packed = gzip.compress(data, 9, mtime=0) if suffix in _PACKED else data
            etag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
            self._read[name] = Asset(data, _TYPES[suffix], etag, packed if len(packed) < len(data) else None)
        return self._read[name]


def _answer(
    asset: Asset, headers: Mapping[str, str], kept: str, more: tuple[tuple[bytes, bytes], ...] = ()
) -> Served:
    packs = asset.packed is not None and "gzip" in headers.get("accept-encoding", "").lower()
    etag = f'{asset.etag[:-1]}-gz"' if packs else asset.etag
    head = (
        (b"etag", etag.encode()),
        (b"cache-control", kept.encode()),
        (b"vary", b"accept-encoding"),
        *more,
    )
    known = (one.strip().removeprefix("W/") for one in headers.get("if-none-match", "").split(","))
    if etag in known:
        return Served(304, head, b"")
    body = asset.packed if packs and asset.packed is not None else asset.data
    encoding = ((b"content-encoding", b"gzip"),) if packs else ()
    return Served(200, ((b"content-type", asset.media.encode()), *head, *encoding), body)
