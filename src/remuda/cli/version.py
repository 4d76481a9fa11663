"""remuda version"""

from __future__ import annotations

import sys

from remuda._version import __version__

from . import declare
from .common import json_option
from .output import echo, print_json


@declare.command("version")
@json_option
def command(as_json: bool) -> None:
    """Print the version of Remuda, of Python, and of the wire protocol.

    \b
    Example:
      remuda version --json
    """
    from remuda.wire.messages import PROTOCOL_VERSION

    python = sys.version.split()[0]
    if as_json:
        print_json({"remuda": __version__, "python": python, "protocol": PROTOCOL_VERSION})
    else:
        echo(f"remuda {__version__} (Python {python}, protocol {PROTOCOL_VERSION})")
