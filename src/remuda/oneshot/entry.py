"""The start of `remuda print` and `remuda ask`: load little before the agent starts."""

from __future__ import annotations

from remuda.keeper.prefork import fork_keeper

TYPE_CHECKING = False  # as type checkers read it; `typing` is slow to load
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .run import ThroughPool

# With one of these no keeper is needed that ends with the call. A word that is missing here costs only time.
_WITHOUT_KEEPER = ("stream", "--backend=stream", "-h", "--help", "-v", "-V", "--version", "--check", "--keep")


def main(words: Sequence[str], through_pool: ThroughPool | None = None, *, ask: bool = False) -> int | None:
    """Run a call. Return the exit code; None for a request that the command line answers itself."""
    without = any(word in _WITHOUT_KEEPER or word.startswith("--pool") for word in words)
    if not without and not (ask and "--cold" not in words and _pool_is_there()):
        fork_keeper()
    from remuda.errors import RemudaError

    from .request import parse
    from .run import run

    try:
        request = parse(list(words), ask=ask)
    except RemudaError as error:
        from .output import warn

        warn(str(error))
        return error.exit_code
    return None if request.wants == "help" else run(request, through_pool=through_pool)


def _pool_is_there() -> bool:
    """Whether a pool is probably served: then no keeper is needed."""
    from os.path import exists

    from remuda.paths import home

    return exists(home() / "pool.sock")
