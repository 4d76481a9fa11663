"""remuda doctor"""

from __future__ import annotations

from pathlib import Path

import click

from .common import find_folder, folder_option, json_option
from .output import echo, print_json, style

_MARKS = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "fail": ("FAIL", "red")}


@click.command("doctor")
@folder_option
@json_option
def command(folder: Path | None, as_json: bool) -> int:
    """Check this machine and what dead sessions left, and say how to fix what is wrong.

    Changes nothing. Exits with 1 if something cannot work.

    \b
    Examples:
      remuda doctor
      remuda doctor --json | jq '.[] | select(.level != "ok")'
    """
    from .checks import examine

    findings = examine(find_folder(folder))
    if as_json:
        print_json([{"level": one.level, "what": one.what, "fix": one.fix} for one in findings])
    else:
        for one in findings:
            mark, colour = _MARKS[one.level]
            echo(f"{style(mark, fg=colour)}  {one.what}" + (f"\n      {one.fix}" if one.fix else ""))
    return 1 if any(one.level == "fail" for one in findings) else 0
