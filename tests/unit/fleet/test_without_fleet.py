"""A machine that has joined no fleet loads nothing of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.boss.client import BossClient
from remuda.errors import NotInFleet

LOADED = """
import sys
{work}
loaded = sorted({"nats", "nkeys", "nacl", "cryptography"} & set(sys.modules))
loaded += sorted(name for name in sys.modules if name.startswith("remuda.fleet"))
print(loaded, file=sys.stderr)
sys.exit(bool(loaded))
"""


@pytest.mark.parametrize(
    "work",
    [
        "from remuda.cli.app import run; run(['ls'])",
        "from remuda.cli.app import run; run(['send', 'work', 'hello'])",
        "from remuda.cli.app import run; run(['approve', 'work'])",
        "from remuda.cli.app import run; run(['fleet', '--help'])",
        "from remuda.cli.app import run; run(['setup', '--show'])",
        "from remuda.cli.app import run; run(['kill', 'work'])",
        "import remuda; remuda.Session.list()",
        "import remuda.boss.daemon as daemon; assert daemon.load_fleet(None, None) is None",
    ],
)
def test_no_module_of_a_fleet_is_loaded(home: Path, work: str) -> None:
    program = LOADED.replace("{work}", work)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


AT_ITS_END = """
import atexit, sys
atexit.register(lambda: open({path!r}, "w").write("\\n".join(sys.modules)))
"""


def test_a_boss_that_has_served_has_loaded_no_module_of_a_fleet(home: Path) -> None:
    path = home / "modules"
    (home / "sitecustomize.py").write_text(AT_ITS_END.format(path=str(path)))
    boss = subprocess.Popen(
        [sys.executable, "-P", "-m", "remuda", "boss", "up", "--port", "0"],
        # With the home of whoever runs this, agents that run there were listed.
        env={**os.environ, "PYTHONPATH": str(home), "HOME": str(home)},
        stdout=subprocess.PIPE,
    )
    assert boss.stdout is not None
    try:
        assert b"the boss is running" in boss.stdout.readline()
        with pytest.raises(NotInFleet):
            BossClient().get("fleet")
        assert BossClient().get("sessions", hosts=True)["sessions"] == []
    finally:
        boss.terminate()
        boss.communicate(timeout=60)
    loaded = path.read_text().splitlines()
    assert "remuda.boss.http.fleet_routes" in loaded
    assert [one for one in loaded if one.startswith(("nats", "nkeys", "nacl", "remuda.fleet"))] == []
