"""docs/reference/commands.md and man/remuda.1 are what scripts/reference.py writes."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/reference.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_old_names_in_the_table_lead_to_commands() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text()
    rows = page.partition("## Old names and new names")[2].splitlines()[6:]
    headings = {line.removeprefix("### ") for line in page.splitlines() if line.startswith("### ")}
    for row in rows:
        for cell in row.strip("| ").split(" | "):
            words = cell.strip("`").split()
            known = words[1] == "-V" or " ".join(words[:2]) in headings
            assert known, cell
