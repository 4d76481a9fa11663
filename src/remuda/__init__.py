"""Remuda keeps interactive coding agents running, feeds and reads them, and calls a human in time."""

from __future__ import annotations

from ._version import __version__ as __version__

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
    from .errors import BudgetExceeded as BudgetExceeded
    from .errors import CallFailed as CallFailed
    from .errors import ClientClosed as ClientClosed
    from .errors import CommandNotExecutable as CommandNotExecutable
    from .errors import CommandNotFound as CommandNotFound
    from .errors import FolderUnusable as FolderUnusable
    from .errors import HostUnreachable as HostUnreachable
    from .errors import HubRefused as HubRefused
    from .errors import HubUnreachable as HubUnreachable
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
    from .errors import NotInFleet as NotInFleet
    from .errors import NotInQueue as NotInQueue
    from .errors import NoTmuxClient as NoTmuxClient
    from .errors import NotSafe as NotSafe
    from .errors import OutputFailed as OutputFailed
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
_EXPORTS = {
    "remuda.async_session": "AsyncSession",
    "remuda.boss.api": "Approval Boss ReplyResult WaitingItem",
    "remuda.boss.async_api": "AsyncBoss",
    "remuda.errors": """
        Aborted AgentError AgentRefused AlreadyAnswered BadName BossDown BossExists BudgetExceeded CallFailed
        ClientClosed CommandNotExecutable CommandNotFound FolderUnusable HostUnreachable HubRefused
        HubUnreachable InboxBusy InboxCorrupt InputError InternalError Interrupted
        InvalidOptions LocalProtocolError MessageDead
        MessageNotFound NoOrigin NoTmuxClient NotATerminal NotInFleet NotInQueue NotSafe OutputFailed
        PathTooLong PermissionRefused PoolBroken PoolExhausted PoolNotServed ProtocolError
        RemoteProtocolError RemudaError SessionCrashed SessionDead SessionDirty SessionExists
        SessionNotFound SessionUnreachable SpawnFailed SpawnTimeout StoreFailed TmuxError
        TmuxGone TmuxMissing TmuxTargetGone TmuxTooOld WaitTimeout
    """,
    "remuda.inbox.compaction": "Reclaimed",
    "remuda.inbox.journal": "Accepted Inbox Overview Recovered",
    "remuda.inbox.message": "PutOptions",
    "remuda.inbox.receipts": "Trace",
    "remuda.inbox.stop_hook": "Entry",
    "remuda.keeper.cancel": "Cancelled Fate",
    "remuda.keeper.client": "KeeperClient",
    "remuda.keeper.spec": "SessionSpec",
    "remuda.keeper.start": "Started start_session",
    "remuda.pool.client": "Client",
    "remuda.pool.events": "RequestDone RequestError SessionEvicted SessionSpawned",
    "remuda.pool.options": "AsyncRunOptions ClientOptions PrewarmOptions RunOptions",
    "remuda.pool.remote": "RemoteClient",
    "remuda.pool.sync": "SyncClient",
    "remuda.pool.types": """
        Allow Deny Done Failed PermissionRequest Raw RunResult StreamEvent Token ToolResult
        ToolUse Usage
    """,
    "remuda.session": "Session StartOptions",
}
"""The names of each module that the package exports."""
_MODULES = {name: module for module, names in _EXPORTS.items() for name in names.split()}

__all__ = sorted([*_MODULES, "__version__"])


def __getattr__(name: str) -> object:
    if name in _MODULES:
        import importlib

        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'remuda' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
