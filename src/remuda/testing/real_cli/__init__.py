"""The real Claude Code CLI as a test bench: fetched at test time, run without account and without network.

``python -m remuda.testing.real_cli fetch`` brings the pinned binary into the user's cache, once; named
versions instead of it where some follow.
:class:`RealCli` then gives it a HOME and a project of its own and an environment with nothing of the caller's
but PATH.
The binary is proprietary: it is downloaded by the user who runs the tests and is part of nothing we ship.
"""

from .bench import NetworkReachableError, PlainTerminal, RealCli
from .fetch import (
    NOT_TESTED,
    OLDER,
    OPT_OUT,
    PINNED,
    VERSION,
    VERSION_VARIABLE,
    FetchError,
    binary_path,
    fetch,
    opted_out,
)

__all__ = [
    "NOT_TESTED",
    "OLDER",
    "OPT_OUT",
    "PINNED",
    "VERSION",
    "VERSION_VARIABLE",
    "FetchError",
    "NetworkReachableError",
    "PlainTerminal",
    "RealCli",
    "binary_path",
    "fetch",
    "opted_out",
]
