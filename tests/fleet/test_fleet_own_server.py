"""A NATS server that someone else runs, with a certificate and an administrator of its own."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from remuda.fleet.hub import Hub
from remuda.fleet.hub_folder import new_seed
from remuda.fleet.membership import Key, Membership, write_key
from remuda.fleet.server import find_server
from remuda.fleet.subjects import SESSIONS
from support.fleet import FleetBench
from support.heimdall_client import PATIENCE
from support.keeper import until


class OwnServer:
    """A server with the accounts of `fleet config`, and a user of its own with all rights."""

    def __init__(self, bench: FleetBench) -> None:
        self.bench, self.hub = bench, bench.hub
        self.folder = bench.folder / "nats"
        self.folder.mkdir()
        self.url = f"tls://127.0.0.1:{bench.hub.port}"
        self.certificate = self.folder / "certificate.pem"
        self._make_certificate()
        seed, self._admin = new_seed()
        self.admin_key = Key("admin", (), seed, "")
        self.key_file = self.folder / "admin.key"
        write_key(self.key_file, self.admin_key)
        self._config, self._log = self.folder / "nats.conf", self.folder / "log"
        self.configure()
        self._process = subprocess.Popen([find_server(), "-c", str(self._config)])
        until(lambda: self._log.exists() and "Server is ready" in self._log.read_text(), "the server")

    def _make_certificate(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "nats.example")])
        now = datetime.datetime.now(datetime.UTC)
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number()).not_valid_before(now)
        made = made.not_valid_after(now + datetime.timedelta(days=1)).add_extension(here, critical=False)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        pem, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        self.certificate.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(pem))
        secret = key.private_bytes(pem, kind, serialization.NoEncryption())
        (self.folder / "private-key.pem").write_bytes(secret)

    def configure(self) -> None:
        accounts: dict[str, Any] = json.loads(self.hub.remuda("fleet", "config").out)
        accounts["accounts"]["FLEET"]["users"].append({"nkey": self._admin})
        config = {
            **accounts,
            "listen": f"127.0.0.1:{self.hub.port}",
            "max_payload": 8 << 20,
            "log_file": str(self._log),
            "tls": {"cert_file": str(self.certificate), "key_file": str(self.folder / "private-key.pem")},
            "jetstream": {"store_dir": str(self.folder / "data"), "sync_interval": "always"},
        }
        self._config.write_text(json.dumps(config))

    def reload(self) -> None:
        self.configure()
        count = self._log.read_text().count("Reloaded server configuration")
        self._process.send_signal(signal.SIGHUP)
        until(lambda: self._log.read_text().count("Reloaded server configuration") > count, "the reload")

    def sessions(self) -> list[str]:
        key = Key("admin", (), self.admin_key.seed, self.certificate.read_text())

        async def ask() -> list[str]:
            hub = await Hub.connect(Membership(key, self.url, ""))
            try:
                stored = await hub.load_all(SESSIONS, "$KV.sessions.*.*")
                return [one.subject.split(".")[2] for one in stored if one.data]
            finally:
                await hub.close()

        return asyncio.run(ask())

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)


@pytest.fixture
def own(home: Path) -> Iterator[OwnServer]:
    bench = FleetBench(home)
    server = OwnServer(bench)
    try:
        yield server
    finally:
        bench.close()
        server.close()


def test_a_server_with_its_own_key_and_certificate_is_prepared_joined_and_revokes(own: OwnServer) -> None:
    remuda = own.hub.remuda
    prepare: tuple[str, ...] = ("fleet", "prepare", "--url", own.url, "--key", str(own.key_file))
    assert "certificate" in remuda.refused(*prepare, code=8)
    assert "none.pem: No such file" in remuda.refused(*prepare, "--ca", str(own.folder / "none.pem"), code=4)
    prepare += ("--ca", str(own.certificate))
    assert "the streams are ready" in remuda(*prepare).out
    key = str(remuda.cwd / "build7.key")
    made = remuda("fleet", "keys", "new", "build7", "--out", key)
    assert f"remuda fleet join {own.url} --key build7.key" in made.out
    assert "put the output of 'remuda fleet config' on the servers" in made.err
    own.reload()
    remuda(*prepare)
    build = own.bench.bare_machine("build7")
    build.boss_up()
    build.remuda("fleet", "join", own.url, "--key", key)
    build.until_connected()
    build.start("work")
    until(lambda: own.sessions() == ["build7"], "the session")

    done = remuda("fleet", "keys", "revoke", "build7")
    assert done.out == "revoked the key of build7\n"
    assert "put the output of 'remuda fleet config' on the servers, reload them, then run" in done.err
    own.reload()
    until(lambda: "does not accept the key" in str(build.status()["error"]), "the refusal")
    remuda(*prepare)
    assert own.sessions() == []
