"""`scripts/measure.py` on a small tree whose numbers are known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "measure.py"
FILES = {
    "pyproject.toml": "",
    "src/remuda/__init__.py": '"""A package."""\n\n__all__ = []\nfrom .used import Worker\n',
    "src/remuda/used.py": '"""One."""\n\n\nclass Worker:\n    """Nobody."""\n\n    # why\n    x = 1\n',
    "src/remuda/pool/__init__.py": "",
    "src/remuda/pool/dead.py": "from remuda.agents.claude import hooks\n\n\nclass Worker:\n    pass\n",
    "src/remuda/agents/claude/hooks.py": "def unused():\n    return 1\n",
    "tests/test_it.py": (
        "def check(x):\n    assert x\n\n\ndef test_a():\n    check(1)\n\n\ndef test_b():\n    print(1)\n"
    ),
}


def write_tree(root: Path) -> None:
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_numbers_of_a_known_tree(tmp_path: Path) -> None:
    write_tree(tmp_path)
    ran = subprocess.run(
        [sys.executable, SCRIPT, "--list", tmp_path], capture_output=True, text=True, check=True
    )
    table, *lists = ran.stdout.split("\n\n")
    numbers = dict(line.rsplit(maxsplit=1) for line in table.splitlines()[1:])
    assert {title.strip(): number for title, number in numbers.items() if "lines," not in title} == {
        "code lines in src": "9",
        "files in src": "5",
        "median lines of a module": "4",
        "modules under 60 lines": "3",
        "class names used twice": "1",
        "module names used twice": "0",
        "imports of remuda.agents.claude outside agents": "1",
        "modules that nothing imports": "2",
        "names that nothing uses": "1",
        "tests that assert nothing": "1",
        "stilted phrases per 10,000 words: users": "0.0",
        "stilted phrases per 10,000 words: code": "0.0",
        "test functions": "2",
    }
    shown = "\n".join(lists)
    assert "src/remuda/pool/dead.py:1" in shown
    assert "tests/test_it.py:9 test_b" in shown
    assert "src/remuda/agents/claude/hooks.py:1 unused" in shown


def test_check_lists_what_must_not_be_there(tmp_path: Path) -> None:
    write_tree(tmp_path)
    ran = subprocess.run(
        [sys.executable, SCRIPT, "--check", tmp_path], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert sorted(line.split(": ")[0] for line in ran.stdout.splitlines()) == [
        "src/remuda/agents/claude/hooks.py",
        "src/remuda/pool/dead.py",
        "src/remuda/pool/dead.py:1",
        "tests/test_it.py:9 test_b",
    ]
