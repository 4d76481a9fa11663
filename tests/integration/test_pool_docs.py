"""The examples of docs/reference/pool.md, run as they stand there, with the scripted agent as `claude`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.print_calls import scripted_agent

PAGE = (Path(__file__).parents[2] / "docs/reference/pool.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_runs_on_the_scripted_agent(example: str, home: Path) -> None:
    programs, project = home / "bin", home / "project"
    programs.mkdir()
    project.mkdir()
    (programs / "claude").symlink_to(scripted_agent(home))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CLAUDE")}
    env = {**inherited, "HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}"}

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        env=env,
        cwd=project,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    if "FakeAgent" not in example:
        assert done.stdout
        assert "REPLY#" in done.stdout or not re.search(r"\.text\b|Token", example)
