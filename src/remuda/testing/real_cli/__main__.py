"""``python -m remuda.testing.real_cli fetch [VERSION|AGENT…]``: a line on each, or the reason and exit 1."""

from __future__ import annotations

import sys

from .fetch import OTHER_VERSIONS, VERSION, FetchError, fetch, fetch_other, not_tested, opted_out


def main(arguments: list[str]) -> int:
    if arguments[:1] != ["fetch"]:
        print("usage: python -m remuda.testing.real_cli fetch [VERSION|AGENT…]", file=sys.stderr)
        return 2
    try:
        for name in arguments[1:] or [VERSION]:
            agent = name if name in OTHER_VERSIONS else "claude"
            if opted_out(agent):
                print(not_tested(agent))
            else:
                print(fetch(name) if agent == "claude" else fetch_other(agent))
    except FetchError as error:
        print(f"remuda.testing.real_cli: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
