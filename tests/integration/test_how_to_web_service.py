"""The service of docs/how-to/pool-in-a-web-service.md, run with the scripted agent as `claude`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.heimdall_client import PATIENCE
from support.print_calls import scripted_agent

PAGE = Path(__file__).parents[2] / "docs/how-to/pool-in-a-web-service.md"


@pytest.fixture
def address(home: Path) -> Iterator[str]:
    """The address of the running service."""
    example = re.search(r"^```python app.py\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert example is not None
    programs, project = home / "bin", home / "project"
    programs.mkdir()
    project.mkdir()
    (programs / "claude").symlink_to(scripted_agent(home))
    (project / "app.py").write_text(example[1])
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CLAUDE")}
    argv = [sys.executable, "-m", "uvicorn", "app:app", "--port", "0"]
    with subprocess.Popen(
        argv,
        env={**inherited, "HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}"},
        cwd=project,
        stderr=subprocess.PIPE,
        text=True,
    ) as service:
        assert service.stderr is not None
        try:
            lines = iter(service.stderr.readline, "")
            found = next(filter(None, (re.search(r"running on (http://\S+)", line) for line in lines)))
            yield found[1]
        finally:
            service.terminate()
            service.communicate(timeout=PATIENCE)


def post(address: str, prompt: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"{address}/ask", prompt.encode(), timeout=PATIENCE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_web_service_answers_from_warm_agents_and_refuses_commands(address: str) -> None:
    assert post(address, "hello") == (200, {"text": "REPLY#1 to: hello", "warm": True})
    status, body = post(address, "/clear")
    assert (status, body["code"]) == (500, "INPUT_ERROR")
    with urllib.request.urlopen(f"{address}/metrics", timeout=PATIENCE) as answer:
        assert b"remuda_pool" in answer.read()
