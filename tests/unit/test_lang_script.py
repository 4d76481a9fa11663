"""`scripts/lang.py`, the check of the language in `make lint`: it fails on what users must not read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "lang.py"
CLEAN = {
    "src/remuda/__init__.py": "",
    "docs/page.md": "# A page\n\nThe agent waits.\n",
    "src/remuda/cli/ls.py": '"""List agents."""\n\nraise InvalidOptions("no agent given", hint="name one")\n',
}


def check(tree: Path, files: dict[str, str]) -> tuple[int, str]:
    for name, text in {**CLEAN, **files}.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    ran = subprocess.run(
        [sys.executable, SCRIPT, "--check", "--root", tree], capture_output=True, text=True, check=False
    )
    assert ran.returncode in (0, 1), ran.stderr
    return ran.returncode, ran.stdout + ran.stderr


def test_plain_words_pass(tmp_path: Path) -> None:
    assert check(tmp_path, {})[0] == 0


@pytest.mark.parametrize(
    ("name", "text", "phrase"),
    [
        ("docs/page.md", "# A page\n\nNobody waits.\n", "nobody/somebody"),
        ("README.md", "# Remuda\n\nThe agent whom you see.\n", "whoever/whom"),
        ("src/remuda/cli/ls.py", 'raise InvalidOptions("this is no terminal")\n', "is no X"),
        ("src/remuda/cli/ls.py", 'raise InvalidOptions("bad", hint="it lies there")\n', "lies/stands"),
        (
            "src/remuda/cli/ls.py",
            'import click\n@click.option("--x", help="Wait so long.")\ndef command(): ...\n',
            "so long",
        ),
        (
            "src/remuda/cli/ls.py",
            'import click\n@click.command()\ndef command():\n    """Mend it anew."""\n',
            "anew",
        ),
        ("src/remuda/keeper/one.py", '"""Meanwhile it waits."""\n', "anew/meanwhile"),
        ("src/remuda/any_room/one.py", "# whom it asks\nx = 1\n", "whoever/whom"),
        ("docs/page.md", f"# A page\n\n{'It waits and ' * 12}it ends.\n", "words"),
    ],
)
def test_stilted_phrase_or_long_sentence_fails(tmp_path: Path, name: str, text: str, phrase: str) -> None:
    code, said = check(tmp_path, {name: text})
    assert (code, name in said, phrase in said) == (1, True, True), said
