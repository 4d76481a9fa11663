"""The files of a hub on this machine: keys, certificate, and the configuration of its nats-server."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.durable import replace_file
from remuda.errors import InvalidOptions, RemudaError, SessionExists, WaitTimeout
from remuda.lockfile import FileLock
from remuda.paths import home, private_folder
from remuda.proctree import is_alive
from remuda.untrusted import dump_json, one_line, parse_object

from .membership import Key, Membership
from .streams import MAX_STREAM_BYTES, server_config, stream_bytes
from .subjects import KeyRecord, Role, check_host

SERVER_NAME = "remuda-hub"
"""The one name in the hub's certificate. The key file carries the certificate, so that the address of the hub
may change."""
_CERTIFICATE_DAYS = 3650
_RELOAD_TIMEOUT = 10.0
_LOOK_INTERVAL = 0.02
_LOG_BYTES = 256 << 10
_REFUSALS_SECONDS = 86400.0
_MOST_REFUSALS = 10
_REFUSED = re.compile(
    r"\[\d+\] (?P<at>[\d/]+ [\d:]+)\.\d+ \[ERR\] (?P<source>\S+):\d+ - cid:\d+ - "
    r"(?:authentication error(?: - Nkey \"(?P<unknown>\w+)\")?"
    r"|\"(?:[^\"\\]|\\.)*\" - \"[A-Z]+/nkey:(?P<own>\w+)\" - "
    r"(?P<what>Publish|Subscription) Violation - Subject \"(?P<subject>[^\"]*)\".*)"
)
"""Lines of nats-server 2.15 in its log."""
_RELOADED = "Reloaded server configuration"
_NOT_RELOADED = "Failed to reload server configuration"


@dataclass(frozen=True, slots=True)
class HubFolder:
    path: Path

    @classmethod
    def default(cls) -> HubFolder:
        return cls(home() / "fleet" / "hub")

    @property
    def state(self) -> Path:
        """Keys by name, and the address."""
        return self.path / "hub.json"

    @property
    def config(self) -> Path:
        return self.path / "server.conf"

    @property
    def certificate(self) -> Path:
        return self.path / "certificate.pem"

    @property
    def private_key(self) -> Path:
        return self.path / "private-key.pem"

    @property
    def log(self) -> Path:
        return self.path / "server.log"

    @property
    def pid(self) -> Path:
        return self.path / "server.pid"

    @property
    def data(self) -> Path:
        return self.path / "jetstream"

    def stream_bytes(self) -> int:
        """Return how much each stream may hold on this disk. Raises `FolderUnusable`."""
        files = (Path(folder, name) for folder, _, names in os.walk(self.data) for name in names)
        used = 0
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                used += file.lstat().st_blocks * 512
        return stream_bytes(shutil.disk_usage(self.data).free + used)

    @property
    def exists(self) -> bool:
        return self.state.exists()

    # ── making ──

    def make(self, address: tuple[str, int] | None) -> None:
        """Make what is missing. `address` is where to listen; None leaves it as it was."""
        private_folder(self.path)
        private_folder(self.data)
        with self._lock():
            if not self.certificate.exists():
                certificate, private_key = make_certificate()
                replace_file(self.private_key, private_key)
                replace_file(self.certificate, certificate)
            state = self._read() if self.exists else {"admin": new_seed()[0], "keys": {}}
            listen = address or tuple(state.get("listen") or ("0.0.0.0", 4222))  # noqa: S104  # TLS and keys
            self._write({**state, "listen": list(listen)})

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._read()["listen"]
        return str(host), int(port)

    @property
    def url(self) -> str:
        """Return the name by which other machines most likely know this one."""
        if cluster := self._read().get("cluster"):
            return str(cluster)
        host, port = self.address
        name = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104  # compared
        return f"tls://[{name}]:{port}" if ":" in name else f"tls://{name}:{port}"

    @property
    def own_url(self) -> str:
        """Return the address of the hub for this machine."""
        host, port = self.address
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # compared
        name = everywhere.get(host, host)
        return f"tls://[{name}]:{port}" if ":" in name else f"tls://{name}:{port}"

    @property
    def is_cluster(self) -> bool:
        """Whether the servers are run by someone else."""
        return bool(self._read().get("cluster"))

    @property
    def replicas(self) -> int:
        return int(self._read().get("replicas") or 1)

    def use_cluster(self, url: str, replicas: int, ca: str | None) -> None:
        """Note that the hub is a server or a cluster that someone else runs. `ca` is what new keys trust."""
        with self._lock():
            self._write({**self._read(), "cluster": url, "replicas": replicas, "ca": ca})

    @property
    def accounts(self) -> bytes:
        """Return the part of the server's configuration that has keys and rights."""
        accounts = parse_object(self.config.read_bytes())["accounts"]
        return dump_json({"accounts": accounts}, indent=1).encode() + b"\n"

    def admin(self) -> Membership:
        """Return the key that may do everything. It never leaves this machine."""
        key = Key("hub", (), str(self._read()["admin"]), self.certificate.read_text())
        return Membership(key, self.own_url, "")

    # ── keys ──

    def key_records(self) -> list[KeyRecord]:
        return [
            KeyRecord(name, str(one["public"]), tuple(Role(role) for role in one["roles"]))
            for name, one in sorted(self._read()["keys"].items())
        ]

    def new_key(self, name: str, roles: tuple[Role, ...]) -> Key:
        """Make a key; the hub keeps only its public part. Raises `InvalidOptions` for a name in use."""
        check_host(name)
        with self._lock():
            state = self._read()
            if name in state["keys"]:
                raise InvalidOptions(
                    f"there is a key for '{name}'", hint=f"'remuda fleet keys revoke {name}' makes room"
                )
            seed, public = new_seed()
            state["keys"][name] = {"public": public, "roles": list(roles), "created": int(time.time())}
            self._write(state)
            self._reload()
        return Key(name, roles, seed, str(state.get("ca") or self.certificate.read_text()))

    def revoke(self, name: str) -> None:
        with self._lock():
            state = self._read()
            if (key := state["keys"].pop(name, None)) is None:
                known = ", ".join(sorted(state["keys"])) or "none"
                raise InvalidOptions(f"no key has the name '{name[:64]}'", hint=f"keys: {known}")
            state.setdefault("revoked", {})[key["public"]] = name
            self._write(state)
            self._reload()

    def _lock(self) -> FileLock:
        return FileLock(
            str(self.path / "lock"), lambda path, flags: os.open(path, flags | os.O_CLOEXEC, 0o600)
        )

    def _read(self) -> dict[str, Any]:
        try:
            return parse_object(self.state.read_bytes())
        except FileNotFoundError:
            raise InvalidOptions(
                "no hub was set up on this machine", hint="'remuda fleet serve' makes and runs one"
            ) from None
        except (OSError, ValueError) as error:
            raise InvalidOptions(f"cannot read {self.state}: {error}") from error

    def _write(self, state: dict[str, Any]) -> None:
        host, port = state["listen"]
        settings = {
            "listen": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            "pid_file": str(self.pid),
            "log_file": str(self.log),
            "log_size_limit": 4 << 20,
            "logfile_max_num": 2,
            "tls": {"cert_file": str(self.certificate), "key_file": str(self.private_key), "timeout": 5},
            # Without `always` a message that was acknowledged can be lost with the power.
            "jetstream": {
                "store_dir": str(self.data),
                "sync_interval": "always",
                # Streams have limits by the disk; the server's own would refuse those of a larger disk.
                "max_file": 8 * MAX_STREAM_BYTES,
            },
        }
        records = [
            KeyRecord(name, str(one["public"]), tuple(Role(role) for role in one["roles"]))
            for name, one in state["keys"].items()
        ]
        admin = public_of(str(state["admin"]))
        replace_file(self.state, dump_json(state, indent=1).encode() + b"\n")
        replace_file(self.config, server_config(records, admin, settings))

    def refusals(self) -> list[dict[str, Any]]:
        """Return what the server refused in the last day, by the end of its log."""
        try:
            with open(self.log, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_BYTES))
                lines = file.read(_LOG_BYTES).decode("utf-8", "replace").splitlines()
            state = self._read()
        except (OSError, RemudaError):
            return []
        known = {str(one["public"]): name for name, one in state["keys"].items()}
        return read_refusals(lines, known, state.get("revoked", {}), time.time() - _REFUSALS_SECONDS)

    # ── the running server ──

    def server_pid(self) -> int | None:
        """Return the process of the server that runs here."""
        try:
            pid = int(self.pid.read_text())
            name = (
                Path(f"/proc/{pid}/cmdline").read_bytes() if Path("/proc/self").exists() else b"nats-server"
            )
        except (OSError, ValueError):
            return None
        return pid if is_alive(pid) and b"nats-server" in name else None

    def must_not_run(self) -> None:
        if (pid := self.server_pid()) is not None:
            raise SessionExists(f"the hub is running already, as process {pid}")

    def _reload(self) -> None:
        """Make a running server read its keys again, and wait until it has."""
        pid = self.server_pid()
        if pid is None:
            return
        begin = self.log.stat().st_size if self.log.exists() else 0
        os.kill(pid, signal.SIGHUP)
        deadline = time.monotonic() + _RELOAD_TIMEOUT
        while True:
            with open(self.log, "rb") as file:
                begin = begin if os.fstat(file.fileno()).st_size >= begin else 0  # a new log was begun
                file.seek(begin)
                said = file.read().decode("utf-8", "replace")
            if _RELOADED in said:
                return
            if _NOT_RELOADED in said or self.server_pid() is None:
                raise RemudaError(f"the hub did not take the change; see {self.log}")
            if time.monotonic() > deadline:
                raise WaitTimeout(f"the hub did not read its keys again; see {self.log}")
            time.sleep(_LOOK_INTERVAL)


def read_refusals(
    lines: Iterable[str], known: Mapping[str, str], revoked: Mapping[str, str], after: float
) -> list[dict[str, Any]]:
    """Return what a server refused, by the lines of its log, the last one first.

    `known` and `revoked` are names of keys by their public part. `subject` is what a key has no right to.
    """
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for match in filter(None, map(_REFUSED.fullmatch, lines)):
        try:
            at = datetime.datetime.strptime(match["at"], "%Y/%m/%d %H:%M:%S").timestamp()
        except ValueError:
            continue
        if at < after:
            continue
        public, source = match["own"] or match["unknown"] or "", match["source"]
        what, subject = (match["what"] or "connect").lower(), one_line((match["subject"] or "")[:200])
        before = found.pop((public, source, what, subject), {"count": 0})
        found[public, source, what, subject] = {
            "at": at,
            "from": one_line(source[:80]),
            "key": known.get(public) or revoked.get(public),
            "revoked": public in revoked,
            "what": what,
            "subject": subject or None,
            "count": before["count"] + 1,
        }
    return list(found.values())[: -_MOST_REFUSALS - 1 : -1]


# ── secrets ──


def new_seed() -> tuple[str, str]:
    """Return a new key, and its public part."""
    import nkeys

    seed = bytes(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)).decode()
    return seed, public_of(seed)


def public_of(seed: str) -> str:
    """Raises `InvalidOptions` for what is not a seed."""
    import nkeys

    try:
        return bytes(nkeys.from_seed(bytearray(seed.encode())).public_key).decode()
    except Exception as error:  # its errors and those of the decoders below have no common base
        raise InvalidOptions(
            "the key file has no valid key", hint="'remuda fleet keys new' makes one"
        ) from error


def make_certificate() -> tuple[bytes, bytes]:
    """Return a certificate that is its own authority, and its private key, both as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private_key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, SERVER_NAME)])
    now = datetime.datetime.now(datetime.UTC)
    key_id = x509.SubjectKeyIdentifier.from_public_key(private_key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=_CERTIFICATE_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_id, critical=False)
        .sign(private_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    return certificate.public_bytes(pem), private_key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, plain
    )
