"""Remuda keeps interactive coding agents running, feeds and reads them, and calls a human in time."""

from __future__ import annotations

from ._version import __version__

TYPE_CHECKING = False  # as type checkers read it; importing `typing` would cost more than all the rest
if TYPE_CHECKING:
    from .errors import Aborted as Aborted
    from .errors import AgentError as AgentError
    from .errors import ClientClosed as ClientClosed
    from .errors import CommandNotFound as CommandNotFound
    from .errors import InputError as InputError
    from .errors import InvalidOptions as InvalidOptions
    from .errors import PoolBroken as PoolBroken
    from .errors import PoolExhausted as PoolExhausted
    from .errors import PoolNotServed as PoolNotServed
    from .errors import RemudaError as RemudaError
    from .errors import SessionCrashed as SessionCrashed
    from .errors import SpawnFailed as SpawnFailed
    from .errors import SpawnTimeout as SpawnTimeout
    from .errors import WaitTimeout as WaitTimeout
    from .inbox.journal import Inbox as Inbox
    from .keeper.client import KeeperClient as KeeperClient
    from .keeper.spec import SessionSpec as SessionSpec
    from .keeper.start import start_session as start_session
    from .pool.client import Client as Client
    from .pool.remote import RemoteClient as RemoteClient
    from .pool.sync import SyncClient as SyncClient
    from .pool.types import Allow as Allow
    from .pool.types import Deny as Deny
    from .pool.types import Done as Done
    from .pool.types import Failed as Failed
    from .pool.types import PermissionRequest as PermissionRequest
    from .pool.types import RunResult as RunResult
    from .pool.types import Token as Token
    from .pool.types import ToolResult as ToolResult
    from .pool.types import ToolUse as ToolUse
    from .pool.types import Usage as Usage
    from .session import Session as Session

# Loaded when first used: importing the package costs next to nothing.
_LAZY = {
    "Aborted": "remuda.errors",
    "AgentError": "remuda.errors",
    "ClientClosed": "remuda.errors",
    "CommandNotFound": "remuda.errors",
    "InputError": "remuda.errors",
    "InvalidOptions": "remuda.errors",
    "PoolBroken": "remuda.errors",
    "PoolExhausted": "remuda.errors",
    "PoolNotServed": "remuda.errors",
    "RemoteClient": "remuda.pool.remote",
    "RemudaError": "remuda.errors",
    "SessionCrashed": "remuda.errors",
    "SpawnFailed": "remuda.errors",
    "SpawnTimeout": "remuda.errors",
    "WaitTimeout": "remuda.errors",
    "Inbox": "remuda.inbox.journal",
    "KeeperClient": "remuda.keeper.client",
    "SessionSpec": "remuda.keeper.spec",
    "start_session": "remuda.keeper.start",
    "Client": "remuda.pool.client",
    "SyncClient": "remuda.pool.sync",
    "Allow": "remuda.pool.types",
    "Deny": "remuda.pool.types",
    "Done": "remuda.pool.types",
    "Failed": "remuda.pool.types",
    "PermissionRequest": "remuda.pool.types",
    "RunResult": "remuda.pool.types",
    "Token": "remuda.pool.types",
    "ToolResult": "remuda.pool.types",
    "ToolUse": "remuda.pool.types",
    "Usage": "remuda.pool.types",
    "Session": "remuda.session",
}

__all__ = [
    "Aborted",
    "AgentError",
    "Allow",
    "Client",
    "ClientClosed",
    "CommandNotFound",
    "Deny",
    "Done",
    "Failed",
    "Inbox",
    "InputError",
    "InvalidOptions",
    "KeeperClient",
    "PermissionRequest",
    "PoolBroken",
    "PoolExhausted",
    "PoolNotServed",
    "RemoteClient",
    "RemudaError",
    "RunResult",
    "Session",
    "SessionCrashed",
    "SessionSpec",
    "SpawnFailed",
    "SpawnTimeout",
    "SyncClient",
    "Token",
    "ToolResult",
    "ToolUse",
    "Usage",
    "WaitTimeout",
    "__version__",
    "start_session",
]


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'remuda' has no attribute {name!r}")
