"""`remuda` and `python -m remuda`."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from remuda.oneshot.request import Request
    from remuda.oneshot.run import Clock, Output


def _through_pool(request: Request, prompt: str, clock: Clock, output: Output) -> int | None:
    from remuda.pool.printing import through_pool

    return through_pool(request, prompt, clock, output)


def main() -> None:
    if sys.argv[1:2] == ["stop-hook"] and not {"-h", "--help"} & {*sys.argv}:
        # An agent waits for it after every answer: without what the other commands need.
        from remuda.inbox import stop_hook

        sys.argv[:2] = ["remuda stop-hook"]
        stop_hook.main()
    if sys.argv[1:2] == ["print"]:
        # Each call of it starts an agent and waits for that: what the other commands need is not loaded.
        from remuda.oneshot.entry import main as call

        try:
            code = call(sys.argv[2:], _through_pool)
        except KeyboardInterrupt:
            code = 130
        if code is not None:
            sys.exit(code)
    if sys.argv[1:2] == ["run"]:
        # An agent that is warm answers sooner than the other commands are loaded.
        from remuda.cli.run_once import main as run_once

        try:
            code = run_once(sys.argv[2:])
        except KeyboardInterrupt:
            code = 130
        if code is not None:
            sys.exit(code)
    from remuda.cli.app import run

    sys.exit(run())


if __name__ == "__main__":
    main()
