"""The hub as a service: the unit of `remuda setup hub`, run as systemd would run it."""

from __future__ import annotations

import plistlib
import signal
import subprocess
from pathlib import Path

from remuda.cli.boss_service import HUB
from remuda.fleet.hub_folder import HubFolder
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


def test_the_plist_of_the_hub_can_be_read() -> None:
    found = plistlib.loads(
        HUB.plist(["/a b/python", "-m", "remuda", "fleet", "serve"], {"PATH": "/x"}).encode()
    )
    assert (found["Label"], found["RunAtLoad"]) == ("remuda.hub", True)
    assert found["ProgramArguments"][-2:] == ["fleet", "serve"]
