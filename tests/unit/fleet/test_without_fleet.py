"""A machine that has joined no fleet loads nothing of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
        "import remuda.boss.daemon as daemon; assert daemon.load_fleet(None, None) is None",
    ],
)
def test_no_module_of_a_fleet_is_loaded(home: Path, work: str) -> None:
    program = LOADED.replace("{work}", work)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
