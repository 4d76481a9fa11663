"""remuda wait"""

from __future__ import annotations

from pathlib import Path

import click

from remuda.errors import MessageNotFound, SessionNotFound
from remuda.keeper.rest import wait_for_rest
from remuda.names import is_name

from .common import find_folder, folder_option, json_option, print_json, time_span
from .inbox_target import complete_inbox
from .progress import Progress
from .receipt import inbox_folders, wait_for_end


@click.command("wait")
@click.argument("what", metavar="NAME|ID", shell_complete=complete_inbox)
@click.option("--timeout", type=time_span, metavar="TIME", help="Give up after so long.")
@click.option("--inbox", "path", type=click.Path(path_type=Path), help="Look for the message in this inbox.")
@folder_option
@json_option
def command(what: str, timeout: float | None, path: Path | None, folder: Path | None, as_json: bool) -> int:
    """Wait for the end of a message, or until a session is idle and its inbox is empty.

    A message that ended before you asked is told at once. Its answer is printed.

    \b
    Examples:
      remuda wait work --timeout 10m
      remuda wait m19a8c27f3b1-0d4be1f6a2
    """
    try:
        return wait_for_end(what, inbox_folders(path, folder), timeout, as_json=as_json)
    except MessageNotFound:
        if path is not None or not is_name(what):
            raise
    try:
        with Progress() as progress:
            document = wait_for_rest(
                what, find_folder(folder), timeout, lambda why: progress.say(f"{what}: {why}")
            )
    except SessionNotFound:
        raise MessageNotFound(
            f"there is no message and no session '{what}'", hint="'remuda ls' shows the sessions"
        ) from None
    if as_json:
        print_json(document)
    else:
        click.echo(str(document["state"]))
    return 0
