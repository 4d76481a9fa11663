"""``python -m remuda.testing.scripted_agent``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import VERSION
from .agent_flags import USAGE, AgentFlags, Knobs, UsageError, parse


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the program; its exit code."""
    try:
        options = parse(arguments)
        if options.shows_version:
            print(f"{VERSION} (Remuda scripted agent)")
            return 0
        if options.shows_help:
            print(USAGE, end="")
            return 0
        knobs = Knobs.of(environ)
        if knobs.record_args:
            Path(knobs.record_args).write_bytes(b"".join(os.fsencode(word) + b"\0" for word in arguments))
        _check(options, environ)
        # Not at the top: --version must be quick, and nothing else needs the rest.
        if options.prints:
            from .print_app import PrintApp

            return PrintApp(options, knobs, environ).run()
        from .app import App

        return App(options, knobs, environ).run()
    except UsageError as error:
        print(error, file=sys.stderr)
        return error.code


def _check(options: AgentFlags, environ: Mapping[str, str]) -> None:
    if options.skips_permissions and os.geteuid() == 0 and environ.get("IS_SANDBOX") != "1":
        raise UsageError("--dangerously-skip-permissions cannot be used with root privileges")
    if not options.prints and not (os.isatty(0) and os.isatty(1)):
        raise UsageError("The scripted agent needs a terminal on its standard input and output.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
