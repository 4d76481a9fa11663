"""`remuda` and `python -m remuda`."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from remuda.oneshot.print_request import PrintRequest
    from remuda.oneshot.run import DeferredOutput, TraceClock


def main() -> None:
    try:
        _run()
    except KeyboardInterrupt:  # also while a command is loaded, before it can handle the signal itself
        sys.exit(130)


def _run() -> None:
    if sys.argv[1:2] == ["stop-hook"] and not {"-h", "--help"} & {*sys.argv}:
        # An agent waits for it after every answer: without what the other commands need.
        from remuda.inbox import stop_hook

        sys.argv[:2] = ["remuda stop-hook"]
        stop_hook.main()
    load_pathlib()
    from remuda.oneshot.output import open_standard_streams, show_bug

    sys.excepthook = show_bug
    open_standard_streams()
    if sys.argv[1:2] in (["print"], ["ask"]):
        _exit_with(_call)
    if sys.argv[1:2] == ["run"]:
        # An agent that is warm answers sooner than the other commands are loaded.
        from remuda.cli.run_once import main as run_once

        _exit_with(run_once)
    _run_command()


def _run_command() -> NoReturn:
    """Run any other command: without click if it is one that `remuda.cli.quick` can run."""
    import gc

    gc.disable()  # while modules are loaded nothing is freed: 3 ms
    from remuda.cli.quick import run as run_quickly

    code = run_quickly(sys.argv[1:])
    if code is not None:
        _exit_at_once(code)
    from remuda.cli.app import run

    gc.enable()
    sys.exit(run())


def load_pathlib() -> None:
    """Import pathlib without `urllib.parse`, which Python before 3.12 loads for `as_uri` alone: 2 ms."""
    from types import ModuleType

    if "urllib.parse" in sys.modules:
        return
    stand_in = sys.modules["urllib.parse"] = ModuleType("urllib.parse")
    vars(stand_in)["quote_from_bytes"] = _quote_from_bytes
    try:
        import pathlib  # noqa: F401
    finally:
        del sys.modules["urllib.parse"]


def _quote_from_bytes(data: bytes) -> str:
    from urllib.parse import quote_from_bytes

    return quote_from_bytes(data)


def _exit_at_once(code: int) -> NoReturn:
    """Exit without freeing everything piece by piece, as Python does: 5 ms."""
    from os import _exit

    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # Python reports it
    _exit(code)


def _exit_with(command: Callable[[list[str]], int | None]) -> None:
    """Exit with the code of the command, unless it returns None."""
    code = command(sys.argv[2:])
    if code is not None:
        _exit_at_once(code)


# ── print and ask ──

# With one of these no keeper is needed that ends with the call. A word that is missing here costs only time.
_WITHOUT_KEEPER = ("stream", "--backend=stream", "-h", "--help", "-v", "-V", "--version", "--check", "--keep")


def _call(words: list[str]) -> int | None:
    """Start an agent and wait for it, with little loaded before that: not what the other commands need.

    Return the exit code; None for a request that the command line answers itself.
    """
    from remuda.keeper.prefork import fork_keeper

    ask = sys.argv[1] == "ask"
    if ask:
        from remuda.oneshot.output import PrintProgram

        PrintProgram.name = "remuda ask"
    without = any(word in _WITHOUT_KEEPER or word.startswith("--pool") for word in words)
    if not without and not (ask and "--cold" not in words and _pool_is_there()):
        fork_keeper()
    from remuda.errors import RemudaError
    from remuda.oneshot.print_request import parse
    from remuda.oneshot.run import run

    try:
        request = parse(words, ask=ask)
    except RemudaError as error:
        from remuda.oneshot.output import warn

        warn(str(error))
        return error.exit_code
    return None if request.wants == "help" else run(request, through_pool=_through_pool)


def _pool_is_there() -> bool:
    """Whether a pool is probably served: then no keeper is needed."""
    from os.path import exists

    from remuda.paths import home

    return exists(home() / "pool.sock")


def _through_pool(
    request: PrintRequest, prompt: str, clock: TraceClock, output: DeferredOutput
) -> int | None:
    from remuda.pool.printing import through_pool

    return through_pool(request, prompt, clock, output)


def claude_print() -> None:
    """Run the command `claude-print`, which is `remuda print` under its old name."""
    from remuda.oneshot.output import PrintProgram

    PrintProgram.name = sys.argv[0].rpartition("/")[2]
    sys.argv[1:1] = ["print"]
    main()


if __name__ == "__main__":
    main()
