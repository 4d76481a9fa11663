"""Random pauses in the event loops of our processes: orders of events that are rare come often.

Python runs this at its start where this folder is in PYTHONPATH (`make pauses`). The tests are not paused.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

TYPE_CHECKING = False  # `typing` is slow to load, and commands are tested for that
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_LONGEST_PAUSE = 0.3
_LONGEST_RUN = 0.4
_LOOPS = "asyncio.base_events"


class _Pauses:
    """Finds the module of the event loops, when it is first imported, and adds the pauses to it."""

    @staticmethod
    def find_spec(name: str, path: Any = None, _target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == _LOOPS else None
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            _add_pauses(module.BaseEventLoop)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _add_pauses(loop: Any) -> None:
    import random
    import time

    chance = random.Random()
    run_once, next_pause = loop._run_once, 0.0

    def run_once_and_pause(self: Any) -> None:
        nonlocal next_pause
        if time.monotonic() > next_pause:
            chance.seed(os.urandom(8))  # a forked process has pauses of its own
            time.sleep(_LONGEST_PAUSE * chance.random() ** 2)
            next_pause = time.monotonic() + _LONGEST_RUN * chance.random()
        run_once(self)

    loop._run_once = run_once_and_pause


def _is_test() -> bool:
    with open("/proc/self/cmdline", "rb") as file:
        line = file.read()
    return any(word in line for word in (b"pytest", b"remuda.testing.offline", b"exec(eval(sys.stdin"))


if not _is_test():
    sys.meta_path.insert(0, _Pauses)
