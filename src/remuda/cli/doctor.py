"""remuda doctor"""

from __future__ import annotations

from pathlib import Path

import click

from .common import find_folder, folder_option, json_option, print_json

_MARKS = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "fail": ("FAIL", "red")}


@click.command("doctor")
@folder_option
@json_option
def command(folder: Path | None, as_json: bool) -> int:
    """Check this machine and what is left of dead sessions. Says how to mend what is wrong.

    Exits with 1 when something cannot work as it is. Changes nothing.

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
            click.echo(
                f"{click.style(mark, fg=colour)}  {one.what}" + (f"\n      {one.fix}" if one.fix else "")
            )
    return 1 if any(one.level == "fail" for one in findings) else 0
