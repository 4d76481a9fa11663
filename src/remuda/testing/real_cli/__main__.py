"""``python -m remuda.testing.real_cli fetch [VERSION…]``: one line on each, or exit 1 with the reason."""

from __future__ import annotations

import sys

from .fetch import NOT_TESTED, VERSION, FetchError, fetch, opted_out


def main(arguments: list[str]) -> int:
    if arguments[:1] != ["fetch"]:
        print("usage: python -m remuda.testing.real_cli fetch [VERSION…]", file=sys.stderr)
        return 2
    if opted_out():
        print(NOT_TESTED)
        return 0
    try:
        for version in arguments[1:] or [VERSION]:
            print(fetch(version))
    except FetchError as error:
        print(f"remuda.testing.real_cli: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
