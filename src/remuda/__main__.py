"""`remuda` and `python -m remuda`."""

from __future__ import annotations

import sys


def main() -> None:
    from remuda.cli.app import run

    sys.exit(run())


if __name__ == "__main__":
    main()
