"""`remuda` and `python -m remuda`."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from remuda.oneshot.request import PrintRequest
    from remuda.oneshot.run import Clock, Output


def _through_pool(request: PrintRequest, prompt: str, clock: Clock, output: Output) -> int | None:
    from remuda.pool.printing import through_pool

    return through_pool(request, prompt, clock, output)


def main() -> None:
    if sys.argv[1:2] == ["stop-hook"] and not {"-h", "--help"} & {*sys.argv}:
        # An agent waits for it after every answer: without what the other commands need.
        from remuda.inbox import stop_hook

        sys.argv[:2] = ["remuda stop-hook"]
        stop_hook.main()
    from remuda.oneshot.output import show_bug

    sys.excepthook = show_bug
    if sys.argv[1:2] in (["print"], ["ask"]):
        # Each call of it starts an agent and waits for that: what the other commands need is not loaded.
        from remuda.oneshot.entry import main as call

        ask = sys.argv[1] == "ask"
        if ask:
            from remuda.oneshot.output import Program

            Program.name = "remuda ask"
        try:
            code = call(sys.argv[2:], _through_pool, ask=ask)
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


def claude_print() -> None:
    """The command `claude-print`: `remuda print` under the name of the program that it takes the place of."""
    from remuda.oneshot.output import Program

    Program.name = sys.argv[0].rpartition("/")[2]
    sys.argv[1:1] = ["print"]
    main()


if __name__ == "__main__":
    main()
