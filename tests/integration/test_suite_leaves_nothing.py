"""The check that the suite leaves nothing can fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LEAKS = {
    "process": "subprocess.Popen(['setsid', 'sleep', '60'], stdin=subprocess.DEVNULL).returncode = 0",
    "folder": "tempfile.mkdtemp(prefix=str(home) + '-')",
    # Its child writes bytecode, although the environment of the run forbids it.
    "nothing": "subprocess.check_call([sys.executable, '-c', 'import sys; exit(sys.dont_write_bytecode)'])",
}


@pytest.mark.parametrize(("leak", "code"), LEAKS.items(), ids=list(LEAKS))
def test_leak_of_a_process_or_folder_fails_the_run_and_is_cleaned_up(
    tmp_path: Path, leak: str, code: str
) -> None:
    shutil.copy(TESTS / "conftest.py", tmp_path)
    inner = f"import subprocess, sys, tempfile\n\ndef test_one(home):\n    {code}\n"
    (tmp_path / "test_inner.py").write_text(inner)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {TESTS}\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", tmp_path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (run.returncode == 0) == (leak == "nothing"), run.stdout
    assert (f"the suite left behind: ['{leak}" in run.stdout) == (leak != "nothing"), run.stdout
