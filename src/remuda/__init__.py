"""Remuda keeps interactive coding agents running, feeds and reads them, and calls a human in time."""

from __future__ import annotations

from ._version import __version__

TYPE_CHECKING = False  # as type checkers read it; importing `typing` would cost more than all the rest
if TYPE_CHECKING:
    from .async_session import AsyncSession as AsyncSession
    from .boss.api import Approval as Approval
    from .boss.api import Boss as Boss
    from .boss.api import ReplyResult as ReplyResult
    from .boss.api import WaitingItem as WaitingItem
    from .boss.async_api import AsyncBoss as AsyncBoss
    from .errors import Aborted as Aborted
    from .errors import AgentError as AgentError
    from .errors import AgentRefused as AgentRefused
    from .errors import AlreadyAnswered as AlreadyAnswered
    from .errors import BadName as BadName
    from .errors import BossDown as BossDown
    from .errors import BossExists as BossExists
    from .errors import CallFailed as CallFailed
    from .errors import ClientClosed as ClientClosed
    from .errors import CommandNotExecutable as CommandNotExecutable
    from .errors import CommandNotFound as CommandNotFound
    from .errors import FolderUnusable as FolderUnusable
    from .errors import InboxBusy as InboxBusy
    from .errors import InboxCorrupt as InboxCorrupt
    from .errors import InputError as InputError
    from .errors import InternalError as InternalError
    from .errors import Interrupted as Interrupted
    from .errors import InvalidOptions as InvalidOptions
    from .errors import LocalProtocolError as LocalProtocolError
    from .errors import MessageDead as MessageDead
    from .errors import MessageNotFound as MessageNotFound
    from .errors import NoOrigin as NoOrigin
    from .errors import NotATerminal as NotATerminal
    from .errors import NotInQueue as NotInQueue
    from .errors import NoTmuxClient as NoTmuxClient
    from .errors import NotSafe as NotSafe
    from .errors import PathTooLong as PathTooLong
    from .errors import PermissionRefused as PermissionRefused
    from .errors import PoolBroken as PoolBroken
    from .errors import PoolExhausted as PoolExhausted
    from .errors import PoolNotServed as PoolNotServed
    from .errors import ProtocolError as ProtocolError
    from .errors import RemoteProtocolError as RemoteProtocolError
    from .errors import RemudaError as RemudaError
    from .errors import SessionCrashed as SessionCrashed
    from .errors import SessionDead as SessionDead
    from .errors import SessionDirty as SessionDirty
    from .errors import SessionExists as SessionExists
    from .errors import SessionNotFound as SessionNotFound
    from .errors import SessionUnreachable as SessionUnreachable
    from .errors import SpawnFailed as SpawnFailed
    from .errors import SpawnTimeout as SpawnTimeout
    from .errors import StoreFailed as StoreFailed
    from .errors import TmuxError as TmuxError
    from .errors import TmuxGone as TmuxGone
    from .errors import TmuxMissing as TmuxMissing
    from .errors import TmuxTargetGone as TmuxTargetGone
    from .errors import TmuxTooOld as TmuxTooOld
    from .errors import WaitTimeout as WaitTimeout
    from .inbox.compaction import Reclaimed as Reclaimed
    from .inbox.journal import Accepted as Accepted
    from .inbox.journal import Inbox as Inbox
    from .inbox.journal import Overview as Overview
    from .inbox.journal import Recovered as Recovered
    from .inbox.message import PutOptions as PutOptions
    from .inbox.receipts import Trace as Trace
    from .inbox.stop_hook import Entry as Entry
    from .keeper.cancel import Cancelled as Cancelled
    from .keeper.cancel import Fate as Fate
    from .keeper.client import KeeperClient as KeeperClient
    from .keeper.spec import SessionSpec as SessionSpec
    from .keeper.start import Started as Started
    from .keeper.start import start_session as start_session
    from .pool.client import Client as Client
    from .pool.events import RequestDone as RequestDone
    from .pool.events import RequestError as RequestError
    from .pool.events import SessionEvicted as SessionEvicted
    from .pool.events import SessionSpawned as SessionSpawned
    from .pool.options import AsyncRunOptions as AsyncRunOptions
    from .pool.options import ClientOptions as ClientOptions
    from .pool.options import PrewarmOptions as PrewarmOptions
    from .pool.options import RunOptions as RunOptions
    from .pool.remote import RemoteClient as RemoteClient
    from .pool.sync import SyncClient as SyncClient
    from .pool.types import Allow as Allow
    from .pool.types import Deny as Deny
    from .pool.types import Done as Done
    from .pool.types import Failed as Failed
    from .pool.types import PermissionRequest as PermissionRequest
    from .pool.types import Raw as Raw
    from .pool.types import RunResult as RunResult
    from .pool.types import StreamEvent as StreamEvent
    from .pool.types import Token as Token
    from .pool.types import ToolResult as ToolResult
    from .pool.types import ToolUse as ToolUse
    from .pool.types import Usage as Usage
    from .session import Session as Session
    from .session import StartOptions as StartOptions

# Loaded when first used: importing the package costs next to nothing.
_LAZY = {
    "Aborted": "remuda.errors",
    "Accepted": "remuda.inbox.journal",
    "AgentError": "remuda.errors",
    "AgentRefused": "remuda.errors",
    "Allow": "remuda.pool.types",
    "AlreadyAnswered": "remuda.errors",
    "Approval": "remuda.boss.api",
    "AsyncBoss": "remuda.boss.async_api",
    "AsyncRunOptions": "remuda.pool.options",
    "AsyncSession": "remuda.async_session",
    "BadName": "remuda.errors",
    "Boss": "remuda.boss.api",
    "BossDown": "remuda.errors",
    "BossExists": "remuda.errors",
    "CallFailed": "remuda.errors",
    "Cancelled": "remuda.keeper.cancel",
    "Client": "remuda.pool.client",
    "ClientClosed": "remuda.errors",
    "ClientOptions": "remuda.pool.options",
    "CommandNotExecutable": "remuda.errors",
    "CommandNotFound": "remuda.errors",
    "Deny": "remuda.pool.types",
    "Done": "remuda.pool.types",
    "Entry": "remuda.inbox.stop_hook",
    "Failed": "remuda.pool.types",
    "Fate": "remuda.keeper.cancel",
    "FolderUnusable": "remuda.errors",
    "Inbox": "remuda.inbox.journal",
    "InboxBusy": "remuda.errors",
    "InboxCorrupt": "remuda.errors",
    "InputError": "remuda.errors",
    "InternalError": "remuda.errors",
    "Interrupted": "remuda.errors",
    "InvalidOptions": "remuda.errors",
    "KeeperClient": "remuda.keeper.client",
    "LocalProtocolError": "remuda.errors",
    "MessageDead": "remuda.errors",
    "MessageNotFound": "remuda.errors",
    "NoOrigin": "remuda.errors",
    "NoTmuxClient": "remuda.errors",
    "NotATerminal": "remuda.errors",
    "NotInQueue": "remuda.errors",
    "NotSafe": "remuda.errors",
    "Overview": "remuda.inbox.journal",
    "PathTooLong": "remuda.errors",
    "PermissionRefused": "remuda.errors",
    "PermissionRequest": "remuda.pool.types",
    "PoolBroken": "remuda.errors",
    "PoolExhausted": "remuda.errors",
    "PoolNotServed": "remuda.errors",
    "PrewarmOptions": "remuda.pool.options",
    "ProtocolError": "remuda.errors",
    "PutOptions": "remuda.inbox.message",
    "Raw": "remuda.pool.types",
    "Reclaimed": "remuda.inbox.compaction",
    "Recovered": "remuda.inbox.journal",
    "RemoteClient": "remuda.pool.remote",
    "RemoteProtocolError": "remuda.errors",
    "RemudaError": "remuda.errors",
    "ReplyResult": "remuda.boss.api",
    "RequestDone": "remuda.pool.events",
    "RequestError": "remuda.pool.events",
    "RunOptions": "remuda.pool.options",
    "RunResult": "remuda.pool.types",
    "Session": "remuda.session",
    "SessionCrashed": "remuda.errors",
    "SessionDead": "remuda.errors",
    "SessionDirty": "remuda.errors",
    "SessionEvicted": "remuda.pool.events",
    "SessionExists": "remuda.errors",
    "SessionNotFound": "remuda.errors",
    "SessionSpawned": "remuda.pool.events",
    "SessionSpec": "remuda.keeper.spec",
    "SessionUnreachable": "remuda.errors",
    "SpawnFailed": "remuda.errors",
    "SpawnTimeout": "remuda.errors",
    "StartOptions": "remuda.session",
    "Started": "remuda.keeper.start",
    "StoreFailed": "remuda.errors",
    "StreamEvent": "remuda.pool.types",
    "SyncClient": "remuda.pool.sync",
    "TmuxError": "remuda.errors",
    "TmuxGone": "remuda.errors",
    "TmuxMissing": "remuda.errors",
    "TmuxTargetGone": "remuda.errors",
    "TmuxTooOld": "remuda.errors",
    "Token": "remuda.pool.types",
    "ToolResult": "remuda.pool.types",
    "ToolUse": "remuda.pool.types",
    "Trace": "remuda.inbox.receipts",
    "Usage": "remuda.pool.types",
    "WaitTimeout": "remuda.errors",
    "WaitingItem": "remuda.boss.api",
    "start_session": "remuda.keeper.start",
}

__all__ = [
    "Aborted",
    "Accepted",
    "AgentError",
    "AgentRefused",
    "Allow",
    "AlreadyAnswered",
    "Approval",
    "AsyncBoss",
    "AsyncRunOptions",
    "AsyncSession",
    "BadName",
    "Boss",
    "BossDown",
    "BossExists",
    "CallFailed",
    "Cancelled",
    "Client",
    "ClientClosed",
    "ClientOptions",
    "CommandNotExecutable",
    "CommandNotFound",
    "Deny",
    "Done",
    "Entry",
    "Failed",
    "Fate",
    "FolderUnusable",
    "Inbox",
    "InboxBusy",
    "InboxCorrupt",
    "InputError",
    "InternalError",
    "Interrupted",
    "InvalidOptions",
    "KeeperClient",
    "LocalProtocolError",
    "MessageDead",
    "MessageNotFound",
    "NoOrigin",
    "NoTmuxClient",
    "NotATerminal",
    "NotInQueue",
    "NotSafe",
    "Overview",
    "PathTooLong",
    "PermissionRefused",
    "PermissionRequest",
    "PoolBroken",
    "PoolExhausted",
    "PoolNotServed",
    "PrewarmOptions",
    "ProtocolError",
    "PutOptions",
    "Raw",
    "Reclaimed",
    "Recovered",
    "RemoteClient",
    "RemoteProtocolError",
    "RemudaError",
    "ReplyResult",
    "RequestDone",
    "RequestError",
    "RunOptions",
    "RunResult",
    "Session",
    "SessionCrashed",
    "SessionDead",
    "SessionDirty",
    "SessionEvicted",
    "SessionExists",
    "SessionNotFound",
    "SessionSpawned",
    "SessionSpec",
    "SessionUnreachable",
    "SpawnFailed",
    "SpawnTimeout",
    "StartOptions",
    "Started",
    "StoreFailed",
    "StreamEvent",
    "SyncClient",
    "TmuxError",
    "TmuxGone",
    "TmuxMissing",
    "TmuxTargetGone",
    "TmuxTooOld",
    "Token",
    "ToolResult",
    "ToolUse",
    "Trace",
    "Usage",
    "WaitTimeout",
    "WaitingItem",
    "__version__",
    "start_session",
]


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'remuda' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
