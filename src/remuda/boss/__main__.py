"""`python -m remuda.boss`: the boss in a process of its own, as `remuda up --detach` starts it.

It says on the descriptor that it is given how its start went, in one line of JSON, and closes it.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuda.errors import RemudaError
from remuda.untrusted import dump_json, parse_object

from .daemon import Settings, run
from .folder import BossFolder
from .ports import Boss


def main() -> int:
    given = parse_object(sys.argv[1])
    fd = int(given["ready_fd"])

    def say(document: dict[str, Any]) -> None:
        os.write(fd, dump_json(document).encode() + b"\n")
        os.close(fd)

    settings = Settings(
        BossFolder(Path(given["folder"])), given["port"], given["log_level"], given["log_max_bytes"]
    )
    if given.get("sources") is not None:
        settings = replace(settings, sources=tuple(given["sources"]))
    settings = replace(settings, any_port=bool(given.get("any_port")))
    told = False

    def ready(boss: Boss) -> None:
        nonlocal told
        told = True
        aside = boss.desk.store.laid_aside
        say({"pid": os.getpid(), "port": boss.port, "laid_aside": str(aside) if aside else None})

    try:
        run(settings, ready)
    except RemudaError as error:
        if not told:
            say({"error": {"code": error.code, "message": error.message, "hint": error.hint}})
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
