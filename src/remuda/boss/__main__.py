"""`python -m remuda.boss`: the boss in a process of its own, as `remuda up --detach` starts it.

It writes one line of JSON about its start to the given descriptor, and closes it.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuda.errors import RemudaError
from remuda.untrusted import dump_json, parse_object

from .access import read_access
from .daemon import BossSettings, run
from .folder import BossFolder
from .ports import BossParts


def main() -> int:
    arguments = parse_object(sys.argv[1])
    fd = int(arguments["ready_fd"])

    def say(document: dict[str, Any]) -> None:
        os.write(fd, dump_json(document).encode() + b"\n")
        os.close(fd)

    settings = BossSettings(
        BossFolder(Path(arguments["folder"])),
        arguments["port"],
        arguments["log_level"],
        arguments["log_max_bytes"],
    )
    if arguments.get("sources") is not None:
        settings = replace(settings, sources=tuple(arguments["sources"]))
    settings = replace(settings, any_port=bool(arguments.get("any_port")))
    is_reported = False

    def ready(boss: BossParts) -> None:
        nonlocal is_reported
        is_reported = True
        aside = boss.service.store.laid_aside
        say({"pid": os.getpid(), "port": boss.port, "laid_aside": str(aside) if aside else None})

    try:
        run(replace(settings, access=read_access(arguments.get("access") or {})), ready)
    except RemudaError as error:
        if not is_reported:
            say({"error": {"code": error.code, "message": error.message, "hint": error.hint}})
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
