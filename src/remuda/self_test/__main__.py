"""The process of a self-test: reads its task on standard input, and prints what it finds as JSON lines."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from remuda.testing.offline import closed_proxies, enter

_VERSION = re.compile(r"\d+(?:\.\d+)+\S*")


def main() -> int:
    task: dict[str, Any] = json.load(sys.stdin)
    try:
        enter()  # before any thread
        offline = "in a network namespace: nothing but loopback can be reached"
    except OSError as error:
        os.environ.update(closed_proxies())
        reason = error.strerror or error
        offline = f"with closed proxies only ({reason})"
    # After the fork in `enter`: these have much to load.
    from remuda.agents import find_self_test
    from remuda.agents.self_test import BenchPlace
    from remuda.testing.loopback_model import LoopbackModel
    from remuda.testing.real_cli.bench import bench_environment, write_files

    from .bench import end_all
    from .promises import PromiseResult
    from .trial import Trial

    lock = threading.Lock()

    def tell(document: dict[str, Any]) -> None:
        with lock:
            os.write(1, json.dumps(document).encode() + b"\n")

    def report(outcome: PromiseResult) -> None:
        tell(outcome.document())

    root, agent = Path(task["folder"]), str(task["agent"])
    plan = find_self_test(agent)
    assert plan is not None
    with LoopbackModel() as model:
        folders = [root / name for name in ("project", "untrusted", "untrusted-2")]
        place = BenchPlace(root / "home", root / "tmp", model.url, (folders[0],))
        for folder in (place.home, place.temporary, *folders):
            folder.mkdir()
        write_files(plan.files(place))
        path = f"{root / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        os.environ.update(
            {**bench_environment(place.home, place.temporary), **plan.environment(place), "PATH": path}
        )
        tell({"offline": offline, "version": _version(task["binary"])})
        trial = Trial(agent, plan, folders, model, report, float(task["time_limit"]))
        try:
            trial.run()
            tell({"words": trial.words})
        except BrokenPipeError:  # the caller was killed, and removes nothing any more
            end_all(root)
            shutil.rmtree(root, ignore_errors=True)
    # Not a return: a thread that has no time left may still wait.
    os._exit(0)


def _version(binary: str) -> str:
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return "unknown"
    found = _VERSION.search(done.stdout)
    return found[0].rstrip(".,;)") if found else "unknown"


if __name__ == "__main__":
    sys.exit(main())
