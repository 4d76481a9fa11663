"""A hook is answered while the agent waits: nothing is loaded for it then."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from remuda.agents.claude.hooks import read_hook
before = set(sys.modules)
report = read_hook({"hook_event_name": "PostToolUse", "session_id": "s", "tool_name": "Monitor"})
print(report.carry_over, sorted(set(sys.modules) - before))
"""


def test_hook_is_read_without_loading_anything() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == "('something that is watched (Monitor)',) []\n"
