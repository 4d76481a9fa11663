"""The hub as a service: the unit of `remuda setup hub`, run as systemd would run it."""

from __future__ import annotations

import plistlib
import signal
import subprocess
from itertools import takewhile
from pathlib import Path

from remuda.cli.boss_service import HUB
from remuda.fleet.hub_folder import HubFolder
from remuda.fleet.membership import read_key
from support.commands import Commands, run_by_systemd, until_line
from support.fleet import free_port
from support.heimdall_client import PATIENCE


def test_the_command_of_the_unit_runs_a_hub_and_ends_it_in_order(home: Path) -> None:
    remuda, port = Commands(home), free_port()
    remuda("setup", "hub", "--listen", f"127.0.0.1:{port}", "--no-join", "--yes")
    unit = home / ".config" / "systemd" / "user" / "remuda-hub.service"
    command, environment = run_by_systemd(unit.read_text())
    process = subprocess.Popen(
        command, env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        until_line(process, b"fleet keys new NAME")
        hub = HubFolder(home / "fleet" / "hub")
        assert hub.address == ("127.0.0.1", port)
        assert remuda("fleet", "keys", "new", "build7").out.startswith("wrote build7.key")
        assert "a hub is running here now" in remuda("setup", "hub", "--no-join", "--yes").err
    finally:
        process.send_signal(signal.SIGTERM)  # KillMode=mixed: to this process alone
        _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (0, b"")
    assert hub.server_pid() is None
    remuda("setup", "--remove", "--yes")
    assert not unit.parent.exists()
    assert [one.name for one in hub.key_records()] == ["build7"]  # the hub itself is not the service's
    remuda.close()


def test_serve_prints_the_whole_command_that_joins_another_machine_once(home: Path) -> None:
    remuda, port = Commands(home), free_port()
    words = ("fleet", "serve", "--no-join", "--listen", f"127.0.0.1:{port}", "--add", "desk", "--add", "eye")
    assert "--role goes with --add" in remuda.refused(*words[:5], "--role", "viewer", code=2)
    wrote = "wrote {0}.key, the only copy of this key; copy it to that machine, then run there:\n"
    wrote += f"  remuda fleet join tls://127.0.0.1:{port} --key {{0}}.key\n"
    for said, told in ((wrote.format("desk") + wrote.format("eye"), 0), ("", 2)):
        process = remuda.begin(*words, "--role", "operator", "--role", "host")
        assert process.stdout is not None
        lines = list(takewhile(lambda line: b"fleet keys new NAME" not in line, process.stdout))
        process.terminate()
        _, err = process.communicate(timeout=PATIENCE)
        assert b"".join(lines).decode().startswith(said + "\nhub "), err
        assert err.decode().count("; if it is lost, run 'remuda fleet keys revoke ") == told
    keys = HubFolder(home / "fleet" / "hub").key_records()
    assert [(one.name, one.roles) for one in keys] == [(one, ("operator", "host")) for one in ("desk", "eye")]
    assert read_key(remuda.cwd / "desk.key").name == "desk"
    remuda.close()


def test_the_plist_of_the_hub_can_be_read() -> None:
    found = plistlib.loads(
        HUB.plist(["/a b/python", "-m", "remuda", "fleet", "serve"], {"PATH": "/x"}).encode()
    )
    assert (found["Label"], found["RunAtLoad"]) == ("remuda.hub", True)
    assert found["ProgramArguments"][-2:] == ["fleet", "serve"]
