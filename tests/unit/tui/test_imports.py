"""Textual takes longer to load than most commands run: only the dashboard does."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys, remuda.tui.dash
from remuda.cli.app import COMMANDS, cli
for name in COMMANDS:
    cli.get_command(None, name)
print([name for name in ("textual", "rich") if name in sys.modules])
"""


def test_no_command_loads_textual_before_it_runs() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
