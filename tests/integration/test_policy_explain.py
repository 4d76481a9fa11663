"""`remuda policy explain`: what would be decided, without a boss."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from support.commands import COMMAND, Commands

POLICY = """
[[rule]]
name = "never"
decision = "deny"
tool = "Bash"
command = "rm *"

[[rule]]
name = "rest"
decision = "allow"
tool = ["Bash", "mcp__sh__*"]

[command_tools]
mcp__sh__run = "script"
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    path.chmod(0o600)
    return str(path)


def test_explain_prints_the_decision_the_rule_and_the_reading(remuda: Commands, file: str) -> None:
    def explain(*words: str) -> list[str]:
        return remuda("policy", "explain", "--file", file, *words).out.splitlines()

    assert explain("--tool", "Bash", "--command", "ls -l | wc") == [
        "allow: rule 'rest'",
        "understood: yes",
        "  ls -l",
        "  wc",
    ]
    assert explain("--command", "X='1' rm y") == [
        "deny: rule 'never'",
        "understood: no, variable assignment is not understood",
        "  rm y",
    ]
    assert explain("--command", "python3 x.py")[0] == "ask: rule 'never' ('python3' may run other programs)"
    assert explain("--tool", "mcp__sh__run", "--command", "rm y")[0] == "deny: rule 'never'"
    assert explain("--tool", "Read", "--input", '{"file_path": "/x"}') == ["ask: no rule (no rule matches)"]
    assert explain("--command", "echo '\x1b]52;c;x\x07'")[-1].isprintable()


def test_explain_batch_answers_every_line_in_order(file: str) -> None:
    lines = [
        '{"tool": "Bash", "input": {"command": "ls"}}',
        '{"tool": "Bash", "input": {"command": "rm x"}}',
        "not JSON",
        "",
        '{"tool": 1}',
        '{"tool": "Bash", "input": {"command": "echo $(ls)"}}',
        '{"tool": "Bash", "input": {}}',
        '{"tool": "Read", "input": {"file_path": "~\\u0000/a"}}',
    ]
    done = subprocess.run(
        [*COMMAND, "policy", "explain", "--file", file, "--batch", "-"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["decision"] for one in found] == ["allow", "deny", *["ask"] * 6]
    assert [one["rule"] for one in found] == ["rest", "never", None, None, None, "never", "never", None]
    assert found[0]["reading"] == {"understood": True, "why": None, "commands": [["ls"]]}
    assert found[5]["reading"]["commands"] == [["echo", "…"], ["ls"]]


def test_explain_refuses_what_it_cannot_explain(remuda: Commands, file: str) -> None:
    assert "pass exactly one of" in remuda.refused("policy", "explain", "--file", file, code=2)
    assert "/nowhere not found" in remuda.refused(
        "policy", "explain", "--file", "/nowhere", "--command", "ls", code=2
    )
    assert "JSON object" in remuda.refused("policy", "explain", "--file", file, "--input", "[", code=2)
