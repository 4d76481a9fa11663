"""remuda version"""

from __future__ import annotations

import platform

import click

from remuda._version import __version__

from .common import json_option
from .output import echo, print_json


@click.command("version")
@json_option
def command(as_json: bool) -> None:
    """Print the version of Remuda, of Python, and of the wire protocol.

    \b
    Example:
      remuda version --json
    """
    from remuda.wire.messages import PROTOCOL_VERSION

    facts = {"remuda": __version__, "python": platform.python_version(), "protocol": PROTOCOL_VERSION}
    if as_json:
        print_json(facts)
    else:
        echo(f"remuda {__version__} (Python {facts['python']}, protocol {PROTOCOL_VERSION})")
