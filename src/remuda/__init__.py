"""Remuda keeps interactive coding agents running, feeds and reads them, and calls a human in time."""

from __future__ import annotations

from ._version import __version__

TYPE_CHECKING = False  # as type checkers read it; importing `typing` would cost more than all the rest
if TYPE_CHECKING:
    from .errors import RemudaError as RemudaError
    from .inbox.journal import Inbox as Inbox
    from .keeper.client import KeeperClient as KeeperClient
    from .keeper.spec import SessionSpec as SessionSpec
    from .keeper.start import start_session as start_session
    from .session import Session as Session

# Loaded when first used: importing the package costs next to nothing.
_LAZY = {
    "RemudaError": "remuda.errors",
    "Inbox": "remuda.inbox.journal",
    "KeeperClient": "remuda.keeper.client",
    "Session": "remuda.session",
    "SessionSpec": "remuda.keeper.spec",
    "start_session": "remuda.keeper.start",
}

__all__ = ["Inbox", "KeeperClient", "RemudaError", "Session", "SessionSpec", "__version__", "start_session"]


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'remuda' has no attribute {name!r}")
