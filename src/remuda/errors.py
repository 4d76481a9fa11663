"""Every error that Remuda raises on purpose, and the table of exit codes.

    RemudaError
    ├── InvalidOptions          an option or argument is invalid
    │   ├── BadName             a session name that is not a safe file name
    │   └── InputError          a prompt that the agent cannot take
    ├── SessionNotFound         no session has that name
    │   └── PoolNotServed       no pool is served at that socket
    ├── SessionExists           a running session has that name
    ├── SessionDead             the session has ended
    ├── SessionUnreachable      the keeper does not answer
    ├── CommandNotFound         the program to run does not exist
    ├── CommandNotExecutable    the program exists but cannot be run
    ├── SpawnFailed             the program or its keeper could not be started
    │   └── SpawnTimeout        the session was not ready in time
    ├── FolderUnusable          a folder is missing, not a folder, or not writable
    ├── PathTooLong             a socket path is too long for the system
    ├── NotATerminal            the command needs a terminal
    ├── InboxBusy               another consumer delivers the messages of that inbox
    ├── InboxCorrupt            the files of that inbox contradict each other; a human must look
    ├── MessageNotFound         no message has that id
    ├── MessageDead             a message will not be answered: dead-lettered, expired or dropped
    ├── WaitTimeout             a wait reached its timeout
    ├── Aborted                 the caller cancelled a request
    ├── PoolExhausted           no worker of the pool was free in time
    ├── BudgetExceeded          a request used more than its caller allowed
    ├── SessionCrashed          a worker of the pool ended during a request
    ├── SessionDirty            a worker has carry-over of a request, and is not used again
    ├── AgentError              the agent itself reported an error
    ├── AgentRefused            the agent ended before it took the prompt, with a reason
    ├── CallFailed              a call ended without an answer of the agent
    ├── Interrupted             a signal ended the call
    ├── InternalError           a bug in Remuda, or a machine that is out of resources
    ├── ClientClosed            the client was closed before or during the call
    ├── PermissionRefused       the peer is another user, or refused the token
    ├── BossDown                the boss is not running, or does not answer
    ├── BossExists              a boss is already running
    ├── NotInFleet              this machine has joined no fleet, or no host has that name
    ├── HubUnreachable          the hub of the fleet does not answer
    ├── HubRefused              the hub refused the key, or cannot store a message
    ├── HostUnreachable         that host is not connected to the hub
    ├── NotInQueue              no waiting item, permission request or agent has that id or name
    ├── AlreadyAnswered         another decision was first, or the request has ended
    ├── NotSafe                 refused: it is not proven to be safe, and nothing was done
    ├── StoreFailed             a change could not be written to the disk, and does not count
    ├── OutputFailed            standard output cannot be written, for example because the disk is full
    ├── TmuxError               tmux refused a command, with a reason
    │   ├── TmuxMissing         tmux is not installed
    │   ├── TmuxTooOld          tmux is too old for this
    │   ├── TmuxGone            no tmux server answers
    │   ├── TmuxTargetGone      the pane, window, session or client no longer exists
    │   ├── NoTmuxClient        no tmux client is attached
    │   └── NoOrigin            no pane to return to
    └── ProtocolError
        ├── LocalProtocolError  we tried to send what the protocol cannot carry
        └── RemoteProtocolError the peer broke the protocol
            └── PoolBroken      the pool broke the protocol, was silent, or hung up

Handle them by type or by `.code`; the text is for people and may change.
"""

from __future__ import annotations

from errno import EDQUOT, ENOSPC

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from typing import ClassVar, Final

EXIT_CODES: Final[dict[str, int]] = {
    "OK": 0,
    "FAILED": 1,
    "INVALID_OPTIONS": 2,
    "NO_SESSION": 3,
    "INVALID_INPUT": 4,
    "SESSION_EXISTS": 5,
    "SESSION_DEAD": 6,
    "UNREACHABLE": 7,
    "REFUSED": 8,
    "PROTOCOL": 9,
    "NOT_ANSWERED": 10,
    "TIMEOUT": 124,
    "IDLE_EXHAUSTED": 125,
    "NOT_EXECUTABLE": 126,
    "COMMAND_NOT_FOUND": 127,
    "INTERRUPTED": 130,
}
"""What `remuda` exits with. Commands that end with a session's own code say so in their help."""


class RemudaError(Exception):
    """Base of all errors. Handle them by type or by `.code`; `.exit_code` is that of the commands."""

    code: ClassVar[str] = "FAILED"
    exit_name: ClassVar[str] = "FAILED"
    request_id: str | None = None
    """The id of the pool's request that failed, if there is one."""

    def __init_subclass__(cls, code: str | None = None, exit_name: str | None = None) -> None:
        """`code` is for programs; `exit_name` is a key of `EXIT_CODES`. Both are inherited."""
        cls.code = code or cls.code
        cls.exit_name = exit_name or cls.exit_name

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.exit_name]


class InvalidOptions(RemudaError, code="INVALID_OPTIONS", exit_name="INVALID_OPTIONS"):
    """An option or argument is invalid."""


class BadName(InvalidOptions, code="BAD_NAME", exit_name="INVALID_INPUT"):
    """A session name that is not a safe file name."""


class InputError(InvalidOptions, code="INPUT_ERROR", exit_name="INVALID_INPUT"):
    """A prompt that the agent cannot take."""


class SessionNotFound(RemudaError, code="SESSION_NOT_FOUND", exit_name="NO_SESSION"):
    """No session has that name."""


class PoolNotServed(SessionNotFound, code="POOL_NOT_SERVED"):
    """No pool is served at that socket."""


class SessionExists(RemudaError, code="SESSION_EXISTS", exit_name="SESSION_EXISTS"):
    """A running session has that name."""


class SessionDead(RemudaError, code="SESSION_DEAD", exit_name="SESSION_DEAD"):
    """The session has ended."""


class SessionUnreachable(RemudaError, code="SESSION_UNREACHABLE", exit_name="UNREACHABLE"):
    """The keeper does not answer."""


class CommandNotFound(RemudaError, code="COMMAND_NOT_FOUND", exit_name="COMMAND_NOT_FOUND"):
    """The program to run does not exist."""


class CommandNotExecutable(RemudaError, code="COMMAND_NOT_EXECUTABLE", exit_name="NOT_EXECUTABLE"):
    """The program exists but cannot be run."""


class SpawnFailed(RemudaError, code="SPAWN_FAILED"):
    """The program or its keeper could not be started."""


class SpawnTimeout(SpawnFailed, code="SPAWN_TIMEOUT", exit_name="TIMEOUT"):
    """The session was not ready in time."""


class FolderUnusable(RemudaError, code="FOLDER_UNUSABLE", exit_name="INVALID_INPUT"):
    """A folder is missing, not a folder, or not writable."""


def unusable(error: OSError) -> FolderUnusable:
    """Turn an error of the operating system into ours, with its file and what to do if a disk is full."""
    what = f"cannot use {error.filename}: " if error.filename else ""
    is_full = error.errno in (ENOSPC, EDQUOT)
    hint = "free space on the disk with $REMUDA_HOME, and try again" if is_full else None
    return FolderUnusable(f"{what}{error.strerror or error}", hint=hint)


class PathTooLong(RemudaError, code="PATH_TOO_LONG", exit_name="INVALID_INPUT"):
    """A socket path is too long for the system."""


class NotATerminal(RemudaError, code="NOT_A_TERMINAL", exit_name="INVALID_INPUT"):
    """The command needs a terminal."""


class InboxBusy(RemudaError, code="INBOX_BUSY", exit_name="REFUSED"):
    """Another consumer delivers the messages of that inbox."""


class InboxCorrupt(RemudaError, code="INBOX_CORRUPT"):
    """The files of that inbox contradict each other; a human must look."""


class MessageNotFound(RemudaError, code="MESSAGE_NOT_FOUND", exit_name="NO_SESSION"):
    """No message has that id."""


class MessageDead(RemudaError, code="MESSAGE_DEAD", exit_name="NOT_ANSWERED"):
    """A message will not be answered: dead-lettered, expired or dropped."""


class WaitTimeout(RemudaError, code="TIMEOUT", exit_name="TIMEOUT"):
    """A wait reached its timeout."""


class Aborted(RemudaError, code="ABORTED", exit_name="INTERRUPTED"):
    """The caller cancelled a request."""


class PoolExhausted(RemudaError, code="POOL_EXHAUSTED", exit_name="TIMEOUT"):
    """No worker was free in time: `waited` is in seconds, `size` is that of the pool."""

    def __init__(self, message: str, *, hint: str | None = None, waited: float = 0.0, size: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.waited = waited
        self.size = size


class BudgetExceeded(RemudaError, code="BUDGET_EXCEEDED", exit_name="NOT_ANSWERED"):
    """A request used more than its caller allowed. Its turn is stopped, without an answer."""


class SessionCrashed(RemudaError, code="SESSION_CRASHED", exit_name="SESSION_DEAD"):
    """A worker ended during a request. `detail` says how, and what it printed last."""

    def __init__(self, message: str, *, hint: str | None = None, detail: str = "") -> None:
        super().__init__(message, hint=hint)
        self.detail = detail


class SessionDirty(RemudaError, code="SESSION_DIRTY"):
    """A worker has carry-over of a request, and is not used again."""


class AgentError(RemudaError, code="AGENT_ERROR", exit_name="NOT_ANSWERED"):
    """The agent itself reported an error."""


class AgentRefused(RemudaError, code="AGENT_REFUSED"):
    """The agent ended before it took the prompt. Exit code 1, as `claude -p`."""


class CallFailed(RemudaError, code="CALL_FAILED", exit_name="INVALID_OPTIONS"):
    """A call ended without an answer of the agent."""


class Interrupted(RemudaError, code="INTERRUPTED", exit_name="INTERRUPTED"):
    """A signal ended the call."""


class InternalError(RemudaError, code="INTERNAL_ERROR", exit_name="INVALID_OPTIONS"):
    """A bug in Remuda, or a machine that is out of resources."""


class ClientClosed(RemudaError, code="CLIENT_CLOSED", exit_name="REFUSED"):
    """The client was closed before or during the call."""


class PermissionRefused(RemudaError, code="PERMISSION_REFUSED", exit_name="REFUSED"):
    """The peer is another user, or refused the token."""


class TmuxError(RemudaError, code="TMUX_ERROR"):
    """Tmux refused a command, with a reason."""


class TmuxMissing(TmuxError, code="TMUX_MISSING", exit_name="COMMAND_NOT_FOUND"):
    """Tmux is not installed."""


class TmuxTooOld(TmuxError, code="TMUX_TOO_OLD"):
    """Tmux is too old for this."""


class TmuxGone(TmuxError, code="TMUX_GONE", exit_name="UNREACHABLE"):
    """No tmux server answers."""


class TmuxTargetGone(TmuxError, code="TMUX_TARGET_GONE", exit_name="NO_SESSION"):
    """The pane, window, session or client no longer exists."""


class NoTmuxClient(TmuxError, code="NO_TMUX_CLIENT", exit_name="INVALID_INPUT"):
    """No tmux client is attached."""


class NoOrigin(TmuxError, code="NO_ORIGIN", exit_name="NO_SESSION"):
    """No pane to return to."""


class BossDown(RemudaError, code="BOSS_DOWN", exit_name="UNREACHABLE"):
    """The boss is not running, or does not answer."""


class BossExists(RemudaError, code="BOSS_EXISTS", exit_name="SESSION_EXISTS"):
    """A boss is already running."""


class NotInFleet(RemudaError, code="NOT_IN_FLEET", exit_name="INVALID_OPTIONS"):
    """This machine has joined no fleet, or no host has that name."""


class HubUnreachable(RemudaError, code="HUB_UNREACHABLE", exit_name="UNREACHABLE"):
    """The hub of the fleet does not answer."""


class HubRefused(RemudaError, code="HUB_REFUSED", exit_name="REFUSED"):
    """The hub refused the key, or cannot store a message."""


class HostUnreachable(RemudaError, code="HOST_UNREACHABLE", exit_name="UNREACHABLE"):
    """That host is not connected to the hub."""


class NotInQueue(RemudaError, code="NOT_IN_QUEUE", exit_name="NO_SESSION"):
    """No waiting item, permission request or agent has that id or name."""


class AlreadyAnswered(RemudaError, code="ALREADY_ANSWERED", exit_name="REFUSED"):
    """Another decision was first, or the request has ended."""


class NotSafe(RemudaError, code="NOT_SAFE", exit_name="REFUSED"):
    """Refused: it is not proven to be safe, and nothing was done."""


class StoreFailed(RemudaError, code="STORE_FAILED"):
    """A change could not be written to the disk, and does not count."""


class ProtocolError(RemudaError, code="PROTOCOL_ERROR", exit_name="PROTOCOL"):
    """One end broke the protocol."""


class OutputFailed(RemudaError, code="OUTPUT_FAILED"):
    """Standard output cannot be written, for example because the disk is full."""


class LocalProtocolError(ProtocolError, code="LOCAL_PROTOCOL_ERROR"):
    """We tried to send what the protocol cannot carry."""


class RemoteProtocolError(ProtocolError, code="REMOTE_PROTOCOL_ERROR"):
    """The peer broke the protocol."""


class PoolBroken(RemoteProtocolError, code="POOL_BROKEN"):
    """The pool broke the protocol, was silent, or hung up."""


def _tree(base: type[RemudaError]) -> dict[str, type[RemudaError]]:
    by_code: dict[str, type[RemudaError]] = {}
    for sub in base.__subclasses__():
        by_code |= _tree(sub)
    return by_code | {base.code: base}  # a subclass without a code of its own does not take its base's


def from_code(code: str, message: str, hint: str | None = None) -> RemudaError:
    """Rebuild an error that crossed a process boundary; an unknown code becomes the base error."""
    return _tree(RemudaError).get(code, RemudaError)(message, hint=hint)
