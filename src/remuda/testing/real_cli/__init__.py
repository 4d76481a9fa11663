"""The real CLIs as test benches: fetched at test time, run without account and without network.

``python -m remuda.testing.real_cli fetch`` brings the pinned Claude Code into the user's cache, once; where
names follow, those versions of it or those other agents instead.
:class:`RealCli` then gives Claude Code a HOME and a project of its own. Of the caller's environment it gets
nothing but PATH.
The binaries are others' property: the user who runs the tests downloads them; we ship none.
"""

from .bench import NetworkReachableError, PlainTerminal, RealCli
from .fetch import (
    OLDER,
    OPT_OUT,
    OTHER_VERSIONS,
    PINNED,
    VERSION,
    VERSION_VARIABLE,
    FetchError,
    binary_of,
    binary_path,
    fetch,
    fetch_other,
    left_out,
    not_tested,
    opted_out,
)

__all__ = [
    "OLDER",
    "OPT_OUT",
    "OTHER_VERSIONS",
    "PINNED",
    "VERSION",
    "VERSION_VARIABLE",
    "FetchError",
    "NetworkReachableError",
    "PlainTerminal",
    "RealCli",
    "binary_of",
    "binary_path",
    "fetch",
    "fetch_other",
    "left_out",
    "not_tested",
    "opted_out",
]
