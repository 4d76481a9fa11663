"""What the tests share: processes, agents and files to test with, and ways to wait for events."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
